"""scripts/plot_replay.py: what it refuses and says, and a picture where matplotlib is there."""

import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

from hearth import Hearth
from harness import SOURCE, Scripted, main

PROGRAM = os.path.join(SOURCE, "scripts", "plot_replay.py")
SAMPLES = os.path.join(SOURCE, "docs", "samples")


def has_matplotlib():
    p = subprocess.run([sys.executable, "-c", "import matplotlib"], capture_output=True)
    return p.returncode == 0


class Plot(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="hearth-")
        with Scripted({"default": {"pieces": ["a", "b"]}}) as d:
            h = Hearth(d.socket_path)
            for name, more in (("cold.json", ["--no-cache"]), ("warm.json", [])):
                words = ["--teacher", "--turns", "3", "--json", cls.path(name), *more]
                r = h.run("replay", *words, os.path.join(SAMPLES, "mt-bench.jsonl"))
                if r.code:
                    raise AssertionError(r)
            h.close()
        os.mkdir(cls.path("none"))
        with open(cls.path("none/matplotlib.py"), "w") as f:
            f.write("raise ImportError('none here')\n")

    @classmethod
    def tearDownClass(cls):
        subprocess.run(["rm", "-rf", cls.folder], check=True)

    @classmethod
    def path(cls, name):
        return os.path.join(cls.folder, name)

    def run_plot(self, *words, **env):
        return subprocess.run(
            [sys.executable, "-B", PROGRAM, *words],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env={**os.environ, "MPLCONFIGDIR": self.path("mpl"), **env},
        )

    def refused(self, pattern, *words, **env):
        p = self.run_plot(*words, **env)
        self.assertNotEqual(p.returncode, 0)
        self.assertRegex(p.stderr, pattern)
        self.assertNotIn("Traceback", p.stderr)

    def test_without_matplotlib_it_says_how_to_get_it(self):
        self.refused(
            "^plot_replay: matplotlib is not installed: apt install python3-matplotlib",
            self.path("warm.json"),
            PYTHONPATH=self.path("none"),
        )

    def test_what_is_no_result_is_refused(self):
        self.refused("can't be read: No such file", self.path("nothing"))
        for text, why in (
            ("{", "is no JSON"),
            ("[]", "is no result"),
            ('{"object": "list"}', "is no result"),
            ('{"object": "hearth.replay", "version": 2}', "of version 2"),
            ('{"object": "hearth.replay", "version": 1, "turns": []}', "holds no turns"),
        ):
            with open(self.path("bad.json"), "w") as f:
                f.write(text)
            self.refused(why, self.path("bad.json"))
        self.refused("at most 2 results", *[self.path("warm.json")] * 3)

    @unittest.skipUnless(has_matplotlib(), "no matplotlib")
    def test_a_picture_of_one_and_of_two(self):
        cold, warm = self.path("cold.json"), self.path("warm.json")
        for words, said in (
            ([warm], "replay.png\n"),
            ([cold, warm, "--output", "two.png", "--title", "x"],
             "6 turns in both, 0 answered differently\ntwo.png\n"),
        ):
            p = self.run_plot(*words)
            self.assertEqual((p.returncode, p.stdout), (0, said), p.stderr)
            with open(self.path(said.split()[-1]), "rb") as f:
                head = f.read(24)
            self.assertEqual(head[:8], b"\x89PNG\r\n\x1a\n")
            self.assertGreater(struct.unpack(">I", head[16:20])[0], 1000)

    @unittest.skipUnless(has_matplotlib(), "no matplotlib")
    def test_servers_that_tell_nothing_and_pictures_that_cannot_be_written(self):
        with open(self.path("warm.json")) as f:
            result = json.load(f)
        for t in result["turns"]:
            t.update(ttft_ms=None, cached_tokens=None, prompt_tokens=None)
        with open(self.path("bare.json"), "w") as f:
            json.dump({**result, "whole": False}, f)
        p = self.run_plot(self.path("bare.json"))
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assertIn("was not played to its end", p.stderr)
        self.refused("can't be written", self.path("warm.json"), "--output", "/none/x.png")


if __name__ == "__main__":
    main()
