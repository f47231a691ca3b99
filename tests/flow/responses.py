"""What the tests of /v1/responses share: a script, a daemon over it, short ways to ask."""

import unittest

from harness import Scripted

SCRIPT = {
    "ctx": 512,
    "rules": [
        {"when": "capital", "pieces": ["To", "ky", "o"]},
        {"when": "split", "pieces": [".", "\n\n", "end"]},
        {"when": "llama", "bytes": "f09fa699e4bda0"},
        {"when": "long", "pieces": ["word "], "then": "forever"},
        {"when": "nan", "pieces": ["a", "b", "c"], "all_nan_at": 2},
        {"when": "nomem", "pieces": ["a", "b", "c"], "error_at": 1},
    ],
    "default": {"pieces": ["ok"]},
}
STREAM = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
]


def text_of(reply):
    return "".join(p["text"] for item in reply["output"] for p in item["content"])


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.d = Scripted(SCRIPT)

    @classmethod
    def tearDownClass(cls):
        cls.d.stop()

    def respond(self, input=None, **more):
        body = {"model": "default", "temperature": 0, **more}
        if input is not None:
            body["input"] = input
        status, reply = self.d.post("/v1/responses", body)
        self.assertEqual(status, 200, reply)
        return reply

    def refused(self, status, param=None, code=None, **body):
        got, reply = self.d.post("/v1/responses", body)
        self.assertEqual(got, status, reply)
        error = reply["error"]
        self.assertEqual(set(error), {"message", "type", "param", "code"})
        self.assertTrue(error["message"])
        if param:
            self.assertEqual(error["param"], param, error)
        if code:
            self.assertEqual(error["code"], code, error)
        return error

    def conversation(self, **body):
        status, reply = self.d.post("/v1/conversations", body)
        self.assertEqual(status, 200, reply)
        return reply["id"]

    def items(self, conversation, order="asc"):
        status, reply = self.d.get(
            f"/v1/conversations/{conversation}/items?order={order}&limit=100"
        )
        self.assertEqual(status, 200, reply)
        return [(i["role"], "".join(p["text"] for p in i["content"])) for i in reply["data"]]

    def input_items(self, id, query=""):
        status, reply = self.d.get(f"/v1/responses/{id}/input_items{query}")
        self.assertEqual(status, 200, reply)
        return reply

    def n_stored(self):
        history = self.d.status()["history"]
        return history["conversations"], history["messages"]
