"""The wire, by a fake server: streams and replies that no daemon of ours sends."""

import json
import os
import socket
import tempfile
import threading
import unittest

from hearth import Hearth
from harness import main

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\n%s\r\n"
STREAM = HEAD % (b"text/event-stream", b"Transfer-Encoding: chunked\r\n")


def event(data):
    return b"data: " + (data if isinstance(data, bytes) else json.dumps(data).encode()) + b"\n\n"


def delta(text, finish=None):
    return event({"choices": [{"delta": {"content": text}, "finish_reason": finish}]})


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def whole(body, status=b"200 OK"):
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(text), text)


class Fake:
    """Answers each connection's requests in turn: replies[path] is a list of byte strings to send
    one after the other (then the connection is kept), or ends with None: then it is closed."""

    def __init__(self, replies):
        self.folder = tempfile.mkdtemp(prefix="hearth-")
        self.path = os.path.join(self.folder, "s")
        self.replies = replies
        self.requests = []
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(self.path)
        self.server.listen()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                c = self.server.accept()[0]
            except OSError:
                return
            threading.Thread(target=self.answer, args=(c,), daemon=True).start()

    def read_request(self, c):
        """The path, or None at the end."""
        data = b""
        while b"\r\n\r\n" not in data:
            more = c.recv(65536)
            if not more:
                return None
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        length = 0
        for line in head.split(b"\r\n"):
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        while len(body) < length:
            body += c.recv(65536)
        self.requests.append((head.decode(), body))
        return head.split()[1].decode()

    def answer(self, c):
        with c:
            while True:
                path = self.read_request(c)
                if path is None:
                    return
                for part in self.replies.get(path, [whole({"data": []})]):
                    if part is None:
                        return
                    try:
                        c.sendall(part)
                    except OSError:
                        return

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.close()
        os.unlink(self.path)
        os.rmdir(self.folder)


class Transport(unittest.TestCase):
    def ask(self, *parts, words=("ask", "hi"), **more):
        """The Result of `ask` with these parts sent for /v1/chat/completions."""
        replies = {
            "/health": [whole({"status": "ok"})],
            "/v1/chat/completions": list(parts),
            **more,
        }
        with Fake(replies) as fake:
            h = Hearth(fake.path)
            r = h.run(*words)
            h.close()
            self.requests = fake.requests
        return r

    GOOD = delta("Hel") + delta("lo 你好 🦙") + delta("", "stop") + event(b"[DONE]")

    def test_any_split_gives_the_same_text(self):
        for size in (1, 2, 3, 7, 50, 10000):
            chunks = [self.GOOD[i : i + size] for i in range(0, len(self.GOOD), size)]
            data = STREAM + b"".join(chunk(c) for c in chunks) + chunk(b"")
            r = self.ask(data)
            self.assertEqual((r.code, r.out, r.err), (0, "Hello 你好 🦙\n", ""), size)
            pieces = [data[i : i + size] for i in range(0, len(data), size)]
            self.assertEqual(self.ask(*pieces).out, "Hello 你好 🦙\n")

    def test_other_line_ends_comments_and_names(self):
        text = b": hello\r\nevent: x\r\nid: 7\r\n" + self.GOOD.replace(b"\n", b"\r\n")
        r = self.ask(STREAM + chunk(text) + chunk(b""))
        self.assertEqual((r.code, r.out), (0, "Hello 你好 🦙\n"))

    def test_an_event_of_several_lines(self):
        text = b'data: {"choices":\ndata: [{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\n'
        self.assertEqual(self.ask(STREAM + chunk(text) + chunk(b"")).out, "a\n")

    def test_a_stream_cut_in_a_chunk_broke_off(self):
        cut = STREAM + chunk(delta("Hel")) + b"ff\r\ndata: {"
        r = self.ask(cut, None)
        self.assertEqual((r.code, r.out), (1, "Hel\n"))
        self.assertIn("the answer broke off: the connection to", r.err)
        error = json.loads(self.ask(cut, None, words=("ask", "--json", "hi")).out)["error"]
        self.assertIn("broke off", error["message"])

    def test_a_stream_that_ends_without_a_reason_broke_off(self):
        r = self.ask(STREAM + chunk(delta("Hel")) + chunk(b""))
        self.assertEqual((r.code, r.out, r.err), (1, "Hel\n", "hearth: the answer broke off\n"))

    def test_a_close_before_the_reply(self):
        r = self.ask(None)
        self.assertEqual((r.code, r.out), (1, ""))
        self.assertIn("no answer: the connection to", r.err)
        self.assertEqual(sum("/v1/chat/completions" in q[0] for q in self.requests), 1, "not twice")

    def test_an_error_in_the_stream(self):
        for error in (
            {"error": {"message": "it burns", "code": "fire"}},
            {"type": "error", "message": "it burns"},
            {"error": "it burns"},
        ):
            r = self.ask(STREAM + chunk(delta("Hel") + event(error)))
            self.assertEqual((r.code, r.out), (1, "Hel\n"), error)
            self.assertEqual(r.err, "hearth: it burns\n")

    def test_an_event_that_is_no_json(self):
        r = self.ask(STREAM + chunk(delta("Hel") + event(b"{nonsense")))
        self.assertEqual((r.code, r.out), (1, "Hel\n"))
        self.assertIn("an event is no JSON: offset", r.err)

    def test_events_of_other_shapes_are_passed_over(self):
        odd = [[], 1, "x", {}, {"choices": []}, {"choices": {}}, {"choices": [None]}]
        odd += [{"choices": [{"delta": None}]}, {"choices": [{"delta": {"content": 5}}]}]
        r = self.ask(STREAM + chunk(b"".join(map(event, odd)) + self.GOOD) + chunk(b""))
        self.assertEqual((r.code, r.out), (0, "Hello 你好 🦙\n"))

    def test_a_refusal_without_json(self):
        for body in (b"<html>502</html>", b"", b"[]", b'{"error":7}'):
            r = self.ask(whole(body, b"502 Bad Gateway"))
            self.assertEqual(
                (r.code, r.err), (1, "hearth: the daemon answered with HTTP status 502\n")
            )

    def test_exit_codes_by_status(self):
        for status, code in ((400, 1), (401, 6), (403, 6), (404, 5), (429, 4), (500, 1), (503, 4)):
            body = whole({"error": {"message": "no", "code": None}}, b"%d x" % status)
            self.assertEqual(self.ask(body).code, code, status)

    def test_escapes_in_an_error_do_not_drive_the_terminal(self):
        body = whole({"error": {"message": "a\u001b[2Jb", "code": "x"}}, b"400 x")
        with Fake({"/health": [whole({})], "/v1/chat/completions": [body]}) as fake:
            h = Hearth(fake.path)
            p = h.person("ask", "hi")
            self.assertEqual(p.end(), 1)
            self.assertEqual(p.seen, "hearth: a\ufffd[2Jb\r\n".encode())
            h.close()

    def test_a_daemon_whose_model_failed_or_that_stops(self):
        for body, code, pattern in (
            ({"status": "failed", "error": "x.gguf is torn"}, 1, "load its model: x.gguf is torn"),
            ({"status": "stopping"}, 4, "is stopping"),
            ({"status": "new word"}, 4, "HTTP status 503"),
            ([], 4, "HTTP status 503"),
        ):
            for words in (("ask", "hi"), ("chat",), ("status",)):
                r = self.ask(words=words, **{"/health": [whole(body, b"503 x")]})
                self.assertEqual(r.code, code, r)
                self.assertRegex(r.err, pattern)

    def test_replies_of_other_shapes(self):
        for body in (b"", b"{", b"[]", b"7", b'{"data":7}', b'{"data":[7,[],{}]}', b"{}"):
            replies = {
                "/v1/conversations?order=desc&limit=20": [whole(body)],
                "/v1/conversations?order=desc&limit=100": [whole(body)],
                "/v1/hearth/status": [whole(body)],
                "/v1/models": [whole(body)],
                "/v1/conversations": [whole(body)],
            }
            for words in (
                ("list",),
                ("show", "1"),
                ("status",),
                ("models",),
                ("chat", "--continue"),
            ):
                r = self.ask(words=words, **replies)
                self.assertIn(r.code, (0, 1, 5), (body, words, r))

    def test_a_list_that_never_ends_is_left(self):
        # has_more without a last_id would be asked for again and again.
        page = whole({"data": [], "has_more": True, "last_id": ""})
        r = self.ask(words=("show", "abcd"), **{"/v1/conversations?order=desc&limit=100": [page]})
        self.assertEqual(r.code, 5)

    def test_the_request(self):
        self.ask(STREAM + chunk(self.GOOD) + chunk(b""), words=("ask", "hi there"))
        head, body = self.requests[-1]
        self.assertTrue(head.startswith("POST /v1/chat/completions HTTP/1.1\r\n"))
        self.assertIn("Content-Type: application/json", head)
        self.assertNotIn("Expect:", head)
        j = json.loads(body)
        self.assertEqual(j["messages"], [{"role": "user", "content": "hi there"}])
        self.assertEqual((j["temperature"], j["min_p"], j["repetition_penalty"]), (0, 0.05, 1.1))
        self.assertEqual((j["stream"], j["model"]), (True, "default"))

    def test_the_files_sampling_comes_before_the_clients(self):
        models = whole(
            {
                "data": [
                    {
                        "id": "m",
                        "hearth": {
                            "sampling": {
                                "temperature": 0.2,
                                "top_p": 0.8,
                                "min_p": None,
                                "repetition_penalty": 1.05,
                            }
                        },
                    }
                ]
            }
        )
        self.ask(
            STREAM + chunk(self.GOOD) + chunk(b""), words=("ask", "hi"), **{"/v1/models": [models]}
        )
        j = json.loads(self.requests[-1][1])
        self.assertEqual(
            (j["temperature"], j["top_p"], j["min_p"], j["repetition_penalty"]),
            (0, 0.8, 0.05, 1.05),
        )

    def test_another_server_gets_what_was_given(self):
        server = socket.create_server(("127.0.0.1", 0))
        port = server.getsockname()[1]

        def serve():
            c = server.accept()[0]
            fake = Fake.__new__(Fake)
            fake.requests = self.requests = []
            fake.replies = {"/v1/chat/completions": [STREAM + chunk(self.GOOD) + chunk(b"")]}
            fake.answer(c)

        t = threading.Thread(target=serve)
        t.start()
        h = Hearth(where=["--url", f"http://127.0.0.1:{port}/"])
        r = h.run("ask", "hi")
        h.close()
        t.join()
        server.close()
        self.assertEqual((r.code, r.out), (0, "Hello 你好 🦙\n"), r)
        self.assertEqual(
            set(json.loads(self.requests[0][1])),
            {"temperature", "model", "messages", "stream", "stream_options"},
        )


class Chat(unittest.TestCase):
    """The events of /v1/responses, by the fake server."""

    def chat(self, *events, stdin="hi\n"):
        stream = STREAM + b"".join(chunk(event(e)) for e in events) + chunk(b"")
        replies = {
            "/health": [whole({"status": "ok"})],
            "/v1/models": [whole({"data": [{"id": "m"}]})],
            "/v1/conversations": [whole({"id": "conv_" + "1" * 32})],
            "/v1/responses": [stream],
        }
        with Fake(replies) as fake:
            h = Hearth(fake.path)
            r = h.run("chat", stdin=stdin)
            h.close()
            self.requests = [q[0].split("\r\n")[0] for q in fake.requests]
        return r

    DELTA = {"type": "response.output_text.delta", "delta": "Hi"}

    def end(self, kind, **more):
        return {"type": "response." + kind, "response": {"status": kind, **more}}

    def test_an_answer_that_was_not_stored_is_said(self):
        r = self.chat(self.DELTA, self.end("completed", hearth={"stored": False}))
        self.assertEqual((r.code, r.out), (0, "Hi\n"))
        self.assertIn("could not be stored", r.err)
        r = self.chat(self.DELTA, self.end("completed", hearth={"stored": True}))
        self.assertEqual(r.err, "")

    def test_an_answer_that_its_limit_ended_is_said(self):
        r = self.chat(self.DELTA, self.end("incomplete"))
        self.assertEqual((r.code, r.out), (0, "Hi\n"))
        self.assertIn("the answer ends here", r.err)

    def test_an_answer_that_failed(self):
        r = self.chat(self.DELTA, self.end("failed", error={"code": "x", "message": "it burns"}))
        self.assertEqual((r.code, r.out, r.err), (1, "Hi\n", "hearth: it burns\n"))
        r = self.chat(self.end("failed"))
        self.assertEqual((r.code, r.err), (1, "hearth: the answer failed\n"))

    def test_a_stream_without_an_end_broke_off(self):
        r = self.chat(self.DELTA)
        self.assertEqual((r.code, r.out, r.err), (1, "Hi\n", "hearth: the answer broke off\n"))
        self.assertFalse([q for q in self.requests if q.startswith("DELETE")], "it may be stored")

    def test_events_that_are_new_are_passed_over(self):
        r = self.chat({"type": "response.new"}, {}, [], 7, self.DELTA, self.end("completed"))
        self.assertEqual((r.code, r.out, r.err), (0, "Hi\n", ""))


if __name__ == "__main__":
    main()
