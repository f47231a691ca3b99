"""Pins act at once, stay through every cut of every strategy, and go when they are taken off; edits
of a summary likewise act at once and are in the head from the next cut on.
"""

import unittest

from harness import Scripted, main
from talk import Talk, filler, is_cut, left, receipt, script

CTX = 512
NOTE = "The door code of the studio is 7712#."


class Pinned(Talk):
    def pin(self, status=200, **body):
        got, r = self.d.post(self.path + "/pins", body)
        assert got == status, r
        return r

    def unpin(self, id, status=200):
        got, r, _ = self.d.request("DELETE", f"{self.path}/pins/{id}")
        assert got == status, r
        return r

    def kinds(self, word, query=""):
        """Which items of the window have the word."""
        return [i["kind"] for i in self.window(query)["items"] if word in i["text"]]

    def cut(self, target=120, **more):
        status, r = self.d.post(self.path + "/cut", {"target": target, **more})
        assert status == 200, r
        return r

    def fill(self, n, begin=0):
        for line, _ in filler("en")[begin : begin + n]:
            self.say(line)


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.d = Scripted(script("en", CTX))

    @classmethod
    def tearDownClass(cls):
        cls.d.stop()


class Notes(Case):
    def test_a_note_acts_at_once_and_is_in_the_head_after_a_cut(self):
        t = Pinned(self.d, "auto")
        t.fill(3)
        pin = t.pin(text=NOTE)
        r = t.say("hello")
        self.assertEqual(t.kinds("7712#"), ["recalled"])
        self.assertEqual([c["id"] for c in receipt(r)["pinned"]], [pin["id"]])
        t.say("and on")
        self.assertEqual(t.kinds("7712#"), ["recalled"])  # once, where it came
        self.assertEqual(receipt(t.replies[-1])["prefix_lost"], 0)
        self.assertTrue(t.cut()["cut"])
        t.say("and on again")
        self.assertEqual(t.kinds("7712#")[0], "pins")

    def test_a_note_is_not_there_because_its_letters_are(self):
        """"tea" in "steak", or the end of another line."""
        t = Pinned(self.d, "auto")
        t.say("I'm allergic to steak, and I drink peppermint tea.")
        t.fill(5)
        t.cut(200)
        t.say("hello")
        self.assertIn("facts", t.kinds("allergic to steak"))
        t.pin(text="tea")
        t.say("and on")
        self.assertEqual(t.kinds("- tea\n"), ["recalled"])
        t.say("and on again")
        self.assertEqual(t.kinds("- tea\n"), ["recalled"])
        t.cut(200)
        t.say("now")
        self.assertEqual(t.kinds("- tea\n"), ["pins"])

    def test_a_note_stays_in_every_prompt_whatever_the_strategy(self):
        for strategy in ("window", "summarise", "retrieve", "prune", "auto"):
            with self.subTest(strategy=strategy):
                t = Pinned(self.d, strategy)
                t.pin(text=NOTE)
                t.fill(1)
                for line, _ in filler("en")[1:30]:
                    r = t.say(line)
                    self.assertIn("7712#", t.prompt())
                    self.assertEqual(len(receipt(r)["pinned"]), 1)
                self.assertGreaterEqual(sum(is_cut(r) for r in t.replies), 2)

    def test_a_note_that_is_taken_off_leaves_at_the_next_cut(self):
        t = Pinned(self.d, "auto")
        t.pin(text="Old: gate 4.")
        id = t.pin(text=NOTE)["id"]
        t.fill(4)
        t.cut()
        t.say("hello")
        self.assertEqual(t.kinds("7712#")[0], "pins")
        self.assertTrue(t.unpin(id)["deleted"])
        self.assertEqual(len(receipt(t.say("one more"))["pinned"]), 1)
        t.fill(4, 5)
        t.cut(180)
        t.say("and then")
        self.assertEqual(t.kinds("7712#"), [])
        self.assertEqual(t.kinds("gate 4"), ["pins"])
        t.unpin(id, 404)

    def test_pins_have_a_budget_and_may_fill_it(self):
        t = Pinned(self.d, "auto")
        t.fill(2)
        t.pin(text="word " * 60)
        error = t.pin(400, text="other " * 100)["error"]
        self.assertEqual((error["code"], error["param"]), ("pins_too_long", "text"))
        self.assertIn(str(CTX // 4), error["message"])
        status, pins = self.d.get(t.path + "/pins")
        self.assertEqual((len(pins["data"]), pins["limit"]), (1, CTX // 4))
        t.fill(20, 2)  # with as much pinned, cuts still find room
        self.assertTrue(any(is_cut(r) for r in t.replies))

    def test_full_pins_and_a_long_question_fit_under_every_strategy(self):
        lines = [line for line, _ in filler("en")]
        for strategy in ("window", "prune", "summarise", "retrieve", "auto"):
            for n in (6, 8, 10, 12, 14):  # lines of the question: 100 to 240 tokens
                with self.subTest(strategy=strategy, lines=n), Scripted(script("en", CTX)) as d:
                    t = Pinned(d, strategy)
                    t.fill(8)
                    t.until_quiet()
                    pins, status = 0, 200
                    while status == 200:
                        newest = t.messages()[-1 - pins][0]
                        status, _ = d.post(t.path + "/pins", {"message": newest})
                        pins += status == 200
                    self.assertGreater(pins, 3)
                    status, r = d.post(
                        "/v1/responses", t.body(" ".join(lines[:n]), max_output_tokens=16)
                    )
                    self.assertEqual(status, 200, r)
                    self.assertEqual(len(receipt(r)["pinned"]), pins)
                    self.assertLess(receipt(r)["used"], CTX)

    def test_the_same_note_is_one_pin(self):
        t = Pinned(self.d, "auto")
        self.assertEqual(t.pin(text=NOTE)["id"], t.pin(text=NOTE)["id"])
        t.pin(400, text="")
        t.pin(400)
        t.pin(404, message="msg_0")


class Messages(Case):
    def test_a_message_in_the_window_needs_nothing(self):
        t = Pinned(self.d, "auto")
        t.say("Remember the heron on the pier.")
        t.pin(message=t.messages()[0][0])
        t.say("hello")
        self.assertEqual(t.kinds("heron"), ["message"])

    def test_a_message_whose_turn_leaves_is_in_the_head_and_not_told_as_dropped(self):
        for strategy in ("window", "prune", "auto"):
            with self.subTest(strategy=strategy):
                t = Pinned(self.d, strategy)
                t.say("Remember the heron on the pier.")
                id = t.messages()[0][0]
                t.pin(message=id)
                for line, _ in filler("en")[:30]:
                    t.say(line)
                    self.assertIn("heron", t.prompt())
                self.assertGreaterEqual(sum(is_cut(r) for r in t.replies), 2)
                self.assertNotIn(id, [m for r in t.replies for m in left(r)])
                roles = [i["role"] for i in t.window()["items"] if i["kind"] == "message"]
                self.assertEqual(roles, ["user", "assistant"] * (len(roles) // 2))

    def test_a_message_in_the_head_is_not_quoted_as_well(self):
        for is_pinned in (False, True):
            t = Pinned(self.d, "retrieve")
            t.say("Remember the heron on the pier.")
            id = t.messages()[0][0]
            if is_pinned:
                t.pin(message=id)
            t.fill(8)
            t.cut()
            r = t.say("Where did I see the heron, on the pier?")
            self.assertEqual("pins" in t.kinds("heron on"), is_pinned)
            quoted = [x["id"] for x in receipt(r)["recalled_new"]]
            self.assertEqual(id in quoted, not is_pinned)

    def test_a_message_that_had_left_comes_back_at_once(self):
        t = Pinned(self.d, "window")
        t.say("Remember the heron on the pier.")
        t.fill(20)
        self.assertNotIn("heron", t.prompt())
        t.pin(message=t.messages()[0][0])
        t.say("hello")
        self.assertEqual(t.kinds("heron"), ["recalled"])
        t.say("and on")
        t.cut()
        t.say("and on again")
        self.assertEqual(t.kinds("heron"), ["pins"])

    def test_a_deleted_message_takes_its_pin_along(self):
        t = Pinned(self.d, "auto")
        t.say("Remember the heron on the pier.")
        id = t.messages()[0][0]
        t.pin(message=id)
        t.fill(3)
        t.cut()
        t.say("hello")
        self.assertIn("pins", t.kinds("heron"))
        status, r, _ = self.d.request("DELETE", f"/v1/conversations/{t.id}/items/{id}")
        self.assertEqual(status, 200, r)
        self.assertEqual(self.d.get(t.path + "/pins")[1]["data"], [])
        t.say("and on")
        self.assertEqual(t.kinds("heron"), [])


class Edits(Case):
    def cut_talk(self):
        t = Pinned(self.d, "auto")
        t.say("By the way, I'm allergic to peanuts.")
        t.fill(5)
        t.cut(200)
        t.say("hello")
        return t

    def test_an_edited_summary_acts_at_once_and_is_in_the_head_after_the_next_cut(self):
        t = self.cut_talk()
        text = "User: we agreed to meet at the observatory."
        status, r = self.d.post(t.path + "/summary", {"summary": text})
        self.assertEqual((status, r["summary"]), (200, text))
        t.say("and on")
        self.assertEqual(t.kinds("observatory"), ["recalled"])
        t.say("and on again")
        self.assertEqual(t.kinds("observatory"), ["recalled"])
        t.fill(2, 6)
        t.cut(300)
        t.say("now")
        self.assertEqual(t.kinds("observatory"), ["summary"])

    def test_an_edited_fact_acts_at_once_and_outweighs_all(self):
        t = self.cut_talk()
        status, r = self.d.get(t.path + "/summary")
        self.assertIn("allergic to peanuts", r["facts"])
        facts = r["facts"] + "\nThe meeting point is the observatory.\n"
        status, r = self.d.post(t.path + "/summary", {"facts": facts})
        self.assertEqual(status, 200, r)
        t.say("and on")
        self.assertEqual(t.kinds("observatory"), ["recalled"])
        t.fill(20, 6)
        self.assertGreaterEqual(sum(is_cut(r) for r in t.replies), 2)
        self.assertEqual(t.kinds("observatory"), ["facts"])
        self.assertEqual(t.kinds("allergic to peanuts")[0], "facts")

    def test_an_edit_is_not_there_because_its_letters_are(self):
        for name in ("summary", "facts"):
            t = self.cut_talk()
            status, r = self.d.post(t.path + "/summary", {name: "nut"})
            self.assertEqual(status, 200, r)
            t.say("and on")
            self.assertEqual(t.kinds("] nut\n" if name == "facts" else "]\nnut\n"), ["recalled"])
            t.fill(2, 6)
            t.cut(300)
            t.say("now")
            kind = t.kinds("\n- nut\n" if name == "facts" else ":\nnut\n")
            self.assertEqual(kind, [name])

    def test_a_fact_that_a_person_takes_out_is_gone_after_the_next_cut(self):
        t = self.cut_talk()
        self.d.post(t.path + "/summary", {"facts": ""})
        t.fill(4, 6)
        t.cut(200)
        t.say("now")
        self.assertNotIn("facts", t.kinds("allergic to peanuts"))

    def test_a_conversation_that_was_never_cut_has_no_summary(self):
        t = Pinned(self.d, "auto")
        t.say("hello")
        self.assertEqual(self.d.get(t.path + "/summary")[0], 404)
        self.assertEqual(self.d.post(t.path + "/summary", {"summary": "x"})[0], 404)


if __name__ == "__main__":
    main()
