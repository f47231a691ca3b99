/*
 * Writes GGUF files for tests: good ones by default, and bad ones by setting what a good one would
 * never say (counts, offsets, versions, raw values).
 *
 *     gguf_writer_init(&w);
 *     gguf_put_str(&w, "general.architecture", "llama");
 *     gguf_put_tensor(&w, "token_embd.weight", QUANT_F32, 2, (uint64_t[]){64, 300});
 *     gguf_writer_save(&w, path);      tensor bytes are pseudo-random weights, made on the way
 *
 * A failing allocation or an overfull table ends the program: this is a test's helper.
 */
#ifndef HEARTH_TESTS_GGUF_WRITER_H
#define HEARTH_TESTS_GGUF_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "engine/tok.h"

/* GGUF's value types. */
enum {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64
};

struct gguf_writer_tensor {
    char name[128];
    uint32_t type, n_dims; /* any number: what is written; dims[0 … min(n_dims, 4)) */
    uint64_t dims[4];
    uint64_t offset;     /* from the data's start */
    uint64_t n_bytes;    /* of data that follow; 0 for types without known size */
    float scale;         /* the weights' standard deviation, about */
    const float *values; /* F32 only: these instead of random ones; borrowed */
};

struct gguf_writer {
    uint32_t version, alignment;
    uint64_t n_kv, n_tensors; /* as written; kept up by gguf_put_… */
    struct buf kv;
    struct gguf_writer_tensor *tensors;
    size_t n, cap;
    uint64_t seed;
};

void gguf_writer_init(struct gguf_writer *w);
void gguf_writer_done(struct gguf_writer *w);

void gguf_put_int(struct gguf_writer *w, const char *key, int type,
                  int64_t v); /* any integer type, or GGUF_BOOL */
void gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t v);
void gguf_put_f32(struct gguf_writer *w, const char *key, float v);
void gguf_put_str(struct gguf_writer *w, const char *key, const char *s);
void gguf_put_strn(struct gguf_writer *w, const char *key, const char *s, size_t n);
void gguf_put_strs(struct gguf_writer *w, const char *key, const struct tok_str *v, size_t n);
void gguf_put_i32s(struct gguf_writer *w, const char *key, const int32_t *v, size_t n);
/* Key, type number and then these bytes as they are. */
void gguf_put_raw(struct gguf_writer *w, const char *key, uint32_t type, const void *value,
                  size_t n);
/* Takes a key out again; false when it isn't there. */
bool gguf_remove(struct gguf_writer *w, const char *key);

/* Appends a tensor after the last one; the result (to spoil it) is valid until the next one is put.
 */
struct gguf_writer_tensor *gguf_put_tensor(struct gguf_writer *w, const char *name, uint32_t type,
                                           uint32_t n_dims, const uint64_t *dims);
/* By name; NULL: none. */
struct gguf_writer_tensor *gguf_writer_find(struct gguf_writer *w, const char *name);
/* Drops a tensor; those after it move up. */
void gguf_remove_tensor(struct gguf_writer *w, const char *name);

/* The bytes up to the data, padded. */
void gguf_writer_header(const struct gguf_writer *w, struct buf *ret);
/* The whole file. false with errno when it can't be written. */
bool gguf_writer_save(const struct gguf_writer *w, const char *path);
bool gguf_writer_save_fd(const struct gguf_writer *w, int fd);

/* Pseudo-random blocks of a type: finite scales, mean about 0, standard deviation about `scale`.
 * `state` goes on from call to call. */
void gguf_random_blocks(uint32_t type, uint64_t *state, float scale, size_t n_blocks,
                        unsigned char *ret);

#endif
