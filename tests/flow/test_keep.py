"""GET /v1/hearth/cache, drop, pin, unpin: what is told and what stays; and deletions whose daemon
is killed before the cache has let go.
"""

import http.client
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import unittest

import history
import tcp
from harness import PATIENCE_S, Scripted, main, system, user

SCRIPT = {
    "pace_us": 1000,
    "rules": [{"when": "forever", "pieces": ["tick "], "then": "forever"}],
    "default": {"pieces": ["fine ", "and ", "good "] * 15},
}
RULES = "Be brief. " * 60
BLOCK = 32


class Owner:
    """One of tcp.KEYS."""

    def __init__(self, port, name):
        self.port, self.key = port, tcp.KEYS[name]

    def request(self, method, path, body=None):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        c.request(method, path, body and json.dumps(body), headers)
        r = c.getresponse()
        data = json.loads(r.read())
        c.close()
        return r.status, data

    def get(self, path):
        return self.request("GET", path)

    def post(self, path, body):
        return self.request("POST", path, body)


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="hearth-keep-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def daemon(self, *flags, script=SCRIPT, **more):
        return Scripted(script, *flags, folder=self.folder, **more)

    def new(self, d, text=RULES):
        items = [system(text)] if text else []
        status, c = d.post("/v1/conversations", {"items": items} if items else {})
        self.assertEqual(status, 200, c)
        return c["id"]

    def respond(self, d, conversation, text, **more):
        body = {"conversation": conversation, "input": text, "temperature": 0, **more}
        status, r = d.post("/v1/responses", body)
        self.assertEqual(status, 200, (r, d.log()))
        return r

    def call(self, d, what, status=200, **body):
        got, r = d.post(f"/v1/hearth/cache/{what}", body)
        self.assertEqual(got, status, r)
        return r

    def list(self, d, query=""):
        status, r = d.get("/v1/hearth/cache" + query)
        self.assertEqual(status, 200, r)
        return r

    def row(self, d, conversation):
        return next(x for x in self.list(d, "?limit=100")["data"] if x["id"] == conversation)

    def delete(self, d, path):
        status, gone, _ = d.request("DELETE", path)
        self.assertEqual(status, 200, gone)
        return gone["hearth"]

    def files(self):
        found = set()
        for at, _, names in os.walk(os.path.join(self.folder, "cache", "kv")):
            found |= {os.path.join(at, n) for n in names if n.endswith(".kv")}
        return found

    def at_rest(self, d):
        d.until(lambda: d.status()["disk"]["waiting"] == 0, "all is written")
        return self.files()

    def journal(self):
        """How many blocks are in it. Another process looks: history.holds opens and closes the
        files in this one, which drops the locks that SQLite has here.
        """
        look = (
            "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]);"
            " print(db.execute('SELECT count(*) FROM block_gone').fetchone()[0]); db.close()"
        )
        path = os.path.join(self.folder, "state", "history.db")
        return int(subprocess.check_output([sys.executable, "-c", look, path]))


class List(Case):
    def test_an_empty_cache(self):
        with self.daemon() as d:
            r = self.list(d)
            self.assertEqual((r["object"], r["data"], r["has_more"]), ("list", [], False))
            h = r["hearth"]
            self.assertEqual(h["ram"], {"blocks": 0, "bytes": 0, "tails": 0, "pinned": 0})
            self.assertEqual(h["disk"], {"blocks": 0, "bytes": 0, "pinned": 0})
            self.assertEqual(h["block_tokens"], BLOCK)
            self.assertGreater(h["pinned_max"], 0)

    def test_conversations_and_the_whole(self):
        with self.daemon() as d:
            a, b = self.new(d), self.new(d)
            n = self.respond(d, a, "hello there")["usage"]["total_tokens"]
            self.respond(d, b, "something else")
            self.at_rest(d)
            r = self.list(d)
            self.assertEqual([x["id"] for x in r["data"]], [b, a])
            one, h = self.row(d, a), r["hearth"]
            self.assertEqual(one["title"], "hello there")
            self.assertEqual(one["ram"]["blocks"], (n - 1 + BLOCK - 1) // BLOCK)
            self.assertEqual(one["ram"]["bytes"], one["ram"]["blocks"] * h["block_bytes"])
            self.assertEqual(one["disk"]["blocks"], (n - 1) // BLOCK)  # the tail rests
            self.assertEqual(h["ram"]["tails"], 2)
            both = sum(x["ram"]["blocks"] for x in r["data"])
            self.assertGreater(both, h["ram"]["blocks"])  # the rules are shared
            self.assertEqual(h["disk"]["blocks"], len(self.files()))
            first = self.list(d, "?limit=1")
            self.assertEqual(([x["id"] for x in first["data"]], first["has_more"]), ([b], True))
            second = self.list(d, f"?limit=1&after={first['last_id']}")
            self.assertEqual(([x["id"] for x in second["data"]], second["has_more"]), ([a], False))
            self.assertEqual(d.get("/v1/hearth/cache?limit=0")[0], 400)
            self.assertEqual(d.get("/v1/hearth/cache?after=conv_none")[0], 404)
            self.assertEqual(d.post("/v1/hearth/cache", {})[0], 405)

    def test_without_a_disk_tier(self):
        with self.daemon("--disk", "0") as d:
            a = self.new(d)
            self.respond(d, a, "hello")
            self.assertIsNone(self.list(d)["hearth"]["disk"])
            self.assertEqual(self.row(d, a)["disk"]["blocks"], 0)

    def test_another_owner_sees_and_touches_nothing(self):
        d, port = tcp.scripted(SCRIPT)
        with d:
            alice, bob = Owner(port, "alice"), Owner(port, "bob")
            c = alice.post("/v1/conversations", {"items": [system(RULES)]})[1]["id"]
            alice.post("/v1/responses", {"conversation": c, "input": "hello"})
            status, r = bob.get("/v1/hearth/cache")
            self.assertEqual((status, r["data"], r["hearth"]["ram"]["blocks"]), (200, [], 0))
            for what in ("drop", "pin", "unpin"):
                status, r = bob.post(f"/v1/hearth/cache/{what}", {"conversation": c})
                self.assertEqual(status, 404, r)
            self.assertEqual(bob.post("/v1/hearth/cache/drop", {"all": True})[1]["blocks"], 0)
            self.assertGreater(alice.get("/v1/hearth/cache")[1]["hearth"]["ram"]["blocks"], 5)


class Drop(Case):
    def test_one_conversation_s_go_and_what_others_use_stays(self):
        with self.daemon() as d:
            a, b = self.new(d), self.new(d)
            self.respond(d, a, "XYZZY " * 40)
            self.respond(d, b, "PLUGH " * 40)
            before = self.at_rest(d)
            whole = self.row(d, a)
            r = self.call(d, "drop", conversation=a)
            self.assertEqual((r["object"], r["conversation"]), ("hearth.cache.drop", a))
            shared = r["kept"]["shared"]
            self.assertGreater(shared, 3)
            self.assertEqual(r["kept"], {"shared": shared, "pinned": 0, "in_use": 0})
            self.assertEqual(r["blocks"], whole["ram"]["blocks"] - shared)
            self.assertEqual(len(self.files()), len(before) - (whole["disk"]["blocks"] - shared))
            self.assertEqual(self.row(d, a)["ram"]["blocks"], shared)
            self.assertTrue(history.holds(d, b"XYZZY"), "what was said stays")
            again = self.call(d, "drop", conversation=a)
            self.assertEqual((again["blocks"], again["kept"]["shared"]), (0, shared))
            found = self.respond(d, a, "go on")["usage"]["input_tokens_details"]["cached_tokens"]
            self.assertEqual(found // BLOCK, shared)
            self.respond(d, b, "go on")

    def n_replies(self, d):
        """Answers of stateless calls whose token ids are kept."""
        path = os.path.join(d.folder, "state/history.db")
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as c:
            return c.execute("SELECT count(*) FROM reply").fetchone()[0]

    def test_all_of_the_owner_s_go(self):
        with self.daemon() as d:
            a = self.new(d)
            self.respond(d, a, "hello")
            d.chat([user("stateless " * 60)])
            self.at_rest(d)
            self.assertEqual(self.n_replies(d), 1)
            r = self.call(d, "drop", all=True)
            self.assertEqual(self.n_replies(d), 0)
            self.assertGreater(r["blocks"], 8)
            self.assertEqual(self.files(), set())
            h = self.list(d)["hearth"]
            self.assertEqual((h["ram"]["blocks"], h["disk"]["blocks"]), (0, 0))
            self.assertEqual(d.status()["memory"]["kv_bytes"], 0)
            self.assertEqual(len(d.get(f"/v1/conversations/{a}/items")[1]["data"]), 3)
        self.assertEqual(self.files(), set())

    def test_what_a_turn_holds_stays(self):
        with self.daemon() as d:
            a = self.new(d)
            body = {"conversation": a, "input": "forever", "stream": True}
            with d.stream("/v1/responses", body) as s:
                events = iter(s)
                while next(events)["type"] != "response.output_text.delta":
                    pass
                r = self.call(d, "drop", all=True)
                self.assertGreater(r["kept"]["in_use"], 3)
            d.until_idle()
            self.respond(d, a, "and now?")
            d.check_blocks()

    def test_bad_requests(self):
        with self.daemon() as d:
            a = self.new(d)
            self.call(d, "drop", 400)
            self.call(d, "drop", 400, all=False)
            self.call(d, "drop", 400, all=True, conversation=a)
            self.call(d, "drop", 400, conversation=7)
            self.call(d, "drop", 404, conversation="conv_" + "0" * 32)
            self.call(d, "pin", 400)
            self.call(d, "unpin", 400)
            self.assertEqual(d.get("/v1/hearth/cache/drop")[0], 405)


class Pin(Case):
    def test_a_pinned_system_prompt_outlives_what_pushes_the_rest_out(self):
        with self.daemon() as d:
            n_max = self.list(d)["hearth"]["pinned_max"]
            a = self.new(d)
            self.respond(d, a, "hello")
            r = self.call(d, "pin", conversation=a)
            self.assertEqual((r["object"], r["conversation"]), ("hearth.cache.pin", a))
            self.assertGreater(r["pinned"], 3)
            self.assertLess(r["pinned"], n_max)
            self.assertEqual(r["ram"], r["pinned"])
            self.at_rest(d)
            dropped = self.call(d, "drop", all=True)
            self.assertEqual(dropped["kept"], {"shared": 0, "pinned": r["pinned"], "in_use": 0})
            self.assertEqual(self.row(d, a)["pinned"], r["pinned"])
            h = self.list(d)["hearth"]
            self.assertEqual((h["ram"]["blocks"], h["ram"]["pinned"]), (r["pinned"],) * 2)
            self.assertEqual((h["disk"]["blocks"], h["disk"]["pinned"]), (r["pinned"],) * 2)
        with self.daemon() as d:  # pins are as durable as what was said
            self.assertEqual(self.list(d)["hearth"]["disk"]["pinned"], r["pinned"])
            self.assertEqual(self.call(d, "drop", all=True)["blocks"], 0)
            found = self.respond(d, a, "more")["usage"]["input_tokens_details"]["cached_tokens"]
            self.assertEqual(found // BLOCK, r["pinned"])
            self.assertEqual(self.call(d, "unpin", conversation=a)["unpinned"], r["pinned"])
            self.assertEqual(self.row(d, a)["pinned"], 0)
            self.call(d, "drop", all=True)
            self.assertEqual(self.files(), set())
        with self.daemon() as d:
            self.assertEqual(self.list(d)["hearth"]["disk"]["pinned"], 0)

    def test_all_of_a_conversation(self):
        with self.daemon() as d:
            a = self.new(d, None)
            n = self.respond(d, a, "hello " * 50)["usage"]["total_tokens"]
            self.call(d, "pin", 400, conversation=a)  # no system prompt
            r = self.call(d, "pin", conversation=a, all=True)
            self.assertIn(r["pinned"] - (n - 1) // BLOCK, (0, 1))
            self.assertEqual(self.call(d, "pin", conversation=a, all=True)["pinned"], r["pinned"])
            short = self.new(d, "Be kind.")
            bad = self.call(d, "pin", 400, conversation=short)
            self.assertIn("tokens fill no block of 32", bad["error"]["message"])
            self.call(d, "pin", 400, conversation=self.new(d, None), all=True)

    def test_before_there_is_any_turn(self):
        with self.daemon() as d:
            a, b = self.new(d), self.new(d)
            r = self.call(d, "pin", conversation=a)
            self.assertEqual((r["ram"], r["disk"]), (0, 0))
            self.respond(d, b, "the same rules")
            self.assertEqual(self.list(d)["hearth"]["ram"]["pinned"], r["pinned"])

    def test_the_ceiling_is_told_and_changes_nothing(self):
        with self.daemon("--disk", "1M") as d:
            a = self.new(d, "Be brief. " * 2000)
            b = self.new(d)
            n_max = self.list(d)["hearth"]["pinned_max"]
            kept = self.call(d, "pin", conversation=b)["pinned"]
            r = self.call(d, "pin", 400, conversation=a)["error"]
            self.assertEqual(r["code"], "pin_limit")
            self.assertIn(f"at most {n_max} may be", r["message"])
            self.assertEqual((self.row(d, a)["pinned"], self.row(d, b)["pinned"]), (0, kept))
        with self.daemon("--disk", "1M") as d:
            self.assertEqual((self.row(d, a)["pinned"], self.row(d, b)["pinned"]), (0, kept))

    def test_two_pin_the_same_and_one_is_deleted(self):
        with self.daemon() as d:
            a, b = self.new(d), self.new(d)
            self.respond(d, a, "hello")
            self.respond(d, b, "hello, too")
            n = self.call(d, "pin", conversation=a)["pinned"]
            self.call(d, "pin", conversation=b)
            self.delete(d, f"/v1/conversations/{a}")
            self.assertEqual(self.list(d)["hearth"]["ram"]["pinned"], n)
            self.delete(d, f"/v1/conversations/{b}")
            h = self.list(d)["hearth"]
            self.assertEqual((h["ram"]["blocks"], h["disk"]["blocks"]), (0, 0))
            self.assertEqual(self.files(), set())


class Items(Case):
    def items(self, d, c):
        return d.get(f"/v1/conversations/{c}/items?order=asc&limit=100")[1]["data"]

    def test_a_deleted_message_takes_its_blocks_and_what_followed(self):
        with self.daemon() as d:
            a = self.new(d)
            self.respond(d, a, "first " * 40)
            self.respond(d, a, "XYZZY " * 40)
            self.respond(d, a, "third " * 40)
            before = self.at_rest(d)
            whole = self.row(d, a)
            item = next(i for i in self.items(d, a) if "XYZZY" in i["content"][0]["text"])
            gone = self.delete(d, f"/v1/conversations/{a}/items/{item['id']}")
            self.assertEqual((gone["n_messages"], gone["removed"]["messages"]), (6, 1))
            self.assertGreater(gone["removed"]["blocks"], 6)
            left = self.row(d, a)
            self.assertEqual(
                left["ram"]["blocks"], whole["ram"]["blocks"] - gone["removed"]["blocks"]
            )
            self.assertGreater(left["ram"]["blocks"], 8)
            files = self.files()
            self.assertTrue(files < before)
            self.assertEqual(len(files), left["disk"]["blocks"])
            self.assertFalse(history.holds(d, b"XYZZY"))
            found = self.respond(d, a, "on")["usage"]["input_tokens_details"]["cached_tokens"]
            self.assertEqual(found // BLOCK, left["ram"]["blocks"])
            self.assertEqual(self.journal(), 0)

    def test_what_another_conversation_uses_stays(self):
        with self.daemon() as d:
            a, b = self.new(d), self.new(d)
            self.respond(d, a, "the same " * 30)
            self.respond(d, b, "the same " * 30)
            n = self.row(d, b)["ram"]["blocks"]
            for item in self.items(d, a):
                self.delete(d, f"/v1/conversations/{a}/items/{item['id']}")
            self.assertEqual(self.row(d, b)["ram"]["blocks"], n)
            self.delete(d, f"/v1/conversations/{b}")
            self.assertEqual(self.list(d)["hearth"]["ram"]["blocks"], 0)
            self.assertEqual(self.at_rest(d), set())

    def test_a_response_s_branch_goes_with_it(self):
        with self.daemon() as d:
            _, first = d.post("/v1/responses", {"input": RULES})
            texts = {}
            for word in ("XYZZY", "PLUGH"):
                body = {"input": f"{word} " * 40, "previous_response_id": first["id"]}
                texts[word] = d.post("/v1/responses", body)[1]["id"]
            before = len(self.at_rest(d))
            gone = self.delete(d, f"/v1/responses/{texts['XYZZY']}")
            self.assertGreater(gone["blocks"], 2)
            self.assertLess(len(self.files()), before)
            self.assertFalse(history.holds(d, b"XYZZY"))
            more = {"input": "more", "previous_response_id": texts["PLUGH"]}
            usage = d.post("/v1/responses", more)[1]["usage"]
            self.assertGreater(
                usage["input_tokens_details"]["cached_tokens"], usage["input_tokens"] - 64
            )


class Killed(Case):
    """kill -9 between the commit of a deletion and the end of the files."""

    def test_a_journal_that_was_left_is_worked_off(self):
        with self.daemon() as d:
            a, b = self.new(d), self.new(d, "Another system prompt. " * 30)
            self.respond(d, a, "XYZZY " * 40)
            self.respond(d, b, "PLUGH " * 40)
            self.at_rest(d)
        with self.daemon() as d:
            left = self.row(d, b)["disk"]["blocks"]
            d.kill()
        # What the kill would have left: the rows are gone, and their blocks are in the journal.
        with sqlite3.connect(os.path.join(self.folder, "state", "history.db")) as db:
            db.execute("PRAGMA foreign_keys = ON")
            db.execute(
                "INSERT INTO block_gone SELECT DISTINCT u.block, 1 FROM block_use u JOIN"
                " conversation c ON c.row = u.conversation WHERE c.id = ?",
                (a,),
            )
            db.execute("DELETE FROM conversation WHERE id = ?", (a,))
        db.close()
        self.assertGreater(len(self.files()), left)
        with self.daemon() as d:
            d.until(lambda: len(self.files()) == left, "the files are gone")
            d.until(lambda: self.journal() == 0, "the journal is empty")
            self.assertEqual(self.row(d, b)["disk"]["blocks"], left)
            self.assertIn("blocks of what was deleted before leave the cache", d.log())
        with self.daemon() as d:
            self.assertEqual(len(self.files()), left)

    def test_without_the_tier_it_waits_for_a_run_that_has_it(self):
        with self.daemon() as d:
            a = self.new(d)
            self.respond(d, a, "XYZZY " * 40)
            self.at_rest(d)
        n = len(self.files())
        with self.daemon("--disk", "0") as d:
            self.delete(d, f"/v1/conversations/{a}")
        self.assertEqual(len(self.files()), n)
        self.assertGreater(self.journal(), 0)
        with self.daemon() as d:
            d.until(lambda: not self.files(), "no file is left")
            d.until(lambda: self.journal() == 0, "the journal is empty")

    def test_random_kills_leave_nothing(self):
        seed = random.randrange(1 << 30)
        print("seed", seed)
        rng = random.Random(seed)
        for i in range(8):
            word = f"XYZZY{i}Q"
            with self.daemon() as d:
                a = self.new(d, f"{word} rules. " * 30)
                self.respond(d, a, f"{word} " * 40)
                self.at_rest(d)
                self.assertTrue(self.files())
                s = d.raw()
                path = f"/v1/conversations/{a}"
                s.sendall(f"DELETE {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                wait = rng.random() * 0.012
                s.settimeout(wait)
                try:
                    s.recv(1)
                except OSError:
                    pass  # killed before the answer
                d.kill()
                s.close()
            with self.daemon() as d:
                if d.get(path)[0] == 200:  # it came too late
                    self.delete(d, path)
                d.until(lambda: not self.files(), f"no file is left of {word} after {wait} s")
                d.until(lambda: self.journal() == 0, "the journal is empty")
                self.assertEqual(self.list(d)["hearth"]["ram"]["blocks"], 0)
                self.assertFalse(history.holds(d, word.encode()))
            self.assertEqual(self.files(), set())


if __name__ == "__main__":
    main()
