/* Inside of embedding models: embed_load.c fills this, embed.c runs it. */
#ifndef HEARTH_ENGINE_EMBED_IMPL_H
#define HEARTH_ENGINE_EMBED_IMPL_H

#include "engine/embed.h"
#include "engine/quant.h"
#include "engine/tok_wordpiece.h"

enum embed_pooling { EMBED_MEAN = 1, EMBED_CLS = 2 }; /* GGUF's numbers */

/* y = x Wᵀ + b, w [n_out, n_in]. */
struct embed_linear {
    float *w, *b;
    int n_in, n_out;
};
struct embed_norm {
    float *w, *b; /* [n_embd] */
};
struct embed_layer {
    struct embed_linear qkv; /* three matrices, one under the other */
    struct embed_linear o, up, down;
    struct embed_norm attn_norm, out_norm;
};

struct embed {
    int n_vocab, n_embd, n_ff, n_layers, n_heads, n_ctx, n_types;
    float eps;
    enum embed_pooling pooling;
    struct wordpiece *tok;
    char name[128];
    uint8_t hash[EMBED_HASH_BYTES];
    unsigned char *words; /* [n_vocab, n_embd], rows as the file has them */
    const struct quant_type *words_type;
    size_t words_row_bytes;
    float *positions;  /* [n_ctx, n_embd], the vector of token type 0 added */
    struct embed_norm norm;
    struct embed_layer *layers; /* [n_layers] */
    float **owned;              /* [n_owned] every matrix and vector above but words */
    size_t n_owned, cap_owned;
    uint64_t n_bytes;
};

#endif
