"""Too little memory is said before anything is allocated, with the numbers: by the daemon of its
budget, by the offline commands of what is there (here: what RLIMIT_DATA leaves).
"""

import json
import os
import re
import resource
import shutil
import subprocess
import tempfile
import unittest

from harness import BUILD, MODEL, main

HEARTHD = os.path.join(BUILD, "daemon", "hearthd")
MIB = 1 << 20
NEEDS = re.compile(
    r"needs (\d+) MiB of memory \(weights (\d+), KV (\d+), buffers (\d+)\), and (\d+) are there"
)


def run(*args, data_mib=None, text=""):
    """(status, output, errors, MiB that were resident at most)"""

    def limit():
        if data_mib:
            resource.setrlimit(resource.RLIMIT_DATA, (data_mib * MIB, data_mib * MIB))

    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        p = subprocess.Popen(
            [HEARTHD, *args], stdin=subprocess.PIPE, stdout=out, stderr=err, preexec_fn=limit
        )
        try:
            p.stdin.write(text.encode())
            p.stdin.close()
        except BrokenPipeError:
            pass
        _, status, usage = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        return p.returncode, out.read(), err.read(), usage.ru_maxrss // 1024


def is_sanitized():
    """A sanitizer's own memory is beyond any limit."""
    with open(HEARTHD, "rb") as f:
        return re.search(rb"__(asan|tsan|ubsan)_", f.read()) is not None


@unittest.skipIf(is_sanitized(), "a sanitizer needs more than the limits leave")
@unittest.skipUnless(os.path.exists(MODEL) or os.environ.get("CI"), f"no model at {MODEL}")
class Memory(unittest.TestCase):
    def refused(self, *args, data_mib, text=""):
        status, out, err, peak = run(*args, data_mib=data_mib, text=text)
        self.assertEqual((status, out), (1, ""), err)
        numbers = NEEDS.search(err)
        self.assertTrue(numbers, err)
        all_, weights, kv, buffers, there = map(int, numbers.groups())
        self.assertLessEqual(abs(all_ - weights - kv - buffers), 2)  # each is rounded
        self.assertEqual(there, data_mib)
        self.assertGreater(all_, there)
        self.assertGreater(weights, 1)
        self.assertLess(peak, weights)  # of weights, not even they were taken
        self.assertIn(MODEL, err)
        return kv

    def test_bench_says_it_of_all_sequences_together(self):
        few = ["-p", "16", "-n", "1", "-r", "1", "--no-peaks", "-d", "4000"]
        one = self.refused("bench", "--model", MODEL, *few, data_mib=100)
        four = self.refused("bench", "--model", MODEL, *few, "-b", "1,4", data_mib=100)
        self.assertLessEqual(abs(four - 4 * one), 4)

    def test_perplexity_says_it_of_its_window(self):
        kv = self.refused(
            "perplexity", "--model", MODEL, "--window", "4096", os.devnull, data_mib=100
        )
        self.assertGreater(kv, 10)

    def test_the_probe_says_it_of_the_model_and_then_of_a_question(self):
        kv = self.refused("probe", "--model", MODEL, data_mib=100)
        self.assertEqual(kv, 0)
        question = {"op": "logits", "ids": [5] * 3000, "chunk": 1, "batch": 60}
        status, out, err, _ = run(
            "probe", "--model", MODEL, data_mib=400, text=json.dumps(question) + "\n"
        )
        self.assertEqual((status, err), (0, ""))
        self.assertRegex(
            json.loads(out)["error"], r"KV needs \d+ MiB of memory, and 400 are there"
        )

    def test_what_fits_is_done_under_the_same_limits(self):
        status, out, err, _ = run(
            "probe", "--model", MODEL, data_mib=600, text='{"op":"tokenize","text":"Hello"}\n'
        )
        self.assertEqual((status, err), (0, ""))
        self.assertTrue(json.loads(out)["ids"])

    def daemon(self, *flags):
        folder = tempfile.mkdtemp(prefix="hearth-memory-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        paths = [
            f"--{name}={os.path.join(folder, name)}"
            for name in ("socket", "state-dir", "cache-dir")
        ]
        return run("--model", MODEL, *paths, *flags)

    def test_the_daemon_counts_kv_before_it_takes_the_weights(self):
        status, _, err, peak = self.daemon("--memory", "200M", "--ctx", "8192")
        self.assertEqual(status, 1)
        said = re.search(r"--ctx 8192 needs (\d+) MiB for KV, and --memory leaves (\d+) of its 200 "
                         r"MiB: weights take (\d+)", err)
        self.assertTrue(said, err)
        need, left, weights = map(int, said.groups())
        self.assertGreater(need, left)
        self.assertLess(peak, weights)

    def test_the_daemon_counts_the_smallest_window_too(self):
        status, _, err, peak = self.daemon("--memory", "150M")
        self.assertEqual(status, 1)
        self.assertRegex(err, r"memory of 150 MiB leaves room for a window of 0 tokens")
        self.assertLess(peak, 90)


if __name__ == "__main__":
    main()
