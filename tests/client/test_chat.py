"""hearth chat: at a terminal and at a pipe."""

import json
import os
import signal
import stat
import termios
import unittest

from hearth import Hearth
from harness import Scripted, main

SCRIPT = {
    "pace_us": 2000,
    "rules": [
        {"when": "count", "pieces": ["1 ", "2 ", "3 "]},
        {"when": "endless", "pieces": ["on ", "and "], "then": "forever"},
        {"when": "escape", "pieces": ["a", "\u001b[2J", "b"]},
        {"when": "broken", "pieces": ["one ", "two "], "then": "forever", "error_at": 5},
        {"when": "first\nsecond", "pieces": ["two lines"]},
        {"when": "grüße 你好", "pieces": ["hallo"]},
        {"when": "dice", "pieces": ["one die"], "spread": True},
    ],
    "default": {"pieces": ["Hello", "."]},
}


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.d = Scripted(SCRIPT)

    @classmethod
    def tearDownClass(cls):
        cls.d.stop()

    def setUp(self):
        self.h = Hearth(self.d.socket_path)
        for c in self.conversations():
            self.d.request("DELETE", f"/v1/conversations/{c['id']}")

    def tearDown(self):
        self.h.close()

    def conversations(self):
        return self.d.get("/v1/conversations?limit=100")[1]["data"]

    def items(self):
        """(role, text, status) of the newest conversation's path."""
        c = self.conversations()[0]["id"]
        return [
            (i["role"], i["content"][0]["text"], i["hearth"]["status"])
            for i in self.d.get(f"/v1/conversations/{c}/items?order=asc&limit=100")[1]["data"]
        ]

    def lines(self, *lines, options=()):
        return self.h.run("chat", *options, stdin="".join(line + "\n" for line in lines))


class Pipe(Case):
    def test_each_line_is_answered_in_one_conversation(self):
        r = self.lines("hi", "count", "")
        self.assertEqual((r.code, r.out, r.err), (0, "Hello.\n1 2 3 \n", ""))
        self.assertEqual(
            self.items(),
            [
                ("user", "hi", "stored"),
                ("assistant", "Hello.", "complete"),
                ("user", "count", "stored"),
                ("assistant", "1 2 3 ", "complete"),
            ],
        )
        self.assertEqual(len(self.conversations()), 1)

    def test_a_backslash_continues_the_message(self):
        self.assertEqual(self.lines("first\\", "second").out, "two lines\n")
        self.assertEqual(self.items()[0][1], "first\nsecond")

    def test_a_message_at_the_end_without_a_newline(self):
        self.assertEqual(self.h.run("chat", stdin="count").out, "1 2 3 \n")

    def test_unicode(self):
        self.assertEqual(self.lines("grüße 你好").out, "hallo\n")
        self.assertEqual(self.items()[0][1], "grüße 你好")

    def test_the_first_failure_ends_it(self):
        r = self.lines("hi", "broken", "count")
        self.assertEqual(r.code, 1, r)
        self.assertTrue(r.out.startswith("Hello.\none two "), r)
        self.assertNotIn("1 2 3", r.out)
        r = self.lines("/open conv_" + "0" * 32, "hi")
        self.assertEqual(r.code, 5, r)
        self.assertEqual(r.out, "")

    def test_no_text_is_refused_and_stores_nothing(self):
        for bad, why in ((b"a\xffb\n", "UTF-8"), (b"a\0b\n", "NUL")):
            r = self.h.run("chat", stdin=bad)
            self.assertEqual(r.code, 2, r)
            self.assertIn(why, r.err)
        self.assertEqual(self.conversations(), [])

    def test_too_long_a_message_is_refused(self):
        r = self.h.run("chat", stdin=b"x" * ((8 << 20) + 1) + b"\n")
        self.assertEqual(r.code, 2, r)
        self.assertIn("was not sent", r.err)

    def test_a_refused_first_message_leaves_no_conversation(self):
        r = self.lines("word " * 5000)
        self.assertEqual(r.code, 1, r)
        self.assertIn("begin a new conversation", r.err)
        self.assertEqual(self.conversations(), [])

    def test_a_refused_later_message_leaves_the_conversation_as_it_was(self):
        r = self.lines("hi", "word " * 5000)
        self.assertEqual((r.code, r.out), (1, "Hello.\n"))
        self.assertEqual([i[1] for i in self.items()], ["hi", "Hello."])

    def test_json_is_a_response_a_line(self):
        r = self.lines("hi", "count", options=["--json"])
        self.assertEqual(r.code, 0, r)
        responses = [json.loads(line) for line in r.out.splitlines()]
        self.assertEqual(
            [x["output"][0]["content"][0]["text"] for x in responses], ["Hello.", "1 2 3 "]
        )
        self.assertEqual(responses[1]["status"], "completed")

    def test_the_second_turn_is_cached(self):
        r = self.lines("hi", "count", options=["--json"])
        first, second = (json.loads(line)["usage"] for line in r.out.splitlines())
        self.assertGreaterEqual(
            second["input_tokens_details"]["cached_tokens"],
            first["input_tokens"] + first["output_tokens"] - 2,
        )

    def test_the_clients_sampling_defaults(self):
        r = json.loads(self.lines("hi", options=["--json"]).out)
        self.assertEqual((r["temperature"], r["top_p"]), (0.7, 1))
        r = json.loads(self.lines("hi", options=["--json", "--temperature", "0.1"]).out)
        self.assertEqual(r["temperature"], 0.1)

    def test_words_are_refused(self):
        r = self.h.run("chat", "hello")
        self.assertEqual(r.code, 2)
        self.assertIn("hearth ask", r.err)
        self.assertEqual(self.h.run("chat", "--continue", "--open", "1").code, 2)


class Commands(Case):
    def test_new_begins_another_conversation(self):
        self.lines("hi", "/new", "count")
        self.assertEqual(len(self.conversations()), 2)
        self.assertEqual([i[1] for i in self.items()], ["count", "1 2 3 "])

    def test_system_begins_one_with_that_text(self):
        r = self.lines("/system", "/system Be brief.", "hi", "/system")
        self.assertEqual(r.out, "(the model's own default)\nHello.\nBe brief.\n")
        self.assertEqual(self.items()[0], ("system", "Be brief.", "stored"))
        self.lines("hi", options=["--system", "Be long."])
        self.assertEqual(self.items()[0][:2], ("system", "Be long."))

    def test_regen_replaces_the_answer_and_keeps_the_question(self):
        self.lines("count", "/regen")
        self.assertEqual(
            [i[:2] for i in self.items()], [("user", "count"), ("assistant", "1 2 3 ")]
        )
        self.assertEqual(
            self.conversations()[0]["hearth"]["n_messages"], 3, "the first answer is a branch"
        )

    def test_regen_gives_another_answer_though_a_seed_was_given(self):
        options = ["--seed", "1", "--temperature", "2", "--min-p", "0", "--json"]
        r = self.lines("dice", *["/regen"] * 8, options=options)
        texts = [json.loads(line)["output"][0]["content"][0]["text"] for line in r.out.splitlines()]
        self.assertEqual(len(texts), 9, r)
        self.assertGreater(len(set(texts[1:])), 1)
        again = json.loads(self.lines("dice", options=options).out)
        self.assertEqual(again["output"][0]["content"][0]["text"], texts[0])

    def test_edit_replaces_the_question(self):
        self.lines("hi", "count", "/edit what now")
        self.assertEqual([i[1] for i in self.items()], ["hi", "Hello.", "what now", "Hello."])
        self.lines("hi", "/edit count")
        self.assertEqual([i[1] for i in self.items()], ["count", "1 2 3 "])

    def test_edit_of_the_first_question_keeps_the_system_text(self):
        self.lines("/system Be brief.", "hi", "/edit count")
        self.assertEqual([i[1] for i in self.items()], ["Be brief.", "count", "1 2 3 "])

    def test_regen_and_edit_need_a_question(self):
        for line in ("/regen", "/edit hi"):
            r = self.lines(line)
            self.assertEqual(r.code, 5, r)
            self.assertIn("no question yet", r.err)
        self.assertEqual(self.lines("hi", "/edit").code, 2)

    def test_open_goes_on(self):
        self.lines("hi")
        first = self.conversations()[0]["id"]
        self.lines("count")
        for name in (first, first[:13], first[5:11], "2"):
            r = self.lines("/open " + name, "/stats")
            self.assertIn("> hi\n\nHello.\n", r.out)
        self.lines("/open 2", "count")
        self.assertEqual([i[1] for i in self.items()], ["hi", "Hello.", "count", "1 2 3 "])
        r = self.lines("count", options=["--open", first[:13]])
        self.assertEqual(r.out.splitlines()[-1], "1 2 3 ")

    def test_continue_takes_the_newest(self):
        r = self.lines("hi", options=["--continue"])
        self.assertEqual(r.code, 5, r)
        self.assertIn("no conversation to continue", r.err)
        self.lines("hi")
        self.lines("count", options=["--continue"])
        self.assertEqual([i[1] for i in self.items()], ["hi", "Hello.", "count", "1 2 3 "])

    def test_list_help_stats_quit(self):
        r = self.lines("hi", "/list", "/help", "/stats", "/quit", "count")
        self.assertEqual(r.code, 0, r)
        for word in (
            "/new",
            "/open ID",
            "/regen",
            "Ctrl-D",
            "from the cache",
            "turns 1,",
            "  hi\n",
        ):
            self.assertIn(word, r.out)
        self.assertNotIn("1 2 3", r.out)
        self.assertEqual(self.lines("/stats").out, "no answer yet\n")

    def test_an_unknown_command_is_no_message(self):
        r = self.lines("/etc/passwd")
        self.assertEqual(r.code, 2)
        self.assertIn("there is no command /etc/passwd", r.err)
        self.assertEqual(self.conversations(), [])
        self.assertEqual(self.lines(" /etc/passwd").out, "Hello.\n")


class Terminal(Case):
    def person(self, *options, **env):
        p = self.h.person("chat", *options, **env)
        p.expect(rb"/help lists the commands")
        p.expect(rb"> ")
        return p

    def leave(self, p):
        p.say("/quit")
        self.assertEqual(p.end(), 0, p.seen)

    def test_a_chat(self):
        p = self.person()
        p.say("hi")
        p.expect(rb"Hello\.\r\n")
        p.expect(rb"> ")
        p.say("count")
        p.expect(rb"1 2 3 \r\n")
        p.expect(rb"> ")
        self.leave(p)

    def test_ctrl_c_stops_the_answer_and_not_the_program(self):
        p = self.person()
        p.say("endless")
        p.expect(rb"on and on ")
        p.type(b"\x03")
        p.expect(rb"\[stopped\]")
        p.expect(rb"> ")
        self.d.until_idle()
        n = self.d.n_generated()
        p.say("count")
        p.expect(rb"1 2 3 \r\n")
        p.expect(rb"> ")
        self.assertEqual(self.d.n_generated(), n + 4)
        self.leave(p)
        items = self.items()
        self.assertEqual(items[1][0::2], ("assistant", "interrupted"))
        self.assertTrue(items[1][1].startswith("on and on "))
        self.assertIn("── assistant (interrupted)\non and on ", self.h.run("show", "1").out)

    def test_ctrl_c_at_the_prompt_clears_the_line(self):
        p = self.person()
        p.type(b"half a li")
        p.expect(rb"half a li")
        p.type(b"\x03")
        p.expect(rb"\n.*> ")
        p.say("count")
        p.expect(rb"1 2 3 \r\n")
        p.expect(rb"> ")
        self.assertEqual(self.items()[0][1], "count")
        self.leave(p)

    def test_several_ctrl_c_at_the_prompt_do_not_reach_the_next_answer(self):
        p = self.person()
        for _ in range(3):
            p.type(b"\x03")
            p.expect(rb"\n.*> ")
        p.say("count")
        p.expect(rb"1 2 3 \r\n")
        p.expect(rb"> ")
        self.leave(p)

    def test_lines_that_go_on(self):
        p = self.person()
        p.say("first\\")
        p.expect("… ".encode())
        p.say("second")
        p.expect(rb"two lines\r\n")
        p.expect(rb"> ")
        self.leave(p)

    def test_a_paste_of_several_lines_is_one_message(self):
        p = self.person()
        self.assertIn(b"\x1b[?2004h", p.seen)
        p.type(b"\x1b[200~first\rseco\x01\x1b[And\x1b[201~")
        p.expect(rb"nd")
        p.say("")
        p.expect(rb"Hello\.\r\n.*> ")
        self.assertEqual(self.items()[0][1], "first\nseco\u0001\u001b[And")
        p.type("\x1b[200~grüße \x1b[201~".encode())
        p.say("你好")
        p.expect(rb"hallo\r\n.*> ")
        self.leave(p)
        self.assertEqual(p.seen.count(b"\x1b[?2004h"), p.seen.count(b"\x1b[?2004l"))

    def test_edit_offers_the_old_words(self):
        p = self.person()
        p.say("hi")
        p.expect(rb"Hello\.\r\n.*> ")
        p.say("/edit")
        p.expect(rb"edit> .*hi")
        p.say(" there, count")
        p.expect(rb"1 2 3 \r\n")
        p.expect(rb"> ")
        self.assertEqual([i[1] for i in self.items()], ["hi there, count", "1 2 3 "])
        self.leave(p)

    def test_edit_of_several_lines_and_control_characters(self):
        status, c = self.d.post(
            "/v1/conversations",
            {
                "items": [
                    {"type": "message", "role": "user", "content": "first\nseco\u0001\u001bnd"},
                    {"type": "message", "role": "assistant", "content": "x"},
                ]
            },
        )
        p = self.person("--continue")
        p.say("/edit")
        p.expect(rb"edit> .*nd")
        p.say(" count")
        p.expect(rb"1 2 3 \r\n")
        p.expect(rb"> ")
        self.assertEqual(self.items()[0][1], "first\nseco\u0001\u001bnd count")
        self.leave(p)

    def test_a_failure_does_not_end_it(self):
        p = self.person()
        p.say("broken")
        p.expect(rb"hearth: ")
        p.expect(rb"> ")
        p.say("/nonsense")
        p.expect(rb"there is no command /nonsense")
        p.expect(rb"> ")
        p.say("count")
        p.expect(rb"1 2 3 \r\n")
        p.expect(rb"> ")
        self.leave(p)

    def test_unicode_is_edited_by_character(self):
        for locale in ("C.UTF-8", "C"):
            p = self.person(LC_ALL=locale)
            p.type("grüße 你好x".encode())
            p.type(b"\x7f")
            p.say("")
            p.expect(rb"hallo\r\n")
            p.expect(rb"> ")
            self.leave(p)
            self.assertEqual(self.items()[0][1], "grüße 你好")

    def test_escapes_do_not_drive_the_terminal(self):
        p = self.person()
        mark = len(p.seen)
        p.say("escape")
        p.expect("a\ufffd\\[2Jb\r\n".encode())
        self.assertNotIn(b"\x1b[2J", p.since(mark))
        self.leave(p)
        p = self.h.person("show", "1")
        p.end()
        self.assertNotIn(b"\x1b", p.seen)

    def test_titles_do_not_drive_the_terminal_and_fit_it(self):
        self.d.post("/v1/conversations", {"metadata": {"title": "a\u001b[2Jb\nc " + "你" * 100}})
        p = self.h.person("list")
        p.end()
        self.assertNotIn(b"\x1b", p.seen)
        rows = p.seen.decode().splitlines()
        self.assertEqual(len(rows), 1)
        self.assertTrue(rows[0].endswith("…"))
        self.assertLessEqual(sum(2 if c == "你" else 1 for c in rows[0]), 80)

    def test_lines_are_remembered_privately(self):
        p = self.person()
        p.say("count")
        p.expect(rb"1 2 3 \r\n")
        p.expect(rb"> ")
        self.leave(p)
        path = os.path.join(self.h.home, "state", "hearth", "lines")
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        p = self.person()
        p.type(b"\x1b[A")  # up: /quit
        p.expect(rb"/quit")
        p.type(b"\x1b[A")
        p.expect(rb"count")
        p.say("")
        p.expect(rb"1 2 3 \r\n")
        p.expect(rb"> ")
        self.leave(p)

    def test_no_colour_when_not_wanted(self):
        p = self.person(NO_COLOR="1")
        p.say("count")
        p.expect(rb"1 2 3 \r\n")
        p.expect(rb"> ")
        self.leave(p)
        self.assertNotRegex(p.seen, rb"\x1b\[[0-9;]*2m")

    def test_a_daemon_that_ends_does_not_end_the_chat(self):
        with Scripted(SCRIPT) as d:
            h = Hearth(d.socket_path)
            p = h.person("chat")
            p.expect(rb"> ")
            d.kill()
            p.say("count")
            p.expect(rb"no daemon: nobody answers")
            p.expect(rb"> ")
            d.start()
            p.say("count")
            p.expect(rb"1 2 3 \r\n.*> ")
            self.leave(p)
            h.close()

    def test_ctrl_d_leaves(self):
        p = self.person()
        # The prompt is there a moment before the terminal is raw: a Ctrl-D in between is lost.
        while p.read_some(0.1):
            p.type(b"\x04")
        self.assertEqual(p.end(), 0, p.seen)

    def test_termination_leaves_the_terminal_as_it_was(self):
        p = self.person()
        p.type(b"some")
        p.expect(rb"some")
        os.kill(p.pid, signal.SIGTERM)
        local = None
        while p.read_some(1):
            pass
        local = termios.tcgetattr(p.fd)[3]
        self.assertEqual(p.end(), -signal.SIGTERM)
        self.assertTrue(local & termios.ICANON and local & termios.ECHO)


if __name__ == "__main__":
    main()
