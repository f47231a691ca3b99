"""Owners on one daemon, as the system's service has them: uids behind a group's socket, keys on
loopback. Nothing of one is there for another: no id, no block in RAM or on disk, no stored answer.
Which paths there are is read from daemon/route.c, so that a new one is asked for here too.
"""

import http.client
import json
import os
import re
import shutil
import socket
import stat
import tempfile
import unittest

from harness import PATIENCE_S, SOURCE, Scripted, UnixConnection, assistant, cached, main, user

BLOCK = 32
GROUP = 2001  # no name is needed
UIDS = (1001, 1002)
SECRET = "ZEBRA-77"
# Names that look like a uid's: were owners told apart by the bare name, these would be one.
KEYS = {
    "alice": "alice-0123456789abcdef",
    "1001": "1001-0123456789abcdef",
    "uid": "1001:0123456789abcdef",
}
SCRIPT = {
    # Ids that no tokenizer would give for their text.
    "rules": [{"when": "split", "pieces": [".", "\n\n", "你", "好"]}],
    "default": {"pieces": ["fine", "."]},
}


class Key:
    """A client on loopback with a key."""

    def __init__(self, daemon, name):
        self.daemon, self.name = daemon, f"key:{name}"
        self.key = KEYS[name]

    def request(self, method, path, body=None):
        port = re.findall(r"listening on 127\.0\.0\.1:(\d+)", self.daemon.log())[-1]
        c = http.client.HTTPConnection("127.0.0.1", int(port), timeout=PATIENCE_S)
        return exchange(c, method, path, body, {"Authorization": f"Bearer {self.key}"})

    def close(self):
        pass


class Peer:
    """A client process of another user, in the group or not; it asks what comes down a pipe."""

    def __init__(self, daemon, uid, is_in_group=True):
        self.name = f"uid:{uid}"
        self.pipe, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                self.pipe.close()
                os.setgroups([GROUP] if is_in_group else [])
                os.setgid(uid)
                os.setuid(uid)
                serve(theirs.makefile("rw"), daemon.socket_path)
                code = 0
            finally:
                os._exit(code)
        theirs.close()
        self.file = self.pipe.makefile("rw")

    def request(self, method, path, body=None):
        self.file.write(json.dumps([method, path, body]) + "\n")
        self.file.flush()
        return json.loads(self.file.readline())

    def close(self):
        self.file.close()
        self.pipe.close()
        os.waitpid(self.pid, 0)


def serve(pipe, path):
    for line in pipe:
        try:
            answer = exchange(UnixConnection(path), *json.loads(line), {})
        except OSError as e:
            answer = [0, type(e).__name__]
        pipe.write(json.dumps(answer) + "\n")
        pipe.flush()


def exchange(connection, method, path, body, headers):
    """[status, JSON or text]"""
    try:
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {"Content-Type": "application/json", **headers})
        r = connection.getresponse()
        status, text = r.status, r.read().decode()
    finally:
        connection.close()
    try:
        return [status, json.loads(text)]
    except ValueError:
        return [status, text]


def routes():
    """(pattern, method) of all there is."""
    with open(os.path.join(SOURCE, "daemon", "route.c")) as f:
        lines = re.findall(r'\{"(/[^"]*)", ([A-Z_ |]+),', f.read())
    assert len(lines) > 15
    return [(p, m.removeprefix("ROUTE_")) for p, methods in lines for m in methods.split(" | ")]


# What a request must have to be looked at; {} where nothing is needed.
BODIES = {
    "POST /v1/conversations/{}": {"metadata": {"a": "b"}},
    "POST /v1/conversations/{}/items": {
        "items": [{"type": "message", "role": "user", "content": "x"}]
    },
    "POST /v1/hearth/conversations/{}/context": {"strategy": "window"},
    "POST /v1/hearth/conversations/{}/pins": {"text": "x"},
}


@unittest.skipUnless(os.geteuid() == 0, "only root can be several users (CI is root)")
class Isolation(unittest.TestCase):
    def setUp(self):
        # As systemd has it: the way to the socket is the group's, all else is the daemon's alone.
        self.folder = tempfile.mkdtemp(prefix="hearth-owners-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        os.chown(self.folder, 0, GROUP)
        os.chmod(self.folder, 0o2710)
        keys = os.path.join(self.folder, "keys")
        with open(os.open(keys, os.O_WRONLY | os.O_CREAT, 0o600), "w") as f:
            f.writelines(f"{name}:{key}\n" for name, key in KEYS.items())

    def daemon(self):
        return Scripted(
            SCRIPT,
            *("--socket-mode", "0660", "--listen", "127.0.0.1:0"),
            *("--api-key-file", os.path.join(self.folder, "keys")),
            folder=self.folder,
        )

    def clients(self, d):
        found = [Peer(d, uid) for uid in UIDS] + [Key(d, name) for name in KEYS]
        for c in found:
            self.addCleanup(c.close)
        return found

    def ask(self, c, path, body, status=200):
        got, r = c.request("POST", path, body)
        self.assertEqual(got, status, (c.name, path, r))
        return r

    def chat(self, c, text):
        return self.ask(
            c, "/v1/chat/completions", {"messages": [user(text)], "temperature": 0}
        )

    def fill(self, c):
        """A conversation with two turns: ids of each kind."""
        conversation = self.ask(c, "/v1/conversations", {"metadata": {"of": c.name}})["id"]
        for text in (f"{SECRET} of {c.name} " * 12, f"and {SECRET} again"):
            r = self.ask(c, "/v1/responses", {"conversation": conversation, "input": text})
        status, items = c.request("GET", f"/v1/conversations/{conversation}/items")
        self.assertEqual(status, 200)
        free = self.ask(c, "/v1/responses", {"input": f"{SECRET} without a conversation"})
        return {
            "conversations": conversation,
            "responses": r["id"],
            "items": items["data"][0]["id"],
            "hidden": free["id"],
        }

    def paths(self, pattern, ids, own):
        """The pattern with another's ids; an item also below a conversation of one's own."""
        if pattern.endswith("/items/{}"):
            for conversation in (ids["conversations"], own["conversations"]):
                yield pattern.format(conversation, ids["items"])
        elif "/responses/" in pattern:
            yield pattern.format(ids["responses"])
            yield pattern.format(ids["hidden"])
        else:
            yield pattern.format(*([ids["conversations"], ids["items"]][: pattern.count("{}")]))

    def check_ids(self, c, ids, own):
        for pattern, method in routes():
            if "{}" not in pattern:
                continue
            for path in self.paths(pattern, ids, own):
                with self.subTest(client=c.name, method=method, path=pattern):
                    body = BODIES.get(f"{method} {pattern}", {}) if method == "POST" else None
                    status, r = c.request(method, path, body)
                    self.assertEqual(status, 404, r)
                    self.assertNotIn(SECRET, json.dumps(r))
        for path, body in (
            ("/v1/responses", {"input": "x", "conversation": ids["conversations"]}),
            ("/v1/responses", {"input": "x", "conversation": {"id": ids["conversations"]}}),
            ("/v1/responses", {"input": "x", "previous_response_id": ids["responses"]}),
            ("/v1/responses", {"input": "x", "previous_response_id": ids["hidden"]}),
            ("/v1/responses/input_tokens", {"input": "x", "conversation": ids["conversations"]}),
            (
                "/v1/responses/input_tokens",
                {"input": "x", "previous_response_id": ids["responses"]},
            ),
            *(
                (pattern, {"conversation": ids["conversations"]})
                for pattern, method in routes()
                if pattern.startswith("/v1/hearth/") and "{" not in pattern and method == "POST"
            ),
        ):
            with self.subTest(client=c.name, path=path, body=body):
                r = self.ask(c, path, body, 404)
                self.assertNotIn(SECRET, json.dumps(r))

    def check_lists(self, c, of_others):
        """What names no id shows only what is one's own."""
        for pattern, method in routes():
            if "{" in pattern or method != "GET":
                continue
            for query in ("", f"?q={SECRET}", f"?query={SECRET}"):
                with self.subTest(client=c.name, path=pattern + query):
                    text = json.dumps(c.request("GET", pattern + query)[1])
                    for word in of_others:
                        self.assertNotIn(word, text)

    def test_ids_of_one_owner_are_unknown_to_all_others(self):
        with self.daemon() as d:
            clients = self.clients(d)
            ids = {c.name: self.fill(c) for c in clients[:-1]}
            nobody = clients[-1]  # has nothing of its own: lists are empty, and all are 404
            ids_of_nobody = {"conversations": self.ask(nobody, "/v1/conversations", {})["id"]}
            for c in clients:
                own = ids.get(c.name, ids_of_nobody)
                others = [i for name, i in ids.items() if name != c.name]
                for theirs in others:
                    self.check_ids(c, theirs, own)
                names = [f"of {k.name}" for k in clients if k is not c]
                self.check_lists(c, names + [i for theirs in others for i in theirs.values()])
                found = self.ask(c, "/v1/hearth/verify", {})
                self.assertEqual(found["conversations"], 1, c.name)
            for c in clients[:-1]:  # and nobody's has been touched
                conversation = ids[c.name]["conversations"]
                status, r = c.request("GET", f"/v1/conversations/{conversation}")
                self.assertEqual((status, r["metadata"]), (200, {"of": c.name}))
                status, r = c.request("GET", f"/v1/conversations/{conversation}/items")
                self.assertEqual((status, len(r["data"])), (200, 4))
                for id in (ids[c.name]["responses"], ids[c.name]["hidden"]):
                    self.assertEqual(c.request("GET", f"/v1/responses/{id}")[0], 200)

    def complete(self, c, prompt):
        """Raw text, so that prompts with other first letters have nothing in common."""
        return self.ask(c, "/v1/completions", {"prompt": prompt, "max_tokens": 2})

    def check_prompt(self, clients, own, prompt, source):
        for c in clients:
            if c is not own:
                self.assertEqual(cached(self.complete(c, prompt)), 0, (c.name, own.name))
        r = self.complete(own, prompt)
        self.assertGreaterEqual(cached(r), r["usage"]["prompt_tokens"] - 1 - BLOCK)
        self.assertEqual(r["hearth"]["cache"][source], cached(r))

    def test_the_same_prompt_finds_nothing_of_another_owner(self):
        with self.daemon() as d:
            clients = self.clients(d)
            names = [c.name for c in clients]
            for i, c in enumerate(clients):
                self.complete(c, "ABCDE"[i] + f" {SECRET}" * 40)
                self.complete(c, "VWXYZ"[i] + f" {SECRET}" * 40)
            for i, c in enumerate(clients):
                self.check_prompt(clients, c, "ABCDE"[i] + f" {SECRET}" * 40, "ram")
        with self.daemon() as d:
            clients = self.clients(d)
            self.assertEqual([c.name for c in clients], names)
            for i, c in enumerate(clients):
                self.check_prompt(clients, c, "VWXYZ"[i] + f" {SECRET}" * 40, "disk")

    def test_the_account_of_one_owner_has_nothing_of_another(self):
        with self.daemon() as d:
            clients = self.clients(d)
            for c in clients[:-1]:
                self.fill(c)
            for c in clients:
                cache = c.request("GET", "/v1/hearth/cache")[1]
                stats = json.dumps(c.request("GET", "/v1/hearth/stats")[1])
                is_nobody = c is clients[-1]
                self.assertEqual(len(cache["data"]), 0 if is_nobody else 1, cache)
                self.assertEqual(cache["hearth"]["ram"]["blocks"] == 0, is_nobody, cache)
                self.assertEqual('"turns": 0' in stats, is_nobody, stats)

    def test_what_one_drops_is_its_own(self):
        with self.daemon() as d:
            clients = self.clients(d)
            prompt = f"{SECRET} " * 40
            for c in clients:
                self.complete(c, prompt)
                self.fill(c)
            d.until(lambda: d.status()["disk"]["waiting"] == 0, "all is written")
            dropper = clients[0]
            self.ask(dropper, "/v1/hearth/cache/drop", {"all": True})
            self.assertEqual(cached(self.complete(dropper, prompt)), 0)
            for c in clients[1:]:
                self.check_prompt([c], c, prompt, "ram")
            self.ask(dropper, "/v1/hearth/cache/drop", {"all": True})
        with self.daemon() as d:
            clients = self.clients(d)
            self.assertEqual(cached(self.complete(clients[0], prompt)), 0)
            for c in clients[1:]:
                self.check_prompt([c], c, prompt, "disk")

    def test_a_generated_answer_is_matched_for_its_owner_only(self):
        with self.daemon() as d:
            clients = self.clients(d)
            text = self.chat(clients[0], "split please")["choices"][0]["message"]["content"]
            messages = [user("split please"), assistant(text), user("ok")]
            n = [
                self.ask(c, "/v1/chat/completions", {"messages": messages})["usage"][
                    "prompt_tokens"
                ]
                for c in clients
            ]
            self.assertEqual(len(set(n[1:])), 1)
            self.assertLess(n[1], n[0])  # the owner's is read as it was written, in more tokens

    def test_only_the_group_gets_to_the_socket(self):
        with self.daemon() as d:
            st = os.stat(d.socket_path)
            self.assertEqual((stat.S_IMODE(st.st_mode), st.st_gid), (0o660, GROUP))
            stranger = Peer(d, 1003, is_in_group=False)
            self.addCleanup(stranger.close)
            self.assertEqual(stranger.request("GET", "/v1/models"), [0, "PermissionError"])
            nobody = Peer(d, 65534)  # who isn't mapped here: no identity
            self.addCleanup(nobody.close)
            self.assertIn(nobody.request("GET", "/v1/models")[0], (0, 401, 403))


if __name__ == "__main__":
    main()
