"""What the cache costs: a prefix is held once, nothing is written twice, memory stays within its
budget, and a conversation that comes back computes its new tokens only.
"""

import os
import random
import shutil
import subprocess
import tempfile
import time
import unittest

from harness import Scripted, assistant, content, main, system, user

BLOCK = 32
LAYERS = 64  # of 2 KiB a block
BLOCK_BYTES = LAYERS * 2048
FILE_BYTES = BLOCK_BYTES + 4096
SCRATCH = (64 << 20) + (1 << 20)  # what the engine has beside KV: scratch and weights
TAIL_IDLE_S = 5
SCRIPT = {"kv_layers": LAYERS, "default": {"pieces": ["fine", "."]}}


def words(n, seed):
    """n bytes, which the script's vocabulary reads as as many tokens."""
    rng = random.Random(seed)
    return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz ") for _ in range(n))


class Economy(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="hearth-economy-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def daemon(self, script, *flags):
        return Scripted(script, *flags, folder=self.folder)

    def settled(self, d):
        d.until(lambda: d.status()["disk"]["waiting"] == 0, "all is written")

    def metric(self, d, name):
        [line] = [x for x in d.get("/metrics")[1].decode().split("\n") if x.startswith(name + " ")]
        return int(line.split()[1])

    def du(self):
        """What the file system gave, folders too."""
        path = os.path.join(self.folder, "cache", "kv")
        return int(subprocess.check_output(["du", "-s", "-B1", path]).split()[0])

    def test_eight_conversations_hold_their_system_prompt_once(self):
        s = system(words(690, "system"))
        t0 = time.monotonic()
        with self.daemon(dict(SCRIPT, ctx=4096)) as d:
            n_system = d.post("/tokenize", {"messages": [s], "add_generation_prompt": False})[1][
                "count"
            ]
            self.assertIn(n_system, range(690, 730))
            own = 0
            first = None
            for i in range(9):
                r = d.chat([s, user(f"{i} " + words(1500, i))])
                n = r["usage"]["prompt_tokens"] + r["usage"]["completion_tokens"] - 1
                self.settled(d)
                d.until_idle()
                # The conversation before the eight brings the prompt, and whatever comes once.
                if first is None:
                    first = d.status(), self.du()
                else:
                    own += n - n_system
                    self.assertGreaterEqual(r["hearth"]["cache"]["ram"], n_system)
            last = d.status(), self.du()
            grown = {
                "RAM": last[0]["memory"]["kv_bytes"] - first[0]["memory"]["kv_bytes"],
                "disk": last[0]["disk"]["bytes"] - first[0]["disk"]["bytes"],
                "du": last[1] - first[1],
            }
            bytes_own = own * BLOCK_BYTES // BLOCK
            print("growth:", {k: round(v / bytes_own, 3) for k, v in grown.items()})
            # A turn that rested longer than that (a slow machine) has left a tail.
            tails = 8 * FILE_BYTES if time.monotonic() - t0 > TAIL_IDLE_S else 0
            more = {"RAM": 0, "disk": tails, "du": tails}
            for what, n in grown.items():
                self.assertGreater(n, 0.95 * bytes_own, what)
                self.assertLess(n, 1.05 * bytes_own + more[what], what)

    def test_twenty_interleaved_conversations_compute_only_what_is_new(self):
        n_turns, n_chats, per_chat = 4, 20, 13  # 400 tokens at the end
        memory = str(SCRATCH + 5 * per_chat * BLOCK_BYTES + 65536)
        # As long as a small model takes: an instant one would outrun any disk.
        script = dict(SCRIPT, ctx=1024, prefill_us_per_token=100)
        t0 = time.monotonic()
        with self.daemon(script, "--memory", memory) as d:
            chats = [[user(f"{i} " + words(100, i))] for i in range(n_chats)]
            seen, new_tokens = [0] * n_chats, 0
            for turn in range(n_turns):
                for i, m in enumerate(chats):
                    r = d.chat(m)
                    n, n_answer = r["usage"]["prompt_tokens"], r["usage"]["completion_tokens"]
                    new = n - seen[i]
                    computed = r["hearth"]["cache"]["computed"]
                    with self.subTest(turn=turn, chat=i):
                        self.assertLessEqual(computed, new + BLOCK, r["hearth"]["cache"])
                    seen[i] = n + n_answer
                    new_tokens += new + n_answer
                    m += [assistant(content(r)), user(f"go on {turn} " + words(40, i * 10 + turn))]
            self.assertGreater(min(seen), 5 * BLOCK)
            self.assertLess(5 * per_chat * BLOCK, 0.5 * sum(seen))  # RAM holds not half of all
            self.assertGreater(d.status()["memory"]["kv_evicted"], 0)
            self.settled(d)
            written = self.metric(d, "hearth_disk_written_bytes_total")
            # A turn that rested longer than that (a slow machine) has left a tail.
            n_tails = n_turns * n_chats if time.monotonic() - t0 > TAIL_IDLE_S else 0
            limit = 1.1 * new_tokens * BLOCK_BYTES / BLOCK + n_tails * FILE_BYTES
            print(f"written: {written / (new_tokens * BLOCK_BYTES / BLOCK):.3f} of the new KV")
            self.assertLess(written, limit)
            self.assertGreater(written, 0.7 * new_tokens * BLOCK_BYTES / BLOCK)

    def test_memory_stays_within_its_budget(self):  # B64
        cap = 64 << 20
        script = dict(SCRIPT, ctx=2048)
        with self.daemon(script, "--memory", str(SCRATCH + cap), "--disk", "0") as d:
            d.chat([user("x")])
            base = self.rss(d)
            right = d.say([user("0 " + words(1000, 0))])
            for i in range(120):
                d.chat([user(f"{i} " + words(1000, i))], max_tokens=1)
            m = d.status()["memory"]
            self.assertGreater(m["kv_evicted"], 1000)
            self.assertLessEqual(m["kv_bytes"], m["kv_bytes_max"])
            self.assertLessEqual(m["kv_bytes_max"], cap)
            # More than fits the window is refused before anything is taken for it.
            status, r = d.post("/v1/chat/completions", {"messages": [user(words(4000, "big"))]})
            self.assertEqual((status, r["error"]["code"]), (400, "context_length_exceeded"))
            self.assertEqual(d.say([user("0 " + words(1000, 0))]), right)
            with open(f"/proc/{d.process.pid}/maps") as f:
                if "san.so" in f.read():
                    return  # what a sanitizer keeps of freed memory is its own
            grown = self.rss(d) - base
            print(f"RSS grew by {grown >> 20} MiB")
            self.assertLess(grown, cap + (16 << 20))

    def rss(self, d):
        with open(f"/proc/{d.process.pid}/status") as f:
            [line] = [x for x in f if x.startswith("VmHWM:")]
        return int(line.split()[1]) << 10


if __name__ == "__main__":
    main()
