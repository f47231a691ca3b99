"""Stored turns: one at a time per conversation, partial answers kept and marked, and a history
that goes on after anything that ended a turn.
"""

import os
import sqlite3
import threading
import unittest

from harness import Scripted, main, together

SCRIPT = {
    "pace_us": 2000,
    "rules": [
        {"when": "forever", "pieces": ["tick "], "then": "forever"},
        {"when": "split", "pieces": [".", "\n\n", "你", "好"]},
        {"when": "broken", "pieces": ["a", "b"], "all_nan_at": 1},
        {"when": "some", "pieces": ["s1 ", "s2 ", "s3 "] * 10},
    ],
    "default": {"pieces": ["fine"]},
}


class Stored(unittest.TestCase):
    def new(self, d):
        status, c = d.post("/v1/conversations", {})
        self.assertEqual(status, 200, c)
        return c["id"]

    def respond(self, d, **body):
        status, r = d.post("/v1/responses", {"temperature": 0, **body})
        self.assertEqual(status, 200, (r, d.log()))
        return r

    def text(self, r):
        return r["output"][0]["content"][0]["text"]

    def items(self, d, conversation):
        """[(role, status, text)], oldest first"""
        status, page = d.get(f"/v1/conversations/{conversation}/items?order=asc&limit=100")
        self.assertEqual(status, 200, page)
        return [
            (i["role"], i["status"], "".join(c["text"] for c in i["content"])) for i in page["data"]
        ]

    def open_stream(self, d, conversation, text, n=4):
        """A stream of which n pieces of text were read: (stream, iterator, text so far)."""
        s = d.stream(
            "/v1/responses",
            {"conversation": conversation, "input": text, "stream": True, "temperature": 0},
        )
        it, seen = iter(s), ""
        while n > 0:
            e = next(it)
            if e["type"] == "response.output_text.delta":
                seen += e["delta"]
                n -= 1
        return s, it, seen

    def test_a_conversation_s_next_turn_finds_all_of_the_last(self):  # B03
        with Scripted(SCRIPT) as d:
            c = self.new(d)
            a = self.respond(
                d, conversation=c, input="split please, at some length so that it counts " * 3
            )
            b = self.respond(d, conversation=c, input="ok")
            read = a["usage"]["input_tokens"] + a["usage"]["output_tokens"]
            self.assertGreaterEqual(b["usage"]["input_tokens_details"]["cached_tokens"], read - 2)
            self.assertIsNone(b["hearth"]["cache"]["miss"])
            self.assertEqual(b["hearth"]["cache"]["shared"], 0)

    def test_turns_of_one_conversation_run_one_after_another(self):
        with Scripted(SCRIPT) as d:
            c = self.new(d)
            replies = together(
                *[lambda i=i: self.respond(d, conversation=c, input=f"some {i}") for i in range(5)]
            )
            self.assertEqual({self.text(r) for r in replies}, {"s1 s2 s3 " * 10})
            items = self.items(d, c)
            self.assertEqual([i[0] for i in items], ["user", "assistant"] * 5)
            # Each read what came before: no two prompts have one length.
            self.assertEqual(len({r["usage"]["input_tokens"] for r in replies}), 5)

    def test_conversations_do_not_wait_for_each_other(self):
        with Scripted(SCRIPT) as d:
            s, _, _ = self.open_stream(d, self.new(d), "forever")
            self.assertEqual(
                self.text(self.respond(d, conversation=self.new(d), input="hi")), "fine"
            )
            s.close()

    def test_one_that_leaves_while_it_waits_for_its_conversation_never_starts(self):
        with Scripted(SCRIPT) as d:
            c = self.new(d)
            s, it, _ = self.open_stream(d, c, "forever")
            raw = d.raw()
            body = b'{"conversation":"%s","input":"some"}' % c.encode()
            raw.sendall(
                b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
                + body
            )
            started = d.status()["turns"]["started"]
            raw.close()
            for _ in range(5):
                next(it)
            s.close()
            d.until_idle()
            self.assertEqual(d.status()["turns"]["started"], started)
            self.assertEqual([i[0] for i in self.items(d, c)], ["user", "assistant"])

    def test_a_canceled_answer_is_kept_as_it_was_streamed(self):  # B66
        with Scripted(SCRIPT) as d:
            c = self.new(d)
            s, _, seen = self.open_stream(d, c, "forever", 20)
            s.close()
            d.until_idle()
            items = self.items(d, c)
            self.assertEqual(items[0][::2], ("user", "forever"))
            role, status, text = items[1]
            self.assertEqual((role, status), ("assistant", "incomplete"))
            self.assertTrue(text.startswith(seen))
            r = self.respond(d, conversation=c, input="and now?")
            self.assertEqual(self.text(r), "fine")
            # All that was read and written is a prefix of the next prompt.
            self.assertIsNone(r["hearth"]["cache"]["miss"])

    def test_a_turn_canceled_before_its_first_token_leaves_a_conversation_that_works(self):  # B36
        with Scripted({**SCRIPT, "prefill_us_per_token": 3000}) as d:
            c = self.new(d)
            s = d.stream(
                "/v1/responses",
                {"conversation": c, "input": "forever " + "z" * 300, "stream": True},
            )
            d.until(lambda: d.status()["turns"]["running"] == 1, "running")
            s.close()
            d.until_idle()
            r = self.respond(d, conversation=c, input="hi")
            self.assertEqual(self.text(r), "fine")
            expected = d.post(
                "/tokenize",
                {
                    "messages": [
                        {"role": "user", "content": "forever " + "z" * 300},
                        {"role": "user", "content": "hi"},
                    ]
                },
            )[1]["count"]
            self.assertEqual(
                r["usage"]["input_tokens"],
                expected,
                "two questions in a row, and no empty answer between",
            )

    def test_a_failed_answer_is_marked_and_the_next_turn_works(self):
        with Scripted(SCRIPT) as d:
            c = self.new(d)
            status, r = d.post("/v1/responses", {"conversation": c, "input": "broken"})
            self.assertEqual(status, 500, r)
            self.assertEqual([i[0] for i in self.items(d, c)][:1], ["user"])
            self.assertEqual(self.text(self.respond(d, conversation=c, input="hi")), "fine")

    def test_a_killed_daemon_keeps_what_was_flushed(self):  # B66
        with Scripted(SCRIPT) as d:
            c = self.new(d)
            s, it, _ = self.open_stream(d, c, "forever", 4)
            d.until(lambda: self.items(d, c)[-1][2] != "", "a partial answer is in the database")
            d.kill()
            s.close()
            d.start()
            items = self.items(d, c)
            self.assertEqual([i[0] for i in items], ["user", "assistant"])
            self.assertEqual(items[1][1], "incomplete")
            self.assertTrue(items[1][2].startswith("tick "))
            self.assertEqual(self.text(self.respond(d, conversation=c, input="hi")), "fine")

    def test_a_stopped_daemon_keeps_the_partial_answer(self):  # B61, B66
        with Scripted(SCRIPT) as d:
            c = self.new(d)
            s, it, seen = self.open_stream(d, c, "forever", 10)
            d.signal()
            self.assertEqual(d.wait_end(), 0)
            rest = list(it)
            for e in rest:
                if e["type"] == "response.output_text.delta":
                    seen += e["delta"]
            self.assertIn(rest[-1]["type"], ("response.failed", "response.incomplete", "error"))
            d.start()
            items = self.items(d, c)
            self.assertEqual((items[1][1], items[1][2]), ("incomplete", seen))

    def test_another_program_s_lock_delays_and_loses_nothing(self):  # B65
        with Scripted(SCRIPT) as d:
            conversations = [self.new(d) for _ in range(4)]
            held, release = threading.Event(), threading.Event()

            def hold():
                db = sqlite3.connect(
                    os.path.join(d.folder, "state", "history.db"), isolation_level=None
                )
                db.execute("BEGIN IMMEDIATE")
                held.set()
                release.wait(1)
                db.execute("ROLLBACK")
                db.close()

            def ask(c):
                held.wait()
                return [
                    d.post("/v1/responses", {"conversation": c, "input": f"hi {i}"})[0]
                    for i in range(3)
                ]

            results = together(hold, *[lambda c=c: ask(c) for c in conversations])[1:]
            for c, statuses in zip(conversations, results):
                self.assertTrue(set(statuses) <= {200, 503}, statuses)
                self.assertEqual(len(self.items(d, c)), 2 * statuses.count(200))

    def test_a_refused_turn_has_stored_nothing(self):
        with Scripted({**SCRIPT, "ctx": 128}) as d:
            c = self.new(d)
            status, r = d.post("/v1/responses", {"conversation": c, "input": "z" * 500})
            self.assertEqual((status, r["error"]["code"]), (400, "context_length_exceeded"), r)
            self.assertEqual(self.items(d, c), [])
            self.assertEqual(self.text(self.respond(d, conversation=c, input="hi")), "fine")

    def test_another_model_reads_the_text_again_and_says_so(self):
        with Scripted(SCRIPT) as d:
            c = self.new(d)
            self.respond(d, conversation=c, input="split " + "at length " * 12)
            d.signal()
            self.assertEqual(d.wait_end(), 0)
            # A new piece in the vocabulary: another tokenizer, so another render id.
            with open(d.model) as f:
                text = f.read()
            with open(d.model, "w") as f:
                f.write(text.replace('"default"', '"vocab": ["entirely new"], "default"', 1))
            d.start()
            r = self.respond(d, conversation=c, input="ok")
            self.assertEqual(r["hearth"]["cache"]["miss"]["reason"], "model")


if __name__ == "__main__":
    main()
