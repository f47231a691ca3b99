"""A model that misbehaves: unusable logits and failing passes end their own turn with an error,
and nothing of it stays in the cache.
"""

import unittest

from harness import Scripted, content, main, together, user

SCRIPT = {
    "pace_us": 500,
    "rules": [
        {"when": "one nan", "pieces": ["a", "b", "c"], "nan_at": 1, "bad_id": 0},
        {"when": "last nan", "pieces": ["a", "b", "c"], "nan_at": 0, "bad_id": 258},
        {"when": "infinite", "pieces": ["a", "b", "c"], "inf_at": 1, "bad_id": 5},
        {"when": "all nan", "pieces": ["a", "b", "c"], "all_nan_at": 0},
        {"when": "no memory", "pieces": ["a", "b", "c"], "error_at": 1},
        {"when": "some", "pieces": ["s1 ", "s2 "] * 20},
    ],
    "default": {"pieces": ["ok"]},
}


class Faults(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.d = Scripted(SCRIPT)

    @classmethod
    def tearDownClass(cls):
        cls.d.stop()

    def fails(self, text):
        status, reply = self.d.post(
            "/v1/chat/completions", {"messages": [user(text)], "temperature": 0}
        )
        self.assertEqual((status, reply["error"]["type"]), (500, "server_error"), reply)
        with self.d.chat_stream([user(text)]) as s:
            events = list(s)
        self.assertIn("error", events[-1])
        self.assertFalse(s.is_done)
        self.d.until_idle()
        self.assertEqual(self.d.say([user("x")]), "ok")

    def test_one_nan_is_never_chosen(self):  # B43
        self.assertEqual(self.d.say([user("one nan")]), "abc")
        self.assertEqual(self.d.say([user("last nan")]), "abc")

    def test_infinite_logits_are_an_error(self):  # B43
        self.fails("infinite")

    def test_all_nan_is_an_error_and_leaves_no_blocks(self):  # B43
        text = "all nan " + "x" * 200
        self.fails(text)
        status, _ = self.d.post("/v1/chat/completions", {"messages": [user(text)]})
        self.assertEqual(status, 500)
        r = self.d.chat([user("x" * 8 + "all")])
        self.assertEqual(content(r), "ok")

    def test_a_failed_pass_is_an_error(self):
        self.fails("no memory")

    def test_others_go_on(self):
        expected = self.d.say([user("some")])

        def bad():
            return [
                self.d.post("/v1/chat/completions", {"messages": [user("all nan")]})[0]
                for _ in range(5)
            ]

        texts = together(
            lambda: self.d.say([user("some")]), lambda: self.d.say([user("some more")]), bad
        )
        self.assertEqual(texts, [expected, expected, [500] * 5])

    def test_the_log_is_not_flooded(self):
        for _ in range(20):
            self.d.post("/v1/chat/completions", {"messages": [user("all nan")]})
        self.assertLess(self.d.log().count("logits"), 8)


class FullDisk(unittest.TestCase):
    def test_an_answer_that_cannot_be_stored_says_so(self):
        # The write-ahead log may not grow beyond this: at some point a message or an answer can't
        # be written.
        with Scripted({"default": {"pieces": ["word "] * 400}}, file_bytes=500_000) as d:
            conversation = d.post("/v1/conversations", {})[1]["id"]
            seen = set()
            for i in range(60):
                status, r = d.post(
                    "/v1/responses",
                    {
                        "conversation": conversation,
                        "input": f"{i} " + "x" * 3000,
                        "temperature": 0,
                        "max_output_tokens": 400,
                    },
                )
                if status == 400 and r["error"]["code"] == "context_length_exceeded":
                    conversation = d.post("/v1/conversations", {})[1].get("id", conversation)
                    continue
                if status == 200 and r["hearth"].get("stored") is False:
                    self.assertTrue(
                        r["output"][0]["content"][0]["text"].startswith("word "),
                        "what was said stays said",
                    )
                    seen.add("not stored")
                elif status != 200:
                    self.assertEqual((status, r["error"]["code"]), (500, "disk_full"), r)
                    seen.add("refused")
                if len(seen) == 2:
                    break
            self.assertTrue(seen, "the limit was never met")
            self.assertEqual(d.say([user("stateless")], max_tokens=1), "word ")


if __name__ == "__main__":
    main()
