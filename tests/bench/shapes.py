#!/usr/bin/env python3
"""Promise 2 on the shapes that people own: the same logits, to the bit, however they are computed.

    HEARTH_BUILD=build tests/bench/shapes.py                  two layers of each shape; in the suite
    HEARTH_BUILD=build tests/bench/shapes.py --full 1b [--type Q4_0] [--tokens 290] [--keep DIR]

The models have random weights (mkgguf), so that nothing of a trained one's is relied on, and the
shapes of TinyLlama (1.1 G parameters) and of Llama 3.1 8B: head counts, dimensions and block sizes
that the default model of 135 M doesn't have. For F16 and Q8_0 KV, the hash of the last position's
logits must be the same for

    the prompt at once, in pieces of 1, 7, 32 and 64
    1 thread and 2; plain C and the best kernels of this CPU
    alone and beside others that decode
    cold, and behind a prefix that an earlier request left in blocks
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("HEARTH_BUILD", os.path.join(SOURCE, "build"))
TINY_LLAMA = ["--embd", "2048", "--ff", "5632", "--heads", "32", "--kv-heads", "4"]
LLAMA_8B = ["--embd", "4096", "--ff", "14336", "--heads", "32", "--kv-heads", "8"]
SHAPES = {
    "1b": TINY_LLAMA + ["--head-dim", "64"],
    "8b": LLAMA_8B + ["--head-dim", "128"],
}
LAYERS = {"1b": 22, "8b": 32}
# In the suite: few layers and a small vocabulary, which change no product's or head's shape.
QUICK = {"1b": ["--layers", "2"], "8b": ["--layers", "1"]}


def make(folder, shape, kind, more):
    path = os.path.join(folder, f"{shape}.gguf")
    command = [os.path.join(BUILD, "tests", "bench", "mkgguf"), path, "--type", kind]
    subprocess.run(command + SHAPES[shape] + more, check=True)
    return path


def ways(n):
    """(what, how the probe is asked), from the prompt alone on. Plain C reads half of it: it is
    slow."""
    yield "one piece, 2 threads", {"threads": 2}
    yield "1 thread", {"threads": 1}
    for chunk in (7, 32, 64):
        yield f"pieces of {chunk}", {"threads": 2, "chunk": chunk}
    yield "behind a cached prefix", {"threads": 2, "cached": n // 2}
    yield "behind a long cached prefix, in pieces", {"threads": 1, "cached": n - 1, "chunk": 5}
    yield "beside 3 others", {"threads": 2, "batch": 3, "chunk": 16}
    yield "beside others, behind a prefix", {"threads": 2, "batch": 2, "cached": 32}


def short_ways():
    yield "the best kernels", {"threads": 2}
    yield "one by one", {"threads": 2, "chunk": 1}
    yield "plain C", {"threads": 2, "isa": "c"}
    yield "plain C, in pieces, 1 thread", {"threads": 1, "isa": "c", "chunk": 9}


def ask(path, kv_type, questions):
    lines = "".join(json.dumps({"op": "logits", "top": 1, **q}) + "\n" for q in questions)
    program = os.path.join(BUILD, "daemon", "hearthd")
    p = subprocess.run(
        [program, "probe", "--model", path, "--kv-type", kv_type],
        input=lines,
        capture_output=True,
        text=True,
    )
    if p.returncode != 0:
        sys.exit(f"hearthd probe: {p.stderr}")
    return [json.loads(line) for line in p.stdout.splitlines()]


def differences(path, kv_type, n):
    """The ways whose logits aren't the first's; and the two hashes."""
    ids = [(k * 7919 + 13) % 1000 + 3 for k in range(n)]
    groups = [[(w, {"ids": ids, **q}) for w, q in ways(n)]]
    groups.append([(w, {"ids": ids[: n // 4], **q}) for w, q in short_ways()])
    answers = iter(ask(path, kv_type, [q for g in groups for _, q in g]))
    wrong, hashes = [], []
    for group in groups:
        got = [(what, next(answers)) for what, _ in group]
        for what, answer in got:
            if "hash" not in answer:
                sys.exit(f"{what}: {answer}")
            if answer["hash"] != got[0][1]["hash"]:
                wrong.append(what)
        hashes.append(got[0][1]["hash"])
    return wrong, hashes


def check(path, name, n):
    """How many ways differ, told one by one. A hash that never changes would prove nothing: the
    two KV types and two lengths must differ."""
    n_wrong, seen = 0, set()
    for kv_type in ("f16", "q8_0"):
        began = time.monotonic()
        wrong, hashes = differences(path, kv_type, n)
        seen.update(hashes)
        took = time.monotonic() - began
        print(f"{name}, KV {kv_type}: {len(wrong)} ways differ ({took:.0f} s)", flush=True)
        for what in wrong:
            print(f"    {what}")
        n_wrong += len(wrong)
    if len(seen) != 4:
        print(f"{name}: four different passes gave {len(seen)} different hashes")
        n_wrong += 1
    return n_wrong


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--full", choices=sorted(SHAPES), help="all layers and a vocabulary of 32,768")
    p.add_argument("--type", default="Q4_0", help="of the weights (Q4_0)")
    p.add_argument("--tokens", type=int, default=290, help="of the prompt (290: two spans)")
    p.add_argument("--keep", metavar="DIR", help="make the file there, and leave it")
    args = p.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="hearth-shapes-") as folder:
        folder = args.keep or folder
        if args.full:
            path = make(folder, args.full, args.type, ["--layers", str(LAYERS[args.full])])
            size = os.path.getsize(path) / 1e9
            layers = LAYERS[args.full]
            print(f"{args.full}, {args.type}, {layers} layers, {size:.2f} GB", flush=True)
            wrong = check(path, args.full, args.tokens)
        else:
            for shape, few in QUICK.items():
                more = few + ["--vocab", "2048", "--ctx", "512"]
                path = make(folder, shape, args.type, more)
                wrong += check(path, f"{shape}, {few[1]} of {LAYERS[shape]} layers", args.tokens)
                os.remove(path)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
