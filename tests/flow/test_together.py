"""Several turns at once: the same text as alone, nobody starves, everyone answers while a long
prompt is read.
"""

import threading
import time
import unittest

from harness import Scripted, chunk_text, content, main, together, user

SCRIPT = {
    "pace_us": 1000,
    "prefill_us_per_token": 100,
    "rules": [
        {"when": "alpha", "pieces": ["a1 ", "a2 ", "a3 ", "a4 "] * 10},
        {"when": "beta", "pieces": ["b1 ", "b2 ", "b3 "] * 10},
        {"when": "gamma", "pieces": ["g"] * 50, "spread": True},
        {"when": "forever", "pieces": ["tick "], "then": "forever"},
    ],
    "default": {"pieces": ["ok"]},
}


class Together(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.d = Scripted(SCRIPT)

    @classmethod
    def tearDownClass(cls):
        cls.d.stop()

    def test_batch_mates_change_nothing(self):  # B41
        asks = [
            [user("alpha " + "x" * 100)],
            [user("beta")],
            [user("gamma")],
            [user("alpha again")],
        ]
        alone = [self.d.say(m, hearth={"cache": False}, seed=3, temperature=0.7) for m in asks]
        for cache in (False, True, True):
            texts = together(
                *[
                    lambda m=m: self.d.say(m, seed=3, temperature=0.7, hearth={"cache": cache})
                    for m in asks
                ]
            )
            self.assertEqual(texts, alone)

    def test_more_than_parallel_wait_and_are_all_answered(self):
        texts = together(*[lambda i=i: self.d.say([user(f"alpha {i}")]) for i in range(12)])
        self.assertEqual(set(texts), {"a1 a2 a3 a4 " * 10})

    def test_a_long_prompt_does_not_keep_the_others_waiting(self):  # B57
        done = threading.Event()

        def long():
            try:
                return self.d.chat([user("z" * 7000)], max_tokens=1)
            finally:
                done.set()

        def others():
            self.d.until(lambda: self.d.status()["turns"]["running"] == 1, "the long one runs")
            text = self.d.say([user("hi")])
            was_done = done.is_set()
            n = 0
            while not done.is_set():
                self.assertEqual(self.d.get("/health")[0], 200)
                n += 1
                time.sleep(0.01)
            return text, was_done, n

        _, (text, was_done, n) = together(long, others)
        self.assertEqual(text, "ok")
        self.assertFalse(was_done, "the short one was first")
        self.assertGreater(n, 0)

    def test_running_answers_go_on_while_a_prompt_is_read(self):
        with self.d.chat_stream([user("forever")]) as s:
            it = iter(s)
            for _ in range(3):
                next(it)
            done = threading.Event()
            t = threading.Thread(
                target=lambda: (self.d.chat([user("y" * 3000)], max_tokens=1), done.set())
            )
            t.start()
            n = 0
            while not done.is_set():
                n += bool(chunk_text(next(it)))
            t.join()
            self.assertGreater(n, 20, "the answer went on, several rows of the prompt a pass")
        self.d.until_idle()

    def test_streams_go_on_while_a_huge_text_is_read(self):  # B30
        huge = [user("x" * 524288), user("_" * 524288)]
        with self.d.chat_stream([user("forever")]) as s:
            it = iter(s)
            for _ in range(3):
                next(it)
            done = threading.Event()

            def ask():
                try:
                    return [self.d.post("/v1/chat/completions", {"messages": [m]}) for m in huge]
                finally:
                    done.set()

            results = []
            t = threading.Thread(target=lambda: results.extend(ask()))
            t.start()
            n = 0
            while not done.is_set():
                n += bool(chunk_text(next(it)))
            t.join()
            self.assertGreater(n, 0)
        for status, r in results:
            self.assertEqual((status, r["error"]["code"]), (400, "context_length_exceeded"), r)
        self.d.until_idle()

    def test_the_queue_is_first_come_first_served(self):
        with Scripted(SCRIPT, "--parallel", "1") as d:
            order = []
            streams = [d.chat_stream([user("forever")])]
            d.until(lambda: d.status()["turns"]["running"] == 1, "running")

            def ask(i):
                d.say([user(f"beta {i}")])
                order.append(i)

            threads = []
            for i in range(4):
                t = threading.Thread(target=ask, args=(i,))
                t.start()
                threads.append(t)
                d.until(lambda: d.status()["turns"]["queued"] == i + 1, "queued")
            streams[0].close()
            for t in threads:
                t.join()
            self.assertEqual(order, [0, 1, 2, 3])


if __name__ == "__main__":
    main()
