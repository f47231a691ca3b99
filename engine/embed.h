/*
 * Sentence vectors by an embedding model of BERT's family (architecture "bert" with a WordPiece
 * vocabulary: all-MiniLM, bge, e5 in English …), in float32 with OpenBLAS. No promise about bits is
 * made here, only about accuracy.
 *
 *      text ─► [CLS] pieces [SEP] ─► word + position + type vectors, normed
 *           ─► n × (attention among all tokens, add and norm, GELU network, add and norm)
 *           ─► mean over the tokens, or the first one ─► length 1
 *
 * Texts of one batch lie one after the other without padding: matrix products see all tokens of all
 * texts, attention sees each text alone. So a text's vector doesn't depend on its neighbours but
 * for rounding.
 *
 * Const after embed_open, usable from any thread at once. Source: Devlin et al., "BERT", 2018;
 * Reimers, Gurevych, "Sentence-BERT", 2019; tensor names as llama.cpp has them.
 */
#ifndef HEARTH_ENGINE_EMBED_H
#define HEARTH_ENGINE_EMBED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/ids.h"

#define EMBED_TOKENS_MAX 512 /* of a text, with [CLS] and [SEP] */
#define EMBED_DIM_MAX 4096

struct embed;

/*
 * Reads a GGUF and closes it again. ERR_NOTFOUND, ERR_IO, ERR_CORRUPT (what is missing or has the
 * wrong shape, by name), ERR_UNSUPPORTED (architecture, tokenizer, pooling), ERR_NOMEM,
 * ERR_CANCELED. `abort` may be NULL; it is looked at between tensors.
 */
int embed_open(const char *path, const atomic_int *abort, struct embed **ret,
               struct err *e) MUST_USE;
void embed_close(struct embed *m); /* NULL is fine */

const char *embed_name(const struct embed *m); /* general.name, or the file's */
int embed_dim(const struct embed *m);          /* of a vector */
int embed_n_ctx(const struct embed *m);        /* tokens of a text, with [CLS] and [SEP] */
uint64_t embed_bytes(const struct embed *m);   /* resident */
/* Of all that decides vectors: weights, vocabulary, shape. */
#define EMBED_HASH_BYTES 32
void embed_hash(const struct embed *m, uint8_t ret[EMBED_HASH_BYTES]);
/* What a file will take once open, by its size: weights become float32, but the vocabulary's. An
 * upper bound for the budget; 0 when the file can't be read. */
uint64_t embed_bytes_of(const char *path);

/*
 * Appends [CLS], the pieces of text[0, n), [SEP]: at most max_tokens (3 to embed_n_ctx) in all.
 * *ret_used < n: it was longer, and what comes next begins there (see wordpiece_encode).
 */
struct embed_text {
    const char *s;
    size_t n;
};
int embed_tokenize(const struct embed *m, struct embed_text text, int max_tokens, struct ids *ret,
                   size_t *ret_used) MUST_USE;

/* Whether the model can read what the pieces are of: an English one gets [UNK] for most of a
 * Chinese text, and what vectors are near then says nothing. */
bool embed_knows(const struct embed *m, const struct ids *ids);

/* Tokens of one text: 1 to embed_n_ctx ids in the vocabulary. */
struct embed_tokens {
    const int32_t *v;
    int n;
};
/*
 * ret [n, embed_dim]: a vector of length 1 for each text. Works through them in batches of a few
 * hundred tokens. ERR_INVAL: lengths, ids; ERR_NOMEM; ERR_CANCELED: *abort (may be NULL) was set,
 * which is looked at between layers.
 */
int embed_run(const struct embed *m, const struct embed_tokens *v, size_t n,
              const atomic_int *abort, float *ret, struct err *e) MUST_USE;

#endif
