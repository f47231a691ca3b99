/*
 * Tokenizers: making the tables of tok_impl.h from a vocabulary (the merges: tok_merges.c).
 *
 * A vocabulary file of byte-level BPE spells bytes as printable characters (GPT-2's byte-to-unicode
 * map: '!'…'~', '¡'…'¬', '®'…'ÿ' are themselves, the other 68 bytes are U+0100 and up in order);
 * SentencePiece's has U+2581 for a space, and <0x00>…<0xFF> for bytes. tok_new turns every piece
 * into plain bytes, once:
 *
 *      bytes  [ < | e n d | > ! " # … t h e … ]     off [0, 7, 8, …]
 *      type   [ 3, 1, 1, … ]                        symbol i = bytes[off[i], off[i + 1])
 *
 * Two indices over them: a hash table of the ordinary pieces, used while the merges are read, and
 * by tok_find; and a trie of the CONTROL and USER_DEFINED strings, which tok_encode walks from
 * every byte that begins one (leftmost, then longest). A control token is not in the first, so no
 * merge can make one; nor is a byte's token or the unknown one.
 */
#include "engine/tok.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "engine/tok_impl.h"

#define VOCAB_MAX ((size_t)700000) /* leaves room for symbols that only occur inside merges */
#define ALL_BYTES_MAX ((size_t)1 << 28)

static void make_spelling(uint16_t map[SPELLING_MAX])
{
    uint16_t next = 0x100;
    memset(map, 0, SPELLING_MAX * sizeof *map);
    for (int b = 0; b < 256; b++) {
        bool is_itself = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE);
        map[is_itself ? b : next++] = (uint16_t)(b + 1);
    }
}

bool tok_spelt(const uint16_t map[SPELLING_MAX], const char *s, size_t n, char *ret, size_t *ret_n)
{
    size_t out = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        uint32_t cp = c;
        if (c >= 0x80) {
            if ((c != 0xC2 && c != 0xC3 && c != 0xC4 && c != 0xC5) || i + 1 >= n ||
                ((unsigned char)s[i + 1] & 0xC0) != 0x80)
                return false;
            cp = (uint32_t)(c & 0x1F) << 6 | ((unsigned char)s[++i] & 0x3F);
        }
        if (cp >= SPELLING_MAX || map[cp] == 0)
            return false;
        ret[out++] = (char)(map[cp] - 1);
    }
    *ret_n = out;
    return true;
}

bool tok_symbol_is(const struct tok *t, uint32_t symbol, const struct tok_str *s)
{
    return symbol < t->n_symbols && t->off[symbol + 1] - t->off[symbol] == s->n &&
           memcmp(t->bytes + t->off[symbol], s->s, s->n) == 0;
}

/* Of doubled pieces the lowest id is the one found. */
static void index_add(struct tok *t, uint32_t symbol, uint32_t hash)
{
    struct tok_str s;
    s.s = tok_symbol(t, symbol, &s.n);
    size_t i = hash & t->index_mask;
    for (; t->index[i]; i = (i + 1) & t->index_mask)
        if (t->index[i] >> 32 == hash && tok_symbol_is(t, (uint32_t)t->index[i] - 1, &s))
            return;
    t->index[i] = (uint64_t)hash << 32 | (symbol + 1);
}

int tok_add_symbol(struct tok *t, const char *s, size_t n, uint32_t *ret, struct err *e)
{
    if (t->n_symbols + 1 >= BPE_SYMBOLS_MAX || t->n_symbols * 8 > t->index_mask * 7)
        return err_set(e, ERR_LIMIT, "the merges need more than %zu symbols", t->n_symbols);
    if (t->n_symbols == t->cap_symbols) {
        size_t cap = t->cap_symbols + t->cap_symbols / 4 + 1024;
        uint32_t *off = realloc(t->off, (cap + 1) * sizeof *off);
        if (!off)
            return err_set(e, ERR_NOMEM, "no memory for %zu symbols", cap);
        t->off = off;
        t->cap_symbols = cap;
    }
    if (t->n_bytes + n > t->cap_bytes) {
        size_t cap = t->cap_bytes + t->cap_bytes / 4 + n + 4096;
        char *bytes = cap <= ALL_BYTES_MAX ? realloc(t->bytes, cap) : NULL;
        if (!bytes)
            return err_set(e, ERR_LIMIT, "the merges' strings need more than %zu bytes",
                           t->cap_bytes);
        t->bytes = bytes;
        t->cap_bytes = cap;
    }
    memmove(t->bytes + t->n_bytes, s, n);
    t->n_bytes += n;
    *ret = (uint32_t)t->n_symbols++;
    t->off[t->n_symbols] = (uint32_t)t->n_bytes;
    index_add(t, *ret, tok_hash(s, n));
    return 0;
}

static bool is_special_type(int32_t type)
{
    return type == TOK_CONTROL || type == TOK_USER_DEFINED || type == TOK_UNKNOWN;
}

static bool is_spm(const struct tok_spec *spec)
{
    return strcmp(spec->model, "llama") == 0;
}

static int check_id(const struct tok_spec *spec, const char *name, int32_t id, struct err *e)
{
    return id >= -1 && (id < 0 || (size_t)id < spec->n_vocab)
               ? 0
               : err_set(e, ERR_CORRUPT, "%s token id %d is outside the vocabulary of %zu", name,
                         id, spec->n_vocab);
}

static int check_head(const struct tok_spec *spec, struct err *e)
{
    const char *model = spec->model ? spec->model : "";
    if (strcmp(model, "gpt2") != 0 && strcmp(model, "llama") != 0)
        return err_set(e, ERR_UNSUPPORTED,
                       "tokenizer model \"%.60s\" is not supported (known: gpt2, which is "
                       "byte-level BPE, and llama, which is SentencePiece's)",
                       model);
    if (spec->n_vocab < 1 || spec->n_vocab > VOCAB_MAX)
        return err_set(e, ERR_CORRUPT, "a vocabulary of %zu tokens (1 to %zu)", spec->n_vocab,
                       VOCAB_MAX);
    if (is_spm(spec) && !spec->scores)
        return err_set(e, ERR_CORRUPT, "a SentencePiece vocabulary without scores");
    int rc = check_id(spec, "bos", spec->bos, e);
    if (rc == 0)
        rc = check_id(spec, "eos", spec->eos, e);
    if (rc == 0)
        rc = check_id(spec, "eot", spec->eot, e);
    if (rc == 0 && is_spm(spec))
        rc = check_id(spec, "unk", spec->unk, e);
    for (size_t i = 0; i < spec->n_ends && rc == 0; i++)
        rc = check_id(spec, "end-of-generation", spec->ends[i], e);
    return rc;
}

static int check_spec(const struct tok_spec *spec, size_t *ret_bytes, struct err *e)
{
    size_t total = 0;
    int rc = check_head(spec, e);
    for (size_t i = 0; i < spec->n_vocab && rc == 0; i++) {
        size_t n = spec->pieces[i].n;
        if (n == 0 || n > PIECE_BYTES_MAX)
            rc = err_set(e, ERR_CORRUPT, "token %zu has %zu bytes (1 to %zu)", i, n,
                         PIECE_BYTES_MAX);
        else if (spec->types[i] < 0 || spec->types[i] > TOK_BYTE)
            rc = err_set(e, ERR_CORRUPT, "token %zu has type %d (0 to 6)", i, spec->types[i]);
        else if (is_spm(spec) && isnan(spec->scores[i]))
            rc = err_set(e, ERR_CORRUPT, "token %zu has a score that is no number", i);
        total += n;
    }
    if (rc == 0 && total > ALL_BYTES_MAX / 2)
        rc = err_set(e, ERR_CORRUPT, "the vocabulary has %zu bytes, the limit is %zu", total,
                     ALL_BYTES_MAX / 2);
    *ret_bytes = total;
    return rc;
}

static int allocate(struct tok *t, const struct tok_spec *spec, size_t n_bytes, struct err *e)
{
    size_t n_slots = 1024;
    /* Symbols that are no token are rare; the table is at most 3/4 full without them. */
    while (3 * n_slots < 4 * (spec->n_vocab + 512))
        n_slots *= 2;
    t->n_vocab = spec->n_vocab;
    t->cap_symbols = spec->n_vocab + 512;
    t->cap_bytes = n_bytes + 1024;
    t->index_mask = n_slots - 1;
    t->bytes = malloc(t->cap_bytes);
    t->off = malloc((t->cap_symbols + 1) * sizeof *t->off);
    t->type = malloc(spec->n_vocab);
    t->is_eog = calloc(spec->n_vocab, sizeof *t->is_eog);
    t->index = calloc(n_slots, sizeof *t->index);
    if (is_spm(spec))
        t->spm.order = malloc(spec->n_vocab * sizeof *t->spm.order);
    memset(t->root, 0xFF, sizeof t->root);
    if (!t->bytes || !t->off || !t->type || !t->is_eog || !t->index ||
        (is_spm(spec) && !t->spm.order))
        return err_set(e, ERR_NOMEM, "no memory for a vocabulary of %zu tokens", spec->n_vocab);
    ends_types(t, spec);
    return 0;
}

static int32_t trie_new_node(struct tok *t, unsigned char byte)
{
    if (t->n_nodes == t->cap_nodes) {
        size_t cap = t->cap_nodes * 2 + 256;
        struct trie_node *p = realloc(t->nodes, cap * sizeof *p);
        if (!p)
            return -1;
        t->nodes = p;
        t->cap_nodes = cap;
    }
    t->nodes[t->n_nodes] =
        (struct trie_node){.child = -1, .next = -1, .id = {-1, -1}, .byte = byte};
    return (int32_t)t->n_nodes++;
}

/* Node 0 is the root. */
static int trie_add(struct tok *t, uint32_t id, struct err *e)
{
    size_t n;
    const char *s = tok_symbol(t, id, &n);
    int32_t node = t->n_nodes == 0 ? trie_new_node(t, 0) : 0;
    for (size_t i = 0; i < n && node >= 0; i++) {
        int32_t child = tok_trie_child(t, node, (unsigned char)s[i]);
        if (child < 0) {
            child = trie_new_node(t, (unsigned char)s[i]);
            if (child < 0)
                return err_set(e, ERR_NOMEM, "no memory for the special tokens");
            t->nodes[child].next = t->nodes[node].child;
            t->nodes[node].child = child;
        }
        node = child;
    }
    if (node < 0)
        return err_set(e, ERR_NOMEM, "no memory for the special tokens");
    if (t->nodes[node].id[true] >= 0)
        return err_set(e, ERR_CORRUPT, "tokens %d and %u are both special and spelt \"%.*s\"",
                       t->nodes[node].id[true], id, (int)n, s);
    t->nodes[node].id[true] = (int32_t)id;
    if (t->type[id] == TOK_USER_DEFINED)
        t->nodes[node].id[false] = (int32_t)id;
    int32_t first = tok_trie_child(t, 0, (unsigned char)s[0]);
    t->root[true][(unsigned char)s[0]] = first;
    if (t->type[id] == TOK_USER_DEFINED)
        t->root[false][(unsigned char)s[0]] = first;
    return 0;
}


/* The byte of <0x0A> and the like, or -1. */
static int byte_of(const struct tok_str *p)
{
    int byte = 0;
    if (p->n != 6 || memcmp(p->s, "<0x", 3) != 0 || p->s[5] != '>')
        return -1;
    for (int i = 3; i < 5; i++) {
        const char c = p->s[i];
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                                 : 256;
        byte = byte * 16 + digit;
    }
    return byte < 256 ? byte : -1;
}

/* SentencePiece's spelling: U+2581 is a space. A piece with a plain space can't be reached. */
static bool spelt_spm(const struct tok_str *p, char *ret, size_t *ret_n)
{
    size_t n = 0;
    bool is_reached = true;
    for (size_t i = 0; i < p->n;) {
        const bool is_sign = p->n - i >= 3 && memcmp(p->s + i, "\xE2\x96\x81", 3) == 0;
        is_reached = is_reached && p->s[i] != ' ';
        ret[n++] = is_sign ? ' ' : p->s[i];
        i += is_sign ? 3 : 1;
    }
    *ret_n = n;
    return is_reached;
}

/* The bytes of an ordinary piece; false: it isn't one, and is spelt plainly. So is an ordinary
 * piece of byte-level BPE with a character outside the map, which no text can reach. */
static bool piece_bytes(struct tok *t, const struct tok_str *p, const uint16_t *map, size_t i,
                        struct tok_item *it)
{
    const int byte = t->type[i] == TOK_BYTE ? byte_of(p) : -1;
    if (is_special_type(t->type[i]))
        return false;
    if (!t->spm.order)
        return tok_spelt(map, p->s, p->n, it->s, &it->n);
    if (t->type[i] != TOK_BYTE)
        return spelt_spm(p, it->s, &it->n);
    if (byte >= 0) {
        it->s[0] = (char)byte;
        it->n = 1;
        t->bpe.byte_symbol[byte] = (uint32_t)i;
    }
    return false;
}

/* Appends the bytes of piece i. */
static struct tok_item add_piece(struct tok *t, const struct tok_spec *spec, const uint16_t *map,
                                 size_t i)
{
    const struct tok_str *p = &spec->pieces[i];
    struct tok_item it = {.s = t->bytes + t->n_bytes};
    it.is_spelt = piece_bytes(t, p, map, i, &it);
    if (it.n == 0) {
        memcpy(it.s, p->s, p->n);
        it.n = p->n;
    }
    if (t->spm.order)
        t->spm.order[i] = spm_order(spec->scores[i]);
    if (t->spm.order && it.is_spelt)
        spm_learn(&t->spm, it.s, it.n);
    t->n_bytes += it.n;
    t->off[++t->n_symbols] = (uint32_t)t->n_bytes;
    it.hash = tok_hash(it.s, it.n);
    tok_touch_index(t, it.hash);
    return it;
}

static int load_pieces(struct tok *t, const struct tok_spec *spec, const uint16_t *map,
                       struct err *e)
{
    struct tok_item batch[TOK_BATCH];
    int rc = 0;
    t->off[0] = 0;
    for (size_t at = 0; at < spec->n_vocab; at += TOK_BATCH) {
        size_t n = spec->n_vocab - at < TOK_BATCH ? spec->n_vocab - at : TOK_BATCH;
        for (size_t i = 0; i < n; i++)
            batch[i] = add_piece(t, spec, map, at + i);
        for (size_t i = 0; i < n && rc == 0; i++) {
            if (batch[i].is_spelt)
                index_add(t, (uint32_t)(at + i), batch[i].hash);
            else if (is_special_type(t->type[at + i]))
                rc = trie_add(t, (uint32_t)(at + i), e);
        }
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int load_bytes(struct tok *t, struct err *e)
{
    size_t n_missing = 0;
    for (int b = 0; b < 256; b++) {
        char c = (char)b;
        uint32_t symbol = tok_index_find(t, &c, 1, tok_hash(&c, 1));
        if (symbol == BPE_NO_RANK) {
            n_missing++;
            int rc = tok_add_symbol(t, &c, 1, &symbol, e);
            if (rc < 0)
                return rc;
        }
        t->bpe.byte_symbol[b] = symbol;
    }
    return n_missing < 256
               ? 0
               : err_set(e, ERR_CORRUPT, "the vocabulary has no token of a single byte");
}

static void hash_part(struct hash_state *h, const void *data, size_t n)
{
    uint64_t size = n;
    hash_add(h, &size, sizeof size);
    hash_add(h, data, n);
}

static void hash_pre(struct hash_state *h, const struct split *split)
{
    const struct pre_def *def = split_def(split);
    hash_part(h, &def->flags, sizeof def->flags);
    for (int i = 0; i < PRE_STAGES_MAX && def->stages[i]; i++)
        hash_part(h, def->stages[i], strlen(def->stages[i]));
}

/* All that decides ids, as little-endian arrays behind their sizes. */
static void make_fingerprint(struct tok *t, const struct tok_spec *spec)
{
    struct hash_state h;
    const bool is_spm_model = t->spm.order != NULL;
    int32_t numbers[] = {(int32_t)t->n_vocab, spec->bos,
                         spec->eos,           spec->eot,
                         spec->add_bos,       (int32_t)t->bpe.n_merges,
                         is_spm_model,        is_spm_model ? spec->unk : -1,
                         t->spm.add_space,    t->is_nfc,
                         t->strips_after};
    hash_init(&h);
    hash_part(&h, "hearth tokenizer 2", 18);
    hash_part(&h, numbers, sizeof numbers);
    if (t->split)
        hash_pre(&h, t->split);
    hash_part(&h, t->off, (t->n_symbols + 1) * sizeof *t->off);
    hash_part(&h, t->bytes, t->n_bytes);
    hash_part(&h, t->type, t->n_vocab);
    hash_part(&h, t->is_eog, t->n_vocab * sizeof *t->is_eog);
    if (is_spm_model)
        hash_part(&h, t->spm.order, t->n_vocab * sizeof *t->spm.order);
    hash_part(&h, t->bpe.left, t->bpe.n_merges * sizeof *t->bpe.left);
    hash_part(&h, t->bpe.right, t->bpe.n_merges * sizeof *t->bpe.right);
    hash_part(&h, t->bpe.result, t->bpe.n_merges * sizeof *t->bpe.result);
    hash_end(&h, t->fingerprint);
}

static void take_flags(struct tok *t, const struct tok_spec *spec)
{
    t->bos = spec->bos;
    t->eos = spec->eos;
    t->add_bos = spec->add_bos;
    t->strips_after = spec->strips_after_special;
    t->bpe.n_vocab = (uint32_t)spec->n_vocab;
    t->spm.unk = is_spm(spec) ? spec->unk : -1;
    t->spm.add_space = is_spm(spec) && spec->add_space_prefix;
    t->is_nfc = t->split && (split_def(t->split)->flags & PRE_NFC) && !spec->skip_nfc;
    t->ignores_merges = t->split && (split_def(t->split)->flags & PRE_IGNORE_MERGES);
}

/* Both kinds begin alike; what is SentencePiece's own has no merges. */
static int load(struct tok *t, const struct tok_spec *spec, struct err *e)
{
    uint16_t map[SPELLING_MAX];
    size_t n_bytes = 0;
    make_spelling(map);
    int rc = check_spec(spec, &n_bytes, e);
    if (rc == 0 && !is_spm(spec))
        rc = split_new(spec->pre ? spec->pre : "", &t->split, e);
    if (rc == 0)
        rc = allocate(t, spec, n_bytes, e);
    if (rc == 0)
        rc = bpe_init(&t->bpe, is_spm(spec) ? 0 : spec->n_merges, e);
    if (rc < 0)
        return rc;
    take_flags(t, spec);
    memset(t->bpe.byte_symbol, 0xFF, sizeof t->bpe.byte_symbol);
    rc = load_pieces(t, spec, map, e);
    if (rc == 0 && !is_spm(spec))
        rc = load_bytes(t, e);
    if (rc == 0 && !is_spm(spec))
        rc = tok_load_merges(t, spec, map, e);
    if (rc < 0)
        return rc;
    ends_mark(t, spec);
    make_fingerprint(t, spec);
    return 0;
}

int tok_new(const struct tok_spec *spec, struct tok **ret, struct err *e)
{
    struct tok *t = calloc(1, sizeof *t);
    if (!t)
        return err_set(e, ERR_NOMEM, "no memory for a tokenizer");
    int rc = load(t, spec, e);
    if (rc < 0)
        tok_free(t);
    else
        *ret = t;
    return rc;
}

void tok_free(struct tok *t)
{
    if (!t)
        return;
    bpe_done(&t->bpe);
    split_free(t->split);
    free(t->bytes);
    free(t->off);
    free(t->type);
    free(t->is_eog);
    free(t->index);
    free(t->nodes);
    free(t->spm.order);
    free(t);
}
