#!/usr/bin/python3
"""What planning and recall cost, and what opening costs, of conversations of any length.

    context.py [--sizes 2000,10000,200000] [--turns 20] [--ctx N] [--strategy auto]
               [--folder DIR] [--embedding FILE] [--stateless] [--json]

Conversations of --sizes messages are brought in over the API, 20 messages a request, of sentences
that a chain over the words of tests/bench/recall/en.jsonl makes, with rarer words among them
(printed seed). For each:

    first     its first turn, which cuts
    turn      --turns further ones that ask about something said at a random place
    open      GET …/context of a daemon that has just started, then its first turn

A line gives timings.plan_ms of the reply (from the messages to the prompt: loading, recall,
planning, rendering), the history thread's CPU over the whole request, and the request's wall time,
prefill included: least / median / most. With --stateless a list of that length is sent to
/v1/chat/completions instead, first unseen, then with one more turn.

--folder keeps the database for the next run. Needs build/ and a model, as the tests do
(HEARTH_BUILD, HEARTH_MODEL). It measures, and asserts nothing.
"""

import argparse
import glob
import json
import os
import random
import re
import statistics
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "flow"))

from harness import Real, assistant, user  # noqa: E402
from talk import Talk  # noqa: E402

ITEMS_A_REQUEST = 20
SEED = 20260301
RARE_WORDS = 30000
SYLLABLES = "ba ce dor fi gan hul ji kem lo mir nat ope qua ras sil tur ven wok yel zam".split()


class Words:
    """Sentences in which common words are common and rare ones rare."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.after = {}
        with open(os.path.join(HERE, "recall", "en.jsonl"), encoding="utf-8") as f:
            words = re.findall(r"[A-Za-z][A-Za-z'-]*|\d+", f.read())
        for a, b in zip(words, words[1:]):
            self.after.setdefault(a, []).append(b)
        self.firsts = sorted(self.after)
        self.rare = ["".join(self.rng.choices(SYLLABLES, k=3)) for _ in range(RARE_WORDS)]

    def word(self, before):
        """One in ten is of a long tail: as in real talk, new words keep coming."""
        if self.rng.random() < 0.1:
            return self.rare[int(RARE_WORDS ** self.rng.random()) - 1]
        return self.rng.choice(self.after.get(before) or self.firsts)

    def sentence(self):
        word = self.rng.choice(self.firsts)
        said = [word.capitalize()]
        for _ in range(self.rng.randint(5, 18)):
            word = self.word(word)
            said.append(word)
        if self.rng.random() < 0.05:
            said.append(f"R{self.rng.randint(1000, 9999)}")
        return " ".join(said) + "."

    def message(self):
        return " ".join(self.sentence() for _ in range(self.rng.randint(1, 3)))


def history_cpu_ms(pid):
    """CPU of the daemon's history thread so far."""
    for task in glob.glob(f"/proc/{pid}/task/*"):
        with open(task + "/comm") as f:
            is_history = f.read().strip() == "hearth-history"
        if is_history:
            with open(task + "/schedstat") as f:
                return int(f.read().split()[0]) / 1e6
    return float("nan")


class Cost:
    """Of requests: what each figure was."""

    def __init__(self):
        self.plan, self.cpu, self.wall = [], [], []

    def measure(self, d, call):
        cpu, began = history_cpu_ms(d.process.pid), time.monotonic()
        reply = call()
        self.wall.append(1000 * (time.monotonic() - began))
        self.cpu.append(history_cpu_ms(d.process.pid) - cpu)
        timings = reply.get("hearth", {}).get("timings") if isinstance(reply, dict) else None
        if timings:
            self.plan.append(timings["plan_ms"])
        return reply

    def figures(self):
        def three(v):
            return [round(f(v), 2) for f in (min, statistics.median, max)] if v else None

        return {"plan_ms": three(self.plan), "cpu_ms": three(self.cpu), "wall_ms": three(self.wall)}


def bring_in(d, n, words):
    """(a conversation, some of its messages)"""
    talk, some = Talk(d), []
    for at in range(0, n, ITEMS_A_REQUEST):
        items = []
        for i in range(at, min(n, at + ITEMS_A_REQUEST)):
            role = "assistant" if i % 2 else "user"
            items.append({"type": "message", "role": role, "content": words.message()})
            if words.rng.random() < 200 / n:
                some.append(items[-1]["content"])
        status, r = d.post(f"/v1/conversations/{talk.id}/items", {"items": items})
        assert status == 200, r
    return talk, some


def question(words, some):
    said = re.findall(r"[A-Za-z0-9'-]+", words.rng.choice(some))
    at = words.rng.randrange(max(1, len(said) - 5))
    return "What was said about " + " ".join(said[at : at + 5]) + "?"


def stored(size, options, folder):
    words = Words(SEED + size)
    cost = {name: Cost() for name in ("first", "turn", "open", "open turn")}
    flags = [*options.flags]

    def turn(cost, talk, some):
        r = cost.measure(d, lambda: talk.say(question(words, some), max_output_tokens=1))
        talk.until_quiet()
        return r

    kept = os.path.join(folder, "talk.json")
    with Real(*flags, folder=folder) as d:
        if os.path.exists(kept):
            with open(kept) as f:
                path, some = json.load(f)
            talk = Talk(d)
            talk.id, talk.path = path.rsplit("/", 1)[1], path
        else:
            began = time.monotonic()
            talk, some = bring_in(d, size, words)
            print(f"{size} messages brought in: {time.monotonic() - began:.0f} s", flush=True)
            with open(kept, "w") as f:
                json.dump([talk.path, some], f)
        talk.strategy = options.strategy
        r = turn(cost["first"], talk, some)
        receipt = r["hearth"]["receipt"]
        print(f"  receipt of the first turn: {len(json.dumps(receipt))} bytes", flush=True)
        for _ in range(options.turns):
            turn(cost["turn"], talk, some)
    for _ in range(3):
        with Real(*flags, folder=folder) as d:
            talk.d = d
            cost["open"].measure(d, talk.window)
            turn(cost["open turn"], talk, some)
    return cost


def stateless(size, options, folder):
    words = Words(SEED + size)
    cost = {"first": Cost(), "turn": Cost()}
    said = [(assistant if i % 2 else user)(words.message()) for i in range(size)]
    more = {"hearth": {"context": options.strategy}, "max_tokens": 1}
    with Real(*options.flags, folder=folder) as d:
        for i in range(options.turns + 1):
            said.append(user(words.message()))
            r = cost["turn" if i else "first"].measure(d, lambda: d.chat(said, **more))
            said.append(assistant(r["choices"][0]["message"]["content"] or "Yes"))
    return cost


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--sizes", default="2000,10000,200000")
    p.add_argument("--turns", type=int, default=20)
    p.add_argument("--ctx", default="4096")
    p.add_argument("--strategy", default="auto")
    p.add_argument("--folder")
    p.add_argument("--embedding")
    p.add_argument("--stateless", action="store_true")
    p.add_argument("--json", action="store_true")
    options = p.parse_args()
    options.flags = ["--ctx", options.ctx]
    if options.embedding:
        options.flags += ["--embedding-model", options.embedding]
    print(f"seed {SEED}, ctx {options.ctx}, strategy {options.strategy}")
    for size in map(int, options.sizes.split(",")):
        with tempfile.TemporaryDirectory(prefix="hearth-") as temporary:
            folder = temporary
            if options.folder:
                folder = os.path.join(options.folder, str(size))
                os.makedirs(folder, exist_ok=True)
            cost = (stateless if options.stateless else stored)(size, options, folder)
        for name, c in cost.items():
            if options.json:
                print(json.dumps({"size": size, "what": name, **c.figures()}))
                continue
            figures = "   ".join(
                f"{k} {' / '.join(f'{x:.2f}' for x in v)}" for k, v in c.figures().items() if v
            )
            if figures:
                print(f"{size:7d} {name:10s} {figures}", flush=True)


if __name__ == "__main__":
    main()
