"""Receipts tell the truth: what they list is what left the window, once, whoever made the cut;
their counts are those of the prompt; replies that were cancelled or failed have one, too.
"""

import json
import unittest

from harness import Scripted, main
from talk import Talk, filler, is_cut, left, receipt, script

CTX = 512
LISTS = ("dropped", "summarised", "recalled_new", "recalled_kept", "pinned")
RULES = [
    {"when": "go on forever", "pieces": ["tick "], "then": "forever"},
    {"when": "this breaks", "pieces": ["a", "b"], "all_nan_at": 1},
]


def a_script(**more):
    s = script("en", CTX, **more)
    s["rules"] = RULES + s["rules"]
    return s


class Told(Talk):
    """A talk that checks each reply's receipt against the window as the API shows it."""

    def __init__(self, test, d, strategy):
        super().__init__(d, strategy)
        self.test = test
        self.told = []
        self.in_window = set()

    def ids(self, query=""):
        """Messages of the newest turn's prompt, its answer too."""
        return [i["message"] for i in self.window(query)["items"] if i["kind"] == "message"]

    def say(self, text, **more):
        r = super().say(text, **more)
        self.check(r)
        return r

    def check(self, r):
        test, c = self.test, receipt(r)
        now = set(self.ids())
        gone = self.in_window - now
        test.assertEqual(sorted(left(r)), sorted(gone))
        test.assertEqual(is_cut(r), bool(gone) or is_cut(r))
        self.told += left(r)
        self.in_window = now
        test.assertEqual(c["limit"], CTX)
        test.assertEqual(c["used"], r["usage"]["input_tokens"])
        test.assertEqual(c["after"], c["used"])
        test.assertGreaterEqual(c["before"], c["after"])
        test.assertGreaterEqual(c["reserved"], 1)
        test.assertLessEqual(c["used"] + c["reserved"], CTX)
        test.assertTrue(all(e["tokens"] > 0 for name in LISTS for e in c[name]))

    def until_cuts(self, n, lines):
        """Other talk until n cuts were told."""
        cuts = 0
        for line, _ in lines:
            cuts += is_cut(self.say(line))
            if cuts == n:
                return
        raise AssertionError(f"only {cuts} cuts")


class Truth(unittest.TestCase):
    def test_what_left_is_told_exactly_once(self):
        for strategy in ("window", "summarise", "retrieve", "prune", "auto"):
            with Scripted(a_script()) as d, self.subTest(strategy=strategy):
                t = Told(self, d, strategy)
                t.until_cuts(3, filler("en"))
                messages = [m[0] for m in t.messages()]
                gone = [m for m in messages if m not in t.in_window]
                self.assertEqual(sorted(t.told), sorted(gone))
                self.assertEqual(len(set(t.told)), len(t.told))

    def test_which_list_says_what_became_of_it(self):
        with Scripted(a_script()) as d:
            for strategy, name in (("window", "dropped"), ("summarise", "summarised")):
                t = Told(self, d, strategy)
                t.until_cuts(2, filler("en"))
                c = [receipt(r) for r in t.replies if is_cut(r)]
                self.assertTrue(all(r[name] for r in c))
                other = "dropped" if name == "summarised" else "summarised"
                self.assertFalse(any(r[other] for r in c))

    def test_a_cut_made_ahead_is_told_by_the_next_reply(self):
        with Scripted(a_script()) as d:
            t = Told(self, d, "auto")
            for line, _ in filler("en")[:30]:
                t.say(line)
                t.until_quiet()
            cuts = [receipt(r)["cut"] for r in t.replies if is_cut(r)]
            self.assertIn("ahead", cuts)

    def test_a_cut_on_the_way_is_told_by_its_reply(self):
        with Scripted(a_script()) as d:
            t = Told(self, d, "window")
            lines = [line for line, _ in filler("en")]
            for i in range(0, 40, 4):  # each turn is longer than any before
                t.say(" ".join(lines[: i // 2 + 1]), max_output_tokens=8)
            cuts = [receipt(r)["cut"] for r in t.replies if is_cut(r)]
            self.assertIn("live", cuts)

    def test_a_cut_by_hand_is_told_by_the_next_reply_alone(self):
        with Scripted(a_script()) as d:
            t = Told(self, d, "auto")
            for line, _ in filler("en")[:5]:
                t.say(line)
            before = t.in_window
            status, cut = d.post(t.path + "/cut", {"target": 120})
            self.assertEqual((status, cut["cut"]), (200, True), cut)
            listed = [c["id"] for c in cut["dropped"] + cut["summarised"]]
            self.assertEqual(set(t.ids()), before)
            self.assertEqual(set(listed), before - set(t.ids("?next=1")))
            r = t.say("And now?")
            self.assertEqual(sorted(left(r)), sorted(listed))
            self.assertEqual(left(t.say("And then?")), [])

    def test_two_cuts_between_replies_are_told_together(self):
        with Scripted(a_script()) as d:
            t = Told(self, d, "window")
            for line, _ in filler("en")[:6]:
                t.say(line)
            for target in (250, 120):
                status, cut = d.post(t.path + "/cut", {"target": target, "strategy": "window"})
                self.assertEqual((status, cut["cut"]), (200, True), cut)
            self.assertGreater(len(left(t.say("And now?"))), 4)

    def test_a_cut_that_moves_nothing_is_none(self):
        with Scripted(a_script()) as d:
            t = Told(self, d, "auto")
            for line, _ in filler("en")[:6]:
                t.say(line)
            for _ in range(6):
                window, in_force = t.window("?next=1")["items"], t.window("?next=1")["cut"]
                status, cut = d.post(t.path + "/cut", {"target": 1})
                self.assertEqual(status, 200, cut)
                if not cut["cut"]:
                    break
                self.assertNotEqual(t.window("?next=1")["items"], window)
            self.assertFalse(cut["cut"])
            self.assertEqual(cut["before"], cut["after"])
            self.assertEqual((cut["dropped"], cut["summarised"]), ([], []))
            self.assertEqual(t.window("?next=1")["items"], window)
            self.assertEqual(t.window("?next=1")["cut"], in_force)
            t.say("And now?")

    def pages(self, d, path, query):
        """All of it, page by page."""
        found, after = [], ""
        while True:
            status, page = d.get(f"{path}?limit=7{query}{after}")
            self.assertEqual(status, 200, page)
            found += page["data"]
            if not page["has_more"]:
                self.assertEqual(page["total"], len(found))
                return found
            self.assertEqual(len(page["data"]), 7)
            after = f"&after={page['last_id']}"

    def test_all_that_left_is_listed_in_pages(self):
        with Scripted(a_script()) as d:
            t = Told(self, d, "auto")
            path = t.path + "/dropped"
            t.say("Hello there.")
            self.assertEqual(self.pages(d, path, ""), [])
            t.until_cuts(3, filler("en") * 2)
            of = {m[0]: m for m in t.messages()}
            gone = [i for i in of if i not in t.ids()]
            listed = self.pages(d, path, "&order=asc")
            self.assertEqual([m["id"] for m in listed], gone)
            self.assertEqual([m["role"] for m in listed], [of[i][1] for i in gone])
            self.assertTrue(all(m["tokens"] > 0 for m in listed))
            self.assertEqual(self.pages(d, path, ""), listed[::-1])
            status, cut = d.post(t.path + "/cut", {"target": 120})
            self.assertEqual((status, cut["cut"]), (200, True), cut)
            self.assertEqual(self.pages(d, path, "&order=asc"), listed)
            now = [i for i in of if i not in t.ids("?next=1")]
            self.assertEqual([m["id"] for m in self.pages(d, path, "&order=asc&next=1")], now)
            status, r = d.get(f"{path}?after={list(of)[-1]}")
            self.assertEqual((status, r["error"]["param"]), (400, "after"))
            self.assertEqual(d.get(f"{path}?limit=101")[0], 400)
            self.assertEqual(d.get("/v1/hearth/conversations/conv_x/dropped")[0], 404)

    def test_a_cut_is_told_after_a_restart(self):
        with Scripted(a_script()) as d:
            t = Told(self, d, "auto")
            for line, _ in filler("en")[:6]:
                t.say(line)
            d.post(t.path + "/cut", {"target": 120})
            d.signal()
            d.wait_end()
            d.start()
            self.assertTrue(left(t.say("And now?")))

    def test_an_answer_that_a_kill_ended_does_not_have_what_left_told_again(self):
        with Scripted(a_script(pace_us=1000)) as d:
            t = Told(self, d, "window")
            t.until_cuts(2, filler("en"))
            told = len(t.told)
            with d.stream("/v1/responses", t.body("go on forever", stream=True)) as s:
                events = iter(s)
                while next(events)["type"] != "response.output_text.delta":
                    pass
                d.kill()
            d.start()
            r = t.d.post("/v1/responses", t.body("Where were we?"))[1]
            self.assertEqual(left(r), [])
            t.in_window = set(t.ids())
            t.until_cuts(1, filler("en")[30:])
            self.assertGreater(len(t.told), told)
            self.assertEqual(len(set(t.told)), len(t.told))

    def test_branches_are_told_what_left_them(self):
        with Scripted(a_script()) as d:
            t = Told(self, d, "auto")
            first = t.say(filler("en")[0][0])
            for line, _ in filler("en")[1:6]:
                last = t.say(line)
            d.post(t.path + "/cut", {"target": 120})
            one, two = (
                d.post("/v1/responses", {"previous_response_id": last["id"], "input": text})[1]
                for text in ("one way", "another way")
            )
            self.assertTrue(left(one))
            self.assertEqual(left(one), left(two))
            status, old = d.post(
                "/v1/responses", {"previous_response_id": first["id"], "input": "before the cut"}
            )
            self.assertEqual((status, left(old)), (200, []), old)

    def test_the_kept_prefix_is_what_both_prompts_begin_with(self):
        with Scripted(a_script()) as d:
            t = Told(self, d, "auto")
            read, n_cuts = 0, 0
            for line, _ in filler("en")[:40]:
                r = t.say(line)
                t.until_quiet()
                c = receipt(r)
                self.assertEqual(c["prefix_kept"] + c["prefix_lost"], read)
                self.assertGreaterEqual(c["used"], c["prefix_kept"])
                if is_cut(r):
                    n_cuts += 1
                    self.assertGreater(c["prefix_lost"], 0)
                else:
                    self.assertEqual(c["prefix_lost"], 0)
                read = r["usage"]["input_tokens"] + r["usage"]["output_tokens"]
            self.assertGreaterEqual(n_cuts, 3)


class Ends(unittest.TestCase):
    def test_a_failed_reply_has_a_receipt(self):
        with Scripted(a_script()) as d:
            t = Talk(d, "auto")
            t.say("hello")
            status, r = d.post("/v1/responses", t.body("this breaks"))
            self.assertEqual(status, 500, r)
            self.assertGreater(r["hearth"]["receipt"]["used"], 0)
            t.say("and on")

    def test_a_refused_request_stores_no_cut(self):  # B09
        with Scripted(a_script()) as d:
            t = Talk(d, "auto")
            for line, _ in filler("en")[:4]:
                t.say(line)
            t.until_quiet()
            before, n = t.window(), len(t.messages())
            status, r = d.post("/v1/responses", t.body("much too long " * 300))
            self.assertEqual((status, r["error"]["code"]), (400, "context_length_exceeded"), r)
            self.assertEqual((t.window(), len(t.messages())), (before, n))

    def test_a_stream_tells_in_its_first_chunk(self):
        with Scripted(a_script()) as d:
            t = Told(self, d, "auto")
            for line, _ in filler("en")[:6]:
                t.say(line)
            d.post(t.path + "/cut", {"target": 120})
            with d.stream("/v1/responses", t.body("And now?", stream=True)) as s:
                events = list(s)
            first, last = events[0]["response"], events[-1]["response"]
            self.assertTrue(left(first))
            self.assertEqual(first["hearth"]["receipt"], last["hearth"]["receipt"])
            with d.chat_stream([{"role": "user", "content": "hello"}]) as s:
                chunks = list(s)
            self.assertGreater(chunks[0]["hearth"]["receipt"]["used"], 0)

    def test_a_cancelled_reply_told_in_its_first_chunk_and_the_next_goes_on(self):
        with Scripted(a_script(pace_us=1000)) as d:
            t = Told(self, d, "auto")
            for line, _ in filler("en")[:6]:
                t.say(line)
            d.post(t.path + "/cut", {"target": 120})
            s = d.stream("/v1/responses", t.body("go on forever", stream=True))
            first = next(iter(s))["response"]
            self.assertTrue(left(first))
            s.close()
            d.until_idle()
            t.in_window = set(t.ids())
            t.say("Where were we?")


if __name__ == "__main__":
    main()
