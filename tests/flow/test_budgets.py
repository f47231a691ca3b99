"""One budget for all of it: the account of memory and disk, budgets that were lowered, memory that
is short, and a disk without room for the history.

Two tests need to mount (root, in a mount namespace of their own); elsewhere they are skipped.
"""

import os
import random
import shutil
import subprocess
import tempfile
import unittest

from harness import BUILD, Scripted, assistant, cached, content, main, user

BLOCK = 32
MIB = 1 << 20
BUFFERS, WEIGHTS, BLOCK_BYTES = 64 * MIB, 1 * MIB, 128 << 10
SCRIPT = {
    "kv_layers": 64,  # a block has 128 KiB
    "ctx": 2048,
    "rules": [
        {"when": "slow", "pieces": ["word "] * 40},
        {"when": "huge", "pieces": ["y" * 500], "repeat": 1500},
    ],
    "default": {"pieces": ["fine", "."]},
}


def words(n, seed):
    rng = random.Random(seed)
    return " ".join(rng.choice(("red", "blue", "stone", "river", "seven")) for _ in range(n))


def memory_for(blocks):
    return str(WEIGHTS + BUFFERS + blocks * BLOCK_BYTES)


def allocated(folder):
    total = 0
    for at, _, names in os.walk(os.path.join(folder, "cache", "kv")):
        for n in names:
            try:
                total += os.stat(os.path.join(at, n)).st_blocks * 512 if ".kv" in n else 0
            except FileNotFoundError:
                continue  # the daemon writes and removes meanwhile
    return total


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="hearth-budget-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def settled(self, d):
        d.until(lambda: d.status()["disk"]["waiting"] == 0, "all is written")


class Account(Folder):
    def test_the_parts_are_the_limit(self):
        with Scripted(SCRIPT, "--memory", memory_for(50), folder=self.folder) as d:
            m = d.status()["memory"]
            self.assertEqual(m["limit_bytes"], WEIGHTS + BUFFERS + 50 * BLOCK_BYTES)
            self.assertEqual(m["kv_bytes_max"], 50 * BLOCK_BYTES)
            self.assertEqual(
                m["limit_bytes"],
                m["weights_bytes"] + m["vectors_bytes"] + m["buffers_bytes"] + m["kv_bytes_max"],
            )
            self.assertEqual((m["kv_live_bytes"], m["kv_cached_bytes"]), (0, 0))
            self.assertEqual(m["kv_allowed_bytes"], m["kv_bytes_max"])
            self.assertGreater(m["resident_bytes"], 0)

    def test_live_and_cached_are_told_apart(self):
        script = dict(SCRIPT, pace_us=5000)
        with Scripted(script, "--memory", memory_for(50), folder=self.folder) as d:
            d.say([user("something else " + words(60, 1))])
            before = d.status()["memory"]
            self.assertEqual(before["kv_live_bytes"], 0)
            self.assertEqual(before["kv_cached_bytes"], before["kv_bytes"])
            with d.chat_stream([user("slow " + words(60, 2))]) as s:
                next(iter(s))
                d.until(lambda: d.status()["memory"]["kv_live_bytes"] > 0, "a turn is live")
                m = d.status()["memory"]
                self.assertEqual(m["kv_live_bytes"] + m["kv_cached_bytes"], m["kv_bytes"])
            d.until_idle()
            d.until(lambda: d.status()["memory"]["kv_live_bytes"] == 0, "nothing is live")

    def test_without_the_option_the_limit_in_force_is_shown(self):
        d = Scripted(SCRIPT, "--memory", "256M", folder=self.folder, wait=False)
        d.kill()
        d.flags = [f for f in d.flags if f not in ("--memory", "256M")]
        d.start()
        with d:
            d.until(lambda: d.status()["disk"]["on"], "the disk cache is known")
            m, disk = d.status()["memory"], d.status()["disk"]
            self.assertGreater(m["limit_bytes"], 64 * MIB)
            self.assertLessEqual(m["limit_bytes"], 4 << 30)
            self.assertTrue(disk["is_default"])
            self.assertGreater(disk["limit_bytes"], 0)
            self.assertLessEqual(disk["limit_bytes"], 16 << 30)
            self.assertLessEqual(disk["effective_bytes"], disk["limit_bytes"])
            self.assertEqual(disk["reserve_bytes"], 1 << 30)

    def test_the_command_shows_it(self):
        with Scripted(SCRIPT, "--memory", memory_for(50), folder=self.folder) as d:
            d.say([user(words(60, 1))])
            hearth = os.path.join(BUILD, "client", "hearth")
            out = subprocess.run(
                [hearth, "--socket", d.socket_path, "status"], capture_output=True, text=True
            )
            self.assertEqual(out.returncode, 0, out.stderr)
            self.assertIn("weights 1.0 MiB, vectors 0 bytes, buffers 64.0 MiB", out.stdout)
            self.assertIn("live 0 bytes, cached ", out.stdout)
            self.assertIn("kept for the history", out.stdout)


class Lowered(Folder):
    def chats(self, d, n):
        chats = [[user(f"chat {i} " + words(40, i))] for i in range(n)]
        for m in chats:
            m += [assistant(d.say(m)), user("go on")]
        self.settled(d)
        return chats

    def test_less_memory_at_the_next_start_is_kept_and_the_disk_serves(self):
        with Scripted(SCRIPT, "--memory", memory_for(200), folder=self.folder) as d:
            chats = self.chats(d, 12)
            self.assertGreater(d.status()["memory"]["kv_bytes"], 80 * BLOCK_BYTES)
            right = [d.say(m, hearth={"cache": False}) for m in chats]
        with Scripted(SCRIPT, "--memory", memory_for(30), folder=self.folder) as d:
            for m, text in zip(chats, right):
                r = d.chat(m)
                self.assertEqual(content(r), text)
                self.assertGreaterEqual(cached(r), BLOCK)
                memory = d.status()["memory"]
                self.assertLessEqual(memory["kv_bytes"], 30 * BLOCK_BYTES)
                self.assertEqual(memory["kv_bytes_max"], 30 * BLOCK_BYTES)
            self.assertGreater(d.status()["memory"]["kv_evicted"], 0)

    def test_less_disk_at_the_next_start_is_given_back_before_the_first_answer(self):
        with Scripted(SCRIPT, "--memory", memory_for(200), folder=self.folder) as d:
            chats = self.chats(d, 12)
        before = allocated(self.folder)
        limit = before // 3
        with Scripted(
            SCRIPT, "--memory", memory_for(200), "--disk", str(limit), folder=self.folder
        ) as d:
            newest = d.chat(chats[-1])
            self.assertLessEqual(allocated(self.folder), limit)
            self.assertGreater(newest["hearth"]["cache"]["disk"], 0)  # the oldest went
            oldest = d.chat(chats[0])
            self.assertEqual(oldest["hearth"]["cache"]["disk"], 0)
            self.settled(d)
            disk = d.status()["disk"]
            self.assertEqual(disk["limit_bytes"], limit)
            self.assertLessEqual(disk["bytes"], limit)
            self.assertLessEqual(allocated(self.folder), limit)
        self.assertLessEqual(allocated(self.folder), limit)


class Limited(Folder):
    def test_a_limit_of_a_files_size_takes_nothing_from_the_cache(self):
        with Scripted(
            SCRIPT, "--memory", memory_for(50), folder=self.folder, file_bytes=MIB
        ) as d:  # fmt: skip
            d.say([user(words(60, 1))])
            self.settled(d)
            before = allocated(self.folder)
            _, c = d.post("/v1/conversations", {})
            status, reply = d.post(
                f"/v1/conversations/{c['id']}/items",
                {"items": [{"type": "message", "role": "user", "content": "z" * 3 * MIB}]},
            )
            self.assertEqual((status, reply["error"]["code"]), (500, "disk_full"))
            self.assertIn("\nhearth_disk_given_total 0\n", d.get("/metrics")[1].decode())
            self.assertEqual(allocated(self.folder), before)


def can_mount():
    return (
        os.geteuid() == 0
        and subprocess.run(
            ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True
        ).returncode
        == 0
    )


class Mounted(Scripted):
    """A daemon in a mount namespace of its own, after some lines of shell."""

    def __init__(self, script, lines, *flags, folder):
        program = os.path.join(folder, "in-namespace")
        daemon = os.path.join(BUILD, "tests", "hearthd-scripted")
        with open(program, "w") as f:
            f.write(
                "#!/bin/sh\nset -e\n"
                'if [ "$1" != inside ]; then exec unshare --mount "$0" inside "$@"; fi\n'
                f'shift\n{lines}\nexec {daemon} "$@"\n'
            )
        os.chmod(program, 0o700)
        self.program = program
        super().__init__(script, *flags, folder=folder)


@unittest.skipUnless(can_mount(), "needs root, to mount")
class Short(Folder):
    def set_pressure(self, percent):
        # One write of the same length: whoever reads meanwhile sees a whole text.
        text = f"some avg10={percent:05.2f} avg60=0.00 avg300=0.00 total=1\n".encode()
        fd = os.open(self.psi, os.O_WRONLY | os.O_CREAT, 0o600)
        os.pwrite(fd, text, 0)
        os.close(fd)

    def test_memory_pressure_shrinks_the_cache_and_not_the_disk(self):
        self.psi = os.path.join(self.folder, "psi")
        self.set_pressure(0)
        lines = (
            "group=$(sed -n 's/^0:://p' /proc/self/cgroup)\n"
            'for f in "/sys/fs/cgroup$group/memory.pressure" /proc/pressure/memory; do\n'
            f'  if [ -e "$f" ]; then mount --bind {self.psi} "$f"; fi\ndone'
        )
        with Mounted(SCRIPT, lines, "--memory", memory_for(200), folder=self.folder) as d:
            chats = [[user(f"chat {i} " + words(60, i))] for i in range(8)]
            for m in chats:
                m += [assistant(d.say(m)), user("go on")]
            self.settled(d)
            right = [d.say(m, hearth={"cache": False}) for m in chats]
            before = d.status()
            on_disk = allocated(self.folder)
            self.set_pressure(42.5)
            d.until(lambda: d.status()["memory"]["pressure"]["given"] >= 2, "the cache gives")
            m = d.status()["memory"]
            self.assertEqual(m["pressure"]["some_avg10"], 42.5)
            self.assertLess(m["kv_cached_bytes"], before["memory"]["kv_cached_bytes"] * 0.6)
            self.assertLess(m["kv_allowed_bytes"], m["kv_bytes_max"])
            self.assertLess(m["kv_resident_bytes"], before["memory"]["kv_resident_bytes"] * 0.6)
            self.assertGreaterEqual(m["pressure"]["given_bytes"], 20 * BLOCK_BYTES)
            self.assertEqual(d.status()["disk"]["blocks"], before["disk"]["blocks"])
            self.assertEqual(allocated(self.folder), on_disk)
            # What comes now is answered, found on disk, and doesn't fill the memory again.
            ceiling = d.status()["memory"]["kv_allowed_bytes"]
            for x, text in zip(chats, right):
                r = d.chat(x)
                self.assertEqual(content(r), text)
                self.assertGreaterEqual(cached(r), BLOCK)
                self.assertLessEqual(d.status()["memory"]["kv_cached_bytes"], ceiling)
            self.assertEqual(d.log().count("memory is short"), 1)
            metrics = d.get("/metrics")[1].decode()
            self.assertNotIn("\nhearth_memory_pressure_total 0\n", metrics)
            self.set_pressure(1)
            seen = d.status()["memory"]["kv_allowed_bytes"]
            d.until(
                lambda: d.status()["memory"]["kv_allowed_bytes"] > seen, "the ceiling rises again"
            )


@unittest.skipUnless(can_mount(), "needs root, to mount")
class Full(Folder):
    """State and cache on a small file system, which somebody else fills."""

    def setUp(self):
        super().setUp()
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=40m,mode=700", "none", self.folder], check=True
        )
        self.addCleanup(subprocess.run, ["umount", "-l", self.folder])
        self.fillers = 0

    def fill(self):
        self.fillers += 1
        fd = os.open(os.path.join(self.folder, f"fill{self.fillers}"), os.O_WRONLY | os.O_CREAT)
        try:
            for size in (1 << 16, 4096):
                try:
                    while os.write(fd, b"x" * size) == size:
                        pass
                except OSError:
                    pass
        finally:
            os.close(fd)

    def daemon(self):
        return Scripted(
            SCRIPT, "--memory", memory_for(200), "--disk-reserve", "0", "--disk", "1G",
            folder=self.folder,
        )  # fmt: skip

    def grow(self, d):
        for i in range(10):
            d.say([user(f"chat {i} " + words(60, i))])
        self.settled(d)
        self.assertGreater(allocated(self.folder), 4 * MIB)

    def post_items(self, d, conversation, n_bytes):
        return d.post(
            f"/v1/conversations/{conversation}/items",
            {"items": [{"type": "message", "role": "user", "content": "z" * n_bytes}]},
        )

    def test_the_tier_gives_way_to_the_history_once_and_then_the_request_fails(self):
        with self.daemon() as d:
            _, c = d.post("/v1/conversations", {})
            self.grow(d)
            self.fill()
            status, reply = self.post_items(d, c["id"], 3 * MIB)
            self.assertEqual(status, 200, reply)
            self.assertEqual(allocated(self.folder), 0)  # less than it was asked for
            self.assertTrue(d.status()["disk"]["paused"])
            self.assertEqual(d.log().count("to the history"), 1)
            self.assertIn("\nhearth_disk_given_total 1\n", d.get("/metrics")[1].decode())
            self.assertEqual(d.get(f"/v1/conversations/{c['id']}/items")[0], 200)
            # Nothing is left to be given, but what SQLite's own files have room for.
            self.fill()
            for _ in range(10):
                status, reply = self.post_items(d, c["id"], 3 * MIB)
                if status != 200:
                    break
            self.assertEqual((status, reply["error"]["code"]), (500, "disk_full"))
            self.assertIn("\nhearth_disk_given_total 2\n", d.get("/metrics")[1].decode())
            self.assertEqual(d.say([user("still there?")]), "fine.")
            for i in range(self.fillers):
                os.unlink(os.path.join(self.folder, f"fill{i + 1}"))

    def test_a_question_that_finds_the_disk_full_is_stored_and_answered(self):
        with self.daemon() as d:
            self.grow(d)
            self.fill()
            n = 0
            while "to the history" not in d.log():  # the write-ahead log may have room for some
                question = f"question {n} " + words(200, n)
                status, r = d.post("/v1/responses", {"input": question, "temperature": 0})
                self.assertEqual((status, r.get("status")), (200, "completed"), r)
                n += 1
                self.assertLess(n, 1000)
            self.assertEqual(d.log().count("to the history"), 1)
            status, items = d.get(f"/v1/responses/{r['id']}/input_items")
            self.assertEqual(items["data"][0]["content"][0]["text"], question)
            self.assertEqual(d.get(f"/v1/responses/{r['id']}")[0], 200)
            self.assertEqual(d.status()["history"]["messages"], 2 * n)  # each stored once
            os.unlink(os.path.join(self.folder, "fill1"))

    def test_an_answer_that_finds_the_disk_full_is_stored_once_there_is_room(self):
        script = dict(SCRIPT, pace_us=1000)
        with Scripted(
            script, "--memory", memory_for(200), "--disk-reserve", "0", "--disk", "1G",
            folder=self.folder,
        ) as d:  # fmt: skip
            self.grow(d)
            with d.stream(
                "/v1/responses", {"input": "huge", "stream": True, "temperature": 0}
            ) as s:
                events = iter(s)
                while next(events)["type"] != "response.output_text.delta":
                    pass
                self.fill()
                last = None
                for last in events:
                    pass
            self.assertEqual(last["type"], "response.completed")
            self.assertNotIn("the answer msg_", d.log())
            status, again = d.get(f"/v1/responses/{last['response']['id']}")
            self.assertEqual(status, 200)
            self.assertEqual(len(again["output"][0]["content"][0]["text"]), 500 * 1500)
            self.assertGreaterEqual(d.log().count("to the history"), 1)
            os.unlink(os.path.join(self.folder, "fill1"))


if __name__ == "__main__":
    main()
