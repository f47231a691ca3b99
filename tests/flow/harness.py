"""Harness of the flow tests: a daemon in a temporary folder, and HTTP over its socket. Python's
standard library only.

    with Scripted({"default": {"pieces": ["Hi"]}}) as d:
        d.chat([user("hello")])["choices"][0]["message"]["content"]

A daemon under test is hearthd-scripted (the daemon's own objects over the scripted engine:
tests/scripted/engine.c tells what a script may say) or hearthd with a real model (Real). Each is
started by one test class or test, and must end with exit code 0: leaving the `with` checks that,
and prints the log when it isn't so.
"""

import glob
import http.client
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("HEARTH_BUILD", os.path.join(SOURCE, "build"))
MODEL = os.environ.get(
    "HEARTH_MODEL", os.path.join(SOURCE, "models", "SmolLM2-135M-Instruct.Q4_1.gguf")
)
# Sanitizers and busy machines are slow; nothing waits this long unless it is broken.
PATIENCE_S = float(os.environ.get("HEARTH_PATIENCE", "60"))


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def system(text):
    return {"role": "system", "content": text}


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout=None):
        super().__init__("localhost", timeout=timeout or PATIENCE_S)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Stream:
    """A streaming answer as it comes: iterate over the events' data; [DONE] ends it and sets
    is_done.
    """

    def __init__(self, daemon, path, body):
        self.connection = UnixConnection(daemon.socket_path)
        self.connection.request(
            "POST", path, json.dumps(body), {"Content-Type": "application/json"}
        )
        self.response = self.connection.getresponse()
        self.status = self.response.status
        self.headers = self.response.headers
        self.is_done = False
        self.names = []
        self.raw = b""

    def __iter__(self):
        name = None
        for line in self.response:
            self.raw += line
            line = line.rstrip(b"\r\n")
            if line.startswith(b"event:"):
                name = line[6:].strip().decode()
            if not line.startswith(b"data:"):
                continue
            data = line[5:].strip()
            if data == b"[DONE]":
                self.is_done = True
                continue
            self.names.append(name)
            yield json.loads(data)
            name = None

    def close(self):
        self.connection.close()
        try:
            self.response.close()  # it holds the socket too
        except OSError:
            pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def chunk_text(event):
    """The text that a chunk of chat or text completion brings, '' for none."""
    if not event.get("choices"):
        return ""
    choice = event["choices"][0]
    return (choice.get("delta") or {}).get("content") or choice.get("text") or ""


class Daemon:
    """hearthd in a temporary folder. flags: more command line. is_kept: its folder outlives it
    (restarts).
    """

    program = "daemon/hearthd"

    def __init__(self, model, *flags, folder=None, wait=True, file_bytes=None):
        self.file_bytes = (
            file_bytes  # no file may grow beyond (a disk that is full, for our own writes)
        )
        self.folder = folder or tempfile.mkdtemp(prefix="hearth-")
        self.is_kept = folder is not None
        self.socket_path = os.path.join(self.folder, "s")
        self.log_path = os.path.join(self.folder, "log")
        self.model = model
        self.flags = list(flags)
        self.process = None
        self.start(wait)

    def start(self, wait=True):
        program = os.path.join(BUILD, self.program)
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [
                    program,
                    "--model",
                    self.model,
                    "--socket",
                    self.socket_path,
                    "--state-dir",
                    os.path.join(self.folder, "state"),
                    "--cache-dir",
                    os.path.join(self.folder, "cache"),
                    *self.flags,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=self.limit,
            )
        if wait:
            self.wait_ready()

    def limit(self):
        if self.file_bytes:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.file_bytes, self.file_bytes))

    def wait_ready(self):
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"hearthd ended with {self.process.returncode}:\n{self.log()}")
            try:
                if self.get("/health")[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.005)
        raise AssertionError(f"hearthd is not ready:\n{self.log()}")

    def log(self):
        with open(self.log_path, errors="replace") as f:
            return f.read()

    # ---- requests ----

    def request(self, method, path, body=None, headers=None):
        """(status, JSON or bytes, headers)"""
        c = UnixConnection(self.socket_path)
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        try:
            c.request(method, path, body, {"Content-Type": "application/json", **(headers or {})})
            r = c.getresponse()
            data = r.read()
        finally:
            c.close()
        try:
            return r.status, json.loads(data), r.headers
        except ValueError:
            return r.status, data, r.headers

    def get(self, path):
        return self.request("GET", path)[:2]

    def post(self, path, body, headers=None):
        return self.request("POST", path, body, headers)[:2]

    def chat(self, messages, **more):
        """A chat completion that must succeed; temperature 0 unless said otherwise."""
        status, reply = self.post(
            "/v1/chat/completions", {"messages": messages, "temperature": 0, **more}
        )
        if status != 200:
            raise AssertionError(f"chat: {status} {reply}\n{self.log()}")
        return reply

    def say(self, messages, **more):
        return self.chat(messages, **more)["choices"][0]["message"]["content"]

    def stream(self, path, body):
        return Stream(self, path, body)

    def chat_stream(self, messages, **more):
        return Stream(
            self,
            "/v1/chat/completions",
            {"messages": messages, "temperature": 0, "stream": True, **more},
        )

    def raw(self):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(PATIENCE_S)
        s.connect(self.socket_path)
        return s

    # ---- what it says of itself ----

    def status(self):
        return self.get("/v1/hearth/status")[1]

    def n_generated(self):
        return self.status()["tokens"]["generated"]

    def until(self, condition, what):
        """Waits until condition() holds; asks again and again, as there is no event to wait for
        from outside.
        """
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if condition():
                return
            if self.process.poll() is not None:
                raise AssertionError(
                    f"{what}: hearthd ended with {self.process.returncode}\n{self.log()}"
                )
            time.sleep(0.005)
        raise AssertionError(f"{what}: not so after {PATIENCE_S} s\n{self.log()}")

    def worked_s(self):
        """CPU time of the threads that a model's work is done in."""
        total = 0
        for task in glob.glob(f"/proc/{self.process.pid}/task/*"):
            with open(task + "/comm") as f:
                is_theirs = f.read().strip() in ("hearth-worker", "hearth-pool")
            if is_theirs:
                with open(task + "/schedstat") as f:
                    total += int(f.read().split()[0]) / 1e9
        return total

    def until_at_rest(self):
        """Waits until those threads do next to nothing while nobody asks for anything but the
        status: what a turn leaves to be done behind it has an end.
        """

        def at_rest():
            worked, began = self.worked_s(), time.monotonic()
            for _ in range(100):
                self.status()
            return self.worked_s() - worked < 0.1 * (time.monotonic() - began)

        self.until_idle()
        self.until(at_rest, "at rest")

    def until_idle(self):
        def idle():
            turns = self.status()["turns"]
            return (
                turns["running"] == 0 and turns["queued"] == 0 and turns["started"] == turns["done"]
            )

        self.until(idle, "idle")

    # ---- ending ----

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def wait_end(self, seconds=None):
        try:
            return self.process.wait(seconds or PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"hearthd did not end in {seconds or PATIENCE_S} s\n{self.log()}")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        """Ends it the polite way; its exit code must be 0."""
        if self.process.poll() is None:
            self.signal()
            self.wait_end()
        code, log = self.process.returncode, self.log()
        if not self.is_kept:
            shutil.rmtree(self.folder, ignore_errors=True)
        if code != 0:
            raise AssertionError(f"hearthd ended with {code}:\n{log}")

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is not None:  # the test's own failure is the one to be told
            self.kill()
            sys.stderr.write(self.log())
            if not self.is_kept:
                shutil.rmtree(self.folder, ignore_errors=True)
        elif self.process.returncode == -signal.SIGKILL:  # killed by the test
            if not self.is_kept:
                shutil.rmtree(self.folder, ignore_errors=True)
        else:
            self.stop()


# What the scripted engine logs of a block that isn't what it should be.
WRONG_BLOCK = "doesn't continue its prefix"


class Scripted(Daemon):
    """hearthd-scripted over a script (a dict)."""

    program = "tests/hearthd-scripted"

    def __init__(self, script, *flags, folder=None, wait=True, file_bytes=None):
        self.own = None if folder else tempfile.mkdtemp(prefix="hearth-")
        path = os.path.join(folder or self.own, "script.json")
        with open(path, "w") as f:
            json.dump(script, f)
        if "--memory" not in flags:  # the default of 4 GiB takes a sanitizer seconds to mark
            flags += ("--memory", "256M")
        super().__init__(path, *flags, folder=folder or self.own, wait=wait, file_bytes=file_bytes)
        self.is_kept = folder is not None

    def check_blocks(self):
        """The scripted engine notices every KV block that isn't what it should be, and says so in
        the log.
        """
        log = self.log()
        if WRONG_BLOCK in log:
            raise AssertionError(f"a KV block was wrong:\n{log}")

    def stop(self):
        log = self.log()
        super().stop()
        if WRONG_BLOCK in log:
            raise AssertionError(f"a KV block was wrong:\n{log}")


class Real(Daemon):
    """hearthd with the default model; skips the test where it is missing, unless CI is set."""

    def __init__(self, *flags, folder=None, wait=True):
        if not os.path.exists(MODEL):
            if os.environ.get("CI"):
                raise AssertionError(f"no model at {MODEL}")
            raise unittest.SkipTest(f"no model at {MODEL}")
        super().__init__(MODEL, *flags, folder=folder, wait=wait)


class ModelsDirectory:
    """Mixed into a TestCase: an empty models' directory, which daemons started meanwhile look
    into, and small GGUF files for it.
    """

    SHAPE = "--vocab 300 --embd 64 --ff 64 --layers 2 --heads 2 --kv-heads 1 --head-dim 32"

    def setUp(self):
        super().setUp()
        self.home = tempfile.mkdtemp(prefix="hearth-")
        self.addCleanup(shutil.rmtree, self.home)
        self.dir = os.path.join(self.home, "hearth", "models")
        os.makedirs(self.dir)
        before = os.environ.get("XDG_DATA_HOME")
        os.environ["XDG_DATA_HOME"] = self.home
        self.addCleanup(self.restore_home, before)

    def restore_home(self, before):
        if before is None:
            del os.environ["XDG_DATA_HOME"]
        else:
            os.environ["XDG_DATA_HOME"] = before

    def path(self, name):
        return os.path.join(self.dir, name)

    def make(self, name, *flags):
        """NAME.gguf, a whole llama with random weights; flags of tests/bench/mkgguf."""
        program = os.path.join(BUILD, "tests/bench/mkgguf")
        command = [program, self.path(name + ".gguf"), *self.SHAPE.split(), "--ctx", "512", *flags]
        subprocess.run(command, check=True, capture_output=True)

    def add(self, name, *flags, **script):
        """A model that answers with its name."""
        self.make(name, "--ctx", "2048", *flags)
        with open(self.path(name + ".gguf.script"), "w") as f:
            json.dump(
                {"default": {"pieces": [name]}, "weights": name, "ctx": 2048, **script}, f
            )


def together(*calls):
    """Runs the calls at once; their results in order. The first exception is raised."""
    results, errors = [None] * len(calls), []

    def run(i):
        try:
            results[i] = calls[i]()
        except BaseException as e:  # handed over to the caller's thread
            errors.append(e)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]
    return results


def cached(reply):
    return reply["usage"]["prompt_tokens_details"]["cached_tokens"]


def content(reply):
    return reply["choices"][0]["message"]["content"]


def finish(reply):
    return reply["choices"][0]["finish_reason"]


def main():
    unittest.main(verbosity=2)
