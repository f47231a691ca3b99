/*
 * Tokenizers: reading the merges of a byte-level BPE vocabulary, "left right" a line in order of
 * rank, into the table of tok_bpe.c. Both sides and their result are looked up by their bytes among
 * the pieces that tok_load.c has indexed; one that is no token becomes a symbol above them.
 *
 * The tables have megabytes and the lines come in no order that a cache likes, so they are taken in
 * batches: the slots of a whole batch are touched before the first of them is needed, which
 * overlaps the misses.
 */
#include "engine/tok_impl.h"

#include <stdlib.h>
#include <string.h>

static int find_or_add(struct tok *t, const struct tok_str *s, uint32_t hash, uint32_t *ret,
                       struct err *e)
{
    *ret = tok_index_find(t, s->s, s->n, hash);
    return *ret == BPE_NO_RANK ? tok_add_symbol(t, s->s, s->n, ret, e) : 0;
}

/* The bytes of "left right" into it->s. Spelt with characters that no text has: is_spelt is false,
 * and the merge can't be reached. */
static int parse_merge(const struct tok_spec *spec, size_t rank, const uint16_t *map,
                       struct tok_item *it, struct err *e)
{
    const struct tok_str *m = &spec->merges[rank];
    const char *space = m->n > 2 ? memchr(m->s + 1, ' ', m->n - 1) : NULL;
    size_t n_right;
    if (m->n > PIECE_BYTES_MAX)
        return err_set(e, ERR_CORRUPT, "merge %zu has %zu bytes, the limit is %zu", rank, m->n,
                       PIECE_BYTES_MAX);
    if (!space || space + 1 == m->s + m->n)
        return err_set(e, ERR_CORRUPT,
                       "merge %zu (\"%.*s\") is not two pieces with a space between", rank,
                       (int)(m->n < 40 ? m->n : 40), m->s);
    size_t n_left = (size_t)(space - m->s);
    it->is_spelt = tok_spelt(map, m->s, n_left, it->s, &it->n_left) &&
                   tok_spelt(map, space + 1, m->n - n_left - 1, it->s + it->n_left, &n_right);
    if (!it->is_spelt)
        return 0;
    it->n = it->n_left + n_right;
    it->hash = tok_hash(it->s, it->n_left);
    it->hash_right = tok_hash(it->s + it->n_left, n_right);
    return 0;
}

static int find_sides(struct tok *t, struct tok_item *it, struct err *e)
{
    struct tok_str left = {it->s, it->n_left}, right = {it->s + it->n_left, it->n - it->n_left};
    if (!it->is_spelt)
        return 0;
    int rc = find_or_add(t, &left, it->hash, &it->left, e);
    if (rc == 0)
        rc = find_or_add(t, &right, it->hash_right, &it->right, e);
    if (rc == 0)
        bpe_touch(&t->bpe, it->left, it->right);
    return rc;
}

/* The result's symbol: mostly the one after the last merge's. */
static int find_result(struct tok *t, const struct tok_item *it, uint32_t *inout, struct err *e)
{
    struct tok_str whole = {it->s, it->n};
    uint32_t guess = *inout + 1;
    if (guess < t->n_vocab && t->type[guess] != TOK_CONTROL && t->type[guess] != TOK_USER_DEFINED &&
        t->type[guess] != TOK_UNKNOWN && tok_symbol_is(t, guess, &whole)) {
        *inout = guess;
        return 0;
    }
    return find_or_add(t, &whole, tok_hash(whole.s, whole.n), inout, e);
}

static int load_batch(struct tok *t, struct tok_item *batch, size_t n, uint32_t *last,
                      struct err *e)
{
    int rc = 0;
    for (size_t i = 0; i < n; i++) {
        tok_touch_index(t, batch[i].hash);
        tok_touch_index(t, batch[i].hash_right);
    }
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = find_sides(t, &batch[i], e);
    for (size_t i = 0; i < n && rc == 0; i++) {
        uint32_t result = BPE_NO_RANK;
        if (batch[i].is_spelt) {
            rc = find_result(t, &batch[i], last, e);
            result = *last;
        }
        if (rc == 0)
            bpe_add(&t->bpe, batch[i].left, batch[i].right, result);
    }
    return rc;
}

int tok_load_merges(struct tok *t, const struct tok_spec *spec, const uint16_t *map, struct err *e)
{
    struct tok_item batch[TOK_BATCH];
    char *strings = malloc(TOK_BATCH * PIECE_BYTES_MAX);
    uint32_t last = 0;
    int rc = strings ? 0 : err_set(e, ERR_NOMEM, "no memory for the merges");
    for (size_t at = 0; at < spec->n_merges && rc == 0; at += TOK_BATCH) {
        size_t n = spec->n_merges - at < TOK_BATCH ? spec->n_merges - at : TOK_BATCH, used = 0;
        for (size_t i = 0; i < n && rc == 0; i++) {
            batch[i] = (struct tok_item){.s = strings + used};
            rc = parse_merge(spec, at + i, map, &batch[i], e);
            used += batch[i].n;
        }
        if (rc == 0)
            rc = load_batch(t, batch, n, &last, e);
    }
    free(strings);
    return rc;
}
