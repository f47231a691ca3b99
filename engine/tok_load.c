/*
 * Tokenizers: making the tables of tok_impl.h from a vocabulary.
 *
 * A vocabulary file spells bytes as printable characters (GPT-2's byte-to-unicode map: '!'…'~',
 * '¡'…'¬', '®'…'ÿ' are themselves, the other 68 bytes are U+0100 and up in order). tok_new turns
 * every piece into plain bytes, once:
 *
 *      bytes  [ < | e n d | > ! " # … t h e … ]     off [0, 7, 8, …]
 *      type   [ 3, 1, 1, … ]                        symbol i = bytes[off[i], off[i + 1])
 *
 * Two indices over them: a hash table of the ordinary pieces, used while the merges are read, and
 * by tok_find; and a trie of the CONTROL and USER_DEFINED strings, which tok_encode walks from
 * every byte that begins one (leftmost, then longest). A control token is not in the first, so no
 * merge can make one.
 */
#include "engine/tok.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "engine/tok_impl.h"

#define VOCAB_MAX ((size_t)700000) /* leaves room for symbols that only occur inside merges */
#define PIECE_BYTES_MAX ((size_t)1 << 16)
#define ALL_BYTES_MAX ((size_t)1 << 28)
#define BATCH 32

/* Symbols of the byte-to-unicode spelling, by code point: the byte + 1, or 0. The last is U+0143.
 */
#define SPELLING_MAX 0x144
static void make_spelling(uint16_t map[SPELLING_MAX])
{
    uint16_t next = 0x100;
    memset(map, 0, SPELLING_MAX * sizeof *map);
    for (int b = 0; b < 256; b++) {
        bool is_itself = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE);
        map[is_itself ? b : next++] = (uint16_t)(b + 1);
    }
}

/* Writes the bytes that a spelling stands for (at most n); false when it holds a character outside
 * the map. */
static bool spelt(const uint16_t map[SPELLING_MAX], const char *s, size_t n, char *ret,
                  size_t *ret_n)
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

static bool symbol_is(const struct tok *t, uint32_t symbol, const struct tok_str *s)
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
        if (t->index[i] >> 32 == hash && symbol_is(t, (uint32_t)t->index[i] - 1, &s))
            return;
    t->index[i] = (uint64_t)hash << 32 | (symbol + 1);
}

/* A new symbol above the vocabulary. */
static int add_symbol(struct tok *t, const char *s, size_t n, uint32_t *ret, struct err *e)
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
    return type == TOK_CONTROL || type == TOK_USER_DEFINED;
}

static int check_spec(const struct tok_spec *spec, size_t *ret_bytes, struct err *e)
{
    if (!spec->model || strcmp(spec->model, "gpt2") != 0)
        return err_set(e, ERR_UNSUPPORTED, "tokenizer model \"%s\" is not supported (known: gpt2)",
                       spec->model ? spec->model : "");
    if (spec->n_vocab < 1 || spec->n_vocab > VOCAB_MAX)
        return err_set(e, ERR_CORRUPT, "a vocabulary of %zu tokens (1 to %zu)", spec->n_vocab,
                       VOCAB_MAX);
    const struct {
        const char *name;
        int32_t id;
    } ids[] = {{"bos", spec->bos}, {"eos", spec->eos}, {"eot", spec->eot}};
    for (size_t i = 0; i < 3; i++)
        if (ids[i].id < -1 || (ids[i].id >= 0 && (size_t)ids[i].id >= spec->n_vocab))
            return err_set(e, ERR_CORRUPT, "%s token id %d is outside the vocabulary of %zu",
                           ids[i].name, ids[i].id, spec->n_vocab);
    size_t total = 0;
    for (size_t i = 0; i < spec->n_vocab; i++) {
        size_t n = spec->pieces[i].n;
        if (n == 0 || n > PIECE_BYTES_MAX)
            return err_set(e, ERR_CORRUPT, "token %zu has %zu bytes (1 to %zu)", i, n,
                           PIECE_BYTES_MAX);
        if (spec->types[i] < 0 || spec->types[i] > TOK_BYTE)
            return err_set(e, ERR_CORRUPT, "token %zu has type %d (0 to 6)", i, spec->types[i]);
        total += n;
    }
    if (total > ALL_BYTES_MAX / 2)
        return err_set(e, ERR_CORRUPT, "the vocabulary has %zu bytes, the limit is %zu", total,
                       ALL_BYTES_MAX / 2);
    *ret_bytes = total;
    return 0;
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
    memset(t->root, 0xFF, sizeof t->root);
    if (!t->bytes || !t->off || !t->type || !t->is_eog || !t->index)
        return err_set(e, ERR_NOMEM, "no memory for a vocabulary of %zu tokens", spec->n_vocab);
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

/* An item of a batch: its table slots are touched before they are needed, which overlaps the misses
 * of the CPU's caches (the tables have megabytes). */
struct item {
    char *s; /* bytes of a piece, or of a merge's left and right in a row */
    size_t n, n_left;
    uint32_t hash, hash_right; /* of the piece or the left; of the right */
    uint32_t left, right;
    bool is_spelt;
};

static void touch_index(const struct tok *t, uint32_t hash)
{
    (void)*(const volatile uint64_t *)&t->index[hash & t->index_mask];
}

/* Appends the bytes of piece i. Special tokens are spelt plainly; so is an ordinary piece with a
 * character outside the map, which no text can reach. */
static struct item add_piece(struct tok *t, const struct tok_spec *spec, const uint16_t *map,
                             size_t i)
{
    const struct tok_str *p = &spec->pieces[i];
    struct item it = {.s = t->bytes + t->n_bytes};
    it.is_spelt = !is_special_type(spec->types[i]) && spelt(map, p->s, p->n, it.s, &it.n);
    if (!it.is_spelt) {
        memcpy(it.s, p->s, p->n);
        it.n = p->n;
    }
    t->type[i] = (uint8_t)spec->types[i];
    t->n_bytes += it.n;
    t->off[++t->n_symbols] = (uint32_t)t->n_bytes;
    it.hash = tok_hash(it.s, it.n);
    touch_index(t, it.hash);
    return it;
}

static int load_pieces(struct tok *t, const struct tok_spec *spec, const uint16_t *map,
                       struct err *e)
{
    struct item batch[BATCH];
    int rc = 0;
    t->off[0] = 0;
    for (size_t at = 0; at < spec->n_vocab; at += BATCH) {
        size_t n = spec->n_vocab - at < BATCH ? spec->n_vocab - at : BATCH;
        for (size_t i = 0; i < n; i++)
            batch[i] = add_piece(t, spec, map, at + i);
        for (size_t i = 0; i < n && rc == 0; i++) {
            if (batch[i].is_spelt)
                index_add(t, (uint32_t)(at + i), batch[i].hash);
            else if (is_special_type(spec->types[at + i]))
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
            int rc = add_symbol(t, &c, 1, &symbol, e);
            if (rc < 0)
                return rc;
        }
        t->bpe.byte_symbol[b] = symbol;
    }
    return n_missing < 256
               ? 0
               : err_set(e, ERR_CORRUPT, "the vocabulary has no token of a single byte");
}

static int find_or_add(struct tok *t, const struct tok_str *s, uint32_t hash, uint32_t *ret,
                       struct err *e)
{
    *ret = tok_index_find(t, s->s, s->n, hash);
    return *ret == BPE_NO_RANK ? add_symbol(t, s->s, s->n, ret, e) : 0;
}

/* The bytes of "left right" into it->s. Spelt with characters that no text has: is_spelt is false,
 * and the merge can't be reached. */
static int parse_merge(const struct tok_spec *spec, size_t rank, const uint16_t *map,
                       struct item *it, struct err *e)
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
    it->is_spelt = spelt(map, m->s, n_left, it->s, &it->n_left) &&
                   spelt(map, space + 1, m->n - n_left - 1, it->s + it->n_left, &n_right);
    if (!it->is_spelt)
        return 0;
    it->n = it->n_left + n_right;
    it->hash = tok_hash(it->s, it->n_left);
    it->hash_right = tok_hash(it->s + it->n_left, n_right);
    return 0;
}

static int find_sides(struct tok *t, struct item *it, struct err *e)
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
static int find_result(struct tok *t, const struct item *it, uint32_t *inout, struct err *e)
{
    struct tok_str whole = {it->s, it->n};
    uint32_t guess = *inout + 1;
    if (guess < t->n_vocab && !is_special_type(t->type[guess]) && symbol_is(t, guess, &whole)) {
        *inout = guess;
        return 0;
    }
    return find_or_add(t, &whole, tok_hash(whole.s, whole.n), inout, e);
}

static int load_batch(struct tok *t, struct item *batch, size_t n, uint32_t *last, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; i < n; i++) {
        touch_index(t, batch[i].hash);
        touch_index(t, batch[i].hash_right);
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

static int load_merges(struct tok *t, const struct tok_spec *spec, const uint16_t *map,
                       struct err *e)
{
    struct item batch[BATCH];
    char *strings = malloc(BATCH * PIECE_BYTES_MAX);
    uint32_t last = 0;
    int rc = strings ? 0 : err_set(e, ERR_NOMEM, "no memory for the merges");
    for (size_t at = 0; at < spec->n_merges && rc == 0; at += BATCH) {
        size_t n = spec->n_merges - at < BATCH ? spec->n_merges - at : BATCH, used = 0;
        for (size_t i = 0; i < n && rc == 0; i++) {
            batch[i] = (struct item){.s = strings + used};
            rc = parse_merge(spec, at + i, map, &batch[i], e);
            used += batch[i].n;
        }
        if (rc == 0)
            rc = load_batch(t, batch, n, &last, e);
    }
    free(strings);
    return rc;
}

/* The names under which models keep "my turn is over" among their control tokens. */
static const char *const eog_names[] = {
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|end|>",
    "<|eot|>",
    "<|eom|>",
    "<end_of_turn>",
    "<turn|>",
    "<|endofturn|>",
    "<|end_of_role|>",
    "<|return|>",
    "<|im_sep_end|>",
    "</s>",
    "<eos>",
    "[EOS]",
    "[EOT]",
    "<EOT>",
    "<|EOT|>",
    "<_EOT>",
    ("<\xEF\xBD\x9C"
     "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"),
};

static void mark_ends(struct tok *t, const struct tok_spec *spec)
{
    if (spec->eos >= 0)
        t->is_eog[spec->eos] = true;
    if (spec->eot >= 0)
        t->is_eog[spec->eot] = true;
    for (size_t i = 0; i < sizeof eog_names / sizeof *eog_names; i++) {
        int32_t id = tok_find(t, eog_names[i], strlen(eog_names[i]));
        if (id >= 0 && tok_is_control(t, id))
            t->is_eog[id] = true;
    }
}

static void hash_part(struct hash_state *h, const void *data, size_t n)
{
    uint64_t size = n;
    hash_add(h, &size, sizeof size);
    hash_add(h, data, n);
}

/* All that decides ids, as little-endian arrays behind their sizes. */
static void make_fingerprint(struct tok *t, const struct tok_spec *spec)
{
    struct hash_state h;
    int32_t numbers[] = {(int32_t)t->n_vocab, spec->bos,     spec->eos,
                         spec->eot,           spec->add_bos, (int32_t)t->bpe.n_merges};
    const char *definition = split_definition(t->split);
    hash_init(&h);
    hash_part(&h, "hearth tokenizer 1", 18);
    hash_part(&h, numbers, sizeof numbers);
    hash_part(&h, definition, strlen(definition));
    hash_part(&h, t->off, (t->n_symbols + 1) * sizeof *t->off);
    hash_part(&h, t->bytes, t->n_bytes);
    hash_part(&h, t->type, t->n_vocab);
    hash_part(&h, t->bpe.left, t->bpe.n_merges * sizeof *t->bpe.left);
    hash_part(&h, t->bpe.right, t->bpe.n_merges * sizeof *t->bpe.right);
    hash_part(&h, t->bpe.result, t->bpe.n_merges * sizeof *t->bpe.result);
    hash_end(&h, t->fingerprint);
}

static int load(struct tok *t, const struct tok_spec *spec, struct err *e)
{
    uint16_t map[SPELLING_MAX];
    size_t n_bytes = 0;
    make_spelling(map);
    int rc = check_spec(spec, &n_bytes, e);
    if (rc == 0)
        rc = split_new(spec->pre ? spec->pre : "", &t->split, e);
    if (rc == 0)
        rc = allocate(t, spec, n_bytes, e);
    if (rc == 0)
        rc = bpe_init(&t->bpe, spec->n_merges, e);
    if (rc < 0)
        return rc;
    t->bpe.n_vocab = (uint32_t)spec->n_vocab;
    t->bos = spec->bos;
    t->eos = spec->eos;
    t->add_bos = spec->add_bos;
    rc = load_pieces(t, spec, map, e);
    if (rc == 0)
        rc = load_bytes(t, e);
    if (rc == 0)
        rc = load_merges(t, spec, map, e);
    if (rc < 0)
        return rc;
    mark_ends(t, spec);
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
    free(t);
}
