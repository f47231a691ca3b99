"""POST /v1/hearth/verify: cached blocks are computed again and compared."""

import os
import shutil
import struct
import subprocess
import tempfile
import threading
import unittest

from harness import BUILD, Scripted, UnixConnection, main, user
from responses import text_of

BLOCK = 32
SCRIPT = {
    "rules": [
        {"when": "endless", "pieces": ["on ", "and "], "then": "forever"},
        {"when": "long", "pieces": ["word "] * 200},
        {"when": "slow", "pieces": ["word "] * 20},
    ],
    "default": {"pieces": ["fine", "."]},
}


def words(n, first=0):
    return " ".join(f"w{first + i}" for i in range(n))


def block_files(folder):
    """Files of whole blocks by their parent's id, and the first block's."""
    found = {}
    for at, _, names in os.walk(os.path.join(folder, "cache", "kv")):
        for n in names:
            if n.endswith(".kv"):
                path = os.path.join(at, n)
                with open(path, "rb") as f:
                    head = f.read(96)
                if struct.unpack_from("<I", head, 80)[0] == BLOCK:
                    found[head[48:80]] = path
                    root = head[16:48]
    return found, root


def chain(folder):
    """The paths of a conversation's whole blocks, when there is one conversation."""
    found, at = block_files(folder)
    paths = []
    while at in found:
        paths.append(found[at])
        at = bytes.fromhex(os.path.basename(found[at])[:-3])
    return paths


class Verify(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="hearth-verify-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def daemon(self, *flags, script=SCRIPT, **more):
        return Scripted(script, *flags, folder=self.folder, **more)

    def talk(self, d, text, conversation=None, **more):
        """One turn; (conversation, the answer's text, the reply)."""
        if conversation is None:
            conversation = d.post("/v1/conversations", {})[1]["id"]
        status, r = d.post(
            "/v1/responses",
            {"input": text, "conversation": conversation, "temperature": 0, **more},
        )
        self.assertEqual(status, 200, r)
        return conversation, text_of(r), r

    def verify(self, d, conversation=None, status=200):
        got, r = d.post(
            "/v1/hearth/verify", {"conversation": conversation} if conversation else {}
        )
        self.assertEqual(got, status, r)
        return r

    def test_a_sound_conversation_is_equal_in_ram(self):
        with self.daemon() as d:
            c, _, _ = self.talk(d, words(120))
            self.talk(d, words(60, 500), c)
            computed = d.status()["tokens"]
            r = self.verify(d, c)
            self.assertEqual(r["object"], "hearth.verify")
            self.assertGreater(r["blocks"], 180 // BLOCK - 1)
            self.assertEqual((r["ram"], r["disk"]), (r["blocks"], 0))
            self.assertEqual((r["conversations"], r["different"]), (1, []))
            self.assertLess(r["missing"], 2 * BLOCK)
            self.assertEqual(d.status()["tokens"], computed)  # it is nobody's turn
            self.assertEqual(self.verify(d, c)["blocks"], r["blocks"])
            text = d.get("/metrics")[1].decode()
            self.assertIn(f"hearth_verify_blocks_total {2 * r['blocks']}\n", text)
            self.assertIn("hearth_verify_failed_blocks_total 0\n", text)

    def test_all_conversations_of_the_owner(self):
        with self.daemon() as d:
            self.assertEqual(self.verify(d)["conversations"], 0)
            for i in range(3):
                self.talk(d, words(80, 1000 * i))
            d.post("/v1/conversations", {})  # an empty one
            r = self.verify(d)
            self.assertEqual((r["conversations"], r["has_more"]), (4, False))
            self.assertGreaterEqual(r["blocks"], 6)
            self.assertEqual(r["different"], [])

    def test_bad_requests(self):
        with self.daemon() as d:
            self.verify(d, "conv_" + "0" * 32, status=404)
            self.assertEqual(d.post("/v1/hearth/verify", {"conversation": 7})[0], 400)
            self.assertEqual(d.post("/v1/hearth/verify", "{")[0], 400)
            self.assertEqual(d.get("/v1/hearth/verify")[0], 405)

    def test_after_a_restart_it_reads_the_disk(self):
        with self.daemon() as d:
            c, _, _ = self.talk(d, words(150))
            before = self.verify(d, c)
        with self.daemon() as d:
            r = self.verify(d, c)
            self.assertEqual((r["ram"], r["disk"]), (0, before["blocks"]))
            self.assertEqual((r["missing"], r["different"]), (before["missing"], []))
            r = self.verify(d, c)
            self.assertEqual((r["ram"], r["disk"]), (before["blocks"], 0))

    def test_without_a_cache_all_is_missing(self):
        with self.daemon("--no-cache") as d:
            c, _, _ = self.talk(d, words(150))
            r = self.verify(d, c)
            self.assertEqual((r["blocks"], r["different"]), (0, []))
            self.assertGreaterEqual(r["missing"], 128)

    def reseal(self, path, at=5):
        tool = os.path.join(BUILD, "tests", "reseal")
        subprocess.run([tool, path, str(at)], check=True)

    def test_a_changed_block_with_right_checksums_is_found(self):
        question = words(60, 700)
        with self.daemon() as d:
            c, _, _ = self.talk(d, words(200))
            n = self.verify(d, c)["blocks"]
        with self.daemon("--no-cache") as d:  # says what the cold answer is
            _, cold, _ = self.talk(d, question, self.copy(d, c))
        paths = chain(self.folder)
        self.assertEqual(len(paths), n)
        self.reseal(paths[2])
        with self.daemon() as d:
            r = self.verify(d, c)
            self.assertEqual(r["blocks"], 3)
            bad = {"conversation": c, "block": 2, "position": 64, "removed_blocks": n - 2}
            self.assertEqual(r["different"], [bad])
            self.assertEqual(d.status()["disk"]["bad"], 0)
            self.assertEqual(d.log().count("is not what the model computes"), 1)
            self.assertIn("hearth_verify_failed_blocks_total 1\n", d.get("/metrics")[1].decode())
            d.until(lambda: sum(os.path.exists(p) for p in paths) == 2, "the files are gone")
            d.until(lambda: len(chain(self.folder)) == 2, "and no tail of theirs is left")
            again = self.verify(d, c)
            self.assertEqual((again["blocks"], again["different"]), (2, []))
            _, text, reply = self.talk(d, question, c)
            self.assertEqual(text, cold)
            self.assertEqual(reply["usage"]["input_tokens_details"]["cached_tokens"], 64)
            sound = self.verify(d, c)
            self.assertGreater(sound["blocks"], n)
            self.assertEqual(sound["different"], [])
            d.check_blocks()
        with self.daemon() as d:  # and what was written instead is sound too
            r = self.verify(d, c)
            self.assertEqual((r["disk"], r["different"]), (sound["blocks"], []))

    def copy(self, d, c):
        """A conversation with the same messages."""
        items = d.get(f"/v1/conversations/{c}/items?order=asc")[1]["data"]
        items = [{k: i[k] for k in ("type", "role", "content")} for i in items]
        return d.post("/v1/conversations", {"items": items})[1]["id"]

    def test_a_running_answer_is_not_changed(self):
        script = dict(SCRIPT, pace_us=2000)
        with self.daemon(script=script) as d:
            c, _, _ = self.talk(d, words(150))
            right = d.say([user("long " + words(40))], hearth={"cache": False})
            with d.chat_stream([user("long " + words(40))]) as s:
                events = iter(s)
                text = [next(events) for _ in range(3)]
                r = self.verify(d, c)
                text += list(events)
            said = "".join(e["choices"][0]["delta"].get("content") or "" for e in text)
            self.assertEqual(said, right)
            self.assertGreaterEqual(r["blocks"], 4)
            self.assertEqual(r["different"], [])
            d.check_blocks()

    def test_a_client_that_leaves_ends_it(self):
        script = dict(SCRIPT, pace_us=5000)
        with self.daemon(script=script) as d:
            c, _, _ = self.talk(d, words(900))
            for _ in range(3):
                k = UnixConnection(d.socket_path)
                k.request("POST", "/v1/hearth/verify", "{}", {"Content-Type": "application/json"})
                k.close()
            self.assertGreater(self.verify(d, c)["blocks"], 27)
            d.until_idle()
            self.assertEqual(self.talk(d, "and now?", c)[1], "fine.")

    def test_a_stop_ends_it(self):
        script = dict(SCRIPT, pace_us=20000)
        with self.daemon(script=script) as d:
            c, _, _ = self.talk(d, words(900))
            got = []
            t = threading.Thread(target=lambda: got.append(d.post("/v1/hearth/verify", {})))
            t.start()
            before = "hearth_verify_blocks_total 0\n"
            d.until(lambda: before not in d.get("/metrics")[1].decode(), "begun")
            d.stop()
            t.join()
            self.assertIn(got[0][0], (200, 503), got)

    def test_turns_get_the_room_that_it_holds(self):
        # 64 MiB of scratch, 1 MiB of weights; blocks of 128 KiB: little more than one window.
        script = dict(SCRIPT, kv_layers=64, ctx=1024, pace_us=1000)
        memory = str((65 << 20) + 40 * (128 << 10))
        with Scripted(script, "--memory", memory, folder=self.folder) as d:
            c, _, _ = self.talk(d, words(180))
            got = []
            t = threading.Thread(target=lambda: got.append(d.post("/v1/hearth/verify", {})))
            t.start()
            for i in range(3):
                d.chat([user(words(150, 2000 + 1000 * i))])
            t.join()
            self.assertEqual((got[0][0], got[0][1]["different"]), (200, []))
            d.check_blocks()


if __name__ == "__main__":
    main()
