"""hearth stats: what the cache was worth, in all and turn by turn."""

import json
import unittest

from hearth import Hearth
from harness import Scripted, main

SCRIPT = {"default": {"pieces": ["fine", "."]}, "prefill_us_per_token": 200}


def words(n, first=0):
    return " ".join(f"w{first + i}" for i in range(n))


class Stats(unittest.TestCase):
    def talk(self, d, n_turns, **more):
        c = d.post("/v1/conversations", {})[1]["id"]
        for i in range(n_turns):
            body = {"input": words(40, 1000 * i), "conversation": c, "temperature": 0, **more}
            status, r = d.post("/v1/responses", body)
            self.assertEqual(status, 200, r)
        return c

    def client(self, d):
        h = Hearth(d.socket_path)
        self.addCleanup(h.close)
        return h

    def test_an_empty_daemon_saved_nothing(self):
        with Scripted(SCRIPT) as d:
            r = self.client(d).run("stats")
            self.assertEqual((r.code, r.err), (0, ""), r)
            lines = r.out.splitlines()
            self.assertEqual(len(lines), 3, lines)
            self.assertRegex(lines[1], r"^since the start( +0){7} +0\.0 s +0 turns$")
            self.assertRegex(lines[2], r"^ever( +0){7} +0\.0 s +0 turns$")

    def test_sums_misses_and_conversations_are_shown(self):
        with Scripted(SCRIPT) as d:
            h = self.client(d)
            one, three = self.talk(d, 1), self.talk(d, 3, instructions="S " + words(50, 9000))
            r = h.run("stats")
            self.assertEqual((r.code, r.err), (0, ""), r)
            lines = r.out.splitlines()
            self.assertRegex(lines[1], r"^since the start .* 4 turns$")
            self.assertRegex(lines[2], r"^since \d{4}-\d\d-\d\d .* 4 turns$")
            self.assertRegex(lines[3], r"^misses +new \d")
            top = [x.split()[0] for x in lines[-2:]]
            self.assertEqual(top, [three[:13], one[:13]])
            j = json.loads(h.run("stats", "--json").out)
            self.assertEqual(j["object"], "hearth.stats")
            self.assertEqual([c["id"] for c in j["conversations"]], [three, one])
            self.assertEqual(j["total"]["turns"], 4)

    def test_a_conversation_is_shown_turn_by_turn(self):
        with Scripted(SCRIPT) as d:
            h = self.client(d)
            c = self.talk(d, 3)
            body = {"input": "x", "conversation": c, "instructions": "I " + words(40, 7000)}
            self.assertEqual(d.post("/v1/responses", body)[0], 200)
            for name in (c, c[5:12], "1"):
                r = h.run("stats", name)
                self.assertEqual((r.code, r.err), (0, ""), r)
                lines = r.out.splitlines()
                self.assertEqual(len(lines), 7, lines)
                self.assertTrue(lines[4].endswith("changed at message 0"), lines[4])
                self.assertRegex(lines[5], r"^all its life .* 4 turns$")
                self.assertEqual(lines[6].split(), ["misses", "changed", "1,", "new", "1"])
            short = h.run("stats", "--limit", "2", c).out.splitlines()
            self.assertEqual(short[1], "…")
            self.assertEqual(short[2:], lines[3:])
            j = json.loads(h.run("stats", c, "--json").out)
            self.assertEqual((j["conversation"], len(j["turns"]["data"])), (c, 4))

    def test_what_is_wrong_is_said(self):
        with Scripted(SCRIPT) as d:
            h = self.client(d)
            self.assertEqual(h.run("stats", "conv_" + "0" * 32).code, 5)
            self.assertEqual(h.run("stats", "--limit", "0").code, 2)
            self.assertEqual(h.run("stats", "a", "b").code, 2)
            self.assertEqual(h.run("stats", "--bad").code, 2)


if __name__ == "__main__":
    main()
