/* Look-ups in an open GGUF file: by key with type and range checked, and by tensor name. */
#include "engine/gguf_impl.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static const struct {
    const char *name;
    size_t bytes;
} value_types[VALUE_TYPES] = {
    [VALUE_U8] = {"u8", 1},       [VALUE_I8] = {"i8", 1},     [VALUE_U16] = {"u16", 2},
    [VALUE_I16] = {"i16", 2},     [VALUE_U32] = {"u32", 4},   [VALUE_I32] = {"i32", 4},
    [VALUE_F32] = {"f32", 4},     [VALUE_BOOL] = {"bool", 1}, [VALUE_STRING] = {"string", 0},
    [VALUE_ARRAY] = {"array", 0}, [VALUE_U64] = {"u64", 8},   [VALUE_I64] = {"i64", 8},
    [VALUE_F64] = {"f64", 8},
};

const char *gguf_value_name(uint32_t type)
{
    return value_types[type].name;
}

size_t gguf_value_bytes(uint32_t type)
{
    return value_types[type].bytes;
}

static int compare_str(struct tok_str a, struct tok_str b)
{
    const size_t n = a.n < b.n ? a.n : b.n;
    const int c = n ? memcmp(a.s, b.s, n) : 0;
    return c ? c : (a.n > b.n) - (a.n < b.n);
}

int gguf_compare_kv(const void *a, const void *b)
{
    return compare_str(((const struct gguf_kv *)a)->key, ((const struct gguf_kv *)b)->key);
}

int gguf_compare_names(const void *a, const void *b)
{
    return strcmp((*(struct gguf_tensor *const *)a)->name, (*(struct gguf_tensor *const *)b)->name);
}

void *gguf_table(size_t n, size_t size)
{
    void *p = n > SIZE_MAX / size ? NULL : sys.malloc(n ? n * size : 1);
    if (p) {
        memset(p, 0, n * size);
    }
    return p;
}

uint64_t gguf_file_bytes(const struct gguf *g)
{
    return g->n_bytes;
}

const unsigned char *gguf_file_data(const struct gguf *g)
{
    return g->data;
}

const struct stat *gguf_stat(const struct gguf *g)
{
    return &g->st;
}

const struct gguf_tensor *gguf_tensor(const struct gguf *g, const char *name)
{
    const struct gguf_tensor key = {.name = name}, *k = &key;
    struct gguf_tensor **found =
        g->n_tensors ? bsearch(&k, g->by_name, g->n_tensors, sizeof *g->by_name, gguf_compare_names)
                     : NULL;
    return found ? *found : NULL;
}

size_t gguf_n_tensors(const struct gguf *g)
{
    return g->n_tensors;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i)
{
    return i < g->n_tensors ? &g->tensors[i] : NULL;
}

void gguf_drop(const struct gguf *g, const struct gguf_tensor *t)
{
    /* Whole pages only: the ends are shared with neighbours. */
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), base = (uintptr_t)g->data;
    const uintptr_t from = ((uintptr_t)t->data + page - 1) / page * page,
                    to = ((uintptr_t)t->data + t->n_bytes) / page * page;
    if (from < to && from >= base) {
        (void)madvise((void *)from, to - from, MADV_DONTNEED); /* advice */
    }
}

const struct gguf_kv *gguf_find(const struct gguf *g, const char *key)
{
    const struct gguf_kv k = {.key = {key, strlen(key)}};
    return g->n_kv ? bsearch(&k, g->kv, g->n_kv, sizeof *g->kv, gguf_compare_kv) : NULL;
}

static int missing(const char *key, struct err *e)
{
    return err_set(e, ERR_NOTFOUND, "key \"%s\" is missing", key);
}

static int wrong_type(const struct gguf_kv *kv, const char *want, struct err *e)
{
    return err_set(e, ERR_CORRUPT, "key \"%.*s\" has type %s%s, it must be %s", gguf_shown(kv->key),
                   kv->key.s, gguf_value_name(kv->type),
                   kv->type != VALUE_ARRAY         ? ""
                   : kv->item_type == VALUE_STRING ? " of strings"
                                                   : " of numbers",
                   want);
}

/* The number of an integer type; false when it is none. *ret_huge: a u64 that no int64 holds. */
static bool integer(uint32_t type, const unsigned char *p, int64_t *ret, bool *ret_huge)
{
    *ret_huge = false;
    switch (type) {
    case VALUE_U8:
    case VALUE_U16:
    case VALUE_U32:
        *ret = (int64_t)gguf_load(p, gguf_value_bytes(type));
        return true;
    case VALUE_U64:
    case VALUE_I64: {
        const uint64_t v = gguf_load(p, 8);
        *ret_huge = type == VALUE_U64 && v > INT64_MAX;
        memcpy(ret, &v, sizeof v);
        return true;
    }
    case VALUE_I8:
        *ret = (int8_t)gguf_load(p, 1);
        return true;
    case VALUE_I16:
        *ret = (int16_t)gguf_load(p, 2);
        return true;
    case VALUE_I32:
        *ret = (int32_t)gguf_load(p, 4);
        return true;
    default:
        return false;
    }
}

int gguf_int(const struct gguf *g, const char *key, int64_t min, int64_t max, int64_t *ret,
             struct err *e)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    int64_t v;
    bool is_huge;
    if (!kv) {
        return missing(key, e);
    }
    if (!integer(kv->type, kv->value, &v, &is_huge)) {
        return wrong_type(kv, "an integer", e);
    }
    if (is_huge) {
        return err_set(e, ERR_CORRUPT, "key \"%s\" is %llu, it must be %lld to %lld", key,
                       (unsigned long long)v, (long long)min, (long long)max);
    }
    if (v < min || v > max) {
        return err_set(e, ERR_CORRUPT, "key \"%s\" is %lld, it must be %lld to %lld", key,
                       (long long)v, (long long)min, (long long)max);
    }
    *ret = v;
    return 0;
}

int gguf_float(const struct gguf *g, const char *key, double min, double max, double *ret,
               struct err *e)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    double v;
    if (!kv) {
        return missing(key, e);
    }
    if (kv->type == VALUE_F32) {
        const uint32_t bits = (uint32_t)gguf_load(kv->value, 4);
        float f;
        memcpy(&f, &bits, sizeof f);
        v = (double)f;
    } else if (kv->type == VALUE_F64) {
        const uint64_t bits = gguf_load(kv->value, 8);
        memcpy(&v, &bits, sizeof v);
    } else {
        return wrong_type(kv, "f32 or f64", e);
    }
    if (!(v >= min && v <= max)) { /* a NaN lands here too */
        return err_set(e, ERR_CORRUPT, "key \"%s\" is %g, it must be %g to %g", key, v, min, max);
    }
    *ret = v;
    return 0;
}

int gguf_bool(const struct gguf *g, const char *key, bool *ret, struct err *e)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv) {
        return missing(key, e);
    }
    if (kv->type != VALUE_BOOL) {
        return wrong_type(kv, "bool", e);
    }
    if (kv->value[0] > 1) {
        return err_set(e, ERR_CORRUPT, "key \"%s\" is the bool %u, it must be 0 or 1", key,
                       kv->value[0]);
    }
    *ret = kv->value[0] == 1;
    return 0;
}

int gguf_str(const struct gguf *g, const char *key, struct tok_str *ret, struct err *e)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv) {
        return missing(key, e);
    }
    if (kv->type != VALUE_STRING) {
        return wrong_type(kv, "a string", e);
    }
    *ret = (struct tok_str){(const char *)kv->value, (size_t)kv->n};
    return 0;
}

int gguf_array_length(const struct gguf *g, const char *key, size_t *ret_n, struct err *e)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv) {
        return missing(key, e);
    }
    if (kv->type != VALUE_ARRAY) {
        return wrong_type(kv, "an array", e);
    }
    *ret_n = (size_t)kv->n;
    return 0;
}

int gguf_str_array(const struct gguf *g, const char *key, struct tok_str **ret, size_t *ret_n,
                   struct err *e)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv) {
        return missing(key, e);
    }
    if (kv->type != VALUE_ARRAY || kv->item_type != VALUE_STRING) {
        return wrong_type(kv, "an array of strings", e);
    }
    struct tok_str *v = gguf_table((size_t)kv->n, sizeof *v);
    if (!v) {
        return err_set(e, ERR_NOMEM, "out of memory for %llu strings of \"%s\"",
                       (unsigned long long)kv->n, key);
    }
    const unsigned char *p = kv->value;
    for (uint64_t i = 0; i < kv->n; i++) {
        const uint64_t n = gguf_load(p, 8);
        if (n >
            (uint64_t)(g->data + g->n_bytes - (p + 8))) { /* checked at open, but files change */
            free(v);
            return err_set(e, ERR_CORRUPT, "key \"%s\" has changed while it was read", key);
        }
        v[i] = (struct tok_str){(const char *)p + 8, (size_t)n};
        p += 8 + n;
    }
    *ret = v;
    *ret_n = (size_t)kv->n;
    return 0;
}

int gguf_int_array(const struct gguf *g, const char *key, int32_t **ret, size_t *ret_n,
                   struct err *e)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    int64_t n;
    bool is_huge;
    if (!kv) {
        return missing(key, e);
    }
    if (kv->type != VALUE_ARRAY || kv->item_type == VALUE_STRING || kv->item_type == VALUE_F32 ||
        kv->item_type == VALUE_F64 || kv->item_type == VALUE_BOOL) {
        return wrong_type(kv, "an array of integers", e);
    }
    int32_t *v = gguf_table((size_t)kv->n, sizeof *v);
    if (!v) {
        return err_set(e, ERR_NOMEM, "out of memory for %llu integers of \"%s\"",
                       (unsigned long long)kv->n, key);
    }
    for (uint64_t i = 0; i < kv->n; i++) {
        if (!integer(kv->item_type, kv->value + i * gguf_value_bytes(kv->item_type), &n,
                     &is_huge) ||
            is_huge || n < INT32_MIN || n > INT32_MAX) {
            free(v);
            return err_set(e, ERR_CORRUPT, "item %llu of \"%s\" doesn't fit 32 bits",
                           (unsigned long long)i, key);
        }
        v[i] = (int32_t)n;
    }
    *ret = v;
    *ret_n = (size_t)kv->n;
    return 0;
}

int gguf_float_array(const struct gguf *g, const char *key, float **ret, size_t *ret_n,
                     struct err *e)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv) {
        return missing(key, e);
    }
    if (kv->type != VALUE_ARRAY || kv->item_type != VALUE_F32) {
        return wrong_type(kv, "an array of 32-bit floats", e);
    }
    float *v = gguf_table((size_t)kv->n, sizeof *v);
    if (!v) {
        return err_set(e, ERR_NOMEM, "out of memory for %llu floats of \"%s\"",
                       (unsigned long long)kv->n, key);
    }
    memcpy(v, kv->value, (size_t)kv->n * sizeof *v);
    *ret = v;
    *ret_n = (size_t)kv->n;
    return 0;
}
