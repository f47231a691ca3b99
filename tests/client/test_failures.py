"""What a person reads when something is in the way, and the exit code that a script gets for it."""

import json
import os
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from hearth import PROGRAM, Hearth, environment
from harness import Scripted, main, together
import tcp

SCRIPT = {
    "pace_us": 5000,
    "rules": [{"when": "endless", "pieces": ["on "], "then": "forever"}],
    "default": {"pieces": ["Hello", "."]},
}
NOBODY = 65534
is_root = os.getuid() == 0


class Here(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="hearth-")
        self.path = os.path.join(self.folder, "s")
        self.h = Hearth(self.path)

    def tearDown(self):
        self.h.close()
        subprocess.run(["rm", "-rf", self.folder], check=True)

    def fails(self, code, pattern, *words, **more):
        r = self.h.run(*words, **more)
        self.assertEqual(r.code, code, r)
        self.assertRegex(r.err, pattern)
        self.assertEqual(r.out, "")
        return r

    def fails_json(self, code, *words, **more):
        r = self.h.run("--json", *words, **more)
        self.assertEqual((r.code, r.err), (code, ""), r)
        return json.loads(r.out)["error"]


class NoDaemon(Here):
    def test_no_socket(self):
        r = self.fails(3, f"no daemon: there is no socket {self.path}", "ask", "hi")
        self.assertIn("hearthd --model FILE", r.err)
        for words in (
            ["chat"],
            ["list"],
            ["show", "1"],
            ["status"],
            ["models"],
            ["export", "--all"],
        ):
            self.fails(3, "no daemon", *words)
        self.assertIn("no daemon", self.fails_json(3, "ask", "hi")["message"])

    def test_the_socket_of_the_environment_is_named(self):
        for env, where in (
            ({}, "state/hearth/hearth.sock"),
            ({"XDG_RUNTIME_DIR": "/run/x"}, "/run/x/hearth/hearth.sock"),
        ):
            h = Hearth()
            self.assertIn(where, h.run("list", env=env).err)
            h.close()

    def test_a_stale_socket(self):
        s = socket.socket(socket.AF_UNIX)
        s.bind(self.path)
        s.close()
        self.fails(3, "nobody answers at .*left over", "ask", "hi")

    def test_a_file_that_is_no_socket(self):
        with open(self.path, "w"):
            pass
        self.fails(3, "nobody answers", "ask", "hi")

    def test_too_long_a_path(self):
        self.fails(2, "longer than 107 bytes", "--socket", "/" + "x" * 200, "list")

    def test_nobody_at_a_port(self):
        s = socket.create_server(("127.0.0.1", 0))
        port = s.getsockname()[1]
        s.close()
        h = Hearth(where=["--url", f"http://127.0.0.1:{port}"])
        r = h.run("ask", "hi")
        self.assertEqual(r.code, 3)
        self.assertIn("nobody answers at http://127.0.0.1", r.err)
        h.close()

    def test_waiting_for_one_that_starts_later(self):
        p = self.h.start("--wait", "60", "ask", "hi")
        time.sleep(0.3)  # the client must be there first, which nothing tells
        self.assertIsNone(p.poll())
        with Scripted(SCRIPT, folder=self.folder):
            self.assertEqual(p.communicate()[0], b"Hello.\n")
        self.assertEqual(p.returncode, 0)

    def test_waiting_ends(self):
        self.fails(3, "no daemon", "--wait", "1", "status")
        self.assertEqual(self.h.run("--wait", "-1", "status").code, 2)

    def test_ctrl_c_while_waiting(self):
        p = self.h.start("--wait", "60", "ask", "hi")
        time.sleep(0.2)  # see above
        p.send_signal(signal.SIGINT)
        p.communicate()
        self.assertEqual(p.returncode, -signal.SIGINT)


class Command(Here):
    def test_the_command_line(self):
        for words in (
            [],
            ["frobnicate"],
            ["--frob", "list"],
            ["--wait"],
            ["--wait", "x", "list"],
            ["--url", "ftp://x", "list"],
            ["--socket", "a", "--url", "http://b", "list"],
            ["status", "x"],
            ["show"],
            ["show", "a", "b"],
            ["list", "--limit"],
            ["--api-key-file", "/none", "list"],
        ):
            r = (
                Hearth(where=["--socket", "/nonexistent"]).run(*words)
                if "--url" not in words
                else Hearth().run(*words)
            )
            self.assertEqual(r.code, 2, (words, r))
            self.assertTrue(r.err.startswith("hearth: "), r)
            self.assertEqual(r.out, "")

    def test_help_and_version_need_no_daemon(self):
        for words in (
            ["--help"],
            ["-h"],
            ["help"],
            ["help", "chat"],
            ["chat", "--help"],
            ["list", "-h"],
            ["--version"],
        ):
            r = self.h.run(*words)
            self.assertEqual((r.code, r.err), (0, ""), words)
            self.assertTrue(r.out)

    def test_help_fits_a_terminal(self):
        for words in ([], ["chat"], ["export"]):
            for line in self.h.run("help", *words).out.splitlines():
                self.assertLessEqual(len(line), 100, line)

    def test_a_closed_stdout_is_said(self):
        p = subprocess.Popen(
            ["/bin/sh", "-c", f"exec {PROGRAM} help >&-"],
            stderr=subprocess.PIPE,
            env=environment(self.h.home),
        )
        err = p.communicate()[1]
        self.assertEqual(p.returncode, 1)
        self.assertIn(b"stdout can't be written", err)


class Starting(Here):
    def test_a_model_that_is_loading_is_waited_for(self):
        with Scripted({**SCRIPT, "load_ms": 1500}, folder=self.folder, wait=False) as d:
            d.until(lambda: os.path.exists(self.path), "the socket is there")
            p = self.h.person("ask", "hi")
            p.expect(rb"loading the model +\d+ %")
            p.expect(rb"Hello\.\r\n")
            self.assertEqual(p.end(), 0)

    def test_a_log_gets_one_line_about_loading(self):
        with Scripted({**SCRIPT, "load_ms": 1500}, folder=self.folder, wait=False) as d:
            d.until(lambda: os.path.exists(self.path), "the socket is there")
            r = self.h.run("ask", "hi")
            self.assertEqual((r.code, r.out), (0, "Hello.\n"))
            self.assertRegex(
                r.err, r"^hearth: the model is still being loaded \(\d+ %\); waiting\n$"
            )

    def test_what_needs_no_model_is_answered_while_loading(self):
        with Scripted({**SCRIPT, "load_ms": 1500}, folder=self.folder, wait=False) as d:
            d.until(lambda: os.path.exists(self.path), "the socket is there")
            r = self.h.run("list")
            self.assertEqual((r.code, r.out), (0, ""), r)
            d.wait_ready()


class Refusals(Here):
    def setUp(self):
        super().setUp()
        self.d = Scripted(
            SCRIPT, "--ctx", "2048", "--parallel", "1", "--queue", "1", folder=self.folder
        )

    def tearDown(self):
        self.d.stop()
        super().tearDown()

    def turns(self):
        turns = self.d.status()["turns"]
        return turns["running"], turns["queued"]

    def test_too_long_for_the_window(self):
        r = self.fails(1, r"2048", "ask", "word " * 3000)
        self.assertIn("larger --ctx", r.err)
        self.assertEqual(
            self.fails_json(1, "ask", "word " * 3000)["code"], "context_length_exceeded"
        )

    def test_a_full_queue(self):
        with self.d.chat_stream([{"role": "user", "content": "endless"}]) as a:
            next(iter(a))
            waiting = self.h.start("ask", "endless")
            self.d.until(lambda: self.turns() == (1, 1), "one is answered, one waits")
            r = self.fails(4, "queue is full", "ask", "hi")
            self.assertIn("try again", r.err)
            self.assertEqual(self.fails_json(4, "ask", "hi")["code"], "queue_full")
            r = self.fails(4, "queue is full", "chat", stdin="hi\n")
            self.assertEqual(
                json.loads(self.h.run("status", "--json").out)["history"]["conversations"], 0
            )
            waiting.send_signal(signal.SIGINT)
            waiting.communicate()
            self.assertEqual(waiting.returncode, 130)
        self.d.until_idle()

    def test_a_wait_in_the_queue_can_be_stopped(self):
        with self.d.chat_stream([{"role": "user", "content": "endless"}]) as a:
            next(iter(a))
            p = self.h.person("ask", "hi")
            p.expect(rb"waiting, \d+ s")
            p.type(b"\x03")
            self.assertEqual(p.end(), 130)
        self.d.until_idle()

    def test_a_daemon_that_stops_in_the_answer(self):
        p = self.h.start("ask", "endless")
        p.stdout.read(6)
        self.d.signal()
        out, err = p.communicate()
        self.assertEqual(self.d.wait_end(), 0)
        self.assertEqual(p.returncode, 1, err)
        self.assertRegex(err, rb"hearth: .*stopp")
        self.assertTrue(out.endswith(b"\n"))

    def test_a_daemon_that_is_killed_in_the_answer(self):
        for words, stdin in ((["ask", "endless"], b""), (["chat"], b"endless\n")):
            if self.d.process.poll() is not None:
                self.d.start()
            p = self.h.start(*words, stdin=subprocess.PIPE)
            p.stdin.write(stdin)
            p.stdin.close()
            p.stdin = None
            p.stdout.read(6)
            self.d.kill()
            out, err = p.communicate()
            self.assertEqual(p.returncode, 1, err)
            self.assertRegex(err, rb"^hearth: the answer broke off: .*broke")
        self.d.start()


class Models(Here):
    def test_another_model_than_the_conversations(self):
        with Scripted(SCRIPT, folder=self.folder):
            self.assertEqual(self.h.run("chat", stdin="hi\n").code, 0)
        other = os.path.join(self.folder, "other.json")
        with open(other, "w") as f:
            json.dump({**SCRIPT, "weights": "other"}, f)
        d = Scripted(SCRIPT, folder=self.folder, wait=False)
        d.wait_ready()
        d.stop()
        d.model = other
        d.start()
        try:
            r = self.h.run("chat", "--continue", stdin="hi\n")
            self.assertEqual(r.code, 0, r)
            self.assertIn("answers are by another model (script); other reads its text anew", r.err)
            self.assertTrue(self.h.run("models").out.startswith("other\n"))
        finally:
            d.stop()


class Keys(unittest.TestCase):
    """--url and --api-key-file."""

    def setUp(self):
        self.d, port = tcp.scripted(SCRIPT)
        self.url = f"http://127.0.0.1:{port}"

    def tearDown(self):
        self.d.stop()

    def run_with(self, *words, key=None, stdin=b"", **env):
        h = Hearth(where=["--url", self.url])
        if key is not None:
            path = os.path.join(h.home, "key")
            with open(path, "w") as f:
                f.write(key)
            h.where += ["--api-key-file", path]
        r = h.run(*words, stdin=stdin, env=env)
        h.close()
        return r

    def test_a_key_is_asked_for(self):
        r = self.run_with("ask", "hi")
        self.assertEqual(r.code, 6, r)
        self.assertIn("--api-key-file", r.err)
        self.assertEqual(self.run_with("ask", "hi", key="wrong\n").code, 6)
        r = self.run_with("ask", "hi", key="\n# nothing\n")
        self.assertEqual((r.code, "holds no key" in r.err), (2, True))

    def test_the_key_alone_or_as_in_the_daemons_file(self):
        key = tcp.KEYS["alice"]
        for text in (key, key + "\n", f"# mine\n\nalice:{key}\r\nbob:x\n"):
            r = self.run_with("ask", "hi", key=text)
            self.assertEqual((r.code, r.out), (0, "Hello.\n"), r)

    def test_chat_and_owners(self):
        alice, bob = tcp.KEYS["alice"], tcp.KEYS["bob"]
        self.assertEqual(self.run_with("chat", key=alice, stdin=b"hi\n").out, "Hello.\n")
        self.assertEqual(len(self.run_with("list", key=alice).out.splitlines()), 1)
        self.assertEqual(self.run_with("list", key=bob).out, "")

    def test_no_proxy_gets_what_stays_on_this_machine(self):
        key = tcp.KEYS["alice"]
        r = self.run_with(
            "ask", "hi", key=key, http_proxy="http://127.0.0.1:9", all_proxy="http://127.0.0.1:9"
        )
        self.assertEqual((r.code, r.out), (0, "Hello.\n"), r)
        h = Hearth(self.d.socket_path)
        self.assertEqual(
            h.run("ask", "hi", env={"http_proxy": "http://127.0.0.1:9"}).out, "Hello.\n"
        )
        h.close()


@unittest.skipUnless(is_root, "needs another user")
class OtherUser(Here):
    """As nobody, against root's daemon; by a copy, as the build folder may be closed to others."""

    def as_nobody(self, *words):
        os.chmod(self.folder, 0o711)
        program = os.path.join(self.folder, "hearth")
        subprocess.run(["cp", PROGRAM, program], check=True)
        os.chmod(program, 0o755)
        p = subprocess.run(
            [
                "setpriv",
                f"--reuid={NOBODY}",
                f"--regid={NOBODY}",
                "--clear-groups",
                program,
                "--socket",
                self.path,
                *words,
            ],
            env=environment("/nonexistent"),
            capture_output=True,
            cwd="/",
        )
        return p.returncode, p.stdout.decode(), p.stderr.decode()

    def test_another_users_socket(self):
        with Scripted(SCRIPT, folder=self.folder):
            code, out, err = self.as_nobody("ask", "hi")
            self.assertEqual((code, out), (6, ""), err)
            self.assertIn("belongs to another user (root)", err)
            self.assertNotIn("hearthd --model", err)
            os.chown(self.path, 0, 0)
            os.chmod(self.path, 0o660)
            self.assertIn("is for the group root", self.as_nobody("ask", "hi")[2])

    def test_another_users_folder(self):
        inner = os.path.join(self.folder, "inner")
        os.mkdir(inner, 0o700)
        self.path = os.path.join(inner, "s")
        code, _, err = self.as_nobody("ask", "hi")
        self.assertEqual(code, 6, err)
        self.assertIn("belongs to another user", err)

    def test_a_peer_that_the_daemon_refuses(self):
        with Scripted(SCRIPT, folder=self.folder):
            os.chmod(self.path, 0o666)
            code, out, err = self.as_nobody("ask", "hi")
            self.assertEqual((code, out), (6, ""), err)
            self.assertTrue(err.startswith("hearth: "), err)


class DiskFull(unittest.TestCase):
    """The history's folder on a file system of a few blocks, where CI may mount one."""

    @unittest.skipUnless(is_root, "needs mount")
    def test_a_full_disk_is_said_and_nothing_stored(self):
        folder = tempfile.mkdtemp(prefix="hearth-")
        state = os.path.join(folder, "state")
        os.mkdir(state, 0o700)
        if subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", state], capture_output=True
        ).returncode:
            os.rmdir(state)
            os.rmdir(folder)
            self.skipTest("no mount here")
        h = None
        try:
            with Scripted(SCRIPT, folder=folder) as d:
                h = Hearth(d.socket_path)
                self.assertEqual(h.run("chat", stdin="hi\n").code, 0)
                with open(os.path.join(state, "filler"), "wb", buffering=0) as f:
                    try:
                        while True:
                            f.write(b"\0" * 4096)
                    except OSError:
                        pass
                big = "x" * 5000
                r = h.run("chat", "--continue", stdin=f"{big}\n/new\n" * 40)
                self.assertEqual(r.code, 1, r)
                self.assertIn("the disk of the history is full", r.err)
                os.unlink(os.path.join(state, "filler"))
                self.assertEqual(h.run("chat", "--continue", stdin="hi\n").code, 0)
        finally:
            if h:
                h.close()
            subprocess.run(["umount", state], check=True)
            subprocess.run(["rm", "-rf", folder], check=True)


if __name__ == "__main__":
    main()
