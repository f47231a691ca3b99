#!/usr/bin/python3
"""The vocabulary of a byte-level BPE model, small enough to keep here.

    vocab.py pack MODEL.gguf OUT.txt.xz     what the repository holds
    vocab.py gguf IN.txt.xz OUT.gguf        a GGUF without tensors, which the build makes
    vocab.py gguf IN.txt.xz OUT.gguf FILE   the same, with the control tokens of FILE (one a line)

The packed form is one line of JSON (the 256 byte tokens, the tokens behind the merges with their
types, the template), then the merges: each merge's result is the next token, so the tokens between
need not be written.
"""
import json
import lzma
import struct
import sys

INTS = {0: 'B', 1: 'b', 2: 'H', 3: 'h', 4: 'I', 5: 'i', 6: 'f', 7: '?', 10: 'Q', 11: 'q', 12: 'd'}
KEYS = ('tokenizer.ggml.model', 'tokenizer.ggml.pre', 'tokenizer.chat_template')
IDS = ('tokenizer.ggml.bos_token_id', 'tokenizer.ggml.eos_token_id')


def read_metadata(path):
    with open(path, 'rb') as f:
        def take(fmt):
            return struct.unpack('<' + fmt, f.read(struct.calcsize('<' + fmt)))

        def string():
            return f.read(take('Q')[0]).decode()

        def value(kind):
            if kind == 8:
                return string()
            if kind == 9:
                inner, n = take('IQ')
                return [value(inner) for _ in range(n)]
            return take(INTS[kind])[0]

        _, _, _, n_keys = take('4sIQQ')
        return {string(): value(take('I')[0]) for _ in range(n_keys)}


def pack(model, out):
    meta = read_metadata(model)
    tokens, types, merges = (meta['tokenizer.ggml.' + k]
                             for k in ('tokens', 'token_type', 'merges'))
    for i, merge in enumerate(merges):
        assert tokens[256 + i] == merge.replace(' ', '', 1) and types[256 + i] == 1, merge
    behind = list(zip(tokens, types))[256 + len(merges):]
    head = {'base': tokens[:256], 'behind': behind, **{k: meta[k] for k in KEYS + IDS}}
    text = json.dumps(head, ensure_ascii=False) + '\n' + '\n'.join(merges) + '\n'
    with open(out, 'wb') as f:
        f.write(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def write_gguf(packed, out, controls=None):
    with open(packed, 'rb') as f:
        first, *merges = lzma.decompress(f.read()).decode().rstrip('\n').split('\n')
    head = json.loads(first)
    if controls:
        with open(controls, encoding='utf-8') as f:
            head['behind'] += [(line.rstrip('\n'), 3) for line in f]
    tokens = head['base'] + [m.replace(' ', '', 1) for m in merges] + [t for t, _ in head['behind']]
    types = [1] * (256 + len(merges)) + [k for _, k in head['behind']]

    def string(s):
        b = s.encode()
        return struct.pack('<Q', len(b)) + b

    def strings(items):
        return struct.pack('<IIQ', 9, 8, len(items)) + b''.join(map(string, items))

    values = {'general.architecture': struct.pack('<I', 8) + string('qwen2'),
              'tokenizer.ggml.tokens': strings(tokens),
              'tokenizer.ggml.merges': strings(merges),
              'tokenizer.ggml.token_type':
                  struct.pack('<IIQ%di' % len(types), 9, 5, len(types), *types)}
    values.update({k: struct.pack('<I', 8) + string(head[k]) for k in KEYS})
    values.update({k: struct.pack('<II', 4, head[k]) for k in IDS})
    body = b'GGUF' + struct.pack('<IQQ', 3, 0, len(values))
    body += b''.join(string(k) + v for k, v in values.items())
    with open(out, 'wb') as f:
        f.write(body + bytes(-len(body) % 32))


if __name__ == '__main__':
    {'pack': pack, 'gguf': write_gguf}[sys.argv[1]](*sys.argv[2:])
