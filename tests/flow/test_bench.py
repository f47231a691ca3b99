"""hearthd bench: what it says about each work, in every format, and beside another program.

No speed is judged: only that every work asked for is there, counted right, and refused when wrong.
"""

import csv
import io
import json
import os
import shlex
import subprocess
import sys
import tempfile
import unittest

from harness import BUILD, MODEL, PATIENCE_S, main

HEARTHD = os.path.join(BUILD, "daemon", "hearthd")
SMALL = ["-p", "33", "-n", "2", "-r", "2", "-t", "2"]


def bench(*args, model=MODEL):
    return subprocess.run(
        [HEARTHD, "bench", "--model", model, *args],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S * 5,
    )


def other(entries, status=0):
    """A command that prints entries as llama-bench -o json does."""
    code = f"import sys; print({json.dumps(entries)!r}); sys.exit({status})"
    return f"{shlex.quote(sys.executable)} -c {shlex.quote(code)}"


@unittest.skipUnless(os.path.exists(MODEL) or os.environ.get("CI"), f"no model at {MODEL}")
class Bench(unittest.TestCase):
    def good(self, *args):
        p = bench(*args)
        self.assertEqual((p.returncode, p.stderr), (0, ""))
        return p.stdout

    def refused(self, status, *args, model=MODEL):
        p = bench(*args, model=model)
        self.assertEqual((p.returncode, p.stdout), (status, ""))
        return p.stderr

    def test_each_length_is_measured_at_each_depth_and_batch(self):
        out = json.loads(
            self.good(
                *SMALL, "-d", "0,70", "-b", "1,3", "--format", "json"
            )
        )
        works = {(w["n_prompt"], w["n_gen"], w["n_depth"], w["batch"]) for w in out["results"]}
        want = {(p, n, d, b) for p, n in ((33, 0), (0, 2)) for d in (0, 70) for b in (1, 3)}
        self.assertEqual(works, want)
        self.assertEqual(len(out["results"]), len(want))
        self.assertEqual(out["n_threads"], 2)
        for key in ("read_bytes_per_s", "int_ops_per_s", "float_ops_per_s"):
            self.assertGreater(out["machine"][key], 0)
        for w in out["results"]:
            self.assertEqual(len(w["samples_ts"]), 2)
            self.assertEqual(w["ts_min"], min(w["samples_ts"]))
            self.assertEqual(w["ts_max"], max(w["samples_ts"]))
            self.assertGreater(w["limit_ts"], 0)

    def test_the_formats_tell_the_same_works(self):
        rows = list(csv.DictReader(io.StringIO(self.good(*SMALL, "--no-peaks", "--format", "csv"))))
        self.assertEqual([r["work"] for r in rows], ["prefill", "decode"])
        self.assertEqual([r["limit_ts"] for r in rows], ["", ""])
        table = self.good(*SMALL, "--no-peaks").splitlines()
        self.assertEqual([line.split()[0] for line in table if line][-2:], ["prefill", "decode"])
        self.assertNotIn("limit", "".join(table))

    def test_ratios_are_those_of_the_rounds(self):
        theirs = [
            {"n_prompt": 33, "n_gen": 0, "n_depth": 0, "avg_ts": 1.0},
            {"n_prompt": 512, "n_gen": 0, "n_depth": 0, "avg_ts": 5.0},
        ]
        out = json.loads(
            self.good(*SMALL, "--no-peaks", "--format", "json", "--against", other(theirs))
        )
        prefill, decode = out["results"]
        self.assertAlmostEqual(prefill["ratio_min"], prefill["ts_min"])
        self.assertAlmostEqual(prefill["ratio_max"], prefill["ts_max"])
        self.assertNotIn("ratio_min", decode)

    def test_each_round_runs_the_command_once_and_reads_our_own_format(self):
        with tempfile.TemporaryDirectory() as d:
            count = os.path.join(d, "count")
            ours = f"{shlex.quote(HEARTHD)} bench --model {shlex.quote(MODEL)} -p 33 -n 0 -r 1"
            command = f"echo >> {shlex.quote(count)}; {ours} --no-peaks --format json"
            out = self.good(*SMALL, "--no-peaks", "--format", "csv", "--against", command)
            with open(count, encoding="ascii") as f:
                self.assertEqual(len(f.readlines()), 2)
        prefill, decode = csv.DictReader(io.StringIO(out))
        self.assertGreater(float(prefill["ratio_median"]), 0)
        self.assertEqual(decode["ratio_median"], "")

    def test_a_command_that_fails_or_says_nothing_fitting_is_named(self):
        for command, why in (
            ("exit 3", "status 3"),
            (other([], status=1), "status 1"),
            ("echo hello", "offset"),
            (other([{"n_prompt": 1, "avg_ts": 2}]), "no entry"),
        ):
            self.assertIn(why, self.refused(1, *SMALL, "--no-peaks", "--against", command))

    def test_the_machine_is_told_in_every_format(self):
        topology = json.loads(self.good(*SMALL, "--no-peaks", "--format", "json"))["machine"][
            "topology"
        ]
        self.assertEqual(topology["allowed_cpus"], len(os.sched_getaffinity(0)))
        self.assertEqual(set(topology["caches"]), {"l1d", "l2", "l3"})
        row = next(csv.DictReader(io.StringIO(self.good(*SMALL, "--no-peaks", "--format", "csv"))))
        for key in ("sockets", "cores", "cpus", "threads_per_core", "memory_nodes"):
            self.assertEqual(row[key], str(topology[key] or ""), key)
        for level, cache in topology["caches"].items():
            self.assertEqual(row[f"{level}_bytes"], str(cache["bytes"] or ""))
        self.assertIn(f"may use {topology['allowed_cpus']} CPU", self.good(*SMALL, "--no-peaks"))

    def test_affinity_is_told_and_kept_to(self):
        """On one CPU one thread is the default, and the table says why."""
        one = min(os.sched_getaffinity(0))
        p = subprocess.run(
            [HEARTHD, "bench", "--model", MODEL, "-p", "9", "-n", "1", "-r", "1", "--no-peaks",
             "--format", "json"],
            capture_output=True,
            timeout=PATIENCE_S * 5,
            preexec_fn=lambda: os.sched_setaffinity(0, {one}),
        )
        out = json.loads(p.stdout)
        self.assertEqual(out["machine"]["topology"]["allowed_cpus"], 1)
        self.assertEqual(out["n_threads"], 1)

    def test_wrong_arguments_are_refused(self):
        for args in (
            ["-p", "12,"], ["-p", "1,x"], ["-p", "-1"], ["-b", "0"], ["-b", "65"],
            ["-t", "1,2"], ["-r", "0"], ["--format", "xml"], ["-p", ",".join("1" * 17)], ["more"],
        ):
            self.assertIn("usage:", self.refused(2, *args))
        self.assertIn("nothing to measure", self.refused(1, "-p", "0", "-n", "0"))
        self.assertIn("abacus", self.refused(1, *SMALL, "--isa", "abacus"))
        self.assertIn("positions", self.refused(1, "-p", "900000"))
        self.assertIn("/nowhere", self.refused(1, model="/nowhere/m.gguf"))


class Help(unittest.TestCase):
    def test_every_offline_command_tells_its_usage(self):
        for command in ("bench", "perplexity", "probe"):
            for flag in ("--help", "-h"):
                p = subprocess.run([HEARTHD, command, flag], capture_output=True, text=True)
                self.assertEqual((p.returncode, p.stderr), (0, ""), command)
                self.assertTrue(p.stdout.startswith(f"usage: hearthd {command} --model FILE"))


if __name__ == "__main__":
    main()
