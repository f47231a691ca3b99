"""With the default model, over restarts: what is read from disk is found again by what decides the
bits and by nothing else, and says what the cold model says.
"""

import os
import shutil
import tempfile
import unittest

from harness import MODEL, Daemon, Real, assistant, cached, content, main, system, together, user

BLOCK = 32
WORDS = "the careful engineer writes down every number before one part of it is changed ".split()


def words(n, first=0):
    return " ".join(WORDS[(first + i * 5 + i // 7) % len(WORDS)] for i in range(n))


class SameBits(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="hearth-bits-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def daemon(self, *flags):
        return Real("--ctx", "1024", *flags, folder=self.folder)

    def settled(self, d):
        d.until(lambda: d.status()["disk"]["waiting"] == 0, "all is written")

    def test_threads_context_and_instruction_set_change_nothing(self):  # B71
        for kv_type in ("f16", "q8_0"):
            with self.subTest(kv_type=kv_type):
                self.check_restarts("--kv-type", kv_type)

    def check_restarts(self, *kv):
        m = [system("Notes: " + words(90)), user("Name a colour.")]
        with self.daemon("--threads", "1", *kv) as d:
            self.assertEqual(cached(d.chat(m, max_tokens=1)), 0)  # of the other type
            cold = d.say(m, max_tokens=12, hearth={"cache": False})
            self.assertEqual(d.say(m, max_tokens=12), cold)
            best = d.status()["model"]["isa"]
        n_found = set()
        for flags in (["--threads", "2"], ["--ctx", "768"], ["--isa", "c"], ["--isa", best]):
            if "--ctx" in flags:
                d = Real(*flags, *kv, folder=self.folder)
            else:
                d = self.daemon(*flags, *kv)
            with d, self.subTest(flags=flags):
                r = d.chat(m, max_tokens=12)
                self.assertGreater(r["hearth"]["cache"]["disk"], 90)
                self.assertEqual(content(r), cold)
                n_found.add(cached(r))
        self.assertEqual(len(n_found), 1)

    def test_each_kv_type_has_blocks_of_its_own(self):  # B71
        m = [user("Notes: " + words(60))]
        texts = {}
        for again in (False, True):
            for kv_type in ("f16", "q8_0"):
                with self.daemon("--kv-type", kv_type) as d, self.subTest(kv_type, again=again):
                    r = d.chat(m, max_tokens=12)
                    self.assertEqual(cached(r) > 32, again)
                    self.assertEqual(content(r), texts.setdefault(kv_type, content(r)))
                    self.assertEqual(d.say(m, max_tokens=12, hearth={"cache": False}), content(r))
                    self.assertEqual(d.status()["disk"]["bad"], 0)
                    self.assertEqual(d.status()["model"]["kv_type"], kv_type)
                    self.settled(d)

    def test_weights_that_changed_are_another_model(self):  # B71
        if not os.path.exists(MODEL):
            Real()  # skips, or fails in CI
        path = os.path.join(self.folder, "model.gguf")
        shutil.copyfile(MODEL, path)
        old = os.stat(path)
        os.utime(path, ns=(old.st_atime_ns, old.st_mtime_ns))
        m = [user("Notes: " + words(60))]
        with self.daemon() as d:
            d.chat(m, max_tokens=2)
        for _ in range(2):  # the second remembers the weights' hash, so that it isn't computed
            with Daemon(path, "--ctx", "1024", folder=self.folder) as d:
                self.assertGreater(cached(d.chat(m, max_tokens=2)), 32)
        with open(path, "r+b") as f:
            f.seek(old.st_size - 4099)
            byte = f.read(1)[0]
            f.seek(-1, os.SEEK_CUR)
            f.write(bytes([byte ^ 1]))
        os.utime(path, ns=(old.st_atime_ns, old.st_mtime_ns))  # and its time was put back
        with Daemon(path, "--ctx", "1024", folder=self.folder) as d:
            r = d.chat(m, max_tokens=2)
            self.assertEqual(cached(r), 0)
            self.assertEqual(d.status()["disk"]["bad"], 0)

    def test_a_kill_costs_no_word(self):  # B01, B06
        a = [
            system("You keep secrets. " + words(60)),
            user("Remember the codeword ZEBRA-77. " + words(60, 3)),
        ]
        b = [system("You list things. " + words(60, 5)), user("List any codewords you know.")]
        with self.daemon() as d:
            cold = [d.say(m, max_tokens=12, hearth={"cache": False}) for m in (a, b)]
            self.assertNotIn("ZEBRA", cold[1])
            for _ in range(3):
                self.assertEqual([d.say(m, max_tokens=12) for m in (a, b)], cold)
            both = together(*[lambda m=m: d.say(m, max_tokens=12) for m in (a, b, a, b)])
            self.assertEqual(both, cold * 2)
            self.settled(d)
            d.kill()
        with self.daemon() as d:
            for m, text in ((b, cold[1]), (a, cold[0])):
                r = d.chat(m, max_tokens=12)
                self.assertEqual(content(r), text)
                self.assertGreater(r["hearth"]["cache"]["disk"], 60)
                m += [assistant(text), user("Say it again.")]
                r = d.chat(m, max_tokens=12)
                self.assertEqual(
                    content(r), d.say(m, max_tokens=12, hearth={"cache": False})
                )

    def test_twenty_conversations_in_room_for_five_compute_only_what_is_new(self):
        n_chats, n_turns, per_chat = 20, 3, 5  # 160 tokens each at the end, in blocks
        with self.daemon("--memory", "512M") as d:
            d.say([user(words(60))], max_tokens=1)
            d.until(lambda: d.status()["memory"]["kv_blocks"] > 0, "it is told")
            self.settled(d)
            m = d.status()["memory"]
            block = m["kv_bytes"] // m["kv_blocks"]
            fixed = (512 << 20) - m["kv_bytes_max"]
        memory = str(fixed + (5 * per_chat + 1) * block)
        with Real("--ctx", "512", "--memory", memory, folder=self.folder) as d:
            self.assertLessEqual(d.status()["memory"]["kv_bytes_max"], (5 * per_chat + 1) * block)
            chats = [[user(f"{i}. " + words(30, i))] for i in range(n_chats)]
            seen = [0] * n_chats
            for turn in range(n_turns):
                for i, m in enumerate(chats):
                    r = d.chat(m, max_tokens=3)
                    new = r["usage"]["prompt_tokens"] - seen[i]
                    with self.subTest(turn=turn, chat=i):
                        self.assertLessEqual(r["hearth"]["cache"]["computed"], new + BLOCK)
                    seen[i] = r["usage"]["prompt_tokens"] + r["usage"]["completion_tokens"]
                    m += [assistant(content(r)), user(f"{turn}. " + words(15, i + turn))]
            self.assertGreater(sum(seen), 2 * (5 * per_chat + 1) * BLOCK)
            self.assertGreater(d.status()["memory"]["kv_evicted"], 3 * per_chat)
            for m in chats[::7]:
                cold = d.say(m, max_tokens=3, hearth={"cache": False})
                self.assertEqual(d.say(m, max_tokens=3), cold)


if __name__ == "__main__":
    main()
