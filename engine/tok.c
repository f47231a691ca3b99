/*
 * Tokenizers: encoding and look-ups over the tables that tok_load.c made. See tok.h for the
 * promises, tok_impl.h for the way of a text and for the tables.
 */
#include "engine/tok.h"

#include <string.h>

#include "base/utf8.h"
#include "engine/tok_impl.h"

uint32_t tok_hash(const char *s, size_t n)
{
    uint64_t h = n * 0x9E3779B97F4A7C15ull;
    for (; n >= 8; s += 8, n -= 8) {
        uint64_t w;
        memcpy(&w, s, 8);
        h = (h ^ w) * 0xD6E8FEB86659FD93ull;
        h ^= h >> 32;
    }
    uint64_t w = 0;
    memcpy(&w, s, n);
    h = (h ^ w) * 0xD6E8FEB86659FD93ull;
    return (uint32_t)(h >> 32);
}

uint32_t tok_index_find(const struct tok *t, const char *s, size_t n, uint32_t hash)
{
    for (size_t i = hash & t->index_mask; t->index[i]; i = (i + 1) & t->index_mask) {
        uint32_t symbol = (uint32_t)t->index[i] - 1;
        size_t len;
        if (t->index[i] >> 32 != hash)
            continue;
        const char *bytes = tok_symbol(t, symbol, &len);
        if (len == n && memcmp(bytes, s, n) == 0)
            return symbol;
    }
    return BPE_NO_RANK;
}

static const char *spell(const void *ctx, uint32_t symbol, size_t *ret_n)
{
    return tok_symbol(ctx, symbol, ret_n);
}

int32_t tok_trie_child(const struct tok *t, int32_t node, unsigned char byte)
{
    int32_t i = t->nodes[node].child;
    while (i >= 0 && t->nodes[i].byte != byte)
        i = t->nodes[i].next;
    return i;
}

/* The longest special token that s begins with: its id and length, or -1. */
static int32_t match_special(const struct tok *t, const char *s, size_t n, bool special,
                             size_t *ret_n)
{
    int32_t best = -1, node = t->root[special][(unsigned char)s[0]];
    for (size_t i = 1; node >= 0; i++) {
        if (t->nodes[node].id[special] >= 0) {
            best = t->nodes[node].id[special];
            *ret_n = i;
        }
        node = i < n ? tok_trie_child(t, node, (unsigned char)s[i]) : -1;
    }
    return best;
}

/* One tok_encode call. */
struct encoding {
    const struct tok *tok;
    struct split_run *run; /* NULL: SentencePiece */
    struct bpe_job job;
    struct spm_scratch spm;
    struct buf nfc;
    bool special;
    bool is_start; /* the next text is the first, or behind a special token */
};

static int encode_piece(void *ctx, const char *piece, size_t n, struct err *e)
{
    const struct bpe_job *job = ctx;
    const struct tok *t = job->spell_ctx;
    if (t->ignores_merges) {
        const uint32_t symbol = tok_index_find(t, piece, n, tok_hash(piece, n));
        if (symbol < t->n_vocab)
            return ids_push(job->ret, (int32_t)symbol) < 0
                       ? err_set(e, ERR_NOMEM, "no memory for token ids")
                       : 0;
    }
    return bpe_encode(job, piece, n, e);
}

/* Valid UTF-8 without special tokens. */
static int encode_valid(struct encoding *en, struct tok_str text, struct err *e)
{
    if (en->tok->is_nfc && !utf8_is_nfc(text.s, text.n)) {
        buf_clear(&en->nfc);
        int rc = utf8_nfc(text.s, text.n, &en->nfc);
        if (rc < 0)
            return err_set(e, rc, "no memory to normalise a text of %zu bytes", text.n);
        text = (struct tok_str){en->nfc.data, en->nfc.len};
    }
    return split_text(en->run, text, encode_piece, &en->job, e);
}

/* Text without special tokens. Bytes that aren't UTF-8 end a run for the pre-tokenizer; each
 * stretch of them is a piece of its own. */
static int encode_plain(struct encoding *en, const char *text, size_t n, struct err *e)
{
    int rc = 0;
    const bool is_prefixed = en->is_start && en->tok->spm.add_space;
    if (n > 0)
        en->is_start = false;
    if (!en->run)
        return spm_encode(en->tok, &en->spm, (struct tok_str){text, n}, is_prefixed, en->job.ret,
                          e);
    for (size_t i = 0, len; i < n && rc == 0; i += len) {
        len = n - i;
        if (utf8_valid(text + i, n - i, &len) || len > 0) {
            rc = encode_valid(en, (struct tok_str){text + i, len}, e);
            continue;
        }
        bool is_ok = false;
        for (size_t step; !is_ok && i + len < n; len += is_ok ? 0 : step)
            step = utf8_step(text + i + len, n - i - len, &is_ok);
        rc = bpe_encode(&en->job, text + i, len, e);
    }
    return rc;
}

/* White space at s that the special token before it takes. */
static size_t taken_space(const struct tok *t, int32_t id, const char *s, size_t n)
{
    size_t i = 0;
    if (tok_strips_after(t, id))
        while (i < n && (s[i] == ' ' || (s[i] >= '\t' && s[i] <= '\r')))
            i++;
    return i;
}

static int encode_all(struct encoding *en, const char *text, size_t n, struct err *e)
{
    const struct tok *t = en->tok;
    size_t from = 0;
    for (size_t i = 0; i < n;) {
        size_t len;
        int32_t id = t->root[en->special][(unsigned char)text[i]] < 0
                         ? -1
                         : match_special(t, text + i, n - i, en->special, &len);
        if (id < 0) {
            i++;
            continue;
        }
        int rc = encode_plain(en, text + from, i - from, e);
        if (rc == 0 && ids_push(en->job.ret, id) < 0)
            rc = err_set(e, ERR_NOMEM, "no memory for token ids");
        if (rc < 0)
            return rc;
        i += len;
        from = i += taken_space(t, id, text + i, n - i);
        en->is_start = true;
    }
    return encode_plain(en, text + from, n - from, e);
}

static int encode(struct encoding *en, struct tok_str text, struct ids *ret, uint64_t *ret_steps,
                  struct err *e)
{
    struct bpe_scratch scratch = {0};
    const struct tok *t = en->tok;
    size_t n_before = ret->n;
    int rc = t->split ? split_run_new(t->split, &en->run, e) : 0;
    if (rc < 0)
        return rc;
    buf_init(&en->nfc, SIZE_MAX / 2);
    en->job = (struct bpe_job){
        .bpe = &t->bpe, .scratch = &scratch, .spell = spell, .spell_ctx = t, .ret = ret};
    rc = encode_all(en, text.s, text.n, e);
    *ret_steps = scratch.n_steps + en->spm.n_steps;
    split_run_free(en->run);
    bpe_scratch_done(&scratch);
    spm_scratch_done(&en->spm);
    buf_done(&en->nfc);
    if (rc < 0)
        ret->n = n_before;
    return rc;
}

int tok_encode(const struct tok *t, const char *text, size_t n, bool special, struct ids *ret,
               struct err *e)
{
    struct encoding en = {.tok = t, .special = special, .is_start = true};
    uint64_t n_steps;
    return n == 0 ? 0 : encode(&en, (struct tok_str){text, n}, ret, &n_steps, e);
}

int tok_encode_more(const struct tok *t, const char *text, size_t n, bool special, struct ids *ret,
                    struct err *e)
{
    struct encoding en = {.tok = t, .special = special};
    uint64_t n_steps;
    return n == 0 ? 0 : encode(&en, (struct tok_str){text, n}, ret, &n_steps, e);
}

int tok_count_steps(const struct tok *t, struct tok_str text, struct ids *ret, uint64_t *ret_steps,
                    struct err *e)
{
    struct encoding en = {.tok = t, .is_start = true};
    return encode(&en, text, ret, ret_steps, e);
}

bool tok_cuts_lines(const struct tok *t)
{
    if (!t->split || split_def(t->split)->flags & PRE_SPANS_LINES)
        return false;
    for (size_t i = 0; i < t->n_vocab; i++) {
        size_t n;
        const char *piece = tok_piece(t, (int32_t)i, &n);
        if (t->type[i] == TOK_USER_DEFINED && memchr(piece, '\n', n))
            return false;
    }
    return true;
}

static bool has_byte_token(const struct tok *t, char c)
{
    return t->bpe.byte_symbol[(unsigned char)c] < t->n_vocab;
}

/* SentencePiece spells a character by its piece or by its bytes. */
static bool is_char_spelt(const struct tok *t, const char *s, size_t n)
{
    size_t i = 0;
    while (i < n && has_byte_token(t, s[i]))
        i++;
    return i == n || tok_index_find(t, s, n, tok_hash(s, n)) != BPE_NO_RANK;
}

size_t tok_unspellable(const struct tok *t, const char *text, size_t n)
{
    size_t i = 0;
    for (size_t step = 1; i < n; i += step) {
        bool is_ok;
        if (t->spm.order)
            step = utf8_step(text + i, n - i, &is_ok);
        if (t->spm.order ? !is_char_spelt(t, text + i, step) : !has_byte_token(t, text[i]))
            break;
    }
    return i;
}

const char *tok_piece(const struct tok *t, int32_t id, size_t *ret_n)
{
    if (id < 0 || (size_t)id >= t->n_vocab) {
        *ret_n = 0;
        return NULL;
    }
    return tok_symbol(t, (uint32_t)id, ret_n);
}

void tok_decode(const struct tok *t, const int32_t *ids, size_t n, struct buf *ret)
{
    bool is_start = t->spm.add_space;
    for (size_t i = 0; i < n; i++) {
        size_t len;
        const char *piece = tok_piece(t, ids[i], &len);
        const bool is_special = piece && (t->type[ids[i]] == TOK_CONTROL ||
                                          t->type[ids[i]] == TOK_USER_DEFINED);
        const size_t skip = is_start && !is_special && len > 0 && piece[0] == ' ';
        if (piece)
            buf_add(ret, piece + skip, len - skip);
        is_start = t->spm.add_space && is_special;
    }
}

bool tok_adds_space(const struct tok *t)
{
    return t->spm.add_space;
}

bool tok_strips_after(const struct tok *t, int32_t id)
{
    static const char *const keep[] = {"<unk>", "<s>", "<|endoftext|>"};
    if (!t->strips_after || !tok_is_control(t, id))
        return false;
    for (size_t i = 0; i < sizeof keep / sizeof *keep; i++)
        if (tok_find(t, keep[i], strlen(keep[i])) == id)
            return false;
    return true;
}

bool tok_pre_adds_bos(const char *pre)
{
    const struct pre_def *def = pre_find(pre);
    return def && (def->flags & PRE_ADD_BOS);
}

int32_t tok_find(const struct tok *t, const char *s, size_t n)
{
    size_t len = 0;
    int32_t id = n > 0 ? match_special(t, s, n, true, &len) : -1;
    if (id >= 0 && len == n)
        return id;
    uint32_t symbol = n > 0 ? tok_index_find(t, s, n, tok_hash(s, n)) : BPE_NO_RANK;
    return symbol < t->n_vocab ? (int32_t)symbol : -1;
}

size_t tok_n_vocab(const struct tok *t)
{
    return t->n_vocab;
}

bool tok_is_control(const struct tok *t, int32_t id)
{
    return id >= 0 && (size_t)id < t->n_vocab && t->type[id] == TOK_CONTROL;
}

bool tok_is_eog(const struct tok *t, int32_t id)
{
    return id >= 0 && (size_t)id < t->n_vocab && t->is_eog[id];
}

int32_t tok_bos(const struct tok *t)
{
    return t->add_bos ? t->bos : -1;
}

int32_t tok_bos_token(const struct tok *t)
{
    return t->bos;
}

int32_t tok_eos_token(const struct tok *t)
{
    return t->eos;
}

void tok_fingerprint(const struct tok *t, uint8_t ret[32])
{
    memcpy(ret, t->fingerprint, HASH_BYTES);
}
