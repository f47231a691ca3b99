"""
The exchanges of test_openai.py as bytes on a socket, compared with what is written down in
transcripts/*.txt. HEARTH_RECORD=1 writes them anew; then read the diff.

    # a comment
    >>> POST /v1/conversations       a request: method, path, then its body (a line, or nothing)
    {"metadata": {}}
    <<< 200 application/json         status, content type, further headers that matter
    {"id": "conv-1", …}              the body as JSON, or the stream's lines as they came

What differs from run to run is replaced: ids by a name and the order in which they came up (conv-1,
msg-2; a request may use the names); times, speeds, and what the receipt says of the previous prompt
(its own tests know that) by 0.
"""

import glob
import os
import re
import socket
import unittest

import tcp
from harness import PATIENCE_S, main

HERE = os.path.dirname(os.path.abspath(__file__))
RECORDS = os.environ.get("HEARTH_RECORD")
SCRIPT = {
    "ctx": 512,
    "rules": [
        {"when": "capital", "pieces": ["To", "ky", "o"]},
        {"when": "llama", "bytes": "f09fa699e4bda0"},
        {"when": "nan", "pieces": ["a", "b", "c"], "all_nan_at": 2},
    ],
    "default": {"pieces": ["ok"]},
}
TIMES = re.compile(
    r'"(\w+_(?:ms|tps)|prefix_(?:kept|lost)|created(?:_at)?|updated_at|completed_at'
    r'|drafted|accepted)"'  # they go by what passes take
    r':[0-9.eE+-]+'
)
IDS = re.compile(r"(conv_|resp_|msg_|chatcmpl-|cmpl-)[0-9a-f]{32}")


class Names:
    """Ids and their short names."""

    def __init__(self):
        self.of_id, self.of_name = {}, {}

    def shorten(self, text):
        def name(m):
            id = m.group(0)
            if id not in self.of_id:
                kind = m.group(1).rstrip("_-")
                n = 1 + sum(k.startswith(kind + "-") for k in self.of_name)
                self.of_id[id] = f"{kind}-{n}"
                self.of_name[f"{kind}-{n}"] = id
            return self.of_id[id]

        return TIMES.sub(r'"\1":0', IDS.sub(name, text))

    def expand(self, text):
        return re.sub(
            r"\b(?:conv|resp|msg|chatcmpl|cmpl)-\d+\b",
            lambda m: self.of_name.get(m.group(0), m.group(0)),
            text,
        )


class Wire:
    """One keep-alive connection, read strictly."""

    def __init__(self, port):
        self.s = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.f = self.s.makefile("rb")

    def close(self):
        self.f.close()
        self.s.close()

    def exchange(self, method, path, body):
        data = body.encode()
        head = [
            f"{method} {path} HTTP/1.1",
            "Host: 127.0.0.1",
            f"Authorization: Bearer {tcp.KEYS['alice']}",
        ]
        if data:
            head += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
        self.s.sendall("\r\n".join(head + ["", ""]).encode() + data)
        version, status, _ = self.line().split(" ", 2)
        assert version == "HTTP/1.1", version
        headers = {}
        while line := self.line():
            key, value = line.split(": ", 1)
            assert key.lower() not in headers, f"{key} twice"
            headers[key.lower()] = value
        return int(status), headers, self.body(headers).decode()

    def line(self):
        line = self.f.readline()
        assert line.endswith(b"\r\n"), line
        return line[:-2].decode()

    def body(self, headers):
        assert ("content-length" in headers) != ("transfer-encoding" in headers), headers
        if "content-length" in headers:
            return self.f.read(int(headers["content-length"]))
        assert headers["transfer-encoding"] == "chunked"
        data = b""
        while n := int(self.line(), 16):
            data += self.f.read(n)
            assert self.line() == ""
        assert self.line() == ""
        return data


def parse(text):
    """[{"comment", "method", "path", "body", "expected"}]"""
    exchanges, comment = [], ""
    for line in text.splitlines(keepends=True):
        if line.startswith("#"):
            comment += line
        elif line.startswith(">>> "):
            _, method, path = line.split()
            exchanges.append(
                {"comment": comment, "method": method, "path": path, "body": "", "expected": ""}
            )
            comment = ""
        elif line.startswith("<<< ") or exchanges[-1]["expected"]:
            exchanges[-1]["expected"] += line
        else:
            exchanges[-1]["body"] += line
    return exchanges


def reply_text(names, status, headers, body):
    more = "".join(f" {k}={headers[k]}" for k in ("retry-after", "allow") if k in headers)
    return (
        f"<<< {status} {headers.get('content-type', '-')}{more}\n{names.shorten(body).rstrip()}\n\n"
    )


class Transcripts(unittest.TestCase):
    def check(self, path):
        names = Names()
        with open(path) as f:
            written = f.read()
        d, port = tcp.scripted(SCRIPT)
        with d:
            wire = Wire(port)
            got = ""
            for x in parse(written):
                reply = reply_text(
                    names,
                    *wire.exchange(
                        x["method"], names.expand(x["path"]), names.expand(x["body"].strip())
                    ),
                )
                got += f"{x['comment']}>>> {x['method']} {x['path']}\n{x['body']}{reply}"
                if not RECORDS:
                    self.assertEqual(
                        reply.rstrip(),
                        x["expected"].rstrip(),
                        f"{os.path.basename(path)}: {x['method']} {x['path']}",
                    )
            wire.close()
        if RECORDS:
            with open(path, "w") as f:
                f.write(got.rstrip() + "\n")

    def test_what_is_written_down_is_what_comes(self):
        paths = sorted(glob.glob(os.path.join(HERE, "transcripts", "*.txt")))
        self.assertTrue(paths)
        for path in paths:
            with self.subTest(os.path.basename(path)):
                self.check(path)


if __name__ == "__main__":
    main()
