#!/usr/bin/python3
"""The lint catches a sample of everything it forbids, and leaves alone what only looks like it."""
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import ctext  # noqa: E402
import lint  # noqa: E402

STORY = '/* What this file is. */\n'


def function(body, head='int f(int a)'):
    return STORY + head + '\n{\n' + body + '\n}\n'


class Tree(unittest.TestCase):
    """A tree of a few files in a temporary folder, and what the lint says of it."""

    def findings(self, files):
        with tempfile.TemporaryDirectory() as root:
            for path, text in files.items():
                full = os.path.join(root, path)
                os.makedirs(os.path.dirname(full), exist_ok=True)
                with open(full, 'w', encoding='utf-8') as f:
                    f.write(text)
            return lint.Lint(root).run()

    def assert_clean(self, files):
        self.assertEqual(self.findings(files), [])

    def assert_found(self, files, *words):
        found = self.findings(files)
        self.assertEqual(len(found), 1, found)
        for word in words:
            self.assertIn(word, found[0])

    # ---- sizes ----

    def test_a_file_may_have_1000_lines(self):
        self.assert_clean({'base/a.c': STORY + '\n' * 999})
        self.assert_found({'base/a.c': STORY + '\n' * 1000}, 'base/a.c:1001', '1001 lines')

    def test_more_than_600_lines_are_a_note(self):
        with tempfile.TemporaryDirectory() as root:
            os.mkdir(os.path.join(root, 'base'))
            with open(os.path.join(root, 'base/a.c'), 'w', encoding='utf-8') as f:
                f.write(STORY + '\n' * 700)
            one = lint.Lint(root)
            self.assertEqual(one.run(), [])
            self.assertEqual(len(one.notes), 1)

    def test_columns_are_characters_and_comments_have_them_too(self):
        self.assert_clean({'base/a.c': '/* ' + 'ü' * 94 + ' */\n'})
        self.assert_found({'base/a.c': '/* ' + 'ü' * 95 + ' */\n'}, 'a.c:1', '101 columns')
        self.assert_found({'scripts/x.sh': '#!/bin/sh\n# ' + 'x' * 99 + '\n'}, 'x.sh:2')
        self.assert_found({'run': '#!/bin/sh\n# ' + 'x' * 99 + '\n'}, 'run:2')

    def test_tabs(self):
        self.assert_found({'base/a.c': STORY + '\tint a;\n'}, 'a.c:2', 'tab')
        self.assert_found({'base/meson.build': 'x = [\n\t]\n'}, 'meson.build:2', 'tab')

    def test_a_function_may_have_70_lines(self):
        self.assert_clean({'base/a.c': function('\n' * 66)})
        self.assert_found({'base/a.c': function('\n' * 67)}, 'a.c:2', 'f has 71 lines')

    def test_a_function_may_have_five_parameters_and_an_err(self):
        five = 'int a, char *b[2], void (*c)(int, int), struct s d, const int *e'
        self.assert_clean({'base/a.c': function('', f'int f({five})')})
        self.assert_clean({'base/a.c': function('', f'int f({five}, struct err *x)')})
        self.assert_clean({'base/a.c': function('', f'int f({five}, ...)')})
        self.assert_found({'base/a.c': function('', f'int f({five}, int x)')}, '6 parameters')
        self.assert_clean({'tests/a.c': function('', f'int f({five}, int x)')})
        self.assert_clean({'engine/vec_c.h': function('', f'int f({five}, int x)')})

    def test_nesting(self):
        three = 'if (a) { for (;;) { while (a) { g(); } } }'
        self.assert_clean({'base/a.c': function(three)})
        self.assert_found({'base/a.c': function('do { ' + three + ' } while (a);')}, '4 levels')
        self.assert_found({'base/a.c': function('json_each(x, y) { ' + three + ' }')}, '4 levels')
        self.assert_found({'base/a.c': function('if (a) for (;;) while (a) if (a) g();')}, '4 lev')
        self.assert_found({'base/a.c': function(
            'switch (a) { case 1: { ' + three + ' } default: break; }')}, '4 levels')
        self.assert_clean({'tests/a.c': function('if (a) { ' + three + ' }')})

    def test_what_is_no_nesting(self):
        self.assert_clean({'base/a.c': function('''
            if (a) { g(); } else if (b) { g(); } else if (c) { g(); } else { g(); }
            { { { { g(); } } } }
            struct s x = {.a = {{{{1}}}}};
            f((struct s){.b = {1}});
            goto done;
        done:
            switch (a) { case 1: case 'x': { if (b) { if (c) { g(); } } break; } default: g(); }
            ''')})

    # ---- calls ----

    def test_banned_calls(self):
        for name in lint.BANNED:
            self.assert_found({'base/a.c': function(f'    {name}(a);')}, 'a.c:4', name, 'banned')

    def test_printing_and_ending_are_for_programs(self):
        text = function('    printf("x");\n    fprintf(stderr, "x");\n    exit(1);')
        self.assertEqual(len(self.findings({'engine/a.c': text})), 3)
        self.assertEqual(len(self.findings({'daemon/loop.c': text})), 2)
        self.assert_clean({'daemon/offline_probe.c': text, 'client/main.c': text})
        self.assert_clean({'tests/base/a.c': text})

    def test_what_is_no_call(self):
        self.assert_clean({'base/a.c': function('''
            /* printf("x"); strcpy(a, b) */ // atoi("1");
            const char *s = "system(\\"x\\")"; char c = '"'; snprintf(b, 1, "gets(");
            table->printf("x"); o.system(1); my_exit(2); file_exit(1);''')})

    def test_fast_math(self):
        self.assert_found({'engine/meson.build': "c_args: ['-ffast-math']\n"}, '-ffast-math')
        self.assert_clean({'engine/meson.build': '# never -ffast-math\n'})

    # ---- includes ----

    def test_third_party_headers_have_one_home(self):
        self.assert_clean({'base/json.c': STORY + '#include <cjson/cJSON.h>\n'})
        self.assert_found({'daemon/http.c': STORY + '#include <cjson/cJSON.h>\n'}, 'base/json.c')
        self.assert_found({'client/a.c': STORY + '#  include <sqlite3.h>\n'}, 'memory/db.c')
        self.assert_found({'base/a.c': STORY + '#include <boost/any.h>\n'}, 'in no table')
        self.assert_found({'base/a.c': STORY + '#include <cmocka.h>\n'}, 'in no table')
        self.assert_clean({'tests/a.c': STORY + '#include <cmocka.h>\n#include <sqlite3.h>\n'})
        self.assert_clean({'base/a.c': STORY + '#include <stdio.h>\n#include <sys/mman.h>\n'})

    def includes(self, path, header):
        files = {path: STORY + f'#include "{header}"\n'}
        if header != path:
            files.setdefault(header, STORY)
        return files

    def test_doors(self):
        for path, header in (
                ('client/a.c', 'daemon/limits.h'), ('cache/a.c', 'engine/engine.h'),
                ('memory/a.c', 'engine/kv.h'), ('base/a.c', 'engine/kv.h'),
                ('engine/kv.c', 'engine/engine.h'), ('engine/a.c', 'cache/cache.h'),
                ('engine/a.c', 'memory/memory.h'), ('memory/a.c', 'cache/cache.h'),
                ('client/a.c', 'memory/memory.h'), ('daemon/a.c', 'client/client.h'),
                ('daemon/a.c', 'tests/fake.h')):
            self.assert_found(self.includes(path, header), 'does not see')
        for path, header in (
                ('cache/a.c', 'engine/kv.h'), ('engine/a.c', 'engine/kv.h'),
                ('daemon/a.c', 'engine/kv.h'), ('daemon/a.c', 'cache/cache.h'),
                ('engine/kv.c', 'engine/kv.h'), ('cache/a.c', 'cache/inside.h'),
                ('tests/cache/a.c', 'cache/inside.h'), ('client/a.c', 'base/err.h')):
            self.assert_clean(self.includes(path, header))

    def test_private_headers_stay_in_their_room(self):
        self.assert_found(self.includes('daemon/a.c', 'cache/inside.h'), 'private to cache')
        self.assert_found(self.includes('daemon/a.c', 'engine/mat.h'), 'private to engine')

    def test_includes_are_from_the_root_and_exist(self):
        self.assert_found({'base/a.c': STORY + '#include "err.h"\n'}, 'from the root')
        self.assert_found({'base/a.c': STORY + '#include "../x/err.h"\n'}, 'from the root')
        self.assert_found({'base/a.c': STORY + '#include "base/gone.h"\n'}, 'does not exist')

    def test_a_file_opens_with_its_story(self):
        self.assert_found({'base/a.c': '#include <stdio.h>\n'}, 'story')

    # ---- documents ----

    def test_each_test_is_run(self):
        meson = {'tests/base/meson.build': "foreach t : ['err', 'buf']\n"}
        self.assert_clean({'tests/base/test_err.c': STORY, **meson})
        self.assert_clean({'tests/base/test_x.py': '', 'tests/meson.build': "files('test_x.py')"})
        self.assert_found({'tests/base/test_errors.c': STORY, **meson}, 'test_errors.c', 'runs')
        self.assert_found({'tests/base/test_buf.c': STORY}, 'test_buf.c', 'runs')

    def test_documents_name_what_exists(self):
        files = {'base/a.c': STORY, 'base/a_x.c': STORY, 'docs/CACHE.md': 'x\n'}
        self.assert_clean({**files, 'README.md':
                           'See `base/a.c`, `a.c`, `base/a_*.c`, `base/{a,a_x}.c`, `base/`,\n'
                           '[the cache](docs/CACHE.md), `build/hearth`, `GET /v1/models`,\n'
                           '`application/json`, `it.works`, [site](https://example.org/x.md).\n'
                           '```\nvi base/gone.c\n```\n'})
        for name in ('base/gone.c', 'gone.h', 'docs/GONE.md', 'base/{a,gone}/x.c', 'tests/gone/'):
            text = f'One\nSee `{name}`.\n'
            self.assert_found({**files, 'HACKING.md': text}, 'HACKING.md:2', name)
        self.assert_found({**files, 'README.md': '[it](docs/GONE.md#x)\n'}, 'docs/GONE.md')
        self.assert_clean({**files, 'docs/A.md': '[beside](CACHE.md) `base/a.c`\n'})


class Text(unittest.TestCase):
    """The reading of C."""

    def test_functions_are_found_and_nothing_else(self):
        text = STORY + '''
struct s { int a; };
enum { A, B };
static const int table[] = {1, 2};
static int (*const f_table[])(int) = {one, two};
#define MACRO(x) do { if (x) { } } while (0)
int declared(int a);
static int __attribute__((noinline))
long_one(int a,
         int b)
{
#ifdef X
    if (a) {
#else
    if (b) {
#endif
        return 1;
    }
    return "}"[0] + '{';
}
void *two(void) { return 0; }
'''
        found = ctext.functions(text)
        self.assertEqual([f.name for f in found], ['long_one', 'two'])
        self.assertEqual([f.n_parameters for f in found], [2, 0])
        self.assertEqual(found[0].nesting, 1)
        self.assertEqual(found[0].n_lines, 12)


if __name__ == '__main__':
    unittest.main()
