#!/usr/bin/env python3
"""What running answers keep of their pace while a long prompt is read beside them, and when a short
question behind it gets its first token. A real daemon and model; it asserts nothing.

    HEARTH_BUILD=build HEARTH_MODEL=FILE nice -n -5 tests/bench/fair.py [--answers 1,3] [--depth
        128,2048] [--prompt 8000] [--alone SECONDS] [--reps N] [--json FILE]

For each number of answers and each depth: the answers run alone for a while, then a prompt comes
(ids at random, so that nothing is cached), half a second later a question of 20 tokens; when the
prompt has its first token, the answers run alone for a while again. An answer has 1,500 tokens
behind a prompt of the given depth and is asked for again when it ends; its prompt is found then.
Their pace is the daemon's count of generated tokens by time, over the
whole time of the prompt, by that before and after; once more by processor time of the daemon
instead of the clock, which other work on the machine moves less. Drafts are off: answers at
temperature 0 with no end repeat themselves.

With --slices N the prompt is read bit by bit instead: up to each of --at without answers, then N
times so many seconds (--slice) beside answers and as many without it, the client of the prompt
having gone; what was read is found again. On a machine that others use a pair of slices that follow
each other says more than a quarter of an hour beside a minute before.
"""

import argparse
import json
import os
import random
import statistics
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "flow"))

os.environ.setdefault("HEARTH_PATIENCE", "3600")  # a prompt takes minutes

from drafts import cpu_ns  # noqa: E402
from harness import Real, UnixConnection  # noqa: E402

N_ANSWER = 1500
NO_END = {"0": -100, "2": -100}  # SmolLM2's ends


def some_ids(rng, n):
    return [rng.randrange(1000, 40000) for _ in range(n)]


def completion(d, ids, n):
    status, reply = d.post(
        "/v1/completions",
        {"prompt": ids, "max_tokens": n, "temperature": 0, "logit_bias": NO_END},
    )
    if status != 200:
        raise SystemExit(f"{status} {reply}")
    return reply


class Answers:
    """So many answers that never cease, each in a thread."""

    def __init__(self, d, rng, n, depth):
        self.d, self.is_ending = d, False
        prompts = [some_ids(rng, depth) for _ in range(n)]
        for ids in prompts:
            completion(d, ids, 1)
        self.threads = [threading.Thread(target=self.run, args=(ids,)) for ids in prompts]
        for t in self.threads:
            t.start()
        d.until(lambda: d.status()["turns"]["running"] == n, "the answers run")
        time.sleep(1)

    def run(self, ids):
        while not self.is_ending:
            completion(self.d, ids, N_ANSWER)

    def end(self):
        self.is_ending = True
        for t in self.threads:
            t.join()


def mark(d):
    return time.monotonic(), cpu_ns(d.process.pid) / 1e9, d.n_generated()


def paces(a, b, n_less=0):
    """(tokens a second, tokens a second of the processor) between two marks."""
    n = b[2] - a[2] - n_less
    return n / (b[0] - a[0]), n / (b[1] - a[1])


def alone(d, seconds):
    a = mark(d)
    time.sleep(seconds)
    return a, mark(d)


class Late(threading.Thread):
    """A question that comes later; s: when its first token was there, from the start."""

    def __init__(self, d, ids, delay, t0):
        super().__init__()
        self.d, self.ids, self.delay, self.t0, self.s = d, ids, delay, t0, None
        self.start()

    def run(self):
        time.sleep(self.delay)
        completion(self.d, self.ids, 1)
        self.s = time.monotonic() - self.t0


def case(d, rng, n, depth, args):
    answers = Answers(d, rng, n, depth)
    before = alone(d, args.alone)
    a = mark(d)
    late = Late(d, some_ids(rng, 20), 0.5, a[0])
    completion(d, some_ids(rng, args.prompt), 1)
    b = mark(d)
    late.join()
    after = alone(d, args.alone)
    answers.end()
    wall, cpu = paces(a, b, n_less=2)
    alone_wall = [paces(*x)[0] for x in (before, after)]
    alone_cpu = [paces(*x)[1] for x in (before, after)]
    return {
        "answers": n,
        "depth": depth,
        "prompt_s": b[0] - a[0],
        "prompt_cpu_s": b[1] - a[1],
        "tokens": b[2] - a[2] - 2,
        "alone": alone_wall,
        "beside": wall,
        "pace": wall / (sum(alone_wall) / 2),
        "pace_cpu": cpu / (sum(alone_cpu) / 2),
        "question_s": late.s - 0.5,
        "question_at": late.s / (b[0] - a[0]),
    }


class Reader:
    """A client of a prompt that can go."""

    def __init__(self, d, ids):
        self.connection = UnixConnection(d.socket_path)
        body = json.dumps({"prompt": ids, "max_tokens": 1, "temperature": 0})
        self.connection.request(
            "POST", "/v1/completions", body, {"Content-Type": "application/json"}
        )

    def go(self):
        self.connection.close()


def slices(d, rng, n, depth, args):
    prompt = some_ids(rng, args.prompt)
    rows = []
    for at in args.at:
        if at > 0:
            completion(d, prompt[:at], 1)
        answers = Answers(d, rng, n, depth)
        ratios = []
        for _ in range(args.slices):
            alone_before = paces(*alone(d, args.slice))[0]
            reader = Reader(d, prompt)
            d.until(lambda: d.status()["turns"]["running"] == n + 1, "the prompt is read")
            beside = paces(*alone(d, args.slice))[0]
            reader.go()
            d.until(lambda: d.status()["turns"]["running"] == n, "the prompt's client has gone")
            alone_after = paces(*alone(d, args.slice))[0]
            ratios.append(2 * beside / (alone_before + alone_after))
        answers.end()
        ratios.sort()
        row = {"answers": n, "depth": depth, "at": at, "pace": statistics.median(ratios)}
        rows.append({**row, "all": ratios})
        print(
            f"{n} answers at {depth}, the prompt at {at}: "
            f"{100 * ratios[0]:.0f} / {100 * row['pace']:.0f} / {100 * ratios[-1]:.0f} % "
            f"of their pace (least, median, most of {args.slices})",
            flush=True,
        )
    return rows


def numbers(text):
    return [int(x) for x in text.split(",")]


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("--answers", type=numbers, default=[1, 3])
    p.add_argument("--depth", type=numbers, default=[128, 2048])
    p.add_argument("--prompt", type=int, default=8000, help="tokens")
    p.add_argument("--alone", type=float, default=15, help="seconds before and after")
    p.add_argument("--slices", type=int, default=0, help="pairs at each of --at")
    p.add_argument("--slice", type=float, default=3, help="seconds")
    p.add_argument("--at", type=numbers, default=[0, 2000, 4000, 7000], help="of the prompt")
    p.add_argument("--reps", type=int, default=1)
    p.add_argument("--ctx", type=int, default=8192)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--json", help="file for the rows")
    args = p.parse_args()
    flags = ("--ctx", str(args.ctx), "--disk", "0", "--parallel", "8", "--memory", "3G")
    rng = random.Random(args.seed)
    rows = []
    with Real(*flags, "--speculation", "off") as d:
        for _ in range(args.reps):
            for n in args.answers:
                for depth in args.depth:
                    if args.slices:
                        rows += slices(d, rng, n, depth, args)
                        continue
                    r = case(d, rng, n, depth, args)
                    rows.append(r)
                    print(
                        f"{n} answers at {depth:5}: alone {r['alone'][0]:6.1f} and "
                        f"{r['alone'][1]:6.1f} tokens/s, beside {r['beside']:6.1f} over "
                        f"{r['prompt_s']:.0f} s: {100 * r['pace']:.0f} % (by processor time "
                        f"{100 * r['pace_cpu']:.0f} %); the question waited "
                        f"{r['question_s']:.2f} s, {100 * r['question_at']:.1f} % of the prompt",
                        flush=True,
                    )
    if args.json:
        with open(args.json, "w") as f:
            json.dump(rows, f, indent=1)


if __name__ == "__main__":
    main()
