"""Drafts by look-up change an answer's pace and nothing else: with the default model, at random
seeds, answers with drafts (the default) are those of --speculation off, however they are sampled
and however they end.
"""

import random
import re
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
    def answers(self, requests, *flags):
        """The replies, and the daemon's own count of (drafted, accepted)."""
        folder = tempfile.mkdtemp(prefix="hearth-speculation-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        with Real("--ctx", "1024", *flags, folder=folder) as d:
            replies = [d.chat(m, **fields) for m, fields in requests]
            metrics = d.request("GET", "/metrics")[1].decode()
        counts = [
            int(re.search(rf"^hearth_{name}_tokens_total (\d+)$", metrics, re.M).group(1))
            for name in ("drafted", "accepted")
        ]
        return replies, counts

    def test_answers_are_the_same_with_and_without(self):
        seed = random.randrange(1 << 32)
        print(f"seed {seed}", flush=True)
        requests = list(asks(random.Random(seed)))
        off, counts_off = self.answers(requests, "--speculation", "off")
        on, counts_on = self.answers(requests)  # the default
        drafted = accepted = 0
        for a, b, (m, fields) in zip(off, on, requests):
            with self.subTest(prompt=m[0]["content"][:20], first=seed, **fields):
                self.assertEqual(content(a), content(b))
                self.assertEqual(a["choices"][0]["finish_reason"], b["choices"][0]["finish_reason"])
                self.assertEqual(a["usage"]["completion_tokens"], b["usage"]["completion_tokens"])
                self.assertEqual(a["hearth"]["timings"]["drafted"], 0)
            drafted += b["hearth"]["timings"]["drafted"]
            accepted += b["hearth"]["timings"]["accepted"]
        self.assertEqual(counts_on, [drafted, accepted])
        self.assertEqual(counts_off, [0, 0])
        self.assertGreater(accepted, 20)
        self.assertGreater(drafted, accepted)  # some were taken back


if __name__ == "__main__":
    main()
