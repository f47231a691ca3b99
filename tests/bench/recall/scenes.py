#!/usr/bin/env python3
"""Writes scenes.en.jsonl and scenes.zh.jsonl: talks that are harder than those of generate.py.

Two friends talk over a year, in sessions; each subject comes up in three scenes some sessions
apart, both have their say on it, and small talk uses its words: what a question is about is said
in many places, by both. A question names whom it is about, often says it in other words, and may
need several turns. Lines are those of generate.py, and a question has two more keys:

    {"ask": "…", "evidence": [17, 203], "half": "dev", "kind": "several"}

kind: one, several (turns) or time (when, since when, how often). half: dev or held, by a hash of
the subject's name. A subject is in one half only, in all talks. Weights and rules are chosen by
the first half alone; the second tells what they are worth on questions that they weren't chosen
for.

Deterministic. Usage: scenes.py [DIRECTORY]
"""

import datetime
import hashlib
import json
import pathlib
import random
import re
import sys

HERE = pathlib.Path(__file__).parent
NAMES = {"en": [["Grace", "Daniel"], ["Sofia", "Ben"], ["Hannah", "Omar"], ["Ruth", "Julian"]],
         "zh": [["林悦", "张浩"], ["小雪", "阿明"], ["何佳", "郭峰"], ["安琪", "老徐"]]}
SUBJECTS = 20  # of a talk
SESSIONS = 26
SMALL = 3      # pieces of small talk about a subject
TIME = re.compile(r"^(When|Since when|How often)|什么时候|哪天|多久|星期几|几号")


def half_of(subject):
    return "held" if hashlib.sha256(subject.encode()).digest()[0] & 1 else "dev"


def read(path):
    """({"small": [(text, reply)], …}, [(subject, nouns, scenes, questions)])"""
    extras, subjects, section = {}, [], None
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("%"):
            section = extras.setdefault(line[1:], [])
        elif line.startswith("== "):
            name, *nouns = [part.strip() for part in line[3:].split("|")]
            subjects.append((name, nouns, [[]], []))
            section = None
        elif section is not None and line and not line.startswith("#"):
            section.append(line.split(" / "))
        elif line == "--":
            subjects[-1][2].append([])
        elif line.startswith("? "):
            ask, tags = line[2:].rsplit(" = ", 1)
            subjects[-1][3].append((ask, tags.split()))
        elif m := re.match(r"([AB])(?:\[(\w+)\])?: (.*)", line):
            subjects[-1][2][-1].append(m.groups())
    return extras, subjects


class Talk:
    def __init__(self, rng, extras, names):
        self.rng, self.extras, self.names = rng, extras, names
        self.lines, self.date = [], datetime.date(2024, 1, 8)

    def say(self, who, text):
        if self.lines and self.lines[-1][1] == self.names[who]:  # they take turns
            self.add(1 - who, self.rng.choice(self.extras["react"])[0])
        self.add(who, text)
        return len(self.lines) - 1

    def add(self, who, text):
        text = re.sub(r"\{([^{}]*\|[^{}]*)\}", lambda m: self.rng.choice(m[1].split("|")), text)
        text = text.replace("{S}", self.names[who]).replace("{O}", self.names[1 - who])
        self.lines.append((self.date, self.names[who], text))

    def exchange(self, kind, noun=""):
        who = self.rng.randrange(2)
        for k, text in enumerate(self.rng.choice(self.extras[kind])):
            self.say(who ^ k, text.replace("{n}", noun))


def plan(rng, chosen):
    """What each session is about: (subject's index, scene's number, or None for small talk)."""
    sessions = [[] for _ in range(SESSIONS)]
    for i, (_, _, scenes, _) in enumerate(chosen):
        for number, at in enumerate(sorted(rng.sample(range(SESSIONS), len(scenes)))):
            sessions[at].append((i, number))
        for _ in range(SMALL):
            sessions[rng.randrange(SESSIONS)].append((i, None))
    for session in sessions:
        rng.shuffle(session)
    return sessions


def named(text, swap, names):
    return text.replace("{A}", names[swap]).replace("{B}", names[1 - swap])


def talk(rng, extras, subjects, name, names):
    chosen = rng.sample(subjects, SUBJECTS)
    swaps = [rng.randrange(2) for _ in chosen]
    t, where = Talk(rng, extras, names), {}
    for session in plan(rng, chosen):
        t.exchange("hello")
        for i, number in session:
            if number is None:
                t.exchange("small", rng.choice(chosen[i][1]))
                continue
            for by, tag, text in chosen[i][2][number]:
                where[i, tag] = t.say(swaps[i] ^ (by == "B"), named(text, swaps[i], names))
        t.exchange("bye")
        t.date += datetime.timedelta(days=rng.randint(4, 20))
    yield {"talk": name, "names": list(names)}
    for at, by, text in t.lines:
        yield {"at": at.isoformat(), "by": by, "text": text}
    for i, (subject, _, _, questions) in enumerate(chosen):
        for ask, tags in questions:
            kind = "several" if len(tags) > 1 else "time" if TIME.search(ask) else "one"
            yield {"ask": named(ask, swaps[i], names), "evidence": [where[i, tag] for tag in tags],
                   "half": half_of(subject), "kind": kind}


def main():
    place = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else HERE)
    for language, all_names in NAMES.items():
        rng = random.Random(11)
        extras, subjects = read(HERE / f"scenes.{language}.txt")
        with open(place / f"scenes.{language}.jsonl", "w", encoding="utf-8") as out:
            for number, names in enumerate(all_names):
                for line in talk(rng, extras, subjects, f"{language}{number + 1}", names):
                    out.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
