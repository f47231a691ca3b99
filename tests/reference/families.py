#!/usr/bin/env python3
"""Small vocabularies cut out of the families' own, and what independent programs make of texts.

    families.py NAME:FILE.gguf ... > tests/golden/families.jsonl

NAME is one of DEFINITIONS (byte-level BPE; the ids are by Hugging Face's `tokenizers`) or "spm-"
and anything (by `sentencepiece`). Of a vocabulary are kept: the bytes, the first merges, the
pieces that the texts need without merges, and some special tokens. One object a line:

    {"family", "pre", "pieces", "types", "merges" or "scores", "cases": [[text, ids], ...]}

In a text no control token is matched; user-defined ones are. Needs the PyPI packages
tokenizers (0.23.3 was used), sentencepiece (0.2.3) and protobuf.
"""
import json
import os
import random
import re
import sys

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from pretok import PRE

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '../golden'))
from vocab import read_metadata

N_MERGES, N_PIECES = 300, 240
CONTROL, USER_DEFINED, BYTE = 3, 4, 6
WORDS = ['The', ' quick', ' fox', "I'LL", "we've", ' ', '   ', '\t', '\n', '\n\n', '\r\n', '1',
         '22', '4444444', '.', '...\n', '!?', '(', ')', '_x', '/', '\u00e9', 'e\u0301', '\u212b',
         '\u4f60\u597d', '\u3002', '\u3053\u3093', '\ud55c', '\u0645\u0631', '\u0661\u0662',
         '\u0915\u094d\u0937', '\u0e2a\u0e27\u0e31', '\u0441\u043b', '\u01c5', '\u00bd',
         '\U0001f469\u200d\U0001f680', '\U0001f1e9\U0001f1ea', '\u200d', '\ufffd', '\ue000',
         '\x00', '\x1b', '\u00a0', '\u2581', 'camelCase', 'HTTPServer', '$9', '`a`', '~', '^',
         '|', '<s>', '</s>', '<0x0A>']


def texts(specials):
    random.seed(11)
    own = ['', ' ', '  a  b', 'I\'ll, I\'LL, I\u2019ll x', 'x = 1234567.5;\r\n\r\n\ty', 'a' * 40,
           ' ' * 33 + 'x']
    own += [f'hi{s} there {s}' for s in specials]
    return own + [''.join(random.choices(WORDS, k=random.randint(2, 12))) for _ in range(36)]


def digits():
    return pre_tokenizers.Digits(True)


def byte_level(splits):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=splits)


def cut_by(*names):
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(p), 'isolated') for n in names for p in PRE[n]] +
        [byte_level(False)])


DEFINITIONS = { # the models' own: what normalises, what cuts
    'gpt-2': (None, lambda: byte_level(True)),
    'starcoder': (None, lambda: pre_tokenizers.Sequence([digits(), byte_level(True)])),
    'falcon': (None, lambda: pre_tokenizers.Sequence(
        [pre_tokenizers.Punctuation('contiguous'), byte_level(True), pre_tokenizers.Digits(False),
         pre_tokenizers.Split(Regex('[0-9][0-9][0-9]'), 'isolated')])),
    'mpt': ('NFC', lambda: byte_level(True)),
    'command-r': ('NFC', lambda: pre_tokenizers.Sequence([digits(), byte_level(True)])),
    'llama-bpe': (None, lambda: cut_by('llama-bpe')),
    'dbrx': (None, lambda: cut_by('llama-bpe')),
    'qwen2': ('NFC', lambda: cut_by('qwen2')),
    'gpt-4o': (None, lambda: cut_by('gpt-4o')),
    'tekken': (None, lambda: cut_by('tekken')),
    'deepseek-v3': (None, lambda: cut_by('deepseek-v3')),
    'deepseek-coder': (None, lambda: cut_by('deepseek-coder')),
}


def read(path):
    meta = read_metadata(path)
    tokens, types, merges, scores = (meta.get('tokenizer.ggml.' + key)
                                     for key in ('tokens', 'token_type', 'merges', 'scores'))
    return tokens, types, merges, scores


def some_specials(tokens, types):
    control = [t for t, k in zip(tokens, types) if k == CONTROL and not t.startswith('[PAD')]
    own = [t for t, k in zip(tokens, types) if k == USER_DEFINED and re.search(r'\S', t)]
    named = [t for t in control + own if re.search('user|inst|end|start|s>|think|tool', t, re.I)]
    spaces = [t for t, k in zip(tokens, types) if k == USER_DEFINED and not re.search(r'\S', t)]
    return (control[:3] + named[:8] + own[:3]), spaces[-3:]


def is_mark(token):
    return re.fullmatch(r'<\|.+\|>|<\uff5c.+\uff5c>', token, re.S) is not None


def bpe(name, path):
    tokens, types, merges, _ = read(path)
    kind = dict(zip(tokens, types))
    base = [t for t in tokens if len(t) == 1 and kind[t] == 1 and t.isprintable()]
    base = [t for t in base if ord(t) < 0x144]
    have, kept = dict.fromkeys(base), []
    for merge in merges:
        left, right = merge.split(' ', 1)
        if left in have and right in have and kind.get(left + right) == 1:
            kept.append(merge)
            have[left + right] = None
            if len(kept) == N_MERGES:
                break
    specials, spaces = some_specials(tokens, types)
    specials = list(dict.fromkeys(specials + spaces))
    whole = make_bpe(name, {t: i for i, t in enumerate(tokens) if types[i] == 1}, merges, [])
    for text in texts([]): # pieces that only a rule like "whole pieces first" reaches
        for token in whole.encode(text).tokens[:2]:
            have.setdefault(token)
    pieces = list(have) + specials
    cases = make_bpe(name, {t: i for i, t in enumerate(pieces)}, kept,
                     [s for s in specials if kind[s] == USER_DEFINED and not is_mark(s)])
    return {'family': name, 'pre': name, 'pieces': pieces,
            'types': [kind[t] if t in specials else 1 for t in pieces], 'merges': kept,
            'cases': [[t, cases.encode(t).ids] for t in texts(specials)]}


def make_bpe(name, vocab, merges, added):
    pairs = [tuple(m.split(' ', 1)) for m in merges]
    pairs = [p for p in pairs if p[0] in vocab and p[1] in vocab and p[0] + p[1] in vocab]
    whole_first = name in ('llama-bpe', 'tekken')
    made = Tokenizer(models.BPE(vocab=vocab, merges=pairs, ignore_merges=whole_first))
    norm, pre = DEFINITIONS[name]
    if norm:
        made.normalizer = normalizers.NFC()
    made.pre_tokenizer = pre()
    made.add_tokens([AddedToken(t, normalized=False) for t in added])
    return made


def spm(name, path):
    tokens, types, _, scores = read(path)
    special = [i for i in range(len(tokens)) if types[i] in (2, CONTROL, USER_DEFINED)]
    first = special[:12] + [i for i in range(len(tokens)) if types[i] == BYTE]
    rest = [i for i in range(len(tokens)) if types[i] == 1]
    keep = first + rest[:N_PIECES] + [tokens.index('\u2581')] + rest[-N_PIECES // 2:]
    model = sentencepiece_model_pb2.ModelProto()
    model.trainer_spec.model_type, model.trainer_spec.byte_fallback = 2, True
    model.trainer_spec.vocab_size = len(keep)
    model.normalizer_spec.name = 'identity'
    model.normalizer_spec.add_dummy_prefix = True
    model.normalizer_spec.remove_extra_whitespaces = False
    for i in keep:
        piece = model.pieces.add()
        piece.piece, piece.score, piece.type = tokens[i], scores[i], types[i]
    made = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
    specials = [tokens[i] for i in first if types[i] == CONTROL][:6]
    return {'family': name, 'pieces': [tokens[i] for i in keep], 'types': [types[i] for i in keep],
            'scores': [scores[i] for i in keep],
            'cases': [[t, made.encode(t)] for t in texts(specials)]}


def main():
    for arg in sys.argv[1:]:
        name, path = arg.split(':', 1)
        line = (spm if name.startswith('spm-') else bpe)(name, path)
        print(json.dumps(line, ensure_ascii=True, separators=(',', ':')), flush=True)


if __name__ == '__main__':
    main()
