/*
 * From a GGUF to an embedding model: shape, vocabulary, then tensors by name, each checked for its
 * shape, made float32 and dropped from the mapping. The word table alone stays as the file has it:
 * of a small model it is half the weights, and a text needs a few rows of it.
 */
#include "engine/embed_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "base/sys.h"
#include "engine/common.h"
#include "engine/gguf.h"
#include "engine/gguf_impl.h"
#include "engine/model.h"

#define LAYERS_MAX 128
#define FF_MAX 65536
#define TYPES_MAX 16
#define ALIGNMENT 64
#define UNKNOWN_SHARE 4 /* one piece in so many, at most; of Chinese all-MiniLM misses 3 in 5 */

struct loading {
    const struct gguf *g;
    struct embed *m;
    const atomic_int *abort;
    struct err *e;
};

static int out_of_memory(struct err *e)
{
    return err_set(e, ERR_NOMEM, "embedding model: out of memory");
}

/* ---- shape ---- */

static int read_arch(const struct gguf *g, struct err *e)
{
    struct tok_str arch;
    int rc = model_required(gguf_str(g, "general.architecture", &arch, e), e);
    if (rc == 0 && (arch.n != 4 || memcmp(arch.s, "bert", 4) != 0))
        rc = err_set(e, ERR_UNSUPPORTED,
                     "architecture \"%.*s\" makes no embeddings here; bert does", gguf_shown(arch),
                     arch.s);
    return rc;
}

static int read_int(const struct loading *l, const char *key, int64_t max, int *ret)
{
    int64_t v = 0;
    int rc = model_required(gguf_int(l->g, key, 1, max, &v, l->e), l->e);
    if (rc == 0)
        *ret = (int)v;
    return rc;
}

static int read_pooling(const struct loading *l)
{
    int64_t pooling = EMBED_MEAN;
    int rc = gguf_int(l->g, "bert.pooling_type", 0, 1000, &pooling, l->e);
    if (rc == ERR_NOTFOUND)
        rc = 0;
    if (rc == 0 && pooling != EMBED_MEAN && pooling != EMBED_CLS)
        rc = err_set(l->e, ERR_UNSUPPORTED,
                     "pooling type %d isn't supported; 1 (mean) and 2 (first token) are",
                     (int)pooling);
    l->m->pooling = (enum embed_pooling)pooling;
    return rc;
}

static int read_causal(const struct loading *l)
{
    bool is_causal = false;
    int rc = gguf_bool(l->g, "bert.attention.causal", &is_causal, l->e);
    if (rc == ERR_NOTFOUND)
        rc = 0;
    if (rc == 0 && is_causal)
        rc = err_set(l->e, ERR_UNSUPPORTED, "causal attention isn't a BERT model's");
    return rc;
}

static int read_shape(const struct loading *l)
{
    struct embed *m = l->m;
    double eps = 1e-12;
    int rc;
    if ((rc = read_int(l, "bert.embedding_length", EMBED_DIM_MAX, &m->n_embd)) ||
        (rc = read_int(l, "bert.block_count", LAYERS_MAX, &m->n_layers)) ||
        (rc = read_int(l, "bert.attention.head_count", EMBED_DIM_MAX, &m->n_heads)) ||
        (rc = read_int(l, "bert.feed_forward_length", FF_MAX, &m->n_ff)) ||
        (rc = read_int(l, "bert.context_length", 1 << 20, &m->n_ctx)) ||
        (rc = model_required(
             gguf_float(l->g, "bert.attention.layer_norm_epsilon", 0, 1, &eps, l->e), l->e)) ||
        (rc = read_pooling(l)) || (rc = read_causal(l)))
        return rc;
    m->eps = (float)eps;
    if (m->n_ctx > EMBED_TOKENS_MAX)
        m->n_ctx = EMBED_TOKENS_MAX;
    if (m->n_ctx < 3)
        return err_set(l->e, ERR_CORRUPT, "bert.context_length is %d; at least 3 are needed",
                       m->n_ctx);
    if (m->n_embd % m->n_heads)
        return err_set(l->e, ERR_CORRUPT, "an embedding of %d doesn't divide into %d heads",
                       m->n_embd, m->n_heads);
    return 0;
}

/* ---- vocabulary ---- */

static int read_id(const struct loading *l, const char *key, size_t n, int32_t *ret)
{
    int64_t id = -1;
    int rc = gguf_int(l->g, key, 0, (int64_t)n - 1, &id, l->e);
    if (rc && rc != ERR_NOTFOUND)
        return rc;
    *ret = (int32_t)id;
    return 0;
}

/* Files of the years before have "seperator", newer ones may have either. */
static int read_ids(const struct loading *l, struct wordpiece_spec *spec)
{
    int rc;
    if ((rc = read_id(l, "tokenizer.ggml.cls_token_id", spec->n, &spec->cls)) ||
        (rc = read_id(l, "tokenizer.ggml.seperator_token_id", spec->n, &spec->sep)) ||
        (rc = read_id(l, "tokenizer.ggml.unknown_token_id", spec->n, &spec->unk)) ||
        (rc = read_id(l, "tokenizer.ggml.padding_token_id", spec->n, &spec->pad)))
        return rc;
    if (spec->sep < 0)
        rc = read_id(l, "tokenizer.ggml.separator_token_id", spec->n, &spec->sep);
    return rc;
}

static int read_vocabulary(const struct loading *l)
{
    struct tok_str model, *pieces = NULL;
    int32_t *types = NULL;
    size_t n_types = 0;
    struct wordpiece_spec spec = {.n = 0};
    int rc = model_required(gguf_str(l->g, "tokenizer.ggml.model", &model, l->e), l->e);
    if (rc)
        return rc;
    if (model.n != 4 || memcmp(model.s, "bert", 4) != 0)
        return err_set(l->e, ERR_UNSUPPORTED,
                       "tokenizer \"%.*s\" isn't supported for embeddings; bert (WordPiece) is",
                       gguf_shown(model), model.s);
    rc = model_required(gguf_str_array(l->g, "tokenizer.ggml.tokens", &pieces, &spec.n, l->e),
                        l->e);
    if (rc)
        return rc;
    rc = gguf_int_array(l->g, "tokenizer.ggml.token_type", &types, &n_types, l->e);
    if (rc == ERR_NOTFOUND)
        rc = 0;
    if (rc == 0 && types && n_types != spec.n)
        rc = err_set(l->e, ERR_CORRUPT, "%zu token types for a vocabulary of %zu", n_types, spec.n);
    spec.pieces = pieces;
    spec.types = types;
    if (rc == 0)
        rc = read_ids(l, &spec);
    if (rc == 0)
        rc = wordpiece_new(&spec, &l->m->tok, l->e);
    l->m->n_vocab = (int)spec.n;
    free(pieces);
    free(types);
    return rc;
}

/* ---- tensors ---- */

/* rows 0: a vector. A tensor of exactly that shape, or the error. */
static int find_tensor(const struct loading *l, const char *name, int columns, int rows,
                       const struct gguf_tensor **ret)
{
    const struct gguf_tensor *t = gguf_tensor(l->g, name);
    if (!t)
        return err_set(l->e, ERR_CORRUPT, "tensor %s is missing", name);
    uint64_t n_rows = 1;
    for (int i = 1; i < t->n_dims; i++)
        n_rows *= t->dims[i];
    if (t->dims[0] != (uint64_t)columns || n_rows != (uint64_t)(rows ? rows : 1))
        return err_set(l->e, ERR_CORRUPT, "tensor %s is %llu × %llu; %d × %d is wanted", name,
                       (unsigned long long)t->dims[0], (unsigned long long)n_rows, columns,
                       rows ? rows : 1);
    *ret = t;
    return 0;
}

/* n zeroed floats that the model owns; NULL: out of memory. */
static float *floats(struct embed *m, size_t n)
{
    const size_t bytes = (n * sizeof(float) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (m->n_owned == m->cap_owned)
        return NULL;
    float *p = aligned_alloc(ALIGNMENT, bytes);
    if (!p)
        return NULL;
    memset(p, 0, bytes);
    m->owned[m->n_owned++] = p;
    m->n_bytes += bytes;
    return p;
}

/* Reads a tensor into `to` as floats. */
static int read_tensor(const struct loading *l, const char *name, int columns, int rows, float *to)
{
    const struct gguf_tensor *t;
    if (l->abort && atomic_load(l->abort))
        return err_set(l->e, ERR_CANCELED, "loading was stopped");
    int rc = find_tensor(l, name, columns, rows, &t);
    if (rc)
        return rc;
    const size_t n = (size_t)columns * (size_t)(rows ? rows : 1);
    quant_type(t->type)->dequantize(t->data, to, n);
    gguf_drop(l->g, t);
    return 0;
}

static int read_vector(const struct loading *l, const char *name, int n, float **ret)
{
    *ret = floats(l->m, (size_t)n);
    return *ret ? read_tensor(l, name, n, 0, *ret) : out_of_memory(l->e);
}

#define STEM_BYTES 64
#define NAME_BYTES (STEM_BYTES + 16)

static int read_norm(const struct loading *l, const char *stem, struct embed_norm *ret)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%s.weight", stem);
    int rc = read_vector(l, name, l->m->n_embd, &ret->w);
    snprintf(name, sizeof name, "%s.bias", stem);
    return rc ? rc : read_vector(l, name, l->m->n_embd, &ret->b);
}

/* Rows `at` … of the matrix are the tensor's; q, k and v go under one another. */
static int read_part(const struct loading *l, const char *stem, struct embed_linear *to, int at,
                     int n_rows)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%s.weight", stem);
    int rc = read_tensor(l, name, to->n_in, n_rows, to->w + (size_t)at * (size_t)to->n_in);
    snprintf(name, sizeof name, "%s.bias", stem);
    return rc ? rc : read_tensor(l, name, n_rows, 0, to->b + at);
}

static int make_linear(const struct loading *l, int n_in, int n_out, struct embed_linear *ret)
{
    ret->n_in = n_in;
    ret->n_out = n_out;
    ret->w = floats(l->m, (size_t)n_in * (size_t)n_out);
    ret->b = floats(l->m, (size_t)n_out);
    return ret->w && ret->b ? 0 : out_of_memory(l->e);
}

static int read_layer(const struct loading *l, int i)
{
    struct embed_layer *to = &l->m->layers[i];
    const int d = l->m->n_embd, n_ff = l->m->n_ff;
    struct {
        const char *stem;
        struct embed_linear *to;
        int at, n_rows;
    } parts[] = {{"attn_q", &to->qkv, 0, d},        {"attn_k", &to->qkv, d, d},
                 {"attn_v", &to->qkv, 2 * d, d},    {"attn_output", &to->o, 0, d},
                 {"ffn_up", &to->up, 0, n_ff},      {"ffn_down", &to->down, 0, d}};
    char stem[STEM_BYTES];
    int rc;
    if ((rc = make_linear(l, d, 3 * d, &to->qkv)) || (rc = make_linear(l, d, d, &to->o)) ||
        (rc = make_linear(l, d, n_ff, &to->up)) || (rc = make_linear(l, n_ff, d, &to->down)))
        return rc;
    for (size_t k = 0; rc == 0 && k < sizeof parts / sizeof *parts; k++) {
        snprintf(stem, sizeof stem, "blk.%d.%s", i, parts[k].stem);
        rc = read_part(l, stem, parts[k].to, parts[k].at, parts[k].n_rows);
    }
    snprintf(stem, sizeof stem, "blk.%d.attn_output_norm", i);
    if (rc == 0)
        rc = read_norm(l, stem, &to->attn_norm);
    snprintf(stem, sizeof stem, "blk.%d.layer_output_norm", i);
    return rc ? rc : read_norm(l, stem, &to->out_norm);
}

/* The word table, as it is. */
static int read_words(const struct loading *l)
{
    struct embed *m = l->m;
    const struct gguf_tensor *t;
    int rc = find_tensor(l, "token_embd.weight", m->n_embd, m->n_vocab, &t);
    if (rc)
        return rc;
    m->words = sys.malloc(t->n_bytes);
    if (!m->words)
        return out_of_memory(l->e);
    memcpy(m->words, t->data, t->n_bytes);
    m->words_type = quant_type(t->type);
    m->words_row_bytes = t->n_bytes / (size_t)m->n_vocab;
    m->n_bytes += t->n_bytes;
    gguf_drop(l->g, t);
    return 0;
}

/* Positions up to n_ctx, the vector of token type 0 in each: all of a text's tokens are of it. */
static int read_positions(const struct loading *l)
{
    struct embed *m = l->m;
    const size_t d = (size_t)m->n_embd;
    const struct gguf_tensor *p = gguf_tensor(l->g, "position_embd.weight");
    const struct gguf_tensor *t = gguf_tensor(l->g, "token_types.weight");
    if (!p || !t)
        return err_set(l->e, ERR_CORRUPT, "tensor %s is missing",
                       p ? "token_types.weight" : "position_embd.weight");
    if (p->n_dims != 2 || p->dims[0] != d || p->dims[1] < (uint64_t)m->n_ctx)
        return err_set(l->e, ERR_CORRUPT,
                       "tensor position_embd.weight is %llu × %llu; %d × %d or more is wanted",
                       (unsigned long long)p->dims[0], (unsigned long long)p->dims[1], m->n_embd,
                       m->n_ctx);
    if (t->dims[0] != d)
        return err_set(l->e, ERR_CORRUPT, "tensor token_types.weight has %llu columns, not %d",
                       (unsigned long long)t->dims[0], m->n_embd);
    m->positions = floats(m, d * (size_t)m->n_ctx);
    float *type = floats(m, d);
    if (!m->positions || !type)
        return out_of_memory(l->e);
    quant_type(p->type)->dequantize(p->data, m->positions, d * (size_t)m->n_ctx);
    quant_type(t->type)->dequantize(t->data, type, d);
    for (size_t i = 0; i < d * (size_t)m->n_ctx; i++)
        m->positions[i] += type[i % d];
    return 0;
}

static int read_weights(const struct loading *l)
{
    struct embed *m = l->m;
    const size_t n_layers = (size_t)m->n_layers;
    m->cap_owned = 16 + 16 * n_layers;
    m->owned = gguf_table(m->cap_owned, sizeof *m->owned);
    m->layers = gguf_table(n_layers, sizeof *m->layers);
    if (!m->owned || !m->layers)
        return out_of_memory(l->e);
    int rc = read_words(l);
    if (rc == 0)
        rc = read_positions(l);
    if (rc == 0)
        rc = read_norm(l, "token_embd_norm", &m->norm);
    for (int i = 0; rc == 0 && i < m->n_layers; i++)
        rc = read_layer(l, i);
    return rc;
}

/* ---- the whole ---- */

static int read_name(const struct loading *l, const char *path)
{
    struct tok_str s;
    struct err ignored;
    if (gguf_str(l->g, "general.name", &s, &ignored) == 0 && s.n > 0 &&
        s.n < sizeof l->m->name && !memchr(s.s, '\0', s.n)) {
        memcpy(l->m->name, s.s, s.n);
        return 0;
    }
    char *stem = common_stem(path);
    if (!stem)
        return out_of_memory(l->e);
    snprintf(l->m->name, sizeof l->m->name, "%s", stem);
    free(stem);
    return 0;
}

int embed_open(const char *path, const atomic_int *abort, struct embed **ret, struct err *e)
{
    struct gguf *g = NULL;
    struct loading l = {.abort = abort, .e = e};
    int rc = gguf_open(path, &g, e);
    if (rc)
        return rc;
    rc = read_arch(g, e);
    l.g = g;
    l.m = rc ? NULL : gguf_table(1, sizeof *l.m);
    if (rc == 0 && !l.m)
        rc = out_of_memory(e);
    if (rc == 0)
        rc = read_shape(&l);
    if (rc == 0)
        rc = read_vocabulary(&l);
    if (rc == 0)
        rc = read_name(&l, path);
    if (rc == 0) {
        hash_of(gguf_file_data(g), gguf_file_bytes(g), l.m->hash);
        rc = read_weights(&l);
    }
    gguf_close(g);
    if (rc) {
        embed_close(l.m);
        return rc == ERR_CANCELED ? rc : err_prefix(e, "embedding model %s", path);
    }
    *ret = l.m;
    return 0;
}

void embed_close(struct embed *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->n_owned; i++)
        free(m->owned[i]);
    free(m->owned);
    free(m->layers);
    free(m->words);
    wordpiece_free(m->tok);
    free(m);
}

const char *embed_name(const struct embed *m)
{
    return m->name;
}

int embed_dim(const struct embed *m)
{
    return m->n_embd;
}

bool embed_knows(const struct embed *m, const struct ids *ids)
{
    const int32_t unk = wordpiece_unk(m->tok);
    size_t n = 0;
    for (size_t i = 0; i < ids->n; i++)
        n += ids->v[i] == unk;
    return n * UNKNOWN_SHARE <= ids->n;
}

int embed_n_ctx(const struct embed *m)
{
    return m->n_ctx;
}

uint64_t embed_bytes(const struct embed *m)
{
    return m->n_bytes;
}

void embed_hash(const struct embed *m, uint8_t ret[EMBED_HASH_BYTES])
{
    memcpy(ret, m->hash, EMBED_HASH_BYTES);
}

uint64_t embed_bytes_of(const char *path)
{
    struct gguf *g = NULL;
    struct err ignored;
    uint64_t n = 0;
    if (gguf_open(path, &g, &ignored))
        return 0;
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        uint64_t n_values = 1;
        for (int k = 0; k < t->n_dims; k++)
            n_values *= t->dims[k];
        n += strcmp(t->name, "token_embd.weight") == 0 ? t->n_bytes : n_values * sizeof(float);
    }
    gguf_close(g);
    return n;
}
