/*
 * Tokenizers: bytes → token ids → bytes. Read-only after tok_new, usable from any thread at once.
 *
 * Byte-level BPE ("gpt2"): normalise to NFC where the model's own tokenizer does, split by the
 * model's pre-tokenizer (tok_pre.c; PCRE2 without JIT), then merge by rank within each piece.
 * SentencePiece ("llama"): merge by score across the text (tok_spm.c), bytes for what is no piece.
 * Both with a heap, so that time is near-linear (512 KiB of one letter < 2 s).
 *
 * Text from people never gives control tokens: with special = false the strings of CONTROL tokens
 * are ordinary text; USER_DEFINED tokens are always matched. The type that a file gives isn't
 * believed where it makes the end of a turn an ordinary token (tok_ends.c).
 */
#ifndef HEARTH_ENGINE_TOK_H
#define HEARTH_ENGINE_TOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/ids.h"

/* GGUF's numbers */
enum tok_type {
    TOK_NORMAL = 1,
    TOK_UNKNOWN = 2,
    TOK_CONTROL = 3,
    TOK_USER_DEFINED = 4,
    TOK_UNUSED = 5,
    TOK_BYTE = 6
};

struct tok_str {
    const char *s;
    size_t n;
};

/*
 * What a tokenizer is made of: borrowed only during tok_new. Filled from a GGUF (engine/model.c) or
 * by hand (tests).
 */
struct tok_spec {
    const char *model;           /* "gpt2" or "llama" */
    const char *pre;             /* "gpt2": "smollm", "gpt-2", "qwen2", … (tok_pre.c) */
    const struct tok_str *pieces; /* [n_vocab] in the vocabulary's own spelling, as in the file */
    const int32_t *types;         /* [n_vocab] enum tok_type */
    size_t n_vocab;
    const struct tok_str *merges; /* [n_merges] "left right" */
    size_t n_merges;
    int32_t bos, eos, eot;        /* -1: none */
    bool add_bos;
    const int32_t *ends;          /* [n_ends] further ends of generation (eom) */
    size_t n_ends;
    const float *scores;          /* [n_vocab] "llama" alone, else NULL */
    int32_t unk;                  /* "llama": what a byte without a token becomes; -1: nothing */
    bool add_space_prefix;        /* "llama": a space goes before a text */
    bool strips_after_special;    /* special tokens take the white space behind them (Phi 3) */
    bool skip_nfc;                /* don't normalise, also where the model's own tokenizer does */
};

/* Whether a BOS goes before the text of models with this pre-tokenizer, if their file is silent. */
bool tok_pre_adds_bos(const char *pre);

struct tok;

/* ERR_UNSUPPORTED names an unknown model or pre-tokenizer and lists the known ones; ERR_CORRUPT:
 * ids out of range, a merge without a space, an empty piece, two special tokens of one spelling, no
 * single-byte token at all, scores that are missing or no numbers. Of doubled ordinary pieces the
 * lowest id is used.
 *
 * Some vocabularies (SmolLM2's) lack a few bytes that their training text never had: 04 06 13 14 16
 * 1D, C0 C1, F1 F2, F5 and up. Such a byte in a text gives no token, as in the models' own
 * tokenizers. Bytes that aren't UTF-8 end a run for the pre-tokenizer; each stretch of them is a
 * piece of its own. */
int tok_new(const struct tok_spec *spec, struct tok **ret, struct err *e) MUST_USE;
void tok_free(struct tok *t);

/*
 * Appends the ids of text[0, n) (any bytes; a NUL is a byte). special: strings of CONTROL tokens
 * become them. No BOS is added.
 */
int tok_encode(const struct tok *t, const char *text, size_t n, bool special, struct ids *ret,
               struct err *e) MUST_USE;

/*
 * Whether the ids of a text of lines are those of its lines, one behind the other, each encoded by
 * itself with its newline: wherever a newline stands behind a printable ASCII character and before
 * a letter, a digit, '-' or '[' of ASCII. So for byte-level BPE whose pre-tokenizer never has the
 * two in one piece, unless the vocabulary has tokens of the user's that hold a newline. Looks at
 * the whole vocabulary: ask once.
 */
bool tok_cuts_lines(const struct tok *t);

/* As tok_encode for a text that goes on where ordinary text ended: no space goes before it. */
int tok_encode_more(const struct tok *t, const char *text, size_t n, bool special, struct ids *ret,
                    struct err *e) MUST_USE;

/*
 * Where text[0, n) first holds a byte that the vocabulary can't spell, so that tok_encode would
 * leave it out; n: nowhere.
 */
size_t tok_unspellable(const struct tok *t, const char *text, size_t n);

/*
 * The bytes of one token (not NUL-terminated), borrowed from t; control tokens give their spelling.
 * NULL and n = 0 for an id out of range.
 */
const char *tok_piece(const struct tok *t, int32_t id, size_t *ret_n);
/*
 * Appends the bytes of ids[0, n), without the space that tok_encode put before the text and behind
 * each special token. With normalisation to NFC, and of U+2581 to a space, what comes back is the
 * normalised text: keep the original where it matters.
 */
void tok_decode(const struct tok *t, const int32_t *ids, size_t n, struct buf *ret);
/* Whether tok_encode puts a space before a text, so that the first piece of an answer may begin
 * with one that isn't the answer's. */
bool tok_adds_space(const struct tok *t);
/* Whether white space behind this special token belongs to it and gives no tokens. */
bool tok_strips_after(const struct tok *t, int32_t id);
/* The id whose spelling is exactly s (control and user-defined ones included), or -1. */
int32_t tok_find(const struct tok *t, const char *s, size_t n);

size_t tok_n_vocab(const struct tok *t);
bool tok_is_control(const struct tok *t, int32_t id);
/*
 * End of generation: eos, eot, eom, and the control tokens by the names that models use for it
 * (<|im_end|>, <|endoftext|>, <|eot_id|>, …: tok_ends.c).
 */
bool tok_is_eog(const struct tok *t, int32_t id);
int32_t tok_bos(const struct tok *t); /* -1: none, or not to be added */
/* What a template's bos_token and eos_token stand for, whether or not it is added; -1: none. */
int32_t tok_bos_token(const struct tok *t);
int32_t tok_eos_token(const struct tok *t);
/* Hash over all that decides ids: pieces, types, merges or scores, pre-tokenizer, flags. */
void tok_fingerprint(const struct tok *t, uint8_t ret[32]);

#endif
