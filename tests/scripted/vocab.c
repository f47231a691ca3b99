/* The synthetic vocabulary (tests/scripted/vocab.h), and GPT-2's spelling of bytes as printable
 * characters, in which a vocabulary is written. */
#include "tests/scripted/vocab.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"

struct vocab {
    struct tok_str *bytes;  /* [n] what a token stands for */
    struct tok_str *pieces; /* [n] its spelling */
    int32_t *types;         /* [n] */
    struct tok_str *merges; /* [n_merges] */
    size_t n_merges, cap_merges;
    int n, cap;
};

/* In order of rank. Both halves exist by the time a merge is listed. */
static const struct {
    const char *left, *right;
} merges[] = {
    {"\n", "\n"},         {".", "\n\n"}, {"\xe4", "\xbd"}, {"\xe4\xbd", "\xa0"}, {"\xe5", "\xa5"},
    {"\xe5\xa5", "\xbd"}, {"你", "好"},  {"t", "h"},       {"th", "e"},          {" ", "the"},
    {"i", "n"},           {"in", "g"},   {"e", "r"},       {"a", "n"},           {"an", "d"},
    {" ", "and"},         {"o", "u"},    {"y", "ou"},      {" ", "you"},         {"o", "r"},
    {"l", "l"},
};

static const char *const unmerged[] = {
    "nop", "qrs", "uv",    "tuvw",   "qrstuvw", " Note",   "Note", ": ",
    " ok", "ok",  "hello", " world", "word ",   "\nUser:", "🦙", "ing\n",
};

/* The character that stands for a byte: itself where it is printable in Latin-1, else the next free
 * one from U+0100. */
static uint32_t byte_char(int byte)
{
    uint32_t next = 256;
    for (int b = 0; b < 256; b++) {
        const bool is_printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        if (b == byte) {
            return is_printable ? (uint32_t)b : next;
        }
        next += !is_printable;
    }
    return 0;
}

static void spell(struct buf *b, const char *bytes, size_t n)
{
    char c[4];
    for (size_t i = 0; i < n; i++) {
        buf_add(b, c, (size_t)utf8_put(c, byte_char((unsigned char)bytes[i])));
    }
}

/* Takes the buffer's text. */
static int take(struct buf *b, struct tok_str *ret, struct err *e)
{
    size_t n;
    char *s = buf_take(b, &n);
    if (!s) {
        return err_set(e, ERR_NOMEM, "out of memory for the vocabulary");
    }
    *ret = (struct tok_str){s, n};
    return 0;
}

static bool grow(struct vocab *v)
{
    const int cap = v->cap ? 2 * v->cap : 512;
    struct tok_str *bytes = realloc(v->bytes, (size_t)cap * sizeof *bytes);
    v->bytes = bytes ? bytes : v->bytes;
    struct tok_str *pieces = realloc(v->pieces, (size_t)cap * sizeof *pieces);
    v->pieces = pieces ? pieces : v->pieces;
    int32_t *types = realloc(v->types, (size_t)cap * sizeof *types);
    v->types = types ? types : v->types;
    v->cap = bytes && pieces && types ? cap : v->cap;
    return v->cap == cap;
}

static int push(struct vocab *v, const char *bytes, size_t n, int32_t type, struct err *e)
{
    struct buf b;
    int rc;
    if (v->n == VOCAB_MAX) {
        return err_set(e, ERR_LIMIT, "more than %d tokens", VOCAB_MAX);
    }
    if (v->n == v->cap && !grow(v)) {
        return err_set(e, ERR_NOMEM, "out of memory for the vocabulary");
    }
    buf_init(&b, (size_t)4 * VOCAB_PIECE_BYTES_MAX);
    buf_add(&b, bytes, n);
    rc = take(&b, &v->bytes[v->n], e);
    if (rc) {
        return rc;
    }
    if (type == TOK_CONTROL) {
        buf_add(&b, bytes, n);
    } else {
        spell(&b, bytes, n);
    }
    rc = take(&b, &v->pieces[v->n], e);
    if (rc) {
        free((void *)(uintptr_t)v->bytes[v->n].s);
        return rc;
    }
    v->types[v->n++] = type;
    return 0;
}

static int find(const struct vocab *v, const char *bytes, size_t n)
{
    for (int i = 0; i < v->n; i++) {
        if (v->bytes[i].n == n && !memcmp(v->bytes[i].s, bytes, n)) {
            return i;
        }
    }
    return -1;
}

static bool grow_merges(struct vocab *v)
{
    const size_t cap = v->cap_merges ? 2 * v->cap_merges : 64;
    struct tok_str *more = realloc(v->merges, cap * sizeof *more);
    v->merges = more ? more : v->merges;
    v->cap_merges = more ? cap : v->cap_merges;
    return more != NULL;
}

int vocab_merge(struct vocab *v, struct tok_str left, struct tok_str right, struct err *e)
{
    struct buf b;
    int32_t id;
    if (v->n_merges == v->cap_merges && !grow_merges(v)) {
        return err_set(e, ERR_NOMEM, "out of memory for the vocabulary");
    }
    buf_init(&b, (size_t)8 * VOCAB_PIECE_BYTES_MAX);
    spell(&b, left.s, left.n);
    buf_char(&b, ' ');
    spell(&b, right.s, right.n);
    int rc = take(&b, &v->merges[v->n_merges], e);
    if (rc) {
        return rc;
    }
    v->n_merges++;
    buf_add(&b, left.s, left.n);
    buf_add(&b, right.s, right.n);
    rc = buf_error(&b) ? err_set(e, ERR_NOMEM, "out of memory for the vocabulary")
                       : vocab_add(v, b.data, b.len, &id, e);
    buf_done(&b);
    return rc;
}

static int fill(struct vocab *v, struct err *e)
{
    static const char *const controls[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    int rc = 0;
    for (int i = 0; i < 256 && !rc; i++) {
        const char c = (char)i;
        rc = push(v, &c, 1, TOK_NORMAL, e);
    }
    for (size_t i = 0; i < 3 && !rc; i++) {
        rc = push(v, controls[i], strlen(controls[i]), TOK_CONTROL, e);
    }
    for (size_t i = 0; i < sizeof merges / sizeof *merges && !rc; i++) {
        rc = vocab_merge(v, (struct tok_str){merges[i].left, strlen(merges[i].left)},
                         (struct tok_str){merges[i].right, strlen(merges[i].right)}, e);
    }
    for (size_t i = 0; i < sizeof unmerged / sizeof *unmerged && !rc; i++) {
        rc = push(v, unmerged[i], strlen(unmerged[i]), TOK_NORMAL, e);
    }
    return rc;
}

int vocab_new(struct vocab **ret, struct err *e)
{
    struct vocab *v = calloc(1, sizeof *v);
    if (!v) {
        return err_set(e, ERR_NOMEM, "out of memory for the vocabulary");
    }
    const int rc = fill(v, e);
    if (rc) {
        vocab_free(v);
        return rc;
    }
    *ret = v;
    return 0;
}

void vocab_free(struct vocab *v)
{
    if (!v) {
        return;
    }
    for (int i = 0; i < v->n; i++) {
        free((void *)(uintptr_t)v->bytes[i].s);
        free((void *)(uintptr_t)v->pieces[i].s);
    }
    for (size_t i = 0; i < v->n_merges; i++) {
        free((void *)(uintptr_t)v->merges[i].s);
    }
    free(v->bytes);
    free(v->pieces);
    free(v->types);
    free(v->merges);
    free(v);
}

int vocab_add(struct vocab *v, const char *bytes, size_t n, int32_t *ret, struct err *e)
{
    int id = find(v, bytes, n);
    if (n < 1 || n > VOCAB_PIECE_BYTES_MAX) {
        return err_set(e, ERR_INVAL, "a piece of %zu bytes, it must have 1 to %d", n,
                       VOCAB_PIECE_BYTES_MAX);
    }
    if (id < 0) {
        id = v->n;
        const int rc = push(v, bytes, n, TOK_NORMAL, e);
        if (rc) {
            return rc;
        }
    }
    *ret = id;
    return 0;
}

int vocab_size(const struct vocab *v)
{
    return v->n;
}

int vocab_fill(struct vocab *v, int n, struct err *e)
{
    char piece[32];
    int rc = 0;
    while (v->n < n && !rc) {
        const int len = snprintf(piece, sizeof piece, " w%d", v->n); /* unlike any piece above */
        rc = push(v, piece, (size_t)len, TOK_NORMAL, e);
    }
    return rc;
}

void vocab_spec(const struct vocab *v, struct tok_spec *ret)
{
    *ret = (struct tok_spec){
        .model = "gpt2",
        .pre = "qwen2",
        .pieces = v->pieces,
        .types = v->types,
        .n_vocab = (size_t)v->n,
        .merges = v->merges,
        .n_merges = v->n_merges,
        .bos = -1,
        .eos = VOCAB_IM_END,
        .eot = -1,
    };
}

int vocab_tok(const struct vocab *v, struct tok **ret, struct err *e)
{
    struct tok_spec spec;
    vocab_spec(v, &spec);
    return tok_new(&spec, ret, e);
}
