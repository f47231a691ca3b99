#!/usr/bin/python3
"""Makes a GGUF embedding model of a sentence-transformers folder of the BERT kind.

    scripts/bert_to_gguf.py [--f32] SOURCE OUT.gguf [NAME]

SOURCE is a folder, or a wheel or zip with one inside, that holds config.json, vocab.txt and
model.safetensors, and may hold 1_Pooling/config.json. Plain Python, nothing to install.

Keys, tensor names and the spelling of the vocabulary are those that llama.cpp gives such models: a
piece that begins a word has U+2581 before it, one that continues a word has lost its "##". Matrices
are F16 (--f32: as they are), vectors F32; the pooler, which no sentence vector needs, is left out.
The same source gives the same bytes.
"""
import json
import os
import struct
import sys
import zipfile

ALIGNMENT = 32
U32, F32, BOOL, STRING, ARRAY, I32 = 4, 6, 7, 8, 9, 5
TENSOR_F32, TENSOR_F16 = 0, 1
NORMAL, UNKNOWN, CONTROL = 1, 2, 3
SPECIAL = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]')
MAX_PART = 1 << 20  # values converted at once

GLOBAL = {
    'embeddings.word_embeddings.weight': 'token_embd.weight',
    'embeddings.position_embeddings.weight': 'position_embd.weight',
    'embeddings.token_type_embeddings.weight': 'token_types.weight',
    'embeddings.LayerNorm': 'token_embd_norm',
}
LAYER = {
    'attention.self.query': 'attn_q',
    'attention.self.key': 'attn_k',
    'attention.self.value': 'attn_v',
    'attention.output.dense': 'attn_output',
    'attention.output.LayerNorm': 'attn_output_norm',
    'intermediate.dense': 'ffn_up',
    'output.dense': 'ffn_down',
    'output.LayerNorm': 'layer_output_norm',
}


def fail(text):
    sys.exit(f'bert_to_gguf: {text}')


class Source:
    """A folder, or the folder inside of a zip: files by their name below it."""

    def __init__(self, path):
        self.path, self.zip = path, None
        if not os.path.isdir(path):
            self.zip = zipfile.ZipFile(path)
            found = [n for n in self.zip.namelist() if n.endswith('/model.safetensors')]
            if len(found) != 1:
                fail(f'{path} holds {len(found)} files named model.safetensors, not one')
            self.path = found[0].rsplit('/', 1)[0]

    def read(self, name, must=True):
        try:
            if self.zip:
                return self.zip.read(f'{self.path}/{name}')
            with open(os.path.join(self.path, name), 'rb') as f:
                return f.read()
        except (KeyError, FileNotFoundError):
            if must:
                fail(f'{name} is missing')
            return None

    def json(self, name, must=True):
        data = self.read(name, must)
        return json.loads(data) if data else {}


def tensor_name(name):
    """GGUF's name of a tensor, or None for one that isn't needed."""
    name = name.removeprefix('bert.')
    if name in GLOBAL:
        return GLOBAL[name]
    stem, kind = name.rsplit('.', 1)
    if stem in GLOBAL:
        return f'{GLOBAL[stem]}.{kind}'
    if stem.startswith('encoder.layer.'):
        i, part = stem.removeprefix('encoder.layer.').split('.', 1)
        if part in LAYER:
            return f'blk.{int(i)}.{LAYER[part]}.{kind}'
    if name == 'embeddings.position_ids' or name.startswith('pooler.'):
        return None
    fail(f'tensor {name} is none of a BERT model')


def read_tensors(data):
    """[(name, shape, bytes of F32)], in the order of their GGUF names."""
    n = struct.unpack_from('<Q', data)[0]
    head, base, found = json.loads(data[8:8 + n]), 8 + n, []
    for name, about in head.items():
        to = tensor_name(name) if name != '__metadata__' else None
        if not to:
            continue
        if about['dtype'] != 'F32':
            fail(f'tensor {name} is {about["dtype"]}, not F32')
        begin, end = about['data_offsets']
        found.append((to, about['shape'], memoryview(data)[base + begin:base + end]))
    return sorted(found, key=lambda t: [int(p) if p.isdigit() else p for p in t[0].split('.')]
                  if t[0].startswith('blk.') else ['', t[0]])


def to_f16(data):
    out = bytearray()
    for i in range(0, len(data), 4 * MAX_PART):
        part = data[i:i + 4 * MAX_PART]
        n = len(part) // 4
        out += struct.pack(f'<{n}e', *struct.unpack(f'<{n}f', part))
    return bytes(out)


# ---- GGUF ----

def string(s):
    data = s.encode() if isinstance(s, str) else s
    return struct.pack('<Q', len(data)) + data


class Keys:
    """Key-value pairs as GGUF has them."""

    def __init__(self):
        self.n, self.data = 0, bytearray()

    def put(self, key, kind, value):
        self.n += 1
        self.data += string(key) + struct.pack('<I', kind) + value

    def u32(self, key, v):
        self.put(key, U32, struct.pack('<I', v))

    def f32(self, key, v):
        self.put(key, F32, struct.pack('<f', v))

    def bool(self, key, v):
        self.put(key, BOOL, struct.pack('<?', v))

    def str(self, key, v):
        self.put(key, STRING, string(v))

    def strs(self, key, v):
        self.put(key, ARRAY, struct.pack('<IQ', STRING, len(v)) + b''.join(map(string, v)))

    def ints(self, key, v):
        self.put(key, ARRAY, struct.pack('<IQ', I32, len(v)) + struct.pack(f'<{len(v)}i', *v))


def put_shape(keys, config, pooling):
    if config.get('hidden_act') != 'gelu' or config.get('model_type') != 'bert':
        fail(f'model_type {config.get("model_type")} with {config.get("hidden_act")} is not BERT')
    keys.u32('bert.context_length', config['max_position_embeddings'])
    keys.u32('bert.embedding_length', config['hidden_size'])
    keys.u32('bert.feed_forward_length', config['intermediate_size'])
    keys.u32('bert.block_count', config['num_hidden_layers'])
    keys.u32('bert.attention.head_count', config['num_attention_heads'])
    keys.f32('bert.attention.layer_norm_epsilon', config['layer_norm_eps'])
    keys.bool('bert.attention.causal', False)
    keys.u32('bert.pooling_type', 2 if pooling.get('pooling_mode_cls_token') else 1)


def put_vocabulary(keys, vocab, config):
    pieces = vocab.decode().split('\n')
    if pieces and pieces[-1] == '':
        pieces.pop()
    if len(pieces) != config['vocab_size']:
        fail(f'vocab.txt has {len(pieces)} pieces; the model has {config["vocab_size"]}')
    for name in SPECIAL:
        if name not in pieces:
            fail(f'vocab.txt has no {name}')
    spelt = [p if p in SPECIAL else p[2:] if p.startswith('##') and len(p) > 2 else '\u2581' + p
             for p in pieces]
    keys.str('tokenizer.ggml.model', 'bert')
    keys.u32('tokenizer.ggml.token_type_count', config['type_vocab_size'])
    keys.strs('tokenizer.ggml.tokens', spelt)
    keys.ints('tokenizer.ggml.token_type', [UNKNOWN if p == '[UNK]' else CONTROL if p in SPECIAL
                                            else NORMAL for p in pieces])
    for key, piece in (('unknown', '[UNK]'), ('seperator', '[SEP]'), ('padding', '[PAD]'),
                       ('cls', '[CLS]'), ('mask', '[MASK]')):  # "seperator" is GGUF's spelling
        keys.u32(f'tokenizer.ggml.{key}_token_id', pieces.index(piece))


def write(out, keys, tensors):
    infos, parts, at = bytearray(), [], 0
    for name, shape, kind, data in tensors:
        infos += string(name) + struct.pack('<I', len(shape))
        infos += struct.pack(f'<{len(shape)}Q', *reversed(shape)) + struct.pack('<IQ', kind, at)
        parts.append(data + bytes(-len(data) % ALIGNMENT))
        at += len(parts[-1])
    head = b'GGUF' + struct.pack('<IQQ', 3, len(tensors), keys.n) + keys.data + infos
    with open(out, 'wb') as f:
        f.write(head + bytes(-len(head) % ALIGNMENT))
        for part in parts:
            f.write(part)
        f.flush()
        os.fsync(f.fileno())


def main(argv):
    is_f32 = '--f32' in argv
    argv = [a for a in argv if a != '--f32']
    if argv and argv[0] in ('-h', '--help'):
        print(__doc__)
        return
    if len(argv) not in (2, 3):
        fail('usage: bert_to_gguf.py [--f32] SOURCE OUT.gguf [NAME]')
    source = Source(argv[0])
    config = source.json('config.json')
    keys = Keys()
    keys.str('general.architecture', 'bert')
    keys.str('general.name', argv[2] if len(argv) == 3 else
             config.get('_name_or_path', '').rsplit('/', 1)[-1] or 'bert')
    keys.u32('general.file_type', TENSOR_F32 if is_f32 else TENSOR_F16)
    put_shape(keys, config, source.json('1_Pooling/config.json', must=False))
    put_vocabulary(keys, source.read('vocab.txt'), config)
    tensors = []
    for name, shape, data in read_tensors(source.read('model.safetensors')):
        is_half = len(shape) == 2 and not is_f32 and name.split('.')[0] not in (
            'position_embd', 'token_types')
        tensors.append((name, shape, TENSOR_F16 if is_half else TENSOR_F32,
                        to_f16(data) if is_half else bytes(data)))
    write(argv[1], keys, tensors)


if __name__ == '__main__':
    main(sys.argv[1:])
