#!/usr/bin/python3
"""The units as they are installed: systemd finds nothing wrong, and the service is locked up."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD = os.environ["HEARTH_BUILD"]
EXPOSURE_MAX = 2.0


def run(*command, env=None):
    r = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, env={**os.environ, **(env or {})})
    return r.returncode, r.stdout.decode()


class Units(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = tempfile.mkdtemp(prefix="hearth-install-")
        code, log = run("meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", cls.root)
        if code:
            raise AssertionError(f"meson install: {log}")
        cls.found = {}
        for where, _, files in os.walk(cls.root):
            for name in files:
                cls.found.setdefault(name, []).append(os.path.join(where, name))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.root)

    def path(self, name, part):
        [path] = [p for p in self.found[name] if part in p]
        return path

    def copy(self, folder, part):
        """The two units with ExecStart= at the installed program, where verify can see it."""
        paths = []
        for name in ("hearthd.service", "hearthd.socket"):
            with open(self.path(name, part)) as f:
                text = f.read()
            text = re.sub(r"^ExecStart=", f"ExecStart={self.root}", text, flags=re.M)
            paths.append(os.path.join(folder, name))
            with open(paths[-1], "w") as f:
                f.write(text)
        return paths

    def test_all_is_installed(self):
        self.assertEqual(len(self.found["hearthd.8"]), 1)
        self.path("hearthd", "/bin/")
        self.path("hearthd", "completions")
        self.assertEqual(len(self.found["hearthd.service"]), 2)
        self.assertEqual(len(self.found["hearthd.socket"]), 2)
        self.path("hearth.conf", "sysusers.d")
        self.path("hearth.conf.example", "doc")

    def test_exec_start_names_the_installed_program(self):
        for part in ("/system/", "/user/"):
            with open(self.path("hearthd.service", part)) as f:
                program = re.search(r"^ExecStart=(\S+)", f.read(), re.M).group(1)
            self.assertTrue(os.access(self.root + program, os.X_OK), program)

    def test_systemd_finds_nothing_wrong(self):
        for part, scope in (("/system/", "--system"), ("/user/", "--user")):
            with tempfile.TemporaryDirectory() as folder:
                env = {"XDG_RUNTIME_DIR": folder, "SYSTEMD_LOG_LEVEL": "warning"}
                code, log = run("systemd-analyze", scope, "verify", "--man=no",
                                *self.copy(folder, part), env=env)
            ours = [line for line in log.split("\n") if "hearth" in line]
            self.assertEqual((code, ours), (0, []), log)

    def test_the_system_service_is_locked_up(self):
        path = self.path("hearthd.service", "/system/")
        code, log = run("systemd-analyze", "security", "--offline=true",
                        f"--threshold={int(EXPOSURE_MAX * 10)}", path)
        level = float(re.search(r"exposure level for \S+: ([\d.]+)", log).group(1))
        print(f"exposure {level}", file=sys.stderr)
        self.assertLessEqual(level, EXPOSURE_MAX)
        self.assertEqual(code, 0)

    def test_peers_keep_their_uids(self):
        """In a user namespace they would all look like the same nobody."""
        with open(self.path("hearthd.service", "/system/")) as f:
            self.assertNotRegex(f.read(), r"(?m)^(PrivateUsers|DynamicUser)=yes")

    def test_the_user_service_has_no_sandbox(self):
        with open(self.path("hearthd.service", "/user/")) as f:
            self.assertNotRegex(f.read(), r"(?m)^(Protect|Private|Restrict|SystemCall|Capability)")

    def test_the_sysusers_line_is_understood(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(folder + "/etc")
            code, log = run("systemd-sysusers", f"--root={folder}",
                            self.path("hearth.conf", "sysusers.d"))
            self.assertEqual(code, 0, log)
            with open(folder + "/etc/passwd") as f:
                self.assertRegex(f.read(), r"(?m)^hearth:")

    def test_the_example_configuration_is_accepted(self):
        path = self.path("hearth.conf.example", "doc")
        with tempfile.NamedTemporaryFile() as model:
            code, log = run(self.path("hearthd", "/bin/"), "--config", path, "--model", model.name,
                            "--socket", "/" + "x" * 120)
        self.assertEqual(code, 78)
        self.assertIn("107", log)  # that far it came


if __name__ == "__main__":
    for tool in ("systemd-analyze", "systemd-sysusers", "meson"):
        if not shutil.which(tool):
            print(f"{tool} is missing")
            sys.exit(1 if os.environ.get("CI") else 77)
    unittest.main()
