#!/usr/bin/python3
"""Context strategies for clients that send the whole conversation with each request: what is in the
window, that it stays the same between cuts, and that the reply tells what isn't in it.
"""

import unittest

from harness import Scripted, assistant, system, user
from talk import FACTS, PEANUTS, STRATEGIES, Case, filler, is_cut, left, receipt, script

CTX = 1024
CHAT = "/v1/chat/completions"
CUTTING = [s for s in STRATEGIES if s != "error"]
RULE = "Answer in one line, and call me Captain."


class Resender:
    """A client that keeps the conversation itself."""

    def __init__(self, daemon, strategy, first=RULE):
        self.d = daemon
        self.strategy = strategy
        self.messages = [system(first)] if first else []
        self.replies = []

    def ask(self, **more):
        hearth = {"window": True, "context": self.strategy, **more.pop("hearth", {})}
        return self.d.chat(self.messages, hearth=hearth, **more)

    def say(self, text, **more):
        self.messages.append(user(text))
        r = self.ask(**more)
        self.replies.append(r)
        self.messages.append(assistant(r["choices"][0]["message"]["content"]))
        return r

    def named(self, reply):
        """[message] that the receipt says left"""
        return [self.messages[int(i[1:]) - 1] for i in left(reply)]


def window(reply):
    return [(m["role"], m["content"]) for m in reply["hearth"]["window"]]


def prompt(reply):
    return "\n".join(text for _, text in window(reply))


def cached(reply):
    return reply["usage"]["prompt_tokens_details"]["cached_tokens"]


def long_history(language="en", n=40):
    messages = [system(RULE)]
    for said, answer in (filler(language) * 3)[:n]:
        messages += [user(said), assistant(answer)]
    return messages


class Sixty(Case):
    """Sixty turns, each sent with all that was said before it."""

    SCRIPT = script("en", CTX)
    TURNS = 60

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.talks = {}
        for strategy in CUTTING:
            talk = Resender(cls.d, strategy)
            turns = filler("en")
            for i in range(cls.TURNS):
                talk.say(turns[i % len(turns)][0])
            cls.talks[strategy] = talk

    def each(self):
        for strategy, talk in self.talks.items():
            with self.subTest(strategy=strategy):
                yield talk

    def test_the_window_is_cut_several_times_and_always_fits(self):
        for talk in self.each():
            self.assertGreaterEqual(sum(map(is_cut, talk.replies)), 3)
            for r in talk.replies:
                self.assertLess(r["usage"]["prompt_tokens"], CTX)
                self.assertEqual(receipt(r)["used"], r["usage"]["prompt_tokens"])
                self.assertEqual(receipt(r)["strategy"], talk.strategy)

    def test_the_system_message_and_the_question_are_in_every_window(self):
        for talk in self.each():
            questions = [m["content"] for m in talk.messages if m["role"] == "user"]
            for question, r in zip(questions, talk.replies):
                w = window(r)
                self.assertEqual(w[0][0], "system")
                self.assertTrue(w[0][1].startswith(RULE))
                self.assertEqual(w[-1][0], "user")
                self.assertTrue(w[-1][1].endswith(question))

    def test_between_cuts_a_window_begins_with_the_one_before(self):
        for talk in self.each():
            for before, after in zip(talk.replies, talk.replies[1:]):
                if not is_cut(after):
                    old = window(before)
                    self.assertEqual(window(after)[: len(old)], old)
                    self.assertEqual(receipt(after)["prefix_lost"], 0)

    def test_four_of_five_turns_after_the_first_cut_are_four_fifths_cached(self):
        for talk in self.each():
            cuts = [i for i, r in enumerate(talk.replies) if is_cut(r)]
            after = talk.replies[cuts[0] + 1 :]
            good = [r for r in after if cached(r) >= 0.8 * r["usage"]["prompt_tokens"]]
            self.assertGreaterEqual(len(good), 0.8 * len(after))

    def test_the_receipt_names_all_that_is_not_in_the_window_and_nothing_else(self):
        for talk in self.each():
            for i, r in enumerate(talk.replies):
                sent = talk.messages[: 2 * (i + 1)]
                gone = {int(x[1:]) for x in left(r)}
                if "shortened" in receipt(r):  # of more than a hundred it names the ends
                    whole = {k: len(receipt(r)[k]) for k in ("dropped", "summarised")}
                    whole.update(receipt(r)["shortened"])
                    self.assertEqual(sum(whole.values()), len(sent) - len(window(r)))
                    continue
                kept = [m for n, m in enumerate(sent, 1) if n not in gone]
                self.assertEqual([m["role"] for m in kept], [role for role, _ in window(r)])
                for m, (_, text) in zip(kept[1:], window(r)[1:]):
                    self.assertTrue(text.endswith(m["content"]))
                self.assertEqual(bool(gone), any(map(is_cut, talk.replies[: i + 1])))

    def test_a_cut_tells_what_it_cost(self):
        for talk in self.each():
            for r in filter(is_cut, talk.replies):
                c = receipt(r)
                self.assertEqual(c["cut"], "live")
                self.assertGreater(c["before"], c["after"])
                self.assertEqual(c["after"], c["used"])
                self.assertGreater(c["prefix_lost"], 0)

    def test_turns_leave_whole_and_the_oldest_first(self):
        talk = self.talks["window"]
        for r in talk.replies:
            gone = [int(x[1:]) for x in left(r)]
            self.assertEqual(gone, list(range(2, 2 + len(gone))))
            self.assertEqual(len(gone) % 2, 0)

    def test_quotes_are_of_what_left_and_each_stands_once(self):
        for strategy in ("retrieve", "auto"):
            n = 0
            for r in self.talks[strategy].replies:
                c = receipt(r)
                quoted = [q["id"] for q in c["recalled_new"] + c["recalled_kept"]]
                self.assertEqual(len(quoted), len(set(quoted)))
                self.assertLessEqual(set(quoted), set(left(r)))
                n += len(quoted)
            self.assertGreater(n, 0)
        for strategy in ("window", "prune", "summarise"):
            for r in self.talks[strategy].replies:
                self.assertEqual(receipt(r)["recalled_new"] + receipt(r)["recalled_kept"], [])

    def test_the_same_request_again_reads_the_same(self):
        for talk in self.each():
            messages, talk.messages = talk.messages, talk.messages[:-1]
            again, cold = talk.ask(), talk.ask(hearth={"cache": False})
            talk.messages = messages
            for r in (again, cold):
                self.assertEqual(window(r), window(talk.replies[-1]))
                self.assertEqual(r["choices"], talk.replies[-1]["choices"])
            self.assertEqual(cached(cold), 0)

    def test_a_small_answer_asked_for_now_and_then_moves_nothing(self):
        for talk in self.each():
            messages, talk.messages = talk.messages, talk.messages[:-1]
            small = talk.ask(max_tokens=2)
            talk.messages = messages
            self.assertEqual(window(small), window(talk.replies[-1]))

    def test_room_that_is_asked_for_is_kept(self):
        talk = self.talks["window"]
        r = talk.ask(max_tokens=400)
        self.assertEqual(receipt(r)["reserved"], 400)

    def test_the_blocks_are_what_they_should_be(self):
        self.d.check_blocks()


class Remembering(unittest.TestCase):
    def run_talk(self, language, strategy):
        said, kept, asked = PEANUTS[language]
        with Scripted(script(language, CTX)) as d:
            talk = Resender(d, strategy)
            talk.say(said)
            for turn in filler(language)[:30]:
                talk.say(turn[0])
            r = talk.say(asked)
            self.assertTrue(any(map(is_cut, talk.replies)))
            named = [m["content"] for m in talk.named(r)]
            self.assertIn(said, named)
            return kept in prompt(r)

    def test_peanuts_are_in_the_prompt_when_a_snack_is_asked_for(self):
        for language in ("en", "zh"):
            for strategy in ("summarise", "retrieve", "auto"):
                with self.subTest(language=language, strategy=strategy):
                    self.assertTrue(self.run_talk(language, strategy))

    def test_under_window_they_are_not_and_the_receipt_names_them(self):
        for language in ("en", "zh"):
            with self.subTest(language=language):
                self.assertFalse(self.run_talk(language, "window"))

    def test_eight_exact_facts_are_there_when_asked_for(self):
        for language in ("en", "zh"):
            with self.subTest(language=language), Scripted(script(language, CTX)) as d:
                talk = Resender(d, "auto")
                for i in range(0, 8, 3):
                    talk.say(" ".join(f[0] for f in FACTS[language][i : i + 3]))
                turns = filler(language)
                for i in range(48):
                    talk.say(turns[i % len(turns)][0])
                self.assertGreaterEqual(sum(map(is_cut, talk.replies)), 3)
                missing = [
                    kept
                    for _, kept, asked in FACTS[language]
                    if kept not in prompt(talk.say(asked))
                ]
                self.assertEqual(missing, [])


class Edges(Case):
    SCRIPT = script("en", CTX)

    def post(self, messages, **hearth):
        body = {"messages": messages, "temperature": 0}
        if hearth:
            body["hearth"] = hearth
        return self.d.post(CHAT, body)

    def check_refused(self, status, reply, param="messages"):
        self.assertEqual(status, 400, reply)
        self.assertEqual(reply["error"]["code"], "context_length_exceeded")
        self.assertEqual(reply["error"]["param"], param)
        self.assertRegex(reply["error"]["message"], r"\d+ tokens.*10\d\d")

    def test_without_a_strategy_what_does_not_fit_is_refused(self):
        messages = long_history() + [user("Hello?")]
        before = self.d.n_generated()
        self.check_refused(*self.post(messages))
        self.check_refused(*self.post(messages, context="error"))
        self.assertEqual(self.d.n_generated(), before)
        self.assertEqual(self.post(messages, context="window")[0], 200)

    def test_truncation_is_a_field_of_responses_and_changes_no_chat_completion(self):
        """OpenAI's chat completions have none: unknown fields are ignored, of any type."""
        messages = long_history() + [user("Hello?")]
        for truncation in ("auto", "disabled", 7):
            body = {"messages": messages, "temperature": 0, "truncation": truncation}
            self.check_refused(*self.d.post(CHAT, body))
            body["hearth"] = {"context": "window"}
            self.assertEqual(self.d.post(CHAT, body)[0], 200)

    def test_a_history_from_elsewhere_is_cut_as_well(self):
        messages = long_history() + [user("Hello?")]
        for strategy in CUTTING:
            with self.subTest(strategy=strategy):
                status, r = self.post(messages, context=strategy, window=True)
                self.assertEqual(status, 200, r)
                self.assertTrue(left(r))
                self.assertTrue(window(r)[0][1].startswith(RULE))

    def test_one_message_that_is_too_long_is_refused_with_the_counts(self):
        long = "The gate code is QX-5519. " + "word " * CTX + "What is the gate code?"
        before = self.d.n_generated()
        for strategy in STRATEGIES:
            with self.subTest(strategy=strategy):
                self.check_refused(*self.post([user(long)], context=strategy))
                messages = long_history() + [user(long)]
                self.check_refused(*self.post(messages, context=strategy))
        self.assertEqual(self.d.n_generated(), before)

    def test_a_system_message_that_leaves_no_room_is_refused(self):
        messages = long_history()[1:] + [user("Hello?")]
        for strategy in CUTTING:
            with self.subTest(strategy=strategy):
                first = system("word " * CTX)
                self.check_refused(*self.post([first, *messages], context=strategy))

    def test_an_old_message_that_is_too_long_leaves_and_is_named(self):
        messages = [user("word " * CTX), assistant("Too much."), user("Hello?")]
        for strategy in CUTTING:
            with self.subTest(strategy=strategy):
                status, r = self.post(messages, context=strategy, window=True)
                self.assertEqual(status, 200, r)
                self.assertEqual(left(r), ["#1", "#2"])
                self.assertTrue(prompt(r).endswith("Hello?"))

    def test_a_token_more_does_not_cost_half_the_window(self):
        """The newest turn is as long as the window takes, to the token: it is never shortened."""
        n = None
        for k in range(CTX // 2, CTX + 1):
            status, r = self.post([user("a " * k)], context="auto")
            if status != 200:
                break
            n = r["usage"]["prompt_tokens"]
        self.check_refused(status, r)
        self.assertGreaterEqual(n, CTX - 3)

    def test_without_a_system_message_the_head_brings_the_templates_own(self):
        messages = long_history()[1:] + [user("Hello?")]
        status, r = self.post(messages, context="auto", window=True)
        self.assertEqual(status, 200, r)
        role, text = window(r)[0]
        self.assertEqual(role, "system")
        self.assertTrue(text.startswith("You follow a script.\n\n"))

    def test_later_system_messages_stay(self):
        messages = long_history(n=6) + [system("From now on in French.")] + long_history(n=34)[1:]
        for strategy in CUTTING:
            with self.subTest(strategy=strategy):
                status, r = self.post(messages + [user("Hello?")], context=strategy, window=True)
                self.assertEqual(status, 200, r)
                self.assertIn("From now on in French.", prompt(r))

    def test_a_stream_tells_of_the_cut_in_its_first_chunk(self):
        messages = long_history() + [user("Hello?")]
        hearth = {"context": "window", "window": True}
        with self.d.chat_stream(messages, hearth=hearth) as events:
            chunks = list(events)
        first, last = chunks[0]["hearth"], [c for c in chunks if "hearth" in c][-1]["hearth"]
        self.assertTrue(first["receipt"]["dropped"])
        self.assertEqual(first["receipt"], last["receipt"])
        self.assertNotIn("window", first)
        self.assertEqual(last["window"][-1]["content"], "Hello?")

    def test_a_wrong_strategy_is_refused_by_name(self):
        status, r = self.post([user("Hello?")], context="best")
        self.assertEqual((status, r["error"]["param"]), (400, "hearth.context"))

    def test_what_the_client_changes_is_what_is_read(self):
        """An edited answer is another list: nothing of the old one is remembered."""
        messages = long_history()
        messages[2] = assistant("The launch code is ZEBRA-9.")
        status, r = self.post(messages + [user("Hello?")], context="auto", window=True)
        self.assertEqual(status, 200, r)
        self.assertIn("ZEBRA-9", prompt(r))
        status, r = self.post(long_history() + [user("Hello?")], context="auto", window=True)
        self.assertNotIn("ZEBRA-9", prompt(r))


class Responses(Case):
    """/v1/responses with store: false and the whole history as input."""

    SCRIPT = script("en", CTX)

    def post(self, messages, path="/v1/responses", **more):
        body = {"input": messages, "temperature": 0, "store": False, **more}
        return self.d.post(path, body)

    def test_the_default_is_to_refuse_and_auto_cuts(self):
        messages = long_history() + [user("Hello?")]
        for more in ({}, {"truncation": "disabled"}, {"hearth": {"context": "error"}}):
            status, r = self.post(messages, **more)
            self.assertEqual(status, 400, r)
            self.assertEqual(r["error"]["code"], "context_length_exceeded")
            self.assertEqual(r["error"]["param"], "input")
        status, r = self.post(messages, truncation="auto")
        self.assertEqual(status, 200, r)
        self.assertEqual(receipt(r)["strategy"], "auto")
        self.assertTrue(left(r))

    def test_the_window_is_that_of_a_chat_completion(self):
        messages = long_history() + [user("Hello?")]
        for strategy in CUTTING:
            with self.subTest(strategy=strategy):
                hearth = {"context": strategy, "window": True}
                chat = self.d.chat(messages, hearth=hearth)
                status, r = self.post(messages, hearth=hearth)
                self.assertEqual(status, 200, r)
                self.assertEqual(window(r), window(chat))
                self.assertEqual(left(r), left(chat))

    def test_instructions_stay_and_are_not_counted_as_an_item(self):
        messages = long_history()[1:] + [user("Hello?")]
        hearth = {"context": "window", "window": True}
        status, r = self.post(messages, instructions=RULE, hearth=hearth)
        self.assertEqual(status, 200, r)
        self.assertEqual(window(r)[0], ("system", RULE))
        self.assertEqual(left(r)[0], "#1")

    def test_input_tokens_counts_what_would_be_read(self):
        messages = long_history() + [user("Hello?")]
        status, r = self.post(messages, truncation="auto")
        self.assertEqual(status, 200, r)
        path = "/v1/responses/input_tokens"
        status, counted = self.post(messages, path, truncation="auto")
        self.assertEqual(status, 200, counted)
        self.assertEqual(counted["input_tokens"], r["usage"]["input_tokens"])

    def test_nothing_is_stored(self):
        self.post(long_history() + [user("Hello?")], truncation="auto")
        status, page = self.d.get("/v1/conversations?limit=10")
        self.assertEqual(status, 200, page)
        self.assertEqual(page["data"], [])


if __name__ == "__main__":
    unittest.main()
