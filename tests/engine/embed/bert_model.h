/* Small embedding models with pseudo-random weights, for tests. */
#ifndef HEARTH_TESTS_BERT_MODEL_H
#define HEARTH_TESTS_BERT_MODEL_H

#include "tests/engine/load/gguf_writer.h"

struct bert_model {
    int n_embd, n_ff, n_layers, n_heads, n_ctx;
    int pooling;        /* 1: mean, 2: first token */
    uint32_t type;      /* of matrices, enum quant_id */
    bool marks_pieces;  /* "##piece", the models' own spelling; else llama.cpp's */
    const char *words;  /* more words of the vocabulary, one a line; or NULL */
    uint64_t seed;
};
extern const struct bert_model bert_model_default;

/* Everything put, so that a test can spoil it before it is saved. */
void bert_model_put(const struct bert_model *m, struct gguf_writer *w);

#endif
