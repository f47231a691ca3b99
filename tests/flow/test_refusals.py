"""What this machine or engine can't do is refused at start, by name and with the numbers, and
before memory is taken.
"""

import os
import subprocess
import tempfile
import unittest

from harness import BUILD, Scripted, main

MKGGUF = os.path.join(BUILD, "tests", "bench", "mkgguf")
SMALL = ["--embd", "64", "--ff", "96", "--heads", "2", "--kv-heads", "1", "--head-dim", "32",
         "--layers", "2", "--vocab", "512", "--ctx", "4096", "--type", "Q8_0"]
LACKS = {"avx512": "avx512", "amx": "amx_tile"}  # as /proc/cpuinfo names what they need


def cpu_flags():
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as f:
        for line in f:
            if line.startswith("flags"):
                return set(line.split(":", 1)[1].split())
    return set()


class Refusals(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="hearth-")
        cls.model = os.path.join(cls.folder.name, "small.gguf")
        subprocess.run([MKGGUF, cls.model, *SMALL], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def refused(self, *flags, model=None, status=1):
        """The log of a start that must fail; and how many bytes it had at most."""
        d = self.folder.name
        with tempfile.TemporaryFile() as log:
            p = subprocess.Popen(
                [os.path.join(BUILD, "daemon/hearthd"), "--model", model or self.model, "--socket",
                 os.path.join(d, "s"), "--state-dir", os.path.join(d, "state"), "--cache-dir",
                 os.path.join(d, "cache"), *flags],
                stdout=log,
                stderr=log,
            )
            _, ended, usage = os.wait4(p.pid, 0)
            p.returncode = os.waitstatus_to_exitcode(ended)
            log.seek(0)
            text = log.read().decode()
        self.assertEqual(p.returncode, status, text)
        return text, usage.ru_maxrss * 1024

    def test_an_architecture_by_its_name(self):
        path = os.path.join(self.folder.name, "other.gguf")
        with open(self.model, "rb") as f:
            data = f.read()
        with open(path, "wb") as f:
            f.write(data.replace(b"llama", b"lamas", 1))
        log, _ = self.refused(model=path)
        self.assertIn('"lamas"', log)

    def test_kernels_that_are_not_there(self):
        log, _ = self.refused("--isa", "mmx")
        self.assertIn("isa mmx: unknown; known are c, avx2, avx512, amx", log)
        flags = cpu_flags()
        for isa, flag in LACKS.items():
            if not any(f.startswith(flag) for f in flags):
                log, _ = self.refused("--isa", isa)
                self.assertRegex(log, f"isa {isa}: this CPU lacks .*; its best is ")

    def test_a_scripted_engine_refuses_the_same(self):
        with Scripted({}, "--isa", "c") as d:
            self.assertEqual(d.status()["model"]["isa"], "c")

    def test_more_memory_than_the_machine_has(self):
        log, _ = self.refused("--memory", "900000G", status=78)  # a wrong option, as any
        self.assertRegex(log, r"--memory of 921600000 MiB is more than the \d+ MiB")

    def test_a_budget_that_does_not_hold_weights_and_window(self):
        """The numbers are told, and nothing was taken: a process that had allocated the KV would
        have been larger."""
        log, _ = self.refused("--memory", "16M")
        self.assertRegex(log, r"memory of 16 MiB leaves room for a window of 0 tokens; the")
        self.assertRegex(log, r"weights take \d+ MiB, vectors \d+, buffers \d+")
        log, _ = self.refused("--memory", "65M", "--ctx", "4096")
        self.assertRegex(log, r"--ctx 4096 needs \d+ MiB for KV, and --memory leaves \d+ of its 65")

    def test_weights_larger_than_the_budget_are_refused_before_they_are_read(self):
        large = os.path.join(self.folder.name, "large.gguf")
        subprocess.run(
            [MKGGUF, large, *SMALL, "--vocab", "65536", "--embd", "512", "--embd-type", "F32"],
            check=True,
        )
        log, most = self.refused("--memory", "100M", model=large)
        self.assertRegex(log, r"the weights need \d+ MiB \(\d+ bytes\), the memory budget is 100")
        self.assertLess(most, 100 << 20, "what was said to be too much had been taken")


if __name__ == "__main__":
    main()
