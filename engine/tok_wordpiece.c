/*
 * WordPiece. See tok_wordpiece.h.
 *
 *      text ─► characters ─► bare ones (utf8_bare) ─► word [<= 100 characters] ─► pieces ─► ids
 *
 * The vocabulary is one hash table of (begins or continues a word, bytes). While a word is spelt,
 * the hashes of all prefixes of what is left are made in one go, so that trying the next shorter
 * piece costs one look; a word's length and a piece's length are bounded, so time is linear.
 */
#include "engine/tok_wordpiece.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"
#include "base/utf8.h"

#define VOCAB_MAX ((size_t)1 << 20)
#define ALL_BYTES_MAX ((size_t)1 << 28)
#define PIECE_BYTES_MAX 400 /* longer ones can't be part of a word */
#define WORD_BYTES (4 * WORDPIECE_WORD_MAX)

#define BEGIN_MARK "\xE2\x96\x81" /* U+2581 */
#define BEGIN_MARK_BYTES 3

static void *zeroed(size_t n, size_t size)
{
    void *p = sys.malloc(n * size); /* both are bounded */
    return p ? memset(p, 0, n * size) : NULL;
}

struct wordpiece {
    char *bytes;     /* the pieces, marks taken off */
    uint32_t *off;   /* [n + 1] */
    uint8_t *begins; /* [n] whether it begins a word */
    uint32_t *slots; /* [mask + 1] id + 1; 0: empty */
    size_t n, mask, longest;
    int32_t cls, sep, unk;
};

static uint32_t hash_begin(bool begins)
{
    return begins ? 2166136261u : 2166136261u * 31;
}

static uint32_t hash_byte(uint32_t h, char c)
{
    return (h ^ (unsigned char)c) * 16777619u;
}

/* The table's place of a hash: its low bits alone are poor. */
static size_t place(const struct wordpiece *w, uint32_t h)
{
    h ^= h >> 15;
    h *= 0x2c1b3c6du;
    h ^= h >> 13;
    return h & w->mask;
}

static int32_t find(const struct wordpiece *w, bool begins, struct tok_str s, uint32_t h)
{
    for (size_t i = place(w, h); w->slots[i]; i = (i + 1) & w->mask) {
        const uint32_t id = w->slots[i] - 1, at = w->off[id];
        if (w->begins[id] == begins && w->off[id + 1] - at == s.n &&
            memcmp(w->bytes + at, s.s, s.n) == 0)
            return (int32_t)id;
    }
    return -1;
}

static void add(struct wordpiece *w, uint32_t id)
{
    const struct tok_str s = {w->bytes + w->off[id], w->off[id + 1] - w->off[id]};
    uint32_t h = hash_begin(w->begins[id]);
    if (s.n == 0 || s.n > PIECE_BYTES_MAX)
        return;
    for (size_t i = 0; i < s.n; i++)
        h = hash_byte(h, s.s[i]);
    if (find(w, w->begins[id], s, h) >= 0)
        return; /* of doubled pieces the first is used */
    size_t i = place(w, h);
    while (w->slots[i])
        i = (i + 1) & w->mask;
    w->slots[i] = id + 1;
    if (s.n > w->longest)
        w->longest = s.n;
}

static bool starts_with(struct tok_str s, const char *mark, size_t n)
{
    return s.n > n && memcmp(s.s, mark, n) == 0;
}

/* llama.cpp's spelling marks beginnings, the models' own marks continuations. */
static bool marks_beginnings(const struct wordpiece_spec *spec)
{
    for (size_t i = 0; i < spec->n; i++)
        if (starts_with(spec->pieces[i], BEGIN_MARK, BEGIN_MARK_BYTES))
            return true;
    return false;
}

static bool is_special(const struct wordpiece_spec *spec, size_t i)
{
    return spec->types && (spec->types[i] == TOK_CONTROL || spec->types[i] == TOK_UNKNOWN);
}

static int32_t find_special(const struct wordpiece_spec *spec, int32_t id, const char *name)
{
    const size_t n = strlen(name);
    for (size_t i = 0; id < 0 && i < spec->n; i++)
        if (spec->pieces[i].n == n && memcmp(spec->pieces[i].s, name, n) == 0)
            id = (int32_t)i;
    return id;
}

static int set_specials(struct wordpiece *w, const struct wordpiece_spec *spec, struct err *e)
{
    w->cls = find_special(spec, spec->cls, "[CLS]");
    w->sep = find_special(spec, spec->sep, "[SEP]");
    w->unk = find_special(spec, spec->unk, "[UNK]");
    const int32_t ids[] = {w->cls, w->sep, w->unk};
    const char *const names[] = {"[CLS]", "[SEP]", "[UNK]"};
    for (size_t i = 0; i < 3; i++)
        if (ids[i] < 0 || (size_t)ids[i] >= spec->n)
            return err_set(e, ERR_CORRUPT, "the vocabulary of %zu pieces has no %s", spec->n,
                           names[i]);
    return 0;
}

static void fill(struct wordpiece *w, const struct wordpiece_spec *spec)
{
    const bool marked = marks_beginnings(spec);
    const char *mark = marked ? BEGIN_MARK : "##";
    const size_t n_mark = strlen(mark);
    uint32_t at = 0;
    for (size_t i = 0; i < spec->n; i++) {
        const struct tok_str s = spec->pieces[i];
        const size_t skip = starts_with(s, mark, n_mark) ? n_mark : 0;
        w->begins[i] = (skip > 0) == marked;
        w->off[i] = at;
        memcpy(w->bytes + at, s.s + skip, s.n - skip);
        at += (uint32_t)(s.n - skip);
    }
    w->off[spec->n] = at;
    for (size_t i = 0; i < spec->n; i++) {
        const int32_t id = (int32_t)i;
        if (id != w->cls && id != w->sep && id != w->unk && id != spec->pad && !is_special(spec, i))
            add(w, (uint32_t)i);
    }
}

int wordpiece_new(const struct wordpiece_spec *spec, struct wordpiece **ret, struct err *e)
{
    size_t n_bytes = 0, n_slots = 16;
    for (size_t i = 0; i < spec->n && i < VOCAB_MAX && n_bytes <= ALL_BYTES_MAX; i++)
        n_bytes += spec->pieces[i].n;
    if (spec->n > VOCAB_MAX || n_bytes > ALL_BYTES_MAX)
        return err_set(e, ERR_LIMIT, "a vocabulary of %zu pieces; %zu in %zu bytes are allowed",
                       spec->n, VOCAB_MAX, ALL_BYTES_MAX);
    while (n_slots < 2 * spec->n)
        n_slots *= 2;
    struct wordpiece *w = zeroed(1, sizeof *w);
    if (!w)
        return err_set(e, ERR_NOMEM, "wordpiece: out of memory");
    w->n = spec->n;
    w->mask = n_slots - 1;
    w->bytes = sys.malloc(n_bytes + 1);
    w->off = zeroed(spec->n + 1, sizeof *w->off);
    w->begins = zeroed(spec->n + 1, 1);
    w->slots = zeroed(n_slots, sizeof *w->slots);
    int rc = w->bytes && w->off && w->begins && w->slots
                 ? set_specials(w, spec, e)
                 : err_set(e, ERR_NOMEM, "wordpiece: out of memory");
    if (rc < 0) {
        wordpiece_free(w);
        return rc;
    }
    fill(w, spec);
    *ret = w;
    return 0;
}

void wordpiece_free(struct wordpiece *w)
{
    if (!w)
        return;
    free(w->bytes);
    free(w->off);
    free(w->begins);
    free(w->slots);
    free(w);
}

int32_t wordpiece_cls(const struct wordpiece *w)
{
    return w->cls;
}

int32_t wordpiece_sep(const struct wordpiece *w)
{
    return w->sep;
}

int32_t wordpiece_unk(const struct wordpiece *w)
{
    return w->unk;
}

size_t wordpiece_n_vocab(const struct wordpiece *w)
{
    return w->n;
}

/* ---- encoding ---- */

struct encoding {
    const struct wordpiece *w;
    struct ids *ret;
    size_t max, n_begin; /* ids before it was called */
    char word[WORD_BYTES];
    size_t n_word;  /* bytes; 0: none */
    int n_chars;    /* above WORDPIECE_WORD_MAX: too long */
    size_t word_at; /* in the text */
    size_t used;    /* everything before is spelt */
    bool is_full;
    int rc;
};

/* The longest piece at s, or -1. */
static int32_t longest(const struct wordpiece *w, bool begins, struct tok_str s, size_t *ret_n)
{
    uint32_t hash[WORD_BYTES];
    const size_t n = s.n < w->longest ? s.n : w->longest;
    uint32_t h = hash_begin(begins);
    for (size_t i = 0; i < n; i++)
        hash[i] = h = hash_byte(h, s.s[i]);
    for (size_t k = n; k > 0; k--) {
        const int32_t id = find(w, begins, (struct tok_str){s.s, k}, hash[k - 1]);
        if (id >= 0) {
            *ret_n = k;
            return id;
        }
    }
    return -1;
}

/* Spells the word into ids[0, WORDPIECE_WORD_MAX]; [UNK] when it can't be done. */
static size_t spell(const struct encoding *c, int32_t *ids)
{
    size_t n = 0, at = 0;
    ids[0] = c->w->unk;
    if (c->n_chars > WORDPIECE_WORD_MAX)
        return 1;
    while (at < c->n_word) {
        size_t k = 0;
        const struct tok_str rest = {c->word + at, c->n_word - at};
        const int32_t id = longest(c->w, at == 0, rest, &k);
        if (id < 0) {
            ids[0] = c->w->unk;
            return 1;
        }
        ids[n++] = id;
        at += k;
    }
    return n;
}

/* The word has ended before `end`. */
static void flush(struct encoding *c, size_t end)
{
    int32_t ids[WORD_BYTES];
    if (c->n_chars == 0 || c->rc || c->is_full)
        return;
    const size_t n = spell(c, ids), have = c->ret->n - c->n_begin;
    const bool fits = have + n <= c->max;
    c->rc = ids_add(c->ret, ids, fits ? n : c->max - have);
    c->n_word = 0;
    c->n_chars = 0;
    c->is_full = !fits;
    if (fits || have == 0) /* or a word that fits nowhere: what doesn't is lost */
        c->used = end;
}

/* One character of a word; c->n_chars counts on when there is no room, so that it is too long. */
static void push(struct encoding *c, uint32_t cp, size_t at)
{
    char out[4];
    const int n = utf8_put(out, cp);
    if (c->n_chars == 0)
        c->word_at = at;
    if (c->n_chars++ >= WORDPIECE_WORD_MAX) {
        c->n_chars = WORDPIECE_WORD_MAX + 1;
        return;
    }
    memcpy(c->word + c->n_word, out, (size_t)n);
    c->n_word += (size_t)n;
}

/* A word by itself. */
static void push_alone(struct encoding *c, uint32_t cp, size_t at, size_t end)
{
    flush(c, at);
    push(c, cp, at);
    flush(c, end);
}

static void take(struct encoding *c, uint32_t cp, size_t at, size_t end)
{
    uint32_t bare[UTF8_FOLD_MAX];
    const enum utf8_break kind = utf8_break(cp);
    if (kind == UTF8_BREAK_CONTROL)
        return;
    if (kind == UTF8_BREAK_SPACE) {
        flush(c, at);
        return;
    }
    const int n = utf8_bare(cp, bare);
    if (kind == UTF8_BREAK_IDEOGRAPH)
        flush(c, at);
    for (int i = 0; i < n; i++) {
        if (utf8_break(bare[i]) == UTF8_BREAK_PUNCTUATION)
            push_alone(c, bare[i], at, end);
        else
            push(c, bare[i], at);
    }
    if (kind == UTF8_BREAK_IDEOGRAPH)
        flush(c, end);
}

int wordpiece_encode(const struct wordpiece *w, struct tok_str text, size_t max, struct ids *ret,
                     size_t *ret_used)
{
    struct encoding c = {.w = w, .ret = ret, .max = max, .n_begin = ret->n};
    assert(max > 0);
    for (size_t i = 0; i < text.n && !c.is_full && !c.rc;) {
        bool ok;
        size_t at = i;
        const size_t step = utf8_step(text.s + i, text.n - i, &ok);
        i += step;
        if (ok)
            take(&c, utf8_next(text.s, text.n, &at), i - step, i);
    }
    flush(&c, text.n);
    *ret_used = c.is_full ? c.used : text.n;
    return c.rc;
}
