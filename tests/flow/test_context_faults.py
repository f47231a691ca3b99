"""What goes wrong with cuts, and the chat goes on: killed between a summary and its cut, a model
that summarises badly, a damaged index, deletions while a cut is on its way, stops, branches.
"""

import os
import random
import signal
import sqlite3
import tempfile
import unittest

from harness import Scripted, main
from talk import PEANUTS, Talk, filler, is_cut, left, receipt, script

CTX = 512
GOOD = "We spoke of mountains, of autumn, and of the Roman Empire."
ASKED = ("Summarise our conversation", "Sum up what was said", "Below is what was summed up")


def summariser(answer, ctx=CTX, **more):
    """A script whose model answers a request for a summary with `answer`, a rule's fields."""
    s = script("en", ctx, **more)
    s["rules"] = [{"when": words, **answer} for words in ASKED] + s["rules"]
    return s


def words(text):
    return [text[i : i + 4] for i in range(0, len(text), 4)]


def until_cut(t, begin=0):
    """Other talk until a reply tells of a cut; cuts on their way are waited for."""
    for line, _ in filler("en")[begin : begin + 40]:
        r = t.say(line)
        if is_cut(r):
            return r
        t.until_quiet()
    raise AssertionError("no cut")


def cuts(d):
    """[(state, summary)] as stored."""
    path = os.path.join(d.folder, "state/history.db")
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as c:
        return c.execute("SELECT state, summary FROM cut ORDER BY row").fetchall()


class Summaries(unittest.TestCase):
    def check(self, answer, *, is_used, log=None, ctx=CTX, **more):
        with Scripted(summariser(answer, ctx, **more), "--summary", "model") as d:
            t = Talk(d, "summarise")
            t.say(PEANUTS["en"][0])
            r = until_cut(t)
            self.assertTrue(left(r))
            items = {i["kind"]: i["text"] for i in t.window()["items"]}
            self.assertIn(PEANUTS["en"][1], items["facts"])
            self.assertEqual(GOOD in items.get("summary", ""), is_used, items)
            if log:
                self.assertIn(log, d.log())
            t.say("What could I have as a snack?")

    def test_the_model_s_own_summary_is_in_the_head(self):
        self.check({"pieces": words(GOOD)}, is_used=True)

    def test_a_summary_that_fails_gives_way_to_sentences(self):  # B79
        self.check({"pieces": words(GOOD), "all_nan_at": 2}, is_used=False)

    def test_an_empty_summary_gives_way_after_two_tries(self):  # B79
        self.check({"pieces": []}, is_used=False, log="isn't used")

    def test_a_summary_longer_than_its_input_gives_way(self):  # B79
        self.check({"pieces": words(GOOD) * 400}, is_used=False, log="isn't used")

    def test_a_summary_that_never_ends_gives_way(self):  # B79
        self.check({"pieces": ["on "], "then": "forever"}, is_used=False, log="isn't used")

    def test_what_is_longer_than_a_window_is_summed_up_in_pieces(self):  # B79
        with Scripted(summariser({"pieces": words(GOOD)}), "--summary", "model") as d:
            items = [
                {"type": "message", "role": role, "content": text}
                for turn in filler("en")[:60]
                for role, text in zip(("user", "assistant"), turn)
            ]
            t = Talk(d, "summarise", items=items[:20])
            for i in range(20, len(items), 20):
                status, r = d.post(f"/v1/conversations/{t.id}/items", {"items": items[i : i + 20]})
                self.assertEqual(status, 200, r)
            r = t.say("Where were we?")
            self.assertEqual(receipt(r)["cut"], "live")
            self.assertGreater(len(left(r)), 80)
            self.assertEqual(len(left(r)), len(set(left(r))))
            until_cut(t)


LONG = "Of zanzibar. "  # a question whose answer fills the window: a summary is asked for in pieces


class Pieces(unittest.TestCase):
    OLD = "User: we meet at the observatory."

    def summary_of(self, *rules):
        """The summary that a full window's cut has, by these rules for requests about pieces; and
        the log."""
        s = summariser({"pieces": words(GOOD)})
        answer = {"when": LONG, "pieces": ["tell "] * 150}
        s["rules"] = [{**r, "pieces": words(r["pieces"])} for r in rules] + [answer] + s["rules"]
        with Scripted(s, "--summary", "model") as d:
            t = Talk(d, "summarise")
            until_cut(t)
            t.until_quiet()
            n = len(cuts(d))
            self.assertEqual(d.post(t.path + "/summary", {"summary": self.OLD})[0], 200)
            t.say(LONG)
            t.until_quiet()
            self.assertEqual(len(cuts(d)), n + 1, cuts(d))
            return cuts(d)[-1][1], d.log()

    def test_the_first_piece_is_read_with_the_summary_before_it(self):
        rules = [
            {"when": f"So far: {self.OLD}", "pieces": GOOD},
            {"when": f"So far: {GOOD}", "pieces": GOOD},
            {"when": "Below is what was summed up", "pieces": "Nothing was said."},
        ]
        self.assertEqual(self.summary_of(*rules)[0], GOOD)

    def test_no_piece_is_passed_over(self):
        bad = {"when": "User: " + LONG, "pieces": ""}
        summary, log = self.summary_of(bad)
        self.assertIn("isn't used", log)
        self.assertNotIn(GOOD, summary)


class Kills(unittest.TestCase):
    def test_killed_with_a_cut_prepared_the_chat_goes_on(self):
        with Scripted(script("en", CTX, prefill_us_per_token=3000)) as d:
            t = Talk(d, "auto")
            n = 0
            while not (d.status()["turns"]["ahead"] and cuts(d)):  # stored, and its prefix is read
                t.say(filler("en")[n][0])
                n += 1
                self.assertLess(n, 40)
            d.kill()
            self.assertEqual([state for state, _ in cuts(d)], [0])
            d.start()
            self.assertEqual(len(t.messages()), 2 * n)
            r = until_cut(t, n)
            self.assertTrue(left(r))
            self.assertEqual(len(t.messages()), 2 * n + 2 * (len(t.replies) - n))

    def test_killed_while_the_model_sums_up_the_chat_goes_on(self):
        slow = {"pieces": words(GOOD), "then": "forever"}
        with Scripted(summariser(slow, pace_us=50000), "--summary", "model") as d:
            t = Talk(d, "summarise")
            t.say(PEANUTS["en"][0])
            n = 1
            while not d.status()["turns"]["ahead"]:
                t.say(filler("en")[n][0])
                n += 1
                self.assertLess(n, 40)
            d.kill()
            self.assertEqual(cuts(d), [], "a cut is stored once, with its summary")
            d.start()
            self.assertEqual(len(t.messages()), 2 * n)
            r = until_cut(t, n)
            self.assertTrue(left(r))
            self.assertIn(PEANUTS["en"][1], t.prompt())

    def test_a_stop_does_not_wait_for_a_cut(self):
        with Scripted(script("en", CTX, prefill_us_per_token=20000)) as d:
            t = Talk(d, "auto")
            n = 0
            while not d.status()["turns"]["ahead"]:
                t.say(filler("en")[n][0])
                n += 1
            d.signal(signal.SIGTERM)
            self.assertEqual(d.wait_end(5), 0)
            d.start()
            until_cut(t, n)

    def test_a_live_turn_does_not_wait_for_a_cut_and_uses_what_was_read(self):
        with Scripted(script("en", CTX, prefill_us_per_token=1000)) as d:
            t = Talk(d, "auto")
            n = 0
            while not (d.status()["turns"]["ahead"] and cuts(d)):
                t.say(filler("en")[n][0])
                n += 1
            r = t.say("Short one.")
            cached = r["usage"]["input_tokens_details"]["cached_tokens"]
            if is_cut(r):  # it didn't fit the old window any more: as far as the new one was read
                self.assertGreater(cached, 0)
            else:  # the old window serves, warm
                self.assertGreater(cached, CTX // 2)
                self.assertTrue(left(until_cut(t, n)))
            self.assertLess(r["hearth"]["cache"]["computed"], CTX)

    def test_a_deleted_conversation_ends_its_cut(self):
        with Scripted(script("en", CTX, prefill_us_per_token=5000)) as d:
            t = Talk(d, "auto")
            n = 0
            while not (d.status()["turns"]["ahead"] and cuts(d)):
                t.say(filler("en")[n][0])
                n += 1
            status, r, _ = d.request("DELETE", f"/v1/conversations/{t.id}")
            self.assertEqual(status, 200, r)
            t.until_quiet()
            self.assertEqual(cuts(d), [])
            Talk(d, "auto").say("hello")


class Deleted(unittest.TestCase):
    """What was read ahead of a conversation goes with it."""

    def check(self, d, t):
        status, r, _ = d.request("DELETE", f"/v1/conversations/{t.id}")
        self.assertEqual(status, 200, r)

        def is_gone():
            s = d.status()
            return (s["turns"]["ahead"], s["memory"]["kv_blocks"], s["disk"]["blocks"]) == (0, 0, 0)

        d.until(is_gone, "no block is left")

    def until_ahead(self, d, t):
        for line, _ in filler("en")[:40]:
            if d.status()["turns"]["ahead"]:
                return
            t.say(line)
        self.fail("nothing is read ahead")

    def test_while_a_cut_is_read(self):
        with Scripted(script("en", CTX, prefill_us_per_token=5000)) as d:
            t = Talk(d, "auto")
            self.until_ahead(d, t)
            self.check(d, t)

    def test_while_the_model_sums_up(self):
        slow = {"prefill_us_per_token": 2000, "pace_us": 20000}
        with Scripted(summariser({"pieces": words(GOOD)}, **slow), "--summary", "model") as d:
            t = Talk(d, "auto")
            self.until_ahead(d, t)
            self.check(d, t)

    def test_after_the_model_has_summed_up(self):
        with Scripted(summariser({"pieces": words(GOOD)}), "--summary", "model") as d:
            t = Talk(d, "auto")
            until_cut(t)
            t.until_quiet()
            self.assertIn(GOOD, [summary for _, summary in cuts(d)])
            self.check(d, t)


def damage_index(d, how):
    """Rewrites each block of the full-text index by how(bytes, row); the daemon is down."""
    with sqlite3.connect(os.path.join(d.folder, "state/history.db")) as c:
        tables = [r[0] for r in c.execute("SELECT name FROM sqlite_master")]
        data = next(name for name in tables if name.endswith("_fts_data"))
        for row, block in c.execute(f"SELECT id, block FROM {data}").fetchall():
            c.execute(f"UPDATE {data} SET block = ? WHERE id = ?", (how(block, row), row))


AVERAGES, STRUCTURE = 1, 10  # rows of an FTS5 index; all others are pages of terms
DAMAGES = {
    "the pages of terms are noise": lambda b, row: b if row in (AVERAGES, STRUCTURE) else noise(b),
    "the pages of terms are cut off": lambda b, row: b if row in (AVERAGES, STRUCTURE) else b[:7],
    "the structure is noise": lambda b, row: noise(b) if row == STRUCTURE else b,
    "all is empty": lambda b, row: b"",
    "the structure is empty": lambda b, row: b"" if row == STRUCTURE else b,
    "all is 0xFF": lambda b, row: b"\xff" * len(b),
}


def noise(b):
    return random.Random(len(b)).randbytes(len(b))


class Damage(unittest.TestCase):
    def check_damage(self, how):
        with Scripted(script("en", CTX)) as d:
            t = Talk(d, "auto")
            t.say(PEANUTS["en"][0])
            until_cut(t)
            t.until_quiet()
            n = len(t.messages())
            d.signal()
            d.wait_end()
            damage_index(d, how)
            d.start()
            r = t.say("Which of the snacks would be good for my allergic nephew?")
            self.assertIn(PEANUTS["en"][1], t.prompt())  # the facts are no index's
            is_told = receipt(r).get("recall_partial")
            t.say("and on")
            self.assertEqual(len(t.messages()), n + 4)
            d.until(lambda: self.finds(d, t), "the index is whole again")
            return is_told

    def finds(self, d, t):
        status, r = d.post("/v1/hearth/search", {"query": "allergic to peanuts"})
        self.assertEqual(status, 200, r)
        return any(hit["id"] == t.messages()[0][0] for hit in r["data"])

    def test_a_damaged_index_fails_no_turn_and_the_receipt_tells(self):
        for name, how in DAMAGES.items():
            with self.subTest(name):
                self.assertTrue(self.check_damage(how))

    def test_a_summary_that_the_head_had_no_room_for_is_not_called_an_edit(self):
        with Scripted(script("en", CTX)) as d:
            t = Talk(d, "auto")
            until_cut(t)
            d.signal()
            d.wait_end()
            with sqlite3.connect(os.path.join(d.folder, "state/history.db")) as c:
                c.execute("UPDATE cut SET head = '', summary = 'User: Rome it was.'")
            d.start()
            t.say("And?")
            self.assertNotIn("out of date", t.prompt())
            d.post(t.path + "/summary", {"summary": "User: we meet at the observatory."})
            t.say("And now?")
            self.assertIn("out of date", t.prompt())

    def test_deleted_messages_take_along_the_cuts_that_quote_them(self):
        with Scripted(script("en", CTX)) as d:
            t = Talk(d, "auto")
            t.say(PEANUTS["en"][0])
            until_cut(t)
            self.assertIn(PEANUTS["en"][1], t.prompt())
            first = t.messages()[0]
            status, r, _ = d.request("DELETE", f"/v1/conversations/{t.id}/items/{first[0]}")
            self.assertEqual(status, 200, r)
            t.say("What could I have as a snack?")
            self.assertNotIn(PEANUTS["en"][1], t.prompt())
            t.until_quiet()
            until_cut(t, 20)
            self.assertNotIn(PEANUTS["en"][1], t.prompt())


class Edits(unittest.TestCase):
    def test_an_edit_longer_than_a_quarter_of_the_window_is_refused_and_the_chat_goes_on(self):
        with Scripted(script("en", CTX)) as d:
            t = Talk(d, "auto")
            until_cut(t)
            before = d.get(t.path + "/summary")
            for name, text in (
                ("summary", "word " * 1000),
                ("summary", "z" * 300000),
                ("facts", "mine: " + "word " * 700),
                ("facts", "".join(f"line {i} of my own\n" for i in range(100))),
            ):
                status, r = d.post(t.path + "/summary", {name: text})
                self.assertEqual((status, r["error"]["code"]), (400, "summary_too_long"), r)
                self.assertEqual(r["error"]["param"], name)
            self.assertEqual(d.get(t.path + "/summary"), before)
            self.assertEqual(d.post(t.path + "/summary", {"summary": "word " * 20})[0], 200)
            t.say("And now?")

    def test_facts_that_would_be_read_in_part_are_refused(self):
        """In a window that has room for them: a line's end, and the lines beyond the list's."""
        with Scripted(script("en", 65536)) as d:
            t = Talk(d, "auto")
            for said, _ in filler("en")[:6]:
                t.say(said)
            self.assertEqual(d.post(t.path + "/cut", {"target": 150})[0], 200)
            before = d.get(t.path + "/summary")
            for text, what in (
                ("first\n" + "word " * 820, "line 2 of the facts has 4100 bytes"),
                ("".join(f"{i}\n" for i in range(513)), "513 facts, the limit is 512"),
                (("word " * 100 + "\n") * 30, "lines of one's own have 15090 bytes"),
            ):
                status, r = d.post(t.path + "/summary", {"facts": text})
                self.assertEqual((status, r["error"]["code"]), (400, "summary_too_long"), r)
                self.assertIn(what, r["error"]["message"])
            self.assertEqual(d.get(t.path + "/summary"), before)
            lines = "".join(f"{i}\n" for i in range(400))
            status, r = d.post(t.path + "/summary", {"facts": lines})
            self.assertEqual(status, 200, r)
            self.assertEqual(d.get(t.path + "/summary")[1]["facts"].count("\n"), 400)

    def test_a_window_that_got_smaller_goes_on(self):
        with tempfile.TemporaryDirectory() as folder:
            with Scripted(script("en", 2048), folder=folder) as d:
                t = Talk(d, "summarise")
                for i in range(60):
                    t.say(filler("en")[i % 40][0] + f" Indeed INC-{4000 + i}.")
                t.until_quiet()
                self.assertEqual(d.post(t.path + "/summary", {"summary": "word " * 200})[0], 200)
            for ctx in (256, 128):
                with Scripted(script("en", ctx), folder=folder) as t.d:
                    for _ in range(4):
                        r = t.say("Hello there, what is new?")
                        self.assertGreater(receipt(r)["edits_unread"], 150, r)
                        t.until_quiet()

    def test_the_summary_is_told_while_the_model_loads(self):
        with tempfile.TemporaryDirectory() as folder:
            with Scripted(script("en", CTX), folder=folder) as d:
                t = Talk(d, "auto")
                until_cut(t)
                t.until_quiet()
                status, before = d.get(t.path + "/summary")
                self.assertEqual(status, 200, before)
            slow = {**script("en", CTX), "load_ms": 60000}
            with Scripted(slow, folder=folder, wait=False) as d:
                d.until(lambda: os.path.exists(d.socket_path) and is_loading(d), "loading")
                status, r = d.get(t.path + "/summary")
                self.assertEqual(before.pop("tokens").keys(), {"summary", "facts"})
                self.assertEqual((status, r), (200, before))  # nobody is there to count tokens


def is_loading(d):
    try:
        return d.get("/health")[0] == 503
    except OSError:
        return False


class Branches(unittest.TestCase):
    def test_a_cut_of_one_branch_is_not_in_force_on_the_other(self):
        with Scripted(script("en", CTX)) as d:
            t = Talk(d, "auto")
            lines = [line for line, _ in filler("en")]
            base = [t.say(line) for line in lines[:4]][-1]

            def go_on(r, text):
                body = {"previous_response_id": r["id"], "input": text}
                status, r = d.post("/v1/responses", body)
                self.assertEqual(status, 200, r)
                return r

            tips = {}
            for name, begin in (("one", 10), ("two", 30)):
                r, told, n_cuts = base, [], 0
                for i, line in enumerate(lines[begin : begin + 16]):
                    r = go_on(r, f"{line} On branch {name}.")
                    told += left(r)
                    n_cuts += is_cut(r)
                self.assertGreaterEqual(n_cuts, 1)
                self.assertEqual(len(told), len(set(told)))
                tips[name] = r
            for name, r in tips.items():
                other = "two" if name == "one" else "one"
                r = go_on(r, "What now?")
                texts = " ".join(i["text"] for i in t.window()["items"])
                self.assertIn(f"On branch {name}", texts)
                self.assertNotIn(f"On branch {other}", texts)


if __name__ == "__main__":
    main()
