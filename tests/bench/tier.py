#!/usr/bin/env python3
"""What the cache is worth and what it costs: the figures of docs/CACHE.md, from one run with a real
model. Not in the suite; it asserts nothing on speed.

    HEARTH_BUILD=build HEARTH_MODEL=FILE.gguf tests/bench/tier.py [--only PART,…] [--json FILE]

    restart   a turn with a message of 32 tokens, behind a history of 1,500 and of 6,000: after
              kill -9 and restart (its tail on disk or not, the files in the page cache or not), the
              same turn warm in RAM, and cold; how fast the restore is beside `cat` of its files
    unique    prompts that nobody has asked before, 64 tokens answered: the tier on against off
    commits   durable writes to the history while blocks are written, the tier on against off
    bytes     bytes written for each new token

Cases alternate, so that a machine whose load changes changes all of them; figures are medians, and
ratios are of pairs that were measured side by side. A history is made once, and its daemon killed;
each measurement starts on a copy of what that left.
"""

import argparse
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "flow"))

import harness  # noqa: E402
from harness import BUILD, MODEL, SOURCE, Daemon  # noqa: E402

MESSAGE = 32  # tokens of the measured turn's message
ANSWER = 8
IDLE_S = 7  # a tail is written after 5
WORDS = (
    "water river mountain paper garden window letter table morning winter summer bread music "
    "doctor engine market silver village bridge island story teacher forest kitchen number road "
    "answer question colour machine weather history money animal picture country evening metal"
).split()


class Bench:
    def __init__(self, options):
        self.options = options
        self.rng = random.Random(options.seed)
        self.root = tempfile.mkdtemp(prefix="hearth-bench-", dir=options.dir)

    def folder(self, name):
        return os.path.join(self.root, name)

    def start(self, folder, *flags):
        os.makedirs(folder, exist_ok=True)
        return Daemon(MODEL, *flags, folder=folder)

    def text(self, d, n_tokens):
        """Words that are n_tokens long, and that nobody has said before."""
        words = [str(self.rng.randrange(10**6))]
        while True:
            n = count(d, " ".join(words))
            if n == n_tokens:
                return " ".join(words)
            if n > n_tokens:
                words.pop()
                words = words[:-1] or [str(self.rng.randrange(10**6))]
                continue
            words += [self.rng.choice(WORDS) for _ in range(max(1, (n_tokens - n) * 3 // 4))]

    def say(self, text):
        print(text, flush=True)


# ---- what a daemon is asked ----


def count(d, text):
    status, reply = d.post("/tokenize", {"content": text})
    assert status == 200, reply
    return reply["count"]


def respond(d, text, **more):
    """A streamed turn: what the client saw and what the reply says."""
    body = {"model": "default", "input": text, "temperature": 0, "stream": True, **more}
    first = None
    t0 = time.perf_counter()
    with d.stream("/v1/responses", body) as s:
        for event in s:
            if first is None and event.get("type") == "response.output_text.delta":
                first = time.perf_counter() - t0
            last = event
    assert last["type"] in ("response.completed", "response.incomplete"), last
    reply = last["response"]
    seconds = time.perf_counter() - t0
    return {
        "id": reply["id"],
        "ttft_ms": 1000 * (first or seconds),
        "seconds": seconds,
        "usage": reply["usage"],
        **{k: reply["hearth"][k] for k in ("cache", "timings")},
    }


def wait_written(d):
    d.until_idle()
    d.until(lambda: d.status()["disk"]["waiting"] == 0, "all blocks on disk")


def block_files(folder):
    kv = os.path.join(folder, "cache", "kv")
    found = [os.path.join(at, f) for at, _, names in os.walk(kv) for f in names]
    return sorted(f for f in found if f.endswith(".kv"))


def drop_pages(files):
    """Out of the page cache; what isn't written yet can't leave it."""
    for name in files:
        fd = os.open(name, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def cat(files):
    """Seconds that `cat` takes for them."""
    t0 = time.perf_counter()
    subprocess.run(["cat", *files], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - t0


def read_into_pages(files):
    for name in files:
        with open(name, "rb", buffering=0) as f:
            while f.read(1 << 20):
                pass


def cpu_seconds(d):
    with open(f"/proc/{d.process.pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# ---- figures ----


def median(values):
    return statistics.median(values)


def ratio(a, b):
    """The median of the pairs' ratios."""
    return median([x / y for x, y in zip(a, b)])


def spread(values):
    v = sorted(values)
    return f"{median(v):8.1f}  [{v[len(v) // 4]:.1f} … {v[(3 * len(v)) // 4]:.1f}]"


# ---- restart ----


class Restart:
    """One length of history."""

    CASES = (  # name, the tail is on disk, the files are in the page cache
        ("tail, page cache", True, True),
        ("no tail, page cache", False, True),
        ("tail, dropped", True, False),
    )

    def __init__(self, bench, n_history):
        self.b = bench
        self.n_history = n_history
        self.got = {name: {"restarted": [], "cat_s": []} for name, _, _ in self.CASES}
        self.warm, self.cold = [], []

    def make(self):
        """A conversation as long as that, in turns, and what kill -9 leaves of its daemon."""
        self.folder = folder = self.b.folder(f"made-{self.n_history}")
        d = self.b.start(folder, *self.b.options.flags)
        last, n, n_turns = None, 0, max(2, self.n_history // 500)
        for left in range(n_turns, 0, -1):
            self.before = last
            # Less what the template adds.
            self.text = self.b.text(d, (self.n_history - n) // left - ANSWER - 12)
            more = {"previous_response_id": last["id"]} if last else {}
            last = respond(d, self.text, max_output_tokens=ANSWER, **more)
            n = last["usage"]["total_tokens"]
        wait_written(d)
        self.link("cache", "cache-no-tail")
        time.sleep(IDLE_S)
        wait_written(d)
        d.kill()
        self.last, self.n_made = last, n

    def link(self, name, to, base=None):
        """Block files are never changed: links do for a copy; two daemons want two locks."""
        to = os.path.join(base or self.folder, to)
        shutil.copytree(os.path.join(self.folder, name), to, copy_function=os.link,
                        ignore=shutil.ignore_patterns("lock"))

    def copy(self, has_tail):
        folder = self.b.folder("run")
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        shutil.copytree(os.path.join(self.folder, "state"), os.path.join(folder, "state"))
        self.link("cache" if has_tail else "cache-no-tail", "cache", folder)
        return folder

    def measure(self, name, has_tail, is_in_pages):
        """The first turn after a restart."""
        b, folder, got = self.b, self.copy(has_tail), self.got[name]
        files = block_files(folder)
        got["bytes"] = sum(os.path.getsize(f) for f in files)
        (read_into_pages if is_in_pages else drop_pages)(files)
        got["cat_s"].append(cat(files))
        if not is_in_pages:
            drop_pages(files)
        d = b.start(folder, *b.options.flags)
        time.sleep(b.options.settle)
        got["restarted"].append(self.turn(d))
        d.kill()

    def turn(self, d, **more):
        """CPU time is the daemon's until the answer's last token: a busy machine moves it less."""
        text, cpu = self.b.text(d, MESSAGE), cpu_seconds(d)
        t = respond(d, text, max_output_tokens=ANSWER, previous_response_id=self.last["id"], **more)
        return {**t, "cpu_ms": 1000 * (cpu_seconds(d) - cpu)}

    def measure_warm(self, with_cold):
        """The same turn where the last one has just been answered; without the cache too."""
        d = self.b.start(self.copy(True), *self.b.options.flags)
        respond(d, self.text, max_output_tokens=ANSWER, previous_response_id=self.before["id"])
        wait_written(d)
        time.sleep(self.b.options.settle)  # a busy machine treats who has rested otherwise
        self.warm.append(self.turn(d))
        if with_cold:
            d.until_idle()
            self.cold.append(self.turn(d, hearth={"cache": False}))
        d.kill()

    def run(self, n_reps, n_cold):
        self.make()
        for rep in range(n_reps):
            for case in self.CASES:
                self.measure(*case)
            self.measure_warm(with_cold=rep < n_cold)
        return self.report()

    def report(self):
        say, result = self.b.say, {"history": self.n_made, "cases": {}}
        cold = [t["ttft_ms"] for t in self.cold]
        warm = [t["ttft_ms"] for t in self.warm]
        say(f"\nhistory of {self.n_made} tokens, a message of {MESSAGE} more")
        if cold:
            say(f"  cold                 TTFT ms {spread(cold)}")
        say(f"  warm in RAM          TTFT ms {spread(warm)}  {parts_of(self.warm)}")
        result.update(cold_ms=cold, warm_ms=warm)
        for name, got in self.got.items():
            ttft = [t["ttft_ms"] for t in got["restarted"]]
            ms = [t["timings"]["restore_ms"] for t in got["restarted"]]
            rate = [got["bytes"] / 1e3 / x for x in ms]
            cat_rate = [got["bytes"] / 1e6 / s for s in got["cat_s"]]
            say(f"  {name:20s} TTFT ms {spread(ttft)}  {parts_of(got['restarted'])}")
            say(f"    {ratio(ttft, warm):.2f} × warm (pairs)"
                + (f", cold / this {median(cold) / median(ttft):.1f}" if cold else "")
                + f"; restore {median(rate):.0f} MB/s, cat {median(cat_rate):.0f} MB/s,"
                f" {100 * ratio(rate, cat_rate):.0f} %")
            result["cases"][name] = {"ms": ttft, "restore_MBps": rate, "cat_MBps": cat_rate}
        return result


def parts_of(turns):
    """Where the time went, medians in milliseconds."""
    names = {"queue_ms": "queued", "prefill_ms": "to the first token", "restore_ms": "restore"}
    v = [f"{n} {median([t['timings'][k] for t in turns]):.1f}" for k, n in names.items()]
    v.append(f"CPU {median([t['cpu_ms'] for t in turns]):.0f}")
    v.append(f"{median([t['cache']['computed'] for t in turns]):.0f} computed")
    return ", ".join(v)


def part_restart(b):
    found = []
    for n_history, n_reps, n_cold in zip(
        b.options.history, b.options.reps, b.options.cold
    ):
        found.append(Restart(b, n_history).run(n_reps, n_cold))
    return found


# ---- what it costs ----


class OnAndOff:
    """Two daemons side by side, of which one is asked at a time."""

    def __init__(self, b):
        self.on = b.start(b.folder("on"), *b.options.flags)
        self.off = b.start(b.folder("off"), "--disk", "0", *b.options.flags)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.on.kill()
        self.off.kill()

    def pairs(self, n):
        """(on, off) in an order that favours neither."""
        for i in range(n):
            yield (self.on, self.off) if i % 2 == 0 else (self.off, self.on)


def part_unique(b):
    """A prompt of `--unique` tokens, then 64 tokens of answer while its blocks are written."""
    names = ("seconds", "ttft_ms", "decode_ms", "cpu_s")
    got = {k: {n: [] for n in names} for k in ("on", "off")}
    with OnAndOff(b) as two:
        for pair in two.pairs(b.options.pairs + 1):
            text = b.text(two.on, b.options.unique)
            for d in pair:
                cpu = cpu_seconds(d)
                t = respond(d, text, max_output_tokens=64, store=False)
                wait_written(d)
                mine = got["on" if d is two.on else "off"]
                mine["seconds"].append(t["seconds"])
                mine["ttft_ms"].append(t["ttft_ms"])
                mine["decode_ms"].append(
                    t["timings"]["decode_ms"] / max(1, t["usage"]["output_tokens"] - 1)
                )
                mine["cpu_s"].append(cpu_seconds(d) - cpu)
    for mine in got.values():
        for v in mine.values():
            del v[0]  # the first pass of each
    b.say(f"\nunique prompts of {b.options.unique} tokens, 64 answered, {b.options.pairs} pairs")
    for name in names:
        on, off = got["on"][name], got["off"][name]
        b.say(f"  {name:10s} on {median(on):9.3f}  off {median(off):9.3f}"
              f"  on / off {ratio(on, off):.3f} (pairs), {median(on) / median(off):.3f} (medians),"
              f" {min(on) / min(off):.3f} (least)")
    return got


def part_commits(b):
    """Durable writes while a prompt is read and its blocks are written."""
    got = {"on": [], "off": []}
    with OnAndOff(b) as two:
        talk = {}
        for d in (two.on, two.off):
            talk[d] = d.post("/v1/conversations", {})[1]["id"]
        for pair in two.pairs(b.options.pairs // 2 or 1):
            text = b.text(two.on, b.options.unique)
            for d in pair:
                got["on" if d is two.on else "off"] += commits_beside(d, text, talk[d])
    b.say("\na message stored durably, while a prompt is read and its blocks are written, ms")
    for k, v in got.items():
        v.sort()
        b.say(f"  tier {k:4s} median {median(v):6.1f}  p95 {v[int(0.95 * (len(v) - 1))]:6.1f}"
              f"  of {len(v)}")
    return got


def commits_beside(d, text, conversation):
    item = {"items": [{"type": "message", "role": "user", "content": "a line to keep"}]}
    body = {"model": "default", "input": text, "max_output_tokens": 16, "stream": True,
            "store": False}
    times = []
    with d.stream("/v1/responses", body) as s:
        done = False
        events = iter(s)
        while not done:
            t0 = time.perf_counter()
            status, reply = d.post(f"/v1/conversations/{conversation}/items", item)
            assert status == 200, reply
            times.append(1000 * (time.perf_counter() - t0))
            turns = d.status()
            done = turns["turns"]["running"] == 0 and turns["disk"]["waiting"] == 0
        for _ in events:
            pass
    return times


def part_bytes(b):
    """A conversation of five turns: what the disk got for its tokens, before its tail."""
    with b.start(b.folder("bytes"), *b.options.flags) as d:
        last, n = None, 0
        for _ in range(5):
            more = {"previous_response_id": last["id"]} if last else {}
            last = respond(d, b.text(d, 150), max_output_tokens=40, **more)
            wait_written(d)
        n = last["usage"]["total_tokens"]
        status = d.status()
        metrics = dict(
            line.rsplit(" ", 1) for line in d.get("/metrics")[1].decode().splitlines()
            if line and line[0] != "#"
        )
        written = float(metrics["hearth_disk_written_bytes_total"])
        n_blocks = status["disk"]["written"]
        per_token = float(metrics["hearth_kv_bytes"]) / float(metrics["hearth_kv_blocks"]) / 32
    share = written / (n_blocks * 32 * per_token)
    b.say(f"\nbytes written: {n} tokens, {n_blocks} blocks, {written / 1e6:.2f} MB:"
          f" {written / (n * per_token):.3f} × KV of the new tokens,"
          f" {share:.4f} × KV of those in whole blocks")
    return {"tokens": n, "blocks": n_blocks, "bytes": written, "kv_bytes_per_token": per_token}


PARTS = {"restart": part_restart, "unique": part_unique, "commits": part_commits,
         "bytes": part_bytes}


# ---- the machine ----


def machine():
    with open("/proc/cpuinfo") as f:
        model = next((x.split(":")[1].strip() for x in f if x.startswith("model name")), "?")
    git = subprocess.run(["git", "-C", SOURCE, "describe", "--always", "--dirty"],
                         capture_output=True, text=True, check=False)
    return {"cpu": model, "cpus": os.cpu_count(), "kernel": platform.release(),
            "commit": git.stdout.strip(), "model": os.path.basename(MODEL),
            "load": os.getloadavg(), "nice": os.nice(0)}


def numbers(text):
    return [int(x) for x in text.split(",")]


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("--only", type=lambda s: s.split(","), default=list(PARTS))
    p.add_argument("--history", type=numbers, default=[1500, 6000])
    p.add_argument("--reps", type=numbers, default=[9, 7], help="restarts, for each history")
    p.add_argument("--cold", type=numbers, default=[5, 2], help="of these, followed by a cold turn")
    p.add_argument("--settle", type=float, default=2, metavar="SECONDS",
                   help="for which the daemon rests before the turn (default: %(default)s)")
    p.add_argument("--unique", type=int, default=320, metavar="TOKENS")
    p.add_argument("--pairs", type=int, default=20)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--dir", help="where the folders are made (default: the temporary directory)")
    p.add_argument("--json", metavar="FILE")
    p.add_argument("flags", nargs="*", help="more for the daemon, behind --")
    options = p.parse_args()
    harness.PATIENCE_S = 600
    b = Bench(options)
    result = {"machine": machine()}
    b.say("  ".join(f"{k} {v}" for k, v in result["machine"].items()))
    try:
        for name in options.only:
            result[name] = PARTS[name](b)
    finally:
        shutil.rmtree(b.root, ignore_errors=True)
    result["machine"]["load_after"] = os.getloadavg()
    if options.json:
        with open(options.json, "w") as f:
            json.dump(result, f, indent=1)


if __name__ == "__main__":
    main()
