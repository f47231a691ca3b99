"""The client and several models: what it shows while one is loaded, /model, status, cache."""

import json
import os
import unittest

from hearth import Hearth
from harness import MODEL, Daemon, ModelsDirectory, Scripted, main

OWN = {"default": {"pieces": ["own"]}, "weights": "own", "ctx": 2048}
LONG = " ".join(f"word{i}" for i in range(60))


class Several(ModelsDirectory, unittest.TestCase):
    def client(self, d):
        h = Hearth(d.socket_path)
        self.addCleanup(h.close)
        return h

    def states(self, d):
        return {x["id"]: x["state"] for x in d.status()["models"]}

    def test_ask_says_once_at_a_pipe_that_the_model_is_loaded(self):
        self.add("b", load_ms=5000)
        with Scripted(OWN) as d:
            r = self.client(d).run("ask", "--model", "b", "hi")
        self.assertEqual((r.code, r.out), (0, "b\n"), r)
        self.assertRegex(r.err, r"\Ahearth: loading b \(\d+ %\); waiting\n\Z")

    def test_chat_shows_at_a_terminal_how_far_it_is_and_clears_it(self):
        self.add("b", load_ms=5000)
        with Scripted(OWN) as d:
            p = self.client(d).person("chat", "--model", "b")
            p.expect(b"/help")
            p.say("hi")
            p.expect(rb"loading b +\d+ %")
            p.expect(rb"\r\x1b\[K")
            p.expect(b"b")
            p.say("/quit")
            self.assertEqual(p.end(), 0)

    def test_a_model_that_can_not_be_loaded_leaves_no_conversation(self):
        self.add("b", load_ms=2500, kv_layers=4096)
        with Scripted(OWN, "--ctx", "2048") as d:
            r = self.client(d).run("chat", "--model", "b", stdin="hi\n")
            self.assertNotEqual(r.code, 0, r)
            self.assertIn("loading b", r.err)
            self.assertIn("model b doesn't fit", r.err)
            self.assertEqual(d.get("/v1/conversations")[1]["data"], [])

    def test_a_conversation_that_changes_its_model_is_told_what_was_read_anew(self):
        self.add("b")
        with Scripted(OWN) as d:
            h = self.client(d)
            lines = [LONG, "/model b", "more", "again", "/model script", "back", "/stats"]
            r = h.run("chat", stdin="".join(line + "\n" for line in lines))
            self.assertEqual(r.code, 0, r)
            said = [line for line in r.err.split("\n") if "anew" in line]
            self.assertRegex(said[0], r"^· b has read \d+ tokens anew: another model answered")
            self.assertRegex(said[1], r"^· script has read \d+ tokens anew")
            self.assertEqual(len(said), 2, r)
            self.assertIn("model      script", r.out)
            self.assertIn("the cache missed: model", r.out)
            opened = h.run("chat", "--continue", "--model", "b", stdin="on\n")
            self.assertIn("answers are by another model (script)", opened.err)

    def test_a_model_that_there_is_not_is_refused_with_the_list(self):
        self.add("b")
        with Scripted(OWN) as d:
            r = self.client(d).run("chat", stdin="/model nobody\n")
            self.assertIn("there is no model nobody", r.err)
            self.assertIn("script, b", r.err)
            r = self.client(d).run("ask", "--model", "nobody", "hi")
            self.assertEqual(r.code, 5, r)  # EXIT_NOT_FOUND
            self.assertIn("script", r.err)

    def test_status_lists_the_models(self):
        self.add("b")
        self.add("c", load_ms=20000)
        with Scripted(OWN) as d:
            h = self.client(d)
            self.assertNotIn("models ", h.run("status").out)  # the line above says it all
            h.run("ask", "--model", "b", LONG)
            waiting = h.start("ask", "--model", "c", "hi")
            d.until(lambda: self.states(d).get("c") == "loading", "c loads")
            text = h.run("status").out
            self.assertRegex(h.run("models").out, r"\nc\n(    .*\n){2}    loading, \d+ %\n")
            waiting.kill()
            waiting.communicate()
        self.assertRegex(
            text, r"\nmodels +script \(default\): loaded, idle for \d+ s; weights [\d.]+ .*, KV "
        )
        self.assertRegex(text, r"\n +b: loaded, idle for \d+ s; weights .*, KV [\d.]+ KiB of ")
        self.assertRegex(text, r"\n +c: loading, \d+ %\n")

    def test_status_says_that_the_default_has_left(self):
        self.add("b")
        with Scripted(OWN, "--resident", "1") as d:
            h = self.client(d)
            h.run("ask", "--model", "b", "hi")
            text = h.run("status").out
        self.assertIn("the default is not loaded", text)
        self.assertRegex(text, r"\nmodels +b: loaded")

    def test_cache_tells_of_each_model_and_drops_all(self):
        self.add("b")
        with Scripted(OWN, "--resident", "1") as d:
            h = self.client(d)
            h.run("chat", stdin=LONG + "\n")
            h.run("ask", "--model", "b", LONG)
            self.assertEqual(self.states(d), {"b": "in"})
            text = h.run("cache").out
            self.assertRegex(text, r"\n  b: RAM [\d.]+ MiB, disk ")
            self.assertRegex(text, r"\n  script \(not loaded\): RAM 0.0 MiB, disk 0\.[1-9]\d* MiB")
            self.assertRegex(h.run("cache", "drop", "--all").out, r"^dropped all: \d\d blocks")
            self.assertNotIn("not loaded", h.run("cache").out)
            self.assertEqual(self.states(d), {"b": "in"})


class Real(ModelsDirectory, unittest.TestCase):
    """/model between two real models, where both are there."""

    OTHER = "Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf"

    def find(self):
        paths = MODEL, os.path.join(os.path.dirname(MODEL), self.OTHER)
        for path in paths:
            if not os.path.exists(path):
                self.skipTest(f"no {path}")
        return paths

    def test_a_conversation_goes_on_with_another_family_and_back(self):
        for path, name in zip(self.find(), ("smol", "qwen")):
            os.symlink(os.path.abspath(path), self.path(name + ".gguf"))
        with Daemon(self.path("smol.gguf"), "--memory", "2G") as d:
            h = Hearth(d.socket_path)
            self.addCleanup(h.close)
            lines = (
                "What is the capital of Japan? Answer with one word.",
                "/model qw",
                "And of France? Answer with one word.",
                "/model smol",
                "Which of the two cities is larger?",
            )
            r = h.run(
                "chat", "--temperature", "0", "--max-tokens", "24", "--json",
                stdin="".join(line + "\n" for line in lines),
            )
            self.assertEqual(r.code, 0, r)
            replies = [json.loads(line) for line in r.out.splitlines() if line.startswith("{")]
            self.assertEqual([x["model"] for x in replies], ["smol", "qwen", "smol"])
            missed = [x["hearth"]["cache"]["miss"] for x in replies]
            self.assertEqual(missed[1]["reason"], "model")
            self.assertGreater(replies[2]["hearth"]["cache"]["tokens"], 30)  # its own first turn
            r = h.run(
                "chat", "--continue", "--temperature", "0", "--max-tokens", "12",
                stdin="/model qwen\nThank you.\n",
            )
            self.assertEqual(r.code, 0, r)
            c = d.get("/v1/conversations")[1]["data"][0]["id"]
            items = d.get(f"/v1/conversations/{c}/items?order=asc&limit=100")[1]["data"]
            answers = [i for i in items if i["role"] == "assistant"]
            self.assertEqual(
                [i["hearth"]["model"] for i in answers], ["smol", "qwen", "smol", "qwen"]
            )
            self.assertIn("Tokyo", answers[0]["content"][0]["text"])
            self.assertIn("Paris", answers[1]["content"][0]["text"])
            window = d.get(f"/v1/hearth/conversations/{c}/context")[1]
            self.assertEqual((window["model"], window["model_by"]), ("qwen", "conversation"))
            v = d.post("/v1/hearth/verify", {"conversation": c})[1]
            self.assertEqual((v["model"], v["different"]), ("qwen", []))
            self.assertGreater(v["blocks"], 0)


if __name__ == "__main__":
    main()
