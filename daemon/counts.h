/*
 * How many tokens a text has, when most of its lines were counted before: heads, quotes and
 * summaries are made of the same lines again and again, a few of them new.
 *
 *     text ─► lines, where the tokenizer cuts there anyway (tok_cuts_lines) ─► hash ─► known? its
 *             count ─► else encoded, and kept
 *
 * A count is that of tok_encode, so what is kept changes no result. Bounded: COUNTS_SLOTS lines,
 * each in the one place that its hash names; a newer one takes it over. History thread.
 */
#ifndef HEARTH_DAEMON_COUNTS_H
#define HEARTH_DAEMON_COUNTS_H

#include "engine/tok.h"

#define COUNTS_SLOTS ((size_t)1 << 14) /* a power of two; 24 bytes each */

struct counts;

struct counts *counts_new(void); /* NULL: out of memory, and nothing is kept */
void counts_free(struct counts *c); /* NULL is fine */
/* Tokens of text[0, n), any bytes; or an error of tok_encode. Counts of several tokenizers are kept
 * beside each other. c may be NULL. */
int counts_of(struct counts *c, const struct tok *tok, const char *text, size_t n);

#endif
