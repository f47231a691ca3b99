"""hearth(1) and the program say the same: commands, options, slash commands, exit codes."""

import os
import re
import shutil
import subprocess
import unittest

from hearth import Hearth
from harness import SOURCE, Scripted, main

PAGE = os.path.join(SOURCE, "docs", "man", "hearth.1")


def sections():
    """Section → its lines."""
    found, name = {}, None
    with open(PAGE, encoding="ascii") as f:
        for line in f.read().splitlines():
            if line.startswith((".Sh ", ".Ss ")):
                name = line[4:]
                found[name] = []
            elif name:
                found[name].append(line)
    return found


def items(lines, macro):
    """What follows `.It MACRO`, first word."""
    return [m.group(1) for line in lines if (m := re.match(rf"\.It {macro} ?(\S+)", line))]


def options(lines):
    return {name for name in re.findall(r"^\.It Fl -(\S+)", "\n".join(lines), re.M)}


class Man(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.h = Hearth("/nonexistent")
        cls.page = sections()

    @classmethod
    def tearDownClass(cls):
        cls.h.close()

    def help_options(self, *words):
        text = self.h.run("help", *words).out
        return {m for m in re.findall(r"^  --(\S+)", text, re.M)}

    def help_commands(self):
        text = self.h.run("help").out.split("Commands:\n")[1].split("\nOptions:")[0]
        return re.findall(r"^  (\S+)", text, re.M)

    def test_commands(self):
        self.assertEqual(items(self.page["COMMANDS"], "Cm"), self.help_commands())

    def test_global_options(self):
        self.assertEqual(options(self.page["Global options"]), self.help_options())

    def test_each_commands_options(self):
        sampling = options(self.page["SAMPLING OPTIONS"])
        own, command = {}, None
        for line in self.page["COMMANDS"]:
            if m := re.match(r"\.It Cm (\S+)", line):
                command = m.group(1)
                own[command] = set()
            if m := re.match(r"\.It Fl -(\S+)", line):
                own[command].add(m.group(1))
        for command in self.help_commands():
            expected = own[command] | {"json", "help"}
            if command in ("ask", "chat"):
                expected |= sampling
            self.assertEqual(expected, self.help_options(command), command)

    def test_slash_commands(self):
        with Scripted({}) as d:
            h = Hearth(d.socket_path)
            text = h.run("chat", stdin="/help\n").out
            h.close()
        self.assertEqual(
            items(self.page["CHAT COMMANDS"], "Ic"), re.findall(r"^  (/\S+)", text, re.M)
        )

    def test_exit_codes(self):
        with open(os.path.join(SOURCE, "client", "client.h")) as f:
            codes = re.findall(r"EXIT_\w+ = (\d+),", f.read())
        self.assertEqual(items(self.page["EXIT STATUS"], ""), codes)

    @unittest.skipUnless(shutil.which("man"), "no man")
    def test_the_page_has_no_errors(self):
        p = subprocess.run(
            ["man", "--warnings=all", "-l", PAGE],
            capture_output=True,
            env={**os.environ, "MANWIDTH": "80"},
        )
        self.assertEqual((p.returncode, p.stderr), (0, b""))
        self.assertGreater(len(p.stdout.splitlines()), 200)


if __name__ == "__main__":
    main()
