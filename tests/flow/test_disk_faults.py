"""Whatever happens to the files of the disk tier: the answer is the cold one, what was bad is a
miss with one line of log, and all is found again once it was computed anew. B69, B70.
"""

import os
import random
import shutil
import struct
import subprocess
import tempfile
import time
import unittest

from harness import BUILD, Scripted, cached, content, main, system, user

BLOCK = 32
HEAD_BYTES, BLOCK_BYTES = 4096, 8 * 2048
SCRIPT = {
    "kv_layers": 8,  # a file has 20 KiB
    "rules": [{"when": "dice", "pieces": ["x"] * 24, "spread": True}],
    "default": {"pieces": ["fine", "."]},
}


def words(n, seed):
    rng = random.Random(seed)
    return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz ") for _ in range(n))


def block_files(folder):
    found = []
    for at, _, names in os.walk(os.path.join(folder, "cache", "kv")):
        found += [os.path.join(at, n) for n in names if n.endswith(".kv")]
    return found


def chain(folder):
    """Paths of the only conversation's whole blocks, in order."""
    by_parent = {}
    for path in block_files(folder):
        with open(path, "rb") as f:
            head = f.read(96)
        if struct.unpack_from("<I", head, 80)[0] == BLOCK:
            by_parent[head[48:80]] = path
            at = head[16:48]
    paths = []
    while at in by_parent:
        paths.append(by_parent[at])
        at = bytes.fromhex(os.path.basename(paths[-1])[:-3])
    return paths


def this_run(d):
    """The log since the last start."""
    return d.log().split("info: listening on")[-1]


def write_at(path, at, data):
    with open(path, "r+b") as f:
        f.seek(at)
        f.write(data)


def flip(path, at):
    with open(path, "rb") as f:
        f.seek(at)
        byte = f.read(1)[0]
    write_at(path, at, bytes([byte ^ 0x10]))


def replaced(make):
    def damage(path, paths):
        os.unlink(path)
        make(path, paths)

    return damage


def other(path, paths):
    return paths[-1] if path != paths[-1] else paths[0]


def swapped(path, paths):
    os.rename(path, path + ".x")
    os.rename(other(path, paths), path)
    os.rename(path + ".x", other(path, paths))


def folder_in_its_place(path, _):
    os.unlink(path)
    os.mkdir(path)
    open(os.path.join(path, "somebody's"), "w").close()


def file_for_its_folder(path, _):
    folder = os.path.dirname(path)
    shutil.rmtree(folder)
    open(folder, "w").close()


# What is done to the file of one block. is_gone: nothing is left to complain about.
FAULTS = {
    "truncated": lambda p, _: os.truncate(p, os.path.getsize(p) - 1),
    "empty": lambda p, _: os.truncate(p, 0),
    "too long": lambda p, _: os.truncate(p, os.path.getsize(p) + 1),
    "a bit of the head": lambda p, _: flip(p, 130),
    "a bit of the block": lambda p, _: flip(p, HEAD_BYTES + 5000),
    "the last bit": lambda p, _: flip(p, os.path.getsize(p) - 1),
    "zeros": lambda p, _: write_at(p, 0, bytes(os.path.getsize(p))),
    "a block of zeros": lambda p, _: write_at(p, HEAD_BYTES, bytes(BLOCK_BYTES)),
    "swapped": swapped,
    "a copy of another": lambda p, paths: shutil.copyfile(other(p, paths), p),
    "a FIFO": replaced(lambda p, _: os.mkfifo(p)),
    "a link to another": replaced(lambda p, paths: os.symlink(other(p, paths), p)),
    "a link to a device": replaced(lambda p, _: os.symlink("/dev/zero", p)),
    "a folder": folder_in_its_place,
    "gone": lambda p, _: os.unlink(p),
    "a file for its folder": file_for_its_folder,
}
for kib in range(0, 20, 4):
    FAULTS[f"truncated at {kib} KiB"] = lambda p, _, n=kib << 10: os.truncate(p, n)
if os.geteuid() == 0:
    FAULTS["another user's"] = lambda p, _: os.chown(p, 12345, 12345)


class Faults(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="hearth-faults-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.rng = random.Random(seed := random.randrange(1 << 32))
        print("seed", seed)

    def daemon(self, *flags, **more):
        return Scripted(SCRIPT, *flags, folder=self.folder, **more)

    def settled(self, d):
        d.until(lambda: d.status()["disk"]["waiting"] == 0, "all is written")

    def ask(self, d, m, right):
        r = d.chat(m)
        self.assertEqual(content(r), right)
        return cached(r)

    def try_fault(self, name, is_running):
        """One block of six is damaged, before the start or after the names were read."""
        m, other = [user("dice " + words(180, 1))], [system("other " + words(50, 2)), user("x")]
        with self.daemon() as d:
            right, right_other = d.say(m), d.say(other, hearth={"cache": False})
            self.settled(d)
            d.kill()
        paths = chain(self.folder)
        self.assertGreaterEqual(len(paths), 6)
        k = self.rng.randrange(len(paths))
        if not is_running:
            FAULTS[name](paths[k], paths)
        with self.daemon() as d:
            d.until(lambda: "blocks known" in this_run(d), "the names are read")
            if is_running:
                FAULTS[name](paths[k], paths)
            found = self.ask(d, m, right)
            bad = d.status()["disk"]["bad"]
            with self.subTest(fault=name, block=k, running=is_running):
                first = 0 if name == "swapped" else k
                self.assertIn(found, (first * BLOCK, k * BLOCK))
                self.assertEqual(this_run(d).count("is not used:"), bad)
                if not name.startswith(("gone", "a file for")):
                    self.assertIn(bad, (1, 2) if name == "swapped" else (1,))
            self.ask(d, other, right_other)  # nothing of it is in the way of others
            self.assertEqual(self.ask(d, m, right) // BLOCK, len(paths))
            self.settled(d)
            d.check_blocks()
            d.kill()
        with self.daemon() as d:
            found = self.ask(d, m, right)
            with self.subTest(fault=name, block=k, running=is_running):
                if name not in ("a folder", "swapped"):  # not in the way; found out only now
                    self.assertEqual(found // BLOCK, len(paths))
            d.check_blocks()
            d.kill()

    def test_every_kind_of_bad_file_is_a_miss_with_one_line(self):
        for name in FAULTS:  # tests/cache/test_disk_faults.c does both, with each block
            self.try_fault(name, self.rng.random() < 0.5)
            shutil.rmtree(os.path.join(self.folder, "cache"))

    def test_what_is_missing_beside_the_files_is_made_anew(self):
        m = [user("dice " + words(180, 1))]
        with self.daemon() as d:
            right = d.say(m)
        kv = os.path.join(self.folder, "cache", "kv")
        for name in ("order", "CACHEDIR.TAG", "lock"):
            os.unlink(os.path.join(kv, name))
        orphan = block_files(self.folder)[0][:-3] + ".tmp"
        open(orphan, "w").close()
        with self.daemon() as d:
            self.assertGreaterEqual(self.ask(d, m, right), 180)
            self.assertFalse(os.path.exists(orphan))
        self.assertLessEqual({"order", "CACHEDIR.TAG", "lock"}, set(os.listdir(kv)))
        shutil.rmtree(kv)
        with self.daemon() as d:
            self.assertEqual(self.ask(d, m, right), 0)
            self.settled(d)
            shutil.rmtree(kv)  # while it runs: there is nowhere to write until the next start
            self.assertGreater(self.ask(d, m, right), 180)
            d.say([user("dice another " + words(100, 2))])
            d.until(lambda: d.status()["disk"]["paused"], "writing rests")
            self.assertEqual(this_run(d).count("can't be written"), 1)
        with self.daemon() as d:
            self.assertEqual(self.ask(d, m, right), 0)
            self.settled(d)
            self.assertGreater(len(block_files(self.folder)), 5)

    def test_kills_while_it_writes_change_no_word(self):
        chats = [[user(f"dice {i} " + words(400, i))] for i in range(8)]
        with self.daemon("--disk", "0") as d:
            right = [d.say(m) for m in chats]
        n_found = 0
        for _ in range(30):
            d = self.daemon()
            for i in self.rng.sample(range(8), 2):
                r = d.chat(chats[i])
                self.assertEqual(content(r), right[i])
                n_found += cached(r)
            time.sleep(self.rng.random() * 0.003)
            d.kill()
            d.check_blocks()
            if self.rng.random() < 0.3:
                shutil.rmtree(os.path.join(self.folder, "cache", "kv"))
        self.assertGreater(n_found, 0)
        with self.daemon() as d:
            self.assertEqual([d.say(m) for m in chats], right)
            self.assertEqual(d.status()["disk"]["bad"], 0)

    def test_the_cache_library_knows_no_call_that_syncs(self):
        """A history's commit beside such a call waits for all that the tier has written."""
        path = os.path.join(BUILD, "cache", "libcache.a")
        names = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout
        self.assertIn("disk_file_write", names)
        # file_write: base/file.h's, which syncs.
        for call in ("fsync", "fdatasync", "sync_file_range", "syncfs", "msync", "file_write"):
            self.assertNotIn(f" U {call}\n", names)


class SmallDisk(unittest.TestCase):
    """A file system of its own for the cache, which only root can mount."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="hearth-small-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.cache = os.path.join(self.folder, "cache")
        os.mkdir(self.cache, 0o700)

    def mount(self, options):
        command = ["mount", "-t", "tmpfs", "-o", options, "none", self.cache]
        if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
            self.skipTest("only root may mount, and not in every container")
        self.addCleanup(subprocess.run, ["umount", "-l", self.cache], check=True)
        os.chmod(self.cache, 0o700)

    def daemon(self, disk="1G"):
        flags = ("--disk-reserve", "0", "--disk", disk)
        return Scripted(SCRIPT, *flags, folder=self.folder)

    def fill(self, d):
        chats = [[user(f"dice {i} " + words(500, i))] for i in range(8)]
        return chats, [d.say(m) for m in chats]

    def check_full(self, filler_bytes):
        filler = os.path.join(self.cache, "filler")
        with open(filler, "wb") as f:
            f.write(bytes(filler_bytes))
        with self.daemon() as d:
            chats, right = self.fill(d)
            d.until(lambda: d.status()["disk"]["paused"], "writing rests")
            self.assertEqual([d.say(m) for m in chats], right)
            d.say([user("one more " + words(400, 9))])
            self.assertEqual(this_run(d).count("can't be written"), 1)
            self.assertEqual(d.status()["disk"]["blocks"], len(block_files(self.folder)))
        for at, _, names in os.walk(self.cache):
            self.assertFalse([x for x in names if x.endswith(".tmp")], at)
        os.unlink(filler)
        with self.daemon() as d:
            self.assertEqual([d.say(m) for m in chats], right)
            self.assertEqual(d.status()["disk"]["bad"], 0)

    def test_no_space_is_a_rest_and_one_line(self):
        self.mount("size=1m")
        self.check_full((1 << 20) - 20000)

    def test_no_inodes_are_a_rest_and_one_line(self):
        self.mount("size=64m,nr_inodes=40")
        self.check_full(1)

    def test_what_others_leave_is_used_up_and_no_more(self):
        self.mount("size=1m")
        with self.daemon() as d:
            chats, right = self.fill(d)
            d.until(lambda: d.status()["disk"]["waiting"] == 0, "all is written")
            self.assertEqual([d.say(m) for m in chats], right)
            self.assertFalse(d.status()["disk"]["paused"])
            with open(os.path.join(self.cache, "others"), "wb") as f:
                f.write(bytes(os.statvfs(self.cache).f_bavail * 4096))
            d.say([user("one more " + words(400, 9))])
            d.until(lambda: d.status()["disk"]["waiting"] == 0, "all is written")
            self.assertEqual([d.say(m) for m in chats], right)
            self.assertFalse(d.status()["disk"]["paused"])
            self.assertGreater(len(block_files(self.folder)), 20)

    def test_a_budget_that_fits_never_meets_the_end_of_the_disk(self):
        self.mount("size=1500k")
        with self.daemon("1M") as d:
            chats, right = self.fill(d)
            d.until(lambda: d.status()["disk"]["waiting"] == 0, "all is written")
            self.assertEqual([d.say(m) for m in chats], right)
            disk = d.status()["disk"]
            self.assertFalse(disk["paused"])
            self.assertLessEqual(disk["bytes"], 1 << 20)
            self.assertEqual(this_run(d).count("can't be written"), 0)

    def test_a_read_only_file_system_is_no_tier_and_one_line(self):
        self.mount("size=16m")
        with self.daemon() as d:
            chats, right = self.fill(d)
        subprocess.run(["mount", "-o", "remount,ro", self.cache], check=True)
        with self.daemon() as d:
            self.assertEqual([d.say(m) for m in chats], right)
            self.assertEqual(this_run(d).count("no disk cache in this run"), 1)
            self.assertFalse(d.status()["disk"]["on"])
        subprocess.run(["mount", "-o", "remount,rw", self.cache], check=True)
        with self.daemon() as d:
            r = d.chat(chats[0])
            self.assertEqual(content(r), right[0])
            self.assertGreater(r["hearth"]["cache"]["disk"], 500)


if __name__ == "__main__":
    main()
