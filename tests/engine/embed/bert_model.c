/*
 * Small BERT models. The vocabulary: the special pieces, printable ASCII and a few other characters
 * as beginnings and as continuations, some words, and what the caller adds.
 */
#include "tests/engine/embed/bert_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/quant.h"

#define PIECES_MAX 60000
#define MARK "\xE2\x96\x81"

const struct bert_model bert_model_default = {.n_embd = 32,
                                              .n_ff = 64,
                                              .n_layers = 2,
                                              .n_heads = 4,
                                              .n_ctx = 64,
                                              .pooling = 1,
                                              .type = QUANT_F32,
                                              .seed = 1};

static const char *const specials[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
static const char *const chars[] = {"\xC3\xB8", "\xC3\x9F", "\xE4\xB8\xAD", "\xE6\x96\x87",
                                    "\xE3\x81\x82", "\xF0\x9F\x98\x80", "\xCF\x83"};
static const char *const words[] = {"the", "peanut", "allergic", "snack", "hello", "world",
                                    "embed", "##ding", "##s", "##ing", "un", "##aff", "##able"};

struct vocabulary {
    const struct bert_model *m;
    struct tok_str *v;
    int32_t *types;
    size_t n;
};

static void add(struct vocabulary *c, const char *begin, const char *s, size_t n)
{
    char *piece = malloc(n + 4);
    if (!piece || c->n == PIECES_MAX)
        abort();
    const int len = snprintf(piece, n + 4, "%s%.*s", begin, (int)n, s);
    c->types[c->n] = TOK_NORMAL;
    c->v[c->n++] = (struct tok_str){piece, (size_t)len};
}

/* A piece, "##" in front when it continues a word. */
static void add_piece(struct vocabulary *c, const char *s, size_t n)
{
    const bool continues = n > 2 && s[0] == '#' && s[1] == '#';
    if (c->m->marks_pieces)
        add(c, "", s, n);
    else if (continues)
        add(c, "", s + 2, n - 2);
    else
        add(c, MARK, s, n);
}

static void add_both(struct vocabulary *c, const char *s)
{
    char piece[16];
    add_piece(c, s, strlen(s));
    const int n = snprintf(piece, sizeof piece, "##%s", s);
    add_piece(c, piece, (size_t)n);
}

static void put_vocabulary(const struct bert_model *m, struct gguf_writer *w, size_t *ret_n)
{
    struct vocabulary c = {.m = m,
                           .v = calloc(PIECES_MAX, sizeof *c.v),
                           .types = calloc(PIECES_MAX, sizeof *c.types)};
    if (!c.v || !c.types)
        abort();
    for (size_t i = 0; i < sizeof specials / sizeof *specials; i++) {
        add(&c, "", specials[i], strlen(specials[i]));
        c.types[i] = i == 1 ? TOK_UNKNOWN : TOK_CONTROL;
    }
    for (char ch = '!'; ch <= '~'; ch++)
        if (ch < 'A' || ch > 'Z')
            add_both(&c, (char[2]){ch});
    for (size_t i = 0; i < sizeof chars / sizeof *chars; i++)
        add_both(&c, chars[i]);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        add_piece(&c, words[i], strlen(words[i]));
    for (const char *p = m->words; p && *p;) {
        const size_t n = strcspn(p, "\n");
        if (n > 0)
            add_piece(&c, p, n);
        p += n + (p[n] == '\n');
    }
    gguf_put_str(w, "tokenizer.ggml.model", "bert");
    gguf_put_strs(w, "tokenizer.ggml.tokens", c.v, c.n);
    gguf_put_i32s(w, "tokenizer.ggml.token_type", c.types, c.n);
    *ret_n = c.n;
    for (size_t i = 0; i < c.n; i++)
        free((char *)(uintptr_t)c.v[i].s);
    free(c.v);
    free(c.types);
}

static void put_shape(const struct bert_model *m, struct gguf_writer *w)
{
    gguf_put_str(w, "general.architecture", "bert");
    gguf_put_str(w, "general.name", "tiny-bert");
    gguf_put_u32(w, "bert.context_length", (uint32_t)m->n_ctx);
    gguf_put_u32(w, "bert.embedding_length", (uint32_t)m->n_embd);
    gguf_put_u32(w, "bert.feed_forward_length", (uint32_t)m->n_ff);
    gguf_put_u32(w, "bert.block_count", (uint32_t)m->n_layers);
    gguf_put_u32(w, "bert.attention.head_count", (uint32_t)m->n_heads);
    gguf_put_f32(w, "bert.attention.layer_norm_epsilon", 1e-12f);
    gguf_put_int(w, "bert.attention.causal", GGUF_BOOL, 0);
    gguf_put_u32(w, "bert.pooling_type", (uint32_t)m->pooling);
}

/* rows 0: a vector, always F32. */
static void put(struct gguf_writer *w, const struct bert_model *m, const char *name, int columns,
                int rows)
{
    const uint64_t dims[2] = {(uint64_t)columns, (uint64_t)rows};
    struct gguf_writer_tensor *t =
        gguf_put_tensor(w, name, rows ? m->type : QUANT_F32, rows ? 2 : 1, dims);
    /* Small biases: else all texts point where these do. */
    t->scale = !rows && strstr(name, ".bias") ? 0.05f : rows ? 0.1f : 0.5f;
    if (strcmp(name, "token_embd.weight") == 0)
        t->scale = 0.5f;
}

static void put_pair(struct gguf_writer *w, const struct bert_model *m, const char *stem,
                     int columns, int rows)
{
    char name[128];
    snprintf(name, sizeof name, "%s.weight", stem);
    put(w, m, name, columns, rows);
    snprintf(name, sizeof name, "%s.bias", stem);
    put(w, m, name, rows ? rows : columns, 0);
}

void bert_model_put(const struct bert_model *m, struct gguf_writer *w)
{
    const int d = m->n_embd;
    const struct {
        const char *stem;
        int columns, rows;
    } parts[] = {{"attn_q", d, d},
                 {"attn_k", d, d},
                 {"attn_v", d, d},
                 {"attn_output", d, d},
                 {"attn_output_norm", d, 0},
                 {"ffn_up", d, m->n_ff},
                 {"ffn_down", m->n_ff, d},
                 {"layer_output_norm", d, 0}};
    size_t n_vocab;
    w->seed = m->seed;
    put_shape(m, w);
    put_vocabulary(m, w, &n_vocab);
    put(w, m, "token_embd.weight", d, (int)n_vocab);
    put(w, m, "position_embd.weight", d, m->n_ctx);
    put(w, m, "token_types.weight", d, 2);
    put_pair(w, m, "token_embd_norm", d, 0);
    for (int i = 0; i < m->n_layers; i++) {
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
            char stem[64];
            snprintf(stem, sizeof stem, "blk.%d.%s", i, parts[k].stem);
            put_pair(w, m, stem, parts[k].columns, parts[k].rows);
        }
    }
}
