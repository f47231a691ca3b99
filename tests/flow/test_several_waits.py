"""Requests whose model has to be loaded first: what they hear meanwhile, how long they wait, and
what becomes of them when it can't be loaded, they leave, or the daemon stops.
"""

import json
import os
import time
import unittest

from harness import ModelsDirectory, Scripted, chunk_text, content, main, together, user

OWN = {"default": {"pieces": ["own"]}, "weights": "own", "ctx": 2048}


class Waits(ModelsDirectory, unittest.TestCase):
    def states(self, d):
        return {x["id"]: x["state"] for x in d.status()["models"]}

    def loading(self, d, name):
        d.until(lambda: self.states(d).get(name) == "loading", f"{name} loads")

    def post(self, d, model, **more):
        return d.request(
            "POST",
            "/v1/chat/completions",
            {"model": model, "messages": [user("hi")], "temperature": 0, **more},
        )

    # ---- what they hear ----

    def test_a_chat_stream_hears_that_its_model_is_loaded(self):
        self.add("b", load_ms=3500)
        with Scripted(OWN) as d:
            with d.chat_stream([user("hi")], model="b") as s:
                events = list(s)
            self.assertEqual(s.status, 200)
            self.assertRegex(s.raw, rb"\A: loading b \d+ %\n\n")
            self.assertEqual("".join(map(chunk_text, events)), "b")
            self.assertTrue(s.is_done)
            self.assertEqual(events[0]["model"], "b")

    def test_a_responses_stream_hears_it_too(self):
        self.add("b", load_ms=3500)
        with Scripted(OWN) as d:
            body = {"model": "b", "input": "hi", "temperature": 0, "stream": True}
            with d.stream("/v1/responses", body) as s:
                events = list(s)
            self.assertRegex(s.raw, rb"\A: loading b \d+ %\n\n")
            self.assertEqual(events[0]["type"], "response.created")
            self.assertEqual(events[-1]["type"], "response.completed")
            self.assertEqual(events[-1]["response"]["model"], "b")

    def test_a_stream_hears_it_of_the_first_model_too(self):
        with Scripted({**OWN, "load_ms": 3500}, wait=False) as d:
            d.until(lambda: os.path.exists(d.socket_path), "it listens")
            with d.chat_stream([user("hi")]) as s:
                self.assertEqual("".join(map(chunk_text, s)), "own")
            self.assertRegex(s.raw, rb"\A: loading script \d+ %\n\n")

    def test_a_stream_hears_that_its_model_waits_for_room(self):
        self.add("b")
        script = {"default": {"pieces": ["x"], "then": "forever"}, "pace_us": 3000, "ctx": 1024}
        with Scripted(script, "--resident", "1", "--speculation", "off") as d:
            with d.chat_stream([user("hi")]) as first:
                next(iter(first))
                with d.chat_stream([user("hi")], model="b") as s:
                    self.assertEqual("".join(map(chunk_text, s)), "b")
            self.assertIn(b": waiting for b\n\n", s.raw)

    # ---- how long they wait ----

    def test_an_answer_that_is_not_streamed_waits_for_so_long(self):
        self.add("b", load_ms=6000)
        with Scripted(OWN, "--load-wait", "1") as d:
            began = time.monotonic()
            status, reply, headers = self.post(d, "b")
            self.assertEqual((status, reply["error"]["code"]), (503, "model_loading"))
            self.assertGreaterEqual(time.monotonic() - began, 1)
            self.assertEqual(headers["Retry-After"], "2")
            for word in ("model b ", "%", "1 s", "--load-wait"):
                self.assertIn(word, reply["error"]["message"])
            d.until(lambda: self.states(d).get("b") == "in", "it is loaded all the same")
            self.assertEqual(content(self.post(d, "b")[1]), "b")

    def test_no_wait_is_a_503_at_once_and_the_model_comes(self):
        self.add("b", load_ms=300)
        with Scripted(OWN, "--load-wait", "0") as d:
            self.assertEqual(self.post(d, "b")[0], 503)
            d.until(lambda: self.states(d).get("b") == "in", "it is loaded all the same")
            self.assertEqual(content(self.post(d, "b")[1]), "b")
            self.assertIn(b"hearth_places_taken 0", d.get("/metrics")[1])

    # ---- what goes wrong ----

    def test_an_error_after_the_first_comment_is_the_stream_s_last_event(self):
        self.add("b", load_ms=2500, kv_layers=4096)  # told by the engine, not by its file
        with Scripted(OWN, "--ctx", "2048") as d:
            with d.chat_stream([user("hi")], model="b") as s:
                events = list(s)
            self.assertEqual(s.status, 200)
            self.assertIn(b": loading b ", s.raw)
            self.assertEqual(len(events), 1, events)
            self.assertEqual(events[0]["error"]["code"], "model_too_large")
            for word in ("model b ", "2048", "256"):
                self.assertIn(word, events[0]["error"]["message"])
            self.assertFalse(s.is_done)
            self.assertEqual(content(self.post(d, "default")[1]), "own")
            d.until_idle()
            self.assertIn(b"hearth_places_taken 0", d.get("/metrics")[1])

    def test_a_request_that_is_wrong_is_told_in_the_stream(self):
        self.add("b", load_ms=2500)
        with Scripted(OWN) as d:
            with d.chat_stream([user("hi")], model="b", temperature="warm") as s:
                events = list(s)
            self.assertEqual([e["error"]["param"] for e in events], ["temperature"])

    def test_what_can_not_be_loaded_is_refused_by_name(self):
        self.make("strange")
        with open(self.path("strange.gguf"), "rb") as f:
            data = f.read()
        with open(self.path("strange.gguf"), "wb") as f:
            f.write(data.replace(b"llama", b"rwkv7"))
        with open(self.path("torn.gguf"), "wb") as f:
            f.write(data[: len(data) // 2])
        self.make("huge", "--layers", "64", "--kv-heads", "2", "--ctx", "65536")
        with Scripted({**OWN, "ctx": 8192}, "--memory", "128M", "--ctx", "8192") as d:
            for name, code, words in (
                ("strange", "model_failed", ("strange", "rwkv7", "qwen2")),
                ("torn", "model_failed", ("torn",)),
                ("huge", "model_too_large", ("huge", "8192", "128")),
            ):
                status, reply, _ = self.post(d, name)
                self.assertEqual((status, reply["error"]["code"]), (400, code), reply)
                self.assertEqual(reply["error"]["param"], "model")
                for word in words:
                    self.assertIn(word, reply["error"]["message"])
            self.assertEqual(content(self.post(d, "default")[1]), "own")

    def test_a_client_that_leaves_while_its_model_loads_gives_its_place_back(self):
        self.add("b", load_ms=2500)
        with Scripted(OWN, "--parallel", "1", "--queue", "0") as d:
            s = d.raw()
            body = json.dumps({"model": "b", "messages": [user("hi")]}).encode()
            s.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: "
                b"application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            )
            self.loading(d, "b")
            s.close()
            d.until(lambda: b"hearth_places_taken 0" in d.get("/metrics")[1], "its place is free")
            self.assertEqual(self.states(d)["b"], "loading")
            self.assertEqual(content(self.post(d, "default")[1]), "own")
            self.assertEqual(content(self.post(d, "b")[1]), "b")
            self.assertIn(b'hearth_model_turns_total{model="b"} 1', d.get("/metrics")[1])
            self.assertIn(b'hearth_model_loads_total{model="b"} 1', d.get("/metrics")[1])

    def test_two_models_that_are_asked_for_at_once_are_both_loaded(self):
        self.add("b", load_ms=400)
        self.add("c", load_ms=400)
        for resident in ("1", "2", "3"):
            with self.subTest(resident=resident), Scripted(OWN, "--resident", resident) as d:
                asked = [lambda m=m: content(self.post(d, m)[1]) for m in ("b", "c", "b", "c")]
                self.assertEqual(together(*asked), ["b", "c", "b", "c"])
                self.assertLessEqual(len(self.states(d)), int(resident))
                self.assertEqual(content(self.post(d, "default")[1]), "own")
                d.check_blocks()

    def test_a_stop_ends_a_stream_that_waits_with_an_error(self):
        self.add("b", load_ms=60000)
        with Scripted(OWN) as d:
            with d.chat_stream([user("hi")], model="b") as s:  # its head comes with the comment
                self.assertEqual(self.states(d)["b"], "loading")
                d.signal()
                events = list(s)
            self.assertEqual(d.wait_end(), 0)
            self.assertEqual([e["error"]["code"] for e in events], ["stopping"])

    def test_a_model_leaves_when_its_turns_have_ended_not_before(self):
        self.add("b", pace_us=3000, default={"pieces": ["b"], "then": "forever"}, ctx=512)
        with Scripted(OWN, "--resident", "1") as d:
            with d.chat_stream([user("hi")], model="b") as s:
                next(iter(s))
                self.assertEqual(content(self.post(d, "default")[1]), "own")
                text = "".join(map(chunk_text, s))
            self.assertTrue(s.is_done)
            self.assertGreater(len(text), 300)  # to the window's end
            self.assertEqual(self.states(d), {"script": "in"})


class Names(ModelsDirectory, unittest.TestCase):
    def test_an_unknown_name_may_be_the_default_s_beside_others(self):
        self.add("b")
        with Scripted(OWN, "--unknown-model", "default") as d:
            for name, told in (("gpt-4o", "script"), ("b", "b"), ("default", "script")):
                reply = d.chat([user("hi")], model=name)
                self.assertEqual(reply["model"], told)
        with Scripted(OWN) as d:
            body = {"model": "gpt-4o", "messages": [user("hi")]}
            self.assertEqual(d.post("/v1/chat/completions", body)[0], 404)

    def test_a_template_may_be_given_to_each_model(self):
        self.add("b")
        self.add("c")
        path = os.path.join(self.home, "plain.jinja")
        with open(path, "w") as f:
            f.write(
                "{% for m in messages %}<|im_start|>{{ m.role }}\nSAID {{ m.content }}<|im_end|>\n"
                "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
            )
        with Scripted(OWN, "--chat-template", f"b.gguf={path}") as d:

            def count(model):
                body = {"model": model, "messages": [user("hello")]}
                return d.post("/tokenize", body)[1]["count"]

            self.assertEqual(count("script"), count("c"))
            self.assertNotEqual(count("b"), count("c"))
            self.assertEqual(content(d.chat([user("hi")], model="b")), "b")
        with Scripted(OWN, "--chat-template", "c=no-such-format") as d:
            body = {"model": "c", "messages": [user("hi")]}
            status, reply = d.post("/v1/chat/completions", body)
            self.assertEqual((status, reply["error"]["code"]), (400, "model_failed"), reply)
            self.assertIn("no-such-format", reply["error"]["message"])
            self.assertEqual(content(d.chat([user("hi")])), "own")


if __name__ == "__main__":
    main()
