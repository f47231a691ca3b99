"""scripts/setup.sh: what is missing is installed, and what can't be is said in one line."""
import os
import shutil
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCRIPT = 'set -euo pipefail; . scripts/setup.sh; need_packages gcc absent; echo reached'


class NeedPackages(unittest.TestCase):
    """dpkg-query, apt-get and id are stand-ins; apt-get writes down what it was asked."""

    def setUp(self):
        self.dir = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.dir)
        self.fake('id', 'echo 0')

    def fake(self, name, body):
        path = os.path.join(self.dir, name)
        with open(path, 'w', encoding='utf-8') as f:
            f.write('#!/bin/sh\n' + body + '\n')
        os.chmod(path, 0o755)

    def run_it(self):
        env = {'PATH': self.dir + ':/usr/bin:/bin', 'LOG': os.path.join(self.dir, 'log')}
        return subprocess.run(['bash', '-c', SCRIPT], cwd=ROOT, env=env, capture_output=True,
                              text=True, timeout=60, check=False)

    def test_nothing_is_installed_when_all_is_there(self):
        self.fake('dpkg-query', 'echo "ii gcc"; echo "ii absent"')
        self.fake('apt-get', 'echo "$@" >>"$LOG"')
        r = self.run_it()
        self.assertEqual((r.returncode, r.stdout, r.stderr), (0, 'reached\n', ''))
        self.assertFalse(os.path.exists(os.path.join(self.dir, 'log')))

    def test_a_package_that_dpkg_does_not_know_is_installed(self):
        # As the real one: its status is 1 when one of several is unknown.
        self.fake('dpkg-query', 'echo "ii gcc"; exit 1')
        self.fake('apt-get', 'echo "$@" >>"$LOG"')
        r = self.run_it()
        self.assertEqual((r.returncode, r.stdout), (0, 'reached\n'), r.stderr)
        with open(os.path.join(self.dir, 'log'), encoding='utf-8') as f:
            asked = f.read()
        self.assertIn('install -y --no-install-recommends absent\n', asked)
        self.assertNotIn('gcc', asked)

    def test_a_package_that_was_removed_is_missing(self):
        self.fake('dpkg-query', 'echo "ii gcc"; echo "rc absent"')
        self.fake('apt-get', 'echo "$@" >>"$LOG"')
        self.assertEqual(self.run_it().stderr, 'hearth: installing 1 packages: absent\n')

    def test_what_cannot_be_installed_is_said_with_apts_reason(self):
        self.fake('dpkg-query', 'exit 1')
        self.fake('apt-get', 'echo "noise"; echo "E: no such thing" >&2; exit 100')
        r = self.run_it()
        self.assertEqual((r.returncode, r.stdout), (1, ''))
        self.assertEqual(r.stderr.splitlines()[1:],
                         ["hearth: packages can't be installed: E: no such thing"])


if __name__ == '__main__':
    unittest.main()
