/*
 * What the files of the tokenizer share: tok.c (the way of a text), tok_load.c, tok_merges.c and
 * tok_ends.c (tables), tok_pre.c and tok_split.c (pre-tokenizers), tok_bpe.c and tok_spm.c
 * (merging). Nobody else includes this, but tests that count steps.
 *
 *   text ─► special tokens (tok.c, trie) ─┬─► runs of valid UTF-8 ─► NFC ─► pieces (tok_split.c)
 *                                         │       ─► symbols merged by rank (tok_bpe.c) ─► ids
 *                                         └─► characters merged by score (tok_spm.c) ─► ids
 *
 * A symbol is a string of bytes: ids below n_vocab are the vocabulary's own; those above are
 * strings that only occur inside merges (a part that is no token by itself, or a byte that the
 * vocabulary cannot spell) and never leave this room.
 */
#ifndef HEARTH_ENGINE_TOK_IMPL_H
#define HEARTH_ENGINE_TOK_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"
#include "base/ids.h"
#include "engine/tok.h"

/* A slot of the merge table packs (left, right, rank) into 20 + 20 + 24 bits. */
#define BPE_SYMBOLS_MAX ((size_t)1 << 20)
#define BPE_MERGES_MAX (((size_t)1 << 24) - 1)
#define BPE_NO_RANK UINT32_MAX

struct bpe {
    uint64_t *slots; /* open addressing: left << 44 | right << 24 | rank + 1; 0 is empty */
    uint32_t mask;
    uint32_t n_merges;
    uint32_t *left, *right,
        *result; /* [n_merges] symbols by rank; an unreachable merge has BPE_NO_RANK in result */
    uint32_t byte_symbol[256];
    uint32_t n_vocab;
};

/* In place. slots sized for n_merges; merges are added in order of rank, the first of equal pairs
 * stays. */
int bpe_init(struct bpe *b, size_t n_merges, struct err *e) MUST_USE;
void bpe_done(struct bpe *b);
void bpe_add(struct bpe *b, uint32_t left, uint32_t right, uint32_t result);
/* Reads the pair's slot, so that it is in the CPU's cache when bpe_add comes to it. */
void bpe_touch(const struct bpe *b, uint32_t left, uint32_t right);

/* Working memory of one tok_encode call: grows with the longest piece. See tok_bpe.c. */
struct bpe_entry {
    uint32_t at, next;
};
struct bpe_run {
    uint32_t head, tail;
};
struct bpe_scratch {
    uint32_t *symbol, *next, *prev; /* [cap] */
    size_t cap;
    uint64_t *heap; /* rank << 32 | position of the left symbol */
    size_t n_heap, cap_heap;
    struct bpe_entry *entries;
    size_t n_entries, cap_entries;
    uint32_t free_entry;
    struct bpe_run *runs; /* by rank; all empty between pieces */
    uint64_t n_steps;     /* pairs put into the heap and taken out */
};
void bpe_scratch_done(struct bpe_scratch *s);

/*
 * Appends the ids of one piece. Lowest rank first, the leftmost among equals; O(n log n). A merged
 * symbol that is no token falls back to its bytes, found through `spell` (the symbol's bytes, as
 * tok_piece gives them); a byte without a token is left out.
 */
typedef const char *(*bpe_spell_fn)(const void *ctx, uint32_t symbol, size_t *ret_n);
struct bpe_job {
    const struct bpe *bpe;
    struct bpe_scratch *scratch;
    bpe_spell_fn spell;
    const void *spell_ctx;
    struct ids *ret;
};
int bpe_encode(const struct bpe_job *job, const char *piece, size_t n, struct err *e) MUST_USE;

/*
 * A pre-tokenizer: a line of the table in tok_pre.c. A pattern that begins with PRE_THREES cuts
 * what it matches into groups of three characters, counted from the end (1 234 567).
 */
#define PRE_STAGES_MAX 6
#define PRE_THREES "3<"
enum pre_flags {
    PRE_IGNORE_MERGES = 1, /* a piece that is a token is that token, merges or not */
    PRE_ADD_BOS = 2,       /* a BOS goes before a text, unless the file says otherwise */
    PRE_NFC = 4,           /* the model's own tokenizer normalises text to NFC first */
    PRE_SPANS_LINES = 8,   /* pieces may go on in the next line (tok_cuts_lines) */
};
struct pre_def {
    const char *names; /* with spaces between */
    unsigned flags;    /* of enum pre_flags */
    const char *stages[PRE_STAGES_MAX + 1];
};
const struct pre_def *pre_find(const char *name); /* NULL: unknown */
const struct pre_def *pre_at(size_t i);           /* NULL behind the last */

/* A pre-tokenizer, compiled. ERR_UNSUPPORTED lists the known ones. Const after split_new. */
struct split;
int split_new(const char *pre, struct split **ret, struct err *e) MUST_USE;
void split_free(struct split *s);
const struct pre_def *split_def(const struct split *s);

/* The match state of one tok_encode call. */
struct split_run;
int split_run_new(const struct split *s, struct split_run **ret, struct err *e) MUST_USE;
void split_run_free(struct split_run *r);
/* Calls `on_piece` for each piece of the text (valid UTF-8), in order, without gaps; a non-zero
 * answer stops and is returned. */
typedef int (*split_piece_fn)(void *ctx, const char *piece, size_t n, struct err *e);
int split_text(struct split_run *r, struct tok_str text, split_piece_fn on_piece, void *ctx,
               struct err *e) MUST_USE;

/* SentencePiece's tables beside the common ones. See tok_spm.c. */
struct spm {
    uint32_t *order;      /* [n_vocab] the highest score is the lowest; NULL: not SentencePiece */
    uint8_t inside[8192]; /* a bit for each two bytes that are neighbours inside of a piece */
    size_t piece_max;     /* bytes of the longest */
    int32_t unk;          /* -1: none */
    bool add_space;       /* a space goes before a text */
};
struct spm_scratch {
    uint32_t *at, *next, *prev, *pair, *id; /* [cap], one allocation */
    size_t cap;
    uint64_t *heap; /* order << 32 | position */
    size_t n_heap, cap_heap;
    char *text; /* the text as the pieces spell it */
    size_t cap_text;
    uint64_t n_steps; /* look-ups, and entries taken from the heap */
};
void spm_scratch_done(struct spm_scratch *s);
/* A piece of the vocabulary is known by its bytes; in `inside` and `piece_max`. */
void spm_learn(struct spm *m, const char *s, size_t n);
/* The order of a score that is a number. */
uint32_t spm_order(float score);
/* Appends the ids of a text between special tokens. is_prefixed: a space goes before it. */
struct tok;
int spm_encode(const struct tok *t, struct spm_scratch *s, struct tok_str text, bool is_prefixed,
               struct ids *ret, struct err *e) MUST_USE;

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
    struct bpe bpe;      /* of SentencePiece: byte_symbol alone */
    struct split *split; /* NULL: SentencePiece */
    struct spm spm;
    bool ignores_merges;  /* PRE_IGNORE_MERGES */
    bool is_nfc;          /* text is normalised first */
    bool strips_after;    /* special tokens take the white space behind them */
    int32_t bos, eos;
    bool add_bos;
    uint8_t fingerprint[HASH_BYTES];
};

/* The bytes of a symbol. */
static inline const char *tok_symbol(const struct tok *t, uint32_t symbol, size_t *ret_n)
{
    *ret_n = t->off[symbol + 1] - t->off[symbol];
    return t->bytes + t->off[symbol];
}
/* tok_encode(special = false), and the steps that its merging took: how it grows with the text. */
int tok_count_steps(const struct tok *t, struct tok_str text, struct ids *ret, uint64_t *ret_steps,
                    struct err *e) MUST_USE;
/* The ordinary symbol of these bytes, or BPE_NO_RANK. hash is tok_hash(s, n). */
uint32_t tok_index_find(const struct tok *t, const char *s, size_t n, uint32_t hash);
uint32_t tok_hash(const char *s, size_t n);
static inline void tok_touch_index(const struct tok *t, uint32_t hash)
{
    (void)*(const volatile uint64_t *)&t->index[hash & t->index_mask];
}

/* What tok_load.c and tok_merges.c share. */
#define PIECE_BYTES_MAX ((size_t)1 << 16)
/* Symbols of the byte-to-unicode spelling, by code point: the byte + 1, or 0. The last is
 * U+0143. */
#define SPELLING_MAX 0x144
/* An item of a batch: its table slots are touched before they are needed, which overlaps the misses
 * of the CPU's caches (the tables have megabytes). */
#define TOK_BATCH 32
struct tok_item {
    char *s; /* bytes of a piece, or of a merge's left and right in a row */
    size_t n, n_left;
    uint32_t hash, hash_right; /* of the piece or the left; of the right */
    uint32_t left, right;
    bool is_spelt;
};
/* Writes the bytes that a spelling stands for (at most n); false when it holds a character outside
 * the map. */
bool tok_spelt(const uint16_t map[SPELLING_MAX], const char *s, size_t n, char *ret, size_t *ret_n);
bool tok_symbol_is(const struct tok *t, uint32_t symbol, const struct tok_str *s);
/* A new symbol above the vocabulary. */
int tok_add_symbol(struct tok *t, const char *s, size_t n, uint32_t *ret, struct err *e) MUST_USE;
int tok_load_merges(struct tok *t, const struct tok_spec *spec, const uint16_t *map,
                    struct err *e) MUST_USE;

/* Ends of generation (tok_ends.c): the types that pieces have in truth, and the marking of all. */
void ends_types(struct tok *t, const struct tok_spec *spec);
void ends_mark(struct tok *t, const struct tok_spec *spec);

/* The child of a trie node, or -1. */
int32_t tok_trie_child(const struct tok *t, int32_t node, unsigned char byte);

#endif
