#!/usr/bin/env python3
"""The interpreter against Jinja2: equal, or an error where Jinja2 has one, or refused by name.

    pip install jinja2; ninja -C BUILD tests/engine/text/jinja_render
    tests/reference/jinja_fuzz.py BUILD/tests/engine/text/jinja_render [--corpus DIR]
                                  [--mutations N] [--grammar N] [--seed N] [--seconds N]

Without --mutations each template of the corpus (all *.jinja of DIR; else jinja/chats and
jinja/snippets.jsonl) is run over the conversations below. With it, N templates made by cutting,
doubling, swapping and splicing parts of these are; with --grammar, N templates made by
jinja_grammar.py. Exit status 77: jinja2 isn't installed; 1: something differed; each such
case is printed as a line of JSON, with the seed in front.
"""

import argparse
import copy
import json
import pathlib
import random
import re
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
try:
    import jinja as reference  # noqa: E402
except ImportError:
    print("skipped: jinja2 is not installed")
    sys.exit(77)
import jinja_grammar  # noqa: E402

UNSUPPORTED = -9  # checked at start against the tool's own answer


def conversations():
    """Chats as clients send them, with what templates look at beyond messages."""
    user = {"role": "user", "content": " Hi <there>\n"}
    more = {"role": "user", "content": "Größe?\n\n"}
    bot = {"role": "assistant", "content": 'Hello & "bye"'}
    thought = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello "}
    reasoned = {"role": "assistant", "content": "So.", "reasoning_content": "hm\nwell"}
    thinking = {"role": "assistant", "content": "So.", "thinking": "hm", "reasoning": "hm"}
    system = {"role": "system", "content": "Be brief."}
    developer = {"role": "developer", "content": "Be long."}
    parameters = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Größe"},
            "n": {"type": ["integer", "null"], "enum": [1, 2], "default": 1},
            "tags": {"type": "array", "items": {"type": "string"}},
            "deep": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]},
        },
        "required": ["city"],
    }
    tool = {
        "type": "function",
        "function": {"name": "rain", "description": 'Is it "wet"?', "parameters": parameters},
    }
    bare = {
        "type": "function",
        "function": {
            "name": "now",
            "description": "Time",
            "parameters": {"type": "object", "properties": {}},
        },
    }
    call = {
        "type": "function",
        "id": "abcdefghi",
        "function": {"name": "rain", "arguments": {"city": "Rom", "n": 2, "ok": True, "no": None}},
    }
    strung = {
        "type": "function",
        "id": "abcdefghj",
        "function": {"name": "rain", "arguments": '{"city": "Rom"}'},
    }
    asked = {"role": "assistant", "content": "", "tool_calls": [call]}
    asked_null = {"role": "assistant", "content": None, "tool_calls": [call, strung]}
    asked_none = {"role": "assistant", "tool_calls": [strung]}
    asked_text = {
        "role": "assistant",
        "content": "Let me see.",
        "reasoning_content": "a tool",
        "tool_calls": [call],
    }
    result = {
        "role": "tool",
        "name": "rain",
        "tool_call_id": "abcdefghi",
        "content": '{"wet": true}',
    }
    result2 = {
        "role": "tool",
        "name": "rain",
        "tool_call_id": "abcdefghj",
        "content": [{"type": "text", "text": "dry"}],
    }
    parts = {
        "role": "user",
        "content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}],
    }
    image = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "what?"}]}
    chats = [
        [user],
        [system, user],
        [user, bot, more],
        [system, user, bot, more, thought],
        [user, thought, more],
        [user, reasoned, more, thinking, user],
        [user, more],
        [bot, user],
        [user, system, more],
        [developer, user],
        [system, developer, user],
        [user, bot],
        [system],
        [],
        [parts],
        [image, bot, user],
        [system, parts, bot, more],
    ]
    tooled = [
        [user],
        [system, user],
        [user, asked, result],
        [user, asked, result, bot, more],
        [system, user, asked_null, result, result2, bot, user],
        [user, asked_none, result2],
        [user, asked_text, result, reasoned, more],
        [user, asked, result, asked_text, result],
    ]
    for messages in chats:
        yield {"messages": messages}
    for messages in tooled:
        yield {"messages": messages, "tools": [tool, bare]}
    yield {"messages": tooled[4]}
    yield {"messages": chats[1], "tools": []}
    yield {"messages": chats[1], "tools": None}
    yield {"messages": tooled[3], "tools": [bare], "enable_thinking": False}
    for value in (False, True):
        for name in (
            "enable_thinking",
            "thinking",
            "keep_thinking",
            "preserve_thinking",
            "tools_in_user_message",
            "keep_all_reasoning",
        ):
            yield {"messages": chats[3], name: value}
    for value in ("low", "high", "none", "max"):
        yield {"messages": chats[5], "reasoning_effort": value, "reasoning_mode": value}
    yield {
        "messages": chats[3],
        "documents": [{"title": "A", "text": "alpha", "doc_id": 1}, {"title": "B", "text": "beta"}],
    }
    yield {
        "messages": chats[3],
        "date_string": "01 Jan 2024",
        "xml_tools": [tool],
        "python_tools": ["t"],
        "builtin_tools": ["b"],
        "model_identity": "I am.",
        "system_message": "S",
        "custom_instructions": "C",
        "controls": {"length": "long"},
        "chat_template_kwargs": {},
        "response_format": None,
        "available_tools": [tool],
        "thinking_budget": 512,
        "today": "x",
    }


def variable_sets():
    for prompt in (False, True):
        for chat in conversations():
            yield dict(
                copy.deepcopy(chat), add_generation_prompt=prompt, bos_token="<s>", eos_token="</s>"
            )


class Tool:
    """The interpreter's process; started anew when it dies, which is a finding."""

    def __init__(self, path, seconds):
        self.path, self.seconds = path, seconds
        self.start()

    def start(self):
        self.p = subprocess.Popen([self.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, template, runs):
        timer = threading.Timer(self.seconds, self.p.kill)
        timer.start()
        line = b""
        try:
            self.p.stdin.write(
                json.dumps({"template": template, "now": reference.NOW, "runs": runs}).encode()
                + b"\n"
            )
            self.p.stdin.flush()
            line = self.p.stdout.readline()
        except BrokenPipeError:
            pass
        timer.cancel()
        if not line:
            self.p.wait()
            self.start()
            return None
        return json.loads(line)


class Totals:
    def __init__(self):
        self.equal = self.both_fail = self.skipped = 0
        self.refused, self.unrun, self.wrong = {}, {}, []


def expected(env, template, runs):
    """Jinja2's texts; None for an error."""
    try:
        compiled = env.from_string(template)
    except Exception:
        return [None] * len(runs)
    out = []
    for v in runs:
        try:
            out.append(compiled.render(**copy.deepcopy(v)))
        except Exception:
            out.append(None)
    return out


def odd(text):
    """What has addresses in it, or isn't text that JSON can carry."""
    return (
        " at 0x" in text
        or "<generator" in text
        or "<macro" in text.lower()
        or re.search("[\ud800-\udfff\0]", text)
        or len(text) > 900000
    )


def check(tool, env, name, template, runs, t):
    want, got = expected(env, template, runs), tool.ask(template, runs)
    if got is None:
        t.wrong.append({"name": name, "template": template, "died": True})
        return
    if got["load"]:
        if any(w is not None for w in want):
            what = got["load"]["text"]
            if got["load"]["code"] == UNSUPPORTED:
                t.refused.setdefault(what, []).append(name)
            else:
                t.wrong.append({"name": name, "template": template, "load": got["load"]})
        else:
            t.both_fail += 1
        return
    for v, w, g in zip(runs, want, got["runs"]):
        if w is not None and odd(w):
            t.skipped += 1
        elif w is None and "error" in g:
            t.both_fail += 1
        elif w is not None and g.get("text") == w:
            t.equal += 1
        elif w is not None and "error" in g and g["error"]["code"] == UNSUPPORTED:
            t.unrun.setdefault(g["error"]["text"], []).append(name)
        else:
            t.wrong.append({"name": name, "template": template, "vars": v, "want": w, "got": g})


def sources(corpus):
    here = pathlib.Path(__file__).resolve().parent / "jinja"
    for path in sorted(
        pathlib.Path(corpus).glob("*.jinja") if corpus else (here / "chats").glob("*.jinja")
    ):
        yield path.name, path.read_text()
    if not corpus:
        for i, line in enumerate((here / "snippets.jsonl").open()):
            yield f"snippet {i + 1}", json.loads(line)


TOKEN = re.compile(r"\{%.*?%\}|\{\{.*?\}\}|\{#.*?#\}|[^{]+|\{", re.S)
WORD = re.compile(r"\w+|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\s+|.", re.S)
SPICE = [
    "|trim",
    "|length",
    "|tojson",
    ".strip()",
    "[0]",
    "[-1]",
    "[1:]",
    "[::-1]",
    " is defined",
    " is not none",
    " is string",
    " is mapping",
    " and ",
    " or ",
    " not ",
    "==",
    "!=",
    " in ",
    " not in ",
    "~",
    "+",
    "-",
    "*",
    "%",
    "//",
    "none",
    "true",
    "''",
    "loop.first",
    "loop.last",
    "loop.index0",
    "messages",
    "m",
    "message",
    "ns",
    "tools",
    "|list",
    "|first",
    "|last",
    "|upper",
    "|default('d')",
    "|default('d', true)",
    "|join(', ')",
    "|selectattr('role', 'equalto', 'user')",
    "|map(attribute='role')",
    "|reverse",
    "|sort",
    "|unique",
    "|string",
    "|int",
    "|float",
    "|indent(2)",
    "|replace('a', 'b')",
    ".split('\\n')",
    ".items()",
    ".get('x')",
    ".keys()",
    "['content']",
    ".content",
    ".role",
    "{%- ",
    " -%}",
    "{%+ ",
    " +%}",
    "{{- ",
    " -}}",
    "{#- c -#}",
    "\n",
    "  ",
    "{% endif %}",
    "{% if x %}",
    "{% endfor %}",
    "{% for x in messages %}",
    "{% else %}",
    "{% set x = 1 %}",
    "{% break %}",
    "{% continue %}",
    "{% set x %}",
    "{% endset %}",
    "1",
    "2",
    "0",
    "-1",
    "1.5",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "|",
    ".",
]


def cut_up(template):
    return TOKEN.findall(template)


def mutate(rng, pool):
    parts = cut_up(rng.choice(pool))
    for _ in range(rng.choice((1, 1, 2, 3, 5))):
        if not parts:
            break
        i, how = rng.randrange(len(parts)), rng.randrange(8)
        if how == 0:
            del parts[i]
        elif how == 1:
            parts.insert(i, rng.choice(parts))
        elif how == 2:
            other = cut_up(rng.choice(pool))
            parts.insert(i, rng.choice(other) if other else "")
        elif how == 3:
            k = rng.randrange(len(parts))
            parts[i], parts[k] = parts[k], parts[i]
        elif how == 4:
            parts[i] = (
                parts[i]
                .replace("{%", rng.choice(("{%-", "{%+")))
                .replace("%}", rng.choice(("-%}", "%}\n", "+%}")))
            )
        else:
            words = WORD.findall(parts[i])
            k = rng.randrange(len(words)) if words else 0
            if how == 5 and words:
                del words[k]
            elif how == 6 and words:
                other = WORD.findall(rng.choice(parts))
                words[k] = rng.choice(other) if other else ""
            else:
                words.insert(k, rng.choice(SPICE))
            parts[i] = "".join(words)
    return "".join(parts)


def report(t, seed):
    for wrong in t.wrong:
        print(json.dumps({"seed": seed, **wrong}, ensure_ascii=False))
    for title, kinds in (("refused at load", t.refused), ("refused when run", t.unrun)):
        kinds = sorted(kinds.items(), key=lambda x: -len(x[1]))
        print(f"{title}: {sum(len(v) for _, v in kinds)} ({len(kinds)} reasons)")
        for what, names in kinds[:25]:
            print(f"   {len(names):5} {what[:90]}  e.g. {names[0]}")
    print(
        f"seed {seed}: {t.equal} equal, {t.both_fail} fail alike, {t.skipped} skipped, "
        f"{len(t.wrong)} WRONG"
    )


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("tool")
    p.add_argument("--corpus")
    p.add_argument("--mutations", type=int, default=0)
    p.add_argument("--grammar", type=int, default=0)
    p.add_argument("--seed", type=int, default=int(time.time()))
    p.add_argument("--seconds", type=float, default=20, help="for one template; more is a finding")
    a = p.parse_args()
    global UNSUPPORTED
    tool, env, t = Tool(a.tool, a.seconds), reference.environment(), Totals()
    UNSUPPORTED = tool.ask("{% include 'x' %}", [])["load"]["code"]
    all_runs = list(variable_sets())
    pool = list(sources(a.corpus))
    extra = json.loads(
        (pathlib.Path(reference.__file__).parent / "jinja" / "vars.json").read_text()
    )
    rng = random.Random(a.seed)
    print(f"seed {a.seed}, {len(pool)} templates, {len(all_runs)} conversations", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was found is told
    try:
        if not a.mutations and not a.grammar:
            for name, template in pool:
                check(tool, env, name, template, all_runs + [extra], t)
        texts = [template for _, template in pool]
        for i in range(a.mutations):
            template = mutate(rng, texts)
            check(tool, env, f"mutation {i}", template, rng.sample(all_runs, 3) + [extra], t)
        maker = jinja_grammar.Maker(rng)
        for i in range(a.grammar):
            runs = [dict(extra, **chat) for chat in rng.sample(all_runs, 2)] + [extra]
            check(tool, env, f"grammar {i}", maker.template(), runs, t)
    except KeyboardInterrupt:
        print("ended early")
    report(t, a.seed)
    sys.exit(1 if t.wrong else 0)


if __name__ == "__main__":
    main()
