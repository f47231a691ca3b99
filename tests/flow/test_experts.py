"""Mixtures of experts in the daemon: warm says what cold says, alone and beside others, over a
restart and by verify's proof. Real arithmetic over random weights; what they say makes no sense,
and is the same each time.
"""

import os
import shutil
import subprocess
import tempfile
import unittest

from harness import BUILD, Daemon, assistant, cached, content, main, system, together, user

SHAPE = (
    "--vocab 512 --embd 64 --ff 96 --layers 3 --heads 2 --kv-heads 1 --head-dim 32 --ctx 1024 "
    "--type Q8_0 --experts 8 --used 3 --ff-exp 32"
)
KINDS = {
    "deepseek2": "--shared 1 --dense 1 --router-bias --set expert_gating_func=2 "
    "--set expert_weights_norm=true --set expert_group_count=4 --set expert_group_used_count=2",
    "qwen3moe": "",
}
# The default of 4 GiB takes a sanitizer seconds to mark, and to give back.
SMALL = ("--ctx", "1024", "--memory", "512M")
WORDS = "the careful engineer writes down every number before one part of it is changed ".split()
# Drawn with a seed: a random model's likeliest token is soon the same one again.
MANY = {"max_tokens": 16, "temperature": 1, "seed": 7}
FEW = {"max_tokens": 8, "temperature": 1, "seed": 8}


def words(n, first):
    return " ".join(WORDS[(first + i * 5 + i // 7) % len(WORDS)] for i in range(n))


def conversation(i):
    return [system(f"Notes {i}: " + words(30 + 9 * i, i)), user(words(12, 3 * i))]


class Experts(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="hearth-experts-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def make(self, arch):
        path = os.path.join(self.folder, arch + ".gguf")
        command = [os.path.join(BUILD, "tests/bench/mkgguf"), path, "--arch", arch]
        subprocess.run([*command, *SHAPE.split(), *KINDS[arch].split()], check=True)
        return path

    def check(self, arch):
        path = self.make(arch)
        all_m = [conversation(i) for i in range(4)]
        with Daemon(path, *SMALL, folder=self.folder) as d:
            cold = [d.say(m, **MANY, hearth={"cache": False}) for m in all_m]
            self.assertEqual(len(set(cold)), len(cold))
            # At once: rows of all share passes, and experts.
            both = together(*[lambda m=m: d.say(m, **MANY) for m in all_m])
            self.assertEqual(both, cold)
            self.assertEqual([d.say(m, **MANY) for m in all_m], cold)
            d.until(lambda: d.status()["disk"]["waiting"] == 0, "all is written")
        with Daemon(path, *SMALL, "--threads", "1", folder=self.folder) as d:
            for m, text in zip(all_m, cold):
                r = d.chat(m, **MANY)
                self.assertEqual(content(r), text)
                self.assertGreater(r["hearth"]["cache"]["disk"], 30)
                m += [assistant(text), user("more")]
                self.assertEqual(
                    d.say(m, **FEW), d.say(m, **FEW, hearth={"cache": False})
                )
            c = d.post("/v1/conversations", {})[1]["id"]
            for text in ("Notes: " + words(60, 1), words(20, 4)):
                status, r = d.post(
                    "/v1/responses", {"conversation": c, "input": text, "max_output_tokens": 8}
                )
                self.assertEqual(status, 200, r)
            status, r = d.post("/v1/hearth/verify", {"conversation": c})
            self.assertEqual(status, 200, r)
            self.assertGreater(r["blocks"], 2, r)
            self.assertEqual((r["ram"], r["different"]), (r["blocks"], []))

    def test_compressed_attention_with_grouped_experts(self):
        self.check("deepseek2")

    def test_experts_that_share_nothing(self):
        self.check("qwen3moe")


if __name__ == "__main__":
    main()
