#!/usr/bin/python3
"""The rules that a compiler doesn't know: sizes, banned calls, doors between rooms, dead documents.

    tests/lint/lint.py [ROOT]        prints one line a finding, and exits 1 when there is any

What is measured, and how:
  lines        of a file: at most 1,000 (above 600 it is mentioned, which is no failure)
  columns      characters of a line of C, Python or shell, comments too: at most 100; no tabs
  function     lines from its name to its closing brace: at most 70
  parameters   at most 5 besides a last `struct err *` or `...`. Not counted in the kernels'
               primitives (engine/vec_*.h, engine/kern_impl*.h), whose arguments are registers
  nesting      if/for/while/do/switch within each other inside a function: at most 3; `else if`
               continues its chain, and case labels and bare blocks count nothing
  tests        may have 2 parameters more (doubles of foreign signatures) and one loop more (shapes)
  calls        by name, where a name has no business (BANNED, STREAMS, ENDINGS below)
  includes     "room/file.h" from the root, only of rooms that the including one may see, only
               public headers across rooms; a third-party header only in its one file
               (THIRD_PARTY: the table of ARCHITECTURE.md)
  registered   each tests/**/test_* is named in a meson.build below tests
  documents    a path or file name in `code` or a link of a Markdown file must exist
"""
import glob
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import ctext  # noqa: E402

MAX_LINES, WISHED_LINES, MAX_COLUMNS = 1000, 600, 100
MAX_FUNCTION_LINES, MAX_PARAMETERS, MAX_NESTING = 70, 5, 3

ROOMS = ('base', 'engine', 'cache', 'memory', 'daemon', 'client', 'tests')
PLACES = ROOMS + ('systemd', 'docs', 'scripts')

# Who may include whom. `kv` is engine/kv.[ch] alone.
SEES = {
    'base': {'base'},
    'kv': {'base', 'kv'},
    'engine': {'base', 'kv', 'engine'},
    'cache': {'base', 'kv', 'cache'},
    'memory': {'base', 'memory'},
    'daemon': {'base', 'kv', 'engine', 'cache', 'memory', 'daemon'},
    'client': {'base', 'client'},
    'tests': {'base', 'kv', 'engine', 'cache', 'memory', 'daemon', 'client', 'tests'},
}
# What other rooms (not the tests) may include of these.
PUBLIC = {
    'engine': {'engine/engine.h', 'engine/chat.h', 'engine/tok.h', 'engine/sample.h',
               'engine/stop.h', 'engine/embed.h', 'engine/peaks.h', 'engine/topology.h',
               'engine/describe.h'},
    'cache': {'cache/cache.h'},
    'memory': {'memory/memory.h', 'memory/plan.h', 'memory/window.h', 'memory/said.h',
               'memory/extract.h', 'memory/facts.h', 'memory/search.h',
               'memory/fold.h', 'memory/bm25.h', 'memory/relevance.h',
               'memory/vectors.h'},
}
# Header (or folder) → the files that may include it. Tests may include what their fixtures need.
THIRD_PARTY = {
    'cjson/': {'base/json.c'},
    'sodium': {'base/hash.c'},
    'utf8proc.h': {'base/utf8.c'},
    'cblas.h': {'base/blas.c'},
    'pcre2.h': {'engine/tok_split.c'},
    'xxhash.h': {'base/sum.c'},
    'sqlite3.h': {'memory/db.c'},
    'libstemmer.h': {'memory/segment.c'},
    'event2/': {'daemon/loop.c', 'daemon/conn.c'},
    'http_parser.h': {'daemon/http.c'},
    'ini.h': {'daemon/config.c'},
    'systemd/': {'daemon/notify.c'},
    'curl/': {'client/wire.c'},
    'histedit.h': {'client/line.c'},
    'editline/': {'client/line.c'},
    'sanitizer/': {'engine/kv_slots.c'},
}
# Headers of the C library, the kernel and the compiler: anybody's.
SYSTEM = re.compile(
    r'(assert|complex|cpuid|ctype|dirent|errno|fcntl|fenv|float|fnmatch|ftw|getopt|grp|immintrin|'
    r'inttypes|langinfo|libgen|limits|link|locale|malloc|math|netdb|poll|pthread|pwd|sched|'
    r'semaphore|setjmp|signal|spawn|stdarg|stdatomic|stdbool|stddef|stdint|stdio|stdlib|string|'
    r'strings|syslog|termios|threads|time|ucontext|unistd|wchar|xmmintrin|'
    r'(arpa|linux|net|netinet|sys)/\w+)\.h$')

BANNED = {
    'sprintf': 'snprintf', 'vsprintf': 'vsnprintf', 'strcpy': 'memcpy with a length',
    'strcat': 'struct buf', 'strtok': 'a loop', 'atoi': 'strtol with checks',
    'atol': 'strtol with checks', 'gets': 'fgets', 'rand': 'random_u64 or a seeded generator',
    'srand': 'a seeded generator', 'system': 'posix_spawn', 'alloca': 'the arena',
    'sleep': 'an event', 'usleep': 'an event',
    'cJSON_GetObjectItem': 'the case-sensitive one', 'cJSON_GetArrayItem': 'cJSON_ArrayForEach',
    'cJSON_GetErrorPtr': 'the end of the parse', 'pcre2_jit_compile': 'the interpreter',
}
STREAMS = {'printf', 'fprintf', 'vprintf', 'vfprintf', 'puts', 'fputs', 'putchar', 'putc', 'fputc',
           'perror'}
MAY_PRINT = re.compile(r'(base/log\.c|client/\w+\.c|daemon/offline_\w+\.c|tests/.*)$')
ENDINGS = {'exit', '_exit', 'abort', 'quick_exit'}
MAY_END = re.compile(r'(daemon|client|tests)/')
NO_PARAMETER_LIMIT = re.compile(r'engine/(vec_\w+|kern_impl\w*)\.h$')
BANNED_FLAGS = ('-ffast-math', '-Ofast', '-funsafe-math-optimizations')


class Lint:
    """Findings of one tree. Paths are relative to its root."""

    def __init__(self, root):
        self.root = root
        self.findings, self.notes = [], []
        self.files = sorted(self.walk())
        self.names = {os.path.basename(f) for f in self.files}

    def walk(self):
        for place in PLACES:
            for folder, folders, names in os.walk(os.path.join(self.root, place)):
                folders[:] = [f for f in folders if f != '__pycache__' and not f.startswith('.')]
                for name in names:
                    yield os.path.relpath(os.path.join(folder, name), self.root)
        for name in os.listdir(self.root):
            if os.path.isfile(os.path.join(self.root, name)):
                yield name

    def say(self, path, line, what):
        self.findings.append(f'{path}:{line}: {what}')

    def read(self, path):
        with open(os.path.join(self.root, path), encoding='utf-8', errors='replace') as f:
            return f.read()

    def run(self):
        for path in self.files:
            kind = kind_of(self.root, path)
            if kind in ('c', 'py', 'sh'):
                self.check_lines(path, self.read(path))
            if kind == 'c':
                self.check_c(path, self.read(path))
            elif kind == 'meson':
                self.check_flags(path, self.read(path))
            elif kind == 'md':
                self.check_document(path, self.read(path))
        self.check_registered()
        return self.findings

    # ---- any source ----

    def check_lines(self, path, text):
        lines = text.split('\n')
        n = len(lines) - (lines[-1] == '')
        if n > MAX_LINES:
            self.say(path, n, f'{n} lines, of at most {MAX_LINES}')
        elif n > WISHED_LINES:
            self.notes.append(f'{path}: {n} lines, wished are {WISHED_LINES}')
        for i, line in enumerate(lines, 1):
            if len(line) > MAX_COLUMNS:
                self.say(path, i, f'{len(line)} columns, of at most {MAX_COLUMNS}')
            if '\t' in line:
                self.say(path, i, 'a tab')

    def check_flags(self, path, text):
        for i, line in enumerate(text.split('\n'), 1):
            if '\t' in line:
                self.say(path, i, 'a tab')
            for flag in BANNED_FLAGS:
                if flag in line.split('#')[0]:
                    self.say(path, i, f'{flag} changes bits')

    def check_registered(self):
        meson = ''.join(self.read(f) for f in self.files
                        if f.startswith('tests/') and f.endswith('meson.build'))
        for path in self.files:
            m = re.match(r'tests/.*\btest_(\w+)\.(c|py)$', path)
            if m and not re.search(rf"['/](test_)?{m.group(1)}(\.c|\.py)?'", meson):
                self.say(path, 1, 'a test that no meson.build runs')

    # ---- C ----

    def check_c(self, path, text):
        blanked = ctext.blank(text)
        if not text.lstrip().startswith('/*'):
            self.say(path, 1, 'a file opens with its story')
        self.check_functions(path, text)
        self.check_calls(path, blanked)
        self.check_includes(path, text)

    def check_functions(self, path, text):
        in_tests = room_of(path) == 'tests'
        max_nesting = MAX_NESTING + in_tests
        max_parameters = MAX_PARAMETERS + 2 * in_tests
        if NO_PARAMETER_LIMIT.match(path):
            max_parameters = 1000
        for f in ctext.functions(text):
            for what, n, n_max in (('lines', f.n_lines, MAX_FUNCTION_LINES),
                                   ('parameters', f.n_parameters, max_parameters),
                                   ('levels of nesting', f.nesting, max_nesting)):
                if n > n_max:
                    self.say(path, f.line, f'{f.name} has {n} {what}, of at most {n_max}')

    def check_calls(self, path, blanked):
        for i, line in enumerate(blanked.split('\n'), 1):
            for m in re.finditer(r'(?<![\w.>])([A-Za-z_]\w*)\s*\(', line):
                self.check_call(path, i, m.group(1))

    def check_call(self, path, line, name):
        if name in BANNED:
            self.say(path, line, f'{name} is banned: use {BANNED[name]}')
        elif name in STREAMS and not MAY_PRINT.match(path):
            self.say(path, line, f'{name} outside base/log.c, client, daemon/offline_* and tests')
        elif name in ENDINGS and not MAY_END.match(path):
            self.say(path, line, f'{name} in a library: return an error')

    def check_includes(self, path, text):
        room = room_of(path)
        for i, line in enumerate(text.split('\n'), 1):
            m = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
            if m and m.group(1) == '<':
                self.check_third_party(path, i, room, m.group(2))
            elif m:
                self.check_door(path, i, room, m.group(2))

    def check_third_party(self, path, line, room, header):
        if SYSTEM.match(header) or (room == 'tests' and header == 'cmocka.h'):
            return
        owners = [files for name, files in THIRD_PARTY.items() if header.startswith(name)]
        if not owners:
            self.say(path, line, f'<{header}> is in no table (ARCHITECTURE.md, tests/lint/lint.py)')
        elif room != 'tests' and path not in owners[0]:
            where = ', '.join(sorted(owners[0]))
            self.say(path, line, f'<{header}> belongs in {where} alone')

    def check_door(self, path, line, room, header):
        target = room_of(header)
        if target not in SEES:
            self.say(path, line, f'"{header}": includes are from the root, "room/file.h"')
        elif not os.path.isfile(os.path.join(self.root, header)):
            self.say(path, line, f'"{header}" does not exist')
        elif target not in SEES[room]:
            self.say(path, line, f'"{header}": {room} does not see {target}')
        elif room not in (target, 'tests') and header not in PUBLIC.get(target, {header}):
            self.say(path, line, f'"{header}" is private to {target}')

    # ---- documents ----

    def check_document(self, path, text):
        in_block = False
        for i, line in enumerate(text.split('\n'), 1):
            in_block ^= line.lstrip().startswith('```')
            if in_block or line.startswith('    '):
                continue
            links = re.findall(r'\]\(([^)#\s]+)[^)]*\)', line)
            for name in re.findall(r'`([^`]+)`', line) + links:
                if not self.is_there(path, name):
                    self.say(path, i, f'{name} does not exist')

    def is_there(self, document, name):
        """True for what is no path of this tree or exists. foo_* and {a,b} are patterns."""
        name = re.sub(r':\d+$', '', name.strip()).removeprefix('./')
        if not re.fullmatch(r'[\w.*{},-]+(/[\w.*{},-]*)*', name) or name.startswith('build/'):
            return True
        if '/' in name:
            beside = os.path.join(os.path.dirname(document), name)
            if name.split('/')[0] not in PLACES:
                return True
            return any(self.glob(p) for p in expand(name) + expand(beside))
        if re.search(r'\.(c|h|py|md)$', name):
            pattern = re.compile(re.escape(name).replace(r'\*', '.*'))
            return any(pattern.fullmatch(n) for n in self.names)
        return True

    def glob(self, pattern):
        full = os.path.join(self.root, pattern)
        return glob.glob(full) or glob.glob(full + '.[ch]')  # daemon/conn: the pair


def expand(name):
    """a{b,c}d → abd, acd."""
    m = re.match(r'(.*?)\{([^{}]*)\}(.*)$', name)
    if not m:
        return [name]
    return [m.group(1) + part + m.group(3) for part in m.group(2).split(',')]


def room_of(path):
    if re.match(r'engine/kv(_slots)?\.[ch]$', path):
        return 'kv'
    return path.split('/')[0] if '/' in path else ''


def kind_of(root, path):
    """'c', 'py', 'sh', 'meson', 'md' or None."""
    ending = os.path.splitext(path)[1]
    known = {'.c': 'c', '.h': 'c', '.py': 'py', '.sh': 'sh', '.md': 'md', '.build': 'meson'}
    if ending in known:
        return known[ending]
    if ending:
        return None
    with open(os.path.join(root, path), 'rb') as f:
        first = f.readline(200)
    if not first.startswith(b'#!'):
        return None
    return 'py' if b'python' in first else 'sh'


def main(argv):
    here = os.path.dirname(os.path.abspath(__file__))
    root = argv[1] if len(argv) > 1 else os.path.join(here, '..', '..')
    lint = Lint(os.path.abspath(root))
    findings = lint.run()
    for note in lint.notes:
        print(f'note: {note}')
    for finding in findings:
        print(finding)
    print(f'{len(lint.files)} files, {len(findings)} findings')
    return 1 if findings else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv))
