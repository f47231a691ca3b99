"""hearth ask: words and pipes, the stream, --json, and what it may not do to a terminal."""

import json
import os
import signal
import subprocess
import unittest

from hearth import Hearth, environment
from harness import Scripted, main

SLOW = {
    "pace_us": 3000,
    "rules": [
        {"when": "count", "pieces": ["1 ", "2 ", "3 "]},
        {"when": "unicode", "pieces": ["é", "你好", "🦙"]},
        {
            "when": "escape",
            "pieces": ["a", "\u001b]0;title\u0007", "\u001b[2J", "\u009b1m", "b\r\n", "c"],
        },
        {"when": "endless", "pieces": ["on ", "and "], "then": "forever"},
        {"when": "broken", "pieces": ["one ", "two "], "then": "forever", "error_at": 5},
        {"when": "newline", "pieces": ["line", "\n"]},
        {"when": "nothing", "pieces": []},
    ],
    "default": {"pieces": ["Hello", "."]},
}


class Ask(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.d = Scripted(SLOW)
        cls.h = Hearth(cls.d.socket_path)

    @classmethod
    def tearDownClass(cls):
        cls.h.close()
        cls.d.stop()

    def test_the_words_are_the_question_and_stdout_the_answer(self):
        r = self.h.run("ask", "please", "count")
        self.assertEqual((r.code, r.out, r.err), (0, "1 2 3 \n", ""))

    def test_a_pipe_is_the_question(self):
        self.assertEqual(self.h.run("ask", stdin="please count\n").out, "1 2 3 \n")

    def test_the_words_come_before_the_pipe(self):
        r = self.h.run("ask", "--json", "co", stdin="unt\n")
        self.assertEqual(json.loads(r.out)["text"], "Hello.", "words and pipe are two paragraphs")
        with_pipe = json.loads(self.h.run("ask", "--json", "ab", stdin="cd\n").out)
        whole = json.loads(self.h.run("ask", "--json", "ab\n\ncd").out)
        self.assertEqual(with_pipe["usage"]["prompt_tokens"], whole["usage"]["prompt_tokens"])

    def test_words_alone_with_stdin_closed(self):
        p = subprocess.Popen(
            ["/bin/sh", "-c", 'exec "$@" <&-', "sh", *self.h.argv(["ask", "count"])],
            env=environment(self.h.home),
            stdout=subprocess.PIPE,
        )
        self.assertEqual(p.communicate()[0], b"1 2 3 \n")
        self.assertEqual(p.returncode, 0)

    def test_one_newline_ends_the_answer(self):
        self.assertEqual(self.h.run("ask", "newline").out, "line\n")
        self.assertEqual(self.h.run("ask", "nothing").out, "")

    def test_json_is_one_object(self):
        r = self.h.run("ask", "--json", "count")
        self.assertEqual(r.code, 0, r)
        j = json.loads(r.out)
        self.assertEqual(r.out.count("\n"), 1)
        self.assertEqual((j["text"], j["finish_reason"]), ("1 2 3 ", "stop"))
        self.assertEqual(j["usage"]["completion_tokens"], 4)
        self.assertIn("cache", j["hearth"])
        self.assertEqual(self.h.run("--json", "ask", "count").out.count("{"), r.out.count("{"))

    def test_the_token_limit_is_said_and_no_error(self):
        r = self.h.run("ask", "--max-tokens", "2", "endless")
        self.assertEqual((r.code, r.out), (0, "on and \n"))
        self.assertIn("token limit", r.err)

    def test_text_that_begins_with_a_dash(self):
        self.assertEqual(self.h.run("ask", "--", "--count").out, "1 2 3 \n")
        r = self.h.run("ask", "--count")
        self.assertEqual(r.code, 2)
        self.assertIn("goes after --", r.err)

    def test_options_reach_the_daemon(self):
        r = self.h.run(
            "ask",
            "--json",
            "--seed",
            "7",
            "--temperature",
            "1.5",
            "--top-p",
            "0.9",
            "--min-p",
            "0.1",
            "--repetition-penalty",
            "1.2",
            "--system",
            "Be count.",
            "--context",
            "error",
            "hi",
        )
        self.assertEqual(r.code, 0, r)
        r = self.h.run("ask", "--context", "nonsense", "hi")
        self.assertEqual(r.code, 1, r)
        self.assertIn("nonsense", r.err)

    def test_another_model_than_asked_for_is_named(self):
        r = self.h.run("ask", "--model", "gpt-7", "count")
        self.assertEqual(r.code, 0)
        self.assertIn("there is no model gpt-7 here", r.err)

    def test_nothing_is_stored(self):
        self.h.run("ask", "count")
        self.assertEqual(self.h.run("list").out, "")

    def test_the_answer_streams(self):
        p = self.h.start("ask", "endless")
        try:
            self.assertEqual(
                p.stdout.read(10), b"on and on "
            )  # comes while the answer is still being written
            self.assertIsNone(p.poll())
        finally:
            p.send_signal(signal.SIGINT)
            out, err = p.communicate()
        self.assertEqual(p.returncode, 130, err)
        self.assertTrue(out.endswith(b"\n"))

    def test_ctrl_c_stops_the_daemons_turn(self):
        p = self.h.start("ask", "endless")
        p.stdout.read(10)
        p.send_signal(signal.SIGINT)
        p.communicate()
        self.d.until_idle()
        n = self.d.n_generated()
        self.h.run("status")
        self.assertEqual(self.d.n_generated(), n)

    def test_a_reader_that_leaves_ends_it_quietly(self):
        p = self.h.start("ask", "endless")
        p.stdout.read(10)
        p.stdout.close()
        err = p.stderr.read()
        self.assertEqual((p.wait(), err), (141, b""))
        p.stderr.close()
        self.d.until_idle()

    def test_stdout_that_is_full_is_said(self):
        with open("/dev/full", "wb") as full:
            p = self.h.start("ask", "endless", stdout=full)
            _, err = p.communicate()
        self.assertEqual(p.returncode, 1)
        self.assertIn(b"No space left on device", err)

    def test_an_error_in_the_stream(self):
        r = self.h.run("ask", "broken")
        self.assertEqual(r.code, 1, r)
        self.assertTrue(r.out.startswith("one two "), r)
        self.assertRegex(r.err, r"^hearth: .+")
        j = json.loads(self.h.run("ask", "--json", "broken").out)
        self.assertTrue(j["error"]["message"])

    def test_the_largest_questions_get_a_sentence(self):
        for size in (1 << 20, 8 << 20):
            r = self.h.run("ask", stdin=b"a b\n" * (size // 4))
            self.assertEqual((r.code, r.out), (1, ""), r)
            self.assertRegex(r.err, r"^hearth: .*(tokens|bytes)")

    def test_unicode(self):
        self.assertEqual(self.h.run("ask", "unicode").out, "é你好🦙\n")

    def test_the_bytes_of_an_answer_are_kept_for_a_pipe(self):
        self.assertIn("\u001b]0;title\u0007", self.h.run("ask", "escape").out)

    def test_escapes_in_an_answer_do_not_drive_a_terminal(self):
        p = self.h.person("ask", "escape")
        self.assertEqual(p.end(), 0)
        self.assertNotIn(b"\x1b", p.seen)
        self.assertNotIn(b"\x07", p.seen)
        self.assertNotIn(b"\xc2\x9b", p.seen)
        self.assertIn("a\ufffd]0;title\ufffd\ufffd[2J\ufffd1mb\r\nc".encode(), p.seen)

    def test_a_long_prompt_shows_progress_on_a_terminal_only(self):
        with Scripted({"prefill_us_per_token": 2000, "default": {"pieces": ["ok"]}}) as d:
            h = Hearth(d.socket_path)
            # Each begins differently, so that no cache makes it short.
            p = h.person("ask", "one " * 120)
            p.expect(rb"waiting, \d+ s \(\d+ tokens to read\)")
            p.expect(rb"ok\r\n")
            p.end()
            self.assertIn(b"\x1b[2m", p.seen)
            p = h.person("ask", "two " * 120, NO_COLOR="1")
            p.expect(rb"\d+ tokens to read")
            p.end()
            self.assertNotIn(b"\x1b[2m", p.seen)
            p = h.person("ask", "six " * 120, TERM="dumb")
            p.end()
            self.assertEqual(p.seen, b"ok\r\n")
            self.assertEqual(h.run("ask", "ten " * 120).err, "")
            h.close()


class Refused(unittest.TestCase):
    """Questions that aren't any are refused before anything is sent."""

    def setUp(self):
        self.h = Hearth("/nonexistent/socket")

    def tearDown(self):
        self.h.close()

    def refused(self, *words, stdin=b"", why=""):
        r = self.h.run("ask", *words, stdin=stdin)
        self.assertEqual(r.code, 2, r)
        self.assertIn(why, r.err)

    def test_no_question(self):
        self.refused(why="what is the question?")
        self.refused("", why="what is the question?")
        self.refused(stdin=b"\n\n", why="what is the question?")

    def test_no_text(self):
        self.refused(stdin=b"ab\xff", why="no UTF-8 text (byte 3)")
        self.refused(stdin=b"ab\0c", why="NUL (byte 3)")

    def test_too_long(self):
        self.refused(stdin=b"x" * ((8 << 20) + 1), why="longer than 8388608 bytes")

    def test_numbers_name_their_range(self):
        for option, value, why in (
            ("--temperature", "2.1", "from 0 to 2"),
            ("--temperature", "0x1", "from 0 to 2"),
            ("--temperature", "0,7", "from 0 to 2"),
            ("--temperature", "inf", "from 0 to 2"),
            ("--top-p", "-1", "from 0 to 1"),
            ("--min-p", "", "from 0 to 1"),
            ("--repetition-penalty", "0", "from 0.01 to 10"),
            ("--seed", "-1", "from 0 to 90071"),
            ("--seed", "1.5", "whole number"),
            ("--max-tokens", "0", "from 1"),
            ("--max-tokens", "99999999999999999999", "from 1"),
        ):
            with self.subTest(option=option, value=value):
                self.refused(f"{option}={value}", "hi", why=why)


THINKING = (
    "{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\n' ~ m.content.split('</think>')[-1] ~ "
    "'<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


class Thinking(unittest.TestCase):
    def test_what_is_thought_is_shown_dimly_and_is_no_part_of_the_answer(self):
        pieces = ["<think>", "hm", " hm", "</think>", "\n\n", "Yes."]
        d = Scripted({"chat_template": THINKING, "default": {"pieces": pieces}})
        h = Hearth(d.socket_path)
        try:
            r = h.run("ask", "q")
            self.assertEqual((r.code, r.out, r.err), (0, "Yes.\n", ""))
            self.assertEqual(json.loads(h.run("ask", "--json", "q").out)["text"], "Yes.")
            p = h.person("ask", "q")
            p.expect(rb"\x1b\[2mhm")
            p.expect(rb"Yes\.")
            p.end()
        finally:
            h.close()
            d.stop()


if __name__ == "__main__":
    main()
