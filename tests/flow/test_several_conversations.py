"""Conversations and the cache over several models: whose tokens are counted, what a conversation
that changes its model says of that, and what is kept of models that aren't loaded.
"""

import glob
import os
import shutil
import tempfile
import unittest

from harness import ModelsDirectory, Scripted, assistant, cached, content, main, system, user

OWN = {"default": {"pieces": ["own ", "words"]}, "weights": "own", "ctx": 2048}
LONG = " ".join(f"word{i}" for i in range(60))  # some blocks of tokens


class Case(ModelsDirectory, unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = tempfile.mkdtemp(prefix="hearth-several-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def daemon(self, *flags, script=OWN):
        return Scripted(script, *flags, folder=self.folder)

    def states(self, d):
        return {x["id"]: x["state"] for x in d.status()["models"]}

    def new(self, d, *items):
        status, c = d.post("/v1/conversations", {"items": list(items)})
        self.assertEqual(status, 200, c)
        return c["id"]

    def respond(self, d, conversation, text=LONG, **more):
        body = {"conversation": conversation, "input": text, "temperature": 0, **more}
        status, reply = d.post("/v1/responses", body)
        self.assertEqual(status, 200, reply)
        return reply

    def ok(self, answer):
        self.assertEqual(answer[0], 200, answer[1])
        return answer[1]


class Routes(Case):
    """A conversation's routes go by the model that answered last in it."""

    def at(self, c, rest):
        return f"/v1/hearth/conversations/{c}/{rest}"

    def test_the_context_is_counted_by_the_model_that_answered_last(self):
        self.add("b", "--ctx", "1024", ctx=1024)
        with self.daemon() as d:
            c = self.new(d)
            self.respond(d, c)
            x = self.ok(d.get(self.at(c, "context")))
            self.assertEqual(
                (x["model"], x["model_by"], x["limit"]), ("script", "conversation", 2048)
            )
            self.respond(d, c, "and?", model="b")
            x = self.ok(d.get(self.at(c, "context")))
            self.assertEqual((x["model"], x["model_by"], x["limit"]), ("b", "conversation", 1024))
            x = self.ok(d.get(self.at(c, "context?model=script")))
            self.assertEqual((x["model"], x["model_by"], x["limit"]), ("script", "request", 2048))
            x = self.ok(d.get(self.at(c, "context?model=default&next=1")))
            self.assertEqual((x["model"], x["model_by"]), ("script", "default"))
            status, reply = d.get(self.at(c, "context?model=nobody"))
            self.assertEqual((status, reply["error"]["code"]), (404, "model_not_found"))
            x = self.ok(d.get(self.at(self.new(d), "context")))  # nobody has answered
            self.assertEqual((x["model"], x["model_by"]), ("script", "default"))
            self.assertEqual(d.get(self.at("conv_0", "context"))[0], 404)

    def test_it_is_loaded_for_that_also_after_a_restart(self):
        self.add("b", "--ctx", "1024", ctx=1024)
        with self.daemon() as d:
            c = self.new(d)
            self.respond(d, c, model="b")
        with self.daemon() as d:
            self.assertEqual(self.states(d), {"script": "in"})
            summary = d.get(self.at(c, "summary"))  # asks for no tokens that it would wait for
            self.assertEqual(summary[0], 404)
            self.assertEqual(self.states(d), {"script": "in"})
            x = self.ok(d.get(self.at(c, "context")))
            self.assertEqual((x["model"], x["limit"]), ("b", 1024))
            self.assertEqual(self.states(d), {"script": "in", "b": "in"})

    def test_pins_cut_and_summary_go_by_it(self):
        self.add("b", "--ctx", "1024", ctx=1024)
        with self.daemon() as d:
            c = self.new(d)
            for i in range(4):
                self.respond(d, c, f"{i} {LONG}", model="b", truncation="auto")
            pin = self.ok(d.post(self.at(c, "pins"), {"text": "peanuts"}))
            self.assertEqual((pin["model"], pin["model_by"]), ("b", "conversation"))
            pins = self.ok(d.get(self.at(c, "pins")))
            self.assertEqual((pins["model"], pins["limit"]), ("b", 256))
            pins = self.ok(d.get(self.at(c, "pins?model=script")))
            self.assertEqual((pins["model"], pins["limit"]), ("script", 512))
            cut = self.ok(d.post(self.at(c, "cut"), {"strategy": "summarise", "target": 400}))
            self.assertEqual((cut["model"], cut["cut"]), ("b", True))
            summary = self.ok(d.get(self.at(c, "summary")))
            self.assertEqual((summary["model"], summary["model_by"]), ("b", "conversation"))
            self.assertIn("tokens", summary)
            edit = self.ok(d.post(self.at(c, "summary"), {"summary": "Words were counted."}))
            self.assertEqual(edit["model"], "b")
        with self.daemon() as d:  # it isn't loaded: the summary is told, its tokens aren't
            summary = self.ok(d.get(self.at(c, "summary")))
            self.assertEqual(summary["summary"], "Words were counted.")
            self.assertNotIn("tokens", summary)
            self.assertEqual(self.states(d), {"script": "in"})

    def test_verify_and_cache_pins_go_by_it(self):
        self.add("b")
        with self.daemon() as d:
            c = self.new(d, {"role": "system", "content": LONG})
            self.respond(d, c, model="b")
            d.until_idle()
            v = self.ok(d.post("/v1/hearth/verify", {"conversation": c}))
            self.assertEqual((v["model"], v["model_by"]), ("b", "conversation"))
            self.assertGreater(v["blocks"], 3)
            self.assertEqual((v["different"], v["other_model"]), ([], 0))
            v = self.ok(d.post("/v1/hearth/verify", {}))
            self.assertEqual((v["model"], v["model_by"]), ("script", "default"))
            p = self.ok(d.post("/v1/hearth/cache/pin", {"conversation": c}))
            self.assertEqual((p["model"], p["model_by"]), ("b", "conversation"))
            self.assertGreater(p["ram"], 0)
            u = self.ok(d.post("/v1/hearth/cache/unpin", {"conversation": c}))
            self.assertEqual(u["unpinned"], p["pinned"])

    def test_a_model_that_is_no_more_is_the_default_s(self):
        self.add("b")
        item = {"role": "assistant", "content": "Hello.", "hearth": {"model": "gpt-4o"}}
        with self.daemon() as d:
            imported = self.new(d, {"role": "user", "content": "Hi."}, item)
            x = self.ok(d.get(self.at(imported, "context")))
            self.assertEqual((x["model"], x["model_by"]), ("script", "default"))
            c = self.new(d)
            self.respond(d, c, model="b")
        os.unlink(self.path("b.gguf"))
        with self.daemon() as d:
            x = self.ok(d.get(self.at(c, "context")))
            self.assertEqual((x["model"], x["model_by"]), ("script", "default"))


class Changes(Case):
    """A conversation that goes on with another model re-reads its text and says so."""

    def miss(self, reply):
        miss = reply["hearth"]["cache"]["miss"]
        return miss and miss["reason"]

    def test_both_ways_in_json(self):
        self.add("b")
        with self.daemon() as d:
            c = self.new(d)
            self.respond(d, c)
            there = self.respond(d, c, "and?", model="b")
            self.assertEqual((there["model"], self.miss(there)), ("b", "model"))
            self.assertEqual(there["usage"]["input_tokens_details"]["cached_tokens"], 0)
            on = self.respond(d, c, LONG, model="b")
            self.assertIsNone(self.miss(on))
            back = self.respond(d, c, "back")
            self.assertEqual((back["model"], self.miss(back)), ("script", "model"))
            self.assertGreater(back["usage"]["input_tokens_details"]["cached_tokens"], 100)
            self.assertIsNone(self.miss(self.respond(d, c, "on")))
            models = [
                i["hearth"]["model"]
                for i in d.get(f"/v1/conversations/{c}/items?order=asc&limit=100")[1]["data"]
                if i["role"] == "assistant"
            ]
            self.assertEqual(models, ["script", "b", "b", "script", "script"])
            reasons = d.get(f"/v1/hearth/conversations/{c}/savings")[1]
            self.assertIn("model", str(reasons))

    def test_after_a_restart_too(self):
        self.add("b")
        with self.daemon() as d:
            c = self.new(d)
            self.respond(d, c)
        with self.daemon() as d:
            self.assertEqual(self.miss(self.respond(d, c, "and?", model="b")), "model")
            d.until(lambda: d.status()["disk"]["waiting"] == 0, "all is written")
        with self.daemon() as d:
            self.respond(d, c, "on", model="b")
            back = self.respond(d, c, "back")
            self.assertEqual(self.miss(back), "model")
            self.assertGreater(back["hearth"]["cache"]["disk"], 100)  # what it read before

    def test_in_streams(self):
        self.add("b")
        with self.daemon() as d:
            c = self.new(d)
            self.respond(d, c)
            for model, told in (("b", "b"), ("default", "script")):
                body = {"conversation": c, "input": LONG, "model": model, "stream": True}
                with d.stream("/v1/responses", {**body, "temperature": 0}) as s:
                    last = list(s)[-1]["response"]
                self.assertEqual((last["model"], self.miss(last)), (told, "model"))

    def test_of_a_client_that_sends_all_of_it(self):
        self.add("b")
        with self.daemon() as d:
            said = [system(LONG), user("hi")]
            first = d.chat(said)
            self.assertEqual(self.miss(first), "new")
            self.assertEqual(self.miss(d.chat(said, model="b")), "model")  # it has read none of it
            said = [system("Be brief."), user(LONG)]
            said += [assistant(content(d.chat(said))), user("and?")]
            with d.chat_stream(said, model="b") as s:
                last = [e for e in s if "cache" in e.get("hearth", {})][-1]
            self.assertEqual((last["model"], self.miss(last)), ("b", "model"))
            own = d.chat(said)
            self.assertIsNone(self.miss(own))
            self.assertGreater(cached(own), 100)


class Cache(Case):
    """hearth cache is about all models, whether they are loaded or not."""

    def files(self):
        return glob.glob(os.path.join(self.folder, "cache", "kv", "*", "*", "*.kv"))

    def fill(self, *flags):
        """A conversation and a stateless call with each of script and b; all is written."""
        with self.daemon(*flags) as d:
            c = self.new(d, {"role": "system", "content": LONG})
            for model in ("default", "b"):
                self.respond(d, c, model=model)
                d.chat([user(model + LONG)], model=model)
        return c

    def list(self, d):
        h = self.ok(d.get("/v1/hearth/cache"))["hearth"]
        return {m["id"]: m for m in h["models"]}, h

    def test_the_list_tells_of_models_that_are_not_loaded(self):
        self.add("b", kv_layers=3)
        self.fill()
        with self.daemon() as d:
            models, whole = self.list(d)
            self.assertEqual(set(models), {"script", "b"})
            self.assertTrue(models["script"]["loaded"])
            self.assertFalse(models["b"]["loaded"])
            for name in ("script", "b"):
                self.assertGreater(models[name]["disk"]["blocks"], 10)
            self.assertEqual(models["b"]["ram"], {"blocks": 0, "bytes": 0})
            self.assertEqual(models["b"]["block_bytes"], 3 * models["script"]["block_bytes"])
            self.assertEqual(whole["block_bytes"], models["script"]["block_bytes"])
            for key in ("blocks", "bytes"):
                total = sum(m["disk"][key] for m in models.values())
                self.assertEqual(whole["disk"][key], total)
            self.assertEqual(whole["disk"]["blocks"], len(self.files()))
            self.assertEqual(self.states(d), {"script": "in"})

    def test_drop_all_takes_what_models_that_are_not_loaded_have_left(self):
        self.add("b", kv_layers=3)
        c = self.fill()
        with self.daemon() as d:
            models, _ = self.list(d)
            n = sum(m["disk"]["blocks"] for m in models.values())
            kv = sum(m["disk"]["blocks"] * m["block_bytes"] for m in models.values())
            gone = self.ok(d.post("/v1/hearth/cache/drop", {"all": True}))
            self.assertEqual((gone["blocks"], gone["kv_bytes"]), (n, kv))
            self.assertEqual(self.files(), [])
            self.assertEqual(set(self.list(d)[0]), {"script"})
            self.assertEqual(self.states(d), {"script": "in"})
            again = self.respond(d, c, "and?", model="b")
            self.assertEqual(again["hearth"]["cache"]["tokens"], 0)
            self.assertEqual(again["hearth"]["cache"]["miss"]["reason"], "evicted")

    def test_dropping_a_conversation_takes_them_too_without_loading_anything(self):
        self.add("b")
        c = self.fill()
        with self.daemon() as d:
            before = len(self.files())
            gone = self.ok(d.post("/v1/hearth/cache/drop", {"conversation": c}))
            self.assertGreater(gone["blocks"], 20)
            self.assertEqual(len(self.files()), before - gone["blocks"])
            self.assertEqual(self.states(d), {"script": "in"})

    def test_the_default_need_not_be_in_memory_for_it(self):
        self.add("b")
        with self.daemon("--resident", "1") as d:
            c = self.new(d)
            self.respond(d, c)
            self.respond(d, c, model="b")
            self.assertEqual(self.states(d), {"b": "in"})
            models, whole = self.list(d)
            self.assertEqual((models["b"]["loaded"], models["script"]["loaded"]), (True, False))
            self.assertIsNone(whole["pinned_max"])
            self.assertGreater(self.ok(d.post("/v1/hearth/cache/drop", {"all": True}))["blocks"], 9)
            self.assertEqual(self.states(d), {"b": "in"})

    def test_pins_of_a_model_that_is_not_loaded_keep_their_files_at_a_start(self):
        self.add("b")
        with self.daemon() as d:
            c = self.new(d, {"role": "system", "content": LONG})
            self.respond(d, c, model="b")
            pinned = self.ok(d.post("/v1/hearth/cache/pin", {"conversation": c}))["pinned"]
            self.assertGreater(pinned, 4)
            d.until(lambda: d.status()["disk"]["waiting"] == 0, "all is written")
            first = set(self.files())
            for i in range(12):  # younger: the conversation's are the first to go
                d.chat([user(f"{i} {LONG}")])
        most = os.path.getsize(self.files()[0]) * (len(first) + 10)
        with self.daemon("--disk", str(most + 65536)) as d:
            self.assertEqual(self.states(d), {"script": "in"})
            left = first & set(self.files())
            self.assertGreaterEqual(len(left), pinned)
            self.assertLess(len(set(self.files())), 12 * 10)
            gone = self.ok(d.post("/v1/hearth/cache/drop", {"all": True}))
            self.assertEqual(gone["kept"]["pinned"], pinned)
            self.assertEqual(len(self.files()), pinned)
            again = self.respond(d, c, "and?", model="b")
            self.assertGreaterEqual(again["hearth"]["cache"]["disk"], 32 * pinned)
            self.ok(d.post("/v1/hearth/cache/unpin", {"conversation": c}))
            self.assertEqual(
                self.ok(d.post("/v1/hearth/cache/drop", {"all": True}))["kept"]["pinned"], 0
            )

    def test_an_unpin_reaches_a_model_that_is_not_loaded(self):
        self.add("b")
        with self.daemon() as d:
            c = self.new(d, {"role": "system", "content": LONG})
            self.respond(d, c, model="b")
            pinned = self.ok(d.post("/v1/hearth/cache/pin", {"conversation": c}))["pinned"]
        with self.daemon() as d:
            u = self.ok(d.post("/v1/hearth/cache/unpin", {"conversation": c}))
            self.assertEqual(u["unpinned"], pinned)
            self.ok(d.post("/v1/hearth/cache/drop", {"all": True}))
            self.assertEqual(self.files(), [])
            self.assertEqual(self.states(d), {"script": "in"})

    def test_a_list_of_models_that_is_damaged_only_forgets(self):
        self.add("b")
        self.fill()
        path = os.path.join(self.folder, "cache", "models")
        with open(path, "rb") as f:
            lines = f.read().split(b"\n")
        self.assertEqual([line.split(b" ", 2)[2] for line in lines[:2]], [b"b", b"script"])
        with open(path, "wb") as f:
            f.write(b"\xff\n" + lines[0][:70] + b"\n" + lines[0].replace(b" ", b"-") + b"\n\n")
        with self.daemon() as d:
            self.assertEqual(set(self.list(d)[0]), {"script"})
            self.assertEqual(content(d.chat([user("hi")], model="b")), "b")  # and it is known again
            self.assertEqual(set(self.list(d)[0]), {"script", "b"})
        with open(path, "rb") as f:
            self.assertEqual(f.read().split(b"\n"), [lines[0], lines[1], b""])


if __name__ == "__main__":
    main()
