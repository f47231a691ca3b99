"""Several models in one daemon: named by requests, loaded on demand, unloaded for room or when
idle. Over scripted models (a small GGUF file with a script beside it), and with the real one.
"""

import glob
import json
import os
import shutil
import tempfile
import time
import unittest

from harness import MODEL, Daemon, ModelsDirectory, Scripted, main, user

OWN = {"default": {"pieces": ["own"]}, "weights": "own", "ctx": 2048}
LONG = " ".join(f"word{i}" for i in range(60))  # some blocks of tokens


def text_of(reply):
    return reply["choices"][0]["message"]["content"]


class Several(ModelsDirectory, unittest.TestCase):
    def states(self, d):
        return {x["id"]: x["state"] for x in d.status()["models"]}

    def post(self, d, model, text="hi", **more):
        return d.post(
            "/v1/chat/completions",
            {"model": model, "messages": [user(text)], "temperature": 0, **more},
        )

    def ask(self, d, model):
        """A connection that asked the model, and has no answer yet."""
        s = d.raw()
        body = json.dumps({"model": model, "messages": [user("hi")]}).encode()
        s.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: "
            b"application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        return s

    def respond(self, d, **body):
        status, reply = d.post("/v1/responses", {"temperature": 0, **body})
        self.assertEqual(status, 200, reply)
        return reply

    # ---- names ----

    def test_the_named_model_answers_and_is_named(self):
        self.add("b")
        self.add("c")
        with Scripted(OWN) as d:
            for name, answer, told in (
                ("b", "b", "b"),
                ("c.gguf", "c", "c"),
                ("default", "own", "script"),
                ("script", "own", "script"),
                ("", "own", "script"),
                ("b", "b", "b"),
            ):
                status, reply = self.post(d, name)
                self.assertEqual(status, 200, reply)
                self.assertEqual((text_of(reply), reply["model"]), (answer, told))
            self.assertEqual(self.states(d), {"script": "in", "b": "in", "c": "in"})
            metrics = d.get("/metrics")[1].decode()
        self.assertIn('hearth_model_turns_total{model="b"} 2', metrics)
        self.assertIn('hearth_model_loads_total{model="b"} 1', metrics)

    def test_an_unknown_name_is_refused_where_there_are_several(self):
        self.add("b")
        with Scripted(OWN) as d:
            status, reply = self.post(d, "gpt-4")
            self.assertEqual(status, 404)
            self.assertEqual(reply["error"]["code"], "model_not_found")
            self.assertEqual(reply["error"]["param"], "model")
            for word in ("gpt-4", "script", "b"):
                self.assertIn(word, reply["error"]["message"])
            os.unlink(self.path("b.gguf"))
            status, reply = self.post(d, "gpt-4")  # one model is left: any name is it
            self.assertEqual((status, reply["model"]), (200, "script"))
        self.add("b")
        with Scripted(OWN, "--serve", "one") as d:
            status, reply = self.post(d, "b")
            self.assertEqual((status, reply["model"]), (200, "script"))
            self.assertEqual(len(d.get("/v1/models")[1]["data"]), 1)

    def test_a_path_names_no_model(self):
        self.add("b")
        with Scripted(OWN) as d:
            for name in (self.path("b.gguf"), "../models/b", "b/", "b.gguf.script"):
                self.assertEqual(self.post(d, name)[0], 404, name)

    def test_models_lists_what_runs_and_what_is_loaded(self):
        self.add("b")
        with open(self.path("junk.gguf"), "w") as f:
            f.write("no model")
        with Scripted(OWN) as d:

            def listed():
                data = d.get("/v1/models")[1]["data"]
                self.assertTrue(all(x["owned_by"] == "hearth" and x["created"] > 0 for x in data))
                return {x["id"]: x["hearth"]["loaded"] for x in data}

            self.assertEqual(listed(), {"script": True, "b": False})
            self.post(d, "b")
            self.assertEqual(listed(), {"script": True, "b": True})
            self.assertEqual(d.get("/v1/models/b")[1]["id"], "b")
            self.assertEqual(d.get("/v1/models/junk")[0], 404)
            catalog = {x["id"]: x for x in d.get("/v1/hearth/models")[1]["data"]}
            self.assertTrue(catalog["b"]["loaded"] and catalog["b"]["served"])
            self.assertEqual(catalog["junk"]["state"], "out")
            status, reply = self.post(d, "junk")
            self.assertEqual((status, reply["error"]["code"]), (400, "model_failed"))

    # ---- conversations ----

    def test_another_model_reads_the_conversation_anew_and_says_so(self):
        self.add("b")
        with Scripted(OWN) as d:
            c = d.post("/v1/conversations", {})[1]["id"]
            self.respond(d, conversation=c, input=LONG)
            kept = self.respond(d, conversation=c, input="more")
            self.assertGreater(kept["usage"]["input_tokens_details"]["cached_tokens"], 100)
            other = self.respond(d, conversation=c, input="and?", model="b")
            self.assertEqual(other["model"], "b")
            self.assertEqual(other["usage"]["input_tokens_details"]["cached_tokens"], 0)
            self.assertEqual(other["hearth"]["cache"]["miss"]["reason"], "model")
            again = self.respond(d, conversation=c, input="go on", model="b")
            self.assertGreater(again["usage"]["input_tokens_details"]["cached_tokens"], 100)
            back = self.respond(d, conversation=c, input="back")
            self.assertGreater(back["usage"]["input_tokens_details"]["cached_tokens"], 100)

    def test_what_is_deleted_leaves_the_blocks_of_all_its_models(self):
        self.add("b")
        with Scripted(OWN, "--resident", "1") as d:
            c = d.post("/v1/conversations", {})[1]["id"]
            self.respond(d, conversation=c, input=LONG, model="b")
            self.respond(d, conversation=c, input="more")  # b has left for it
            self.assertEqual(self.states(d), {"script": "in"})
            files = os.path.join(d.folder, "cache", "kv", "*", "*", "*.kv")
            self.assertTrue(glob.glob(files))
            status, reply = d.request("DELETE", f"/v1/conversations/{c}")[:2]
            self.assertEqual(status, 200)
            self.assertGreater(reply["hearth"]["blocks"], 8)
            d.until(lambda: not glob.glob(files), "no file is left")

    # ---- coming and going ----

    def test_others_go_on_while_a_model_loads(self):
        self.add("b", load_ms=1500)
        with Scripted(OWN) as d:
            with self.ask(d, "b") as s:
                d.until(lambda: self.states(d).get("b") == "loading", "b loads")
                self.assertEqual(text_of(self.post(d, "default")[1]), "own")
                self.assertEqual(self.states(d)["b"], "loading")
                self.assertIn(b'"content":"b"', s.recv(65536))

    def test_one_resident_model_gives_way_and_comes_back_warm(self):
        self.add("b")
        with Scripted(OWN, "--resident", "1") as d:
            first = self.post(d, "default", LONG)[1]
            self.assertEqual(text_of(self.post(d, "b", LONG)[1]), "b")
            self.assertEqual(self.states(d), {"b": "in"})
            self.assertEqual(d.get("/v1/models")[1]["data"][0]["hearth"]["state"], "out")
            again = self.post(d, "default", LONG)[1]
            self.assertEqual(text_of(again), text_of(first))
            self.assertGreater(again["hearth"]["cache"]["disk"], 100)  # its KV stayed on its tier
            self.assertEqual(self.states(d), {"script": "in"})
            self.assertGreater(self.post(d, "b", LONG)[1]["hearth"]["cache"]["disk"], 100)
            d.check_blocks()

    def test_a_model_with_turns_stays_and_the_other_is_next(self):
        self.add("b")
        script = {"default": {"pieces": ["x"], "then": "forever"}, "pace_us": 2000, "ctx": 8192}
        with Scripted(script, "--resident", "1") as d:
            with d.chat_stream([user("hi")]) as s, d.chat_stream([user("hi")]) as later:
                next(iter(s)), next(iter(later))
                waiting = self.ask(d, "b")
                d.until(lambda: d.get("/metrics")[1].count(b"hearth_places_taken 3"), "it waits")
                self.assertEqual(self.states(d), {"script": "in"})
            answer = waiting.recv(65536)
            waiting.close()
            self.assertIn(b'"model":"b"', answer)
            self.assertEqual(self.states(d), {"b": "in"})

    def test_an_idle_model_leaves_and_the_default_stays(self):
        self.add("b")
        with Scripted(OWN, "--idle-unload", "1") as d:
            self.post(d, "b", LONG)
            d.until(lambda: self.states(d) == {"script": "in"}, "b has left")
            again = self.post(d, "b", LONG)[1]
            self.assertGreater(again["hearth"]["cache"]["disk"], 100)
            self.assertIn(b'hearth_model_unloads_total{model="b"} 1', d.get("/metrics")[1])

    def test_what_does_not_fit_is_refused_with_the_numbers(self):
        self.add("wide", "--layers", "64", "--kv-heads", "2", "--ctx", "65536")
        with Scripted({**OWN, "ctx": 8192}, "--memory", "128M", "--ctx", "8192") as d:
            status, reply = self.post(d, "wide")
            self.assertEqual((status, reply["error"]["code"]), (400, "model_too_large"))
            for word in ("8192", "128", "wide"):
                self.assertIn(word, reply["error"]["message"])
            self.assertEqual(text_of(self.post(d, "default")[1]), "own")
            self.assertEqual(self.states(d), {"script": "in"})

    def test_a_model_that_fails_to_load_is_told_and_the_daemon_lives(self):
        self.add("b")
        with open(self.path("b.gguf.script")) as f:
            good = f.read()
        with open(self.path("b.gguf.script"), "w") as f:
            f.write("{")
        with Scripted(OWN) as d:
            status, reply = self.post(d, "b")
            self.assertEqual((status, reply["error"]["code"]), (400, "model_failed"))
            self.assertEqual(text_of(self.post(d, "default")[1]), "own")
            with open(self.path("b.gguf.script"), "w") as f:
                f.write(good)
            self.assertEqual(text_of(self.post(d, "b")[1]), "b")
            os.unlink(self.path("b.gguf"))
            self.assertEqual(text_of(self.post(d, "b")[1]), "b")  # it is in memory
            self.add("c")
            self.add("d")
            self.assertEqual(d.get("/v1/models/d")[0], 200)
            os.unlink(self.path("d.gguf"))
            self.assertEqual(self.post(d, "d")[0], 404)

    def test_a_stop_while_a_model_loads_is_quick(self):
        self.add("b", load_ms=60000)
        with Scripted(OWN) as d:
            with self.ask(d, "b") as s:
                d.until(lambda: self.states(d).get("b") == "loading", "b loads")
                began = time.monotonic()
                d.signal()
                self.assertEqual(d.wait_end(), 0)
                self.assertLess(time.monotonic() - began, 30)
                self.assertIn(b"503", s.recv(65536)[:20])


class Real(unittest.TestCase):
    """Two names of the default model: what left and came back says the same."""

    def test_warm_is_cold_after_a_model_left_and_came_back(self):
        if not os.path.exists(MODEL):
            self.skipTest("no model")
        folder = tempfile.mkdtemp(prefix="hearth-")
        self.addCleanup(shutil.rmtree, folder)
        for name in ("one", "two"):
            os.symlink(os.path.abspath(MODEL), os.path.join(folder, name + ".gguf"))
        ask = [user("Tell me of " + LONG)]
        os.environ["XDG_DATA_HOME"] = folder
        with Daemon(os.path.join(folder, "one.gguf"), "--resident", "1") as d:
            cold = d.chat(ask, max_tokens=16)
            self.assertEqual(d.say(ask, model="two", max_tokens=16), text_of(cold))
            warm = d.chat(ask, max_tokens=16)
            self.assertEqual(text_of(warm), text_of(cold))
            self.assertGreater(warm["hearth"]["cache"]["disk"], 100)
            self.assertEqual(warm["model"], "one")


if __name__ == "__main__":
    main()
