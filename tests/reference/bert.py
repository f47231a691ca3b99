#!/usr/bin/python3
"""Sentence vectors of a BERT-type GGUF in float64, by plain Python: what engine/embed.c is tested
against. Written for reading, shares nothing with it, slow (a sentence with MiniLM: ten seconds).

    tests/reference/bert.py MODEL.gguf TEXT…      a line of JSON for each: {"text", "ids", "vector"}

F32, F16 and Q8_0 tensors; vocabularies in llama.cpp's spelling and in the models' own.
"""
import json
import math
import sys
import unicodedata
from operator import mul

from gguf import Gguf

# ---- WordPiece ----

def is_punctuation(ch):
    return (33 <= ord(ch) <= 47 or 58 <= ord(ch) <= 64 or 91 <= ord(ch) <= 96 or
            123 <= ord(ch) <= 126 or unicodedata.category(ch).startswith('P'))


def is_ideograph(ch):
    c = ord(ch)
    return (0x4E00 <= c <= 0x9FFF or 0x3400 <= c <= 0x4DBF or 0x20000 <= c <= 0x2A6DF or
            0x2A700 <= c <= 0x2CEAF or 0xF900 <= c <= 0xFAFF or 0x2F800 <= c <= 0x2FA1F)


def clean(text):
    out = []
    for ch in text:
        if ch in '\t\n\r' or unicodedata.category(ch) in ('Zs', 'Zl', 'Zp'):
            out.append(' ')
        elif ch == '\ufffd' or unicodedata.category(ch) in ('Cc', 'Cf', 'Cs', 'Co'):
            continue
        else:
            out.append(f' {ch} ' if is_ideograph(ch) else ch)
    text = unicodedata.normalize('NFD', ''.join(out))
    return ''.join(ch.lower() for ch in text if unicodedata.category(ch) != 'Mn')


def words(text):
    for part in clean(text).split(' '):
        word = ''
        for ch in part:
            if is_punctuation(ch):
                yield from [word] if word else []
                yield ch
                word = ''
            else:
                word += ch
        yield from [word] if word else []


class Vocabulary:
    def __init__(self, keys):
        pieces = [p.decode() for p in keys['tokenizer.ggml.tokens']]
        marked = any(len(p) > 1 and p[0] == '\u2581' for p in pieces)
        self.begins, self.continues, self.special = {}, {}, {}
        for i, p in enumerate(pieces):
            if p in ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]'):
                self.special[p] = i
            elif marked:
                is_begin = p[0] == '\u2581'
                (self.begins if is_begin else self.continues).setdefault(p[is_begin:], i)
            elif p.startswith('##') and len(p) > 2:
                self.continues.setdefault(p[2:], i)
            else:
                self.begins.setdefault(p, i)

    def spell(self, word):
        ids, at = [], 0
        while at < len(word) and len(word) <= 100:
            table = self.continues if at else self.begins
            end = next((k for k in range(len(word), at, -1) if word[at:k] in table), None)
            if end is None:
                break
            ids.append(table[word[at:end]])
            at = end
        return ids if at == len(word) else [self.special['[UNK]']]

    def encode(self, text, limit):
        ids = [i for w in words(text) for i in self.spell(w)]
        return [self.special['[CLS]']] + ids[:limit - 2] + [self.special['[SEP]']]


# ---- the network ----

def dot(a, b):
    return sum(map(mul, a, b))


def linear(x, w, b):
    return [[dot(row, col) + c for col, c in zip(w, b)] for row in x]


def norm(x, w, b, eps):
    out = []
    for row in x:
        mean = sum(row) / len(row)
        scale = 1 / math.sqrt(sum((v - mean) ** 2 for v in row) / len(row) + eps)
        out.append([(v - mean) * scale * g + c for v, g, c in zip(row, w, b)])
    return out


def softmax(row):
    top = max(row)
    e = [math.exp(v - top) for v in row]
    return [v / sum(e) for v in e]


def attend(q, k, v, n_heads):
    dim = len(q[0]) // n_heads
    out = [[] for _ in q]
    for h in range(n_heads):
        part = slice(h * dim, (h + 1) * dim)
        columns = list(zip(*(row[part] for row in v)))
        for i, row in enumerate(q):
            weights = softmax([dot(row[part], other[part]) / math.sqrt(dim) for other in k])
            out[i] += [dot(weights, c) for c in columns]
    return out


def plus(x, y):
    return [[a + b for a, b in zip(r, s)] for r, s in zip(x, y)]


class Bert:
    def __init__(self, path):
        self.g = Gguf(path)
        self.vocabulary = Vocabulary(self.g.keys)
        self.limit = min(self.g.keys['bert.context_length'], 512)
        self.layers = [{} for _ in range(self.g.keys['bert.block_count'])]

    def layer(self, i, stem):
        """Weight and bias, read once."""
        if stem not in self.layers[i]:
            self.layers[i][stem] = [self.g.rows(f'blk.{i}.{stem}.{k}') for k in ('weight', 'bias')]
        return self.layers[i][stem]

    def run(self, ids):
        g, eps = self.g, self.g.keys['bert.attention.layer_norm_epsilon']
        x = plus(g.rows('token_embd.weight', ids), g.rows('position_embd.weight', range(len(ids))))
        x = plus(x, g.rows('token_types.weight', [0]) * len(ids))
        x = norm(x, g.rows('token_embd_norm.weight'), g.rows('token_embd_norm.bias'), eps)
        for i in range(len(self.layers)):
            q, k, v = (linear(x, *self.layer(i, f'attn_{n}')) for n in 'qkv')
            y = attend(q, k, v, g.keys['bert.attention.head_count'])
            y = linear(y, *self.layer(i, 'attn_output'))
            x = norm(plus(x, y), *self.layer(i, 'attn_output_norm'), eps)
            y = linear(x, *self.layer(i, 'ffn_up'))
            y = [[v / 2 * (1 + math.erf(v / math.sqrt(2))) for v in row] for row in y]
            y = linear(y, *self.layer(i, 'ffn_down'))
            x = norm(plus(x, y), *self.layer(i, 'layer_output_norm'), eps)
        pooled = x[0] if g.keys.get('bert.pooling_type') == 2 else [sum(c) for c in zip(*x)]
        length = math.sqrt(dot(pooled, pooled))
        return [v / length for v in pooled]

    def embed(self, text):
        ids = self.vocabulary.encode(text, self.limit)
        return ids, self.run(ids)


def main(argv):
    if len(argv) < 2:
        sys.exit(__doc__)
    model = Bert(argv[0])
    for text in argv[1:]:
        ids, vector = model.embed(text)
        print(json.dumps({'text': text, 'ids': ids, 'vector': [float(f'{v:.7g}') for v in vector]},
                         ensure_ascii=False))
        sys.stdout.flush()


if __name__ == '__main__':
    main(sys.argv[1:])
