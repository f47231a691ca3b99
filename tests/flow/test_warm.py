"""Warm says what cold says, also after a restart has brought the prefix back from disk: the cases
in which other servers answered something else. Over the scripted engine, which notices every block
that isn't what it should be; test_same_bits.py has the same with the model's own arithmetic.
"""

import random
import shutil
import tempfile
import unittest

from harness import Scripted, assistant, cached, content, main, system, together, user

BLOCK = 32
SCRIPT = {
    "rules": [
        {"when": "think", "pieces": ["<think>", "\n", "A", "\n", "</think>", "\n\n", "B"]},
        {"when": "dice", "pieces": ["x"] * 24, "spread": True},
        {"when": "nothing", "pieces": []},
    ],
    "default": {"pieces": ["fine", "."]},
}


def words(n, seed):
    rng = random.Random(seed)
    return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz ") for _ in range(n))


class Warm(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="hearth-warm-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def daemon(self, *flags):
        return Scripted(SCRIPT, *flags, folder=self.folder)

    def cold(self, d, m, **more):
        return d.say(m, hearth={"cache": False}, **more)

    def test_the_last_token_is_computed_also_after_a_restart(self):  # B01
        for n_words in range(1, 2 * BLOCK, 5):  # the end falls into any place of a block
            m = [user("dice one two three " + words(n_words, n_words))]
            with self.daemon() as d:
                right = self.cold(d, m, max_tokens=5)
                replies = [d.chat(m, max_tokens=5) for _ in range(5)]
            with self.daemon() as d:
                replies += [d.chat(m, max_tokens=5) for _ in range(2)]
                self.assertGreater(cached(replies[5]), 0)
            for r in replies:
                self.assertEqual(content(r), right)
                self.assertLessEqual(cached(r), r["usage"]["prompt_tokens"] - 1)
                self.assertGreaterEqual(r["hearth"]["cache"]["computed"], 1)

    def think(self, d, is_stripped):
        """Three turns; what a client shows of an answer, or all of it, comes back."""
        m, n_before = [system(words(40, 1))], 0
        for turn in range(3):
            m.append(user(f"think {turn} " + words(50, 10 + turn)))
            r = d.chat(m)
            self.assertEqual(content(r), "<think>\nA\n</think>\n\nB")
            self.assertEqual(content(r), self.cold(d, m))
            # All before the last answer is found, whatever became of that.
            self.assertGreaterEqual(cached(r), n_before - 1)
            n_before = r["usage"]["prompt_tokens"]
            m.append(assistant("B" if is_stripped else content(r)))

    def test_thinking_that_a_client_strips_costs_only_itself(self):  # B04
        for is_stripped in (False, True):
            with self.daemon() as d:
                self.think(d, is_stripped)
                d.check_blocks()

    def test_thinking_stays_in_a_stored_conversation_as_it_was_read(self):  # B04
        with self.daemon() as d:
            c = d.post("/v1/conversations", {})[1]["id"]
            n_read = 0
            for turn in range(3):
                status, r = d.post("/v1/responses", {"conversation": c, "input": f"think {turn}"})
                self.assertEqual(status, 200)
                self.assertEqual(
                    r["output"][0]["content"][0]["text"], "<think>\nA\n</think>\n\nB"
                )
                self.assertGreaterEqual(r["hearth"]["cache"]["tokens"], n_read - 2)
                n_read = r["usage"]["total_tokens"]

    def test_unrelated_conversations_stay_apart(self):  # B06
        pairs = [
            (
                [system("A" + words(30, 1)), user("Remember ZEBRA-77. dice " + words(300, 2))],
                [system("B" + words(60, 3)), user("List codewords. dice " + words(250, 4))],
            ),
            # Nothing in common but the header of a message, which is less than a block.
            ([user("ZEBRA dice " + words(90, 5))], [system("x"), user("dice " + words(90, 6))]),
            ([user("dice")], [user("dice " + words(3, 7))]),
        ]
        with self.daemon() as d:
            right = [[self.cold(d, m) for m in pair] for pair in pairs]
            self.assertNotEqual(right[0][0], "")
            for _ in range(20):
                for pair, texts in zip(pairs, right):
                    self.assertEqual([d.say(m) for m in pair], texts)
            for pair, texts in zip(pairs, right):
                got = together(*[lambda m=m: d.say(m) for m in pair * 2])
                self.assertEqual(got, texts * 2)
            d.check_blocks()
        for order in (1, -1):
            with self.daemon() as d:  # from disk, either first
                for pair, texts in zip(pairs, right):
                    got = [d.chat(m) for m in pair[::order]]
                    self.assertEqual([content(r) for r in got], texts[::order])
                    if pair is pairs[0]:
                        self.assertGreater(got[0]["hearth"]["cache"]["disk"], 200)
                d.check_blocks()

    def test_what_has_no_blocks_comes_back_too(self):  # B70
        with self.daemon() as d:
            empty = d.post("/v1/conversations", {})[1]["id"]
            silent = d.post("/v1/conversations", {})[1]["id"]
            body = {"conversation": silent, "input": "nothing"}
            self.assertEqual(d.post("/v1/responses", body)[0], 200)
        with self.daemon() as d:
            for c in (empty, silent):
                r = d.post("/v1/hearth/verify", {"conversation": c})[1]
                self.assertEqual((r["different"], r["blocks"] <= 2), ([], True))
                status, r = d.post("/v1/responses", {"conversation": c, "input": "hello"})
                self.assertEqual((status, r["output"][0]["content"][0]["text"]), (200, "fine."))
            d.check_blocks()

    def test_only_what_decides_the_bits_decides_what_is_found(self):  # B71
        m = [user("dice " + words(100, 1))]
        with self.daemon() as d:
            right = d.say(m)
        for change, is_found in (
            ({"weights": "others"}, False),
            ({"ctx": 512}, True),
            ({"pace_us": 1}, True),
            ({}, True),
        ):
            with Scripted(dict(SCRIPT, **change), folder=self.folder) as d, self.subTest(change):
                r = d.chat(m)
                self.assertEqual(cached(r) > BLOCK, is_found)
                if is_found:
                    self.assertEqual(content(r), right)
                self.assertEqual(d.status()["disk"]["bad"], 0)
                d.check_blocks()


if __name__ == "__main__":
    main()
