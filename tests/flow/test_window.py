"""The edges of the window: prompts around its size, answers that reach its end, what is refused and
what is never dropped; and by which ways a strategy is chosen. Cases B08 to B14, B79, B82, B83.
"""

import json
import unittest

from harness import Scripted, assistant, main, system, user
from talk import STRATEGIES, Talk, filler, is_cut, left, receipt, script

CTX = 256
FOREVER = {"when": "go on forever", "pieces": ["tick "], "then": "forever"}
SYSTEM = "Always answer in JSON with key k."


def a_script(ctx=CTX, **more):
    s = script("en", ctx, **more)
    s["rules"].insert(0, FOREVER)
    return s


def with_system(d, strategy=None):
    items = [{"type": "message", "role": "system", "content": SYSTEM}]
    return Talk(d, strategy, items=items)


def quoted(recalled):
    return sum(x["tokens"] for x in recalled)


class Reserve(unittest.TestCase):
    def prompts(self, percent):
        """Tokens that a daemon's window keeps free, and the most that a prompt had."""
        with Scripted(a_script(), "--answer-reserve", str(percent)) as d:
            t = Talk(d, "window")
            most = 0
            for line, _ in filler("en")[:12]:
                most = max(most, receipt(t.say(line))["used"])
                t.until_quiet()
            return t.window("?next=1")["reserve"], most

    def test_the_share_that_is_kept_free_is_configured(self):
        none, most = self.prompts(0)
        half, least = self.prompts(50)
        self.assertEqual((none, half), (0, (CTX - 1) // 2))
        self.assertGreater(most, CTX - half)
        self.assertLess(least, CTX - half)


class Edges(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.d = Scripted(a_script())

    @classmethod
    def tearDownClass(cls):
        cls.d.stop()

    def prompt_of(self, n, text="go on forever"):
        """A user's message that makes a stateless prompt of exactly n tokens."""
        d = self.d
        status, r = d.post("/v1/responses/input_tokens", {"input": text + " x"})
        self.assertEqual(status, 200, r)
        more = n - r["input_tokens"]
        message = text + " x" + "~" * more  # a token each, or a few in one
        for _ in range(20):
            now = d.post("/v1/responses/input_tokens", {"input": message})[1]["input_tokens"]
            if now == n:
                return message
            message = message + " x" * max(1, (n - now) // 2) if now < n else message[: n - now]
        self.fail(f"no message of {n} tokens")

    def test_prompts_around_the_window_s_size(self):  # B13
        errors = []
        for n in range(CTX - 2, CTX + 3):
            message = self.prompt_of(n)
            for heat in ("cold", "warm"):
                for most in (1, 2, None):
                    with self.subTest(n=n, heat=heat, max_tokens=most):
                        body = {"messages": [user(message)], "temperature": 0}
                        if most:
                            body["max_tokens"] = most
                        if heat == "cold":
                            body["hearth"] = {"cache": False}
                        status, r = self.d.post("/v1/chat/completions", body)
                        if n > CTX - 1:
                            self.assertEqual(status, 400, r)
                            self.assertIn(f"{n} tokens", r["error"]["message"])
                            error = {**r["error"], "message": ""}
                            errors.append(json.dumps(error, sort_keys=True))
                        else:
                            self.assertEqual(status, 200, r)
                            expected = min(most or CTX, CTX - n)
                            self.assertEqual(r["usage"]["completion_tokens"], expected)
                            self.assertEqual(r["choices"][0]["finish_reason"], "length")
        self.assertEqual(len(set(errors)), 1, errors)

    def test_an_answer_that_reaches_the_end_says_length(self):  # B11, reserve
        t = Talk(self.d, "auto")
        r = t.say("go on forever")
        self.assertEqual(r["status"], "incomplete")
        self.assertEqual(r["incomplete_details"]["reason"], "max_output_tokens")
        used = r["usage"]["input_tokens"] + r["usage"]["output_tokens"]
        self.assertEqual(used, CTX)
        self.assertEqual(receipt(r)["reserved"], r["usage"]["output_tokens"])
        w = t.window()  # what ends an answer wasn't read, and isn't counted
        self.assertEqual(w["used"], CTX)
        self.assertEqual(sum(i["tokens"] for i in w["items"]), CTX)
        self.d.until_idle()
        again = t.say("What is 17 times 23?")  # the full window is cut, and the talk goes on
        self.assertEqual(again["status"], "completed")
        self.assertTrue(is_cut(again))

    def system_of(self, n):
        """A system message with which the prompt of a short question has exactly n tokens."""
        question = user("go on forever")
        for more in range(n):
            m = [system("~" * more), question]
            if self.d.post("/tokenize", {"messages": m})[1]["count"] == n:
                return m
        self.fail(f"no system message for {n} tokens")

    def test_whatever_fills_the_window_ends_there_and_leaves_nobody_working(self):  # B11
        ask = "/v1/chat/completions"
        for n, m in (
            (None, [user("go on forever")]),
            (CTX - 4, [user(self.prompt_of(CTX - 4))]),
            (CTX - 2, self.system_of(CTX - 2)),
        ):
            with self.subTest(n=n):
                status, r = self.d.post(ask, {"messages": m})
                self.assertEqual(status, 200, r)
                self.assertEqual(r["choices"][0]["finish_reason"], "length")
                self.assertEqual(r["usage"]["total_tokens"], CTX)
                self.assertEqual(r["usage"]["prompt_tokens"], n or r["usage"]["prompt_tokens"])
                generated = self.d.n_generated()
                self.d.until_at_rest()
                self.assertEqual(self.d.n_generated(), generated)
                self.assertEqual(self.d.post(ask, {"messages": [user("hello")]})[0], 200)

    def test_a_system_message_as_long_as_the_window_is_refused_under_each_strategy(self):  # B11
        before = self.d.n_generated()
        m = [system("~" * (CTX - 2)), user("hello")]
        counted = self.d.post("/tokenize", {"messages": m})[1]["count"]
        self.assertGreater(counted, CTX)
        for strategy in (None, *STRATEGIES):
            with self.subTest(strategy=strategy):
                body = {"messages": m, "hearth": {"context": strategy}}
                status, r = self.d.post("/v1/chat/completions", body)
                self.assertEqual((status, r["error"]["code"]), (400, "context_length_exceeded"), r)
                items = [{"type": "message", "role": "system", "content": m[0]["content"]}]
                t = Talk(self.d, strategy, items=items)
                status, r = self.d.post("/v1/responses", t.body("hello"))
                self.assertEqual((status, r["error"]["code"]), (400, "context_length_exceeded"), r)
        self.assertEqual(self.d.n_generated(), before)
        self.d.until_at_rest()
        self.assertEqual(self.d.post("/v1/chat/completions", {"messages": [user("hello")]})[0], 200)

    def test_the_reserve_steers_cuts_and_refuses_nothing(self):
        t = Talk(self.d, "auto")
        t.say("What is 17 times 23?")
        t.until_quiet()
        before = t.window("?next=1")["used"]
        r = t.say("Why is the sky blue?", max_output_tokens=10_000)
        self.assertEqual(receipt(r)["reserved"], CTX - r["usage"]["input_tokens"])
        self.assertGreater(r["usage"]["input_tokens"], before)

    def test_a_message_too_large_for_any_window_is_refused_with_counts(self):  # B09
        for strategy in STRATEGIES:
            with self.subTest(strategy=strategy):
                t = Talk(self.d, strategy)
                t.say("hello")
                n, w = len(t.messages()), t.window("?next=1")
                code = "The gate code is QX-5519. " + "and so on " * CTX
                status, r = self.d.post("/v1/responses", t.body(code))
                self.assertEqual((status, r["error"]["code"]), (400, "context_length_exceeded"))
                self.assertRegex(r["error"]["message"], r"\d+ tokens")
                self.assertIn(str(CTX), r["error"]["message"])
                self.assertEqual((len(t.messages()), t.window("?next=1")), (n, w))

    def test_one_token_more_costs_turns_and_no_cliff(self):  # B09
        seen = []
        for strategy in ("window", "auto"):
            for n in range(10, 60):
                t = Talk(self.d, strategy)
                for line, _ in filler("en")[:3]:
                    t.say(line)
                r = t.say("x " * n, max_output_tokens=1)
                seen.append((receipt(r)["used"], len(left(r))))
                if left(r):
                    break
            used, n_left = seen[-1]
            self.assertGreaterEqual(used, 0.3 * CTX, seen)
            self.assertLessEqual(n_left, 6)


class Kept(unittest.TestCase):
    def test_the_system_message_is_in_every_prompt(self):  # B08
        for strategy in ("window", "summarise", "retrieve", "prune", "auto"):
            with Scripted(a_script(320)) as d, self.subTest(strategy=strategy):
                t = with_system(d, strategy)
                for line, _ in filler("en")[:30]:
                    t.say(line)
                    items = t.window()["items"]
                    self.assertTrue(items[0]["text"].startswith(SYSTEM), items[0])
                    roles = [i["role"] for i in items if i["kind"] == "message"]
                    self.assertEqual(roles, ["user", "assistant"] * (len(roles) // 2))
                self.assertGreaterEqual(sum(is_cut(r) for r in t.replies), 2)

    def test_system_messages_stay_wherever_they_stand(self):  # B08
        said = [{"role": r, "content": f"{r} {'word ' * 20}"} for r in ("user", "assistant") * 3]
        for strategy in ("window", "summarise", "retrieve", "prune", "auto"):
            with Scripted(a_script(320)) as d, self.subTest(strategy=strategy):
                for at in range(len(said) + 1):  # the last: the newest message of all
                    items = said[:at] + [system(SYSTEM)] + said[at:]
                    t = Talk(d, strategy, items=items)
                    for n in (110, 20, 110):  # all else leaves, nothing does, all leaves again
                        t.say("x " * n, max_output_tokens=10)
                        window = t.window()["items"]
                        self.assertEqual(json.dumps(window).count(SYSTEM), 1, (at, window))
                    body = {"messages": items + [user("x " * 110)], "max_tokens": 1}
                    body["hearth"] = {"context": strategy, "window": True}
                    status, r = d.post("/v1/chat/completions", body)
                    self.assertEqual(status, 200, r)
                    self.assertEqual(json.dumps(r["hearth"]["window"]).count(SYSTEM), 1, r)

    def test_a_yes_to_a_question_leaves_after_small_talk(self):
        with Scripted({"ctx": 640}) as d:
            for before, stays in (("Shall I book the ferry?", True), ("I like islands.", False)):
                said = [user("We go to the isle in May."), assistant(before)]
                said += [user("Yes."), assistant("Understood.")]
                said += [user("Hello"), assistant("Hello there!")] * 11
                body = {"messages": said + [user("Where do we go? " + "x " * 60)]}
                body["hearth"] = {"context": "prune", "window": True}
                status, r = d.post("/v1/chat/completions", body)
                self.assertEqual(status, 200, r)
                t = Talk(d, "prune", items=[{"type": "message", **m} for m in said[:20]])
                more = [{"type": "message", **m} for m in said[20:]]
                self.assertEqual(d.post(f"/v1/conversations/{t.id}/items", {"items": more})[0], 200)
                t.say(body["messages"][-1]["content"])
                for words in (
                    [m["content"] for m in r["hearth"]["window"]],
                    [i["text"] for i in t.window()["items"]],
                ):
                    self.assertIn(said[0]["content"], words)
                    self.assertLess(words.count("Hello"), 11)
                    self.assertEqual("Yes." in words, stays, words)

    def test_system_and_newest_message_too_large_together_are_refused(self):  # B08
        with Scripted(a_script()) as d:
            t = with_system(d, "auto")
            t.say("hello")
            status, r = d.post("/v1/responses", t.body("word " * (CTX - 5)))
            self.assertEqual((status, r["error"]["code"]), (400, "context_length_exceeded"), r)

    def test_what_is_recalled_is_never_stored_and_each_text_once(self):  # B82
        with Scripted(a_script(512)) as d:
            t = Talk(d, "auto")
            fact = "The lighthouse keeper's parrot is called Bartholomew."
            said = [fact]
            for i in range(5):
                t.say(fact)
            sizes = []
            for i, (line, _) in enumerate(filler("en")[:24]):
                question = f"What is the lighthouse keeper's parrot called, number {i}?"
                for text in (line, question):
                    t.say(text)
                    said.append(text)
                    items = t.window()["items"]
                    recalled = [x["text"] for x in items if x["kind"] == "recalled"]
                    self.assertLessEqual(sum(r.count(fact) for r in recalled), 1)
                    sizes.append(sum(x["tokens"] for x in items if x["kind"] == "recalled"))
            self.assertLessEqual(max(sizes), 512 // 4)
            stored = [text for _, role, text in t.messages() if role == "user"]
            self.assertEqual(stored, [fact] * 4 + said)

    def test_what_is_in_the_window_is_not_recalled(self):  # B83
        with Scripted(a_script(512)) as d:
            t = Talk(d, "auto")
            t.say("My cat is called Miso.")
            r = t.say("What is my cat called?")
            self.assertEqual(receipt(r)["recalled_new"], [])
            for line, _ in filler("en")[:20]:
                t.say(line)
            self.assertTrue(any(is_cut(r) for r in t.replies))
            for text in ("What is my cat called?", "The cat, what is it called?"):
                r = t.say(text)
                ids = [c["id"] for c in receipt(r)["recalled_new"]]
                items = t.window()["items"]
                shown = {i["message"] for i in items if i["kind"] == "message"}
                self.assertFalse(shown & set(ids))
                recalled = [i["text"] for i in items if i["kind"] == "recalled"]
                self.assertEqual(sum(x.count("called Miso") for x in recalled) <= 1, True)

    def test_what_is_only_told_leaves_room_to_quote_for_a_question(self):
        with Scripted(a_script(1024)) as d:
            t = Talk(d, "retrieve")
            t.say("The lighthouse keeper keeps a parrot in the lamp room.")
            most = 0
            for i in range(36):
                name = ("Anna", "Boris", "Chiara", "Derek", "Emeka", "Farah", "Goran")[i % 7]
                c = receipt(t.say(f"My bus was {i + 3} minutes late again, so {name} had to wait."))
                self.assertLessEqual(sum(map(quoted, (c["recalled_new"], c["recalled_kept"]))), 128)
                most = max(most, quoted(c["recalled_new"]))
            self.assertGreater(most, 0)
            c = receipt(t.say("What does the lighthouse keeper keep in the lamp room?"))
            self.assertIn(t.messages()[0][0], [x["id"] for x in c["recalled_new"]])

    def test_recall_takes_an_eighth_a_turn_and_a_quarter_in_all(self):
        with Scripted(a_script(1024, long=True)) as d:
            t = Talk(d, "retrieve")
            for line, _ in filler("en")[:25]:
                t.say(line)
            n = 0
            for line, _ in filler("en")[:25]:
                c = receipt(t.say("Again, please: " + line))
                new = sum(x["tokens"] for x in c["recalled_new"])
                n += len(c["recalled_new"])
                self.assertLessEqual(new, 1024 // 8)
                self.assertLessEqual(new + sum(x["tokens"] for x in c["recalled_kept"]), 1024 // 4)
            self.assertGreater(n, 10)

    def test_a_conversation_of_one_huge_message_goes_on(self):  # B79
        with Scripted(a_script(512)) as d:
            t = Talk(d, "auto")
            words = " ".join(line for line, _ in filler("en"))
            n = 0
            while True:  # nine tenths of the window
                size = d.post("/v1/responses/input_tokens", {"input": words[:n]})[1]
                if size.get("input_tokens", 0) >= 450:
                    break
                n += 20
            t.say(words[:n], max_output_tokens=20)
            for line, _ in filler("en")[:5]:
                t.say(line)
            self.assertTrue(any(is_cut(r) for r in t.replies))


class Legal(unittest.TestCase):
    """What a cut leaves could be sent as a conversation of its own, wherever it falls."""

    N = 7  # turns

    def items(self):
        said = [("system", SYSTEM)]
        for line, answer in filler("en")[: self.N]:
            said += [("user", line), ("assistant", answer)]
        return said

    def check_list(self, items):
        """A system message, then whole turns."""
        roles = [i["role"] for i in items if i["kind"] in ("system", "message")]
        self.assertEqual(roles[0], "system", items)
        self.assertEqual(roles[1:], (["user", "assistant"] * self.N)[: len(roles) - 1], items)

    def test_a_cut_at_every_budget_falls_before_a_user_message(self):  # B14
        with Scripted(a_script(512)) as d:
            items = [{"type": "message", "role": r, "content": text} for r, text in self.items()]
            n_turns = set()
            for target in range(60, 440, 5):
                t = Talk(d, "window", items=items)
                body = {"strategy": "window", "target": target}
                status, r = d.post(t.path + "/cut", body)
                if status != 200:
                    self.assertEqual(status, 409, r)
                w = t.window("?next=1")["items"]
                self.check_list(w)
                n_turns.add(sum(i["kind"] == "message" and i["role"] == "user" for i in w))
            self.assertGreaterEqual(len(n_turns), self.N - 2, n_turns)  # it fell nearly everywhere

    def test_a_resent_list_is_cut_before_a_user_message_and_can_be_sent_again(self):  # B14
        with Scripted(a_script(512)) as d:
            said = [{"role": role, "content": text} for role, text in self.items()]
            n_turns = set()
            for n in range(40, 230, 5):
                body = {
                    "messages": said + [user("x " * n)],
                    "max_tokens": 1,
                    "hearth": {"context": "window", "window": True},
                }
                status, r = d.post("/v1/chat/completions", body)
                self.assertEqual(status, 200, r)
                w = r["hearth"]["window"]
                rest = [{"role": i["role"], "content": i["content"]} for i in w]
                roles = [m["role"] for m in rest if m["role"] != "system"]
                self.assertEqual(rest[0]["role"], "system")
                self.assertEqual(roles, (["user", "assistant"] * (self.N + 1))[: len(roles)])
                n_turns.add(len(roles))
                status, r = d.post("/v1/chat/completions", {"messages": rest, "max_tokens": 1})
                self.assertEqual(status, 200, r)
            self.assertGreaterEqual(len(n_turns), 3, n_turns)

    def test_calls_and_results_are_refused_by_name_until_there_are_tools(self):  # B14
        call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        with Scripted(a_script()) as d:
            for path, body in (
                ("/v1/chat/completions", {"messages": [user("x"), {"role": "assistant",
                 "content": "", "tool_calls": [call]}]}),
                ("/v1/chat/completions", {"messages": [user("x"), {"role": "tool",
                 "tool_call_id": "c1", "content": "1"}]}),
                ("/v1/responses", {"input": [{"type": "function_call", "call_id": "c1",
                 "name": "f", "arguments": "{}"}]}),
                ("/v1/responses", {"input": [{"type": "function_call_output", "call_id": "c1",
                 "output": "1"}]}),
                ("/v1/responses", {"input": [{"role": "assistant", "tool_calls": [call]},
                 user("x")]}),
                ("/v1/conversations", {"items": [{"role": "assistant", "content": None,
                 "tool_calls": [call]}]}),
                ("/v1/conversations", {"items": [{"role": "assistant", "content": "x",
                 "function_call": {"name": "f"}}]}),
                ("/v1/conversations", {"items": [{"role": "assistant", "refusal": "no"}]}),
                ("/v1/conversations", {"items": [{"role": "assistant", "audio": {"id": "a"}}]}),
            ):
                status, r = d.post(path, body)
                self.assertEqual((status, r["error"]["code"]), (400, "unsupported_parameter"), r)
            none = {"tool_calls": [], "function_call": None, "audio": None, "refusal": None}
            body = {"items": [{"role": "assistant", "content": "x", **none}]}
            self.assertEqual(d.post("/v1/conversations", body)[0], 200)


class Strategies(unittest.TestCase):
    def fill(self, t):
        for line, _ in filler("en")[:12]:
            t.say(line)
        return t

    def test_error_refuses_what_does_not_fit(self):
        with Scripted(a_script()) as d:
            t = Talk(d, "error")
            statuses = [d.post("/v1/responses", t.body(line)) for line, _ in filler("en")[:12]]
            refused = [r for status, r in statuses if status == 400]
            self.assertTrue(refused)
            self.assertEqual(refused[0]["error"]["code"], "context_length_exceeded")
            answered = [r for status, r in statuses if status == 200]
            self.assertFalse(any(is_cut(r) for r in answered))
            self.assertEqual(len(t.messages()), 2 * len(answered))

    def test_truncation_says_auto_or_disabled(self):
        with Scripted(a_script(), "--context", "error") as d:
            t = Talk(d)
            for value, strategy in (("auto", "auto"), ("disabled", "error")):
                r = t.say("hello", truncation=value)
                self.assertEqual((r["truncation"], receipt(r)["strategy"]), (value, strategy))
            r = t.say("hello")
            self.assertEqual((r["truncation"], receipt(r)["strategy"]), ("disabled", "error"))
            status, r = d.post("/v1/responses", t.body("hello", truncation="sometimes"))
            self.assertEqual((status, r["error"]["param"]), (400, "truncation"))

    def test_a_request_goes_before_the_conversation_and_that_before_the_daemon(self):
        with Scripted(a_script(), "--context", "window") as d:
            t = Talk(d)
            self.assertEqual(receipt(t.say("hello"))["strategy"], "window")
            status, r = d.post(t.path + "/context", {"strategy": "prune"})
            self.assertEqual((status, r["strategy"], r["is_own"]), (200, "prune", True))
            self.assertEqual(receipt(t.say("hello"))["strategy"], "prune")
            r = t.say("hello", hearth={"context": "retrieve"})
            self.assertEqual(receipt(r)["strategy"], "retrieve")
            self.assertEqual(t.window()["strategy"], "prune")
            status, r = d.post(t.path + "/context", {"strategy": None})
            self.assertEqual((r["strategy"], r["is_own"]), ("window", False))
            for body in ({}, {"context": "window"}):
                status, r = d.post(t.path + "/context", body)
                self.assertEqual((status, r["error"]["param"]), (400, "strategy"), r)
            status, r = d.post(t.path + "/context", {"strategy": "fifo"})
            self.assertEqual((status, r["error"]["param"]), (400, "strategy"))
            self.assertIn("summarise", r["error"]["message"])

    def test_auto_is_the_default(self):
        with Scripted(a_script()) as d:
            self.assertEqual(receipt(Talk(d).say("hello"))["strategy"], "auto")

    def test_a_stateless_request_is_refused_by_default(self):
        with Scripted(a_script()) as d:
            long = [system(SYSTEM)] + [user("word " * 100)] * 3
            status, r = d.post("/v1/chat/completions", {"messages": long})
            self.assertEqual((status, r["error"]["code"]), (400, "context_length_exceeded"))

    def test_a_strategy_may_change_from_turn_to_turn(self):
        with Scripted(a_script(512)) as d:
            t = Talk(d)
            for i, (line, _) in enumerate(filler("en")[:50]):
                t.say(line, hearth={"context": STRATEGIES[1 + i % 5]})
            self.assertGreaterEqual(sum(is_cut(r) for r in t.replies), 3)
            told = [m for r in t.replies for m in left(r)]
            self.assertEqual(len(told), len(set(told)))

    def test_a_cut_on_the_way_is_why_the_cache_missed(self):
        with Scripted(a_script(512)) as d:
            t = Talk(d, "window")
            lines = [line for line, _ in filler("en")]
            for line in lines[:6]:
                t.say(line)
            t.until_quiet()
            r = t.say(" ".join(lines[6:16]))  # longer than any turn before
            self.assertEqual(receipt(r)["cut"], "live")
            self.assertEqual(r["hearth"]["cache"]["miss"]["reason"], "cut")


if __name__ == "__main__":
    main()
