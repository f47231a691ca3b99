#!/usr/bin/python3
"""The logits of a model in float64, by plain Python: what the engine's forward pass is compared
with (tests/reference/compare.py). Written from the papers and the models' own configurations, one
position at a time, and shares nothing with the engine: no packed weights, no int8, no blocks, no
absorbed projections, no rows turned.

    tests/reference/forward.py MODEL.gguf ID…      the last position's logits, a JSON list

F32, F16 and Q8_0 tensors. Slow: for models of a few hundred thousand weights.
"""
import json
import math
import sys
from operator import mul

from gguf import Gguf

# What the files don't say: by general.architecture.
# Pairs lie half a head apart.
HALVES = {'qwen2', 'qwen3', 'gemma', 'gemma2', 'gemma3', 'phi3', 'qwen2moe', 'qwen3moe',
          'minicpm3'}
GELU = {'gemma', 'gemma2', 'gemma3'}
WINDOWS = {'gemma2': (2, 4096), 'gemma3': (6, 0)}  # each n-th layer sees all; the default window

NORMS_EXPERTS = {'llama', 'qwen3moe', 'granitemoe'}  # the chosen experts' weights add up to 1


def dot(a, b):
    return sum(map(mul, a, b))


def times(rows, x):
    return [dot(r, x) for r in rows]


def rms_norm(x, weight, eps):
    scale = 1 / math.sqrt(sum(v * v for v in x) / len(x) + eps)
    return [v * scale * w for v, w in zip(x, weight)]


def silu(v):
    return v / (1 + math.exp(-v))


def gelu(v):
    return v / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v ** 3)))


def capped(v, cap):
    return cap * math.tanh(v / cap) if cap else v


def sigmoid(v):
    return 1 / (1 + math.exp(-v))


def best(scores, n):
    """Indices of the n largest, of equal ones the first."""
    return sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:n]


def softmax(scores):
    top = max(scores)
    weights = [math.exp(s - top) for s in scores]
    total = sum(weights)
    return [w / total for w in weights]


class Rope:
    """Frequencies, and what cos and sin are multiplied by."""

    def __init__(self, model, base, is_scaled):
        key, n = model.key, model.n_rot
        self.n, self.halves = n, model.arch in HALVES
        self.frequencies = [base ** (-2 * i / n) for i in range(n // 2)]
        self.by = 1
        if not is_scaled:
            return
        kind = key('rope.scaling.type', b'linear').decode()
        factor = key('rope.scaling.factor', key('rope.scale_linear', 1)) or 1
        context = key('rope.scaling.original_context_length', key('context_length'))
        factors = [f for f in ('rope_freqs', 'rope_factors_long' if key('context_length') > context
                               else 'rope_factors_short') if f + '.weight' in model.file.tensors]
        if factors:
            own = model.file.rows(factors[0] + '.weight')
            self.frequencies = [f / o for f, o in zip(self.frequencies, own)]
        self.by = key('rope.scaling.attn_factor', 1) or 1
        if kind == 'linear':
            self.frequencies = [f / factor for f in self.frequencies]
        if kind == 'yarn':
            self.yarn(factor, context, base, key)
            # DeepSeek's mscale over mscale_all_dim: files that have the latter (the multiplier)
            # have the same twice, and the scores' scale has it; without it the former is 1.
            if not key('rope.scaling.yarn_log_multiplier', 0):
                self.by *= 1 + 0.1 * math.log(factor)

    def yarn(self, factor, context, base, key):
        """arXiv 2309.00071: quick pairs stay, slow ones are interpolated, a ramp between."""
        def pair(turns):
            return self.n * math.log(context / (turns * 2 * math.pi)) / (2 * math.log(base))
        low = max(0, math.floor(pair(key('rope.scaling.yarn_beta_fast', 32))))
        high = min(self.n - 1, math.ceil(pair(key('rope.scaling.yarn_beta_slow', 1))))
        for i, f in enumerate(self.frequencies):
            ramp = min(1, max(0, (i - low) / max(0.001, high - low)))
            self.frequencies[i] = f / factor * ramp + f * (1 - ramp)

    def __call__(self, x, pos):
        """Turns the first n dimensions of a head."""
        x = list(x)
        for i, f in enumerate(self.frequencies):
            a, b = (i, i + self.n // 2) if self.halves else (2 * i, 2 * i + 1)
            c, s = self.by * math.cos(pos * f), self.by * math.sin(pos * f)
            x[a], x[b] = x[a] * c - x[b] * s, x[a] * s + x[b] * c
        return x


class Model:
    def __init__(self, path):
        self.file = Gguf(path)
        self.arch = self.file.keys['general.architecture'].decode()
        key = self.key
        self.n_embd, self.n_layers = key('embedding_length'), key('block_count')
        self.n_heads = key('attention.head_count')
        self.n_kv = key('attention.head_count_kv', self.n_heads)
        self.dim = key('attention.key_length', self.n_embd // self.n_heads)
        self.n_rot = key('rope.dimension_count', self.dim)
        self.eps = key('attention.layer_norm_rms_epsilon')
        base = key('rope.freq_base', 10000)
        self.rope = Rope(self, base, True)
        self.local = Rope(self, key('rope.freq_base_swa', 10000), False) \
            if self.arch == 'gemma3' else self.rope
        self.scale = key('attention.scale', 0) or 1 / math.sqrt(self.dim)
        self.cap = key('attn_logit_softcapping', 0)
        self.window = key('attention.sliding_window', WINDOWS.get(self.arch, (0, 0))[1])
        self.embd = self.file.rows('token_embd.weight')
        self.head = self.file.rows('output.weight') if 'output.weight' in self.file.tensors \
            else self.embd
        self.layers = [self.layer(i) for i in range(self.n_layers)]
        self.cache = [[] for _ in range(self.n_layers)]

    def key(self, name, *default):
        name = f'{self.arch}.{name}'
        return self.file.keys.get(name, *default) if default else self.file.keys[name]

    def layer(self, i):
        begin = f'blk.{i}.'
        return {name[len(begin):].removesuffix('.weight'): self.file.rows(name)
                for name in self.file.tensors if name.startswith(begin)}

    def seen(self, i, pos):
        """The first position that layer i sees from pos."""
        period = WINDOWS.get(self.arch, (0, 0))[0]
        is_full = not self.window or (period and i % period == period - 1)
        return 0 if is_full else max(0, pos + 1 - self.window)

    def heads(self, x, n):
        return [x[i * len(x) // n:(i + 1) * len(x) // n] for i in range(n)]

    def attend(self, queries, keys, values, first):
        """Each query head over keys[position][head]; KV heads are shared by neighbours."""
        out, share = [], len(queries) // len(keys[0])
        for h, q in enumerate(queries):
            scores = [capped(dot(q, k[h // share]) * self.scale, self.cap) for k in keys[first:]]
            weights = softmax(scores)
            column = [v[h // share] for v in values[first:]]
            out += [sum(w * v[d] for w, v in zip(weights, column)) for d in range(len(column[0]))]
        return out

    def attention(self, i, x, pos):
        layer, n_q = self.layers[i], self.n_heads * self.dim
        if 'attn_qkv' in layer:
            qkv = times(layer['attn_qkv'], x)
            n = (len(qkv) - n_q) // 2
            q, k, v = qkv[:n_q], qkv[n_q:n_q + n], qkv[n_q + n:]
        else:
            q, k, v = (times(layer['attn_' + name], x) for name in 'qkv')
        if 'attn_q.bias' in layer:
            q, k, v = ([a + b for a, b in zip(y, layer[f'attn_{name}.bias'])]
                       for y, name in ((q, 'q'), (k, 'k'), (v, 'v')))
        q, k, v = self.heads(q, self.n_heads), self.heads(k, self.n_kv), self.heads(v, self.n_kv)
        if 'attn_q_norm' in layer:
            q = [rms_norm(h, layer['attn_q_norm'], self.eps) for h in q]
            k = [rms_norm(h, layer['attn_k_norm'], self.eps) for h in k]
        first = self.seen(i, pos)
        if self.arch != 'smollm3' or i % 4 != 3:
            is_local = self.window and self.arch == 'gemma3' and i % 6 != 5
            rope = self.local if is_local else self.rope
            q, k = [rope(h, pos) for h in q], [rope(h, pos) for h in k]
        self.cache[i].append((k, v))
        return self.attend(q, [c[0] for c in self.cache[i]], [c[1] for c in self.cache[i]], first)

    def latent(self, i, x, pos):
        """MLA (arXiv 2405.04434, section 2.1) as it is defined: keys and values unfolded."""
        layer, rank = self.layers[i], self.key('attention.kv_lora_rank')
        # Files with one tensor of up-projections have the two keys' meaning in the plain ones.
        own, value = (self.key(f'attention.{k}_length_mla', self.key(f'attention.{k}_length'))
                      for k in ('key', 'value'))
        nope = own - self.n_rot
        if 'attn_q_a' in layer:
            x_q = rms_norm(times(layer['attn_q_a'], x), layer['attn_q_a_norm'], self.eps)
            q = self.heads(times(layer['attn_q_b'], x_q), self.n_heads)
        else:
            q = self.heads(times(layer['attn_q'], x), self.n_heads)
        q = [h[:nope] + self.rope(h[nope:], pos) for h in q]
        kv = times(layer['attn_kv_a_mqa'], x)
        c = rms_norm(kv[:rank], layer['attn_kv_a_norm'], self.eps)
        turned = self.rope(kv[rank:], pos)
        if 'attn_kv_b' in layer:
            kv_b = self.heads(layer['attn_kv_b'], self.n_heads)  # of a head: [nope + value][rank]
            k = [times(w[:nope], c) + turned for w in kv_b]
            v = [times(w[nope:], c) for w in kv_b]
        else:
            k_b = self.heads(layer['attn_k_b'], self.n_heads)  # of a head: [rank][nope]
            v_b = self.heads(layer['attn_v_b'], self.n_heads)  # of a head: [value][rank]
            k = [[dot((row[d] for row in w), c) for d in range(nope)] + turned for w in k_b]
            v = [times(w, c) for w in v_b]
        assert len(k[0]) == own and len(v[0]) == value
        self.cache[i].append((k, v))
        factor = self.key('rope.scaling.factor', 1) or 1
        more = self.key('rope.scaling.yarn_log_multiplier', 0)
        self.scale = (1 + more * math.log(max(1, factor))) ** 2 / math.sqrt(own)
        return self.attend(q, [p[0] for p in self.cache[i]], [p[1] for p in self.cache[i]], 0)

    def choose(self, layer, x):
        """The experts of a row, and their weights."""
        key = self.key
        count, used, groups = key('expert_count'), key('expert_used_count'), \
            key('expert_group_count', 1) or 1
        logits = times(layer['ffn_gate_inp'], x)
        is_sigmoid = key('expert_gating_func', 1) == 2
        probs = [sigmoid(v) for v in logits] if is_sigmoid else softmax(logits)
        scores = [p + b for p, b in zip(probs, layer.get('exp_probs_b.bias', [0] * count))]
        if groups > 1:
            own = self.heads(scores, groups)
            # DeepSeek-V3 adds up a group's two best, V2 takes the best one.
            worth = [sum(sorted(g)[-2:]) if is_sigmoid else max(g) for g in own]
            kept = best(worth, key('expert_group_used_count'))
            scores = [s if i * groups // count in kept else -math.inf
                      for i, s in enumerate(scores)]
        chosen = best(scores, used)
        weights = [probs[i] for i in chosen]
        if key('expert_weights_norm', self.arch in NORMS_EXPERTS):
            weights = [w / sum(weights) for w in weights]
        scale = key('expert_weights_scale', 1) or 1
        return [(i, w * scale) for i, w in zip(chosen, weights)]

    def experts(self, layer, x):
        """A mixture of experts (arXiv 2401.06066), one expert after the other."""
        count = self.key('expert_count')
        y = [0] * self.n_embd
        for i, weight in self.choose(layer, x):
            gate, up, down = (self.heads(layer[f'ffn_{name}_exps'], count)[i]
                              for name in ('gate', 'up', 'down'))
            h = [silu(g) * u for g, u in zip(times(gate, x), times(up, x))]
            y = [a + weight * b for a, b in zip(y, times(down, h))]
        if 'ffn_up_shexp' in layer:
            h = [silu(g) * u for g, u in zip(times(layer['ffn_gate_shexp'], x),
                                             times(layer['ffn_up_shexp'], x))]
            by = sigmoid(dot(layer['ffn_gate_inp_shexp'], x)) \
                if 'ffn_gate_inp_shexp' in layer else 1
            y = [a + by * b for a, b in zip(y, times(layer['ffn_down_shexp'], h))]
        return y

    def feed_forward(self, layer, x):
        if 'ffn_gate_inp' in layer:
            return self.experts(layer, x)
        act = gelu if self.arch in GELU else silu
        up = times(layer['ffn_up'], x)
        if 'ffn_gate' in layer:
            gate = times(layer['ffn_gate'], x)
        else:
            gate, up = up[:len(up) // 2], up[len(up) // 2:]
        return times(layer['ffn_down'], [act(g) * u for g, u in zip(gate, up)])

    def add(self, x, y, layer, name):
        if name in layer:
            y = rms_norm(y, layer[name], self.eps)
        by = self.key('residual_scale', 1)
        if self.arch == 'minicpm3':  # scale_depth of its configuration
            by = 1.4 / math.sqrt(self.n_layers)
        return [a + by * b for a, b in zip(x, y)]

    def step(self, token, pos):
        """Reads a token; returns the residual stream behind the last layer."""
        by = math.sqrt(self.n_embd) if self.arch in GELU else \
            self.key('embedding_scale', 12 if self.arch == 'minicpm3' else 1)
        x = [v * by for v in self.embd[token]]
        attention = self.latent if 'attn_kv_a_mqa' in self.layers[0] else self.attention
        for i, layer in enumerate(self.layers):
            y = attention(i, rms_norm(x, layer['attn_norm'], self.eps), pos)
            x = self.add(x, times(layer['attn_output'], y), layer, 'post_attention_norm')
            y = self.feed_forward(layer, rms_norm(x, layer['ffn_norm'], self.eps))
            x = self.add(x, y, layer, 'post_ffw_norm')
        return x

    def logits(self, ids):
        for pos, token in enumerate(ids):
            x = self.step(token, pos)
        x = rms_norm(x, self.file.rows('output_norm.weight'), self.eps)
        by = 1 / (self.key('logit_scale', 1) or 1)
        if self.arch == 'minicpm3':  # dim_model_base
            by = 256 / self.n_embd
        return [capped(v * by, self.key('final_logit_softcapping', 0))
                for v in times(self.head, x)]


if __name__ == '__main__':
    print(json.dumps(Model(sys.argv[1]).logits([int(a) for a in sys.argv[2:]])))
