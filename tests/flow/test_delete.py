"""What a deletion takes along: rows, and the KV blocks in RAM and on disk that no other
conversation uses.
"""

import os
import shutil
import tempfile
import unittest

import history
from harness import Scripted, main, system

SCRIPT = {
    "pace_us": 2000,
    "rules": [{"when": "forever", "pieces": ["tick "], "then": "forever"}],
    "default": {"pieces": ["fine ", "and ", "good "] * 15},
}
RULES = "Be brief. " * 60


class Delete(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="hearth-delete-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def daemon(self, *flags, **more):
        return Scripted(SCRIPT, *flags, folder=self.folder, **more)

    def new(self, d, text=RULES):
        status, c = d.post("/v1/conversations", {"items": [system(text)]})
        self.assertEqual(status, 200, c)
        return c["id"]

    def respond(self, d, conversation, text, **more):
        body = {"conversation": conversation, "input": text, "temperature": 0, **more}
        status, r = d.post("/v1/responses", body)
        self.assertEqual(status, 200, (r, d.log()))
        return r

    def delete(self, d, path):
        status, gone, _ = d.request("DELETE", path)
        self.assertEqual(status, 200, gone)
        return gone["hearth"]

    def files(self):
        found = set()
        for at, _, names in os.walk(os.path.join(self.folder, "cache", "kv")):
            found |= {os.path.join(at, n) for n in names if n.endswith(".kv")}
        return found

    def at_rest(self, d):
        """The files, once all that is due is written, tails after their five seconds too."""
        d.until(lambda: d.status()["disk"]["waiting"] == 0, "all is written")
        return self.files()

    def talk(self, d, c, word):
        for i in range(2):
            r = self.respond(d, c, f"{word} {i} " * 20)
        return r

    def test_what_only_one_uses_goes_and_what_two_share_goes_with_the_second(self):
        with self.daemon() as d:
            a, b = self.new(d), self.new(d)
            self.talk(d, a, "XYZZY")
            before = self.at_rest(d)
            self.talk(d, b, "PLUGH")
        with self.daemon() as d:  # the stop has written the tails
            both = self.files()
            gone = self.delete(d, f"/v1/conversations/{a}")
            self.assertEqual(gone["messages"], 5)
            self.assertGreater(gone["blocks"], 5)
            self.assertEqual(gone["kv_bytes"] % gone["blocks"], 0)
            d.until(lambda: len(self.files()) == len(both) - gone["blocks"], "its files are gone")
            shared = before & self.files()
            self.assertGreater(len(shared), 3, "the rules are b's too")
            self.assertFalse(history.holds(d, b"XYZZY"))
            self.assertTrue(history.holds(d, b"PLUGH"))
            r = self.respond(d, b, "PLUGH again")
            h = r["hearth"]["cache"]
            self.assertGreater(h["disk"], r["usage"]["input_tokens"] - 64)
            gone = self.delete(d, f"/v1/conversations/{b}")
            self.assertGreater(gone["blocks"], 5)
            d.until(lambda: not self.files(), "no file is left")
            self.assertEqual(d.status()["memory"]["kv_bytes"], 0)
            self.assertFalse(history.holds(d, b"PLUGH") or history.holds(d, b"Be brief"))
        self.assertEqual(self.files(), set())

    def test_it_is_gone_from_ram_alone_too(self):
        with self.daemon("--disk", "0") as d:
            a = self.new(d)
            n = self.talk(d, a, "XYZZY")["usage"]["total_tokens"]
            gone = self.delete(d, f"/v1/conversations/{a}")
            self.assertEqual(gone["blocks"], (n - 1 + 31) // 32)
            self.assertEqual(d.status()["memory"]["kv_bytes"], 0)
            b = self.new(d)
            self.assertEqual(self.talk_once(d, b)["hearth"]["cache"]["tokens"], 0)

    def talk_once(self, d, c):
        return self.respond(d, c, "XYZZY 0 " * 20)

    def test_a_hidden_conversation_s_go_with_its_last_response(self):
        with self.daemon() as d:
            _, first = d.post("/v1/responses", {"input": RULES})
            _, second = d.post(
                "/v1/responses", {"input": "more", "previous_response_id": first["id"]}
            )
            self.assertEqual(self.delete(d, f"/v1/responses/{first['id']}")["blocks"], 0)
            gone = self.delete(d, f"/v1/responses/{second['id']}")
            self.assertEqual(gone["messages"], 4)
            self.assertGreater(gone["blocks"], 3)
            d.until(lambda: not self.files(), "no file is left")

    def test_an_answer_that_is_being_written_takes_its_blocks_along_when_it_ends(self):
        with self.daemon() as d:
            a = self.new(d)
            self.talk(d, a, "XYZZY")
            body = {"conversation": a, "input": "forever", "stream": True}
            with d.stream("/v1/responses", body) as s:
                events = iter(s)
                while next(events)["type"] != "response.output_text.delta":
                    pass
                self.delete(d, f"/v1/conversations/{a}")
            d.until_idle()
            d.until(lambda: not self.files(), "no file is left")
            d.until(lambda: d.status()["memory"]["kv_bytes"] == 0, "RAM has none of it")

    def test_stateless_calls_keep_what_they_use(self):
        with self.daemon() as d:
            a = self.new(d)
            self.talk_once(d, a)
            messages = [system(RULES), {"role": "user", "content": "something else " * 20}]
            d.chat(messages)
            self.delete(d, f"/v1/conversations/{a}")
            found = d.chat(messages)
            self.assertGreater(found["hearth"]["cache"]["tokens"], 100)


if __name__ == "__main__":
    main()
