"""Templates made by Jinja's grammar: what they say is random, how they say it is Jinja.

A Maker draws from what chat templates use (and from what is near it), with values of all types in
all places, so that most templates run and the rest fail for a reason that Python has.
"""


def counted(text):
    """A name and how many arguments it is given."""
    return [(name, int(n)) for name, n in (word.split(":") for word in text.split())]


NAMES = """
    messages m s t n f xs d people nil yes u missing ns x y a tools e nested names empty
""".split()
MILD_NAMES = "messages s t n f xs d people nil yes u tools e nested names empty".split()
LITERALS = [
    "0",
    "1",
    "2",
    "3",
    "-1",
    "7",
    "1.5",
    "0.1",
    "2.0",
    "1e3",
    "''",
    "'a'",
    "'abc'",
    "' b '",
    "'x,y,z'",
    "'A b'",
    "'1'",
    "'2.5'",
    "'é'",
    "'Straße'",
    "'a\\nb\\n'",
    "'%s'",
    "'{}'",
    "true",
    "false",
    "none",
    "[]",
    "{}",
    "()",
    "'role'",
    "'name'",
    "'user'",
    "100",
]
BINARY = ["+", "-", "*", "/", "//", "%", "**", "~", "+", "~", "-", "*"]
COMPARE = ["==", "!=", "<", ">", "<=", ">=", "in", "not in"]
ATTRIBUTES = """
    role content name age tags items keys a b list x k first index count title update pop append
    admin nosuch
""".split()
STR_METHODS = counted("""
    strip:0 strip:1 lstrip:1 rstrip:0 split:0 split:1 split:2 rsplit:1 rsplit:2 splitlines:0
    startswith:1 endswith:1 replace:2 replace:3 upper:0 lower:0 title:0 capitalize:0 find:1
    rfind:1 index:1 count:1 join:1 format:1 format:2 isdigit:0 isalpha:0 isalnum:0 isspace:0
    islower:0 isupper:0 istitle:0 swapcase:0 partition:1 rpartition:1 ljust:1 rjust:2 center:1
    zfill:1 removeprefix:1 removesuffix:1 isascii:0 isdecimal:0 isnumeric:0 splitlines:1 find:2
    casefold:0 encode:0
""")
OTHER_METHODS = counted("""
    items:0 keys:0 values:0 get:1 get:2 copy:0 count:1 index:1 append:1 pop:0 update:1
""")
FILTERS = counted("""
    upper:0 lower:0 title:0 capitalize:0 trim:0 trim:1 length:0 count:0 default:1 d:1 default:2
    replace:2 replace:3 string:0 int:0 int:1 float:0 abs:0 round:0 round:1 round:2 tojson:0
    indent:0 indent:1 indent:2 join:0 join:1 first:0 last:0 list:0 reverse:0 items:0 sort:0
    sort:1 dictsort:0 unique:0 min:0 max:0 sum:0 wordcount:0 batch:1 batch:2 slice:1 slice:2
    format:1 format:2 groupby:1 safe:0 escape:0 e:0
""")
MILD_FILTERS = counted("""
    upper:0 lower:0 capitalize:0 title:0 trim:0 default:1 d:2 string:0 int:0 float:0 tojson:0
    escape:0 replace:2 int:1
""")
TESTS = counted("""
    defined:0 undefined:0 none:0 string:0 mapping:0 iterable:0 sequence:0 number:0 integer:0
    float:0 boolean:0 true:0 false:0 callable:0 odd:0 even:0 divisibleby:1 eq:1 equalto:1 ne:1
    in:1 lt:1 gt:1 le:1 ge:1 lower:0 upper:0 sameas:1 escaped:0
""")
FORMATS = [
    "'%s-%s'",
    "'%d'",
    "'%5.1f|'",
    "'%-6s|'",
    "'%05d'",
    "'%x'",
    "'%+d'",
    "'%r'",
    "'%%%s'",
    "'%(a)s'",
    "'%.2s'",
    "'%e'",
    "'%g'",
    "'%#o'",
    "'% d'",
    "'%3d%%'",
    "'%*d'",
    "'%c'",
]
BRACES = [
    "'{}'",
    "'{0}{0}'",
    "'{:>6}'",
    "'{:<5}|'",
    "'{:^7}'",
    "'{:05}'",
    "'{:.2f}'",
    "'{:,}'",
    "'{!r}'",
    "'{:x}'",
    "'{:+}'",
    "'{{}}'",
    "'{a}'",
    "'{0[0]}'",
    "'{0.role}'",
    "'{:*^9}'",
    "'{:e}'",
    "'{:%}'",
    "'{:_}'",
    "'{:#x}'",
    "'{!s:>4}'",
    "'{:.3}'",
    "'{} {}'",
    "'{1}'",
]
TEXTS = ["a", " ", "\n", "\n\n", "  x\n", "<|im_start|>", "{", "}", "%", "text\n  ", "\t", "é"]


class Maker:
    def __init__(self, rng):
        self.rng = rng
        self.macros = []
        self.n_loops = 0
        self.is_mild = False  # what fails for its types is rarer

    def one(self, items):
        return self.rng.choice(items)

    def maybe(self, p):
        return self.rng.random() < p

    # Expressions.

    def atom(self):
        r = self.rng.random()
        if r < 0.45:
            return self.one(MILD_NAMES if self.is_mild else NAMES)
        if r < 0.6 and self.n_loops:
            return "loop." + self.one(
                [
                    "index",
                    "index0",
                    "first",
                    "last",
                    "length",
                    "revindex",
                    "revindex0",
                    "previtem",
                    "nextitem",
                    "depth",
                    "depth0",
                ]
            )
        return self.one(LITERALS)

    def args(self, n, depth):
        made = [self.expr(depth - 2) for _ in range(n)]
        if self.maybe(0.04):
            made.append("*" + self.one(["xs", "names", "(1, 2)", "'ab'", "missing"]))
        if self.maybe(0.02):
            made.append("**" + self.one(["d", "{'a': 1}", "{'attribute': 'a'}"]))
        return ", ".join(made)

    def call(self, depth):
        if self.macros and self.maybe(0.4):
            name, n = self.one(self.macros)
            args = self.args(max(0, n + self.one([0, 0, 0, -1, 1])), depth)
            if self.maybe(0.15):
                args += (", " if args else "") + self.one(["p=1", "q=2", "zz=3", "caller=xs"])
            return f"{name}({args})"
        if self.n_loops and self.maybe(0.2):
            return self.one(
                [
                    "loop.cycle('a', 'b')",
                    "loop.cycle(1)",
                    "loop.changed(x)",
                    "loop.cycle(*xs)",
                    "loop.changed(m.role)",
                    "loop(xs)",
                ]
            )
        return self.one(
            [
                f"range({self.args(self.one([1, 1, 2, 3]), depth)})",
                f"dict(a={self.expr(depth - 2)})",
                "namespace(a=1)",
                "dict(d, b=3)",
                "strftime_now('%d %b %Y')",
                "caller()",
                "namespace(d)",
            ]
        )

    def filtered(self, depth):
        r = self.rng.random()
        x = self.primary(depth - 1)
        if r < 0.1:
            how = self.one(
                [
                    "map(attribute='role')",
                    "map(attribute='name', default='-')",
                    "map('upper')",
                    "map('length')",
                    "map('default', 1)",
                    "map('int')",
                    "map(attribute='a.b')",
                    "map(attribute=0)",
                    "map('tojson')",
                    "map('replace', 'a', 'b')",
                    "map('trim')",
                    "map()",
                ]
            )
            return f"{x}|{how}" + self.one(
                ["|list", "|join(',')", "|first", "", "|sort", "|length"]
            )
        if r < 0.2:
            how = self.one(["select", "reject", "selectattr", "rejectattr"])
            attr = "'" + self.one(ATTRIBUTES) + "'" if how.endswith("attr") else ""
            test, n = self.one(TESTS)
            rest = [a for a in [attr] if a]
            if self.maybe(0.8):
                rest += ["'" + test + "'"] + [self.expr(0) for _ in range(n)]
            return f"{x}|{how}({', '.join(rest)})" + self.one(["|list", "|join(',')", "|first", ""])
        if r < 0.25:
            how = self.one(
                [
                    "sort(attribute='name')",
                    "sort(attribute='a,b')",
                    "sort(reverse=true)",
                    "sort(case_sensitive=true)",
                    "unique(attribute='role')",
                    "groupby('role')",
                    "groupby('name', default='z')",
                    "sum(attribute='age')",
                    "min(attribute='age')",
                    "max(attribute='name')",
                    "join(',', attribute='role')",
                    "dictsort(by='value')",
                    "dictsort(true)",
                    "sort(reverse=missing)",
                    "tojson(indent=2)",
                    "tojson(ensure_ascii=true)",
                    "tojson(sort_keys=true)",
                    "tojson(separators=(',', ':'))",
                    "tojson(indent=1, sort_keys=true)",
                    "default('z', boolean=true)",
                    "round(1, 'ceil')",
                    "round(method='floor')",
                    "indent(width=2, first=true)",
                    "indent(1, true, true)",
                    "indent('>')",
                    "replace(old='a', new='b')",
                    "tojson(indent='\\t')",
                ]
            )
            return f"{x}|{how}"
        name, n = self.one(MILD_FILTERS if self.is_mild else FILTERS)
        if name == "format":
            x = self.one(FORMATS)
        return f"{x}|{name}" + (f"({self.args(n, depth)})" if n else self.one(["", "", "()"]))

    def method(self, depth):
        if self.maybe(0.1):
            return f"{self.one(BRACES)}.format({self.args(self.one([1, 1, 2]), depth)})"
        if self.maybe(0.75):
            name, n = self.one(STR_METHODS)
            of = self.one(
                [
                    "s",
                    "t",
                    "u",
                    "e",
                    "q",
                    "think",
                    "lines",
                    "m.content",
                    "'aXbXc'",
                    "'a b  c '",
                    "x",
                    "'Hello World'",
                    "('é ' ~ s)",
                ]
            )
        else:
            name, n = self.one(OTHER_METHODS)
            of = self.one(["d", "m", "xs", "people[0]", "(1, 2, 1)", "nested", "range(3)", "x"])
        return f"{of}.{name}({self.args(n, depth)})"

    def subscript(self, depth):
        x = self.primary(depth - 1)
        r = self.rng.random()
        if r < 0.35:
            return f"{x}.{self.one(ATTRIBUTES)}"
        if r < 0.7:
            return f"{x}[{self.expr(depth - 2)}]"
        ends = [
            self.one(["", "", "0", "1", "-1", "2", "-2", "10", "n", "none", "x"]) for _ in range(3)
        ]
        return f"{x}[{ends[0]}:{ends[1]}]" if self.maybe(0.6) else f"{x}[{':'.join(ends)}]"

    def primary(self, depth):
        if depth <= 0:
            return self.atom()
        r = self.rng.random()
        if r < 0.25:
            return self.atom()
        if r < 0.4:
            return self.subscript(depth)
        if r < 0.55:
            return self.method(depth)
        if r < 0.63:
            return self.call(depth)
        if r < 0.7:
            items = [self.expr(depth - 2) for _ in range(self.rng.randrange(4))]
            return self.one(["[%s]" % ", ".join(items), "(%s,)" % ", ".join(items or ["1"])])
        if r < 0.74:
            keys = [
                self.one(["'a'", "'b'", "1", "x", "'role'", "none", "true", "1.5"])
                for _ in range(self.rng.randrange(3))
            ]
            return "{%s}" % ", ".join(f"{k}: {self.expr(depth - 2)}" for k in keys)
        return f"({self.expr(depth - 1)})"

    def expr(self, depth):
        if depth <= 0:
            return self.atom()
        r = self.rng.random()
        if r < 0.15:
            return self.primary(depth)
        if r < 0.38:
            return self.filtered(depth)
        if r < 0.5:
            op = "~" if self.is_mild else self.one(BINARY)
            return f"{self.primary(depth - 1)} {op} {self.primary(depth - 1)}"
        if r < 0.54:
            return f"{self.one(FORMATS)} % {self.primary(depth - 1)}"
        if r < 0.64:
            made = self.primary(depth - 1)
            for _ in range(self.one([1, 1, 1, 2])):
                how = self.one(COMPARE[:2] if self.is_mild else COMPARE)
                made += f" {how} {self.primary(depth - 1)}"
            return made
        if r < 0.74:
            test, n = self.one(TESTS)
            arg = f"({self.expr(0)})" if n else ""
            return f"{self.primary(depth - 1)} is {self.one(['', '', 'not '])}{test}{arg}"
        if r < 0.82:
            return f"{self.expr(depth - 1)} {self.one(['and', 'or'])} {self.expr(depth - 1)}"
        if r < 0.86:
            op = "not " if self.is_mild else self.one(["not ", "-", "+", "not not "])
            return op + self.primary(depth - 1)
        if r < 0.93:
            other = f" else {self.expr(depth - 1)}" if self.maybe(0.7) else ""
            return f"{self.expr(depth - 1)} if {self.expr(depth - 1)}{other}"
        return self.primary(depth)

    # Statements.

    def tag(self, text):
        return (
            self.one(["{%", "{%", "{%-", "{%+"])
            + " "
            + text
            + " "
            + self.one(["%}", "%}", "-%}", "+%}"])
        )

    def body(self, depth):
        return "".join(self.statement(depth) for _ in range(self.one([1, 1, 2, 3])))

    def condition(self):
        return self.expr(self.one([1, 2]))

    def loop(self, depth):
        target = self.one(["x", "m", "x", "a, b", "y", "x, y", "(a, b)"])
        over = self.one(
            [
                "messages",
                "xs",
                "people",
                "d.items()",
                "range(3)",
                "s",
                "names",
                "[]",
                "missing",
                "d",
                "d|dictsort",
                "people|groupby('name')",
                "nested.list",
                "messages[1:]",
                "messages|reverse",
                "xs|batch(2)",
                self.expr(2),
            ]
        )
        rest = f" if {self.condition()}" if self.maybe(0.2) else ""
        rest += " recursive" if self.maybe(0.06) else ""
        self.n_loops += 1
        body = self.body(depth - 1)
        if self.maybe(0.15):
            at = self.tag(f"if {self.condition()}")
            body += at + self.tag(self.one(["break", "continue"])) + self.tag("endif")
            body += self.statement(depth - 1)
        self.n_loops -= 1
        other = self.tag("else") + self.body(depth - 1) if self.maybe(0.15) else ""
        return self.tag(f"for {target} in {over}{rest}") + body + other + self.tag("endfor")

    def branch(self, depth):
        made = self.tag(f"if {self.condition()}") + self.body(depth - 1)
        if self.maybe(0.3):
            made += self.tag(f"elif {self.condition()}") + self.body(depth - 1)
        if self.maybe(0.4):
            made += self.tag("else") + self.body(depth - 1)
        return made + self.tag("endif")

    def setting(self, depth):
        r = self.rng.random()
        if r < 0.15:
            return self.tag("set ns = namespace(a=0, x='', found=false)")
        if r < 0.35:
            return self.tag(f"set ns.{self.one(['a', 'x', 'found', 'y'])} = {self.expr(2)}")
        if r < 0.5:
            chain = self.one(["", "", "|trim", "|upper", "|replace('a', 'b')|trim", "|length"])
            return (
                self.tag(f"set {self.one(['x', 'y', 'ns.a'])}{chain}")
                + self.body(depth - 1)
                + self.tag("endset")
            )
        if r < 0.57:
            return self.tag(f"set a, {self.one(['b', 'x'])} = {self.expr(1)}, {self.expr(1)}")
        if r < 0.67:  # a caller's name, which is what it is from the scope's entry on
            return self.tag(f"set {self.one(MILD_NAMES)} = {self.expr(2)}")
        if r < 0.71:
            return (
                self.tag(f"set x|default({self.expr(0)})") + self.body(depth - 1)
                + self.tag("endset")
            )
        return self.tag(f"set {self.one(['x', 'y', 'a', 'm', 's'])} = {self.expr(2)}")

    def macro(self, depth):
        name = self.one(["mac", "mac2", "fn"])
        params = self.one(
            [
                "",
                "p",
                "p, q",
                "p, q=1",
                "p=none, q='z'",
                "p, q=xs, x=p",
                "p=s, s=1",
                "p=x, q=p, x=n",
            ]
        )
        body = self.body(depth - 1) + self.one(
            [
                "{{ p }}",
                "{{ p }}{{ q }}",
                "{{ caller() }}",
                "{{ varargs }}",
                "{{ kwargs }}",
                "{{ caller(1) }}{{ varargs|length }}",
                "{{ q }}",
                "{{ caller is defined }}",
                "",
            ]
        )
        made = self.tag(f"macro {name}({params})") + body + self.tag("endmacro")
        self.macros.append((name, params.count(",") + 1 if params else 0))
        return made

    def calling(self, depth):
        name, n = self.one(self.macros) if self.macros else ("nosuch", 1)
        params = self.one(["", "", "(x)", "(x, y=2)"])
        return (
            self.tag(f"call{params} {name}({self.args(n, 1)})")
            + self.body(depth - 1)
            + self.tag("endcall")
        )

    def statement(self, depth):
        r = self.rng.random()
        if depth <= 0 or r < 0.4:
            return self.one(["{{ %s }}", "{{ %s }}", "{{- %s -}}", "{{ %s -}}"]) % self.expr(
                self.one([1, 2, 3])
            )
        if r < 0.5:
            return self.one(TEXTS)
        if r < 0.66:
            return self.loop(depth)
        if r < 0.78:
            return self.branch(depth)
        if r < 0.88:
            return self.setting(depth)
        if r < 0.91:
            return self.macro(depth)
        if r < 0.94:
            return self.calling(depth)
        if r < 0.96:
            chain = self.one(["upper", "trim", "replace('a', 'b')", "length", "indent(2)", "title",
                              "replace('a', s)", "replace('a', x)"])
            return self.tag(f"filter {chain}") + self.body(depth - 1) + self.tag("endfilter")
        if r < 0.98:
            return (
                self.tag(f"with {self.one(['x', 'y'])} = {self.expr(1)}")
                + self.body(depth - 1)
                + self.tag("endwith")
            )
        if r < 0.99:
            return self.tag("generation") + self.body(depth - 1) + self.tag("endgeneration")
        return self.one(["{# c #}", "{#- c -#}", "{% raw %}{{ x }}{% endraw %}"])

    def template(self):
        self.macros, self.n_loops, self.is_mild = [], 0, self.maybe(0.6)
        parts = [self.statement(3) for _ in range(self.one([1, 1, 2, 3, 5]))]
        if self.maybe(0.25):  # a name read in inner scopes, set late
            late = self.one(MILD_NAMES)
            for _ in range(self.one([1, 1, 2])):
                parts.insert(self.rng.randrange(len(parts) + 1), self.inside(late))
            made = self.tag(f"set {late} = {self.expr(1)}")
            if self.maybe(0.2):
                made = self.tag("if yes") + made + self.tag("endif")
            parts.append(made)
            parts.append(self.inside(late))
        return "".join(parts)

    def inside(self, name):
        """A scope, or two, where name is read and perhaps set."""
        said = self.one(["{{ %s }}", "{{ %s is defined }}", "{%% if %s %%}1{%% endif %%}"]) % name
        if self.maybe(0.2):
            said = self.inside(name)
        if self.maybe(0.3):
            said += self.tag(f"set {name} = {self.expr(0)}") + "{{ %s }}" % name
        scopes = [
            ("for k in [1, 2]", "endfor"),
            (f"for k in [1, 2] if {name}", "endfor"),
            ("for k in [] %}{% else", "endfor"),
            ("with", "endwith"),
            (f"with k = {name}", "endwith"),
            ("set k", "endset"),
            ("filter upper", "endfilter"),
            (f"filter default({name})", "endfilter"),
            ("generation", "endgeneration"),
            ("if yes", "endif"),
            ("macro lm()", "endmacro %}{{ lm() }}{% if no %}{% endif"),
            (f"macro lm(a={name}, n=1)", "endmacro %}{{ lm() }}{% if no %}{% endif"),
            ("macro lw() %}{{ caller() }}{% endmacro %}{% call lw()", "endcall"),
        ]
        head, end = self.one(scopes)
        return f"{{% {head} %}}{said}{{% {end} %}}"
