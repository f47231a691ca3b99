"""Windowed layers keep what they see, in RAM; the disk has all, and a fork, a restart and an edit
in the middle are found, with the cold answer's tokens. Gemma 3 (15 of 18 layers see 512 positions),
and small models of random weights, whose answers make no sense and are the same each time.
"""

import os
import shutil
import subprocess
import tempfile
import unittest

from harness import BUILD, SOURCE, Daemon, assistant, cached, content, main, system, together, user

GEMMA = os.environ.get("HEARTH_GEMMA", os.path.join(SOURCE, "models", "gemma-3-270m.Q4_K_M.gguf"))
WORDS = "the careful engineer writes down every number before one part of it is changed ".split()
BLOCK, WINDOW = 32, 512
FULL, WINDOWED = 3, 15  # layers
LAYER = 2 * 256 * 2  # bytes of a position: one KV head of 256 dimensions, F16
KEPT = WINDOW // BLOCK + 2  # blocks that keep all layers, at most


def words(n, first=0):
    return " ".join(WORDS[(first + i * 5 + i // 7) % len(WORDS)] for i in range(n))


def text_of(reply):
    return reply["choices"][0]["text"]


@unittest.skipUnless(os.path.exists(GEMMA), f"no model at {GEMMA}")
class Sections(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="hearth-sections-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def daemon(self, *flags):
        return Daemon(GEMMA, "--ctx", "5000", *flags, folder=self.folder)

    def complete(self, d, prompt, **more):
        status, r = d.post(
            "/v1/completions", {"prompt": prompt, "temperature": 0, "max_tokens": 8, **more}
        )
        self.assertEqual(status, 200, r)
        return r

    def settled(self, d):
        d.until(lambda: d.status()["disk"]["waiting"] == 0, "all is written")

    def most(self, n):
        """Bytes that n positions may keep in RAM."""
        blocks = -(-n // BLOCK)
        return BLOCK * LAYER * (blocks * FULL + min(blocks, KEPT) * WINDOWED)

    def check_kept(self, n, *flags, share=1.0):
        prompt = words(n)
        with self.daemon(*flags) as d:
            first = self.complete(d, prompt)
            self.settled(d)
            n_all = first["usage"]["prompt_tokens"] + 8
            kept = d.status()["memory"]["kv_bytes"]
            whole = n_all * (FULL + WINDOWED) * LAYER
            self.assertLessEqual(kept, self.most(n_all) * share)
            # Pages go, too: what is in use has them, and what the next turn may want at once.
            spare = 2 * 8 * BLOCK * LAYER * (FULL + WINDOWED) * share + (2 << 21)
            d.until(
                lambda: d.status()["memory"]["kv_resident_bytes"] <= kept + spare,
                "the prefill's memory goes back",
            )
            more = self.complete(d, prompt + " " + words(30, 3))
            self.assertGreaterEqual(cached(more), n)
            middle = words(n // 2) + " something else entirely " + words(40, 9)
            edited = self.complete(d, middle)
            self.assertGreaterEqual(cached(edited), n // 2 - BLOCK)
            self.assertGreater(edited["hearth"]["cache"]["disk"], 0)
            cold = self.complete(d, middle, hearth={"cache": False})
            self.assertEqual(text_of(edited), text_of(cold))
        with self.daemon(*flags) as d:
            again = self.complete(d, prompt + " " + words(30, 3))
            self.assertGreaterEqual(again["hearth"]["cache"]["disk"], n - BLOCK)
            self.assertEqual(text_of(again), text_of(more))
            self.settled(d)
            self.assertLessEqual(d.status()["memory"]["kv_bytes"], self.most(n_all + 60) * share)
            # What the restart left on the disk: the middle's windowed layers.
            fork = words(n // 4) + " and another thing " + words(30, 5)
            forked = self.complete(d, fork)
            self.assertGreaterEqual(cached(forked), n // 4 - BLOCK)
            cold = self.complete(d, fork, hearth={"cache": False})
            self.assertEqual(text_of(forked), text_of(cold))
        return kept / whole

    def test_two_thousand_tokens_keep_what_their_end_sees(self):
        self.assertLess(self.check_kept(2000), 0.40)

    def test_twice_as_many_keep_a_smaller_share(self):
        self.assertLess(self.check_kept(4096), 0.29)

    def test_with_quantised_keys_and_values(self):
        # 136 bytes for 128 dimensions, of 256 in F16.
        self.assertLess(self.check_kept(2000, "--kv-type", "q8_0", share=0.54), 0.22)

    def test_without_a_disk_nothing_goes_while_there_is_room(self):
        prompt = words(1000)
        with self.daemon("--disk", "0") as d:
            n_all = self.complete(d, prompt)["usage"]["prompt_tokens"] + 8
            blocks = -(-n_all // BLOCK)
            self.assertEqual(
                d.status()["memory"]["kv_bytes"], blocks * BLOCK * LAYER * (FULL + WINDOWED)
            )
            r = self.complete(d, words(300) + " something else")
            self.assertGreaterEqual(cached(r), 300 - 2)


SHAPE = (
    "--vocab 512 --embd 64 --ff 96 --layers 6 --heads 2 --kv-heads 1 --head-dim 32 --ctx 4096 "
    "--type Q8_0"
)
SMALL = {"max_tokens": 12, "temperature": 1, "seed": 7}


class Random(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="hearth-sections-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def both(self, d, m):
        """The warm reply; its text is the cold one's."""
        r = d.chat(m, **SMALL)
        self.assertEqual(content(r), d.say(m, **SMALL, hearth={"cache": False}))
        return r

    def make(self, arch, window):
        path = os.path.join(self.folder, arch + ".gguf")
        make = [os.path.join(BUILD, "tests/bench/mkgguf"), path, "--arch", arch, *SHAPE.split()]
        subprocess.run([*make, "--set", f"attention.sliding_window={window}"], check=True)
        return path

    def check(self, arch, window, *flags):
        path = self.make(arch, window)
        m = [system("Notes: " + words(60, 1))]
        with Daemon(path, "--ctx", "4096", *flags, folder=self.folder) as d:
            for i in range(5):
                m.append(user(words(25, 3 * i)))
                r = self.both(d, m)
                self.assertTrue(i == 0 or cached(r) > 100, r["hearth"])
                m.append(assistant(content(r)))
            d.until(lambda: d.status()["disk"]["waiting"] == 0, "all is written")
            # Another conversation with these notes, and one that parts in the middle.
            r = self.both(d, [m[0], user("Something else.")])
            self.assertGreater(cached(r), 60)
            r = self.both(d, [*m[:5], user("Again: " + words(20, 2))])
            self.assertGreater(cached(r), 100)
        with Daemon(path, "--ctx", "4096", "--threads", "1", *flags, folder=self.folder) as d:
            r = self.both(d, [*m, user("And so on.")])
            self.assertGreater(r["hearth"]["cache"]["disk"], 200)
            r = self.both(d, [*m[:3], user("Not so.")])
            self.assertGreater(cached(r), 90)
            c = d.post("/v1/conversations", {})[1]["id"]
            for i in range(3):
                body = {"conversation": c, "input": words(60, i), "max_output_tokens": 8}
                status, r = d.post("/v1/responses", body)
                self.assertEqual(status, 200, r)
            d.until(lambda: d.status()["disk"]["waiting"] == 0, "all is written")
            status, r = d.post("/v1/hearth/verify", {"conversation": c})
            self.assertEqual(status, 200, r)
            self.assertGreater(r["blocks"], 6, r)
            self.assertEqual((r["ram"], r["different"], r["missing"]), (r["blocks"], [], 0))
        with Daemon(path, "--ctx", "4096", *flags, folder=self.folder) as d:
            status, r = d.post("/v1/hearth/verify", {"conversation": c})
            self.assertEqual(status, 200, r)
            self.assertEqual((r["disk"], r["different"], r["missing"]), (r["blocks"], [], 0))

    def test_turns_that_crowd_a_small_memory_say_the_cold_words(self):
        path = self.make("gemma3", 70)
        small = ["--ctx", "2048", "--memory", "68M", "--parallel", "4"]
        for disk in (["--disk", "0"], []):
            with self.subTest(disk=disk), Daemon(path, *small, *disk, folder=self.folder) as d:
                chats = [
                    [system("Notes: " + words(40 + 30 * (i % 3), i)), user(words(60 + 40 * k, i))]
                    for i in range(6)
                    for k in range(2)
                ]
                cold = [d.say(m, **SMALL, hearth={"cache": False}) for m in chats]
                for _ in range(3):
                    warm = together(*[lambda m=m: d.say(m, **SMALL) for m in chats])
                    self.assertEqual(warm, cold)
                memory = d.status()["memory"]
                self.assertLessEqual(memory["kv_bytes"], memory["kv_bytes_max"])
                self.assertLessEqual(memory["kv_resident_bytes"], memory["kv_bytes_max"])

    def test_five_of_six_layers(self):
        self.check("gemma3", 70)

    def test_all_layers(self):
        self.check("phi3", 70)

    def test_where_all_layers_are_windowed_a_long_text_takes_no_more_than_its_end(self):
        path = self.make("phi3", 70)
        with Daemon(path, "--ctx", "4096", folder=self.folder) as d:
            d.say([user(words(100))], **SMALL)
            d.until(lambda: d.status()["disk"]["waiting"] == 0, "all is written")
            short = d.status()["memory"]["kv_bytes"]
            r = self.both(d, [user(words(100)), assistant("So."), user(words(500, 4))])
            self.assertGreater(cached(r), 250)
            self.assertGreater(r["usage"]["prompt_tokens"], 2500)
            d.until(lambda: d.status()["disk"]["waiting"] == 0, "all is written")
            # Two ends, and next to nothing for what is between them.
            self.assertLess(d.status()["memory"]["kv_bytes"], 3 * short)

    def test_every_other_layer_quantised(self):
        self.check("gemma2", 100, "--kv-type", "q8_0")


if __name__ == "__main__":
    main()
