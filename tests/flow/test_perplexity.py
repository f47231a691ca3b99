"""hearthd perplexity: how well a text is predicted, against tests/golden, and what it refuses.

The reference is a float64 forward pass; the bounds are those of an engine that rounds activations
to 8 bits (tests/golden).
"""

import json
import os
import subprocess
import tempfile
import unittest

from harness import BUILD, MODEL, PATIENCE_S, main

HEARTHD = os.path.join(BUILD, "daemon", "hearthd")
GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden")
TEXT = os.path.join(GOLDEN, "nll-text.txt")
LOGITS = os.path.join(GOLDEN, "logits-smollm2.jsonl")


def perplexity(*args, model=MODEL):
    return subprocess.run(
        [HEARTHD, "perplexity", "--model", model, *args],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S * 10,
    )


@unittest.skipUnless(os.path.exists(MODEL) or os.environ.get("CI"), f"no model at {MODEL}")
class Perplexity(unittest.TestCase):
    def good(self, *args):
        p = perplexity(*args, "--format", "json")
        self.assertEqual((p.returncode, p.stderr), (0, ""))
        return json.loads(p.stdout)

    def refused(self, status, *args, model=MODEL):
        p = perplexity(*args, model=model)
        self.assertEqual((p.returncode, p.stdout), (status, ""))
        return p.stderr

    def file(self, text):
        f = tempfile.NamedTemporaryFile("w", suffix=".txt")
        self.addCleanup(f.close)
        f.write(text)
        f.flush()
        return f.name

    def test_loss_and_divergence_are_those_of_the_reference(self):
        with open(os.path.join(GOLDEN, "nll-smollm2.json"), encoding="utf-8") as f:
            want = json.load(f)["smollm2"]
        got = self.good("--logits", LOGITS, TEXT)
        text = got["text"]
        self.assertEqual((text["window"], text["windows"]), (512, len(want["windows"])))
        self.assertEqual(text["tokens"], 511 * len(want["windows"]))
        self.assertLess(abs(text["nats_per_token"] - want["mean_all"]), 0.02)
        half = text["second_half"]["nats_per_token"]
        self.assertLess(abs(half - want["mean_second_half"]), 0.02)
        with open(LOGITS, encoding="utf-8") as f:
            ns = [json.loads(line)["n"] for line in f]
        self.assertEqual([p["n"] for p in got["logits"]["prompts"]], ns)
        for p in got["logits"]["prompts"]:
            self.assertLessEqual(p["kl"], 0.03, p)
        self.assertLessEqual(got["logits"]["kl_mean"], 0.01)

    def test_q8_0_keys_and_values_keep_within_the_same_bounds(self):
        got = self.good("--kv-type", "q8_0", "--logits", LOGITS)
        self.assertNotIn("text", got)
        self.assertLessEqual(got["logits"]["kl_max"], 0.03)

    def test_with_a_stride_each_token_counts_once(self):
        with open(TEXT, encoding="utf-8") as f:
            path = self.file(f.read()[:900])
        a = self.good("--window", "64", "--stride", "16", path)["text"]
        self.assertGreater(a["windows"], 2)
        self.assertEqual(a["tokens"], 63 + 16 * (a["windows"] - 1))
        self.assertLess(a["left_out"], 16)
        b = self.good("--window", "64", path)["text"]
        self.assertLess(a["nats_per_token"], b["nats_per_token"])  # more is known of each

    def test_a_text_of_less_than_a_window_is_one(self):
        text = self.good(self.file("Water boils at a hundred degrees."))["text"]
        self.assertEqual((text["windows"], text["left_out"]), (1, 0))
        self.assertEqual(text["tokens"], text["window"] - 1)

    def test_the_table_says_the_same(self):
        path = self.file("Water boils at a hundred degrees.")
        want = self.good(path)["text"]
        p = perplexity(path)
        self.assertEqual(p.returncode, 0)
        self.assertIn(f"{want['nats_per_token']:.4f}", p.stdout)
        self.assertIn(f"perplexity {want['perplexity']:.4f}", p.stdout)

    def test_other_stored_logits_show(self):
        with open(LOGITS, encoding="utf-8") as f:
            line = json.loads(f.readlines()[-1])
        line["ids"] = line["ids"][:-1]
        got = self.good("--logits", self.file(json.dumps(line) + "\n"))
        self.assertGreater(got["logits"]["kl_max"], 0.03)

    def test_what_cannot_be_scored_is_refused_by_name(self):
        self.assertIn("usage", self.refused(2))
        self.assertIn("--window is \"1\"", self.refused(2, "--window", "1", TEXT))
        self.assertIn("more than the window",
                      self.refused(1, "--window", "8", "--stride", "9", TEXT))
        self.assertIn("positions", self.refused(1, "--window", "100000", TEXT))
        self.assertIn("has 0 tokens", self.refused(1, self.file("")))
        self.assertIn("/no/such", self.refused(1, "/no/such"))
        self.assertIn("line 1", self.refused(1, "--logits", self.file('{"ids":[1]}\n')))
        self.assertIn("line 2", self.refused(1, "--logits", self.file("\n{")))
        self.assertIn("has no line", self.refused(1, "--logits", self.file("")))
        self.assertIn("/no/model", self.refused(1, TEXT, model="/no/model"))

    def test_help_is_no_error(self):
        p = perplexity("--help")
        self.assertEqual((p.returncode, p.stderr), (0, ""))
        self.assertIn("--stride", p.stdout)


if __name__ == "__main__":
    main()
