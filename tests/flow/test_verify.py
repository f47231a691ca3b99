"""POST /v1/hearth/verify: cached blocks are computed again and compared."""

import http.client
import json
import os
import shutil
import struct
import subprocess
import tempfile
import threading
import unittest

import tcp
from harness import BUILD, WRONG_BLOCK, Daemon, Scripted, UnixConnection, main, user
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


def read(path):
    """Its bytes; none when it has gone."""
    try:
        with open(path, "rb") as f:
            return f.read()
    except FileNotFoundError:
        return b""


def block_files(folder):
    """Files of whole blocks by their parent's id, and the first block's."""
    found = {}
    for at, _, names in os.walk(os.path.join(folder, "cache", "kv")):
        for n in names:
            if n.endswith(".kv"):
                path = os.path.join(at, n)
                head = read(path)[:96]
                if head and struct.unpack_from("<I", head, 80)[0] == BLOCK:
                    found[head[48:80]] = path
                    root = head[16:48]
    return found, root


def tails(folder):
    """The paths of files with fewer positions than a block has."""
    found = []
    for at, _, names in os.walk(os.path.join(folder, "cache", "kv")):
        for path in (os.path.join(at, n) for n in names if n.endswith(".kv")):
            head = read(path)[:96]
            if head and struct.unpack_from("<I", head, 80)[0] < BLOCK:
                found.append(path)
    return found


class Unchecked(Scripted):
    """One that is meant to use wrong blocks."""

    def stop(self):
        Daemon.stop(self)


def chain(folder):
    """The paths of a conversation's whole blocks, when there is one conversation."""
    found, at = block_files(folder)
    paths = []
    while at in found:
        paths.append(found[at])
        at = bytes.fromhex(os.path.basename(found[at])[:-3])
    return paths


def tcp_post(port, path, body, key):
    k = http.client.HTTPConnection("127.0.0.1", port)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    k.request("POST", path, json.dumps(body), headers)
    r = k.getresponse()
    data = json.loads(r.read())
    k.close()
    return r.status, data


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

    def at_rest(self, d):
        d.until(lambda: d.status()["disk"]["waiting"] == 0, "all is written")

    def metric(self, d, name):
        for line in d.get("/metrics")[1].decode().splitlines():
            if line.startswith(name + " "):
                return int(line.split()[1])
        self.fail(f"no {name}")

    def test_a_sound_conversation_is_equal_in_ram_and_on_disk(self):
        with self.daemon() as d:
            c, _, _ = self.talk(d, words(120))
            _, _, reply = self.talk(d, words(60, 500), c)
            self.at_rest(d)
            computed = d.status()["tokens"]
            r = self.verify(d, c)
            n_read = reply["usage"]["total_tokens"]
            self.assertEqual(r["object"], "hearth.verify")
            self.assertIn(r["positions"], (n_read, n_read - 1))  # the last is not read, at times
            self.assertEqual(r["blocks"], -(-r["positions"] // BLOCK))
            # The tail is new; it goes to the disk when it has rested.
            self.assertEqual((r["ram"], r["disk"]), (r["blocks"], r["blocks"] - 1))
            self.assertEqual((r["conversations"], r["different"], r["missing"]), (1, [], 0))
            self.assertEqual(d.status()["tokens"], computed)  # it is nobody's turn
            self.assertEqual(self.verify(d, c)["blocks"], r["blocks"])
            self.assertEqual(self.metric(d, "hearth_verify_blocks_total"), 2 * r["blocks"])
            self.assertEqual(self.metric(d, "hearth_verify_failed_blocks_total"), 0)

    def test_instructions_and_branches_are_covered(self):
        with self.daemon() as d:
            c, _, a = self.talk(d, words(90), instructions="Be " + words(50, 4000))
            _, _, b = self.talk(d, words(20, 300), c, instructions="Do " + words(50, 5000))
            once = sum(r["usage"]["input_tokens"] for r in (a, b))
            r = self.verify(d, c)
            self.assertGreaterEqual(r["positions"], once)
            self.assertEqual((r["different"], r["missing"]), ([], 0))
        with self.daemon() as d:
            again = self.verify(d, c)
            self.assertEqual(
                (again["positions"], again["ram"], again["disk"], again["missing"]),
                (r["positions"], 0, r["blocks"], 0),
            )

    def test_what_is_cached_no_more_is_missing(self):
        with self.daemon() as d:
            c, _, _ = self.talk(d, words(150))
            n = self.verify(d, c)["blocks"]
        paths = chain(self.folder)
        os.unlink(paths[2])
        with self.daemon() as d:
            r = self.verify(d, c)
            self.assertEqual((r["blocks"], r["missing"], r["different"]), (2, n - 2, []))

    def test_nothing_is_said_of_another_owners_conversation(self):
        d, port = tcp.scripted(SCRIPT)
        with d:
            def post(path, body, name):
                return tcp_post(port, path, body, tcp.KEYS[name])
            status, c = post("/v1/conversations", {}, "alice")
            self.assertEqual(status, 200, c)
            body = {"conversation": c["id"]}
            post("/v1/responses", {"input": words(90), **body}, "alice")
            self.assertEqual(post("/v1/hearth/verify", body, "bob")[0], 404)
            self.assertEqual(post("/v1/hearth/verify", {}, "bob")[1]["conversations"], 0)
            status, r = post("/v1/hearth/verify", body, "alice")
            self.assertEqual((status, r["different"]), (200, []))
            self.assertGreaterEqual(r["blocks"], 3)

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
            self.assertEqual((r["positions"], r["missing"]), (before["positions"], 0))
            self.assertEqual(r["different"], [])
            r = self.verify(d, c)  # whole blocks are in RAM now; what is only tail stays there
            self.assertEqual((r["ram"], r["disk"]), (before["blocks"] - 1, before["blocks"]))

    def test_without_a_cache_there_is_nothing(self):
        with self.daemon("--no-cache") as d:
            c, _, _ = self.talk(d, words(150))
            r = self.verify(d, c)
            self.assertEqual((r["blocks"], r["missing"], r["different"]), (0, 0, []))

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
        self.assertEqual(len(paths), n - 1)  # and a tail
        self.reseal(paths[2])
        with self.daemon() as d:
            r = self.verify(d, c)
            self.assertEqual(r["blocks"], 3)
            bad = {"conversation": c, "block": 2, "position": 64, "where": "block"}
            bad["removed_blocks"] = len(paths) - 2
            self.assertEqual(r["different"], [bad])
            self.assertEqual(d.status()["disk"]["bad"], 0)
            self.assertEqual(d.log().count("is not what the model computes"), 1)
            self.assertIn("hearth_verify_failed_blocks_total 1\n", d.get("/metrics")[1].decode())
            d.until(lambda: sum(os.path.exists(p) for p in paths) == 2, "the files are gone")
            d.until(lambda: tails(self.folder) == [], "and no tail of theirs is left")
            again = self.verify(d, c)
            self.assertEqual((again["blocks"], again["different"]), (2, []))
            self.assertEqual(again["missing"], n - 2)
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

    def test_a_changed_tail_is_found_on_disk(self):
        with self.daemon() as d:
            c, _, _ = self.talk(d, words(100))
            n = self.verify(d, c)["blocks"]
        (path,) = tails(self.folder)
        self.reseal(path)
        with self.daemon() as d:
            r = self.verify(d, c)
            bad = {"conversation": c, "block": n - 1, "position": BLOCK * (n - 1)}
            bad.update({"where": "block", "removed_blocks": 1})
            self.assertEqual(r["different"], [bad])
            d.until(lambda: not os.path.exists(path), "the file is gone")
            r = self.verify(d, c)
            self.assertEqual((r["blocks"], r["missing"], r["different"]), (n - 1, 1, []))
            self.assertEqual(self.talk(d, "and now?", c)[1], "fine.")
            d.check_blocks()

    def test_bytes_past_a_tails_positions_must_be_zero(self):
        with self.daemon() as d:
            c, _, _ = self.talk(d, words(100))
        (path,) = tails(self.folder)
        with open(path, "rb") as f:
            self.assertLess(struct.unpack_from("<I", f.read(96), 80)[0], BLOCK - 1)
        self.reseal(path, at=os.path.getsize(path) - 4096 - 1)  # of the last position
        with self.daemon() as d:
            self.assertEqual(len(self.verify(d, c)["different"]), 1)

    def test_a_file_that_differs_from_ram_is_written_again(self):
        with self.daemon() as d:
            c, _, _ = self.talk(d, words(150))
            self.at_rest(d)
            path = chain(self.folder)[1]
            right = read(path)
            self.reseal(path)
            self.assertNotEqual(read(path), right)
            r = self.verify(d, c)
            bad = {"conversation": c, "block": 1, "position": BLOCK, "where": "file"}
            self.assertEqual(r["different"], [{**bad, "removed_blocks": 1}])
            d.until(lambda: os.path.exists(path) and read(path) == right, "it is right again")
            self.at_rest(d)
            again = self.verify(d, c)
            self.assertEqual((again["blocks"], again["different"]), (r["blocks"], []))
            self.assertEqual(again["disk"], r["disk"])

    def test_a_bad_block_takes_its_branches_along(self):
        with self.daemon() as d:
            c, _, first = self.talk(d, words(100))
            self.talk(d, words(60, 700), c)
            status, r = d.post(
                "/v1/responses",
                {"input": words(60, 800), "previous_response_id": first["id"], "temperature": 0},
            )
            self.assertEqual(status, 200, r)
        before = block_files(self.folder)[0]
        self.reseal(chain(self.folder)[1])
        with self.daemon() as d:
            r = self.verify(d, c)
            self.assertEqual([x["block"] for x in r["different"]], [1])
            d.until(lambda: len(block_files(self.folder)[0]) == 1, "one block of all is left")
            self.assertGreater(len(before), 6)
            self.assertEqual(self.talk(d, "and now?", c)[1], "fine.")
            d.check_blocks()

    def test_another_models_blocks_are_let_alone(self):
        with self.daemon() as d:
            c, _, _ = self.talk(d, words(150))
            n = self.verify(d, c)["blocks"]
        files = set(block_files(self.folder)[0].values())
        with self.daemon(script=dict(SCRIPT, weights="another")) as d:
            r = self.verify(d, c)
            self.assertEqual((r["blocks"], r["missing"], r["other_model"]), (0, 0, n))
        with self.daemon() as d:
            r = self.verify(d, c)
            self.assertEqual((r["blocks"], r["missing"], r["other_model"]), (n, 0, 0))
        self.assertEqual(set(block_files(self.folder)[0].values()), files)

    # ---- when idle ----

    def test_a_bad_file_that_was_used_is_found_when_idle(self):
        with self.daemon() as d:
            c, _, _ = self.talk(d, words(150))
        paths = chain(self.folder)
        self.reseal(paths[1])
        with Unchecked(SCRIPT, "--verify-every", "1", folder=self.folder) as d:
            _, text, reply = self.talk(d, "and now?", c, max_output_tokens=8)
            self.assertGreater(reply["usage"]["input_tokens_details"]["cached_tokens"], 100)
            self.assertNotEqual(text, "fine.")  # read from the disk, believed and used
            self.assertIn(WRONG_BLOCK, d.log())
            failed = "hearth_verify_idle_failed_blocks_total"
            d.until(lambda: self.metric(d, failed) == 1, "the idle check finds it")
            self.assertEqual(self.metric(d, "hearth_verify_idle_blocks_total"), 2)
            self.assertEqual(self.metric(d, "hearth_verify_blocks_total"), 0)
            self.assertEqual(d.log().count("came from the disk and is not"), 1)
            d.until(lambda: sum(os.path.exists(p) for p in paths) == 1, "the files are gone")
            n_wrong = d.log().count(WRONG_BLOCK)
            _, text, reply = self.talk(d, "and after?", c)
            self.assertEqual(text, "fine.")
            self.assertEqual(reply["usage"]["input_tokens_details"]["cached_tokens"], BLOCK)
            self.assertEqual(self.verify(d, c)["different"], [])
        with Unchecked(SCRIPT, folder=self.folder) as d:  # its log is the same file
            self.assertEqual(self.verify(d, c)["different"], [])
            self.assertEqual(self.talk(d, "and then?", c)[1], "fine.")
            self.assertEqual(d.log().count(WRONG_BLOCK), n_wrong)

    def test_the_first_block_restored_after_a_start_is_checked(self):
        with self.daemon() as d:
            c, _, _ = self.talk(d, words(150))
        with self.daemon() as d:
            self.talk(d, "and now?", c)
            name = "hearth_verify_idle_blocks_total"
            d.until(lambda: self.metric(d, name) == 1, "one of 64")
            self.talk(d, "and then?", c)
            self.assertEqual(self.metric(d, name), 1)
            self.assertEqual(self.metric(d, "hearth_verify_idle_failed_blocks_total"), 0)

    def test_a_restored_tail_is_checked_too(self):
        with self.daemon() as d:
            c, _, _ = self.talk(d, words(100))
        (path,) = tails(self.folder)
        self.reseal(path)
        with Unchecked(SCRIPT, "--verify-every", "1", folder=self.folder) as d:
            self.talk(d, "and now?", c, max_output_tokens=8)
            failed = "hearth_verify_idle_failed_blocks_total"
            d.until(lambda: self.metric(d, failed) == 1, "in the block that it became")
            self.assertEqual(self.talk(d, "and after?", c)[1], "fine.")

    def test_a_turn_interrupts_an_idle_check(self):
        script = dict(SCRIPT, pace_us=100000)
        with self.daemon() as d:
            c, _, _ = self.talk(d, words(600))
        with self.daemon("--verify-every", "1", "--log-level", "debug", script=script) as d:
            self.talk(d, "and now?", c)
            name = "hearth_verify_idle_blocks_total"
            d.until(lambda: self.metric(d, name) >= 1, "checks have begun")
            self.assertEqual(self.talk(d, "and then?", c)[1], "fine.")
            self.assertIn("gives way to a turn", d.log())
            d.until(lambda: self.metric(d, name) >= 600 // BLOCK, "and all are made in the end")
            self.assertEqual(self.metric(d, "hearth_verify_idle_failed_blocks_total"), 0)
            d.check_blocks()

    def test_zero_means_no_idle_checks(self):
        with self.daemon() as d:
            c, _, _ = self.talk(d, words(100))
        with self.daemon("--verify-every", "0") as d:
            self.talk(d, "and now?", c)
            self.verify(d, c)  # by hand it works all the same
            self.assertEqual(self.metric(d, "hearth_verify_idle_blocks_total"), 0)

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
