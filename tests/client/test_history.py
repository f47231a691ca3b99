"""hearth list, show, delete, export, import: what is stored, and what comes back."""

import json
import os
import stat
import subprocess
import unittest

from hearth import Hearth, PROGRAM, environment
from harness import Scripted, main

SCRIPT = {
    "pace_us": 1000,
    "rules": [
        {"when": "endless", "pieces": ["on ", "and "], "then": "forever"},
        {"when": "long", "pieces": ["1 ", "2 ", "3 ", "4 "]},
    ],
    "default": {"pieces": ["Hello", ", 你好 🦙", "\n\"quoted\" \\ \u0001"]},
}


def message(role, text):
    return {"type": "message", "role": role, "content": text}


class Case(unittest.TestCase):
    def setUp(self):
        self.d = Scripted(SCRIPT)
        self.h = Hearth(self.d.socket_path)

    def tearDown(self):
        self.h.close()
        self.d.stop()

    def make(self, *texts, **more):
        """A conversation of these messages, in turn the person's and the assistant's; its id."""
        body = {
            "items": [
                message("assistant" if i % 2 else "user", t) for i, t in enumerate(texts[:20])
            ],
            **more,
        }
        status, c = self.d.post("/v1/conversations", body)
        self.assertEqual(status, 200, c)
        for at in range(20, len(texts), 20):
            self.d.post(
                f"/v1/conversations/{c['id']}/items",
                {
                    "items": [
                        message("assistant" if i % 2 else "user", t)
                        for i, t in enumerate(texts[at : at + 20])
                    ]
                },
            )
        return c["id"]

    def ids(self):
        return [
            json.loads(line)["id"]
            for line in self.h.run("list", "--limit", "100", "--json").out.splitlines()
        ]


class Lists(Case):
    def test_the_newest_is_first_and_has_number_one(self):
        first, second = self.make("one"), self.make("two", "2")
        rows = self.h.run("list").out.splitlines()
        self.assertEqual(len(rows), 2)
        self.assertRegex(
            rows[0], rf"^   1  {second[:13]}  \d{{4}}-\d\d-\d\d \d\d:\d\d      2  two$"
        )
        self.assertRegex(rows[1], rf"^   2  {first[:13]}  .* 1  one$")

    def test_pages(self):
        ids = [self.make(f"number {i}") for i in range(5)][::-1]
        self.assertEqual(self.ids(), ids)
        r = self.h.run("list", "--limit", "2", "--after", ids[1][:13])
        self.assertEqual(
            [row.split()[0] for row in r.out.splitlines()],
            [ids[2][:13], ids[3][:13]],
            "no numbers here",
        )
        self.assertEqual(self.h.run("list", "--limit", "101").code, 2)
        self.assertEqual(self.h.run("list", "x").code, 2)

    def test_names(self):
        a = self.make("one")
        for name in (a, a[:13], a[5:9], "1"):
            self.assertEqual(self.h.run("show", name).out, "── user\none\n\n", name)
        for name in (
            "",
            "conv_",
            a[:8],
            "2",
            "0",
            "x" * 37,
            "conv_" + "0" * 32,
            "../../health",
            "%2e",
        ):
            r = self.h.run("show", name)
            self.assertEqual(r.code, 5, (name, r))
            self.assertRegex(r.err, "hearth: .*conversation")
        self.assertEqual(
            json.loads(self.h.run("show", "--json", "9").out)["error"]["code"], "not_found"
        )

    def test_a_beginning_of_several_is_refused(self):
        made, first = {}, None
        while not first:  # with 4 hexadecimal digits two of some hundred begin alike
            c = self.make("x")
            first = made.get(c[5:9])
            made[c[5:9]] = c
        r = self.h.run("delete", c[5:9])
        self.assertEqual(r.code, 5, r)
        self.assertIn("begins the ids of 2 conversations", r.err)
        self.assertEqual(self.d.get(f"/v1/conversations/{c}")[0], 200)

    def test_show_pages_through_all(self):
        texts = [f"message {i}" for i in range(230)]
        c = self.make(*texts)
        shown = self.h.run("show", c).out
        self.assertEqual([line for line in shown.splitlines() if line.startswith("message")], texts)
        self.assertEqual(len(self.h.run("show", "--json", c).out.splitlines()), 230)

    def test_a_reader_that_leaves(self):
        c = self.make(*["x" * 3000] * 200)
        p = subprocess.Popen(
            [
                "/bin/bash",
                "-c",
                'set -o pipefail; "$@" | head -1',
                "bash",
                PROGRAM,
                *self.h.where,
                "show",
                c,
            ],
            env=environment(self.h.home),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, err = p.communicate()
        self.assertEqual((p.returncode, out, err), (141, "── user\n".encode(), b""))

    def test_an_answer_that_is_not_whole_says_why(self):
        self.d.post(
            "/v1/responses",
            {"input": "long", "max_output_tokens": 2, "conversation": self.make("x", "y")},
        )
        self.assertIn("── assistant (cut at its token limit)\n1 2 \n", self.h.run("show", "1").out)

    def test_delete_tells_of_the_blocks_that_went(self):
        c = self.make("x " * 40)
        self.d.post("/v1/responses", {"input": "long", "conversation": c})
        r = self.h.run("delete", c)
        self.assertRegex(
            r.out, rf"^deleted {c}: 3 messages, \d+ KV blocks \(\d+\.\d MiB\)\n$"
        )

    def test_delete(self):
        a, b, c = self.make("a"), self.make("b", "b"), self.make("c")
        r = self.h.run("delete", "1", "2")
        self.assertEqual((r.code, r.out), (0, f"deleted {c}: 1 message\ndeleted {b}: 2 messages\n"))
        self.assertEqual(self.ids(), [a])
        r = self.h.run("delete", "1", "9")
        self.assertEqual((r.code, self.ids()), (5, [a]), "a wrong name deletes nothing")
        self.assertTrue(json.loads(self.h.run("delete", "--json", a).out)["deleted"])
        self.assertEqual(self.h.run("delete").code, 2)
        self.assertEqual(self.h.run("delete", a).code, 5)


class Exports(Case):
    def export(self, *words):
        r = self.h.run("export", *words)
        self.assertEqual(r.code, 0, r)
        return r.out

    def reimport(self, text):
        for c in self.ids():
            self.h.run("delete", c)
        r = self.h.run("import", stdin=text)
        self.assertEqual(r.code, 0, r)
        self.assertEqual(r.out.split(), self.ids()[::-1])

    def test_export_delete_import_gives_equal_conversations(self):
        self.h.run("chat", "--system", "Be brief.", stdin="hi\ncount \"x\" \\\\ 你好\n")
        self.make(*[f"message {i}" for i in range(205)], metadata={"title": "mine", "k": "v"})
        with self.d.stream(
            "/v1/responses",
            {"input": "endless", "stream": True, "conversation": self.make("a", "b")},
        ) as s:
            for e in s:
                if e["type"] == "response.output_text.delta":
                    break
        self.d.until_idle()
        before = self.export("--all")
        shown = [self.h.run("show", str(n)).out for n in (1, 2, 3)]
        titles = [row.split(None, 5)[-1] for row in self.h.run("list").out.splitlines()]
        self.assertIn("(interrupted)", "".join(shown))
        self.reimport(before)
        self.assertEqual([self.h.run("show", str(n)).out for n in (1, 2, 3)], shown)
        self.assertEqual(
            [row.split(None, 5)[-1] for row in self.h.run("list").out.splitlines()], titles
        )
        after = [json.loads(line) for line in self.export("--all").splitlines()]
        for x, y in zip(map(json.loads, before.splitlines()), after):
            for m in x["messages"] + y["messages"]:
                m.pop("created_at")
            self.assertEqual(
                (x["messages"], x["metadata"], x["title"]),
                (y["messages"], y["metadata"], y["title"]),
            )

    def test_the_format(self):
        c = self.make("q", "a")
        j = json.loads(self.export(c))
        self.assertEqual(
            (j["object"], j["version"], j["id"], j["title"]), ("hearth.conversation", 1, c, "q")
        )
        self.assertEqual(
            [(m["role"], m["content"], m["status"]) for m in j["messages"]],
            [("user", "q", "completed"), ("assistant", "a", "completed")],
        )
        self.assertGreater(j["created_at"], 1.7e9)

    def test_into_a_file_of_its_own(self):
        self.make("q", "a")
        path = os.path.join(self.h.home, "out")
        self.export("--all", "--output", path)
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        with open(path) as f:
            text = f.read()
        self.assertEqual(text.count("\n"), 1)
        r = self.h.run("export", "--all", "--output", path)
        self.assertEqual(r.code, 1)
        self.assertIn("File exists", r.err)
        with open(path) as f:
            self.assertEqual(f.read(), text)
        self.assertEqual(self.h.run("import", path).code, 0)
        half = os.path.join(self.h.home, "half")
        self.assertEqual(self.h.run("export", "--output", half, "1", "conv_" + "0" * 32).code, 5)
        self.assertFalse(os.path.exists(half), "half an export is none")

    def test_what_to_export_must_be_said(self):
        self.assertEqual(self.h.run("export").code, 2)
        self.assertEqual(self.h.run("export", "--all", "1").code, 2)

    def test_a_full_disk_is_said(self):
        self.make("q", "a" * 10000)
        with open("/dev/full", "wb") as full:
            p = self.h.start("export", "--all", stdout=full)
            err = p.communicate()[1]
        self.assertEqual(p.returncode, 1)
        self.assertIn(b"No space left on device", err)

    def test_lines_of_other_tools(self):
        lines = [
            '{"messages":[{"role":"system","content":"s"},'
            '{"role":"user","content":[{"type":"text","text":"p"}]},'
            '{"role":"assistant","content":"a"}]}',
            "",
            "  ",
            '{"messages":[{"role":"user","content":"last line without a newline"}]}',
        ]
        r = self.h.run("import", stdin="\n".join(lines))
        self.assertEqual((r.code, len(r.out.split())), (0, 2), r)
        self.assertEqual(
            self.h.run("show", r.out.split()[0]).out,
            "── system\ns\n\n── user\np\n\n── assistant\na\n\n",
        )

    def test_a_bad_line_is_named_and_leaves_nothing_of_itself(self):
        good = '{"messages":[{"role":"user","content":"x"}]}\n'
        for bad, why in (
            ("{", "line 2: offset"),
            ("[]", 'no "messages"'),
            ('{"messages":1}', 'no "messages"'),
            ('{"version":2,"messages":[]}', "version 2"),
            ('{"messages":[{"role":"tool","content":"x"}]}', "tool"),
            (
                '{"messages":'
                + json.dumps([{"role": "user", "content": "x"}] * 25 + [{"role": "nobody"}])
                + "}",
                "nobody",
            ),
            ('{"metadata":{"a":1},"messages":[]}', "metadata"),
            # What a message says beside its text isn't left out in silence.
            (
                '{"messages":[{"role":"user","content":"x"},{"role":"assistant",'
                '"content":null,"tool_calls":[{"id":"1"}]}]}',
                "tool_calls",
            ),
            ('{"messages":[{"role":"assistant","content":"x","audio":{"id":"1"}}]}', "audio"),
            (
                '{"messages":[{"role":"user","content":[{"type":"text","text":"p"},'
                '{"type":"image_url","image_url":{"url":"x"}}]}]}',
                "image_url",
            ),
            ('{"messages":[{"role":"user","content":5}]}', "number"),
            ('{"messages":[{"role":"user"}]}', "content"),
        ):
            with self.subTest(bad=bad[:40]):
                before = len(self.ids())
                r = self.h.run("import", stdin=good + bad + "\n" + good)
                self.assertEqual(r.code, 1, r)
                self.assertIn(why, r.err)
                self.assertEqual(len(self.ids()), before + 1)

    def test_missing_files(self):
        r = self.h.run("import", "/nonexistent/x")
        self.assertEqual(r.code, 1)
        self.assertIn("/nonexistent/x can't be read", r.err)
        self.assertEqual(self.h.run("import", self.h.home).code, 1)
        self.assertEqual(self.h.run("export", "--all", "--output", "/nonexistent/x").code, 1)

    def test_many_large_messages(self):
        texts = [c * 700000 for c in "abcdefghij"]
        line = json.dumps({"messages": [message("user", t) for t in texts]})
        r = self.h.run("import", stdin=line)
        self.assertEqual(r.code, 0, r)
        self.assertEqual([m["content"] for m in json.loads(self.export("1"))["messages"]], texts)


if __name__ == "__main__":
    main()
