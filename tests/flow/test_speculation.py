"""Drafts by look-up change an answer's pace and nothing else: with the default model, at random
seeds, answers with --speculation on are those of --speculation off, however they are sampled and
however they end.
"""

import random
import shutil
import tempfile
import unittest

from harness import Real, content, main, user

POEM = "The river runs past seven mills, and every mill has seven wheels, and every wheel turns. "
PROMPTS = [
    "Repeat this text exactly, twice:\n" + POEM * 2,
    "Copy these numbers: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16.",
    "Write these names again, one a line: Ada, Grace, Edsger, Barbara, Donald. 🦊 🦊 🦊 née 静夜思",
    "Why is the sky blue?",
]


def asks(rng):
    """Requests of all sorts, each with its own seed."""
    sorts = [
        {"temperature": 0},
        {"temperature": 0, "stop": ["mill", "7,"]},
        {"temperature": 0.7, "top_p": 0.9},
        {"temperature": 1, "top_k": 20},
        {"temperature": 0, "repetition_penalty": 1.1},
        {"temperature": 0.5, "frequency_penalty": 0.4, "presence_penalty": 0.2},
        {"temperature": 0, "logit_bias": {str(rng.randrange(1000)): 8 for _ in range(4)}},
    ]
    for prompt in PROMPTS:
        for sort in sorts:
            yield [user(prompt)], dict(
                sort, seed=rng.randrange(1 << 31), max_tokens=rng.choice((1, 2, 17, 40))
            )


class Speculation(unittest.TestCase):
    def answers(self, flag, requests):
        folder = tempfile.mkdtemp(prefix="hearth-speculation-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        with Real("--ctx", "1024", "--speculation", flag, folder=folder) as d:
            replies = [d.chat(m, **fields) for m, fields in requests]
        return replies

    def test_answers_are_the_same_with_and_without(self):
        seed = random.randrange(1 << 32)
        print(f"seed {seed}", flush=True)
        requests = list(asks(random.Random(seed)))
        off = self.answers("off", requests)
        on = self.answers("on", requests)
        drafted = accepted = 0
        for a, b, (m, fields) in zip(off, on, requests):
            with self.subTest(prompt=m[0]["content"][:20], first=seed, **fields):
                self.assertEqual(content(a), content(b))
                self.assertEqual(a["choices"][0]["finish_reason"], b["choices"][0]["finish_reason"])
                self.assertEqual(a["usage"]["completion_tokens"], b["usage"]["completion_tokens"])
                self.assertEqual(a["hearth"]["timings"]["drafted"], 0)
            drafted += b["hearth"]["timings"]["drafted"]
            accepted += b["hearth"]["timings"]["accepted"]
        self.assertGreater(accepted, 50)
        self.assertGreater(drafted, accepted)  # some were taken back


if __name__ == "__main__":
    main()
