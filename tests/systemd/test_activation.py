#!/usr/bin/python3
"""Socket activation and the messages to the service manager, over the scripted engine."""
import os
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
from harness import BUILD, PATIENCE_S, Scripted, UnixConnection  # noqa: E402

PROGRAM = os.path.join(BUILD, Scripted.program)


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="hearth-")
        self.model = os.path.join(self.folder, "model")
        with open(self.model, "w") as f:
            f.write("{}")
        self.processes = []

    def tearDown(self):
        for p in self.processes:
            if p.poll() is None:
                p.kill()
            p.communicate()
        shutil.rmtree(self.folder)

    def popen(self, *command, **more):
        p = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, **more)
        self.processes.append(p)
        return p

    def flags(self):
        return ["--model", self.model, "--state-dir", self.folder + "/state", "--cache-dir",
                self.folder + "/cache"]

    def ask_health(self, path):
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            try:
                c = UnixConnection(path)
                c.request("GET", "/health")
                return c.getresponse().status
            except (FileNotFoundError, ConnectionRefusedError):
                time.sleep(0.005)
            finally:
                c.close()
        self.fail(f"nobody listens on {path}")


@unittest.skipUnless(shutil.which("systemd-socket-activate"), "no systemd-socket-activate")
class Activation(Folder):
    def test_the_first_client_starts_it_and_the_socket_outlives_it(self):
        path = self.folder + "/activated"
        p = self.popen("systemd-socket-activate", "-l", path, PROGRAM, *self.flags())
        self.assertIn(self.ask_health(path), (200, 503))
        p.send_signal(signal.SIGTERM)
        log = p.communicate(timeout=PATIENCE_S)[0].decode()
        self.assertEqual(p.returncode, 0, log)
        self.assertIn("from systemd", log)
        self.assertTrue(stat.S_ISSOCK(os.lstat(path).st_mode))
        self.assertFalse(os.path.exists(self.folder + "/state/hearth.sock"))

    def test_another_kind_of_socket_is_refused_by_number(self):
        path = self.folder + "/datagrams"
        p = self.popen("systemd-socket-activate", "-d", "-l", path, PROGRAM, *self.flags())
        deadline = time.monotonic() + PATIENCE_S
        while not os.path.exists(path) and time.monotonic() < deadline:
            time.sleep(0.005)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.connect(path)
            s.send(b"x")
        log = p.communicate(timeout=PATIENCE_S)[0].decode()
        self.assertEqual(p.returncode, 1, log)
        self.assertIn("descriptor 3", log)


class Notify(Folder):
    def setUp(self):
        super().setUp()
        self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.manager.bind(self.folder + "/notify")
        self.manager.settimeout(PATIENCE_S)

    def tearDown(self):
        self.manager.close()
        super().tearDown()

    def start(self, *flags, watchdog_us=None):
        env = {**os.environ, "NOTIFY_SOCKET": self.folder + "/notify"}
        env.pop("WATCHDOG_PID", None)
        if watchdog_us:
            env["WATCHDOG_USEC"] = str(watchdog_us)
        return self.popen(PROGRAM, *self.flags(), "--socket", self.folder + "/s", *flags, env=env)

    def wait_for(self, text):
        """Reads messages up to the first with this in it; all that were read."""
        seen = []
        while not seen or text not in seen[-1]:
            seen.append(self.manager.recv(4096).decode())
        return seen

    def test_loading_ready_stopping(self):
        p = self.start()
        before = self.wait_for("READY=1")
        self.assertIn("STATUS=loading", before[0])
        self.assertIn("STATUS=ready", before[-1])
        self.assertEqual(self.ask_health(self.folder + "/s"), 200)
        p.send_signal(signal.SIGTERM)
        self.wait_for("STOPPING=1")
        self.assertEqual(p.wait(PATIENCE_S), 0)

    def test_an_idle_daemon_feeds_the_watchdog(self):
        p = self.start(watchdog_us=200000)
        self.wait_for("READY=1")
        for _ in range(3):
            self.wait_for("WATCHDOG=1")
        p.send_signal(signal.SIGTERM)
        self.assertEqual(p.wait(PATIENCE_S), 0)

    def test_without_a_limit_there_is_no_watchdog(self):
        p = self.start()
        self.wait_for("READY=1")
        p.send_signal(signal.SIGTERM)
        self.assertFalse([m for m in self.wait_for("STOPPING=1") if "WATCHDOG" in m])
        self.assertEqual(p.wait(PATIENCE_S), 0)


if __name__ == "__main__":
    unittest.main()
