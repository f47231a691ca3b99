#!/usr/bin/python3
"""The limits in hearthd(8) are those of daemon/limits.h, and its flags are those of --help."""
import os
import re
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def read(*path):
    with open(os.path.join(ROOT, *path)) as f:
        return f.read()


# Where limits are defined, beside daemon/limits.h.
HEADERS = [("daemon", "limits.h"), ("daemon", "context.h"), ("daemon", "embedder.h"),
           ("cache", "cache.h"), ("engine", "embed.h"), ("memory", "vectors.h"),
           ("memory", "facts.h")]


def limits():
    """Name → number, of the defines that are products of whole numbers and shifts."""
    found = {}
    for name, value in re.findall(r"^#define ([A-Z]\w+) (.*?)\s*(?:/\*.*)?$",
                                  "\n".join(read(*h) for h in HEADERS), re.M):
        value = re.sub(r"(?<=\d)u?ll\b", "", value)
        if re.fullmatch(r"[\d()*<> ]+", value):
            found[name] = eval(value)  # digits, brackets, * and << only, by the line above
    return found


# Row of the table → the defines that stand in it, in order, or what is reckoned from them.
ROWS = {
    "request line and headers": ["LIMIT_HEADER_BYTES"],
    "time for them, from their first byte": ["LIMIT_HEADER_MS"],
    "body": ["LIMIT_BODY_BYTES"],
    "time for it": ["LIMIT_BODY_MS"],
    "bodies on their way in, all together": ["LIMIT_BODIES_BYTES"],
    "keep-alive between requests": ["LIMIT_IDLE_MS"],
    "connections": ["LIMIT_CONNECTIONS"],
    "connections of a user, a key's owner or an address": ["LIMIT_CONNECTIONS_PEER"],
    "unread body after an early error": ["LIMIT_DRAIN_BYTES"],
    "sent ahead while a request is being answered": ["LIMIT_INPUT_BYTES"],
    "answer that waits for a slow reader": ["LIMIT_OUTPUT_BYTES"],
    "reader that takes nothing": ["LIMIT_STALL_MS"],
    "running turns (--parallel)": ["DEFAULT_PARALLEL"],
    "waiting turns (--queue)": ["DEFAULT_QUEUE"],
    "restored blocks that wait to be verified": ["CACHE_SAMPLES_MAX"],
    "messages of a request or a window": ["LIMIT_MESSAGES"],
    "kept free for the answer (--answer-reserve)": ["DEFAULT_ANSWER_RESERVE"],
    "facts as edited: a line, lines, of one's own": ["FACTS_LINE_MAX", "FACTS_MAX",
                                                     "CONTEXT_FACTS_BYTES - FACTS_LINE_MAX"],
    "pins of a conversation": ["CONTEXT_PINS_PERCENT"],
    "summary and facts as a person edits them": ["CONTEXT_PINS_PERCENT"],
    "recalled for a turn, in a window": ["CONTEXT_RECALL_TURN_PERCENT",
                                         "CONTEXT_RECALL_ALL_PERCENT"],
    "fact list, summary in a head": ["CONTEXT_FACTS_PERCENT", "CONTEXT_SUMMARY_PERCENT"],
    "inputs of one POST /v1/embeddings": ["LIMIT_EMBED_INPUTS"],
    "tokens of them together, of each": ["LIMIT_EMBED_TOKENS", "EMBED_TOKENS_MAX"],
    "such requests that wait": ["LIMIT_EMBED_JOBS"],
    "vectors of a message, tokens of each": ["EMBEDDER_CHUNKS_MAX", "EMBEDDER_CHUNK_TOKENS"],
    "stop strings": ["LIMIT_STOPS"],
    "length of a stop string": ["LIMIT_STOP_BYTES"],
    "entries of logit_bias": ["LIMIT_LOGIT_BIAS"],
    "pairs of metadata": ["LIMIT_METADATA_PAIRS"],
    "key, value of metadata": ["LIMIT_METADATA_KEY", "LIMIT_METADATA_VALUE"],
    "items of one POST .../items": ["LIMIT_ITEMS"],
    "verifications at once": ["LIMIT_VERIFY_QUEUE"],
    "conversations verified at once": ["LIMIT_VERIFY_CONVERSATIONS"],
    "wait for a model to be loaded (--load-wait)": ["DEFAULT_LOAD_WAIT_S"],
    "models in memory at once (--resident)": ["DEFAULT_RESIDENT"],
    "time to stop": ["LIMIT_STOP_MS"],
}
UNITS = {"": 1, "%": 1, "% of the window": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20,
         "GiB": 1 << 30, "s": 1000}


def table():
    text = read("docs", "man", "hearthd.8").replace("\\-", "-")
    rows = text[text.index(".TS"):text.index(".TE")].split("\n")[5:]
    return {cells[0]: cells[1] for cells in (row.split("\t") for row in rows) if len(cells) == 3}


class Manual(unittest.TestCase):
    def test_every_row_says_what_the_code_says(self):
        defined, written = limits(), table()
        self.assertEqual(set(written), set(ROWS))
        for row, names in ROWS.items():
            values = [v.strip() for v in written[row].split(",")]
            self.assertEqual(len(values), len(names), row)
            for value, name in zip(values, names):
                number, _, unit = value.partition(" ")
                seconds = UNITS["s"] if name.endswith("_S") else 1
                self.assertEqual(int(number) * UNITS[unit], eval(name, {}, defined) * seconds,
                                 f"{row}: {name}")

    def test_every_option_is_described(self):
        names = re.findall(r'^    \{"([a-z-]+)",\s+K_', read("daemon", "config.c"), re.M)
        self.assertGreater(len(names), 20)
        page = read("docs", "man", "hearthd.8").replace("\\-", "-")
        for name in names:
            self.assertIn(f"--{name}", page)

    def test_defaults_in_the_text(self):
        page = read("docs", "man", "hearthd.8").replace("\\-", "-")
        d = limits()
        self.assertIn(f"Default {d['DEFAULT_PARALLEL']}.", page)
        self.assertIn(f"Default {d['DEFAULT_QUEUE']}.", page)
        self.assertIn(f"1 to {d['LIMIT_PARALLEL']}.", page)
        self.assertIn(f"0 to {d['LIMIT_QUEUE']}.", page)
        self.assertIn(f"model's own, {d['DEFAULT_CTX']},", page)
        self.assertIn(f"at most {d['DEFAULT_MEMORY_BYTES'] >> 30}G", page)
        self.assertIn(f"Retry-After: {d['LIMIT_RETRY_AFTER_S']}", page)


if __name__ == "__main__":
    unittest.main()
