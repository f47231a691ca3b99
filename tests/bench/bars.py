#!/usr/bin/env python3
"""Start, memory, rest and narrow machines: what a user notices before any token is counted.

    HEARTH_BUILD=build tests/bench/bars.py MODEL.gguf ... [--reps 5] [--json FILE]

For each model, with a real daemon:

    start      from exec to the first token of a five-word question, the file in the page cache;
               "first" with folders of its own, where the file is hashed and a history made, "again"
               with those of the one before; bar 0.3 s + file ÷ 2 GB/s. In turn, and the very
               first start apart: on a virtual machine it may be what makes the host find memory
               for the weights (0.9 s of CPU time for 466 MiB was seen, and 0.07 s afterwards)
    memory     resident when the KV budget is full, against weights + KV budget + 64 MiB; and the
               weights against the file's bytes
    rest       CPU time of the process between two turns, as a share of one core
    one core   decoding on one CPU alone, with the threads chosen by default and with two, beside
               one thread with all CPUs: threads that only wait must not cost
    quota      the same in a control group that may use one core (root)

Nothing is asserted: a busy machine starts slowly. What misses its bar is marked.
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "flow"))
from harness import Daemon  # noqa: E402

MIB = 1 << 20
# Completions, since a base model has no chat template.
QUESTION = {"prompt": "Once upon a time there", "max_tokens": 1, "temperature": 0}


class Narrow(Daemon):
    """A daemon on some CPUs only, or in a control group. Not waited for."""

    def __init__(self, model, *flags, cpus=None, group=None, **more):
        self.cpus, self.group = cpus, group
        super().__init__(model, *flags, **more)

    def limit(self):
        super().limit()
        if self.cpus:
            os.sched_setaffinity(0, self.cpus)
        if self.group:
            with open(os.path.join(self.group, "cgroup.procs"), "w", encoding="ascii") as f:
                f.write(str(os.getpid()))


def read_all(path):
    """The file into the page cache."""
    with open(path, "rb") as f:
        while f.read(1 << 24):
            pass


def resident(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        fields = dict(line.split(":", 1) for line in f)
    return {k: int(fields[k].split()[0]) * 1024 for k in ("VmRSS", "RssAnon", "RssFile")}


def cpu_s(pid):
    """CPU time so far, to the nanosecond, of the threads that have ended too: of those that load a
    model none is left. The process's clock, as clock_getcpuclockid(3) names it."""
    return time.clock_gettime((~pid << 3) | 2)


def first_token_s(model, folder):
    """Seconds from exec to the first token: by the clock, and of CPU; and whose log it was."""
    began = time.monotonic()
    d = Daemon(model, "--ctx", "8192", folder=folder, wait=False)
    while not os.path.exists(d.socket_path):
        time.sleep(0.001)
    while True:
        try:
            with d.stream("/v1/completions", {**QUESTION, "stream": True}) as s:
                if s.status == 200:
                    next(e for e in s if e.get("choices"))
                    break
                assert s.status == 503, s.status  # while it loads
        except OSError:
            pass
        time.sleep(0.001)
    took, cpu = time.monotonic() - began, cpu_s(d.process.pid)
    d.stop()
    return took, cpu


def measure_start(model, reps):
    bar = 0.3 + os.path.getsize(model) / 2e9
    read_all(model)
    first, more = [], []
    for _ in range(reps + 1):
        with tempfile.TemporaryDirectory() as folder:
            first.append(first_token_s(model, folder))
            more.append(first_token_s(model, folder))
    very_first = first.pop(0)
    return {
        "bar_s": bar,
        "very_first_s": very_first[0],
        "very_first_cpu_s": very_first[1],
        "first_s": min(t for t, _ in first),
        "first_all_s": sorted(t for t, _ in first),
        "first_cpu_s": min(c for _, c in first),
        "again_s": min(t for t, _ in more),
        "again_all_s": sorted(t for t, _ in more),
        "again_cpu_s": min(c for _, c in more),
    }


def fill(d):
    """Prompts of different beginnings until the cache has no free block."""
    i = 0
    while True:
        memory = d.status()["memory"]
        if memory["kv_bytes"] >= 0.97 * memory["kv_bytes_max"] or i > 200:
            return memory
        ids = [3 + (97 * i + 7 * k) % 900 for k in range(1500)]
        d.post("/v1/completions", {"prompt": ids, "max_tokens": 1, "temperature": 0})
        i += 1


def measure_memory(model):
    """With a KV budget of 160 MiB beside weights and buffers."""
    with Daemon(model, "--ctx", "2048") as d:
        weights = d.status()["memory"]["weights_bytes"]
    limit = weights // MIB + 64 + 160
    with Daemon(model, "--ctx", "2048", "--memory", f"{limit}M") as d:
        memory = fill(d)
        now = resident(d.process.pid)
    return {
        "file_bytes": os.path.getsize(model),
        "weights_bytes": memory["weights_bytes"],
        "kv_bytes_max": memory["kv_bytes_max"],
        "kv_bytes": memory["kv_bytes"],
        "bar_bytes": memory["weights_bytes"] + memory["kv_bytes_max"] + 64 * MIB,
        "resident_bytes": now["VmRSS"],
        "resident_file_bytes": now["RssFile"],
    }


def measure_rest(model, seconds):
    with Daemon(model, "--ctx", "2048") as d:
        d.post("/v1/completions", {**QUESTION, "max_tokens": 8})
        d.until_idle()
        time.sleep(7)  # what a turn leaves to do: snapshots, writing behind
        before, began = cpu_s(d.process.pid), time.monotonic()
        time.sleep(seconds)
        share = (cpu_s(d.process.pid) - before) / (time.monotonic() - began)
        d.post("/v1/completions", QUESTION)
    return {"share_of_a_core": share}


@contextlib.contextmanager
def one_core_group():
    """A control group that may use the time of one core: version 2, or 1 under its own mount."""
    v2 = os.path.exists("/sys/fs/cgroup/cgroup.controllers")
    group = "/sys/fs/cgroup/hearth-bars" if v2 else "/sys/fs/cgroup/cpu/hearth-bars"
    limits = {"cpu.max": "100000 100000"} if v2 else {
        "cpu.cfs_period_us": "100000",
        "cpu.cfs_quota_us": "100000",
    }
    os.mkdir(group)
    try:
        for name, text in limits.items():
            with open(os.path.join(group, name), "w", encoding="ascii") as f:
                f.write(text)
        yield group
    finally:
        os.rmdir(group)


def decode_ts(model, *flags, **narrow):
    """Tokens a second of wall and of CPU, best of three, and the threads that it has."""
    with Narrow(model, "--ctx", "2048", "--speculation", "off", *flags, **narrow) as d:
        d.post("/v1/completions", QUESTION)
        best = best_cpu = 0
        for i in range(3):
            cpu = cpu_s(d.process.pid)
            reply = d.post(
                "/v1/completions",
                {**QUESTION, "prompt": f"{i} times", "max_tokens": 48, "ignore_eos": True},
            )[1]
            cpu = cpu_s(d.process.pid) - cpu
            best = max(best, reply["hearth"]["timings"]["decode_tps"])
            best_cpu = max(best_cpu, reply["usage"]["completion_tokens"] / cpu)
        return best, best_cpu, d.status()["model"]["threads"]


def measure_narrow(model):
    one = {min(os.sched_getaffinity(0))}
    out = {}
    for name, flags, cpus in (
        ("one thread, all CPUs", ("--threads", "1"), None),
        ("default, one CPU", (), one),
        ("two threads, one CPU", ("--threads", "2"), one),
    ):
        ts, cpu_ts, threads = decode_ts(model, *flags, cpus=cpus)
        out[name] = {"threads": threads, "decode_ts": ts, "decode_per_cpu_s": cpu_ts}
    try:
        with one_core_group() as group:
            ts, cpu_ts, threads = decode_ts(model, group=group)
        out["quota of one core"] = {
            "threads": threads,
            "decode_ts": ts,
            "decode_per_cpu_s": cpu_ts,
        }
    except OSError as e:
        out["quota of one core"] = {"skipped": str(e)}
    return out


def tell(name, figures):
    mb = 1e6
    s, m, r = figures["start"], figures["memory"], figures["rest"]
    print(f"\n{name}, {m['file_bytes'] / mb:.0f} MB")
    for key, what in (
        ("very_first_s", "the very first"),
        ("first_s", "start, first"),
        ("again_s", "start, again"),
    ):
        mark = "" if s[key] <= s["bar_s"] else "  MISSED"
        cpu = s[key.replace("_s", "_cpu_s")]
        print(f"  {what:14} {s[key]:7.3f} s ({cpu:.3f} of CPU), bar {s['bar_s']:.3f}{mark}")
    mark = "" if m["resident_bytes"] <= m["bar_bytes"] else "  MISSED"
    print(
        f"  resident       {m['resident_bytes'] / MIB:7.1f} MiB"
        f" ({m['resident_file_bytes'] / MIB:.1f} of files), KV {m['kv_bytes'] / MIB:.1f} of"
        f" {m['kv_bytes_max'] / MIB:.1f}, bar {m['bar_bytes'] / MIB:.1f}{mark}"
    )
    share = m["weights_bytes"] / m["file_bytes"]
    print(f"  weights        {m['weights_bytes'] / mb:7.1f} MB, {share:.3f} of the file")
    print(f"  at rest        {100 * r['share_of_a_core']:7.3f} % of a core")
    for what, n in figures["narrow"].items():
        if "skipped" in n:
            print(f"  {what}: skipped, {n['skipped']}")
            continue
        print(
            f"  {what:22} {n['threads']} threads, decode {n['decode_ts']:.1f} tokens/s,"
            f" {n['decode_per_cpu_s']:.1f} a second of CPU"
        )


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("models", nargs="+")
    p.add_argument("--reps", type=int, default=5, help="starts of each kind (5)")
    p.add_argument("--rest", type=float, default=10, help="seconds at rest (10)")
    p.add_argument("--json", metavar="FILE", help="write the figures there too")
    args = p.parse_args()
    out = {}
    for model in args.models:
        name = os.path.basename(model)
        out[name] = {
            "start": measure_start(model, args.reps),
            "memory": measure_memory(model),
            "rest": measure_rest(model, args.rest),
            "narrow": measure_narrow(model),
        }
        tell(name, out[name])
    if args.json:
        with open(args.json, "w", encoding="ascii") as f:
            json.dump(out, f, indent=2)


if __name__ == "__main__":
    main()
