"""While the model loads: what needs it waits, in the order it came; a failed load, a stop and a
client that goes end the wait.
"""

import json
import os
import tempfile
import unittest

from harness import PATIENCE_S, Scripted, Stream, content, main, together, user

SCRIPT = {"load_ms": 1000, "default": {"pieces": ["ok"]}}
LONG = {**SCRIPT, "load_ms": 60000}
# They leave no room for a context: known only when they have been read.
NO_ROOM = {**SCRIPT, "weights_bytes": (256 << 20) - 4096}
CHAT = {"messages": [user("x")]}


def loading(script, *flags):
    """A daemon that has its socket and not yet its model."""
    d = Scripted(script, *flags, wait=False)

    def answers():
        try:
            return d.get("/health")[0] == 503
        except OSError:
            return False

    d.until(answers, "loading")
    return d


def send(d, path="/v1/chat/completions", body=None):
    """A request whose answer is read later (or never)."""
    s = d.raw()
    data = json.dumps(body or CHAT).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
    s.sendall(head.encode() + data)
    return s


def read_to_end(s):
    s.settimeout(PATIENCE_S)
    data = b""
    while True:
        more = s.recv(65536)
        if not more:
            s.close()
            return data
        data += more


def places(d):
    """Admitted turns."""
    lines = d.get("/metrics")[1].decode().splitlines()
    return [int(x.split()[-1]) for x in lines if x.startswith("hearth_places_taken ")][0]


class Loading(unittest.TestCase):
    def test_what_needs_the_model_waits_and_is_answered(self):
        def streamed():
            with Stream(d, "/v1/chat/completions", {**CHAT, "stream": True}) as s:
                self.assertEqual(s.status, 200)
                list(s)
                self.assertTrue(s.is_done)

        with loading(SCRIPT) as d:
            chat, response, text, ids, n, _ = together(
                lambda: d.post("/v1/chat/completions", CHAT),
                lambda: d.post("/v1/responses", {"input": "x"}),
                lambda: d.post("/v1/completions", {"prompt": "x", "max_tokens": 8}),
                lambda: d.post("/tokenize", {"content": "x"}),
                lambda: d.post("/v1/responses/input_tokens", {"input": "x"}),
                streamed,
            )
            for status, reply in (chat, response, text, ids, n):
                self.assertEqual(status, 200, reply)
            self.assertEqual(content(chat[1]), "ok")
            self.assertEqual(d.status()["turns"]["done"], 4)

    def test_a_conversation_s_turns_wait_twice(self):
        with loading(SCRIPT) as d:
            c = d.post("/v1/conversations", {})[1]["id"]
            ask = {"conversation": c, "input": "x"}
            for status, reply in together(*[lambda: d.post("/v1/responses", ask)] * 3):
                self.assertEqual(status, 200, reply)
            self.assertEqual(len(d.get(f"/v1/conversations/{c}/items")[1]["data"]), 6)

    def test_who_asks_for_the_model_is_told(self):
        with loading(LONG) as d:
            for path in ("/v1/models", "/v1/models/default"):
                status, reply = d.get(path)
                self.assertEqual((status, reply["error"]["code"]), (503, "model_loading"))
            self.assertEqual(d.status()["state"], "loading")

    def test_admission_bounds_who_waits(self):
        with loading(LONG, "--parallel", "1", "--queue", "1") as d:
            waiting = [send(d), send(d)]
            d.until(lambda: places(d) == 2, "two wait")
            status, reply = d.post("/v1/chat/completions", CHAT)
            self.assertEqual((status, reply["error"]["code"]), (503, "queue_full"))
            for s in waiting:
                s.close()
            d.until(lambda: places(d) == 0, "their places are free")

    def test_others_than_turns_are_bounded_too(self):
        with loading(LONG, "--parallel", "1", "--queue", "1") as d:
            waiting = [send(d, "/tokenize", {"content": "x"}) for _ in range(3)]
            replies = []

            def one_is_refused():
                for s in waiting:
                    s.settimeout(0.01)
                    try:
                        replies.append(s.recv(65536))
                    except TimeoutError:
                        pass
                return replies

            d.until(one_is_refused, "one is refused")
            self.assertEqual(len(replies), 1)
            self.assertIn(b"model_loading", replies[0])
            for s in waiting:
                s.close()

    def test_a_client_that_goes_is_dropped(self):
        with loading(SCRIPT) as d:
            c = d.post("/v1/conversations", {})[1]["id"]
            s = send(d, "/v1/responses", {"conversation": c, "input": "gone"})
            d.until(lambda: places(d) == 1, "it waits")
            s.close()
            d.until(lambda: places(d) == 0, "it is noticed")
            self.assertEqual(d.say([user("x")]), "ok")
            self.assertEqual(d.status()["turns"]["started"], 1)
            self.assertEqual(d.get(f"/v1/conversations/{c}/items")[1]["data"], [])

    def test_a_failed_load_tells_why(self):
        d = loading(NO_ROOM)
        s = send(d)
        tokens = send(d, "/tokenize", {"content": "x"})
        for data in (read_to_end(s), read_to_end(tokens)):
            self.assertTrue(data.startswith(b"HTTP/1.1 503"), data)
            self.assertIn(b"model_failed", data)
            self.assertIn(b"memory", data)
        self.assertEqual(d.wait_end(), 1)
        d.kill()

    def test_a_history_that_cannot_be_opened_ends_the_loading(self):
        """The model is loaded beside it, for a minute here."""
        with tempfile.TemporaryDirectory(prefix="hearth-") as folder:
            os.mkdir(os.path.join(folder, "state"), 0o700)
            database = os.path.join(folder, "state", "history.db")
            with open(database, "wb") as f:
                f.write(b"no database " * 1000)
            d = Scripted(LONG, folder=folder, wait=False)
            self.assertEqual(d.wait_end(), 1)
            self.assertIn("history.db is not a SQLite database", d.log())
            self.assertNotIn("canceled", d.log())  # the cause alone
            with open(database, "rb") as f:
                self.assertEqual(f.read(), b"no database " * 1000)

    def test_a_stop_answers_who_waits(self):
        with loading(LONG) as d:
            waiting = [send(d), send(d, "/tokenize", {"content": "x"})]
            waiting.append(send(d, body={**CHAT, "stream": True}))
            d.until(lambda: places(d) == 2, "two turns wait")
            d.signal()
            for s in waiting:
                data = read_to_end(s)
                self.assertTrue(data.startswith(b"HTTP/1.1 503"), data)
                self.assertIn(b"stopping", data)
            self.assertEqual(d.wait_end(), 0)


if __name__ == "__main__":
    main()
