#!/usr/bin/env python3
"""Makes tests/engine/text/jinja.jsonl: templates, their variables, and what Jinja2 prints.

    pip install jinja2; tests/reference/jinja.py > tests/engine/text/jinja.jsonl

Jinja2 in the setting that chat templates are written for: ImmutableSandboxedEnvironment,
trim_blocks, lstrip_blocks, loop controls, a tojson that escapes nothing for HTML, raise_exception,
strftime_now. A line without "text" is an error there; hearth must fail too. The templates are in
jinja/: snippets.jsonl over vars.json, and chats/, in the manner of the families in use.
"""
import datetime
import json
import pathlib
import sys

from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = 1753012800  # 2025-07-20 12:00 UTC: the same date in most places


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_run"), [], [], body).set_lineno(lineno)

    def _run(self, caller):
        return caller()


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, loopcontrols])

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    def raise_exception(message):
        raise TemplateError(message)

    def strftime_now(form):
        return datetime.datetime.fromtimestamp(NOW).strftime(form)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


HERE = pathlib.Path(__file__).resolve().parent / "jinja"
VARS = json.loads((HERE / "vars.json").read_text())


def rendering(env, template, variables):
    try:
        return env.from_string(template).render(**variables)
    except Exception:  # whatever it is: the rendering fails
        return None


def chats():
    user = {"role": "user", "content": " Hi <there>\n"}
    bot = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello "}
    system = {"role": "system", "content": "Be brief."}
    city = {"type": "string", "description": "Größe"}
    parameters = {"type": "object", "properties": {"city": city}, "required": ["city"]}
    function = {"name": "rain", "description": "Is it \"wet\"?", "parameters": parameters}
    tool = {"type": "function", "function": function}
    call = {"type": "function", "id": "abcdefghi",
            "function": {"name": "rain", "arguments": {"city": "Rom", "n": 2}}}
    asked = {"role": "assistant", "content": "", "tool_calls": [call]}
    result = {"role": "tool", "name": "rain", "tool_call_id": "abcdefghi",
              "content": "{\"wet\": true}"}
    for messages in ([user], [system, user], [user, bot, user], [system, user, bot, user, bot],
                     [user, user], [bot, user], [user, system, user]):
        yield {"messages": messages}
    yield {"messages": [user, bot, user], "enable_thinking": False}
    yield {"messages": [system, user], "tools": [tool]}
    yield {"messages": [user, asked, result, bot, user], "tools": [tool, tool]}


def main():
    env = environment()
    out = sys.stdout
    for template in map(json.loads, (HERE / "snippets.jsonl").open()):
        line = {"template": template}
        text = rendering(env, template, VARS)
        if text is not None and "object at 0x" not in text:
            line["text"] = text
        out.write(json.dumps(line, ensure_ascii=False) + "\n")
    for path in sorted((HERE / "chats").glob("*.jinja")):
        name, template = path.stem, path.read_text()
        out.write(json.dumps({"name": name, "template": template}, ensure_ascii=False) + "\n")
        for prompt in (False, True):
            for chat in chats():
                variables = dict(chat, add_generation_prompt=prompt, bos_token="<s>",
                                 eos_token="</s>")
                line = {"of": name, "vars": variables}
                text = rendering(env, template, variables)
                if text is not None:
                    line["text"] = text
                out.write(json.dumps(line, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    print(json.dumps({"defaults": VARS, "now": NOW}, ensure_ascii=False))
    main()
