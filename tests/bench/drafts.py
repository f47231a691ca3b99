#!/usr/bin/env python3
"""What drafts by look-up are worth: the same daemon with --speculation on and off, the same
requests in turn to both, one at a time, and the ratio of each pair. It asserts nothing but that the
answers are the same.

    HEARTH_BUILD=build HEARTH_MODEL=FILE nice -n -5 tests/bench/drafts.py [--reps N] [--only KIND]

Time is that of writing, by the reply's timings (wall: decode_ms) and by the processor time of all
threads of the daemon while it writes the whole reply, less the same for a reply of one token to the
same prompt, which the cache holds then. A median above 1: drafts win.
"""

import argparse
import json
import os
import random
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "flow"))

from harness import Real, content, user  # noqa: E402

NAMES = (
    "Ada Lovelace, Grace Hopper, Edsger Dijkstra, Barbara Liskov, Donald Knuth, Alan Turing, "
    "Margaret Hamilton, Dennis Ritchie, Radia Perlman, Tony Hoare"
)
STORY = (
    "The ferry left the harbour at six in the morning with forty passengers and a cargo of salt. "
    "By noon the wind had turned north, and the captain ordered the sails down before the second "
    "island came into sight. A boy on deck counted the gulls and lost his place at seventy-one. "
    "When the rain began, the passengers moved below, where the cook was serving bread, cheese and "
    "hot tea with honey. Nobody noticed that the lighthouse was dark until the mate rang the bell."
)
TYPOS = (
    "The comittee will meat on Tuesday to discus the new bugdet for the libary. All members shuold "
    "bring there own copys of the report. The chairman, Mr. Henderson, will opne the meeting at "
    "nine oclock and expects a short sumary from each departement."
)
CODE = """def moving_average(values, width):
    total = 0
    result = []
    for index, value in enumerate(values):
        total += value
        if index >= width:
            total -= values[index - width]
        if index >= width - 1:
            result.append(total / width)
    return result
"""
CHINESE = "小镇的早晨从面包店的香味开始。老人们坐在河边喝茶，孩子们背着书包走过石桥。"

QUOTING = [
    f"Repeat this text exactly:\n\n{STORY}",
    f"Fix the typos in this text and print it again:\n\n{TYPOS}",
    f"Write these names again, one on each line: {NAMES}",
    f"Here is a function:\n\n```python\n{CODE}```\n\nPrint it again with the name running_mean.",
    f"Copy this paragraph word for word, then add one sentence:\n\n{STORY}",
]
PROSE = [
    "Why is the sky blue?",
    "Tell me about the history of bread.",
    "What should I see in Lisbon in two days?",
    "Write a short story about a clockmaker who can't sleep.",
    "Explain how a bicycle stays upright.",
    "Give advice to somebody who begins a new job.",
    "What is the difference between weather and climate?",
    "Describe a walk through a forest in autumn.",
    "How do vaccines work?",
    "Write a letter to a friend who has moved abroad.",
]
PROGRAMS = [
    "Write a Python function that checks whether a string is a palindrome.",
    "Write a C function that reverses a linked list, with comments.",
    "Write an HTML page with a table of five planets and their sizes.",
]
IN_CHINESE = [
    f"请把下面这段话重复一遍：{CHINESE}",
    "请用中文介绍一下长城。",
    "写一个关于月亮的短故事。",
]
KINDS = {"quoting": QUOTING, "prose": PROSE, "code": PROGRAMS, "chinese": IN_CHINESE}
SAMPLINGS = {"greedy": {"temperature": 0}, "sampled": {"temperature": 0.7, "top_p": 0.95}}


def cpu_ns(pid):
    """Of all threads."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat") as f:
            total += int(f.read().split()[0])
    return total


def ask(d, prompt, fields):
    """(reply, processor seconds) of one request."""
    before = cpu_ns(d.process.pid)
    reply = d.chat([user(prompt)], **fields)
    return reply, (cpu_ns(d.process.pid) - before) / 1e9


def measure(d, prompt, fields):
    ask(d, prompt, {**fields, "max_tokens": 1})
    _, base = ask(d, prompt, {**fields, "max_tokens": 1})
    reply, cpu = ask(d, prompt, fields)
    return {
        "text": content(reply),
        "usage": reply["usage"]["completion_tokens"],
        "finish": reply["choices"][0]["finish_reason"],
        "n": reply["usage"]["completion_tokens"],
        "wall": reply["hearth"]["timings"]["decode_ms"] / 1000,
        "cpu": cpu - base,
        "drafted": reply["hearth"]["timings"]["drafted"],
        "accepted": reply["hearth"]["timings"]["accepted"],
    }


def pair(on, off, prompt, fields, rng):
    order = [on, off] if rng.random() < 0.5 else [off, on]
    got = {id(d): measure(d, prompt, fields) for d in order}
    a, b = got[id(on)], got[id(off)]
    for key in ("text", "usage", "finish"):
        if a[key] != b[key]:
            raise SystemExit(f"not the same {key}: {prompt!r} {fields}\n{a[key]!r}\n{b[key]!r}")
    return a, b


def best(pairs, key):
    """The shortest time with drafts, by the shortest without: what other work leaves alone."""
    return min(b[key] for _, b in pairs) / min(a[key] for a, _ in pairs)


def run(on, off, args, rng):
    rows = []
    for kind, prompts in KINDS.items():
        if args.only and kind not in args.only:
            continue
        for sampling, fields in SAMPLINGS.items():
            for i, prompt in enumerate(prompts):
                fields = {**fields, "seed": 100 + i, "max_tokens": args.tokens}
                pairs = [pair(on, off, prompt, fields, rng) for _ in range(args.reps)]
                a = pairs[0][0]
                row = {
                    "kind": kind,
                    "sampling": sampling,
                    "prompt": i,
                    "tokens": a["n"],
                    "drafted": a["drafted"],
                    "accepted": a["accepted"],
                    "cpu": statistics.median(y["cpu"] / x["cpu"] for x, y in pairs),
                    "wall": statistics.median(y["wall"] / x["wall"] for x, y in pairs),
                    "best": best(pairs, "wall"),
                }
                rows.append(row)
                print(
                    f"{kind:8} {sampling:8} {i:2}  {a['n']:4} tokens  drafted {a['drafted']:4}  "
                    f"accepted {a['accepted']:4}  cpu × {row['cpu']:.2f}  wall × {row['wall']:.2f}"
                    f"  best × {row['best']:.2f}",
                    flush=True,
                )
    return rows


def sums(rows):
    for kind in KINDS:
        for sampling in SAMPLINGS:
            of = [r for r in rows if r["kind"] == kind and r["sampling"] == sampling]
            if not of:
                continue
            line = f"{kind:8} {sampling:8} {len(of):2} prompts"
            for key in ("cpu", "wall", "best"):
                v = sorted(r[key] for r in of)
                line += f"  {key} {v[0]:.2f} / {statistics.median(v):.2f} / {v[-1]:.2f}"
            print(line)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("--reps", type=int, default=3)
    p.add_argument("--tokens", type=int, default=160, help="of an answer, at most")
    p.add_argument("--only", nargs="*", choices=list(KINDS))
    p.add_argument("--json", help="file for the rows")
    p.add_argument("--seed", type=int, default=1, help="of the order within a pair")
    args = p.parse_args()
    flags = ("--ctx", "2048", "--disk", "0", "--memory", "1G")
    with Real(*flags, "--speculation", "on") as on, Real(*flags, "--speculation", "off") as off:
        rows = run(on, off, args, random.Random(args.seed))
    sums(rows)
    if args.json:
        with open(args.json, "w") as f:
            json.dump(rows, f, indent=1)


if __name__ == "__main__":
    main()
