#!/usr/bin/python3
"""Starting: the lock, the socket file, modes, configuration errors. Over the scripted engine."""
import os
import re
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "flow"))
from harness import BUILD, PATIENCE_S, Scripted, UnixConnection, user  # noqa: E402

SCRIPT = {"default": {"pieces": ["Hi"]}}
PROGRAM = os.path.join(BUILD, Scripted.program)


class Start(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="hearth-")
        self.daemons = []

    def tearDown(self):
        for d in self.daemons:
            if d.process.poll() is None:
                d.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def daemon(self, *flags, **more):
        d = Scripted(SCRIPT, *flags, folder=self.folder, **more)
        self.daemons.append(d)
        return d

    def run_once(self, *flags, model=None, as_user=()):
        """A start that is expected to fail: (exit status, log)."""
        if model is None:
            model = os.path.join(self.folder, "model")
            with open(model, "w") as f:
                f.write("{}")
        command = [*as_user, PROGRAM, "--model", model, *flags]
        r = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, timeout=PATIENCE_S)
        return r.returncode, r.stdout.decode()

    def places(self, name="x"):
        base = os.path.join(self.folder, name)
        # The default of 4 GiB takes a sanitizer seconds to mark, and to give back.
        return ["--state-dir", base + "/state", "--cache-dir", base + "/cache", "--memory", "256M"]

    # ---- B74 ----

    def test_a_stale_socket_is_replaced(self):
        d = self.daemon()
        d.kill()
        self.assertTrue(os.path.exists(d.socket_path))
        d.start()
        self.assertEqual(d.get("/health")[0], 200)
        d.stop()
        self.assertFalse(os.path.exists(d.socket_path))

    def test_a_second_daemon_on_the_state_directory_is_refused(self):
        d = self.daemon()
        inode = os.stat(d.socket_path).st_ino
        code, log = self.run_once("--socket", self.folder + "/other", "--state-dir",
                                  self.folder + "/state", "--cache-dir", self.folder + "/cache")
        self.assertEqual(code, 1)
        self.assertIn("another hearthd uses", log)
        self.assertEqual(os.stat(d.socket_path).st_ino, inode)
        d.stop()

    def test_a_live_socket_is_left_alone_even_of_another_state_directory(self):
        d = self.daemon()
        inode = os.stat(d.socket_path).st_ino
        code, log = self.run_once("--socket", d.socket_path, *self.places())
        self.assertEqual(code, 1)
        self.assertIn("another daemon is listening", log)
        self.assertEqual(os.stat(d.socket_path).st_ino, inode)
        self.assertEqual(d.get("/health")[0], 200)
        d.stop()

    def test_a_stopped_process_keeps_its_socket_and_its_state(self):
        d = self.daemon()
        d.signal(signal.SIGSTOP)
        try:
            code, log = self.run_once("--socket", d.socket_path, *self.places())
            self.assertEqual(code, 1, log)
            code, log = self.run_once("--socket", self.folder + "/other", "--state-dir",
                                      self.folder + "/state")
            self.assertEqual(code, 1, log)
        finally:
            d.signal(signal.SIGCONT)
        self.assertEqual(d.get("/health")[0], 200)
        d.stop()

    def test_a_full_backlog_is_a_live_daemon(self):
        path = self.folder + "/full"
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(path)
            s.listen(0)
            waiting = []
            while True:
                c = socket.socket(socket.AF_UNIX)
                c.setblocking(False)
                waiting.append(c)
                try:
                    c.connect(path)
                except BlockingIOError:
                    break
            code, log = self.run_once("--socket", path, *self.places())
            self.assertEqual(code, 1)
            self.assertIn("another daemon is listening", log)
            for c in waiting:
                c.close()

    def test_what_is_no_socket_is_left_alone(self):
        file, folder = self.folder + "/file", self.folder + "/folder"
        link = self.folder + "/link"
        with open(file, "w") as f:
            f.write("precious")
        os.mkdir(folder)
        os.symlink(file, link)
        for path in (file, folder, link):
            code, log = self.run_once("--socket", path, *self.places())
            self.assertEqual(code, 1)
            self.assertIn("no socket", log)
        with open(file) as f:
            self.assertEqual(f.read(), "precious")
        self.assertTrue(os.path.islink(link))

    def test_too_long_a_path_names_path_and_limit(self):
        path = self.folder + "/" + "x" * 120
        code, log = self.run_once("--socket", path, *self.places())
        self.assertEqual(code, 78)
        self.assertIn(path, log)
        self.assertIn("107", log)

    def test_of_ten_that_start_at_once_one_wins(self):
        model = os.path.join(self.folder, "model")
        with open(model, "w") as f:
            f.write("{}")
        path = self.folder + "/s"
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(path)  # stale, too
        all_ten = [subprocess.Popen([PROGRAM, "--model", model, "--socket", path, *self.places()],
                                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                    stderr=subprocess.DEVNULL) for _ in range(10)]
        try:
            deadline = time.monotonic() + PATIENCE_S
            while sum(p.poll() is None for p in all_ten) > 1 and time.monotonic() < deadline:
                time.sleep(0.005)
            left = [p for p in all_ten if p.poll() is None]
            self.assertEqual(len(left), 1)
            self.assertEqual({p.returncode for p in all_ten if p not in left}, {1})
            c = UnixConnection(path)
            c.request("GET", "/health")
            self.assertIn(c.getresponse().status, (200, 503))
            c.close()
            left[0].terminate()
            self.assertEqual(left[0].wait(PATIENCE_S), 0)
        finally:
            for p in all_ten:
                if p.poll() is None:
                    p.kill()
                p.wait()

    # ---- B73 ----

    def test_modes_are_private_under_any_umask(self):
        old = os.umask(0)
        try:
            d = self.daemon()
        finally:
            os.umask(old)
        d.chat([user("hello")])
        seen = []
        for where, dirs, files in os.walk(self.folder):
            for name in dirs + files:
                path = os.path.join(where, name)
                if path in (d.log_path, d.model):
                    continue
                st = os.lstat(path)
                seen.append(name)
                wanted = 0o700 if stat.S_ISDIR(st.st_mode) else 0o600
                self.assertEqual(stat.S_IMODE(st.st_mode), wanted, path)
        for name in ("state", "cache", "lock", "history.db", "s"):
            self.assertIn(name, seen)
        d.stop()

    def test_a_group_socket_has_its_mode(self):
        d = self.daemon("--socket-mode", "0660")
        self.assertEqual(stat.S_IMODE(os.stat(d.socket_path).st_mode), 0o660)
        d.stop()

    def test_a_socket_that_was_replaced_is_not_removed(self):
        d = self.daemon()
        os.rename(d.socket_path, d.socket_path + ".old")
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(d.socket_path)
            d.stop()
            self.assertTrue(os.path.exists(d.socket_path))

    # ---- configuration ----

    def test_configuration_errors_exit_with_78(self):
        for flags, text in ((["--queue", "x"], "--queue"), (["--bogus"], "--bogus"),
                            (["--listen", "1.2.3.4:80", "--api-key-file", "x"], "loopback"),
                            (["--config", "/nonexistent"], "/nonexistent")):
            code, log = self.run_once(*flags)
            self.assertEqual(code, 78, log)
            self.assertIn(text, log)
        code, log = self.run_once(model="/nonexistent.gguf")
        self.assertEqual(code, 78)
        self.assertIn("/nonexistent.gguf", log)

    def test_bad_keys_exit_with_78(self):
        keys = os.path.join(self.folder, "keys")
        with open(keys, "w") as f:
            f.write("ann:0123456789abcdef\n")
        os.chmod(keys, 0o644)
        code, log = self.run_once("--socket", self.folder + "/k", *self.places(), "--listen",
                                  "127.0.0.1:0", "--api-key-file", keys)
        self.assertEqual(code, 78, log)
        self.assertIn("0644", log)

    def test_help_and_version_go_to_stdout(self):
        for flag, text in (("--help", "--model FILE"), ("--version", "build ")):
            r = subprocess.run([PROGRAM, flag], capture_output=True, timeout=PATIENCE_S)
            self.assertEqual(r.returncode, 0)
            self.assertIn(text, r.stdout.decode())
            self.assertEqual(r.stderr, b"")

    def test_health_and_version_name_the_same_build(self):
        r = subprocess.run([PROGRAM, "--version"], capture_output=True, timeout=PATIENCE_S)
        build = re.search(r"^build ([0-9a-f]{40})$", r.stdout.decode(), re.M).group(1)
        d = self.daemon()
        self.assertEqual(d.get("/health")[1]["build"], build)
        d.stop()

    def test_the_file_is_read_and_flags_win(self):
        path = os.path.join(self.folder, "hearth.conf")
        with open(path, "w") as f:
            f.write("queue = 3\nparallel = 2\n")
        d = self.daemon("--config", path, "--parallel", "1")
        metrics = d.get("/metrics")[1].decode()
        self.assertIn("\nhearth_places 4\n", metrics)
        d.stop()

    # ---- surroundings ----

    def test_few_descriptors_don_t_stop_it(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_NOFILE, (32, 64))
        model = os.path.join(self.folder, "model")
        with open(model, "w") as f:
            f.write("{}")
        path = self.folder + "/s"
        p = subprocess.Popen([PROGRAM, "--model", model, "--socket", path, *self.places()],
                             stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=limit)
        try:
            clients = []
            deadline = time.monotonic() + PATIENCE_S
            # Bound isn't listening yet: the name is there a moment before it can be called.
            while time.monotonic() < deadline:
                with socket.socket(socket.AF_UNIX) as c:
                    if c.connect_ex(path) == 0:
                        break
                time.sleep(0.005)
            for _ in range(100):  # more than it can accept; those wait in the backlog
                c = socket.socket(socket.AF_UNIX)
                clients.append(c)
                c.connect(path)
            for c in clients:
                c.close()
            c = UnixConnection(path)
            c.request("GET", "/metrics")
            self.assertEqual(c.getresponse().status, 200)
            c.close()
            p.terminate()
            log = p.communicate(timeout=PATIENCE_S)[1].decode()
            self.assertEqual(p.returncode, 0, log)
            self.assertLess(log.count("\n"), 30, log)  # and the log isn't flooded
        finally:
            if p.poll() is None:
                p.kill()
                p.wait()

    def test_a_read_only_state_directory_is_named(self):
        as_user = []  # root writes anywhere
        state = os.path.join(self.folder, "state")
        os.mkdir(state, 0o500)
        if os.geteuid() == 0:
            as_user = ["setpriv", "--reuid=4321", "--regid=4321", "--clear-groups"]
            os.chown(state, 4321, 4321)
            os.chmod(self.folder, 0o755)
            if subprocess.run([*as_user, PROGRAM, "--version"], capture_output=True).returncode:
                self.skipTest("another user can't run the program where it is")
        code, log = self.run_once("--socket", self.folder + "/s", "--state-dir", state,
                                  as_user=as_user)
        self.assertEqual(code, 1)
        self.assertIn(state, log)

    def test_a_state_directory_that_others_may_write_is_refused(self):
        state = os.path.join(self.folder, "state")
        os.mkdir(state)
        os.chmod(state, 0o777)
        code, log = self.run_once("--socket", self.folder + "/s", "--state-dir", state)
        self.assertEqual(code, 1)
        self.assertIn(state, log)

    def test_another_user_is_refused_by_name(self):
        if os.geteuid() != 0 or not shutil.which("setpriv"):
            self.skipTest("needs root and setpriv")
        d = self.daemon()
        os.chmod(self.folder, 0o755)
        os.chmod(d.socket_path, 0o666)  # even where the file's mode lets them in
        request = ("import socket; s = socket.socket(socket.AF_UNIX);"
                   f"s.connect({d.socket_path!r});"
                   "s.sendall(b'GET /v1/models HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n');"
                   "print(s.recv(4096).decode())")
        for uid, text in ((4321, "you are user 4321"), (65534, "no identity")):
            r = subprocess.run(["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups",
                                "/usr/bin/python3", "-c", request], capture_output=True,
                               timeout=PATIENCE_S)
            self.assertIn("403 Forbidden", r.stdout.decode(), r.stderr)
            self.assertIn(text, r.stdout.decode())
        d.stop()


if __name__ == "__main__":
    unittest.main()
