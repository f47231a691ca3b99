"""Embeddings: /v1/embeddings in OpenAI's format, and messages that are found by what they mean. A
small model with random weights: its vectors say which words a text has, and no more.
"""

import base64
import json
import math
import os
import shutil
import sqlite3
import struct
import subprocess
import tempfile
import threading
import unittest

from harness import BUILD, MODEL, Scripted, main
from talk import Talk, filler, receipt, script

SCRIPT = {"default": {"pieces": ["fine"]}}
MKBERT = os.path.join(BUILD, "tests", "engine", "embed", "mkbert")
URL = "/v1/embeddings"
folder = None


def setUpModule():
    global folder
    folder = tempfile.mkdtemp(prefix="hearth-")


def tearDownModule():
    shutil.rmtree(folder)


def model(seed=1, *flags):
    path = os.path.join(folder, f"{seed}.gguf")
    if not os.path.exists(path):
        subprocess.run([MKBERT, path, "--seed", str(seed), *flags], check=True)
    return path


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


class Embedding(Scripted):
    def __init__(self, path, *flags, **more):
        super().__init__(SCRIPT, "--embedding-model", path, *flags, **more)

    def embed(self, texts, **more):
        status, reply = self.post(URL, {"input": texts, **more})
        if status != 200:
            raise AssertionError((status, reply, self.log()))
        return [d["embedding"] for d in reply["data"]]

    def state(self):
        return self.status()["embeddings"]

    def until_done(self):
        """Until every message has its vectors."""
        self.until(lambda: not self.state().get("waiting", True), "vectors")

    def tell(self, *texts):
        """A conversation's messages; its id."""
        c = self.post("/v1/conversations", {})[1]["id"]
        for i in range(0, len(texts), 20):
            items = [
                {"type": "message", "role": "user", "content": t} for t in texts[i : i + 20]
            ]
            status, reply = self.post(f"/v1/conversations/{c}/items", {"items": items})
            if status != 200:
                raise AssertionError((status, reply))
        return c

    def search(self, query, **more):
        status, reply = self.post("/v1/hearth/search", {"query": query, **more})
        if status != 200:
            raise AssertionError((status, reply))
        return reply["data"]

    def vectors(self):
        """[(message row, model)], from the database."""
        path = os.path.join(self.folder, "state", "history.db")
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10) as db:
            return db.execute("SELECT message, hex(model) FROM message_vector").fetchall()


class Api(unittest.TestCase):
    def test_vectors_come_in_openais_format_and_order(self):
        with Embedding(model()) as d:
            texts = ["the peanut", "hello", "the peanut", "中文"]
            status, reply = d.post(URL, {"model": "any", "input": texts})
            self.assertEqual(status, 200, reply)
            self.assertEqual(reply["object"], "list")
            self.assertEqual(reply["model"], "tiny-bert")
            self.assertEqual([x["index"] for x in reply["data"]], [0, 1, 2, 3])
            self.assertEqual({x["object"] for x in reply["data"]}, {"embedding"})
            self.assertEqual(reply["usage"], {"prompt_tokens": 15, "total_tokens": 15})
            self.assertEqual(reply["hearth"]["truncated"], [])
            v = [x["embedding"] for x in reply["data"]]
            for x in v:
                self.assertEqual(len(x), 32)
                self.assertAlmostEqual(math.sqrt(dot(x, x)), 1, places=5)
            self.assertAlmostEqual(dot(v[0], v[2]), 1, places=5)
            self.assertLess(dot(v[0], v[1]), 0.99)
            one = d.embed("the peanut")[0]
            self.assertAlmostEqual(dot(one, v[0]), 1, places=5)
            status, packed = d.post(URL, {"input": "hello", "encoding_format": "base64"})
            data = base64.b64decode(packed["data"][0]["embedding"], validate=True)
            for a, b in zip(struct.unpack("<32f", data), v[1]):
                self.assertAlmostEqual(a, b, places=5)
            self.assertEqual(len(d.embed(["a"] * 2048)), 2048)
            same = d.embed("x", dimensions=32, user="u", encoding_format=None)
            self.assertEqual(same, d.embed("x"))

    def test_what_is_not_supported_is_refused_by_name(self):
        cases = [
            ({}, "input"),
            ({"input": None}, "input"),
            ({"input": ""}, "empty"),
            ({"input": []}, "0 items"),
            ({"input": ["a", ""]}, "input 1"),
            ({"input": ["a"] * 2049}, "2048"),
            ({"input": [1, 2, 3]}, "token ids"),
            ({"input": [[1, 2, 3]]}, "token ids"),
            ({"input": {"a": 1}}, "object"),
            ({"input": "a", "encoding_format": "int8"}, "base64"),
            ({"input": "a", "dimensions": 16}, "32"),
            ({"input": "a", "dimensions": 0}, "dimensions"),
            ({"input": ["a", "word " * 100]}, "input 1"),
        ]
        with Embedding(model()) as d:
            for body, says in cases:
                status, reply = d.post(URL, body)
                self.assertEqual(status, 400, (body, reply))
                self.assertIn(says, reply["error"]["message"])
            self.assertEqual(reply["error"]["code"], "context_length_exceeded")
            status, reply = d.post(URL, {"input": ["a", "word " * 100], "truncate": True})
            self.assertEqual((status, reply["hearth"]["truncated"]), (200, [1]))
            self.assertEqual(reply["usage"]["prompt_tokens"], 3 + 64)
            self.assertEqual(d.get(URL)[0], 405)

    def test_without_an_embedding_model_the_flag_is_named(self):
        with Scripted(SCRIPT) as d:
            status, reply = d.post(URL, {"input": "a"})
            self.assertEqual(status, 404, reply)
            self.assertIn("--embedding-model", reply["error"]["message"])
            self.assertEqual(d.status()["embeddings"], {"state": "off"})
            self.assertEqual(d.status()["memory"]["vectors_bytes"], 0)

    def test_a_file_that_is_no_embedding_model_costs_search_by_meaning_alone(self):
        path = os.path.join(folder, "bad.gguf")
        with open(model(), "rb") as f, open(path, "wb") as out:
            out.write(f.read().replace(b"attn_q.weight", b"attn_x.weight"))
        with Embedding(path) as d:
            d.until(lambda: d.state()["state"] == "failed", "failed")
            status, reply = d.post(URL, {"input": "a"})
            self.assertEqual(status, 503)
            self.assertIn("blk.0.attn_q.weight", reply["error"]["message"])
            self.assertIn("blk.0.attn_q.weight", d.state()["error"])
            self.assertEqual(d.say([{"role": "user", "content": "x"}]), "fine")
            d.tell("a peanut")
            self.assertEqual(d.search("peanut")[0]["why"], ["terms"])

    def test_the_account_of_memory_has_the_model_and_its_vectors(self):
        with Embedding(model(), "--memory", "512M") as d:
            d.embed("x")
            memory = d.status()["memory"]
            self.assertGreaterEqual(memory["vectors_bytes"], 32 << 20)
            whole = memory["weights_bytes"] + memory["vectors_bytes"] + memory["buffers_bytes"]
            self.assertLessEqual(whole + memory["kv_bytes_max"], memory["limit_bytes"])

    def test_clients_that_leave_and_a_stop_end_long_requests(self):
        big = model(7, "--embd", "512", "--ff", "2048", "--layers", "24", "--ctx", "512")
        texts = json.dumps({"input": ["word " * 100] * 2000}).encode()
        head = f"POST {URL} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(texts)}\r\n\r\n".encode()
        with Embedding(big, "--memory", "1G") as d:
            d.embed("x")
            gone = d.raw()
            gone.sendall(head + texts)
            gone.close()
            d.embed("y")  # its turn comes
            waits = d.raw()
            waits.sendall(head + texts)
            answer = []
            reader = threading.Thread(target=lambda: answer.append(waits.recv(100)))
            reader.start()
            d.until(lambda: d.get("/health")[0] == 200, "health")
            d.signal()
            self.assertEqual(d.wait_end(), 0)
            reader.join()
            waits.close()
            self.assertIn(answer[0][:12], (b"HTTP/1.1 503", b""))


class Meaning(unittest.TestCase):
    def test_messages_get_vectors_in_the_background_and_are_found_by_them(self):
        with Embedding(model()) as d:
            d.tell("a peanut allergic snack", "hello world", "unaffable embedding")
            d.until_done()
            self.assertEqual(d.state()["vectors"], 3)
            hits = d.search("peanut")
            self.assertEqual(hits[0]["text"], "a peanut allergic snack")
            self.assertEqual(hits[0]["why"][0], "terms")
            # No word of the query is in any message: these are hits by their vectors.
            hits = d.search("embed un able")
            self.assertTrue(hits)
            self.assertNotIn("terms", [w for h in hits for w in h["why"]])
            d.tell("another one")
            d.until_done()
            self.assertEqual(d.state()["vectors"], 4)

    def test_vectors_survive_a_restart_and_another_model_replaces_them(self):
        kept = tempfile.mkdtemp(dir=folder)
        with Embedding(model(), folder=kept) as d:
            d.tell(*(f"message number {i}" for i in range(100)))
            d.until_done()
            before = d.vectors()
            self.assertEqual(len(before), 100)
        with Embedding(model(), folder=kept) as d:
            d.until_done()
            self.assertEqual(d.vectors(), before)
            self.assertTrue(d.search("a 7 un"))
        with Embedding(model(2), folder=kept) as d:
            d.until_done()
            after = d.vectors()
            self.assertEqual([m for m, _ in after], [m for m, _ in before])
            self.assertEqual(len({model for _, model in after + before}), 2)
            self.assertTrue(d.search("a 7 un"))
        with Scripted(SCRIPT, folder=kept) as d:  # and none needs them
            status, reply = d.post("/v1/hearth/search", {"query": "number 7"})
            self.assertEqual((status, reply["data"][0]["why"][0]), (200, "terms"))

    def test_a_chat_goes_on_with_another_model_of_another_dimension(self):
        """Those that the other made are skipped: words recall until they are made anew."""
        kept, ctx = tempfile.mkdtemp(dir=folder), 512
        allergic, lines = "The peanut code is QX-5519.", filler("en")
        wide = model(3, "--embd", "96", "--heads", "3")
        with Scripted(script("en", ctx), "--embedding-model", model(), folder=kept) as d:
            t = Talk(d, "retrieve")
            t.say(allergic)
            for line, _ in lines[:20]:
                t.say(line)
            d.until(lambda: not d.status()["embeddings"].get("waiting", True), "vectors")
            self.assertNotIn("recall_partial", receipt(t.say("What is the peanut code?")))
            before = t.messages()
        with Scripted(script("en", ctx), "--embedding-model", wide, folder=kept) as d:
            t.d = d
            self.assertEqual(t.messages(), before)
            t.say("Tell me the code of the peanut, please.")
            self.assertIn("QX-5519", t.prompt())
            d.until(lambda: not d.status()["embeddings"].get("waiting", True), "vectors")
            self.assertGreaterEqual(d.status()["embeddings"]["vectors"], len(t.messages()))
            self.assertNotIn("recall_partial", receipt(t.say("And the snack?")))
            self.assertEqual(t.messages()[: len(before)], before)

    def test_a_kill_while_vectors_are_made_loses_no_message(self):
        kept = tempfile.mkdtemp(dir=folder)
        with Embedding(model(), folder=kept) as d:
            d.tell(*(f"message number {i}" for i in range(400)))
            d.kill()
        with Embedding(model(), folder=kept) as d:
            d.until_done()
            self.assertEqual(len(d.vectors()), 400)

    def test_deleting_takes_vectors_along(self):
        with Embedding(model()) as d:
            gone, kept = d.tell("the peanut", "the snack"), d.tell("a peanut")
            d.until_done()
            self.assertEqual(d.request("DELETE", f"/v1/conversations/{gone}")[0], 200)
            self.assertEqual(len(d.vectors()), 1)
            self.assertEqual(d.state()["vectors"], 1)
            self.assertEqual({h["conversation"] for h in d.search("the peanut")}, {kept})

    def test_texts_of_any_kind_get_vectors(self):
        texts = ["", " ", "\u200b", "x" * 200000, "word " * 3000, "😀" * 500, "中" * 5000]
        with Embedding(model()) as d:
            d.tell(*(t for t in texts if t))
            d.until_done()
            rows = [m for m, _ in d.vectors()]
            self.assertEqual(len(set(rows)), len(texts) - 1)
            self.assertLessEqual(max(rows.count(r) for r in rows), 16)


MINILM = os.environ.get(
    "HEARTH_MINILM",
    os.path.join(os.path.dirname(MODEL), "all-MiniLM-L6-v2.F16.gguf"),
)


@unittest.skipUnless(os.path.exists(MINILM), "scripts/get-model minilm")
class MiniLM(unittest.TestCase):
    def test_a_peanut_is_found_by_what_it_means(self):
        with Embedding(MINILM) as d:
            d.tell(
                "I'm allergic to peanuts.",
                "The train to Osaka leaves at nine.",
                "My sister plays the violin.",
                "We painted the kitchen green.",
            )
            d.until_done()
            hits = d.search("Which food must I avoid?")
            self.assertEqual(hits[0]["text"], "I'm allergic to peanuts.")
            self.assertEqual(hits[0]["why"], ["meaning"])


if __name__ == "__main__":
    main()
