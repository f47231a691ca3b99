"""Streams: whole characters, stop strings, the order of chunks, usage; and that a stream and a
whole answer say the same.
"""

import random
import unittest

from harness import Scripted, chunk_text, content, finish, main, user

SCRIPT = {
    "rules": [
        {"when": "unicorn", "bytes": "f09fa699e4bda0"},
        {"when": "lone", "bytes": "61996263"},
        {"when": "half", "bytes": "61f09fa6"},
        {"when": "stops", "pieces": ["nop", "qrs", "t", "uv", "w", "x"]},
        {"when": "note", "pieces": [" Note", "?"]},
        {"when": "long stop", "pieces": ["head"] + ["ab"] * 200 + ["tail"]},
        {"when": "prefixes", "pieces": ["a", "\n", "User", "b", "\n", "Us", "er", ":", "c"]},
        {
            "when": "poem",
            "pieces": [
                "Roses",
                " are",
                " red",
                ",",
                "\n",
                "violets",
                " 你",
                "好",
                " blue",
                ".",
                "\n\n",
                "ab",
                "aab",
                "ba",
            ],
        },
        {"when": "count", "pieces": ["1 ", "2 ", "3 ", "4 "]},
    ],
    "default": {"pieces": ["ok"]},
}


class Streams(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.d = Scripted(SCRIPT)

    @classmethod
    def tearDownClass(cls):
        cls.d.stop()

    def both(self, text, **more):
        """(whole text, finish, deltas of the stream); the two must agree."""
        whole = self.d.chat([user(text)], **more)
        with self.d.chat_stream([user(text)], **more) as s:
            events = list(s)
        self.assertTrue(s.is_done)
        deltas = [chunk_text(e) for e in events if chunk_text(e)]
        finishes = [e["choices"][0]["finish_reason"] for e in events if e.get("choices")]
        self.assertEqual([f for f in finishes if f], [finish(whole)], "exactly one finish_reason")
        self.assertEqual("".join(deltas), content(whole))
        return content(whole), finish(whole), deltas

    def test_characters_of_many_tokens_come_whole(self):  # B16
        text, reason, deltas = self.both("unicorn")
        self.assertEqual((text, reason), (bytes.fromhex("f09fa699e4bda0").decode(), "stop"))
        self.assertEqual(len(deltas), 2)

    def test_a_limit_inside_a_character_drops_its_beginning(self):  # B17
        text, reason, _ = self.both("unicorn", max_tokens=1)
        self.assertEqual((text, reason), ("", "length"))
        text, reason, _ = self.both("half")
        self.assertEqual((text, reason), ("a", "stop"))

    def test_a_lone_byte_becomes_one_replacement_character(self):  # B17
        text, _, _ = self.both("lone")
        self.assertEqual(text, "a\ufffdbc")

    def test_nothing_of_a_stop_string_is_sent(self):  # B18
        text, reason, deltas = self.both("stops", stop=["qrstuvw"])
        self.assertEqual((text, reason, deltas), ("nop", "stop", ["nop"]))

    def test_a_stop_longer_than_any_piece(self):  # B18
        text, reason, _ = self.both("long stop", stop=["ab" * 150])
        self.assertEqual((text, reason), ("head", "stop"))

    def test_stops_that_share_a_prefix(self):  # B18
        text, reason, _ = self.both("prefixes", stop=["\nUser:", "\nNever"])
        self.assertEqual((text, reason), ("a\nUserb", "stop"))
        text, reason, _ = self.both("prefixes", stop=["\n", "\nUser:"])
        self.assertEqual((text, reason), ("a", "stop"))

    def test_a_stop_that_begins_in_a_character(self):  # B18
        text, _, _ = self.both("unicorn", stop=["你"])
        self.assertEqual(text, bytes.fromhex("f09fa699").decode())

    def test_held_text_is_sent_once_when_it_was_no_stop(self):  # B20
        text, reason, _ = self.both("note", stop=["\n", "Note:"])
        self.assertEqual((text, reason), (" Note?", "stop"))

    def test_the_token_limit_comes_before_the_stop_string(self):
        text, reason, _ = self.both("stops", stop=["w"], max_tokens=5)
        self.assertEqual((text, reason), ("nopqrstuv", "length"))

    def test_random_stops_give_one_text_both_ways(self):  # B20
        seed = random.randrange(1 << 32)
        rng = random.Random(seed)
        full = content(self.d.chat([user("poem")]))
        for _ in range(25):
            stops = []
            for _ in range(rng.randint(1, 4)):
                at = rng.randrange(len(full))
                stop = full[at : at + rng.randint(1, 6)]
                stops.append(stop if rng.random() < 0.7 else stop + "§")
            with self.subTest(seed=seed, stops=stops):
                text, _, _ = self.both("poem", stop=stops)
                ends = [full.find(s) for s in stops if s in full]
                # The stop that ends first in the stream of tokens wins, so the cut is at one of
                # them and none is inside.
                self.assertTrue(full.startswith(text))
                self.assertFalse(any(s in text for s in stops))
                self.assertEqual(text == full, not ends)

    def test_the_first_chunk_is_the_role(self):
        with self.d.chat_stream([user("count")]) as s:
            events = list(s)
        self.assertEqual(events[0]["choices"][0]["delta"], {"role": "assistant", "content": ""})
        self.assertEqual(events[0]["hearth"]["receipt"]["strategy"], "error")
        self.assertEqual({e["id"] for e in events}, {events[0]["id"]})
        self.assertEqual({e["object"] for e in events}, {"chat.completion.chunk"})
        self.assertTrue(events[0]["id"].startswith("chatcmpl-"))
        last = events[-1]
        self.assertEqual(last["choices"][0]["delta"], {})
        self.assertEqual(set(last["hearth"]), {"receipt", "cache", "timings"})
        self.assertEqual(s.headers["Content-Type"].split(";")[0], "text/event-stream")
        self.assertNotIn(b"\n:", b"\n" + s.raw, "no comments in the stream")

    def test_usage_comes_when_asked_for_in_a_chunk_without_choices(self):  # B21
        for include in (True, False, None):
            options = {} if include is None else {"stream_options": {"include_usage": include}}
            with self.d.chat_stream([user("count")], **options) as s:
                events = list(s)
            usages = [e for e in events if e.get("usage")]
            if include:
                self.assertEqual(len(usages), 1)
                self.assertIs(usages[0], events[-1])
                self.assertEqual(usages[0]["choices"], [])
                self.assertEqual(usages[0]["usage"]["completion_tokens"], 5)
                self.assertIn("cached_tokens", usages[0]["usage"]["prompt_tokens_details"])
                self.assertTrue(all("usage" in e for e in events))
            else:
                self.assertEqual(usages, [])
            self.assertTrue(all(e["choices"] for e in events if not e.get("usage")))
            self.assertTrue(s.is_done)

    def test_a_text_completion_streams_text(self):
        body = {"prompt": "count with me", "temperature": 0, "max_tokens": 3}
        status, whole = self.d.post("/v1/completions", body)
        self.assertEqual((status, whole["object"]), (200, "text_completion"), whole)
        with self.d.stream("/v1/completions", {**body, "stream": True}) as s:
            events = list(s)
        self.assertEqual("".join(chunk_text(e) for e in events), whole["choices"][0]["text"])
        self.assertTrue(s.is_done)


if __name__ == "__main__":
    main()
