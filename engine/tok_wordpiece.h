/*
 * WordPiece, the tokenizer of BERT's family. Text is lower-cased, accents are dropped, control
 * characters too; white space and punctuation end a word, and each punctuation mark and each
 * ideograph is a word. A word is spelt by the longest pieces from its beginning, or is [UNK] as a
 * whole. Source: google-research/bert's tokenization, in the reading of Hugging Face's
 * BertNormalizer and BertPreTokenizer (no final sigma).
 *
 * Const after wordpiece_new, usable from any thread at once. Text never gives [CLS] or its like.
 */
#ifndef HEARTH_ENGINE_TOK_WORDPIECE_H
#define HEARTH_ENGINE_TOK_WORDPIECE_H

#include "base/err.h"
#include "base/ids.h"
#include "engine/tok.h"

#define WORDPIECE_WORD_MAX 100 /* characters; a longer word is [UNK] */

/* Borrowed during wordpiece_new. */
struct wordpiece_spec {
    const struct tok_str *pieces; /* [n] "word" and "##piece", or "\u2581word" and "piece", as
                                   * llama.cpp writes them */
    const int32_t *types;         /* [n] enum tok_type, or NULL */
    size_t n;
    int32_t cls, sep, unk, pad;   /* -1: look for [CLS], … */
};

struct wordpiece;
/* ERR_CORRUPT: no [CLS], [SEP] or [UNK], ids out of range; ERR_LIMIT; ERR_NOMEM. */
int wordpiece_new(const struct wordpiece_spec *spec, struct wordpiece **ret,
                  struct err *e) MUST_USE;
void wordpiece_free(struct wordpiece *w);
int32_t wordpiece_cls(const struct wordpiece *w);
int32_t wordpiece_sep(const struct wordpiece *w);
int32_t wordpiece_unk(const struct wordpiece *w);
size_t wordpiece_n_vocab(const struct wordpiece *w);

/*
 * Appends at most `max` ids of text[0, n) (any bytes; those that are no UTF-8 are left out),
 * without [CLS] and [SEP]. *ret_used: how much of the text they stand for; when it is less than n,
 * the rest begins with the first word that wasn't whole (the ids may hold its beginning), and at
 * least one word was used. Time is linear in n, and bounded by what max ids need.
 */
int wordpiece_encode(const struct wordpiece *w, struct tok_str text, size_t max, struct ids *ret,
                     size_t *ret_used) MUST_USE;

#endif
