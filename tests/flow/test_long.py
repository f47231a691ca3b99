"""Conversations longer than any window: brought in whole, they get a turn, cheaply, and the receipt
says what became of all of it.
"""

import unittest

from harness import Scripted, main
from talk import Talk, left, receipt, script

CTX = 512
ITEMS_A_REQUEST = 20
END = 100  # of each list so many are named at either end


def bring_in(d, n, strategy=None, first=()):
    t = Talk(d, strategy)
    said = [*first, *(f"Line {i} is about number {i * 7}." for i in range(n - len(first)))]
    items = [
        {"type": "message", "role": "assistant" if i % 2 else "user", "content": text}
        for i, text in enumerate(said)
    ]
    for i in range(0, n, ITEMS_A_REQUEST):
        body = {"items": items[i : i + ITEMS_A_REQUEST]}
        status, r = d.post(f"/v1/conversations/{t.id}/items", body)
        assert status == 200, r
    return t


class Long(unittest.TestCase):
    N = 1400

    @classmethod
    def setUpClass(cls):
        cls.d = Scripted(script("en", CTX))

    @classmethod
    def tearDownClass(cls):
        cls.d.stop()

    def test_its_first_turn_cuts_and_tells_of_every_message(self):
        for strategy, key in (("auto", "summarised"), ("window", "dropped")):
            with self.subTest(strategy=strategy):
                t = bring_in(self.d, self.N, strategy)
                r = t.say("What was line 3 about?")
                ids = [m[0] for m in t.messages()]
                kept = {i["message"] for i in t.window()["items"] if i["message"]}
                gone = [i for i in ids if i not in kept]
                self.assertIn(receipt(r)["cut"], ("live", "ahead"))
                self.assertEqual(receipt(r)["shortened"], {key: len(gone)})
                self.assertEqual(left(r), gone[:END] + gone[-END:])
                self.assertLess(receipt(r)["used"], CTX)
                # `before` counts what could have been read; the others are told by their number.
                self.assertGreater(receipt(r)["above"], self.N / 2)
                self.assertLess(receipt(r)["above"], len(gone))

    def until_cut(self, t):
        """Until the cut that is made while nobody waits has reached the newest messages."""

        def is_done():
            w = t.window("?next=1")
            return w["cut"] and "above" not in w and w["used"] < CTX

        self.d.until(is_done, "a cut while nobody waits")

    def test_its_first_cut_is_made_while_nobody_waits(self):
        first = ["The gate code is 4471-B.", "Noted."]
        t = bring_in(self.d, self.N, "auto", first)
        self.until_cut(t)
        cut = t.window("?next=1")["cut"]
        self.assertEqual((cut["strategy"], cut["state"]), ("auto", "prepared"))
        r = t.say("What is the gate code?")
        self.assertEqual(receipt(r)["cut"], "ahead")
        self.assertEqual(t.window()["cut"]["at_message"], cut["at_message"])
        self.assertIn("4471-B", t.prompt())
        kept = {i["message"] for i in t.window()["items"] if i["message"]}
        gone = [m[0] for m in t.messages() if m[0] not in kept]
        self.assertEqual(left(r), gone[:END] + gone[-END:])

    def test_of_an_import_all_but_the_last_piece_is_cut_when_it_ends(self):
        """Nobody need rest in between: 80 kB are more than a piece."""
        t = bring_in(self.d, 800, "auto", ["The gate code is 4471-B. " * 4] * 800)
        window = t.window("?next=1")
        self.assertEqual(window["cut"]["state"], "prepared")

    def test_a_cut_of_another_strategy_is_not_taken(self):
        first = ["The gate code is 4471-B.", "Noted."]
        t = bring_in(self.d, self.N, "auto", first)
        self.until_cut(t)
        r = t.say("And what then?", hearth={"context": "window"})
        self.assertEqual(receipt(r)["cut"], "live")
        self.assertEqual(t.window()["cut"]["strategy"], "window")
        self.assertNotIn("4471-B", t.prompt())

    def test_what_is_deleted_is_not_in_a_cut_made_ahead(self):
        first = ["The gate code is 4471-B.", "Noted."]
        t = bring_in(self.d, self.N, "auto", first)
        self.until_cut(t)
        self.d.request("DELETE", f"/v1/conversations/{t.id}/items/{t.messages()[0][0]}")
        t.say("What is the gate code?")
        self.assertNotIn("4471-B", t.prompt())

    def test_a_list_of_a_hundred_is_whole(self):
        t = bring_in(self.d, 100, "window")
        r = t.say("What was line 3 about?")
        self.assertNotIn("shortened", receipt(r))
        kept = {i["message"] for i in t.window()["items"] if i["message"]}
        self.assertEqual(left(r), [m[0] for m in t.messages() if m[0] not in kept])

    def test_what_left_before_any_turn_is_recalled_and_kept_as_facts(self):
        first = ["The gate code is 4471-B.", "Noted."]
        t = bring_in(self.d, self.N, "auto", first)
        t.say("What is the gate code?")
        self.assertIn("4471-B", t.prompt())

    def test_its_window_shows_the_newest_and_says_how_many_stand_above(self):
        t = bring_in(self.d, self.N)
        w = t.window()
        shown = [i["message"] for i in w["items"] if i["message"]]
        self.assertGreater(w["used"], CTX)
        self.assertEqual(w["above"] + len(shown), self.N)
        self.assertEqual(shown, [m[0] for m in t.messages()][-len(shown) :])

    def test_a_cut_by_hand_tells_of_every_message_too(self):
        t = bring_in(self.d, self.N)
        status, r = self.d.post(t.path + "/cut", {})
        self.assertEqual(status, 200, r)
        kept = [i for i in t.window("?next=1")["items"] if i["message"]]
        self.assertEqual(r["shortened"]["summarised"], self.N - len(kept))
        self.assertNotIn("above", t.window("?next=1"))

    def test_without_a_cut_it_is_refused_with_the_counts(self):
        t = bring_in(self.d, self.N, "error")
        status, r = self.d.post("/v1/responses", t.body("And?"))
        self.assertEqual((status, r["error"]["code"]), (400, "context_length_exceeded"))
        self.assertRegex(r["error"]["message"], r"\d+ stand above")
        self.assertEqual(len(t.messages()), self.N)

    def test_a_conversation_counts_its_messages(self):
        t = bring_in(self.d, 60)

        def count():
            return self.d.get(f"/v1/conversations/{t.id}")[1]["hearth"]["n_messages"]

        self.assertEqual(count(), 60)
        t.say("One more.")
        self.assertEqual(count(), 62)
        self.d.request("DELETE", f"/v1/conversations/{t.id}/items/{t.messages()[5][0]}")
        self.assertEqual(count(), 61)


if __name__ == "__main__":
    main()
