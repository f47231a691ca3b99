#!/usr/bin/python3
"""Needle in a haystack: is a sentence from a long history in the prompt when it is asked for?

    needle.py [--ctx 4096] [--tokens 30000] [--depths 11] [--answers] [--plot FILE.svg]

A history of --tokens tokens (tests/memory/filler_en.txt, varied) is imported with one sentence in
it at depths from 0 to 100 %, and asked for in a window of --ctx tokens, under each strategy. The
table says whether the sentence is in the prompt (x) and, with --answers and a model that can,
whether the answer has its value (o). --plot draws it, depth by strategy. Needs build/ and a model:
HEARTH_BUILD and HEARTH_MODEL as for the tests, HEARTH_PATIENCE=600 on a busy machine. It measures,
and asserts nothing; exit code 1: under auto a depth is missing.
"""

import argparse
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "flow"))

from harness import Real  # noqa: E402
from talk import STRATEGIES, Talk, filler  # noqa: E402

NEEDLE = "The archive's combination for the green cabinet is 83-17-52."
VALUE = "83-17-52"
QUESTION = "What is the combination for the green cabinet in the archive?"
ITEMS_A_REQUEST = 20


def haystack(d, n_tokens):
    """[(role, text)] of about so many tokens."""
    turns, found, n = filler("en"), [], 0
    per_turn = {}
    for i in range(10**6):
        said, answer = turns[i % len(turns)]
        if i < len(turns):
            both = d.post("/tokenize", {"content": said + answer})[1]["tokens"]
            per_turn[i] = len(both) + 16  # markup, and the numbers below
        found += [("user", f"{said} (question {i})"), ("assistant", f"{answer} [{i}]")]
        n += per_turn[i % len(turns)]
        if n >= n_tokens:
            return found


def talk_of(d, messages, strategy):
    items = [{"type": "message", "role": role, "content": text} for role, text in messages]
    t = Talk(d, strategy, items=items[:ITEMS_A_REQUEST])
    for i in range(ITEMS_A_REQUEST, len(items), ITEMS_A_REQUEST):
        body = {"items": items[i : i + ITEMS_A_REQUEST]}
        status, r = d.post(f"/v1/conversations/{t.id}/items", body)
        assert status == 200, r
    return t


def ask(d, messages, strategy, n_answer):
    """'x': in the prompt, 'o': in the answer too, '·': in neither."""
    t = talk_of(d, messages, strategy)
    status, r = d.post("/v1/responses", t.body(QUESTION, max_output_tokens=n_answer))
    if status != 200:
        return "400"
    if VALUE not in t.prompt():
        return "·"
    text = "".join(c["text"] for o in r["output"] for c in o["content"])
    return "o" if VALUE in text else "x"


COLOURS = {"o": "#2a7f4f", "x": "#8cc9a1", "·": "#d9534f", "400": "#bbbbbb"}


def plot(path, depths, table):
    cell, left, top = 44, 110, 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="13"'
        f' width="{left + cell * len(depths) + 20}" height="{top + 30 * len(table) + 60}">'
    ]
    for k, (strategy, row) in enumerate(table.items()):
        y = top + 30 * k
        parts.append(f'<text x="8" y="{y + 19}">{strategy}</text>')
        for i, mark in enumerate(row):
            parts.append(
                f'<rect x="{left + cell * i}" y="{y}" width="{cell - 3}" height="27"'
                f' fill="{COLOURS[mark]}"/>'
            )
    y = top + 30 * len(table) + 20
    for i, depth in enumerate(depths):
        parts.append(f'<text x="{left + cell * i + 6}" y="{y}">{depth:.0f} %</text>')
    legend = "green: in the prompt (dark: answered) · red: not · grey: refused"
    parts.append(f'<text x="8" y="{y + 24}">{legend}</text></svg>')
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join(parts) + "\n")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--ctx", type=int, default=4096)
    p.add_argument("--tokens", type=int, default=30000)
    p.add_argument("--depths", type=int, default=11)
    p.add_argument("--strategies", default=",".join(STRATEGIES))
    p.add_argument("--answers", action="store_true")
    p.add_argument("--plot")
    o = p.parse_args()
    depths = [100 * i / max(1, o.depths - 1) for i in range(o.depths)]
    table = {}
    with Real("--ctx", str(o.ctx)) as d:
        hay = haystack(d, o.tokens)
        print(f"{len(hay)} messages, ctx {o.ctx}")
        print("strategy  " + "".join(f"{x:5.0f}%" for x in depths))
        for strategy in o.strategies.split(","):
            row = []
            for depth in depths:
                at = round(depth / 100 * len(hay) / 2) * 2
                messages = hay[:at] + [("user", NEEDLE), ("assistant", "I see.")] + hay[at:]
                row.append(ask(d, messages, strategy, 48 if o.answers else 1))
            table[strategy] = row
            print(f"{strategy:10}" + "".join(f"{mark:>6}" for mark in row), flush=True)
    if o.plot:
        plot(o.plot, depths, table)
    return any(mark not in "xo" for mark in table.get("auto", []))


if __name__ == "__main__":
    sys.exit(main())
