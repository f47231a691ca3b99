"""Templates that take thinking out of earlier answers: the window is printed anew each turn, and
what it has in common with the one before is not read again.
"""

import re
import unittest

from harness import Scripted, assistant, cached, content, main, system, user

STRIPPING = (
    "{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\n' ~ "
    "(m.content.split('</think>')[-1].lstrip('\n') if m.role == 'assistant' else m.content) ~ "
    "'<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
STRICT = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "{{ '<|im_start|>' ~ m.role ~ '\n' ~ m.content | trim ~ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


KNOWING = STRIPPING.replace(
    "{{ '<|im_start|>assistant\n' }}",
    "{{ '<|im_start|>assistant\n' ~ ('' if enable_thinking is not defined or enable_thinking "
    "else '<think>\n\n</think>\n\n') }}",
)
OPENING = STRIPPING.replace("assistant\n' }}", "assistant\n<think>\n' }}")


def n_ahead(d):
    """Tokens that were read in the background."""
    status, text = d.get("/metrics")
    return int(re.search(rb"^hearth_background_tokens_total (\d+)", text, re.M).group(1))


def thought(r):
    return r["choices"][0]["message"].get("reasoning_content")


class Stripping(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.d = Scripted(
            {
                "chat_template": STRIPPING,
                "rules": [
                    {"when": "plain", "pieces": ["Just ", "so."]},
                    {"when": "endless", "pieces": ["<think>\n", "a ", "b "]},
                ],
                "default": {
                    "pieces": ["<thi", "nk>\n", *["hm, "] * 60, "\n</th", "ink>\n", "\nYes", "."]
                },
            }
        )

    @classmethod
    def tearDownClass(cls):
        cls.d.stop()

    def test_what_is_before_the_answer_is_kept_and_the_reason_is_the_template(self):  # B04
        m = [system("s" * 50), user("a question " * 20)]
        for _ in range(3):
            r = self.d.chat(m)
            self.assertEqual(content(r), "Yes.")
            self.assertEqual(thought(r), ("hm, " * 60).strip())
            before = r["usage"]["prompt_tokens"]
            self.d.until_idle()
            m += [assistant(content(r)), user("and " * 50)]
            after = self.d.chat(m)
            cold = self.d.chat(m, hearth={"cache": False})
            self.assertEqual(content(after), content(cold))
            self.assertGreaterEqual(cached(after), before)
        self.d.check_blocks()

    def test_the_answer_without_its_thought_is_read_while_idle(self):
        m = [user("another question " * 20)]
        n = n_ahead(self.d)
        r = self.d.chat(m)
        before = r["usage"]["prompt_tokens"]
        self.d.until(lambda: n_ahead(self.d) > n, "the answer is read ahead")
        m += [assistant(content(r)), user("go on " * 50)]
        r = self.d.chat(m)
        self.assertGreater(cached(r), before + len("Yes."))
        self.assertIsNone(r["hearth"]["cache"]["miss"])

    def test_streams_tell_thought_and_answer_apart(self):
        with self.d.chat_stream([user("streamed")], stream_options={"include_usage": True}) as s:
            chunks = [c for c in s if isinstance(c, dict)]
        deltas = [c["choices"][0]["delta"] for c in chunks if c.get("choices")]
        self.assertEqual(
            "".join(d.get("reasoning_content") or "" for d in deltas), ("hm, " * 60).strip()
        )
        self.assertEqual("".join(d.get("content") or "" for d in deltas), "Yes.")
        kinds = [k for d in deltas for k in ("reasoning_content", "content") if d.get(k)]
        self.assertEqual(kinds, sorted(kinds, reverse=True))  # all of the thought comes first
        usage = chunks[-1]["usage"]["completion_tokens_details"]
        self.assertEqual(usage["reasoning_tokens"], 64)

    def test_an_answer_without_tags_is_an_answer(self):
        r = self.d.chat([user("plain")])
        self.assertEqual(content(r), "Just so.")
        self.assertIsNone(thought(r))
        self.assertEqual(r["usage"]["completion_tokens_details"]["reasoning_tokens"], 0)

    def test_a_thought_that_never_ends_is_all_there_is(self):
        r = self.d.chat([user("endless")])
        self.assertEqual((content(r), thought(r)), ("", "a b"))

    def test_responses_have_an_item_for_it(self):
        status, r = self.d.post("/v1/responses", {"input": "hello"})
        self.assertEqual(status, 200, r)
        self.assertEqual([i["type"] for i in r["output"]], ["reasoning", "message"])
        self.assertEqual(r["output"][0]["content"][0]["text"], ("hm, " * 60).strip())
        self.assertEqual(r["output"][1]["content"][0]["text"], "Yes.")
        self.assertEqual(r["usage"]["output_tokens_details"]["reasoning_tokens"], 64)
        status, again = self.d.post(
            "/v1/responses", {"input": "more", "previous_response_id": r["id"]}
        )
        self.assertEqual(status, 200, again)
        self.assertGreaterEqual(
            again["usage"]["input_tokens_details"]["cached_tokens"], r["usage"]["input_tokens"] - 1
        )

    def test_a_response_s_items_given_back_are_what_was_written(self):  # B37
        for question in ("hello", "plain", "endless"):
            body = {"input": question, "store": False, "max_output_tokens": 200}
            said = self.d.post("/v1/responses", body)[1]["output"]
            text = self.d.say([user(question)], max_tokens=200)
            thought = "".join(c["text"] for i in said[:-1] for c in i["content"])
            again = {"input": [user(question), *said, user("more")], "store": False}
            again["hearth"] = {"window": True}
            status, r = self.d.post("/v1/responses", again)
            self.assertEqual(status, 200, r)
            window = r["hearth"]["window"]
            self.assertEqual([m["role"] for m in window], ["user", "assistant", "user"])
            marks = said[-1].get("hearth", {}).get("thinking", {"before": "", "between": ""})
            whole = marks["before"] + thought + marks["between"] + text
            self.assertEqual(window[1]["content"], whole)
            self.assertEqual(whole.startswith("<think>\n"), question != "plain")
            c = self.d.post("/v1/conversations", {"items": [user(question), *said]})[1]["id"]
            kept = self.d.get(f"/v1/conversations/{c}/items?order=asc")[1]["data"][1]
            self.assertEqual([p["text"] for p in kept["content"]], [*[thought] * (
                question != "plain"), text])

    def test_a_thought_given_back_is_read_as_the_tokens_that_were_written(self):  # B03
        script = {
            "chat_template": "{# <think> </think> #}"
            + STRIPPING.replace("m.content.split('</think>')[-1].lstrip('\n')", "m.content"),
            "merges": ["2e 0a0a"],
            "default": {"pieces": ["<thi", "nk>\n", *["hm, "] * 60, "</th", "ink>", "Yes", ".",
                                   "\n\n", "So."]},
        }
        with Scripted(script) as d:
            r = d.post("/v1/responses", {"input": "hello", "store": False})[1]
            self.assertEqual([i["type"] for i in r["output"]], ["reasoning", "message"])
            n_read = r["usage"]["total_tokens"]
            body = {"input": [user("hello"), *r["output"], user("more")], "store": False}
            r = d.post("/v1/responses", body)[1]
            self.assertGreaterEqual(r["hearth"]["cache"]["tokens"], n_read - 2)

    def test_thoughts_that_belong_to_no_answer_are_refused(self):
        thought = {"type": "reasoning", "summary": [],
                   "content": [{"type": "reasoning_text", "text": "hm"}]}
        answer = {"role": "assistant", "content": "Yes."}
        with_part = {"role": "assistant", "content": [*thought["content"],
                                                      {"type": "output_text", "text": "Yes."}]}
        for items, param in (
            ([thought, user("x")], "input[1]"),
            ([user("x"), thought], "input[1]"),
            ([thought, thought, answer, user("x")], "input[1].type"),
            ([thought, with_part, user("x")], "input[1]"),
            ([{**thought, "content": "hm"}, answer, user("x")], "content"),
            ([{**thought, "content": ["hm"]}, answer, user("x")], "input[0].content"),
            ([{**thought, "encrypted_content": "x"}, answer, user("x")], "input[0]"),
            ([{**with_part, "role": "user"}], "input[0].content"),
        ):
            status, r = self.d.post("/v1/responses", {"input": items, "store": False})
            self.assertEqual((status, r["error"]["param"] if status == 400 else r), (400, param))
        for nothing in ({"content": []}, {"content": None, "encrypted_content": None}):
            body = {"input": [user("x"), {**thought, **nothing}, answer, user("y")]}
            self.assertEqual(self.d.post("/v1/responses", {**body, "store": False})[0], 200)

    def test_a_switch_that_the_template_has_not_is_refused(self):
        for body in (
            {"reasoning_effort": "none"},
            {"chat_template_kwargs": {"enable_thinking": False}},
        ):
            status, r = self.d.post("/v1/chat/completions", {"messages": [user("q")], **body})
            self.assertEqual((status, r["error"]["code"]), (400, "unsupported_parameter"))
            self.assertIn("no switch", r["error"]["message"])
        status, r = self.d.post(
            "/v1/chat/completions", {"messages": [user("q")], "reasoning_effort": "high"}
        )
        self.assertEqual(status, 200)


class Switch(unittest.TestCase):
    def test_effort_and_kwargs_reach_the_template(self):
        d = Scripted({"chat_template": KNOWING, "default": {"pieces": ["Yes."]}})
        try:
            base = d.chat([user("q")])["usage"]["prompt_tokens"]
            for body, more in (
                ({"reasoning_effort": "high"}, False),
                ({"reasoning_effort": "none"}, True),
                ({"chat_template_kwargs": {"enable_thinking": False}}, True),
                (
                    {"chat_template_kwargs": {"enable_thinking": True}, "reasoning_effort": "none"},
                    False,
                ),
            ):
                r = d.chat([user("q")], **body)
                self.assertEqual(r["usage"]["prompt_tokens"] > base, more, body)
            status, r = d.post("/v1/responses", {"input": "q", "reasoning": {"effort": "none"}})
            self.assertEqual(status, 200, r)
            self.assertGreater(r["usage"]["input_tokens"], base)
            self.assertEqual(r["reasoning"]["effort"], "none")
            for body in (
                {"reasoning_effort": "much"},
                {"chat_template_kwargs": {"frob": 1}},
                {"chat_template_kwargs": {"enable_thinking": 1}},
            ):
                status, r = d.post("/v1/chat/completions", {"messages": [user("q")], **body})
                self.assertEqual(status, 400, body)
        finally:
            d.stop()

    def test_a_prompt_that_opens_the_tag_is_thought_from_the_beginning(self):
        d = Scripted(
            {"chat_template": OPENING, "default": {"pieces": ["deep", "\n</think>\n\n", "Yes."]}}
        )
        try:
            r = d.chat([user("q")])
            self.assertEqual((thought(r), content(r)), ("deep", "Yes."))
            self.assertEqual(r["usage"]["completion_tokens_details"]["reasoning_tokens"], 2)
        finally:
            d.stop()


MAGISTRAL = STRIPPING.replace("m.content.split('</think>')[-1].lstrip('\n')", "m.content").replace(
    "{% for", "{% set marks = '[THINK]' + '[/THINK]' %}{% for", 1
)


BUILT = (
    "{% set open, close = '<{}>'.format('muse:1'), '</{}>'.format('muse:1') %}"
    "{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\n' ~ "
    "(open ~ m.reasoning_content ~ close if loop.last and m.reasoning_content) ~ m.content ~ "
    "'<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


class Apart(unittest.TestCase):
    """Stored answers show what was thought apart, by the marks of the model's family."""

    def items(self, template, pieces):
        d = Scripted({"chat_template": template, "default": {"pieces": pieces}})
        try:
            status, c = d.post("/v1/conversations", {})
            d.post("/v1/responses", {"conversation": c["id"], "input": "q"})
            status, r = d.get(f"/v1/conversations/{c['id']}/items")
            item = r["data"][0]
            status, c = d.post("/v1/conversations", {"items": [item]})
            status, r = d.get(f"/v1/conversations/{c['id']}/items")
            again = r["data"][0]
            for key in ("content", "role"):
                self.assertEqual(again[key], item[key])
            self.assertEqual(again["hearth"].get("thinking"), item["hearth"].get("thinking"))
            return [(p["type"], p["text"]) for p in item["content"]], item["hearth"].get("thinking")
        finally:
            d.stop()

    def test_items_show_the_thought_as_a_part_and_lose_nothing(self):
        parts, marks = self.items(STRIPPING, ["<think>\n", "hm", "\n</think>\n\n", "Yes."])
        self.assertEqual(parts, [("reasoning_text", "hm"), ("output_text", "Yes.")])
        self.assertEqual(marks, {"before": "<think>\n", "between": "\n</think>\n\n"})

    def test_items_show_a_thought_that_the_prompt_opened(self):
        parts, marks = self.items(OPENING, ["hm", "\n</think>\n\n", "Yes."])
        self.assertEqual(parts, [("reasoning_text", "hm"), ("output_text", "Yes.")])
        self.assertEqual(marks, {"before": "", "between": "\n</think>\n\n"})

    def test_a_thought_that_the_prompt_opened_and_nothing_closed_is_no_answer(self):
        parts, marks = self.items(OPENING, ["\n", "a ", "b "])
        self.assertEqual(parts, [("reasoning_text", "a b"), ("output_text", "")])
        self.assertEqual(marks, {"before": "\n", "between": " "})

    def test_every_way_to_ask_tells_an_unclosed_thought_alike(self):
        d = Scripted(
            {
                "chat_template": OPENING,
                "default": {"pieces": ["deep ", "and ", "deeper ", "</think>", "Yes."]},
            }
        )
        try:
            few = {"max_tokens": 3}
            r = d.chat([user("q")], **few)
            self.assertEqual((thought(r), content(r)), ("deep and deeper", ""))
            self.assertEqual(r["choices"][0]["finish_reason"], "length")
            with d.chat_stream([user("q")], **few) as s:
                chunks = [c for c in s if isinstance(c, dict)]
            deltas = [c["choices"][0]["delta"] for c in chunks if c.get("choices")]
            for key, want in (("reasoning_content", "deep and deeper"), ("content", "")):
                self.assertEqual("".join(x.get(key) or "" for x in deltas), want)
            c = d.post("/v1/conversations", {})[1]["id"]
            body = {"conversation": c, "input": "q", "max_output_tokens": 3}
            status, r = d.post("/v1/responses", body)
            self.assertEqual((status, r["status"]), (200, "incomplete"), r)
            self.assertEqual(r["output"][0]["content"][0]["text"], "deep and deeper")
            item = d.get(f"/v1/conversations/{c}/items")[1]["data"][0]
            self.assertEqual(
                [(p["type"], p["text"]) for p in item["content"]],
                [("reasoning_text", "deep and deeper"), ("output_text", "")],
            )
        finally:
            d.stop()

    def test_items_without_a_thought_are_as_they_were(self):
        parts, marks = self.items(STRIPPING, ["Yes ", "<think>"])
        self.assertEqual((parts, marks), ([("output_text", "Yes <think>")], None))

    def test_other_families_have_marks_of_their_own(self):
        parts, marks = self.items(MAGISTRAL, ["[THINK]", "hm", "[/THINK]", "Yes."])
        self.assertEqual(parts, [("reasoning_text", "hm"), ("output_text", "Yes.")])
        self.assertEqual(marks, {"before": "[THINK]", "between": "[/THINK]"})

    def test_marks_that_a_template_puts_together_are_found_by_printing(self):
        parts, marks = self.items(BUILT, ["<muse:1>", "hm", "</muse:1>\n", "Yes."])
        self.assertEqual(parts, [("reasoning_text", "hm"), ("output_text", "Yes.")])
        self.assertEqual(marks, {"before": "<muse:1>", "between": "</muse:1>\n"})
        parts, marks = self.items(
            BUILT.replace("assistant\n' }}", "assistant\n<muse:1>' }}"), ["hm", "</muse:1>", "Yes."]
        )
        self.assertEqual(parts, [("reasoning_text", "hm"), ("output_text", "Yes.")])

    def test_their_thoughts_are_told_apart_and_leave_the_next_prompt(self):
        d = Scripted(
            {
                "chat_template": MAGISTRAL,
                "default": {"pieces": ["[THINK]", "hm", "[/THINK]", "Yes."]},
            }
        )
        try:
            r = d.chat([user("q")])
            self.assertEqual((thought(r), content(r)), ("hm", "Yes."))
            said = [user("q"), assistant("[THINK]hm[/THINK]Yes."), user("and?")]
            bare = [user("q"), assistant("Yes."), user("and?")]
            n = [d.chat(m)["usage"]["prompt_tokens"] for m in (said, bare)]
            self.assertEqual(n[0], n[1])
        finally:
            d.stop()


class Strict(unittest.TestCase):
    def test_users_in_a_row_are_joined_and_other_orders_say_what_the_template_says(self):  # B36
        d = Scripted({"chat_template": STRICT, "default": {"pieces": ["fine"]}})
        try:
            r = d.chat([system("s"), user("one"), user("two")])
            self.assertEqual(content(r), "fine")
            status, r = d.post(
                "/v1/chat/completions", {"messages": [assistant("I begin"), user("u")]}
            )
            self.assertEqual(status, 400)
            self.assertIn("roles must alternate", r["error"]["message"])
        finally:
            d.stop()


if __name__ == "__main__":
    main()
