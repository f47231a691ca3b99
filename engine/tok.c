/*
 * Tokenizers: the tables. See tok.h for the promises, tok_impl.h for the line a text goes along.
 *
 * A vocabulary file spells bytes as printable characters (GPT-2's byte-to-unicode map: '!'…'~',
 * '¡'…'¬', '®'…'ÿ' are themselves, the other 68 bytes are U+0100 and up in order). tok_new turns
 * every piece into plain bytes, once:
 *
 *      bytes  [ < | e n d | > ! " # … t h e … ]     off [0, 7, 8, …]   type [3, 1, 1, …] symbol i =
 * bytes[off[i], off[i + 1])
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
#include "base/utf8.h"
#include "engine/tok_impl.h"

#define VOCAB_MAX ((size_t)700000) /* leaves room for symbols that only occur inside merges */
#define PIECE_BYTES_MAX ((size_t)1 << 16)
#define ALL_BYTES_MAX ((size_t)1 << 28)

/* A node of the trie: first child, next sibling. id[false]: USER_DEFINED tokens only; id[true]:
 * CONTROL ones too; -1: none ends here. */
struct trie_node {
    int32_t child, next;
    int32_t id[2];
    unsigned char byte;
};

struct tok {
    size_t n_vocab, n_symbols, cap_symbols;
    char *bytes;
    size_t n_bytes, cap_bytes;
    uint32_t *off;   /* [n_symbols + 1] */
    uint8_t *type;   /* [n_vocab] */
    bool *is_eog;    /* [n_vocab] */
    uint64_t *index; /* open addressing over ordinary symbols: hash << 32 | symbol + 1 */
    size_t index_mask;
    struct trie_node *nodes;
    size_t n_nodes, cap_nodes;
    int32_t root[2][256]; /* node under the root by first byte, if a token of that kind begins with
                             it; -1: none */
    struct bpe bpe;
    struct split *split;
    int32_t bos, eos;
    bool add_bos;
    uint8_t fingerprint[HASH_BYTES];
};

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

static uint32_t hash_bytes(const char *s, size_t n)
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

static const char *symbol_bytes(const struct tok *t, uint32_t symbol, size_t *ret_n)
{
    *ret_n = t->off[symbol + 1] - t->off[symbol];
    return t->bytes + t->off[symbol];
}

static const char *spell(const void *ctx, uint32_t symbol, size_t *ret_n)
{
    return symbol_bytes(ctx, symbol, ret_n);
}

static bool symbol_is(const struct tok *t, uint32_t symbol, const char *s, size_t n)
{
    return symbol < t->n_symbols && t->off[symbol + 1] - t->off[symbol] == n &&
           memcmp(t->bytes + t->off[symbol], s, n) == 0;
}

/* The ordinary symbol of these bytes, or BPE_NO_RANK. */
static uint32_t index_find(const struct tok *t, const char *s, size_t n)
{
    uint32_t h = hash_bytes(s, n);
    for (size_t i = h & t->index_mask; t->index[i]; i = (i + 1) & t->index_mask)
        if (t->index[i] >> 32 == h && symbol_is(t, (uint32_t)t->index[i] - 1, s, n))
            return (uint32_t)t->index[i] - 1;
    return BPE_NO_RANK;
}

/* Of doubled pieces the lowest id is the one found. */
static void index_add(struct tok *t, uint32_t symbol)
{
    size_t n;
    const char *s = symbol_bytes(t, symbol, &n);
    uint32_t h = hash_bytes(s, n);
    size_t i = h & t->index_mask;
    for (; t->index[i]; i = (i + 1) & t->index_mask)
        if (t->index[i] >> 32 == h && symbol_is(t, (uint32_t)t->index[i] - 1, s, n))
            return;
    t->index[i] = (uint64_t)h << 32 | (symbol + 1);
}

/* A new symbol above the vocabulary. */
static int add_symbol(struct tok *t, const char *s, size_t n, uint32_t *ret, struct err *e)
{
    if (t->n_symbols + 1 >= BPE_SYMBOLS_MAX || t->n_symbols * 2 > t->index_mask)
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
    index_add(t, *ret);
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
    while (n_slots < 2 * (spec->n_vocab + spec->n_merges / 4 + 512))
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

static int32_t trie_child(const struct tok *t, int32_t node, unsigned char byte)
{
    int32_t i = t->nodes[node].child;
    while (i >= 0 && t->nodes[i].byte != byte)
        i = t->nodes[i].next;
    return i;
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
    const char *s = symbol_bytes(t, id, &n);
    int32_t node = t->n_nodes == 0 ? trie_new_node(t, 0) : 0;
    for (size_t i = 0; i < n && node >= 0; i++) {
        int32_t child = trie_child(t, node, (unsigned char)s[i]);
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
    int32_t first = trie_child(t, 0, (unsigned char)s[0]);
    t->root[true][(unsigned char)s[0]] = first;
    if (t->type[id] == TOK_USER_DEFINED)
        t->root[false][(unsigned char)s[0]] = first;
    return 0;
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
        node = i < n ? trie_child(t, node, (unsigned char)s[i]) : -1;
    }
    return best;
}

/* Pieces → bytes, the two indices. Special tokens are spelt plainly; so is an ordinary piece with a
 * character outside the map, which no text can reach. */
static int load_pieces(struct tok *t, const struct tok_spec *spec, const uint16_t *map,
                       struct err *e)
{
    t->off[0] = 0;
    for (size_t i = 0; i < spec->n_vocab; i++) {
        const struct tok_str *p = &spec->pieces[i];
        char *to = t->bytes + t->n_bytes;
        size_t n = 0;
        bool is_special = is_special_type(spec->types[i]);
        bool is_spelt = !is_special && spelt(map, p->s, p->n, to, &n);
        if (!is_spelt) {
            memcpy(to, p->s, p->n);
            n = p->n;
        }
        t->type[i] = (uint8_t)spec->types[i];
        t->n_bytes += n;
        t->off[++t->n_symbols] = (uint32_t)t->n_bytes;
        if (is_spelt)
            index_add(t, (uint32_t)i);
        int rc = is_special ? trie_add(t, (uint32_t)i, e) : 0;
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
        uint32_t symbol = index_find(t, &c, 1);
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

static int find_or_add(struct tok *t, const char *s, size_t n, uint32_t *ret, struct err *e)
{
    *ret = index_find(t, s, n);
    return *ret == BPE_NO_RANK ? add_symbol(t, s, n, ret, e) : 0;
}

/* The bytes of "left right" in `both`, *ret_left of them the left's. 0: fine, 1: spelt with
 * characters that no text has (the merge can't be reached). */
static int parse_merge(const struct tok_spec *spec, size_t rank, const uint16_t *map, char *both,
                       size_t len[2], struct err *e)
{
    const struct tok_str *m = &spec->merges[rank];
    const char *space = m->n > 2 ? memchr(m->s + 1, ' ', m->n - 1) : NULL;
    if (m->n > PIECE_BYTES_MAX)
        return err_set(e, ERR_CORRUPT, "merge %zu has %zu bytes, the limit is %zu", rank, m->n,
                       PIECE_BYTES_MAX);
    if (!space || space + 1 == m->s + m->n)
        return err_set(e, ERR_CORRUPT,
                       "merge %zu (\"%.*s\") is not two pieces with a space between", rank,
                       (int)(m->n < 40 ? m->n : 40), m->s);
    size_t n_left = (size_t)(space - m->s);
    return spelt(map, m->s, n_left, both, &len[0]) &&
                   spelt(map, space + 1, m->n - n_left - 1, both + len[0], &len[1])
               ? 0
               : 1;
}

static int load_merges(struct tok *t, const struct tok_spec *spec, const uint16_t *map,
                       struct err *e)
{
    char *both = malloc(PIECE_BYTES_MAX);
    if (!both)
        return err_set(e, ERR_NOMEM, "no memory for the merges");
    int rc = 0;
    uint32_t guess = 0; /* results mostly follow each other in the vocabulary */
    for (size_t i = 0; i < spec->n_merges && rc >= 0; i++) {
        size_t len[2];
        uint32_t left = 0, right = 0, result = BPE_NO_RANK;
        rc = parse_merge(spec, i, map, both, len, e);
        if (rc == 0) {
            rc = find_or_add(t, both, len[0], &left, e);
            if (rc == 0)
                rc = find_or_add(t, both + len[0], len[1], &right, e);
            if (rc == 0 && guess < t->n_vocab && !is_special_type(t->type[guess]) &&
                symbol_is(t, guess, both, len[0] + len[1]))
                result = guess;
            else if (rc == 0)
                rc = find_or_add(t, both, len[0] + len[1], &result, e);
        }
        if (rc >= 0)
            bpe_add(&t->bpe, left, right, result);
        guess = result + 1;
    }
    free(both);
    return rc < 0 ? rc : 0;
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
    "<\xEF\xBD\x9C"
    "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
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

static int encode_piece(void *ctx, const char *piece, size_t n, struct err *e)
{
    return bpe_encode(ctx, piece, n, e);
}

/* Text without special tokens. Bytes that aren't UTF-8 end a run for the pre-tokenizer; each
 * stretch of them is a piece of its own. */
static int encode_plain(struct split_run *run, struct bpe_job *job, const char *text, size_t n,
                        struct err *e)
{
    for (size_t i = 0; i < n;) {
        size_t len = n - i;
        bool is_text = utf8_valid(text + i, n - i, &len) || len > 0;
        int rc;
        if (is_text) {
            rc = split_text(run, text + i, len, encode_piece, job, e);
        } else {
            bool is_ok = false;
            len = 0;
            for (size_t step; !is_ok && i + len < n; len += is_ok ? 0 : step)
                step = utf8_step(text + i + len, n - i - len, &is_ok);
            rc = bpe_encode(job, text + i, len, e);
        }
        if (rc < 0)
            return rc;
        i += len;
    }
    return 0;
}

static int encode_all(const struct tok *t, struct split_run *run, struct bpe_job *job,
                      const char *text, size_t n, bool special, struct err *e)
{
    size_t from = 0;
    for (size_t i = 0; i < n;) {
        size_t len;
        int32_t id = t->root[special][(unsigned char)text[i]] < 0
                         ? -1
                         : match_special(t, text + i, n - i, special, &len);
        if (id < 0) {
            i++;
            continue;
        }
        int rc = encode_plain(run, job, text + from, i - from, e);
        if (rc == 0 && ids_push(job->ret, id) < 0)
            rc = err_set(e, ERR_NOMEM, "no memory for token ids");
        if (rc < 0)
            return rc;
        from = i += len;
    }
    return encode_plain(run, job, text + from, n - from, e);
}

int tok_encode(const struct tok *t, const char *text, size_t n, bool special, struct ids *ret,
               struct err *e)
{
    if (n == 0)
        return 0;
    struct bpe_scratch scratch = {0};
    struct split_run *run;
    struct bpe_job job = {
        .bpe = &t->bpe, .scratch = &scratch, .spell = spell, .spell_ctx = t, .ret = ret};
    size_t n_before = ret->n;
    int rc = split_run_new(t->split, &run, e);
    if (rc < 0)
        return rc;
    rc = encode_all(t, run, &job, text, n, special, e);
    split_run_free(run);
    bpe_scratch_done(&scratch);
    if (rc < 0)
        ret->n = n_before;
    return rc;
}

const char *tok_piece(const struct tok *t, int32_t id, size_t *ret_n)
{
    if (id < 0 || (size_t)id >= t->n_vocab) {
        *ret_n = 0;
        return NULL;
    }
    return symbol_bytes(t, (uint32_t)id, ret_n);
}

int32_t tok_find(const struct tok *t, const char *s, size_t n)
{
    size_t len;
    int32_t id = n > 0 ? match_special(t, s, n, true, &len) : -1;
    if (id >= 0 && len == n)
        return id;
    uint32_t symbol = n > 0 ? index_find(t, s, n) : BPE_NO_RANK;
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
