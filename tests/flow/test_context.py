"""What stays in the prompt when a conversation outgrows its window: a fact from its beginning,
eight exact values, and how little is read again. Windows of 1,024 tokens, English and Chinese.
"""

import os
import sqlite3
import unittest

from harness import Scripted, main
from talk import FACTS, PEANUTS, STRATEGIES, Talk, filler, is_cut, left, receipt, script

KEEPERS = ("summarise", "retrieve", "auto")
CTX = 1024


class Peanuts(unittest.TestCase):
    """Said in the first turn; a snack is asked for after twenty turns of other talk."""

    def tell_and_ask(self, d, language, strategy):
        said, _, question = PEANUTS[language]
        t = Talk(d, strategy)
        t.say(said)
        for line, _ in filler(language)[:20]:
            t.say(line)
        t.say(question)
        self.assertTrue(any(is_cut(r) for r in t.replies))
        return t

    def test_the_allergy_is_in_the_prompt_when_a_snack_is_asked_for(self):
        for language in PEANUTS:
            with Scripted(script(language, CTX)) as d:
                for strategy in KEEPERS:
                    with self.subTest(language=language, strategy=strategy):
                        t = self.tell_and_ask(d, language, strategy)
                        self.assertIn(PEANUTS[language][1], t.prompt())

    def test_under_window_it_is_not_and_a_receipt_names_the_message(self):
        for language in PEANUTS:
            with Scripted(script(language, CTX)) as d, self.subTest(language=language):
                t = self.tell_and_ask(d, language, "window")
                self.assertNotIn(PEANUTS[language][1], t.prompt())
                first = t.messages()[0]
                self.assertEqual(first[2], PEANUTS[language][0])
                dropped = [c["id"] for r in t.replies for c in receipt(r)["dropped"]]
                self.assertEqual(dropped.count(first[0]), 1)


class Values(unittest.TestCase):
    """B80: eight exact values in turns 1 to 3, 48 turns of other talk full of numbers and names."""

    def ask_all(self, d, language, strategy, is_one_message):
        """How many of the values are in the prompt when they are asked for."""
        t = Talk(d, strategy)
        facts = FACTS[language]
        gap = " " if language == "en" else ""
        n = len(facts) if is_one_message else 3
        for i in range(0, len(facts), n):
            t.say(gap.join(f[0] for f in facts[i : i + n]))
        for line, _ in filler(language)[:48]:
            t.say(line)
        self.assertGreaterEqual(sum(is_cut(r) for r in t.replies), 3)
        originals = "\n".join(text for _, _, text in t.messages())
        found = []
        for said, value, question in facts:
            self.assertIn(said, originals)
            t.say(question)
            if value in t.prompt():
                found.append(value)
        return found

    def check(self, strategy, least, **more):
        for language in FACTS:
            with Scripted(script(language, CTX, **more)) as d:
                for is_one in (False, True):
                    with self.subTest(language=language, is_one_message=is_one):
                        found = self.ask_all(d, language, strategy, is_one)
                        self.assertGreaterEqual(len(found), least, found)

    def test_auto_has_all_eight_when_they_are_asked_for(self):
        self.check("auto", 8)

    def test_auto_has_all_eight_after_long_answers(self):
        self.check("auto", 8, long=True)

    def test_summaries_alone_have_seven(self):
        self.check("summarise", 7)

    def test_summaries_alone_have_seven_after_long_answers(self):
        self.check("summarise", 7, long=True)


class Economy(unittest.TestCase):
    """B15: between cuts each prompt begins with the one before, and cuts are read ahead."""

    N = 60

    def talk(self, d, language, strategy):
        t = Talk(d, strategy)
        lines = filler(language)
        for i in range(self.N):
            line = lines[i % len(lines)][0]
            t.say(line if i < len(lines) else f"{line} ({i})")
            t.until_quiet()
        return t

    def sliding(self, d, t):
        """Tokens read by a window that drops its oldest turn whenever the next doesn't fit."""

        def count(text):
            return len(d.post("/tokenize", {"content": text})[1]["tokens"])

        around = 7  # <|im_start|>user\n … <|im_end|>\n; a few more would favour us
        tokens = [count(text) + around for _, _, text in t.messages()]
        n_system = t.window()["items"][0]["tokens"]
        computed, first, before = 0, 0, 0
        for i in range(0, len(tokens), 2):
            while n_system + sum(tokens[first : i + 1]) > CTX - 1:
                first += 2
            is_moved, before = first != before, first
            computed += sum(tokens[first : i + 1]) if is_moved else tokens[i]
        return computed

    def test_turns_after_a_cut_find_four_fifths_of_their_prompt(self):
        for language, strategies in (("en", STRATEGIES[1:]), ("zh", ("auto",))):
            with Scripted(script(language, CTX)) as d:
                for strategy in strategies:
                    with self.subTest(language=language, strategy=strategy):
                        self.check(d, self.talk(d, language, strategy))

    def check(self, d, t):
        first = next(i for i, r in enumerate(t.replies) if is_cut(r))
        usages = [r["usage"] for r in t.replies[first:]]
        self.assertGreater(len(usages), 20)
        n_good = sum(
            u["input_tokens_details"]["cached_tokens"] >= 0.8 * u["input_tokens"] for u in usages
        )
        self.assertGreaterEqual(n_good, 0.8 * len(usages))
        computed = sum(r["hearth"]["cache"]["computed"] for r in t.replies)
        self.assertLessEqual(5 * computed, self.sliding(d, t))
        cuts = [receipt(r)["cut"] for r in t.replies if is_cut(r)]
        self.assertGreater(cuts.count("ahead"), 2 * cuts.count("live"), cuts)

    def test_without_a_pause_between_turns_nothing_is_cut_twice_for_one_need(self):
        """A cut that is made ready while an answer is written is in force for the next turn: the
        window that this answer was read from, full as it was, calls for no other.
        """
        with Scripted(script("zh", CTX, long=True)) as d:
            t = Talk(d, "summarise")
            for line, _ in (filler("zh") * 2)[: self.N]:
                t.say(line)
            t.until_quiet()
            with sqlite3.connect(os.path.join(d.folder, "state/history.db")) as db:
                cuts = [row for (row,) in db.execute("SELECT anchor FROM cut ORDER BY row")]
        self.assertGreater(len(cuts), 5)
        self.assertEqual([a for a, b in zip(cuts, cuts[1:]) if b - a <= 2], [], cuts)

    def test_between_cuts_each_prompt_begins_with_the_one_before(self):
        with Scripted(script("en", CTX)) as d:
            t = self.talk(d, "en", "auto")
            for before, r in zip(t.replies, t.replies[1:]):
                if not is_cut(r):
                    read = before["usage"]["input_tokens"] + before["usage"]["output_tokens"]
                    self.assertEqual(receipt(r)["prefix_kept"], read)
                    self.assertEqual(receipt(r)["prefix_lost"], 0)
                    self.assertEqual(left(r), [])


if __name__ == "__main__":
    main()
