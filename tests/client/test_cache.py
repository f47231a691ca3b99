"""hearth cache: the table, the orders, and what they refuse."""

import json
import shutil
import tempfile
import unittest

from hearth import Hearth
from harness import Scripted, main, system

RULES = "Be brief. " * 60


class Cache(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="hearth-cache-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def client(self, d):
        h = Hearth(d.socket_path)
        self.addCleanup(h.close)
        return h

    def talk(self, d, text, rules=RULES):
        c = d.post("/v1/conversations", {"items": [system(rules)] if rules else []})[1]["id"]
        status, r = d.post("/v1/responses", {"input": text, "conversation": c, "temperature": 0})
        self.assertEqual(status, 200, r)
        return c

    def test_list(self):
        with Scripted({}, folder=self.folder) as d:
            h = self.client(d)
            r = h.run("cache")
            self.assertEqual((r.code, r.err), (0, ""))
            self.assertTrue(r.out.startswith("in RAM: 0 blocks, 0.0 MiB\non disk: 0 blocks"), r)
            ids = [self.talk(d, f"question {i} " * 20) for i in range(3)]
            self.assertEqual(h.run("cache", "pin", ids[0]).code, 0)
            r = h.run("cache", "list")
            lines = r.out.splitlines()
            self.assertRegex(lines[0], r"^in RAM: \d+ blocks, \d+\.\d MiB, \d+ pinned, 3 not full$")
            self.assertRegex(lines[1], r"^on disk: \d+ blocks, ")
            self.assertRegex(lines[2], r"^a block: 32 tokens, .* at most \d+ can be pinned$")
            self.assertEqual([x[:13] for x in lines[5:]], [i[:13] for i in ids[::-1]])
            numbers = r"  +\d+  +\d+\.\d" * 2
            self.assertRegex(lines[5], rf"^conv_\w{{8}}{numbers}  +0  question 2")
            self.assertGreater(int(lines[7].split()[5]), 3)
            one = h.run("cache", "--limit", "1", "--after", "1")
            self.assertEqual([x[:13] for x in one.out.splitlines()[5:]], [ids[1][:13]])
            page = json.loads(h.run("cache", "--json").out)
            self.assertEqual([x["id"] for x in page["data"]], ids[::-1])
            self.assertIn("ram", page["hearth"])

    def test_drop(self):
        with Scripted({}, folder=self.folder) as d:
            h = self.client(d)
            a, b = self.talk(d, "one " * 40), self.talk(d, "two " * 40)
            r = h.run("cache", "drop", a)
            self.assertEqual((r.code, r.err), (0, ""))
            self.assertRegex(
                r.out, rf"^dropped {a}: \d+ blocks \(\d\.\d MiB\); kept: \d+ used by other conv"
            )
            objects = h.run("cache", "drop", "--json", a, b).out.splitlines()
            self.assertEqual([json.loads(x)["conversation"] for x in objects], [a, b])
            h.run("cache", "pin", a)
            r = h.run("cache", "drop", "--all")
            self.assertRegex(r.out, r"^dropped all: \d+ blocks? .*\n$")
            self.assertEqual(h.run("show", a).code, 0)

    def test_pin_and_unpin(self):
        with Scripted({}, folder=self.folder) as d:
            h = self.client(d)
            a, b = self.talk(d, "one " * 40), self.talk(d, "two " * 40, None)
            r = h.run("cache", "pin", a)
            self.assertRegex(r.out, rf"^pinned {a}: (\d+) blocks \(\1 in RAM, \d+ on disk now\)\n$")
            self.assertIn("kept: ", h.run("cache", "drop", "--all").out)
            r = h.run("cache", "unpin", a)
            self.assertRegex(r.out, rf"^unpinned {a}: \d+ blocks\n$")
            self.assertEqual(h.run("cache", "unpin", a).out, f"unpinned {a}: 0 blocks\n")
            r = h.run("cache", "pin", b)
            self.assertEqual((r.code, r.out), (1, ""))
            self.assertIn("has no system prompt", r.err)
            self.assertEqual(h.run("cache", "pin", "--all", b).code, 0)

    def test_what_is_refused(self):
        with Scripted({}, folder=self.folder) as d:
            h = self.client(d)
            a = self.talk(d, "one")
            for words in (
                ("drop",),
                ("drop", "--all", a),
                ("pin",),
                ("unpin",),
                ("unpin", "--all", a),
                ("list", a),
                ("list", "--all"),
                ("lost",),
                ("--limit", "0"),
                ("--bad",),
            ):
                r = h.run("cache", *words)
                self.assertEqual((r.code, r.out), (2, ""), words)
                self.assertIn("Usage: hearth cache ", r.err)
            before = h.run("cache", "--json").out
            for what in ("drop", "pin", "unpin"):
                r = h.run("cache", what, a, "conv_0000")
                self.assertEqual((r.code, r.out), (5, ""), what)
            self.assertEqual(h.run("cache", "--json").out, before)
            self.assertEqual(h.run("cache", "--help").code, 0)


if __name__ == "__main__":
    main()
