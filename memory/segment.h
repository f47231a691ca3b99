/*
 * Text → terms: what the full-text index holds and what a question asks it for.
 *
 *     "The cats' INC-4471 用run-beta评审会"
 *       →  the cat inc4471 inc 4471 用 runbeta run beta 评 评审 审 审会 会
 *
 * - Letters are folded (compatibility forms, case, accents: base/utf8) and Latin words are reduced
 *   to their English stem. An apostrophe is part of its word; a possessive 's isn't.
 * - Chinese, Japanese (kanji, kana) and Korean text has no spaces: each character is a term, and so
 *   is each pair of neighbours. A Latin run glued into it is a word of its own.
 * - What is joined by - _ . / : @ + # & or changes between letters and digits is kept whole (its
 *   parts written together, without the joints; numbers keep a U+E000 between them, so that 3.5
 *   isn't 35) and in parts.
 * - All else separates: punctuation, NULs, bytes that are no UTF-8.
 *
 * Terms consist of letters, digits and U+E000 only, so that SQLite's unicode61 tokenizer leaves
 * them as they are. Near-linear in the text; a term is at most SEGMENT_TERM_MAX bytes (longer runs
 * are cut there). One thread at a time may use a segmenter.
 */
#ifndef HEARTH_MEMORY_SEGMENT_H
#define HEARTH_MEMORY_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

/* Raise it with any change of the terms that a text gives: the index is then rebuilt. */
#define SEGMENT_VERSION 1
#define SEGMENT_TERM_MAX 64
/* No more of a message is indexed. */
#define SEGMENT_TEXT_MAX ((size_t)1 << 20)

struct segmenter;

/* NULL: out of memory. */
struct segmenter *segmenter_new(void);
void segmenter_free(struct segmenter *s); /* NULL is fine */

enum segment_kind {
    SEGMENT_WORD,   /* a word's stem, a number, a part of something joined */
    SEGMENT_WHOLE,  /* something joined, whole */
    SEGMENT_SINGLE, /* one CJK character */
    SEGMENT_PAIR,   /* two of them */
};
struct segment {
    const char *term; /* borrowed until the callback returns; n bytes and a NUL */
    size_t n;
    enum segment_kind kind;
    bool is_stop;        /* too common to tell texts apart: "the", 的; indexed all the same */
    bool is_capital;     /* the word began with a capital letter: perhaps a name */
    size_t from, to;     /* where in the text: bytes [from, to) */
};
/* Calls `each` for every term, in order; false from it ends the walk. */
void segment_walk(struct segmenter *s, const char *text, size_t n,
                  bool (*each)(void *user, const struct segment *t), void *user);

/* Appends the terms of text[0, n), joined by spaces; buf_error tells failures. */
void segment_text(struct segmenter *s, struct buf *ret, const char *text, size_t n);

/*
 * The name of who speaks, when the text begins with one: "Maria: …", "Dr. Li：…", at most 40 bytes,
 * one to three words that begin with a capital letter (or up to eight CJK characters). Returns the
 * name's length, 0: none; *ret_rest is where the words begin.
 */
size_t segment_speaker(const char *text, size_t n, size_t *ret_rest);

#endif
