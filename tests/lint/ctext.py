"""C text for the lint: comments and literals blanked, functions found, their nesting measured.

Not a compiler: it knows strings, comments, preprocessor lines and balanced brackets, which is
enough for code that is formatted like ours. Line numbers are kept by everything here.
"""
import re

TOKEN = re.compile(r'[A-Za-z_]\w*|\d[\w.]*|->|\S')
PAIR = {')': '(', ']': '[', '}': '{'}
LITERAL = re.compile(
    r'/\*.*?\*/|//(?:\\\n|[^\n])*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
NOT_A_FUNCTION = {'if', 'for', 'while', 'switch', 'return', 'sizeof', 'do', 'else', 'case'}


def blank(text):
    """Comments become spaces, literals keep their quotes around spaces; newlines stay."""
    def spaces(m):
        s = m.group(0)
        if s[0] == '/':
            return re.sub(r'[^\n]', ' ', s)
        return s[0] + re.sub(r'[^\n]', ' ', s[1:-1]) + s[-1]
    return LITERAL.sub(spaces, text)


def directives(blanked):
    """(first line, last line, text) of each preprocessor directive, continuations joined."""
    found, lines, i = [], blanked.split('\n'), 0
    while i < len(lines):
        start, text = i, lines[i]
        while text.endswith('\\') and i + 1 < len(lines):
            i += 1
            text = text[:-1] + lines[i]
        if text.lstrip().startswith('#'):
            found.append((start + 1, i + 1, text.strip()))
        i += 1
    return found


def without_directives(blanked):
    """Preprocessor lines blanked; of each #if only its first branch, so that brackets balance."""
    lines = blanked.split('\n')
    skipping = []  # for each open #if: are we past its first branch?
    at = {start: (end, text) for start, end, text in directives(blanked)}
    i = 0
    while i < len(lines):
        end, text = at.get(i + 1, (i + 1, None))
        if text is not None:
            word = re.match(r'#\s*(\w*)', text).group(1)
            if word in ('if', 'ifdef', 'ifndef'):
                skipping.append(False)
            elif word in ('else', 'elif') and skipping:
                skipping[-1] = True
            elif word == 'endif' and skipping:
                skipping.pop()
        if text is not None or any(skipping):
            for k in range(i, end):
                lines[k] = ''
        i = end
    return '\n'.join(lines)


def tokens(code):
    """(token, line number) pairs of blanked text without directives."""
    found, line, last = [], 1, 0
    for m in TOKEN.finditer(code):
        line += code.count('\n', last, m.start())
        last = m.start()
        found.append((m.group(0), line))
    return found


def matches(toks):
    """Index of the bracket that pairs with each one, both ways."""
    pair, stack = {}, []
    for i, (t, _) in enumerate(toks):
        if t in '([{':
            stack.append(i)
        elif t in PAIR and stack and toks[stack[-1]][0] == PAIR[t]:
            pair[i] = stack.pop()
            pair[pair[i]] = i
    return pair


class Function:
    """A definition: its lines (name … closing brace), parameters and deepest nesting."""

    def __init__(self, name, line, end, n_parameters, nesting):
        self.name, self.line, self.end = name, line, end
        self.n_parameters, self.nesting = n_parameters, nesting

    @property
    def n_lines(self):
        return self.end - self.line + 1


def count_parameters(toks, pair, at):
    """How many parameters; a last `struct err *` or `...` isn't counted. 0 for () and (void)."""
    inside = toks[at + 1:pair[at]]
    if not inside or [t for t, _ in inside] == ['void']:
        return 0
    n, i = 1, at + 1
    while i < pair[at]:
        if toks[i][0] in '([{' and i in pair:
            i = pair[i]
        elif toks[i][0] == ',':
            n += 1
        i += 1
    last = [t for t, _ in inside[-4:]]
    return n - (last[:3] == ['struct', 'err', '*'] or last[-3:] == ['.', '.', '.'])


class Nesting:
    """The deepest chain of if/for/while/do/switch (and foreach macros) within each other.

    `else if` continues its chain. Braces don't matter: a bare block, a case label and an
    initialiser add nothing, and a branch without braces adds as much as one with.
    """

    def __init__(self, toks, pair):
        self.toks, self.pair, self.deepest = toks, pair, 0

    def is_at(self, i, text):
        return i < len(self.toks) and self.toks[i][0] == text

    def block(self, i, depth):
        """From an opening brace; returns the index after its closing one."""
        end = self.pair[i]
        i += 1
        while i < end:
            i = self.statement(i, depth)
        return end + 1

    def body(self, i, depth):
        self.deepest = max(self.deepest, depth)
        return self.statement(i, depth)

    def simple(self, i):
        """To behind the semicolon."""
        while i < len(self.toks) and self.toks[i][0] not in (';', '}'):
            is_open = self.toks[i][0] in '([{' and i in self.pair
            i = self.pair[i] + 1 if is_open else i + 1
        return i + 1 if self.is_at(i, ';') else i

    def is_label(self, i):
        return (self.toks[i][0] in ('case', 'default') or
                self.toks[i][0].isidentifier() and self.is_at(i + 1, ':'))

    def statement(self, i, depth):
        t = self.toks[i][0]
        if t == '{':
            return self.block(i, depth)
        if self.is_label(i):
            while not self.is_at(i, ':'):
                i += 1
            return i + 1
        if t == 'do':
            return self.simple(self.body(i + 1, depth + 1))
        if t not in ('if', 'for', 'while', 'switch') and not self.is_foreach(i):
            return self.simple(i)
        i = self.body(self.pair[i + 1] + 1, depth + 1)
        if t == 'if' and self.is_at(i, 'else'):
            is_chain = self.is_at(i + 1, 'if')
            i = self.statement(i + 1, depth) if is_chain else self.body(i + 1, depth + 1)
        return i

    def is_foreach(self, i):
        """A macro call with a block behind it: json_each(v, of) { … }."""
        return (self.toks[i][0].isidentifier() and self.is_at(i + 1, '(') and
                i + 1 in self.pair and self.is_at(self.pair[i + 1] + 1, '{'))


def functions(text):
    """The function definitions of a C file, in order."""
    toks = tokens(without_directives(blank(text)))
    pair = matches(toks)
    found, i = [], 0
    while i < len(toks):
        t, _ = toks[i]
        if t == '{' and i in pair:
            f = definition(toks, pair, i)
            if f:
                found.append(f)
            i = pair[i]
        i += 1
    return found


def definition(toks, pair, brace):
    """The function whose body opens at `brace`, or None when a struct or initialiser does."""
    i = brace - 1
    while i > 0 and toks[i][0].isidentifier() and toks[i][0] not in NOT_A_FUNCTION:
        i -= 1  # attributes in capitals between ) and {
    if i < 1 or toks[i][0] != ')' or i not in pair:
        return None
    opening = pair[i]
    name, line = toks[opening - 1]
    if not name.isidentifier() or name in NOT_A_FUNCTION:
        return None
    nesting = Nesting(toks, pair)
    nesting.block(brace, 0)
    n_parameters = count_parameters(toks, pair, opening)
    return Function(name, line, toks[pair[brace]][1], n_parameters, nesting.deepest)
