/*
 * What a model's file is and whether it runs here, without loading it: for lists of models. Reads
 * the head of the file and builds tokenizer and chat format, which are what most files that don't
 * run fail at; no weights are read.
 */
#ifndef HEARTH_ENGINE_DESCRIBE_H
#define HEARTH_ENGINE_DESCRIBE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/kv.h"

struct gguf;

struct engine_summary {
    char arch[64];
    char name[256];         /* general.name; "" if the file has none */
    const char *quant;      /* "Q4_K_M", "?" */
    uint64_t file_bytes;
    uint64_t n_params;      /* elements of all tensors */
    uint64_t weights_bytes; /* resident when loaded for n_ctx positions; 0: doesn't run */
    int n_ctx_train;        /* 0: not said */
    uint64_t kv_bytes;      /* of a position; 0: doesn't run */
    int window;             /* positions that some layers see no further than; 0: all see all */
    uint64_t kv_old_bytes;  /* of a position that is further back than that */
    bool is_embedding;      /* no chat model: for --embedding-model */
    bool has_template;      /* false: completions only */
    bool runs;
    struct err why; /* runs is false: what engine_open would say */
};

/* How it would be loaded. */
struct engine_intent {
    enum kv_type kv_type;
    int n_ctx;                 /* positions that the rotation's tables are counted for */
    const char *chat_template; /* engine_options' */
};
/*
 * ERR_NOTFOUND, ERR_IO, ERR_CORRUPT,
 * ERR_UNSUPPORTED: no GGUF file that can be read at all. Thread-safe.
 */
int engine_describe(const char *path, const struct engine_intent *as, struct engine_summary *ret,
                    struct err *e) MUST_USE;

/* llama.cpp's enum llama_ftype as people write it: "Q4_1"; "?" if unknown. */
const char *engine_file_type(int64_t type);

#endif
