/* See counts.h. */
#include "daemon/counts.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

#define KEY_BYTES 20 /* of a hash: two lines that share it are not to be expected */

struct line {
    uint8_t key[KEY_BYTES];
    uint32_t n_tokens; /* + 1; 0: free */
};

struct counts {
    struct line v[COUNTS_SLOTS];
    uint8_t id[HASH_BYTES];    /* of the tokenizer that was asked for last … */
    bool is_known, cuts_lines; /* … and whether it cuts there */
};

struct counts *counts_new(void)
{
    return calloc(1, sizeof(struct counts));
}

void counts_free(struct counts *c)
{
    free(c);
}

/* Bytes up to the next place where a count can be taken apart. */
static size_t line_length(const char *s, size_t n)
{
    for (size_t i = 1; i + 1 < n; i++) {
        const char *at = memchr(s + i, '\n', n - 1 - i);
        if (!at)
            return n;
        i = (size_t)(at - s);
        const char before = s[i - 1], next = s[i + 1];
        const bool is_word = (next >= 'a' && next <= 'z') || (next >= 'A' && next <= 'Z') ||
                             (next >= '0' && next <= '9');
        if (before > ' ' && before < 0x7F && (is_word || next == '-' || next == '['))
            return i + 1;
    }
    return n;
}

static int encode(const struct tok *tok, const char *text, size_t n)
{
    struct ids ids;
    struct err e;
    ids_init(&ids);
    const int rc = tok_encode(tok, text, n, false, &ids, &e);
    const int n_tokens = (int)ids.n;
    ids_done(&ids);
    return rc ? rc : n_tokens;
}

static int count_line(struct counts *c, const struct tok *tok, const char *text, size_t n)
{
    struct hash_state s;
    uint8_t key[HASH_BYTES];
    uint32_t slot;
    hash_init(&s);
    hash_add(&s, c->id, HASH_BYTES);
    hash_add(&s, text, n);
    hash_end(&s, key);
    memcpy(&slot, key + KEY_BYTES, sizeof slot);
    struct line *line = &c->v[slot & (COUNTS_SLOTS - 1)];
    if (line->n_tokens > 0 && memcmp(line->key, key, KEY_BYTES) == 0)
        return (int)line->n_tokens - 1;
    const int n_tokens = encode(tok, text, n);
    if (n_tokens >= 0) {
        memcpy(line->key, key, KEY_BYTES);
        line->n_tokens = (uint32_t)n_tokens + 1;
    }
    return n_tokens;
}

int counts_of(struct counts *c, const struct tok *tok, const char *text, size_t n)
{
    uint8_t id[HASH_BYTES];
    int sum = 0;
    if (!c)
        return encode(tok, text, n);
    tok_fingerprint(tok, id);
    if (!c->is_known || memcmp(c->id, id, HASH_BYTES) != 0) {
        memcpy(c->id, id, HASH_BYTES);
        c->cuts_lines = tok_cuts_lines(tok);
        c->is_known = true;
    }
    for (size_t i = 0, len; i < n; i += len) {
        len = c->cuts_lines ? line_length(text + i, n - i) : n;
        const int n_tokens = count_line(c, tok, text + i, len);
        if (n_tokens < 0)
            return n_tokens;
        sum += n_tokens;
    }
    return sum;
}
