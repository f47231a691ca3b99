"""The disk tier behind the API: kills, restarts, bad files, no room. The scripted engine notices
every KV block that isn't what it should be.
"""

import os
import random
import shutil
import signal
import stat
import tempfile
import time
import unittest

from harness import Scripted, assistant, cached, content, main, system, together, user

BLOCK = 32
SCRIPT = {
    "rules": [
        {"when": "long", "pieces": ["word "] * 60},
        {"when": "dice", "pieces": ["x"] * 24, "spread": True},
    ],
    "default": {"pieces": ["fine", "."]},
}


def words(n, seed):
    rng = random.Random(seed)
    return " ".join(rng.choice(("red", "blue", "stone", "river", "seven")) for _ in range(n))


def block_files(folder):
    found = []
    for at, _, names in os.walk(os.path.join(folder, "cache", "kv")):
        found += [os.path.join(at, n) for n in names if n.endswith(".kv")]
    return sorted(found)


class Disk(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="hearth-disk-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def daemon(self, *flags, **more):
        return Scripted(SCRIPT, *flags, folder=self.folder, **more)

    def written(self, d, n):
        """Waits until n files are written."""
        d.until(lambda: d.status()["disk"]["written"] >= n, f"{n} blocks written")

    def settled(self, d):
        d.until(lambda: d.status()["disk"]["waiting"] == 0, "all is written")

    def question(self, n_words=120, seed=1):
        return [system("s " * 20), user(f"question {seed} " + words(n_words, seed))]

    def whole(self, reply):
        """Positions in whole blocks; the last token that was drawn has none."""
        u = reply["usage"]
        return (u["prompt_tokens"] + u["completion_tokens"] - 1) // BLOCK * BLOCK

    def test_a_kill_leaves_all_whole_blocks(self):
        m = self.question()
        with self.daemon() as d:
            a = d.chat(m)
            m += [assistant(content(a)), user("and then?")]
            cold = d.say(m, hearth={"cache": False})
            n = self.whole(a)
            self.written(d, n // BLOCK)
            d.kill()
        with self.daemon() as d:
            b = d.chat(m)
            self.assertEqual(content(b), cold)
            c = b["hearth"]["cache"]
            self.assertGreaterEqual(cached(b), n)
            self.assertEqual((c["ram"], c["disk"]), (0, cached(b)))
            self.assertIsNone(c["miss"])
            self.assertGreater(b["hearth"]["timings"]["restore_ms"], 0)
            again = d.chat(m)["hearth"]["cache"]
            self.assertEqual(again["disk"], 0)
            self.assertIn(
                f'source="disk"}} {cached(b)}', d.get("/metrics")[1].decode()
            )

    def test_a_polite_stop_keeps_the_tail_too(self):
        m = self.question()
        with self.daemon() as d:
            a = d.chat(m)
        m += [assistant(content(a)), user("and then?")]
        with self.daemon() as d:
            b = d.chat(m)
            read = a["usage"]["prompt_tokens"] + a["usage"]["completion_tokens"]
            self.assertGreaterEqual(cached(b), read - 3)

    def test_a_rest_keeps_the_tail(self):
        m = self.question(seed=2)
        with self.daemon() as d:
            a = d.chat(m)
            u = a["usage"]
            n = u["prompt_tokens"] + u["completion_tokens"] - 1
            self.assertGreater(n % BLOCK, 0)
            self.written(d, n // BLOCK + 1)  # after five seconds
            d.kill()
        m += [assistant(content(a)), user("and then?")]
        with self.daemon() as d:
            b = d.chat(m)
            read = a["usage"]["prompt_tokens"] + a["usage"]["completion_tokens"]
            self.assertGreaterEqual(cached(b), read - 3)

    def test_kills_at_random_points_never_change_a_word(self):
        seed = int(time.time())
        print("seed", seed)
        rng = random.Random(seed)
        chats = [self.question(rng.randrange(20, 200), s) for s in range(6)]
        with self.daemon("--disk", "0") as d:
            right = [d.say(m) for m in chats]
        for _ in range(12):
            d = self.daemon()
            pid = d.process.pid
            order = rng.sample(range(6), 6)
            got = {}
            for i in order[: rng.randrange(1, 6)]:
                got[i] = d.say(chats[i])
            time.sleep(rng.random() * 0.01)
            os.kill(pid, signal.SIGKILL)
            d.process.wait()
            for i, text in got.items():
                self.assertEqual(text, right[i])
            d.check_blocks()
        with self.daemon() as d:
            self.assertEqual([d.say(m) for m in chats], right)
            self.assertEqual(d.status()["disk"]["bad"], 0)

    def test_bad_files_are_misses_with_a_line_of_log(self):
        m = self.question(300)
        with self.daemon() as d:
            right = d.say(m)
        files = block_files(self.folder)
        for i, path in enumerate(files):
            n = os.stat(path).st_size
            if i % 3 == 0:
                os.truncate(path, (i * 517) % n)
            elif i % 3 == 1:
                with open(path, "r+b") as f:
                    f.seek(i * 131 % n)
                    f.write(b"\xff\xfe\xfd")
            else:
                os.unlink(path)
                os.mkfifo(path)
        with self.daemon() as d:
            b = d.chat(m)
            self.assertEqual(content(b), right)
            self.assertEqual(cached(b), 0)
            bad = d.status()["disk"]["bad"]
            # Of those behind the first, what the disk has opened before it is told to stop.
            self.assertIn(bad, range(1, len(files) + 1))
            # Not more lines than the log takes at once.
            self.assertEqual(d.log().count("is not used:"), min(bad, 20))
            d.until(lambda: d.status()["disk"]["written"] >= 1, "written anew")

    def test_others_decode_while_one_restores(self):
        m = [self.question(400, s) for s in range(4)]
        with self.daemon() as d:
            right = [d.say(x) for x in m] + [d.say([user("long one")])]
        with self.daemon() as d:
            calls = [lambda x=x: d.say(x) for x in m] + [lambda: d.say([user("long one")])]
            self.assertEqual(together(*calls), right)
            self.assertGreater(d.status()["disk"]["read"], 20)

    def test_clients_may_leave_while_one_restores(self):
        m = self.question(900)
        with self.daemon() as d:
            right = d.say(m)
        with self.daemon() as d:
            for _ in range(5):
                with d.chat_stream(m) as s:
                    del s
            d.until_idle()
            self.assertEqual(d.say(m), right)

    def test_interleaved_conversations_outgrow_ram_and_not_the_disk(self):
        # 64 MiB of scratch, 1 MiB of weights; blocks of 128 KiB.
        script = dict(SCRIPT, kv_layers=64, ctx=1024)
        memory = str((65 << 20) + 44 * (128 << 10))
        d = Scripted(script, "--memory", memory, folder=self.folder)
        with d:
            chats = [[user(f"chat {i} " + words(80, i))] for i in range(12)]
            seen = {}
            for turn in range(3):
                for i, m in enumerate(chats):
                    r = d.chat(m)
                    if turn > 0:
                        new = r["usage"]["prompt_tokens"] - seen[i]
                        self.assertLessEqual(r["hearth"]["cache"]["computed"], new + BLOCK)
                    seen[i] = r["usage"]["prompt_tokens"] + r["usage"]["completion_tokens"]
                    m += [assistant(content(r)), user("go on")]
                    self.settled(d)
            self.assertGreater(d.status()["memory"]["kv_evicted"], 0)

    def test_no_room_for_files_stops_no_answer(self):
        with self.daemon(file_bytes=3000000) as d:
            right = d.say(self.question(100))
            self.assertFalse(d.status()["disk"]["paused"])
        with Scripted(
            dict(SCRIPT, kv_layers=64), folder=self.folder, file_bytes=100000
        ) as d:  # a block has 132 KiB
            self.assertEqual(d.say(self.question(100)), right)
            d.until(lambda: d.status()["disk"]["paused"], "writing rests")
            self.assertEqual(d.say(self.question(100)), right)
            self.assertEqual(d.log().count("can't be written"), 1)

    def test_a_second_daemon_on_the_cache_goes_without_and_says_so(self):
        with self.daemon() as d:
            right = d.say(self.question())
            other = tempfile.mkdtemp(prefix="hearth-disk-")
            self.addCleanup(shutil.rmtree, other, ignore_errors=True)
            os.symlink(os.path.join(self.folder, "cache"), os.path.join(other, "cache"))
            with Scripted(SCRIPT, folder=other) as e:
                self.assertEqual(e.say(self.question()), right)
                self.assertFalse(e.status()["disk"]["on"])
                self.assertEqual(e.log().count("no disk cache in this run"), 1)

    def test_without_the_tier_nothing_is_written(self):
        for flags in (("--disk", "0"), ("--no-cache",)):
            with self.daemon(*flags) as d:
                d.say(self.question())
                self.assertFalse(d.status()["disk"]["on"])
            self.assertFalse(os.path.exists(os.path.join(self.folder, "cache", "kv")))
        with self.daemon() as d:
            d.chat(self.question(), hearth={"cache": False})
        self.assertEqual(block_files(self.folder), [])

    def test_another_models_blocks_are_not_found(self):  # B71
        m = self.question()
        with self.daemon() as d:
            d.chat(m)
        with Scripted(dict(SCRIPT, weights="of another model"), folder=self.folder) as d:
            b = d.chat(m)
            self.assertEqual(cached(b), 0)
            self.assertEqual(d.status()["disk"]["bad"], 0)

    def test_files_are_private(self):  # B73
        old = os.umask(0)
        try:
            with self.daemon() as d:
                d.chat(self.question())
        finally:
            os.umask(old)
        for at, folders, names in os.walk(os.path.join(self.folder, "cache")):
            self.assertEqual(stat.S_IMODE(os.stat(at).st_mode), 0o700, at)
            for n in names:
                mode = stat.S_IMODE(os.stat(os.path.join(at, n)).st_mode)
                self.assertEqual(mode, 0o600, n)


if __name__ == "__main__":
    main()
