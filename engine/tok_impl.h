/*
 * What tok.c (tables), tok_split.c (pre-tokenizers) and tok_bpe.c (merging) share. Nobody else
 * includes this.
 *
 *   text ─► special tokens (tok.c, trie) ─► runs of valid UTF-8 ─► pieces (tok_split.c) ─► symbols
 * merged by rank (tok_bpe.c) ─► ids
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

/* Pre-tokenizers by GGUF name. ERR_UNSUPPORTED lists the known ones. Const after split_new. */
struct split;
int split_new(const char *pre, struct split **ret, struct err *e) MUST_USE;
void split_free(struct split *s);
/* The patterns' text: what the fingerprint hashes. */
const char *split_definition(const struct split *s);

/* The match state of one tok_encode call. */
struct split_run;
int split_run_new(const struct split *s, struct split_run **ret, struct err *e) MUST_USE;
void split_run_free(struct split_run *r);
/* Calls `on_piece` for each piece of the text (valid UTF-8), in order, without gaps; a non-zero
 * answer stops and is returned. */
typedef int (*split_piece_fn)(void *ctx, const char *piece, size_t n, struct err *e);
int split_text(struct split_run *r, struct tok_str text, split_piece_fn on_piece, void *ctx,
               struct err *e) MUST_USE;

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

/* The bytes of a symbol. */
static inline const char *tok_symbol(const struct tok *t, uint32_t symbol, size_t *ret_n)
{
    *ret_n = t->off[symbol + 1] - t->off[symbol];
    return t->bytes + t->off[symbol];
}
/* The ordinary symbol of these bytes, or BPE_NO_RANK. hash is tok_hash(s, n). */
uint32_t tok_index_find(const struct tok *t, const char *s, size_t n, uint32_t hash);
uint32_t tok_hash(const char *s, size_t n);
/* The child of a trie node, or -1. */
int32_t tok_trie_child(const struct tok *t, int32_t node, unsigned char byte);

#endif
