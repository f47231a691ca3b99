#!/usr/bin/env python3
"""Writes en.jsonl and zh.jsonl: long talks of two people over many sessions, with questions.

What they are made of stands in facts.en.json and facts.zh.json. {S} is who a fact is about, {O} the
other one, {x} a value. A fact has two ways to tell it, what the other says to it, a way to ask for
each way to tell, and two ways that share hardly a word with it. What is "asked" is told as the
answer to a question, and makes little sense without it.

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

HERE = pathlib.Path(__file__).parent
TURNS = 600
SESSION = 22
BOTH_SHARE = 0.35  # of the facts are told by both
HARD_SHARE = 0.25  # of the questions share hardly a word with what was told


def filler(rng, words, by, to):
    text = []
    opener = rng.choice(words["openers"])
    closer = rng.choice(words["closers"])
    first, second = rng.sample(words["middles"], 2)
    middle = first if rng.random() < 0.5 else first + words["and"] + second
    if not opener or opener[-1] not in ",，":
        middle = middle[0].upper() + middle[1:]
    for part in (opener, middle + words["end"], closer):
        if part:
            text.append(part)
    return words["join"].join(text).replace("{O}", to).replace("{S}", by)


def fill(texts, values):
    for key, value in values.items():
        texts = [t.replace(key, value) for t in texts]
    return texts


def tellings(rng, words, names):
    """(speaker, asked before or None, telling, reply or None, question) of each fact, shuffled."""
    told = []
    for number, fact in enumerate(words["facts"]):
        values, tell, reply, ask = (fact[key] for key in ("values", "tell", "reply", "ask"))
        speakers = [0, 1] if rng.random() < BOTH_SHARE else [rng.randrange(2)]
        for k, (who, value) in enumerate(zip(speakers, rng.sample(values, len(speakers)))):
            way = (number + k) % 2
            question = ask[rng.randrange(2, 4) if rng.random() < HARD_SHARE else way]
            texts = fill([tell[way], reply, question],
                         {"{S}": names[who], "{O}": names[1 - who], "{x}": value})
            told.append((who, None, texts[0][0].upper() + texts[0][1:], texts[1], texts[2]))
    for fact in words["asked"]:
        values, before, tell, ask = (fact[key] for key in ("values", "before", "tell", "ask"))
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
                lines.append((date, names[who], reply + (words["join"] if more else "") + after))
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


def write(place, prefix, seed):
    rng = random.Random(seed)
    words = json.loads((HERE / f"facts.{prefix}.json").read_text(encoding="utf-8"))
    with open(place / f"{prefix}.jsonl", "w", encoding="utf-8") as out:
        for number, names in enumerate(words["names"]):
            for line in talk(rng, words, f"{prefix}{number + 1}", names):
                out.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")


def main():
    place = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else HERE)
    write(place, "en", 7)
    write(place, "zh", 8)


if __name__ == "__main__":
    main()
