/*
 * Inside of the GGUF reader: gguf.c makes these tables in one distrustful pass, gguf_get.c looks
 * things up in them.
 */
#ifndef HEARTH_ENGINE_GGUF_IMPL_H
#define HEARTH_ENGINE_GGUF_IMPL_H

#include <string.h>

#include "base/sys.h"
#include "engine/gguf.h"

enum gguf_value {
    VALUE_U8,
    VALUE_I8,
    VALUE_U16,
    VALUE_I16,
    VALUE_U32,
    VALUE_I32,
    VALUE_F32,
    VALUE_BOOL,
    VALUE_STRING,
    VALUE_ARRAY,
    VALUE_U64,
    VALUE_I64,
    VALUE_F64,
    VALUE_TYPES,
};

struct gguf_kv {
    struct tok_str key;
    uint32_t type;
    uint32_t item_type;         /* of an array */
    uint64_t n;                 /* items of an array, bytes of a string, else 1 */
    const unsigned char *value; /* the number, the string's bytes, or the array's first item */
};

struct gguf {
    const unsigned char *data;
    uint64_t n_bytes, data_offset;
    int fd; /* -1: none */
    struct stat st;
    struct gguf_kv *kv; /* [n_kv], sorted by gguf_compare_kv */
    size_t n_kv;
    struct gguf_tensor *tensors;  /* [n_tensors], in the file's order */
    struct gguf_tensor **by_name; /* [n_tensors], sorted by gguf_compare_names */
    char *names;                  /* their NUL-terminated names */
    size_t n_tensors;
};

const char *gguf_value_name(uint32_t type); /* "u32"; the type is known */
size_t gguf_value_bytes(uint32_t type);     /* 0: string or array */

/* For qsort and bsearch. */
int gguf_compare_kv(const void *a, const void *b);
int gguf_compare_names(const void *a, const void *b);
/* Borrowed, or NULL. */
const struct gguf_kv *gguf_find(const struct gguf *g, const char *key);

/* n × size zeroed bytes, at least one; the caller has bounded n by the file's size. */
void *gguf_table(size_t n, size_t size);

static inline uint64_t gguf_load(const unsigned char *p, size_t n)
{
    uint64_t v = 0;
    for (size_t i = n; i-- > 0;) {
        v = v << 8 | p[i];
    }
    return v;
}

/* For error texts: at most 80 bytes of a string of the file. */
static inline int gguf_shown(struct tok_str s)
{
    return s.n < 80 ? (int)s.n : 80;
}

#endif
