#!/usr/bin/env python3
"""Draws results of `hearth replay --json FILE`: time to first token and hit rate, turn by turn.

    scripts/plot_replay.py [--output PICTURE.png] [--title TEXT] COLD.json [WARM.json]

Two results are compared, say one of --no-cache and one without; the best picture comes from
--teacher, where both have had the same prompts: then it also says how many answers differ. The line
is the median of a turn's times, the band reaches from the tenth to the ninetieth percentile, and
crosses are turns after a restart of the daemon. Needs matplotlib (Debian: python3-matplotlib).
"""

import argparse
import json
import sys

COLOURS = ("#4477aa", "#cc6677")
INSTALL = "matplotlib is not installed: apt install python3-matplotlib, or pip install matplotlib"


class Failure(Exception):
    pass


def read(path):
    """A result, checked as far as it is drawn."""
    try:
        with open(path, encoding="utf-8") as f:
            result = json.load(f)
    except OSError as e:
        raise Failure(f"{path} can't be read: {e.strerror}") from e
    except ValueError as e:
        raise Failure(f"{path} is no JSON: {e}") from e
    if not isinstance(result, dict) or result.get("object") != "hearth.replay":
        raise Failure(f"{path} is no result of hearth replay --json")
    if result.get("version") != 1:
        raise Failure(f"{path} is of version {result.get('version')}; 1 is understood")
    if not result["turns"]:
        raise Failure(f"{path} holds no turns")
    return result


def percentile(values, p):
    """Interpolated between the two nearest, as in the client."""
    values = sorted(values)
    rank = p / 100 * (len(values) - 1)
    below = int(rank)
    above = min(below + 1, len(values) - 1)
    return values[below] + (rank - below) * (values[above] - values[below])


def by_turn(result, key):
    """Turn number → the values that are known."""
    found = {}
    for t in result["turns"]:
        if t[key] is not None:
            found.setdefault(t["turn"], []).append(t[key])
    return dict(sorted(found.items()))


def hit_rates(result):
    """Turn number → cached of prompt, in percent."""
    sums = {}
    for t in result["turns"]:
        if t["cached_tokens"] is not None and t["prompt_tokens"]:
            s = sums.setdefault(t["turn"], [0, 0])
            s[0] += t["cached_tokens"]
            s[1] += t["prompt_tokens"]
    return {turn: 100 * cached / prompt for turn, (cached, prompt) in sorted(sums.items())}


def name_of(result):
    options = result["options"]
    words = ["warm" if options["cache"] else "cold (no cache)"]
    if options["interleave"] > 1:
        words.append(f"{options['interleave']} interleaved")
    if options["restart_every"]:
        how = "killed" if options["kill"] else "restarted"
        words.append(f"{how} every {options['restart_every']} turns")
    return ", ".join(words)


def differences(results):
    """How many of the turns that both have were answered differently, and of how many. None: the
    prompts weren't the same, so that means nothing.
    """
    if len(results) < 2 or not all(r["options"]["teacher"] for r in results):
        return None
    answers = [
        {(t["conversation"], t["turn"]): t["answer_hash"] for t in r["turns"]} for r in results
    ]
    both = answers[0].keys() & answers[1].keys()
    return sum(answers[0][k] != answers[1][k] for k in both), len(both)


def draw_times(axes, result, colour):
    times = by_turn(result, "ttft_ms")
    turns = list(times)
    axes.fill_between(
        turns,
        [percentile(times[t], 10) for t in turns],
        [percentile(times[t], 90) for t in turns],
        color=colour,
        alpha=0.15,
        linewidth=0,
    )
    axes.plot(
        turns,
        [percentile(times[t], 50) for t in turns],
        marker="o",
        color=colour,
        label=name_of(result),
    )
    after = [(t["turn"], t["ttft_ms"]) for t in result["turns"] if t["restored"] and t["ttft_ms"]]
    if after:
        axes.plot(*zip(*after), "x", color=colour, alpha=0.7)


def draw(results, title, path):
    try:
        import matplotlib
    except ImportError as e:
        raise Failure(INSTALL) from e
    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.2))
    for result, colour in zip(results, COLOURS):
        draw_times(left, result, colour)
        rates = hit_rates(result)
        right.plot(list(rates), list(rates.values()), marker="o", color=colour)
    left.set(xlabel="turn", ylabel="time to first token, ms", yscale="log")
    for set_formatter in (left.yaxis.set_major_formatter, left.yaxis.set_minor_formatter):
        set_formatter(FuncFormatter(lambda x, _: f"{x:g}" if f"{x:e}"[0] in "125" else ""))
    left.legend(frameon=False)
    right.set(xlabel="turn", ylabel="tokens of the prompt from the cache, %", ylim=(-3, 103))
    for axes in (left, right):
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    if title:
        figure.suptitle(title)
    figure.tight_layout()
    try:
        figure.savefig(path, dpi=140)
    except OSError as e:
        raise Failure(f"{path} can't be written: {e.strerror}") from e


def main(argv):
    parser = argparse.ArgumentParser(
        description="Draws one or two results of `hearth replay --json FILE`."
    )
    parser.add_argument("results", nargs="+", metavar="RESULT.json")
    parser.add_argument("--output", default="replay.png", help="the picture (default: %(default)s)")
    parser.add_argument("--title")
    options = parser.parse_args(argv)
    if len(options.results) > len(COLOURS):
        parser.error(f"at most {len(COLOURS)} results")
    results = [read(path) for path in options.results]
    draw(results, options.title, options.output)
    for path, result in zip(options.results, results):
        if not result["whole"]:
            print(f"plot_replay: {path} was not played to its end", file=sys.stderr)
    found = differences(results)
    if found:
        print(f"{found[1]} turns in both, {found[0]} answered differently")
    print(options.output)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Failure as failure:
        sys.exit(f"plot_replay: {failure}")
