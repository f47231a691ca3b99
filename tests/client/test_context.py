"""hearth context, cut, summary and search, the chat's commands about the window, and the line after
an answer that says what became of it.
"""

import json
import os
import re
import stat
import unicodedata
import unittest

from hearth import Hearth, Person, environment
from harness import Scripted, main
from talk import FACTS, Talk, filler, script

CTX = 512
PINNED = "I'm allergic to peanuts, and so is my sister."


def columns(line):
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


def facts(n=3):
    return [FACTS["en"][i][0] for i in range(n)]


def talk_lines(n):
    return facts() + [said for said, _ in filler("en")[:n]]


class Case(unittest.TestCase):
    """One daemon for the class; the newest conversation is each test's own."""

    @classmethod
    def setUpClass(cls):
        told = script("en", ctx=CTX, pace_us=500)
        told["rules"].insert(0, {"when": "endless", "pieces": ["la"], "then": "forever"})
        cls.d = Scripted(told)
        cls.h = Hearth(cls.d.socket_path)

    @classmethod
    def tearDownClass(cls):
        cls.h.close()
        cls.d.stop()

    def fine(self, *words, **more):
        r = self.h.run(*words, **more)
        self.assertEqual((r.code, r.err), (0, ""), r)
        return r.out

    def json(self, *words, **more):
        return json.loads(self.fine("--json", *words, **more))

    def json_lines(self, *words):
        return [json.loads(line) for line in self.fine("--json", *words).splitlines()]

    def talk(self, n_filler=0, strategy="auto"):
        """A conversation, long enough for a cut with ten turns of filler."""
        t = Talk(self.d, strategy)
        for said in talk_lines(n_filler):
            t.say(said, max_output_tokens=30)
        return t

    def cut(self, *words):
        t = self.talk(4)
        self.fine("cut", "--target", "200", *words)
        return t


class Context(Case):
    def test_an_empty_conversation_is_all_free(self):
        Talk(self.d)
        lines = self.fine("context").splitlines()
        self.assertIn(f"window     0 of {CTX} tokens", lines[1])
        self.assertEqual(lines[2], "strategy   auto; never cut")
        self.assertEqual(lines[4], "." * 80)
        self.assertEqual(lines[5], f". free {CTX}")
        self.assertEqual(lines[-1], "nothing was said yet")

    def test_bar_legend_and_list_say_the_same(self):
        t = self.cut()
        t.say("Which incident was it?")
        w = t.window()
        lines = self.fine("context").splitlines()
        self.assertEqual(lines[0], t.id)
        self.assertIn(f"window     {w['used']} of {CTX} tokens", lines[1])
        self.assertRegex(lines[2], r"^strategy   auto; cut \d{4}-\d\d-\d\d \d\d:\d\d \(auto\)$")
        bar, legend = lines[4], " ".join(lines[5 : lines.index("", 5)])
        self.assertEqual(len(bar), 80)
        self.assertRegex(bar, r"^S+P*F+M*R*T+\.+$")
        entries = {k: int(n) for k, n in re.findall(r"(\S) \S+ (\d+)", legend)}
        self.assertEqual(set(entries), set(bar))
        self.assertEqual(sum(entries.values()), CTX)
        self.assertEqual(entries["."], CTX - w["used"])
        rows = lines[lines.index("tokens  kind      role       text") + 1 :]
        self.assertEqual([int(r[:6]) for r in rows], [i["tokens"] for i in w["items"]])
        self.assertEqual([r[8:17].strip() for r in rows], [i["kind"] for i in w["items"]])
        self.assertTrue(all(columns(r) <= 80 for r in rows), rows)

    def test_json_is_the_daemons_object(self):
        t = self.talk(2)
        self.assertEqual(self.json("context"), t.window())
        self.assertEqual(self.json("context", "--next", t.id), t.window("?next=1"))

    def test_a_cut_since_the_newest_answer_is_the_next_turns(self):
        t = self.talk()
        self.assertNotIn("\nnext ", self.fine("context"))
        self.assertIn("\nnext       the next turn goes on", self.fine("context", "--next"))
        t = self.cut()
        after = t.window("?next=1")["used"]
        self.assertRegex(
            self.fine("context"),
            rf"; never cut\nnext       cut [-0-9: ]+ \(auto\), {after} tokens \(--next shows",
        )
        out = self.fine("context", "--next")
        self.assertIn(f"window     {after} of", out)
        self.assertNotIn("\nnext ", out)
        t.say("Go on.")
        self.assertRegex(self.fine("context"), r"; cut [-0-9: ]+ \(auto\)\n\n")

    def test_all_that_left_is_listed_and_nothing_else(self):
        t = self.talk()
        self.assertEqual(self.fine("context", "--dropped"), "every message is in the window\n")
        self.assertEqual(self.fine("--json", "context", "--dropped", t.id), "")
        for said, _ in filler("en")[:60]:
            t.say(said, max_output_tokens=8)
        t.until_quiet()
        there = [i["message"] for i in t.window()["items"] if i["message"]]
        said = self.json_lines("show", t.id)
        rows = self.json_lines("context", "--dropped", t.id)
        self.assertGreater(len(rows), 100)  # more than a page
        self.assertEqual(sorted(there + [m["id"] for m in rows]), sorted(m["id"] for m in said))
        self.assertEqual(rows[0]["text"], facts()[0])
        out = self.fine("context", "--dropped", t.id).splitlines()
        self.assertEqual(out[0], f"{len(rows)} messages are not in the window:")
        self.assertEqual(len(out), 3 + len(rows))
        self.assertIn("INC-4471", out[3])
        self.assertTrue(all(columns(line) <= 80 for line in out))

    def test_what_left_by_a_cut_since_is_the_next_turns(self):
        t = self.cut()
        self.assertEqual(self.fine("context", "--dropped", t.id),
                         "every message is in the window\n")
        rows = self.json_lines("context", "--dropped", "--next", t.id)
        self.assertEqual(rows[0]["text"], facts()[0])

    def test_a_strategy_is_set_for_good_and_taken_back(self):
        t = Talk(self.d)
        self.assertEqual(self.fine("context", t.id, "--set", "window"), "strategy   window\n")
        self.assertEqual(t.window()["strategy"], "window")
        self.assertEqual(
            self.fine("context", t.id, "--set", "default"), "strategy   auto, the daemon's\n"
        )
        self.assertEqual(t.window()["strategy"], "auto")
        r = self.h.run("context", t.id, "--set", "hope")
        self.assertEqual((r.code, r.out), (1, ""), r)
        self.assertIn("summarise", r.err)
        self.assertEqual(t.window()["strategy"], "auto")

    def test_cjk_rows_are_cut_by_columns(self):
        t = Talk(self.d)
        t.say("这是一段很长的中文文字，" * 12, max_output_tokens=4)
        row = next(r for r in self.fine("context").splitlines() if "这是" in r)
        self.assertTrue(row.endswith("…"), row)
        self.assertIn(columns(row), (79, 80))

    def test_what_does_not_exist_is_said(self):
        for words in (("context",), ("cut",), ("summary",), ("summary", "edit")):
            r = self.h.run(*words, "conv_" + 32 * "0", env={"EDITOR": "true"})
            self.assertEqual((r.code, r.out), (5, ""), words)
            r = self.h.run(*words, "conv_0000", env={"EDITOR": "true"})
            self.assertEqual((r.code, r.out), (5, ""), words)
        r = self.h.run("search", "--conversation", "conv_0000", "tea")
        self.assertEqual((r.code, r.out), (5, ""), r)

    def test_bad_command_lines(self):
        for words in (
            ("context", "a", "b"),
            ("context", "--next", "--set", "auto"),
            ("context", "--dropped", "--set", "auto"),
            ("context", "--set"),
            ("cut", "a", "b"),
            ("cut", "--target", "0"),
            ("cut", "--target", "many"),
            ("summary", "show", "a", "b"),
            ("summary", "--facts", "-"),
            ("summary", "edit", "--facts", "-", "--summary", "-"),
            ("search",),
            ("search", ""),
            ("search", "--limit", "0", "tea"),
            ("search", "--limit", "101", "tea"),
            ("search", b"\xff"),
        ):
            r = self.h.run(*words)
            self.assertEqual((r.code, r.out), (2, ""), words)
            self.assertIn(f"Usage: hearth {words[0]} ", r.err)


class Nothing(unittest.TestCase):
    def test_without_a_conversation_there_is_nothing_to_show(self):
        with Scripted(script("en", ctx=CTX)) as d:
            h = Hearth(d.socket_path)
            self.addCleanup(h.close)
            for words in (("context",), ("cut",), ("summary",), ("summary", "edit")):
                r = h.run(*words, env={"EDITOR": "true"})
                self.assertEqual((r.code, r.out), (5, ""), words)
                self.assertEqual(r.err, "hearth: there is no conversation yet\n")
            r = h.run("search", "tea")
            self.assertEqual((r.code, r.out, r.err), (0, "", "hearth: nothing was found\n"))

    def test_a_daemon_that_loads_is_waited_for(self):
        with Scripted({**script("en", ctx=CTX), "load_ms": 700}, wait=False) as d:
            h = Hearth(d.socket_path)
            self.addCleanup(h.close)
            r = h.run("--wait", "60", "context")
            self.assertEqual((r.code, r.out), (5, ""), r)
            self.assertIn("there is no conversation yet", r.err)


class Cut(Case):
    def test_a_cut_tells_before_after_and_what_left(self):
        t = self.talk(4)
        used = t.window()["used"]
        out = self.fine("cut", "--target", "200")
        m = re.match(r"window +(\d+) tokens before, (\d+) after\n", out)
        self.assertEqual(int(m.group(1)), used)
        self.assertEqual(int(m.group(2)), t.window("?next=1")["used"])
        m = re.search(r"left, summed up, (\d+) messages \((\d+) tokens\):\n", out)
        rows = re.findall(r"^ +(\d+)  (user|assistant) +(.*)$", out, re.M)
        self.assertEqual(len(rows), int(m.group(1)))
        self.assertEqual(sum(int(n) for n, _, _ in rows), int(m.group(2)))
        in_window = {i["message"] for i in t.window("?next=1")["items"]}
        gone = [(role, text) for i, role, text in t.messages() if i not in in_window]
        for (_, role, words), (gone_role, text) in zip(rows, gone, strict=True):
            self.assertEqual(role, gone_role)
            self.assertTrue(text.startswith(words.rstrip("…")), (words, text))

    def test_where_nothing_has_to_leave_nothing_does(self):
        self.talk()
        self.assertIn("nothing was cut", self.fine("cut"))
        self.assertFalse(self.json("cut")["cut"])

    def test_by_which_strategy_can_be_said(self):
        t = self.cut("--context", "window")
        window = t.window("?next=1")
        self.assertEqual(window["cut"]["strategy"], "window")
        self.assertNotIn("facts", {i["kind"] for i in window["items"]})
        r = self.h.run("cut", "--context", "hope", t.id)
        self.assertEqual((r.code, r.out), (1, ""), r)


class Summary(Case):
    def summary(self, t):
        return self.d.get(t.path + "/summary")[1]

    def test_what_was_never_cut_has_none(self):
        self.talk()
        for words in (("summary",), ("summary", "show"), ("summary", "edit")):
            r = self.h.run(*words, env={"EDITOR": "true"})
            self.assertEqual((r.code, r.out), (5, ""), words)
            self.assertIn("never cut", r.err)

    def test_facts_are_shown_as_words(self):
        t = self.cut()
        out = self.fine("summary")
        self.assertIn("\nThe incident we're working on is INC-4471\n", out)
        self.assertNotIn('{"by"', out)
        self.assertEqual(self.json("summary", "show", t.id), self.summary(t))

    def test_an_editor_changes_it_and_the_next_turn_reads_that(self):
        t = self.cut()
        editor = (
            "sed -i -e '/^#### FACTS/i It was about tea.'"
            " -e 's/^The launch.*/No launch at all/'"
        )
        out = self.fine("summary", "edit", env={"EDITOR": editor, "TMPDIR": self.h.home})
        self.assertRegex(out, r"^saved: \d+ tokens of summary, \d+ of facts; the next turn reads")
        after = self.summary(t)
        self.assertIn("It was about tea.", after["summary"])
        lines = after["facts"].split("\n")
        self.assertIn("No launch at all", lines)
        kept = next(line for line in lines if line.startswith("The incident"))
        self.assertIn('{"by":"user"', kept)
        self.assertEqual([f for f in os.listdir(self.h.home) if "summary" in f], [])
        t.say("So?")
        self.assertIn("No launch at all", t.prompt())

    def test_visual_goes_first_and_the_file_is_private(self):
        self.cut()
        seen = os.path.join(self.h.home, "seen")
        self.fine(
            "summary",
            "edit",
            env={"VISUAL": f"stat -c %a%F >{seen}", "EDITOR": "false", "TMPDIR": self.h.home},
        )
        with open(seen) as f:
            self.assertEqual(f.read(), "600regular file\n")
        os.unlink(seen)

    def test_what_is_not_changed_is_not_sent(self):
        t = self.cut()
        before = self.summary(t)
        out = self.fine("summary", "edit", env={"EDITOR": "true"})
        self.assertEqual(out, "nothing was changed\n")
        self.assertEqual(self.summary(t), before)

    def test_an_editor_that_fails_changes_nothing(self):
        t = self.cut()
        before = self.summary(t)
        r = self.h.run("summary", "edit", env={"EDITOR": "false", "TMPDIR": self.h.home})
        self.assertEqual((r.code, r.out), (1, ""), r)
        self.assertIn("the editor failed", r.err)
        self.assertEqual(self.summary(t), before)
        self.assertEqual([f for f in os.listdir(self.h.home) if "summary" in f], [])

    def test_what_cannot_be_saved_is_kept(self):
        t = self.cut()
        before = self.summary(t)
        for editor in ("sed -i s/####/%%%%/", "printf '\\377' >>"):
            r = self.h.run("summary", "edit", env={"EDITOR": editor, "TMPDIR": self.h.home})
            self.assertIn(r.code, (1, 2), r)
            path = re.search(r"what you wrote is in (\S+)\n", r.err).group(1)
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
            os.unlink(path)
        self.assertEqual(self.summary(t), before)

    def test_an_editor_needs_a_terminal_or_a_name(self):
        self.cut()
        r = self.h.run("summary", "edit", env={"EDITOR": "", "VISUAL": ""})
        self.assertEqual((r.code, r.out), (2, ""), r)
        self.assertIn("--summary", r.err)

    def test_a_script_gives_texts_by_stdin_and_files(self):
        t = self.cut()
        facts_before = self.summary(t)["facts"]
        self.fine("summary", "edit", "--summary", "-", stdin="Tea.\nAnd more tea.\n\n")
        self.assertEqual(self.summary(t)["summary"], "Tea.\nAnd more tea.")
        self.assertEqual(self.summary(t)["facts"], facts_before)
        path = os.path.join(self.h.home, "facts")
        with open(path, "w") as f:
            f.write("The incident we're working on is INC-4471\nmine\n")
        out = self.json("summary", "edit", t.id, "--facts", path)
        lines = out["facts"].split("\n")
        self.assertIn('{"by":"user"', lines[0])
        self.assertEqual(lines[1:], ["mine"])
        self.assertEqual(out["summary"], "Tea.\nAnd more tea.")
        self.fine("summary", "edit", "--facts", "-")
        self.assertEqual(self.summary(t)["facts"], "")
        for words, stdin in (
            (("--summary", "-"), b"\xff"),
            (("--summary", "-"), b"a\0b"),
            (("--summary", "/nonexistent"), b""),
        ):
            r = self.h.run("summary", "edit", *words, stdin=stdin)
            self.assertIn(r.code, (1, 2), r)
            self.assertEqual(r.out, "")
        self.assertEqual(self.summary(t)["summary"], "Tea.\nAnd more tea.")

    def test_texts_that_hold_the_parting_line_are_for_scripts(self):
        t = self.cut()
        self.fine("summary", "edit", "--summary", "-", stdin="a #### b")
        r = self.h.run("summary", "edit", env={"EDITOR": "true"})
        self.assertEqual((r.code, r.out), (1, ""), r)
        self.assertIn("--facts", r.err)
        self.assertEqual(self.summary(t)["summary"], "a #### b")


class Search(Case):
    def test_hits_are_dated_named_and_cut_out(self):
        t = self.talk()
        out = self.fine("search", "bucket", "--conversation", t.id)
        m = re.match(
            r"\d{4}-\d\d-\d\d \d\d:\d\d  (conv_[0-9a-f]{8})  user\n    (.*)\n", out
        )
        self.assertEqual(m.group(1), t.id[:13])
        self.assertEqual(m.group(2), facts()[1])
        j = self.json("search", "--limit", "1", "our", "bucket")
        self.assertEqual(len(j["data"]), 1)

    def test_marks_are_the_words_by_their_stems(self):
        t = Talk(self.d)
        t.say("Étés passés: the cats' INC-4471 and another cat; 我对花生过敏。", max_output_tokens=2)

        def marked(query):
            j = self.json("search", "--conversation", t.id, query)
            hit = next(h for h in j["data"] if h["role"] == "user")
            snippet = hit["snippet"].encode()
            return [snippet[a:b].decode() for a, b in hit["marks"]]

        self.assertEqual(marked("the cats"), ["cats", "cat"])
        self.assertEqual(marked("inc-4471"), ["INC-4471"])
        self.assertEqual(marked("花生"), ["花生"])
        self.assertEqual(marked("谁对花生过敏"), ["对花生过敏"])

    def test_words_are_bold_on_a_terminal_alone(self):
        t = self.talk()
        words = ("search", "--conversation", t.id, "bucket")
        for env, bold in (({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)):
            p = self.h.person(*words, **env)
            self.assertEqual(p.end(), 0)
            self.assertEqual(b"the \x1b[1mbucket\x1b[0m s3" in p.seen, bold, p.seen)
            self.assertEqual(b"\x1b" in p.seen, bold, p.seen)
        self.assertNotIn("\x1b", self.fine(*words))

    def test_a_question_that_was_asked_so_is_found(self):
        t = Talk(self.d)
        t.say("zebra", max_output_tokens=2)
        self.assertIn("\n    zebra\n", self.fine("search", "zebra"))

    def test_nothing_is_syntax(self):
        self.talk()
        for query in ('"', "AND OR NOT", "a* NEAR(", "text:bucket", "--", "'; DROP"):
            r = self.h.run("search", "--", query)
            self.assertEqual(r.code, 0, (query, r))


class Chat(Case):
    def chat(self, *lines, words=(), **more):
        return self.h.run("chat", *words, stdin="\n".join(lines) + "\n", **more)

    def newest(self):
        return self.d.get("/v1/conversations?order=desc&limit=1")[1]["data"][0]["id"]

    def test_a_line_tells_what_left_and_only_then(self):
        r = self.chat(*talk_lines(3), words=("--max-tokens", "30"))
        self.assertEqual((r.code, r.err), (0, ""), r)
        r = self.chat(*talk_lines(14), words=("--max-tokens", "30"))
        self.assertEqual(r.code, 0, r)
        lines = r.err.splitlines()
        self.assertTrue(1 <= len(lines) < 6, lines)
        for line in lines:
            self.assertRegex(line, r"^· \d+ messages? \(\d+ tokens\) left the window, summed up;")
        self.assertNotIn("·", r.out)

    def test_a_stopped_answer_has_its_line_too(self):
        p = self.h.person("chat")
        p.expect(rb"> ")
        p.say("hello")
        p.expect(rb"Noted\.")
        p.expect(rb"> ")
        p.say("/pin")
        p.expect(rb"pinned \(")
        p.expect(rb"> ")
        p.say("endless")
        p.expect(rb"lala")
        p.type("\x03")
        p.expect(rb"\[stopped\]")
        p.expect(rb"\xc2\xb7 1 pinned")
        p.say("/quit")
        self.assertEqual(p.end(), 0)

    def test_the_line_is_dim_on_a_terminal_and_absent_from_json(self):
        for env, dim in (({}, b"\x1b[2m"), ({"NO_COLOR": "1"}, b"")):
            p = self.h.person("chat", "--max-tokens", "30", **env)
            for said in talk_lines(0) + [said for said, _ in filler("en")[:14]]:
                p.expect(rb"> ")
                p.say(said)
            p.expect(rb"> ")
            p.say("/quit")
            self.assertEqual(p.end(), 0)
            self.assertRegex(p.seen, rb"\n" + re.escape(dim) + rb"\xc2\xb7 \d+ messages")
        r = self.chat(*talk_lines(14), words=("--json", "--max-tokens", "30"))
        self.assertEqual((r.code, r.err), (0, ""), r)
        receipts = [json.loads(line)["hearth"]["receipt"] for line in r.out.splitlines()]
        self.assertTrue(any(r["dropped"] or r["summarised"] for r in receipts))

    def test_context_is_the_conversations_own(self):
        r = self.chat("hello", words=("--context", "window"))
        self.assertEqual((r.code, r.err), (0, ""), r)
        window = self.d.get(f"/v1/hearth/conversations/{self.newest()}/context")[1]
        self.assertEqual(window["strategy"], "window")
        r = self.chat("again", words=("--context", "prune", "--continue"))
        self.assertEqual(r.code, 0, r)
        window = self.d.get(f"/v1/hearth/conversations/{self.newest()}/context")[1]
        self.assertEqual(window["strategy"], "prune")
        r = self.chat("hello", words=("--json", "--continue"))
        self.assertEqual(json.loads(r.out)["hearth"]["receipt"]["strategy"], "prune")

    def test_a_strategy_that_is_none_leaves_no_conversation(self):
        before = len(self.d.get("/v1/conversations?limit=100")[1]["data"])
        for lines, words in ((("hello",), ("--context", "hope")), (("/context hope",), ())):
            r = self.chat(*lines, words=words)
            self.assertEqual((r.code, r.out), (1, ""), r)
            self.assertIn('"hope" is none', r.err)
        self.assertEqual(len(self.d.get("/v1/conversations?limit=100")[1]["data"]), before)

    def test_ask_has_its_strategy_in_its_request(self):
        j = self.json("ask", "--context", "window", "hello")
        self.assertEqual(j["hearth"]["receipt"]["strategy"], "window")
        self.assertEqual(self.json("ask", "hello")["hearth"]["receipt"]["strategy"], "error")

    def test_pins_and_notes(self):
        r = self.chat(
            PINNED, "/pin 2", "/pin", f'/remember "{facts()[0]}"', "/pins", "/unpin 2", "/pins",
            "/unpin last", "/pins",
        )  # fmt: skip
        self.assertEqual(r.code, 0, r)
        lines = r.out.splitlines()
        self.assertRegex(lines[1], rf"^pinned \(\d+ tokens\): {re.escape(PINNED)}$")
        self.assertRegex(lines[2], r"^pinned \(\d+ tokens\): Noted\.$")
        self.assertRegex(lines[3], rf"^remembered \(\d+ tokens\): {re.escape(facts()[0])}$")
        kinds = [re.findall(r"^ +\d+ +\d+  (\S+)", line)[0] for line in lines[4:7]]
        self.assertEqual(kinds, ["user", "assistant", "note"])
        self.assertRegex(lines[7], rf"^\d+ of {CTX // 4} tokens that pins may take$")
        self.assertRegex(lines[8], r"^unpinned \(\d+ tokens\): Noted\.$")
        self.assertEqual(len(lines), 11 + 1 + 3)
        self.assertIn("unpinned", lines[12])
        pins = self.d.get(f"/v1/hearth/conversations/{self.newest()}/pins")[1]
        self.assertEqual([p["text"] for p in pins["data"]], [PINNED])

    def test_a_note_is_read_with_the_next_message(self):
        r = self.chat("/remember I like tea", "hello")
        self.assertEqual(r.code, 0, r)
        window = self.d.get(f"/v1/hearth/conversations/{self.newest()}/context")[1]
        recalled = [i["text"] for i in window["items"] if i["kind"] == "recalled"]
        self.assertEqual(len(recalled), 1)
        self.assertIn("I like tea", recalled[0])

    def test_what_cannot_be_pinned_is_refused(self):
        for line, code in (
            ("/pin 99", 5),
            ("/pin 101", 2),
            ("/pin first", 2),
            ("/pin msg_" + 32 * "0", 5),
            ("/unpin", 5),
            ("/unpin 7", 5),
            ("/remember", 2),
            ('/remember ""', 2),
            ("/remember " + "a long story, " * 90, 1),
            ("/summary now", 2),
            ("/cut hope", 1),
        ):
            r = self.chat("hello", line)
            self.assertEqual(r.code, code, (line, r))
            self.assertEqual(r.out, "Noted.\n", line)

    def test_before_the_first_message_there_is_no_window(self):
        for line in ("/context", "/cut", "/summary", "/pin", "/unpin", "/pins"):
            r = self.chat(line)
            self.assertEqual((r.code, r.out), (5, ""), (line, r))

    def test_a_note_that_is_refused_leaves_no_conversation(self):
        before = self.d.get("/v1/conversations?limit=100")[1]["data"]
        self.assertEqual(self.chat("/remember " + "a long story, " * 90).code, 1)
        self.assertEqual(self.d.get("/v1/conversations?limit=100")[1]["data"], before)

    def test_window_commands_do_what_the_programs_do(self):
        asked = ("/cut", "/context", "/dropped", "/summary", "/context retrieve")
        r = self.chat(*talk_lines(4), *asked)
        self.assertEqual(r.code, 0, r)
        self.assertIn(self.fine("context", "--dropped"), r.out)
        self.assertRegex(r.out, r"\n(window +\d+ tokens before, \d+ after|nothing was cut: )")
        self.assertIn(self.fine("context").split("\n", 3)[1], r.out)
        self.assertTrue(r.out.endswith("strategy   retrieve\n"), r.out)

    def test_a_narrow_terminal_has_a_narrow_window(self):
        t = self.cut()
        t.say("Which incident was it?")
        p = Person(self.h.argv(["chat", "--open", t.id]), environment(self.h.home), columns=20)
        p.expect(rb"> $")
        mark = len(p.seen)
        p.say("/context")
        p.expect(rb"\x1b\[4\dm +\x1b\[0m")
        p.expect(rb"> $")
        p.say("/quit")
        self.assertEqual(p.end(), 0)
        text = re.sub(rb"\x1b\[[0-9;]*m", b"", p.since(mark)).decode().replace("\r", "")
        lines = text.split("\n")
        legend = lines.index(next(line for line in lines if line.startswith("S system")))
        self.assertEqual(len(lines[legend - 1]), 20)
        end = lines.index("", legend)
        self.assertTrue(all(columns(line) <= 20 for line in lines[legend:end]), lines)
        rows = [line for line in lines[end:] if re.match(r" +\d+ [SPFMRT] ", line)]
        self.assertEqual(len(rows), len(t.window()["items"]))
        self.assertTrue(all(columns(row) <= 20 for row in rows), rows)


if __name__ == "__main__":
    main()
