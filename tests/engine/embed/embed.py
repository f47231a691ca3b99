#!/usr/bin/python3
"""Vectors of engine/embed.c against float64 references: models with random weights, made and
computed on the spot, and all-MiniLM-L6-v2 against tests/golden/embed-minilm.jsonl.

    embed.py MKBERT EMBED_LINES [golden]
"""
import json
import math
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, 'reference'))
import bert  # noqa: E402

TEXTS = ['the peanut', 'Hello, World! embedding', '', 'a', 'unaffable ' * 30,
         'naïve Ålesund Straße',
         '中文 and あ', 'x' * 101 + ' y', '\x00\u200b tabs\tand\nlines\u3000 end\u2028.', '😀 smile',
         'ΣΣ', "it's $5 — «quoted»", ' '.join('word%d' % i for i in range(90)), '\ufffd\ue000']
SHAPES = [[], ['--pooling', '2', '--seed', '2'], ['--marks-pieces', '1', '--seed', '3'],
          ['--embd', '96', '--heads', '3', '--ff', '160', '--layers', '3', '--type', 'F16'],
          ['--embd', '64', '--heads', '1', '--ff', '32', '--type', 'Q8_0', '--ctx', '512'],
          ['--embd', '12', '--heads', '6', '--ff', '7', '--layers', '1', '--ctx', '3']]


def run(embed_lines, model, texts):
    """[(ids, vector)] by the program under test, in one batch."""
    done = subprocess.run([embed_lines, model], input=b''.join(t.encode() + b'\0' for t in texts),
                          stdout=subprocess.PIPE, check=True)
    lines = done.stdout.decode().split('\n')[:-1]
    return [([int(x) for x in i.split()], [float(x) for x in v.split()])
            for i, v in zip(lines[::2], lines[1::2])]


def difference(a, b):
    return max(abs(x - y) for x, y in zip(a, b))


def compare(got, want_ids, want, what, bound):
    ids, vector = got
    assert ids == want_ids, f'{what}: ids {ids}, not {want_ids}'
    assert len(vector) == len(want), f'{what}: {len(vector)} values, not {len(want)}'
    assert abs(math.sqrt(bert.dot(vector, vector)) - 1) < 1e-6, f'{what}: not of length 1'
    assert difference(vector, want) < bound, f'{what}: {difference(vector, want)}'
    return difference(vector, want)


def random_models(mkbert, embed_lines):
    texts = [t for t in TEXTS if '\0' not in t]
    with tempfile.TemporaryDirectory() as folder:
        for n, shape in enumerate(SHAPES):
            model = os.path.join(folder, f'{n}.gguf')
            subprocess.run([mkbert, model, *shape], check=True)
            reference = bert.Bert(model)
            worst = max(compare(got, *reference.embed(text), f'{shape}, {text[:40]!r}', 2e-5)
                        for text, got in zip(texts, run(embed_lines, model, texts)))
            print(f'{shape}: {worst:.1e}')
            one = run(embed_lines, model, texts[1:2])[0]
            beside = run(embed_lines, model, texts)[1]
            assert difference(one[1], beside[1]) < 1e-6, 'a text depends on its neighbours'


def golden(embed_lines):
    model = os.environ['HEARTH_MINILM']
    if not os.path.exists(model):
        print('no', model, '(scripts/get-model minilm)')
        sys.exit(77)
    with open(os.path.join(ROOT, 'golden', 'embed-minilm.jsonl'), encoding='utf-8') as f:
        cases = [json.loads(line) for line in f]
    assert len(cases) >= 8
    for case, got in zip(cases, run(embed_lines, model, [c['text'] for c in cases])):
        worst = compare(got, case['ids'], case['vector'], case['text'], 1e-4)
        assert bert.dot(got[1], case['vector']) > 0.999
        print(f'{case["text"][:40]!r}: {worst:.1e}')
    vectors = {c['text']: c['vector'] for c in cases}
    snack, peanut = vectors['What can I eat as a snack?'], vectors["I'm allergic to peanuts."]
    other = vectors['The train to Osaka leaves at nine.']
    assert bert.dot(snack, peanut) > bert.dot(snack, other) + 0.2


if __name__ == '__main__':
    if sys.argv[3:] == ['golden']:
        golden(sys.argv[2])
    else:
        random_models(*sys.argv[1:3])
