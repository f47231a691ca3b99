/*
 * SentencePiece's kind of BPE (Kudo and Richardson 2018): a text starts as one symbol a character,
 * and of all neighbours that are a piece together the pair whose piece has the highest score (the
 * leftmost among equals) is joined until no two neighbours are one. Characters that are no piece
 * become their bytes' tokens, or the unknown token.
 *
 * Pieces here are plain bytes: U+2581, which stands for a space in the file, became one when the
 * vocabulary was loaded (tok_load.c), and does in the text. A space goes before the text, and
 * before each stretch of text behind a special token, if the vocabulary says so.
 *
 * There is no pre-tokenizer: one merge spans the text. To keep it small the text is cut where
 * nothing can ever be joined: between two characters whose bytes at the seam (last, first) are
 * neighbours in no piece. In practice that is before nearly every word.
 *
 *   a part:  a doubly linked list in arrays, and a heap of (score, position)
 *
 *        at    [ 0 1 2 3 …     where the symbol begins; it ends where the next one does
 *        pair  [ id …          the piece that this symbol and its neighbour are together
 *
 *   An entry of the heap is stale when the pair at its position has another score. A join looks up
 *   two pairs and queues at most two: O(n log n).
 */
#include "engine/tok_impl.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "engine/tok_heap.h"

#define END UINT32_MAX
#define NO_PAIR UINT32_MAX        /* the two are no piece */
#define GONE (UINT32_MAX - 1)     /* joined to the symbol before it */
#define NOT_LOOKED (UINT32_MAX - 2)

static size_t pair_bit(char left, char right)
{
    return (size_t)(unsigned char)left << 8 | (unsigned char)right;
}

void spm_learn(struct spm *m, const char *s, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        const size_t bit = pair_bit(s[i - 1], s[i]);
        m->inside[bit >> 3] |= (uint8_t)(1 << (bit & 7));
    }
    if (n > m->piece_max)
        m->piece_max = n;
}

static bool is_inside(const struct spm *m, char left, char right)
{
    const size_t bit = pair_bit(left, right);
    return m->inside[bit >> 3] >> (bit & 7) & 1;
}

uint32_t spm_order(float score)
{
    uint32_t bits;
    score += 0.0f; /* −0 is 0 */
    memcpy(&bits, &score, sizeof bits);
    return bits >> 31 ? bits : ~(bits | UINT32_C(1) << 31);
}

void spm_scratch_done(struct spm_scratch *s)
{
    free(s->at);
    free(s->heap);
    free(s->text);
    memset(s, 0, sizeof *s);
}

/* Room for n symbols; the five arrays lie behind each other. */
static int reserve(struct spm_scratch *s, size_t n, struct err *e)
{
    if (n <= s->cap)
        return 0;
    const size_t cap = n + n / 2 + 64;
    uint32_t *p = cap < UINT32_MAX / 20 ? malloc(cap * 5 * sizeof *p) : NULL;
    if (!p)
        return err_set(e, ERR_NOMEM, "no memory to merge %zu characters", n);
    free(s->at);
    s->at = p;
    s->next = p + cap;
    s->prev = p + 2 * cap;
    s->pair = p + 3 * cap;
    s->id = p + 4 * cap;
    s->cap = cap;
    return 0;
}

static int reserve_heap(struct spm_scratch *s, size_t n, struct err *e)
{
    if (n <= s->cap_heap)
        return 0;
    const size_t cap = n + n / 2 + 64;
    uint64_t *p = realloc(s->heap, cap * sizeof *p);
    if (!p)
        return err_set(e, ERR_NOMEM, "no memory to merge %zu pairs", n);
    s->heap = p;
    s->cap_heap = cap;
    return 0;
}

/* A stretch of text at work. */
struct part {
    const struct tok *tok;
    struct spm_scratch *scratch;
    struct tok_str text;
};

static size_t symbol_end(const struct part *p, uint32_t i)
{
    const uint32_t next = p->scratch->next[i];
    return next == END ? p->text.n : p->scratch->at[next];
}

static uint32_t find_piece(const struct part *p, size_t from, size_t to)
{
    const char *s = p->text.s + from;
    const size_t n = to - from;
    p->scratch->n_steps++;
    return n > p->tok->spm.piece_max ? BPE_NO_RANK : tok_index_find(p->tok, s, n, tok_hash(s, n));
}

/* Looks up what i and its neighbour are together. False: nothing to be queued. */
static bool look_at_pair(const struct part *p, uint32_t i, uint64_t *ret_entry)
{
    struct spm_scratch *s = p->scratch;
    const uint32_t next = s->next[i];
    s->pair[i] = NO_PAIR;
    if (next == END)
        return false;
    const uint32_t id = find_piece(p, s->at[i], symbol_end(p, next));
    if (id == BPE_NO_RANK)
        return false;
    s->pair[i] = id;
    *ret_entry = (uint64_t)p->tok->spm.order[id] << 32 | i;
    return true;
}

/* One symbol a character, and all of their pairs. Returns how many. */
static int start(const struct part *p, uint32_t *ret_n, struct err *e)
{
    struct spm_scratch *s = p->scratch;
    uint32_t n = 0;
    int rc = reserve(s, p->text.n, e);
    if (rc == 0)
        rc = reserve_heap(s, p->text.n, e);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < p->text.n; n++) {
        bool is_ok;
        s->at[n] = (uint32_t)i;
        s->next[n] = n + 1;
        s->prev[n] = n > 0 ? n - 1 : END;
        s->id[n] = NOT_LOOKED;
        i += utf8_step(p->text.s + i, p->text.n - i, &is_ok);
    }
    s->next[n - 1] = END;
    s->n_heap = 0;
    for (uint32_t i = 0; i < n; i++)
        s->n_heap += look_at_pair(p, i, &s->heap[s->n_heap]);
    for (size_t i = s->n_heap / 2; i-- > 0;)
        tok_heap_down(s->heap, s->n_heap, i);
    *ret_n = n;
    return 0;
}

static int queue_pair(const struct part *p, uint32_t i, struct err *e)
{
    struct spm_scratch *s = p->scratch;
    uint64_t entry;
    if (i == END || !look_at_pair(p, i, &entry))
        return 0;
    int rc = reserve_heap(s, s->n_heap + 1, e);
    if (rc == 0)
        tok_heap_up(s->heap, s->n_heap++, entry);
    return rc;
}

static int join(const struct part *p, uint32_t i, struct err *e)
{
    struct spm_scratch *s = p->scratch;
    const uint32_t gone = s->next[i];
    s->id[i] = s->pair[i];
    s->pair[gone] = GONE;
    s->next[i] = s->next[gone];
    if (s->next[i] != END)
        s->prev[s->next[i]] = i;
    int rc = queue_pair(p, s->prev[i], e);
    return rc < 0 ? rc : queue_pair(p, i, e);
}

static int merge(const struct part *p, struct err *e)
{
    struct spm_scratch *s = p->scratch;
    int rc = 0;
    while (s->n_heap > 0 && rc == 0) {
        const uint64_t top = s->heap[0];
        const uint32_t i = (uint32_t)top, pair = s->pair[i];
        s->n_steps++;
        s->heap[0] = s->heap[--s->n_heap];
        if (s->n_heap > 0)
            tok_heap_down(s->heap, s->n_heap, 0);
        if (pair < p->tok->n_vocab && p->tok->spm.order[pair] == (uint32_t)(top >> 32))
            rc = join(p, i, e);
    }
    return rc;
}

/* A character that is no piece: its bytes, or the unknown token. */
static int emit_bytes(const struct part *p, size_t from, size_t to, struct ids *ret)
{
    const struct tok *t = p->tok;
    for (size_t i = from; i < to; i++) {
        const uint32_t id = t->bpe.byte_symbol[(unsigned char)p->text.s[i]];
        if (id == BPE_NO_RANK && t->spm.unk >= 0)
            return ids_push(ret, t->spm.unk);
        if (id != BPE_NO_RANK && ids_push(ret, (int32_t)id) < 0)
            return -1;
    }
    return 0;
}

static int emit(const struct part *p, struct ids *ret, struct err *e)
{
    const struct spm_scratch *s = p->scratch;
    int rc = 0;
    for (uint32_t i = 0; i != END && rc >= 0; i = s->next[i]) {
        const size_t from = s->at[i], to = symbol_end(p, i);
        const uint32_t id = s->id[i] == NOT_LOOKED ? find_piece(p, from, to) : s->id[i];
        rc = id == BPE_NO_RANK ? emit_bytes(p, from, to, ret) : ids_push(ret, (int32_t)id);
    }
    return rc < 0 ? err_set(e, ERR_NOMEM, "no memory for token ids") : 0;
}

static int encode_part(const struct part *p, struct ids *ret, struct err *e)
{
    uint32_t n;
    int rc = start(p, &n, e);
    if (rc == 0 && n > 1)
        rc = merge(p, e);
    return rc < 0 ? rc : emit(p, ret, e);
}

/* Where the part that begins at `from` ends: at a seam that no piece can span. */
static size_t part_end(const struct spm *m, struct tok_str text, size_t from)
{
    bool is_ok;
    size_t i = from + utf8_step(text.s + from, text.n - from, &is_ok);
    while (i < text.n && is_inside(m, text.s[i - 1], text.s[i]))
        i += utf8_step(text.s + i, text.n - i, &is_ok);
    return i;
}

static bool is_space_sign(const char *s, size_t n)
{
    return n >= 3 && memcmp(s, "\xE2\x96\x81", 3) == 0;
}

/* The text as the pieces spell it: U+2581 is a space, and one goes before it. Borrowed from the
 * scratch, or the text itself when it is that already. */
static int spelling(struct spm_scratch *s, struct tok_str text, bool is_prefixed,
                    struct tok_str *ret, struct err *e)
{
    if (!is_prefixed && !memmem(text.s, text.n, "\xE2\x96\x81", 3)) {
        *ret = text;
        return 0;
    }
    if (text.n + 1 > s->cap_text) {
        char *p = realloc(s->text, text.n + text.n / 4 + 64);
        if (!p)
            return err_set(e, ERR_NOMEM, "no memory for a text of %zu bytes", text.n);
        s->text = p;
        s->cap_text = text.n + text.n / 4 + 64;
    }
    size_t n = 0;
    if (is_prefixed)
        s->text[n++] = ' ';
    for (size_t i = 0; i < text.n;) {
        const bool is_sign = is_space_sign(text.s + i, text.n - i);
        s->text[n++] = is_sign ? ' ' : text.s[i];
        i += is_sign ? 3 : 1;
    }
    *ret = (struct tok_str){s->text, n};
    return 0;
}

int spm_encode(const struct tok *t, struct spm_scratch *s, struct tok_str text, bool is_prefixed,
               struct ids *ret, struct err *e)
{
    struct part p = {.tok = t, .scratch = s};
    struct tok_str all = text;
    int rc = text.n > 0 ? spelling(s, text, is_prefixed, &all, e) : 0;
    for (size_t at = 0; at < all.n && rc == 0; at += p.text.n) {
        p.text = (struct tok_str){all.s + at, part_end(&t->spm, all, at) - at};
        rc = encode_part(&p, ret, e);
    }
    return rc;
}
