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
/* Calls `on_piece` for each piece of valid UTF-8 text[0, n), in order, without gaps; a non-zero
 * answer stops and is returned. */
typedef int (*split_piece_fn)(void *ctx, const char *piece, size_t n, struct err *e);
int split_text(struct split_run *r, const char *text, size_t n, split_piece_fn on_piece, void *ctx,
               struct err *e) MUST_USE;

#endif
