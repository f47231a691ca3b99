"""Conversations for the tests of context management: other talk (tests/memory/filler_*.txt), exact
facts and questions about them in English and Chinese, and ways to look at the window.
"""

import collections
import functools
import os
import re
import unittest

from harness import SOURCE, Scripted

STRATEGIES = ("error", "window", "summarise", "retrieve", "prune", "auto")

# (what is said, what must be in the prompt verbatim, what is asked later)
FACTS = {
    "en": [
        ("The incident we're working on is INC-4471.", "INC-4471", "Which incident was it?"),
        ("Our logs go to the bucket s3://acme-prod-logs.", "s3://acme-prod-logs",
         "Where do the logs go?"),
        ("The launch is on 14 March 2026.", "14 March 2026", "When is the launch?"),
        ("Maria Schmidt from finance has to approve it.", "Maria Schmidt",
         "Who has to approve it?"),
        ("The service listens on port 8443.", "8443", "On which port does the service listen?"),
        ("We're running version 2.3.1 in production.", "2.3.1", "Which version are we running?"),
        ("The budget for this is $12,500.", "$12,500", "How much is the budget?"),
        ("The config lives in /etc/hearth/hearth.conf.", "/etc/hearth/hearth.conf",
         "Where does the config live?"),
    ],
    "zh": [
        ("我们正在处理的事故编号是INC-4471。", "INC-4471", "事故编号是多少？"),
        ("日志都存在s3://acme-prod-logs这个桶里。", "s3://acme-prod-logs", "日志存在哪里？"),
        ("上线日期是2026年3月14日。", "2026年3月14日", "什么时候上线？"),
        ("项目的负责人是王芳。", "王芳", "项目的负责人是谁？"),
        ("服务监听的端口是8443。", "8443", "服务监听哪个端口？"),
        ("线上跑的版本是2.3.1。", "2.3.1", "线上跑的是哪个版本？"),
        ("这次的预算是3万元。", "3万元", "这次的预算是多少？"),
        ("配置文件在/etc/hearth/hearth.conf。", "/etc/hearth/hearth.conf", "配置文件在哪里？"),
    ],
}
PEANUTS = {
    "en": ("By the way, I'm allergic to peanuts.", "allergic to peanuts",
           "What could I have as a snack this afternoon?"),
    "zh": ("顺便说一下，我对花生过敏。", "花生过敏", "今天下午我可以吃点什么零食？"),
}


def filler(language):
    """[(what a person says, what is answered)]"""
    path = os.path.join(SOURCE, "tests", "memory", f"filler_{language}.txt")
    with open(path, encoding="utf-8") as f:
        lines = [line.rstrip("\n") for line in f if line[:3] in ("U: ", "A: ")]
    return [(lines[i][3:], lines[i + 1][3:]) for i in range(0, len(lines) - 1, 2)]


def merges(text, n):
    """Byte-pair merges learned from the text, most frequent first, as a script wants them: so that
    a token is a few letters, as a real model's, and a window of 1,024 holds what theirs does.
    """
    words = collections.Counter(re.findall(r"\s?\w+|[^\w\s]+|\s+", text))
    split = {w: [bytes([b]) for b in w.encode()] for w in words}
    counts, where = collections.Counter(), collections.defaultdict(set)

    def count(word, sign):
        parts = split[word]
        for pair in zip(parts, parts[1:]):
            counts[pair] += sign * words[word]
            where[pair].add(word)

    for w in words:
        count(w, 1)
    found = []
    while len(found) < n and counts:
        pair, times = max(counts.items(), key=lambda c: (c[1], c[0]))
        if times < 2:
            break
        found.append(f"{pair[0].hex()} {pair[1].hex()}")
        for w in sorted(where[pair]):
            count(w, -1)
            parts, to = split[w], []
            while parts:
                both = tuple(parts[:2]) == pair
                to.append(parts[0] + parts[1] if both else parts[0])
                parts = parts[2:] if both else parts[1:]
            split[w] = to
            count(w, 1)
    return found


@functools.lru_cache
def all_merges():
    said = [line for language in ("en", "zh") for turn in filler(language) for line in turn]
    return merges("\n".join(said), 1200)


def pieces(text, n=5):
    """The text as an answer of the scripted engine, a few characters a token."""
    return [text[i : i + n] for i in range(0, len(text), n)]


def script(language, ctx=1024, long=False, **more):
    """Other talk is answered as the file has it; `long`: at four times the length."""
    turns = filler(language)
    n = 5 if language == "en" else 1
    rules = []
    for i, (said, answer) in enumerate(turns):
        words = [answer]
        if long:
            words += [turns[(i + 7 * k) % len(turns)][1] for k in (1, 2, 3)]
        rules.append({"when": said, "pieces": pieces(" ".join(words), n)})
    return {
        "ctx": ctx,
        "merges": all_merges(),
        "rules": rules,
        "default": {"pieces": ["Noted", "."]},
        **more,
    }


class Talk:
    """One stored conversation."""

    def __init__(self, daemon, strategy=None, **body):
        self.d = daemon
        self.strategy = strategy
        status, c = daemon.post("/v1/conversations", body)
        assert status == 200, c
        self.id = c["id"]
        self.path = f"/v1/hearth/conversations/{self.id}"
        self.replies = []

    def body(self, text, **more):
        body = {"conversation": self.id, "input": text, "temperature": 0, **more}
        if self.strategy and "hearth" not in more:
            body["hearth"] = {"context": self.strategy}
        return body

    def say(self, text, **more):
        """A turn that must succeed."""
        status, r = self.d.post("/v1/responses", self.body(text, **more))
        assert status == 200, (r, self.d.log())
        self.replies.append(r)
        return r

    def window(self, query=""):
        status, w = self.d.get(self.path + "/context" + query)
        assert status == 200, w
        return w

    def prompt(self):
        """What the newest turn read, as text, without its answer."""
        items = self.window()["items"]
        assert items[-1]["role"] == "assistant", items[-1]
        return "\n".join(i["text"] for i in items[:-1])

    def messages(self):
        """[(id, role, text)], oldest first"""
        found, after = [], ""
        while True:
            path = f"/v1/conversations/{self.id}/items?order=asc&limit=100{after}"
            status, page = self.d.get(path)
            assert status == 200, page
            for i in page["data"]:
                found.append((i["id"], i["role"], "".join(c["text"] for c in i["content"])))
            if not page["has_more"]:
                return found
            after = f"&after={page['last_id']}"

    def until_quiet(self):
        """No cut is on its way: each background turn has ended, and what it left is stored."""
        self.d.until(lambda: self.d.status()["turns"]["ahead"] == 0, "no cut on its way")


def receipt(reply):
    return reply["hearth"]["receipt"]


def left(reply):
    """ids of what left"""
    r = receipt(reply)
    return [c["id"] for c in r["dropped"] + r["summarised"]]


def is_cut(reply):
    return "cut" in receipt(reply)


class Case(unittest.TestCase):
    SCRIPT = None

    @classmethod
    def setUpClass(cls):
        cls.d = Scripted(cls.SCRIPT)

    @classmethod
    def tearDownClass(cls):
        cls.d.stop()
