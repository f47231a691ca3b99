/*
 * The engine: a GGUF model, its tokenizer and chat format, and one operation, the pass.
 *
 * A pass takes parts: each a sequence (KV blocks and a committed length) and the ids to append to
 * it. All parts of a pass share the reading of the weights; the bits of each depend on none of the
 * others, nor on how its ids were cut into passes, nor on threads, nor on the instruction set (see
 * engine/kernels.h for how).
 *
 *      engine_open ─► const after this ─► engine_pass(parts…) on the worker thread;
 *                                         tok/chat functions on any thread
 *
 * The scripted engine of the tests is a link-time double of this header (tests/scripted/engine.c).
 */
#ifndef HEARTH_ENGINE_ENGINE_H
#define HEARTH_ENGINE_ENGINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/chat.h"
#include "engine/kv.h"
#include "engine/tok.h"

/* What a model will take of memory, and what its owner needs to know to add KV and logits. */
struct engine_needs {
    uint64_t weights_bytes;
    uint64_t pass_bytes; /* as engine_pass_bytes(pass_rows) will say */
    struct kv_shape kv;
    int n_vocab, n_ctx_train, n_ctx;
};

struct engine_options {
    const char *model_path;
    const char *chat_template; /* NULL, a family name, or a file's path */
    const char *isa;           /* NULL: the best this CPU has; "c", "avx2", "avx512", "amx" */
    int n_threads;             /* 0: physical cores within affinity and cgroup quota */
    int n_ctx;                 /* positions a sequence will have at most; 0: as the model was
                                * trained for */
    enum kv_type kv_type;
    bool skip_nfc; /* text isn't normalised, also where the model's own tokenizer does: ids as
                    * llama.cpp has them */
    uint64_t memory_bytes;         /* 0: no check; else ERR_LIMIT when the weights alone exceed it,
                                * said before anything is allocated */
    const char *fingerprint_cache; /* NULL, or a file that remembers weights' hashes by (device,
                                    * inode, size, mtime, ctime) */
    void (*on_progress)(void *ctx, double done); /* 0 … 1 while loading; may be NULL */
    void *progress_ctx;
    _Atomic uint64_t *passed; /* counts up what engine_progress does, for threads that may outlive
                               * the engine; NULL: nowhere */
    const atomic_int *abort; /* loading stops with ERR_CANCELED when it becomes non-zero; may
                                * be NULL */
    int pass_rows; /* of the largest pass, for engine_needs */
    /* Asked when all sizes are known and before anything is allocated for the weights: an error of
     * it ends the opening. May be NULL. */
    int (*may_take)(void *ctx, const struct engine_needs *n, struct err *e);
    void *may_take_ctx;
};

/* What a model is: valid as long as the engine. */
struct engine_info {
    const char *name;  /* general.name, else the file's stem */
    const char *id;    /* the file's stem: what /v1/models says */
    const char *arch;  /* "llama", "qwen2", … */
    const char *quant; /* "Q4_1" … by general.file_type, "?" if unknown */
    const char *isa;   /* kernels in use */
    int n_threads;
    int n_vocab, n_layers, n_embd, n_heads, n_kv_heads, head_dim;
    int n_ctx_train;
    int n_ctx; /* what a sequence can have: n_ctx_train, or less if opened with less */
    uint64_t n_params;
    int n_experts, n_experts_used; /* of a mixture: a layer's, and those a token goes to; 0: none */
    uint64_t n_params_experts;     /* of n_params, all experts' that a token may not go to */
    uint64_t file_bytes, weights_bytes; /* resident after loading */
    struct kv_shape kv;
    /* of the file's general.sampling.*; NaN: not there */
    double sampling_temperature, sampling_top_p, sampling_min_p, sampling_repetition;
    uint8_t fingerprint[32]; /* of everything that decides the bits of a KV block: weights,
                               * tokenizer, rope, KV type, numerics probe; not the owner */
    uint8_t render_id[32];   /* tokenizer + template: what stored token ids belong to */
};

struct engine;

/*
 * Errors: ERR_NOTFOUND (no such file), ERR_CORRUPT (not a well-formed GGUF: what and where),
 * ERR_UNSUPPORTED (architecture, tensor type, tokenizer or template, by name, with what is
 * supported and the option that overrides), ERR_LIMIT (memory, with numbers), ERR_INVAL (an isa
 * this CPU lacks).
 */
int engine_open(const struct engine_options *o, struct engine **ret, struct err *e) MUST_USE;
void engine_close(struct engine *en); /* NULL is fine */
const struct engine_info *engine_info(const struct engine *en);
const struct tok *engine_tok(const struct engine *en);
const struct chat *engine_chat(const struct engine *en); /* NULL when the model has no template
                                                          * (completions only) */

/* One sequence's share of a pass. */
struct engine_part {
    struct kv_seq *seq; /* capacity for n_ids more positions; its private block holds position
                          * n_tokens */
    const int32_t *ids; /* [n_ids], each within the vocabulary (ERR_INVAL otherwise) */
    int n_ids;          /* >= 1 */
    int n_logits;       /* the last n_logits rows' logits are wanted: 0 … n_ids */
    float *logits;      /* [n_logits, n_vocab], written by the pass */
};

/*
 * Runs the parts (no sequence twice), then commits each seq->n_tokens += n_ids. `abort` (may be
 * NULL) is read between layers: ERR_CANCELED leaves every committed length unchanged. ERR_NOMEM
 * likewise. Scratch is sized by the total number of rows and kept.
 */
int engine_pass(struct engine *en, struct engine_part *parts, int n_parts, const atomic_int *abort,
                struct err *e) MUST_USE;

/* Bytes that passes of up to n_rows rows take, with what each thread has; kept after them. */
size_t engine_pass_bytes(const struct engine *en, int n_rows);

/* Changes the number of compute threads (probe, bench). Not during a pass. */
int engine_set_threads(struct engine *en, int n_threads, struct err *e) MUST_USE;
/* Changes the kernels ("c", "avx2", "avx512", "amx"; NULL: the best). Not during a pass; the bits
 * stay the same. */
int engine_set_isa(struct engine *en, const char *isa, struct err *e) MUST_USE;

/* Counts layers passed since the start: the watchdog's sign of progress. Any thread. */
uint64_t engine_progress(const struct engine *en);

/* Dequantises one run of blocks of the named GGUF type, for the probe and for tests. *n_values: how
 * many ret has room for, then how many there are. ERR_UNSUPPORTED names the type; ERR_INVAL when n
 * isn't whole blocks or they hold more values. */
int engine_dequantize(const char *type, const void *data, size_t n, float *ret, size_t *n_values,
                      struct err *e) MUST_USE;

#endif
