#!/usr/bin/python3
"""Golden data of SmolLM2 against hearthd, by way of `hearthd probe`.

    golden.py HEARTHD tests/golden/README.md [KV_TYPE]

HEARTH_MODEL names the model; exit 77 without it. With a KV type that isn't f16, only what depends
on it is checked.

Tolerances: activations are rounded to 8 bits before products, which the reference doesn't do; see
tests/golden/README.md. Against the same reference llama.cpp, which rounds likewise, stays at half
of each bound.
"""
import json
import math
import os
import subprocess
import sys

HEARTHD = sys.argv[1]
FOLDER = os.path.dirname(sys.argv[2])
KV_TYPE = sys.argv[3] if len(sys.argv) > 3 else 'f16'
MODEL = os.environ.get('HEARTH_MODEL', '')
LOGIT_MAX, LOGIT_MEAN, LOGSUMEXP, ENTROPY = 2.0, 0.6, 1.0, 0.5
if KV_TYPE == 'q8_0':
    LOGIT_MEAN = 1.0  # a shift of all of them, which no probability sees
KL_ONE, KL_MEAN = 0.03, 0.01
TOP_LEAD, TOP_SHARED = 0.5, 15
MARGIN = 0.5
NLL_ONE, NLL_MEAN = 1.5, 0.02
# Q4_1, Q5_1, Q2_K, Q4_K, Q5_K have a minimum beside the scale.
WITH_MINIMUM = {'Q4_1', 'Q5_1', 'Q2_K', 'Q4_K', 'Q5_K'}


def lines(name):
    with open(os.path.join(FOLDER, name), encoding='utf-8', newline='\n') as f:
        return [json.loads(line) for line in f.read().split('\n') if line]


def run(text):
    p = subprocess.run([HEARTHD, 'probe', '--model', MODEL, '--kv-type', KV_TYPE], input=text,
                       capture_output=True, text=True, check=False)
    assert p.returncode == 0, (p.returncode, p.stderr[-300:])
    return [json.loads(line) for line in p.stdout.split('\n') if line]


def probe(questions):
    text = ''.join(json.dumps(q) + '\n' for q in questions)
    answers = run(text)
    assert len(answers) == len(questions), len(answers)
    return answers


def tokens():
    golden = lines('tokens-smollm2.jsonl')
    asked = [{'op': 'tokenize', 'text': g['text'], 'special': g['special']} for g in golden]
    for g, a in zip(golden, probe(asked)):
        assert a.get('ids') == g['ids'], (g, a)
    return f'{len(golden)} texts'


def renderings():
    golden = lines('render-smollm2.jsonl')
    asked = [{'op': 'render', 'messages': g['messages'],
              'add_generation_prompt': g['add_generation_prompt']} for g in golden]
    for g, a in zip(golden, probe(asked)):
        assert a.get('ids') == g['ids'] and a['text'] == g['text'], (g, a)
    return f'{len(golden)} chats'


def quants():
    golden = lines('quant.jsonl')
    asked = [{'op': 'dequantize', 'type': g['type'], 'hex': g['hex']} for g in golden]
    for g, a in zip(golden, probe(asked)):
        size = g['block_values'] if g['block_values'] > 1 else len(g['values'])
        assert len(a['values']) == len(g['values']), g['type']
        for at in range(0, len(g['values']), size):
            block = g['values'][at:at + size]
            bound = (1e-6 if g['type'] in WITH_MINIMUM else 2e-7) * max(map(abs, block))
            for x, y in zip(block, a['values'][at:at + size]):
                assert abs(x - y) <= bound, (g['type'], x, y)
    return f'{len(golden)} runs of blocks'


def sampling():
    golden = lines('sampling.jsonl')
    given = ('logits', 'prompt_tokens', 'output_tokens')
    asked = [{'op': 'sample', **{k: g[k] for k in given}, **g['params'],
              'draws': [u for u, _ in g['draws']]} for g in golden]
    for g, a in zip(golden, probe(asked)):
        assert len(g['probs']) == len(a['probs']), (g, a)
        assert all(abs(x - y) <= 1e-6 for x, y in zip(g['probs'], a['probs'])), (g, a)
        assert [d[1] for d in a['draws']] == [d[1] for d in g['draws']], (g, a)
    return f'{len(golden)} distributions'


def divergence(g, a):
    """KL over the 20 golden classes and one for the rest."""
    known = dict(map(tuple, a['probe']))
    p = [math.exp(x - g['logsumexp']) for _, x in g['top']]
    q = [math.exp(known[i] - a['logsumexp']) for i, _ in g['top']]
    kl = sum(x * math.log(x / y) for x, y in zip(p, q))
    if 1 - sum(p) >= 1e-4:
        kl += (1 - sum(p)) * math.log((1 - sum(p)) / (1 - sum(q)))
    return kl


def logits():
    golden = lines('logits-smollm2.jsonl')
    asked = [{'op': 'logits', 'ids': g['ids'], 'top': 20,
              'probe': [i for i, _ in g['top'] + g['probe']]} for g in golden]
    kls, worst = [], 0
    for g, a in zip(golden, probe(asked)):
        n = g['n']
        off = [abs(x - y) for (_, x), (_, y) in zip(g['top'] + g['probe'], a['probe'])]
        worst = max(worst, max(off))
        assert max(off) <= LOGIT_MAX and sum(off) / len(off) <= LOGIT_MEAN, (n, max(off))
        assert abs(a['logsumexp'] - g['logsumexp']) <= LOGSUMEXP, n
        assert abs(a['entropy'] - g['entropy']) <= ENTROPY, n
        if g['top'][0][1] - g['top'][1][1] > TOP_LEAD:
            assert a['top'][0][0] == int(g['top'][0][0]), n
        assert len({i for i, _ in g['top']} & {i for i, _ in a['top']}) >= TOP_SHARED, n
        kls.append(divergence(g, a))
        assert kls[-1] <= KL_ONE, (n, kls[-1])
    assert sum(kls) / len(kls) <= KL_MEAN, kls
    return (f'{len(golden)} prompts, KL mean {sum(kls) / len(kls):.4f}, largest {max(kls):.4f}; '
            f'logits off by {worst:.2f} at most')


def greedy():
    """Prompt and golden continuation are read at once; the likeliest next id is compared where the
    golden lead is clear."""
    golden = lines('greedy-smollm2.jsonl')
    asked = [{'op': 'nll', 'ids': ids, 'window': len(ids), 'each': True}
             for ids in (g['ids'] + g['continuation'] for g in golden)]
    n, other = 0, 0
    for g, a in zip(golden, probe(asked)):
        for step, (want, margin) in enumerate(zip(g['continuation'], g['margins'])):
            got = a['argmax'][len(g['ids']) - 1 + step]
            assert got == want or margin < MARGIN, (g['text'], step, margin)
            n, other = n + 1, other + (got != want)
    return f'{n} steps, {other} close ones decided otherwise'


def nll():
    with open(os.path.join(FOLDER, 'nll-smollm2.json'), encoding='utf-8') as f:
        golden = json.load(f)['smollm2']
    with open(os.path.join(FOLDER, 'nll-text.txt'), encoding='utf-8') as f:
        text = f.read()
    window, ids = golden['window'], [i for w in golden['windows'] for i in w['ids']]
    same, a = probe([{'op': 'tokenize', 'text': text, 'special': False},
                     {'op': 'nll', 'ids': ids, 'window': window, 'each': True}])
    assert same['ids'][:len(ids)] == ids
    want = [x for w in golden['windows'] for x in w['nll']]
    assert len(a['nll']) == len(want) and max(abs(x - y) for x, y in zip(want, a['nll'])) <= NLL_ONE
    assert abs(a['nats_per_token'] - golden['mean_all']) <= NLL_MEAN, a['nats_per_token']
    assert abs(a['second_half'] - golden['mean_second_half']) <= NLL_MEAN, a['second_half']
    return (f'{a["nats_per_token"]:.4f} nats per token (reference {golden["mean_all"]:.4f}), '
            f'second halves {a["second_half"]:.4f} ({golden["mean_second_half"]:.4f})')


def bad_lines():
    """Each line is answered, whatever the one before it was."""
    good = {'op': 'tokenize', 'text': 'a\0b', 'special': False}
    bad = [
        '',
        '{',
        '[]',
        '{"op":"x"}',
        '{"op":"logits","ids":[]}',
        '{"op":"logits","ids":[-1]}',
        '{"op":"logits","ids":[49152]}',
        '{"op":"logits","ids":[1,2],"cached":2}',
        '{"op":"logits","ids":[1],"isa":"abacus"}',
        '{"op":"logits","ids":[1],"chunk":0}',
        '{"op":"logits","ids":[],"chunk":2147483647}',
        '{"op":"tokenize","text":"x","special":"yes"}',
        '{"op":"render","messages":[],"add_generation_prompt":1}',
        '{"op":"nll","ids":[1,2],"each":"x"}',
        '{"op":"dequantize","type":"Q9","hex":"00"}',
        '{"op":"dequantize","type":"Q4_1","hex":"0"}',
        '{"op":"sample","logits":[null]}',
        '{"op":"sample","logits":[1],"top_p":0}',
        '{"op":"render","messages":[{"role":"tool","content":""}]}',
        '{"op":"nll","ids":[1]}',
    ]
    text = ''.join(f'{line}\n{json.dumps(good)}\n' for line in bad)
    answers = run(text)
    assert len(answers) == 2 * len(bad), len(answers)
    for line, a, after in zip(bad, answers[::2], answers[1::2]):
        assert list(a) == ['error'] and isinstance(a['error'], str) and a['error'], (line, a)
        assert len(after['ids']) == 3, (line, after)
    return f'{len(bad)} bad lines'


def odd_chunks():
    """A slice longer than the sequence is the whole of it, also where position + slice outgrow an
    int."""
    questions = [{'op': 'logits', 'ids': [1, 2, 3], 'top': 1, 'chunk': chunk, 'cached': cached}
                 for chunk in (3, 4, 2 ** 31 - 1) for cached in (0, 1, 2)]
    hashes = {a.get('hash', str(a)) for a in probe(questions)}
    assert len(hashes) == 1, hashes
    return f'{len(questions)} ways, one hash'


def main():
    if not os.path.exists(MODEL):
        print(f'no model at {MODEL!r}: skipped')
        return 77
    once = (tokens, renderings, quants, sampling, bad_lines)
    for check in (*(once if KV_TYPE == 'f16' else ()), odd_chunks, logits, greedy, nll):
        print(f'{check.__name__}: {check()}', flush=True)
    return 0


if __name__ == '__main__':
    sys.exit(main())
