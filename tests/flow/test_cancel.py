"""Clients that go away: their own turn stops, within one layer's time, and nobody else's."""

import json
import random
import socket
import threading
import time
import unittest

from harness import Scripted, chunk_text, main, together, user

SCRIPT = {
    "ctx": 8192,
    "pace_us": 2000,
    "prefill_us_per_token": 200,
    "rules": [
        {"when": "forever", "pieces": ["tick "], "then": "forever"},
        {"when": "some", "pieces": ["a ", "b ", "c ", "d "] * 40},
    ],
    "default": {"pieces": ["ok"]},
}


def post(s, body):
    data = json.dumps(body).encode()
    s.sendall(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data) + data
    )


class Cancel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.d = Scripted(SCRIPT)

    @classmethod
    def tearDownClass(cls):
        cls.d.stop()

    def ends(self, leave):
        """What runs is canceled once leave() was called, and the next request starts at once."""
        before = self.d.status()["turns"]["canceled"]
        leave()
        self.d.until(lambda: self.d.status()["turns"]["canceled"] == before + 1, "canceled")
        self.d.until_idle()
        n = self.d.n_generated()
        self.assertEqual(self.d.say([user("hi")]), "ok")
        self.assertEqual(
            self.d.n_generated(), n + 2, "nothing was generated but this answer and its end"
        )

    def running(self):
        self.d.until(lambda: self.d.status()["turns"]["running"] == 1, "running")

    def test_during_prefill(self):  # B23 a
        s = self.d.raw()
        post(s, {"messages": [user("forever " + "z" * 6000)], "stream": True})
        self.running()
        self.ends(s.close)

    def test_after_some_chunks(self):  # B23 b
        s = self.d.chat_stream([user("forever")])
        it = iter(s)
        for _ in range(4):
            next(it)
        self.ends(s.close)

    def test_of_a_whole_answer(self):  # B23 c
        s = self.d.raw()
        post(s, {"messages": [user("forever")]})
        self.d.until(lambda: self.d.n_generated() > 3, "generating")
        self.ends(s.close)

    def test_a_half_closed_connection_is_a_cancel(
        self,
    ):  # B23 d: decided so; HTTP would allow the other reading
        s = self.d.raw()
        post(s, {"messages": [user("forever")], "stream": True})
        self.running()
        self.ends(lambda: s.shutdown(socket.SHUT_WR))
        s.close()

    def test_a_canceled_prefill_leaves_what_it_read(self):
        m = [user("forever " + "y" * 4000)]
        s = self.d.raw()
        post(s, {"messages": m, "stream": True})
        self.running()
        before = self.d.status()["memory"]["kv_blocks"]
        self.d.until(
            lambda: self.d.status()["memory"]["kv_blocks"] > before + 2, "some blocks published"
        )
        self.ends(s.close)
        r = self.d.chat(m, max_tokens=1)
        self.assertGreater(r["usage"]["prompt_tokens_details"]["cached_tokens"], 64)

    def test_one_that_leaves_ends_nobody_else_s(self):  # B58
        expected = self.d.say([user("some")])
        seed = random.randrange(1 << 32)
        rng = random.Random(seed)

        def stays():
            return [self.d.say([user("some")]) for _ in range(4)]

        def leaves():
            for _ in range(25):
                s = self.d.raw()
                post(
                    s,
                    {
                        "messages": [user("forever " + "q" * rng.randrange(600))],
                        "stream": rng.random() < 0.5,
                    },
                )
                time.sleep(rng.random() * 0.02)  # the random moment is the test
                s.close()

        with self.subTest(seed=seed):
            for texts in together(stays, stays, leaves, leaves)[:2]:
                self.assertEqual(texts, [expected] * 4)
            self.d.until_idle()


class Storm(unittest.TestCase):
    def test_clients_that_come_and_go_keep_nobody_from_going_on(self):  # B58
        """They leave more often than a pass takes: each would have it given up."""
        with Scripted({**SCRIPT, "pace_us": 20000}, "--parallel", "8") as d:
            is_over = threading.Event()

            def comes_and_goes():
                while not is_over.is_set():
                    s = d.raw()
                    post(s, {"messages": [user("forever " + "w" * 300)], "stream": True})
                    time.sleep(0.004)  # less than a pass is what is tested
                    s.close()

            def stays():
                try:
                    return d.say([user("some")], max_tokens=40)
                finally:
                    is_over.set()

            text = together(stays, *[comes_and_goes] * 4)[0]
            self.assertEqual(text, "a b c d " * 10)


class Queue(unittest.TestCase):
    def test_one_that_leaves_the_queue_never_starts(self):  # B58
        with Scripted(SCRIPT, "--parallel", "1", "--queue", "4") as d:
            first = d.chat_stream([user("forever")])
            it = iter(first)
            for _ in range(3):
                next(it)
            s = d.raw()
            post(s, {"messages": [user("some")]})
            d.until(lambda: d.status()["turns"]["queued"] == 1, "queued")
            s.close()
            d.until(lambda: d.status()["turns"]["queued"] == 0, "gone from the queue")
            for _ in range(3):
                self.assertEqual(chunk_text(next(it)), "tick ")
            first.close()
            d.until_idle()

    def test_a_full_queue_says_when_to_come_again(self):
        with Scripted(SCRIPT, "--parallel", "1", "--queue", "2") as d:
            streams = [d.chat_stream([user("forever")]) for _ in range(3)]
            d.until(
                lambda: d.status()["turns"]["running"] == 1 and d.status()["turns"]["queued"] == 2,
                "full",
            )
            status, reply, headers = d.request(
                "POST", "/v1/chat/completions", {"messages": [user("x")]}
            )
            self.assertEqual(status, 503, reply)
            self.assertIn("error", reply)
            self.assertGreater(int(headers["Retry-After"]), 0)
            streams.pop(0).close()
            d.until(lambda: d.status()["turns"]["queued"] == 1, "one has moved up")
            for s in streams:
                s.close()
            d.until_idle()
            self.assertEqual(d.say([user("x")]), "ok")


if __name__ == "__main__":
    main()
