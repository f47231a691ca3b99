"""The client under test: as a program with pipes, and as a person meets it at a terminal."""

import errno
import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "flow"))
from harness import BUILD, PATIENCE_S  # noqa: E402

PROGRAM = os.path.join(BUILD, "client", "hearth")


def environment(home, **more):
    env = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    for name in ("NO_COLOR", "XDG_RUNTIME_DIR", "RUNTIME_DIRECTORY", "STATE_DIRECTORY"):
        env.pop(name, None)
    return {
        **env,
        "HOME": home,
        "XDG_STATE_HOME": os.path.join(home, "state"),
        "LC_ALL": "C.UTF-8",
        "TERM": "xterm",
        "TZ": "UTC",
        **more,
    }


class Result:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def __repr__(self):
        return f"exit {self.code}\nstdout: {self.out!r}\nstderr: {self.err!r}"


class Hearth:
    """Runs the client against a socket (or with where=("--url", …)) in a home of its own."""

    def __init__(self, socket_path=None, where=None):
        self.home = tempfile.mkdtemp(prefix="hearth-home-")
        self.where = list(where or (["--socket", socket_path] if socket_path else []))

    def close(self):
        shutil.rmtree(self.home, ignore_errors=True)

    def argv(self, words):
        return [PROGRAM, *self.where, *words]

    def start(self, *words, prefix=(), env=None, **more):
        return subprocess.Popen(
            [*prefix, *self.argv(words)],
            env=environment(self.home, **(env or {})),
            **{
                "stdin": subprocess.DEVNULL,
                "stdout": subprocess.PIPE,
                "stderr": subprocess.PIPE,
                **more,
            },
        )

    def run(self, *words, stdin=b"", **more):
        """A Result; out and err as text."""
        p = self.start(*words, stdin=subprocess.PIPE, **more)
        if isinstance(stdin, str):
            stdin = stdin.encode()
        try:
            out, err = p.communicate(stdin, timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            p.kill()
            out, err = p.communicate()
            raise AssertionError(f"{words}: no end\n{out!r}\n{err!r}")
        return Result(p.returncode, (out or b"").decode(), (err or b"").decode())

    def person(self, *words, **more):
        return Person(self.argv(words), environment(self.home, **more))


class Person:
    """A client at a pseudo-terminal: all it writes, stdout and stderr together, is in `seen`."""

    def __init__(self, argv, env, columns=80):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                os.execve(argv[0], argv, env)
            finally:
                os._exit(127)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.seen = b""
        self.at = 0  # what expect has passed
        self.code = None

    def read_some(self, seconds):
        """False at the end."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.fd, 65536)
        except OSError as e:
            if e.errno != errno.EIO:
                raise
            data = b""
        self.seen += data
        return bool(data)

    def expect(self, pattern):
        """Reads until the regular expression comes after what was expected last; the match."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            m = re.compile(pattern, re.S).search(self.seen, self.at)
            if m:
                self.at = m.end()
                return m
            if time.monotonic() > deadline or not self.read_some(1):
                raise AssertionError(
                    f"{pattern!r} doesn't come after {self.seen[:self.at]!r} in "
                    f"{self.seen[self.at:]!r}"
                )

    def type(self, text):
        os.write(self.fd, text if isinstance(text, bytes) else text.encode())

    def say(self, text):
        self.type(text + "\r")

    def end(self):
        """Reads to the end; the exit code."""
        deadline = time.monotonic() + PATIENCE_S
        while self.read_some(1):
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                raise AssertionError(f"the client doesn't end: {self.seen!r}")
        self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.fd)
        return self.code

    def since(self, mark):
        return self.seen[mark:]
