/*
 * GGUF v2/v3 files, mapped read-only and distrusted: every count, size and offset is checked
 * against the file before it is used, with overflow-safe arithmetic; nothing is allocated for a
 * count that the remaining bytes could not hold. Format: ggml's docs/gguf.md.
 */
#ifndef HEARTH_ENGINE_GGUF_H
#define HEARTH_ENGINE_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/err.h"
#include "engine/tok.h"

struct gguf;

struct gguf_tensor {
    const char *name; /* borrowed from the gguf */
    uint32_t type;    /* GGML type number, known to quant_type() */
    int n_dims;       /* 1 … 4 */
    uint64_t dims[4]; /* dims[0] is the contiguous one (columns of a row) */
    const unsigned char *data;
    uint64_t n_bytes;
};

/*
 * ERR_NOTFOUND, ERR_IO, ERR_CORRUPT (what, where, value, limit), ERR_UNSUPPORTED (version,
 * big-endian, split files, tensor types). The file must not be truncated while it is open here: the
 * kernel answers reads of pages that are gone with SIGBUS. The engine keeps it open only while
 * loading.
 */
int gguf_open(const char *path, struct gguf **ret, struct err *e) MUST_USE;
void gguf_close(struct gguf *g);
uint64_t gguf_file_bytes(const struct gguf *g);
const unsigned char *gguf_file_data(const struct gguf *g);
const struct stat *gguf_stat(const struct gguf *g); /* of the descriptor that was mapped */
/* Nobody has written to the file since it was opened, by its size and time of modification: what
 * was read of it at different times belongs together. */
bool gguf_is_unchanged(const struct gguf *g);

/* NULL when there is none of that name. */
const struct gguf_tensor *gguf_tensor(const struct gguf *g, const char *name);
size_t gguf_n_tensors(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i);
/* The tensor's pages are not needed any more (MADV_DONTNEED). */
void gguf_drop(const struct gguf *g, const struct gguf_tensor *t);

/* Typed look-ups. Absent: ERR_NOTFOUND and *ret untouched. Wrong type or out of [min, max]:
 * ERR_CORRUPT naming key, type, value and range. Any integer type serves an integer. */
int gguf_int(const struct gguf *g, const char *key, int64_t min, int64_t max, int64_t *ret,
             struct err *e) MUST_USE;
int gguf_float(const struct gguf *g, const char *key, double min, double max, double *ret,
               struct err *e) MUST_USE;
int gguf_bool(const struct gguf *g, const char *key, bool *ret, struct err *e) MUST_USE;
int gguf_str(const struct gguf *g, const char *key, struct tok_str *ret, struct err *e) MUST_USE;
/* Arrays: *ret is allocated (caller frees); the strings inside are borrowed from the mapping. */
int gguf_str_array(const struct gguf *g, const char *key, struct tok_str **ret, size_t *ret_n,
                   struct err *e) MUST_USE;
/* The number of items of an array of any type, without reading it. */
int gguf_array_length(const struct gguf *g, const char *key, size_t *ret_n, struct err *e) MUST_USE;
int gguf_int_array(const struct gguf *g, const char *key, int32_t **ret, size_t *ret_n,
                   struct err *e) MUST_USE;
/* An array of F32. */
int gguf_float_array(const struct gguf *g, const char *key, float **ret, size_t *ret_n,
                     struct err *e) MUST_USE;

#endif
