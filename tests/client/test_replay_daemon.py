"""hearth replay --daemon: a daemon that it starts, restarts, and never leaves behind."""

import json
import os
import shlex
import signal
import time

from replays import SCRIPT, Here, openai
from harness import BUILD, PATIENCE_S, Scripted, main


class OwnDaemon(Here):
    """--daemon: `pids` gets the process of each start."""

    def setUp(self):
        super().setUp()
        with open(self.path("script.json"), "w") as f:
            json.dump({**SCRIPT, "load_ms": 50}, f)

    def command(self, script=None):
        hearthd = shlex.join(
            [
                os.path.join(BUILD, "tests", "hearthd-scripted"),
                *("--model", self.path(script or "script.json"), "--socket", self.socket),
                *("--state-dir", self.path("state"), "--cache-dir", self.path("cache")),
                *("--memory", "256M"),
            ]
        )
        return shlex.join(["sh", "-c", f"echo $$ >> {self.path('pids')}; exec {hearthd}"])

    def pids(self):
        with open(self.path("pids")) as f:
            return [int(line) for line in f]

    def is_alive(self, pid):
        try:
            with open(f"/proc/{pid}/stat") as f:
                return f.read().rpartition(")")[2].split()[0] != "Z"
        except FileNotFoundError:
            return False

    def until(self, condition, what):
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(what)
            time.sleep(0.01)  # what happens is another process's; no event tells

    def until_dead(self):
        self.until(lambda: not any(map(self.is_alive, self.pids())), "the daemon lives on")

    def test_it_is_started_and_ended(self):
        j = self.play("--daemon", self.command(), self.file(openai("a", "-", "b")))
        self.assertEqual(len(j["turns"]), 2)
        self.assertEqual(len(self.pids()), 1)
        self.assertFalse(self.is_alive(self.pids()[0]))
        self.assertEqual(self.result.err, "")

    def test_it_is_restarted_after_so_many_turns(self):
        path = self.file(openai("a", "-", "b", "-", "c"), openai("d", "-", "e"))
        for more in ([], ["--kill"], ["--pause", "0"]):
            j = self.play(
                *("--interleave", "2", "--restart-every", "2", "--daemon", self.command()),
                *more,
                path,
            )
            self.assertEqual([t["restarts"] for t in j["turns"]], [0, 0, 1, 1, 2])
            self.assertEqual([t["restored"] for t in j["turns"]], [False] * 2 + [True] * 3)
            self.assertEqual((j["restarts"], j["whole"]), (2, True))
            self.assertEqual(len(self.pids()), 3)  # and none after the last turn
            self.until_dead()
            os.unlink(self.path("pids"))

    def test_ctrl_c_ends_it(self):
        path = self.file(openai("hi"), openai("endless"))
        p = self.h.start(
            *("replay", "--json", "-", "--max-tokens", "1000000", "--daemon", self.command()), path
        )
        self.until(lambda: os.path.exists(self.socket), "the daemon is there")
        d = Scripted.__new__(Scripted)  # to ask it; not ours to start
        d.socket_path = self.socket
        self.until(lambda: (d.status().get("turns") or {}).get("started") == 2, "it answers")
        p.send_signal(signal.SIGINT)
        out, err = p.communicate()
        self.assertEqual(p.returncode, 130, err)
        self.assertEqual(self.order(json.loads(out)), [(1, 1)])
        self.until_dead()

    def test_ctrl_c_ends_a_pause_and_a_start(self):
        path = self.file(openai("hi", "-", "hi"))
        pause = ("--restart-every", "1", "--pause", "3600", "--daemon", self.command())
        p = self.h.person("replay", *pause, path)
        p.expect(b"pausing")
        p.type(b"\x03")
        self.assertEqual(p.end(), 130)
        self.until_dead()
        os.unlink(self.path("pids"))
        with open(self.path("slow.json"), "w") as f:
            json.dump({**SCRIPT, "load_ms": 60000}, f)
        p = self.h.person("replay", "--daemon", self.command("slow.json"), path)
        p.expect(b"starting the daemon")
        p.type(b"\x03")
        self.assertEqual(p.end(), 130)
        self.until_dead()

    def test_it_does_not_outlive_us(self):
        path = self.file(openai("endless"))
        for number in (signal.SIGTERM, signal.SIGKILL):
            p = self.h.start("replay", "--max-tokens", "1000000", "--daemon", self.command(), path)
            self.until(lambda: os.path.exists(self.socket), "the daemon is there")
            p.send_signal(number)
            p.communicate()
            self.assertEqual(p.returncode, -number)
            self.until_dead()

    def test_errors_end_it(self):
        path = self.file(openai("hi"))
        r = self.h.run("replay", "--csv", "-", "--daemon", self.command(), path, path + "x")
        self.assertEqual((r.code, os.path.exists(self.path("pids"))), (1, False), r)
        with open(self.path("bad.json"), "w") as f:
            json.dump({**SCRIPT, "default": {"pieces": ["a", "b"], "error_at": 1}}, f)
        r = self.h.run("replay", "--daemon", self.command("bad.json"), path)
        self.assertEqual(r.code, 1)
        self.assertIn(f"that was turn 1 of {path}:1\n", r.err)
        self.until_dead()

    def test_one_that_dies_is_told_with_its_last_words(self):
        path = self.file(openai("endless"))
        p = self.h.start("replay", "--max-tokens", "1000000", "--daemon", self.command(), path)
        d = Scripted.__new__(Scripted)
        d.socket_path = self.socket
        self.until(lambda: os.path.exists(self.socket), "the daemon is there")
        self.until(lambda: (d.status().get("turns") or {}).get("started") == 1, "it answers")
        os.kill(self.pids()[0], signal.SIGKILL)
        _, err = p.communicate()
        self.assertEqual(p.returncode, 1)
        self.assertRegex(err, rb"(?s)broke.*daemon (had )?ended.* with signal 9.*last words:\n.+")

    def fails(self, pattern, command, *before):
        r = self.h.run(*before, "replay", "--daemon", command, self.file(openai("hi")))
        self.assertEqual((r.code, r.out), (1, ""), r)
        self.assertRegex(r.err, "(?s)" + pattern)

    def test_one_that_does_not_start(self):
        self.fails("before it was ready, with exit code 127.*/none can't be run: No such", "/none")
        self.fails("with exit code 3.*last words:\noh no\n", "sh -c 'echo oh no; exit 3'")
        self.fails("not ready within 1 s", "sleep 3600", "--wait", "1")
        with open(self.path("script.json"), "w") as f:
            f.write("no script")
        self.fails("the daemon", self.command())
        self.until_dead()

    def test_somebody_elses_is_not_measured(self):
        with Scripted(SCRIPT, folder=self.folder) as d:
            self.fails("somebody answers at .*/s already", self.command())
            self.assertEqual(d.status()["turns"]["started"], 0)
        self.assertFalse(os.path.exists(self.path("pids")))

    def test_its_arguments_are_words(self):
        program = self.path("show")
        with open(program, "w") as f:
            f.write('#!/bin/sh\nprintf "<%s>" "$@"\nexit 9\n')
        os.chmod(program, 0o700)
        self.fails(r"<a b><\$HOME><\*><;>", f"{program} 'a b' $HOME * ;")


if __name__ == "__main__":
    main()
