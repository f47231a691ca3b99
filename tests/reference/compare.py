#!/usr/bin/python3
"""Each architecture's logits, as hearthd computes them, against the float64 reference
(tests/reference/forward.py), on small files with random weights.

    tests/reference/compare.py HEARTHD MKGGUF [NAME …]

Weights are F32, so what may differ is rounding: of sums to F32, and of keys and values to F16 (of
Q8_0 weights: also of activations to 8 bits). TOLERANCE is a few times what was seen; a wrong
constant, pair, norm or mask is off by a hundred times as much, which each case's `spoil` proves:
the same file read with one key changed must fail.
"""
import json
import os
import subprocess
import sys
import tempfile

import forward

SHAPE = '--vocab 300 --embd 64 --ff 96 --heads 4 --kv-heads 2 --head-dim 32 --ctx 256'
LAYERS = {'gemma3': 6, 'smollm3': 4}  # a whole period; the others: 2
MIXTURE = '--experts 8 --used 3 --ff-exp 32'
IDS = [(i * 37 + 11) % 300 for i in range(40)]  # more than one block
TOLERANCE = 0.01

YARN = ['rope.scaling.type=yarn', 'rope.scaling.factor=4.0',
        'rope.scaling.original_context_length=64']
SIGMOIDS = ['expert_gating_func=2', 'expert_weights_norm=true', 'expert_weights_scale=2.5']
GROUPS = ['expert_group_count=4', 'expert_group_used_count=2']
# name: (architecture, keys to set, tensors of factors, a key that changes the answer, more options)
CASES = {
    'llama': ('llama', [], [], 'rope.freq_base=77777.0'),
    'llama linear': ('llama', ['rope.scaling.type=linear', 'rope.scaling.factor=2.0'], [],
                     'rope.scaling.factor=2.5'),
    'llama yarn': ('llama', YARN, [], 'rope.scaling.factor=5.0'),
    'llama rope_freqs': ('llama', [], ['rope_freqs'], 'rope.freq_base=77777.0'),
    'qwen2': ('qwen2', [], [], 'rope.freq_base=77777.0'),
    'qwen3': ('qwen3', [], [], 'attention.layer_norm_rms_epsilon=0.01'),
    'gemma': ('gemma', [], [], 'rope.freq_base=77777.0'),
    'gemma2': ('gemma2', ['attention.sliding_window=20', 'attn_logit_softcapping=2.0',
                          'final_logit_softcapping=3.0'], [], 'attention.sliding_window=21'),
    'gemma3': ('gemma3', ['attention.sliding_window=20'], [], 'attention.sliding_window=19'),
    'phi3': ('phi3', [], [], 'rope.freq_base=77777.0'),
    'phi3 longrope': ('phi3', ['rope.scaling.type=longrope', 'rope.scaling.attn_factor=1.1',
                               'rope.scaling.original_context_length=64'],
                      ['rope_factors_long', 'rope_factors_short'], 'rope.scaling.attn_factor=1.2'),
    'granite': ('granite', ['logit_scale=8.0', 'embedding_scale=3.0', 'residual_scale=0.25',
                            'attention.scale=0.1'], [], 'attention.scale=0.2'),
    'smollm3': ('smollm3', [], [], 'rope.freq_base=77777.0'),
    'deepseek2': ('deepseek2', [], [], 'rope.freq_base=77777.0'),
    'deepseek2 yarn': ('deepseek2', YARN + ['rope.scaling.yarn_log_multiplier=0.0707'], [],
                       'rope.scaling.yarn_log_multiplier=0.2'),
    'deepseek2 plain yarn': ('deepseek2', YARN, [], 'rope.scaling.factor=5.0'),
    'deepseek2 lite': ('deepseek2', ['expert_weights_scale=1.5'], [],
                       'expert_weights_norm=true', f'--lite {MIXTURE} --shared 2 --dense 1'),
    'deepseek2 unsplit': ('deepseek2', [], [], 'expert_used_count=2',
                          f'--lite --unsplit {MIXTURE} --shared 1'),
    'deepseek2 v2': ('deepseek2', GROUPS + ['expert_weights_scale=16.0'], [],
                     'expert_group_used_count=4', f'{MIXTURE} --shared 1'),
    'deepseek2 v3': ('deepseek2', YARN + SIGMOIDS + GROUPS +
                     ['rope.scaling.yarn_log_multiplier=0.1'], [], 'expert_group_used_count=3',
                     f'{MIXTURE} --shared 1 --router-bias'),
    'deepseek2 sigmoids': ('deepseek2', SIGMOIDS, [], 'expert_weights_scale=2.0',
                           f'{MIXTURE} --router-bias'),
    'minicpm3': ('minicpm3', ['rope.scaling.original_context_length=64'],
                 ['rope_factors_long', 'rope_factors_short'], 'rope.freq_base=77777.0',
                 '--unsplit'),
    'deepseek': ('deepseek', [], [], 'expert_used_count=2', f'{MIXTURE} --shared 2 --dense 1'),
    'mixtral': ('llama', [], [], 'expert_used_count=2', MIXTURE),
    'qwen2moe': ('qwen2moe', [], [], 'expert_weights_norm=true', f'{MIXTURE} --shared 2'),
    'qwen3moe': ('qwen3moe', [], [], 'expert_weights_norm=false', MIXTURE),
    'granitemoe': ('granitemoe', ['logit_scale=8.0', 'embedding_scale=3.0', 'residual_scale=0.25',
                                  'attention.scale=0.1'], [], 'expert_used_count=2', MIXTURE),
}


def make(mkgguf, path, case, more=()):
    arch, keys, factors, _, *options = case
    args = [mkgguf, path, '--arch', arch, *SHAPE.split(), *' '.join(options).split(),
            '--type', 'F32', '--embd-type', 'F32', '--layers', str(LAYERS.get(arch, 2))]
    for k in [*keys, *more]:
        args += ['--set', k]
    for f in factors:
        args += ['--factors', f]
    subprocess.run(args, check=True)


def ours(hearthd, path):
    """The probe's logits of all ids, by id."""
    question = {'op': 'logits', 'ids': IDS, 'top': 300}
    out = subprocess.run([hearthd, 'probe', '--model', path], input=json.dumps(question) + '\n',
                         stdout=subprocess.PIPE, check=True, text=True).stdout
    answer = json.loads(out)
    assert 'error' not in answer, answer
    ret = [None] * 300
    for i, logit in answer['top']:
        ret[i] = logit
    return ret


def distance(a, b):
    return max(abs(x - y) for x, y in zip(a, b))


def main(hearthd, mkgguf, names):
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        path, other = os.path.join(folder, 'model.gguf'), os.path.join(folder, 'other.gguf')
        for name in names or CASES:
            case = CASES[name]
            make(mkgguf, path, case)
            make(mkgguf, other, case, [case[3]])
            reference = forward.Model(path).logits(IDS)
            off, spoiled = distance(ours(hearthd, path), reference), \
                distance(ours(hearthd, other), reference)
            is_fine = off < TOLERANCE < spoiled
            failed += not is_fine
            print(f'{"ok  " if is_fine else "FAIL"} {name:20} off by {off:.2g}, by {spoiled:.2g} '
                  f'with {case[3]}', flush=True)
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
