/*
 * The synthetic vocabulary of the scripted engine: a byte-level BPE small enough to know by heart.
 *
 *     0 … 255    the bytes: id = byte
 *     256        <|endoftext|>   257  <|im_start|>   258  <|im_end|>       control tokens
 *     259 …      made by merges (".\n\n" of "." and "\n\n", 你好 of 你 and 好, " the", …): each
 *                exists as one token and apart
 *     then       pieces that no merge makes ("nop", "qrs", " Note", …): only a script can say
 *                them, text never encodes to them
 *     then       what a script names and isn't there yet
 *
 * Pre-tokenizer: qwen2's, the one that keeps "." and the newlines after it in one piece.
 */
#ifndef HEARTH_TESTS_SCRIPTED_VOCAB_H
#define HEARTH_TESTS_SCRIPTED_VOCAB_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/tok.h"

enum { VOCAB_ENDOFTEXT = 256, VOCAB_IM_START = 257, VOCAB_IM_END = 258 };

#define VOCAB_MAX 300000
#define VOCAB_PIECE_BYTES_MAX 512

struct vocab;

int vocab_new(struct vocab **ret, struct err *e) MUST_USE;
void vocab_free(struct vocab *v);
/* The id of the token of exactly these bytes (control tokens by their spelling); makes a new one
 * when there is none. ERR_LIMIT, ERR_INVAL (empty), ERR_NOMEM. */
int vocab_add(struct vocab *v, const char *bytes, size_t n, int32_t *ret, struct err *e) MUST_USE;
/* Text that has both next to each other encodes to the token of both; earlier merges go first, and
 * both must be tokens already. ERR_LIMIT, ERR_NOMEM. */
int vocab_merge(struct vocab *v, struct tok_str left, struct tok_str right,
                struct err *e) MUST_USE;
int vocab_size(const struct vocab *v);
/* Adds pieces that no merge makes until there are n. */
int vocab_fill(struct vocab *v, int n, struct err *e) MUST_USE;
/* What tok_new wants, borrowed until the vocabulary changes. */
void vocab_spec(const struct vocab *v, struct tok_spec *ret);
/* A tokenizer of what is in it now. */
int vocab_tok(const struct vocab *v, struct tok **ret, struct err *e) MUST_USE;

#endif
