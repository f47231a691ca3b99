#!/usr/bin/env python3
"""Writes en.jsonl and zh.jsonl: long talks of two people over many sessions, and questions about them.

Deterministic. Each fact is told once, by one of the two (some by both, with different values); the
talk in between uses the facts' words. Four talks a language, about 600 turns each:

    {"talk": "en1", "names": ["Maria", "Tom"]}
    {"at": "2024-03-05", "by": "Maria", "text": "…"}                one turn a line, numbered from 0
    {"ask": "What food is Maria allergic to?", "evidence": [17]}    after the talk's turns

Usage: generate.py [DIRECTORY]
"""

import datetime
import json
import pathlib
import random
import sys

import chinese
import english

TURNS = 600
SESSION = 22
BOTH_SHARE = 0.35  # of the facts are told by both
HARD_SHARE = 0.25  # of the questions share hardly a word with what was told


def filler(rng, words, by, to):
    text = []
    opener = rng.choice(words.OPENERS)
    closer = rng.choice(words.CLOSERS)
    first, second = rng.sample(words.MIDDLES, 2)
    middle = first if rng.random() < 0.5 else first + ("，" if words.JOIN == "" else ", and ") + second
    if not opener or opener[-1] not in ",，":
        middle = middle[0].upper() + middle[1:]
    for part in (opener, middle + words.END, closer):
        if part:
            text.append(part)
    return words.JOIN.join(text).replace("{O}", to).replace("{S}", by)


def fill(texts, values):
    for key, value in values.items():
        texts = [t.replace(key, value) for t in texts]
    return texts


def tellings(rng, words, names):
    """(speaker, asked before or None, telling, reply or None, question) of each fact, shuffled."""
    told = []
    for number, (values, tell, reply, ask) in enumerate(words.FACTS):
        speakers = [0, 1] if rng.random() < BOTH_SHARE else [rng.randrange(2)]
        for k, (who, value) in enumerate(zip(speakers, rng.sample(values, len(speakers)))):
            way = (number + k) % 2
            question = ask[rng.randrange(2, 4) if rng.random() < HARD_SHARE else way]
            texts = fill([tell[way], reply, question],
                         {"{S}": names[who], "{O}": names[1 - who], "{x}": value})
            told.append((who, None, texts[0][0].upper() + texts[0][1:], texts[1], texts[2]))
    for values, before, tell, ask in words.ASKED:
        who = rng.randrange(2)
        texts = fill([before, tell, ask[rng.randrange(2)]],
                     {"{S}": names[who], "{O}": names[1 - who], "{x}": rng.choice(values)})
        told.append((who, texts[0], texts[1], None, texts[2]))
    rng.shuffle(told)
    return told


def talk(rng, words, name, names):
    told = tellings(rng, words, names)
    places = set(rng.sample(range(5, TURNS // 3 - 3), len(told)))
    lines, asked, who = [], [], 0
    date = datetime.date(2024, 1, 8)
    for block in range(TURNS // 3):
        if block in places:
            speaker, before, telling, reply, ask = told.pop()
            # Whoever tells it must be next; with a question before it, whoever asks.
            if (speaker if before is None else 1 - speaker) != who:
                lines.append((date, names[who], filler(rng, words, names[who], names[1 - who])))
                who = 1 - who
            if before is not None:
                lines.append((date, names[who], before))
                who = 1 - who
            asked.append((ask, [len(lines)]))
            lines.append((date, names[who], telling))
            who = 1 - who
            if reply is not None:
                more = rng.random() < 0.4
                after = filler(rng, words, names[who], names[1 - who]) if more else ""
                lines.append((date, names[who], reply + (words.JOIN if more else "") + after))
                who = 1 - who
        else:
            for _ in range(3):
                lines.append((date, names[who], filler(rng, words, names[who], names[1 - who])))
                who = 1 - who
        if len(lines) // SESSION != (len(lines) - 3) // SESSION:
            date += datetime.timedelta(days=rng.randint(1, 12))
    yield {"talk": name, "names": list(names)}
    for at, by, text in lines:
        yield {"at": at.isoformat(), "by": by, "text": text}
    for ask, evidence in asked:
        yield {"ask": ask, "evidence": evidence}


def write(path, words, seed, prefix):
    rng = random.Random(seed)
    with open(path, "w", encoding="utf-8") as out:
        for number, names in enumerate(words.NAMES):
            for line in talk(rng, words, f"{prefix}{number + 1}", names):
                out.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")


def main():
    place = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    write(place / "en.jsonl", english, 7, "en")
    write(place / "zh.jsonl", chinese, 8, "zh")


if __name__ == "__main__":
    main()
