"""The bash completion: what it offers at each place."""

import os
import shutil
import subprocess
import tempfile
import unittest

from hearth import PROGRAM, Hearth, environment
from harness import BUILD, SOURCE, Scripted, main

HEARTHD = os.path.join(BUILD, "daemon", "hearthd")
SCRIPT = """
source "$1"; shift
compopt() { :; }  # outside of a completion there is nothing to change
hearth() { "$PROGRAM" "$@"; }
hearthd() { "$HEARTHD" "$@"; }
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
"_$1"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@unittest.skipUnless(shutil.which("bash"), "no bash")
class Completion(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.d = Scripted({})
        cls.h = Hearth()

    @classmethod
    def tearDownClass(cls):
        cls.h.close()
        cls.d.stop()

    def offers(self, *words):
        path = os.path.join(SOURCE, "client", "completion.bash")
        p = subprocess.run(
            ["bash", "-c", SCRIPT, "bash", path, "hearth", *words],
            env=environment(self.h.home, PROGRAM=PROGRAM),
            capture_output=True,
            cwd=self.h.home,
        )
        self.assertEqual((p.returncode, p.stderr), (0, b""), words)
        return p.stdout.decode().split()

    def test_commands(self):
        self.assertIn("chat", self.offers(""))
        self.assertEqual(self.offers("ex"), ["export"])
        self.assertEqual(self.offers("--socket", "/x", "st"), ["stats", "status"])
        self.assertEqual(self.offers("help", "imp"), ["import"])

    def test_options(self):
        self.assertEqual(self.offers("--so"), ["--socket"])
        self.assertEqual(self.offers("chat", "--con"), ["--continue", "--context"])
        self.assertEqual(self.offers("--json", "export", "--a"), ["--all"])
        self.assertEqual(self.offers("list", "--top"), [])

    def test_orders_of_cache(self):
        self.assertEqual(self.offers("cache", ""), ["list", "drop", "pin", "unpin"])
        self.assertEqual(self.offers("cache", "u"), ["unpin"])
        self.assertEqual(self.offers("cache", "drop", "--a"), ["--all", "--after"])
        one = self.d.post("/v1/conversations", {})[1]["id"]
        self.assertEqual(
            self.offers("--socket", self.d.socket_path, "cache", "pin", one[:30]), [one]
        )

    def test_strategies_and_the_windows_conversations(self):
        self.assertEqual(self.offers("chat", "--context", "au"), ["auto"])
        self.assertEqual(self.offers("context", "--set", "de"), ["default"])
        self.assertEqual(self.offers("ask", "--context", "de"), [])
        self.assertEqual(self.offers("summary", ""), ["show", "edit"])
        one = self.d.post("/v1/conversations", {})[1]["id"]
        where = ("--socket", self.d.socket_path)
        for words in (
            ("context",),
            ("cut",),
            ("summary",),
            ("summary", "edit"),
            ("search", "--conversation"),
        ):
            self.assertEqual(self.offers(*where, *words, one[:30]), [one], words)

    def test_ids_and_files(self):
        ids = {self.d.post("/v1/conversations", {})[1]["id"] for _ in range(3)}
        where = ("--socket", self.d.socket_path)
        self.assertEqual(set(self.offers(*where, "show", "")), ids)
        one = min(ids)
        self.assertEqual(self.offers(*where, "delete", one[:30]), [one])
        self.assertEqual(self.offers(*where, "chat", "--open", one[:30]), [one])
        self.assertEqual(self.offers("--socket", "/none", "show", ""), [])
        with open(os.path.join(self.h.home, "backup.jsonl"), "w"):
            pass
        self.assertEqual(self.offers("import", "ba"), ["backup.jsonl"])
        for words in ([], ["--teacher"], ["--json"], ["--csv"], ["x.jsonl"]):
            self.assertEqual(self.offers("replay", *words, "ba"), ["backup.jsonl"], words)
        self.assertEqual(self.offers("list", "--json", "ba"), [])


@unittest.skipUnless(shutil.which("bash"), "no bash")
class DaemonCompletion(unittest.TestCase):
    def offers(self, *words):
        path = os.path.join(SOURCE, "daemon", "completion.bash")
        with tempfile.TemporaryDirectory() as d:
            with open(os.path.join(d, "model.gguf"), "w", encoding="ascii"):
                pass
            p = subprocess.run(
                ["bash", "-c", SCRIPT, "bash", path, "hearthd", *words],
                env={**os.environ, "HEARTHD": HEARTHD},
                capture_output=True,
                text=True,
                cwd=d,
            )
        self.assertEqual((p.returncode, p.stderr), (0, ""), words)
        return p.stdout.split()

    def test_commands_and_the_daemons_flags(self):
        self.assertEqual(self.offers(""), ["bench", "perplexity", "probe"])
        self.assertEqual(self.offers("--mod"), ["--model"])
        self.assertEqual(self.offers("--model", "m"), ["model.gguf"])
        self.assertEqual(self.offers("--isa", "a"), ["amx", "avx2", "avx512"])

    def test_options_of_the_offline_commands(self):
        self.assertEqual(self.offers("bench", "--ag"), ["--against"])
        self.assertEqual(self.offers("bench", "--no"), ["--no-peaks"])
        self.assertEqual(self.offers("bench", "--sock"), [])
        self.assertEqual(self.offers("bench", "--h"), ["--help"])
        self.assertEqual(self.offers("bench", "--format", ""), ["csv", "json", "table"])
        self.assertEqual(self.offers("perplexity", "--w"), ["--window"])
        self.assertEqual(self.offers("perplexity", "--format", ""), ["json", "table"])
        self.assertEqual(self.offers("perplexity", "mo"), ["model.gguf"])
        self.assertEqual(self.offers("perplexity", "--logits", "mo"), ["model.gguf"])
        self.assertEqual(self.offers("probe", "--kv-type", ""), ["f16", "q8_0"])


if __name__ == "__main__":
    main()
