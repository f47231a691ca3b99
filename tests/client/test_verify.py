"""hearth verify: a line a conversation, what differs, and the exit code."""

import json
import os
import shutil
import subprocess
import tempfile
import unittest

from hearth import BUILD, Hearth
from harness import Scripted, main


def words(n, first=0):
    return " ".join(f"w{first + i}" for i in range(n))


class Verify(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="hearth-verify-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def talk(self, d, text):
        c = d.post("/v1/conversations", {})[1]["id"]
        status, r = d.post("/v1/responses", {"input": text, "conversation": c, "temperature": 0})
        self.assertEqual(status, 200, r)
        return c

    def client(self, d):
        h = Hearth(d.socket_path)
        self.addCleanup(h.close)
        return h

    def test_all_is_well(self):
        with Scripted({}, folder=self.folder) as d:
            h = self.client(d)
            r = h.run("verify")
            self.assertEqual(
                (r.code, r.out),
                (0, "all 0 blocks (0 positions) are the bytes that the model computes\n"),
            )
            ids = [self.talk(d, words(60, 1000 * i)) for i in range(3)]
            r = h.run("verify")
            self.assertEqual((r.code, r.err), (0, ""), r)
            lines = r.out.splitlines()
            self.assertEqual([x.split(":")[0] for x in lines[:3]], ids[::-1])
            self.assertRegex(lines[0], r": \d+ blocks, \d+ positions \(\d+ in RAM, \d+ on disk\)$")
            self.assertRegex(lines[3], r"^all \d+ blocks \(\d+ positions\) are the bytes that the")
            one = h.run("verify", ids[0], "1")
            self.assertEqual([x.split(":")[0] for x in one.out.splitlines()[:2]], [ids[0], ids[2]])
            objects = [json.loads(x) for x in h.run("verify", "--json").out.splitlines()]
            self.assertEqual([o["object"] for o in objects], ["hearth.verify"] * 3)
            self.assertEqual(h.run("verify", "conv_" + "0" * 32).code, 5)
            self.assertEqual(h.run("verify", "--bad").code, 2)

    def test_what_differs_is_said(self):
        with Scripted({}, folder=self.folder) as d:
            c = self.talk(d, words(60))
        for at, _, names in os.walk(os.path.join(self.folder, "cache", "kv")):
            for n in names:
                if n.endswith(".kv"):
                    tool = os.path.join(BUILD, "tests", "reseal")
                    subprocess.run([tool, os.path.join(at, n), "5"], check=True)
        with Scripted({}, folder=self.folder) as d:
            h = self.client(d)
            r = h.run("verify")
            self.assertEqual((r.code, r.err), (1, ""), r)
            self.assertIn(f"{c}: 1 block, 32 positions (0 in RAM, 1 on disk), ", r.out)
            self.assertIn("  block 0 (position 0) is not what the model computes; removed", r.out)
            self.assertIn("1 of 1 blocks differed", r.out)
            r = h.run("verify", c)
            self.assertEqual(r.code, 0, r)
            self.assertRegex(r.out, r", \d+ blocks not cached any more\n")

    def test_a_wrong_file_is_told_from_a_wrong_block(self):
        with Scripted({}, folder=self.folder) as d:
            c = self.talk(d, words(60))
            d.until(lambda: d.status()["disk"]["waiting"] == 0, "all is written")
            for at, _, names in os.walk(os.path.join(self.folder, "cache", "kv")):
                for n in sorted(x for x in names if x.endswith(".kv"))[:1]:
                    tool = os.path.join(BUILD, "tests", "reseal")
                    subprocess.run([tool, os.path.join(at, n), "5"], check=True)
                    break
            h = self.client(d)
            r = h.run("verify", c)
            self.assertEqual(r.code, 1, r)
            self.assertIn("has a file that is not what the model computes", r.out)
            d.until(lambda: d.status()["disk"]["waiting"] == 0, "it is written again")
            self.assertEqual(h.run("verify", c).code, 0)


if __name__ == "__main__":
    main()
