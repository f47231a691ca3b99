/*
 * GGUF files: one pass over the header that believes nothing, then look-ups in sorted tables.
 *
 *     "GGUF" | version u32 | n_tensors u64 | n_kv u64
 *     n_kv ×       key string | type u32 | value
 *     n_tensors ×  name string | n_dims u32 | dims u64 × n_dims | type u32 | offset u64
 *     padding to general.alignment (32)
 *     data         each tensor at its offset, a multiple of the alignment
 *
 *     string: length u64, bytes             array: item type u32, count u64, items
 *
 * What the pass promises for everything after it: every key, string and array lies inside the file;
 * types are known; keys and tensor names are unique; dimensions are 1 to 4 numbers ≥ 1 whose
 * product, and size in bytes, fit; tensors lie inside the data and don't overlap. A count is
 * believed only as far as the remaining bytes could hold that many of the smallest thing it counts,
 * so that a small file can never cause a large allocation.
 *
 * Numbers are copied out byte by byte (the mapping is unaligned, the format little-endian). Format:
 * ggml's docs/gguf.md.
 */
#include "engine/gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/sys.h"
#include "engine/gguf_impl.h"
#include "engine/quant.h"

#define KV_MAX 65536        /* keys; real files have dozens */
#define TENSORS_MAX 65536   /* real files have hundreds */
#define KEY_BYTES_MAX 65535 /* the format's own limits */
#define NAME_BYTES_MAX 64
#define DIMS_MAX 4
#define ALIGNMENT_MAX 65536

#define KV_BYTES_MIN (8 + 4 + 1)             /* empty key, type, one byte */
#define TENSOR_BYTES_MIN (8 + 4 + 8 + 4 + 8) /* empty name, one dimension */

/* Where the pass is. Reading past the end fails and moves nothing. */
struct cursor {
    const unsigned char *data;
    uint64_t n, at;
};

static bool take_bytes(struct cursor *c, uint64_t n, const unsigned char **ret)
{
    if (n > c->n - c->at) {
        return false;
    }
    *ret = c->data + c->at;
    c->at += n;
    return true;
}

static bool take_u32(struct cursor *c, uint32_t *ret)
{
    const unsigned char *p;
    if (!take_bytes(c, 4, &p)) {
        return false;
    }
    *ret = (uint32_t)gguf_load(p, 4);
    return true;
}

static bool take_u64(struct cursor *c, uint64_t *ret)
{
    const unsigned char *p;
    if (!take_bytes(c, 8, &p)) {
        return false;
    }
    *ret = gguf_load(p, 8);
    return true;
}

static bool take_string(struct cursor *c, struct tok_str *ret)
{
    const struct cursor before = *c;
    const unsigned char *p;
    uint64_t n;
    if (!take_u64(c, &n) || !take_bytes(c, n, &p)) {
        *c = before;
        return false;
    }
    *ret = (struct tok_str){(const char *)p, (size_t)n};
    return true;
}

static int compare_tensor_data(const void *a, const void *b)
{
    const unsigned char *x = (*(struct gguf_tensor *const *)a)->data,
                        *y = (*(struct gguf_tensor *const *)b)->data;
    return (x > y) - (x < y);
}

/* ---- the header's pass ---- */

static int read_head(struct cursor *c, uint64_t *ret_n_tensors, uint64_t *ret_n_kv, struct err *e)
{
    const unsigned char *magic;
    uint32_t version = 0;
    if (!take_bytes(c, 4, &magic) || memcmp(magic, "GGUF", 4) != 0) {
        return err_set(e, ERR_CORRUPT, "not a GGUF file (its first four bytes are not \"GGUF\")");
    }
    if (!take_u32(c, &version)) {
        return err_set(e, ERR_CORRUPT, "cut off at byte %llu, in the version",
                       (unsigned long long)c->at);
    }
    if (version && !(version & 0xffffu)) {
        return err_set(
            e, ERR_UNSUPPORTED,
            "a big-endian GGUF file (version field 0x%08x); only little-endian ones are read",
            version);
    }
    if (version != 2 && version != 3) {
        return err_set(e, ERR_UNSUPPORTED, "GGUF version %u; versions 2 and 3 are read", version);
    }
    if (!take_u64(c, ret_n_tensors) || !take_u64(c, ret_n_kv)) {
        return err_set(e, ERR_CORRUPT, "cut off at byte %llu, in the counts",
                       (unsigned long long)c->at);
    }
    const struct {
        const char *what;
        uint64_t n, min_bytes, max;
    } counts[] = {{"tensors", *ret_n_tensors, TENSOR_BYTES_MIN, TENSORS_MAX},
                  {"metadata keys", *ret_n_kv, KV_BYTES_MIN, KV_MAX}};
    for (int i = 0; i < 2; i++) {
        const uint64_t room = (c->n - c->at) / counts[i].min_bytes;
        if (counts[i].n > room || counts[i].n > counts[i].max) {
            return err_set(e, ERR_CORRUPT,
                           "a count of %llu %s, more than the file's %llu bytes could hold or the "
                           "limit of %llu",
                           (unsigned long long)counts[i].n, counts[i].what,
                           (unsigned long long)c->n, (unsigned long long)counts[i].max);
        }
    }
    return 0;
}

/* Steps over an array's items, checking that they are inside the file. */
static int read_array(struct cursor *c, struct gguf_kv *ret, struct err *e)
{
    const struct tok_str key = ret->key;
    const unsigned char *p;
    if (!take_u32(c, &ret->item_type) || !take_u64(c, &ret->n)) {
        return err_set(e, ERR_CORRUPT, "cut off at byte %llu, in the array \"%.*s\"",
                       (unsigned long long)c->at, gguf_shown(key), key.s);
    }
    if (ret->item_type >= VALUE_TYPES || ret->item_type == VALUE_ARRAY) {
        return err_set(e, ERR_CORRUPT, "key \"%.*s\" is an array of %s (type %u)", gguf_shown(key),
                       key.s, ret->item_type == VALUE_ARRAY ? "arrays" : "an unknown type",
                       ret->item_type);
    }
    const uint64_t item_bytes =
        ret->item_type == VALUE_STRING ? 8 : gguf_value_bytes(ret->item_type);
    if (ret->n > (c->n - c->at) / item_bytes) {
        return err_set(e, ERR_CORRUPT,
                       "key \"%.*s\" is an array of %llu %s items, more than the file's remaining "
                       "%llu bytes hold",
                       gguf_shown(key), key.s, (unsigned long long)ret->n,
                       gguf_value_name(ret->item_type), (unsigned long long)(c->n - c->at));
    }
    ret->value = c->data + c->at;
    if (ret->item_type != VALUE_STRING) {
        return take_bytes(c, ret->n * item_bytes, &p)
                   ? 0
                   : err_set(e, ERR_CORRUPT, "array \"%.*s\" is cut off", gguf_shown(key), key.s);
    }
    for (uint64_t i = 0; i < ret->n; i++) {
        struct tok_str s;
        if (!take_string(c, &s)) {
            return err_set(
                e, ERR_CORRUPT,
                "item %llu of \"%.*s\", at byte %llu, is longer than the rest of the file",
                (unsigned long long)i, gguf_shown(key), key.s, (unsigned long long)c->at);
        }
    }
    return 0;
}

static int read_kv(struct cursor *c, uint64_t i, struct gguf_kv *ret, struct err *e)
{
    struct tok_str s;
    if (!take_string(c, &ret->key) || !take_u32(c, &ret->type)) {
        return err_set(e, ERR_CORRUPT, "cut off or corrupt at byte %llu, in metadata key %llu",
                       (unsigned long long)c->at, (unsigned long long)i);
    }
    if (ret->key.n > KEY_BYTES_MAX) {
        return err_set(e, ERR_CORRUPT, "metadata key %llu has %zu bytes, the limit is %d",
                       (unsigned long long)i, ret->key.n, KEY_BYTES_MAX);
    }
    if (ret->type >= VALUE_TYPES) {
        return err_set(e, ERR_CORRUPT, "key \"%.*s\" has the unknown value type %u",
                       gguf_shown(ret->key), ret->key.s, ret->type);
    }
    if (ret->type == VALUE_ARRAY) {
        return read_array(c, ret, e);
    }
    if (ret->type == VALUE_STRING) {
        if (!take_string(c, &s)) {
            return err_set(e, ERR_CORRUPT,
                           "the string \"%.*s\", at byte %llu, is longer than the rest of the file",
                           gguf_shown(ret->key), ret->key.s, (unsigned long long)c->at);
        }
        ret->value = (const unsigned char *)s.s;
        ret->n = s.n;
        return 0;
    }
    ret->n = 1;
    if (!take_bytes(c, gguf_value_bytes(ret->type), &ret->value)) {
        return err_set(e, ERR_CORRUPT, "cut off at byte %llu, in key \"%.*s\"",
                       (unsigned long long)c->at, gguf_shown(ret->key), ret->key.s);
    }
    return 0;
}

static int read_kvs(struct gguf *g, struct cursor *c, uint64_t n, struct err *e)
{
    g->kv = gguf_table((size_t)n, sizeof *g->kv);
    if (!g->kv) {
        return err_set(e, ERR_NOMEM, "out of memory for %llu metadata keys", (unsigned long long)n);
    }
    for (uint64_t i = 0; i < n; i++) {
        const int rc = read_kv(c, i, &g->kv[i], e);
        if (rc) {
            return rc;
        }
    }
    g->n_kv = (size_t)n;
    qsort(g->kv, g->n_kv, sizeof *g->kv, gguf_compare_kv);
    for (size_t i = 1; i < g->n_kv; i++) {
        if (!gguf_compare_kv(&g->kv[i - 1], &g->kv[i])) {
            return err_set(e, ERR_CORRUPT, "key \"%.*s\" occurs twice", gguf_shown(g->kv[i].key),
                           g->kv[i].key.s);
        }
    }
    return 0;
}

/* Bytes of the tensor's data, with every product checked. */
static int tensor_size(struct gguf_tensor *t, struct err *e)
{
    const struct quant_type *type = quant_type(t->type);
    uint64_t values = 1;
    if (!type) {
        return err_set(e, ERR_UNSUPPORTED, "tensor %s has type %u (%s); these are read: %s",
                       t->name, t->type, quant_ggml_name(t->type), quant_names());
    }
    for (int d = 0; d < t->n_dims; d++) {
        /* 2^62 values at most, so that nothing below can overflow either (a block's bytes are at
         * most 4 a value). */
        if (t->dims[d] == 0 || values > (UINT64_MAX >> 2) / t->dims[d]) {
            return err_set(
                e, ERR_CORRUPT,
                "tensor %s has dimension %d of %llu, which is 0 or makes more than 2^62 values",
                t->name, d, (unsigned long long)t->dims[d]);
        }
        values *= t->dims[d];
    }
    if (t->dims[0] % (uint64_t)type->block_values) {
        return err_set(e, ERR_CORRUPT,
                       "tensor %s has rows of %llu values, not a multiple of %s's block of %d",
                       t->name, (unsigned long long)t->dims[0], type->name, type->block_values);
    }
    const uint64_t blocks = values / (uint64_t)type->block_values;
    if (blocks > UINT64_MAX / (uint64_t)type->block_bytes) {
        return err_set(e, ERR_CORRUPT, "tensor %s has %llu values, more than 64 bits of bytes",
                       t->name, (unsigned long long)values);
    }
    t->n_bytes = blocks * (uint64_t)type->block_bytes;
    return 0;
}

/* Reads one tensor's entry; its name goes to `name` (NAME_BYTES_MAX + 1 bytes), its offset to
 * *ret_offset. */
static int read_tensor(struct cursor *c, uint64_t i, char *name, struct gguf_tensor *t,
                       uint64_t *ret_offset, struct err *e)
{
    struct tok_str s;
    uint32_t n_dims;
    if (!take_string(c, &s) || !take_u32(c, &n_dims)) {
        return err_set(e, ERR_CORRUPT, "cut off or corrupt at byte %llu, in tensor %llu",
                       (unsigned long long)c->at, (unsigned long long)i);
    }
    if (s.n < 1 || s.n > NAME_BYTES_MAX || memchr(s.s, '\0', s.n)) {
        return err_set(
            e, ERR_CORRUPT,
            "the name of tensor %llu has %zu bytes or holds a NUL; 1 to %d bytes are allowed",
            (unsigned long long)i, s.n, NAME_BYTES_MAX);
    }
    memcpy(name, s.s, s.n);
    name[s.n] = '\0';
    t->name = name;
    if (n_dims < 1 || n_dims > DIMS_MAX) {
        return err_set(e, ERR_CORRUPT, "tensor %s has %u dimensions; 1 to %d are allowed", name,
                       n_dims, DIMS_MAX);
    }
    t->n_dims = (int)n_dims;
    for (int d = 0; d < DIMS_MAX; d++) {
        t->dims[d] = 1;
        if (d < t->n_dims && !take_u64(c, &t->dims[d])) {
            return err_set(e, ERR_CORRUPT, "cut off at byte %llu, in the dimensions of tensor %s",
                           (unsigned long long)c->at, name);
        }
    }
    if (!take_u32(c, &t->type) || !take_u64(c, ret_offset)) {
        return err_set(e, ERR_CORRUPT, "cut off at byte %llu, in tensor %s",
                       (unsigned long long)c->at, name);
    }
    return tensor_size(t, e);
}

static int check_alignment(const struct gguf *g, uint64_t *ret, struct err *e);

/* The tensors must lie inside the data, at aligned offsets, without sharing a byte. `offsets` are
 * relative to data_offset. */
static int place_tensors(struct gguf *g, const uint64_t *offsets, uint64_t alignment, struct err *e)
{
    const uint64_t avail = g->n_bytes - g->data_offset;
    for (size_t i = 0; i < g->n_tensors; i++) {
        struct gguf_tensor *t = &g->tensors[i];
        if (offsets[i] % alignment) {
            return err_set(e, ERR_CORRUPT,
                           "tensor %s lies at offset %llu, not a multiple of the alignment %llu",
                           t->name, (unsigned long long)offsets[i], (unsigned long long)alignment);
        }
        if (offsets[i] > avail || t->n_bytes > avail - offsets[i]) {
            return err_set(e, ERR_CORRUPT,
                           "tensor %s needs %llu bytes at offset %llu, but the file has %llu bytes "
                           "of data (cut off?)",
                           t->name, (unsigned long long)t->n_bytes, (unsigned long long)offsets[i],
                           (unsigned long long)avail);
        }
        t->data = g->data + g->data_offset + offsets[i];
    }
    qsort(g->by_name, g->n_tensors, sizeof *g->by_name,
          compare_tensor_data); /* for a moment: by place */
    for (size_t i = 1; i < g->n_tensors; i++) {
        const struct gguf_tensor *a = g->by_name[i - 1], *b = g->by_name[i];
        if (a->n_bytes > (uint64_t)(b->data - a->data)) {
            return err_set(e, ERR_CORRUPT, "tensors %s and %s overlap in the file", a->name,
                           b->name);
        }
    }
    return 0;
}

static int read_tensors(struct gguf *g, struct cursor *c, uint64_t n, struct err *e)
{
    uint64_t *offsets = gguf_table((size_t)n, sizeof *offsets), alignment = 0;
    int rc = 0;
    g->tensors = gguf_table((size_t)n, sizeof *g->tensors);
    g->by_name = gguf_table((size_t)n, sizeof *g->by_name);
    g->names = gguf_table((size_t)n, NAME_BYTES_MAX + 1);
    if (!offsets || !g->tensors || !g->by_name || !g->names) {
        rc = err_set(e, ERR_NOMEM, "out of memory for %llu tensors", (unsigned long long)n);
        goto done;
    }
    for (uint64_t i = 0; i < n; i++) {
        rc = read_tensor(c, i, g->names + i * (NAME_BYTES_MAX + 1), &g->tensors[i], &offsets[i], e);
        if (rc) {
            goto done;
        }
        g->by_name[i] = &g->tensors[i];
    }
    g->n_tensors = (size_t)n;
    rc = check_alignment(g, &alignment, e);
    if (rc) {
        goto done;
    }
    const uint64_t pad = (alignment - c->at % alignment) % alignment;
    g->data_offset = n == 0 && pad > c->n - c->at
                         ? c->n
                         : c->at + pad; /* a file without tensors may end unpadded */
    if (g->data_offset > g->n_bytes) {
        rc = err_set(e, ERR_CORRUPT, "cut off at byte %llu, before the tensors' data",
                     (unsigned long long)c->n);
        goto done;
    }
    rc = place_tensors(g, offsets, alignment, e);
    if (rc) {
        goto done;
    }
    qsort(g->by_name, g->n_tensors, sizeof *g->by_name, gguf_compare_names);
    for (size_t i = 1; i < g->n_tensors && !rc; i++) {
        if (!strcmp(g->by_name[i - 1]->name, g->by_name[i]->name)) {
            rc = err_set(e, ERR_CORRUPT, "tensor %s occurs twice", g->by_name[i]->name);
        }
    }
done:
    free(offsets);
    return rc;
}

static int check_split(const struct gguf *g, struct err *e)
{
    int64_t n = 1;
    const int rc = gguf_int(g, "split.count", 0, 65535, &n, e);
    if (rc && rc != ERR_NOTFOUND) {
        return rc;
    }
    return n <= 1 ? 0
                  : err_set(e, ERR_UNSUPPORTED,
                            "one of %lld parts of a split model; join them first (llama-gguf-split "
                            "--merge)",
                            (long long)n);
}

static int check_alignment(const struct gguf *g, uint64_t *ret, struct err *e)
{
    const struct gguf_kv *kv = gguf_find(g, "general.alignment");
    uint64_t v = 32;
    if (kv) {
        if (kv->type != VALUE_U32) {
            return err_set(e, ERR_CORRUPT, "key \"general.alignment\" has type %s, it must be u32",
                           gguf_value_name(kv->type));
        }
        v = gguf_load(kv->value, 4);
    }
    if (v < 8 || v > ALIGNMENT_MAX || (v & (v - 1))) {
        return err_set(e, ERR_CORRUPT,
                       "key \"general.alignment\" is %llu, it must be a power of two from 8 to %d",
                       (unsigned long long)v, ALIGNMENT_MAX);
    }
    *ret = v;
    return 0;
}

static int map_file(const char *path, struct gguf *g, struct err *e)
{
    /* O_NONBLOCK: a FIFO must not hold the start up. */
    const int fd = sys.openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    int rc = 0;
    if (fd < 0) {
        return errno == ENOENT ? err_set(e, ERR_NOTFOUND, "there is no such file")
                               : err_sys(e, errno, "opening");
    }
    if (sys.fstat(fd, &g->st)) {
        rc = err_sys(e, errno, "fstat");
    } else if (!S_ISREG(g->st.st_mode)) {
        rc = err_set(e, ERR_INVAL, "%s, not a regular file",
                     S_ISDIR(g->st.st_mode) ? "a directory" : "a special file");
    } else if (g->st.st_size <= 0) {
        rc = err_set(e, ERR_CORRUPT, "the file is empty");
    } else {
        g->n_bytes = (uint64_t)g->st.st_size;
        void *p = sys.mmap(NULL, (size_t)g->n_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) {
            rc = err_sys(e, errno, "mapping %llu bytes", (unsigned long long)g->n_bytes);
        } else {
            g->data = p;
        }
    }
    g->fd = fd;
    return rc;
}

bool gguf_is_unchanged(const struct gguf *g)
{
    struct stat now;
    return sys.fstat(g->fd, &now) == 0 && now.st_size == g->st.st_size &&
           now.st_mtim.tv_sec == g->st.st_mtim.tv_sec &&
           now.st_mtim.tv_nsec == g->st.st_mtim.tv_nsec;
}

int gguf_open(const char *path, struct gguf **ret, struct err *e)
{
    struct gguf *g = sys.malloc(sizeof *g);
    uint64_t n_tensors = 0, n_kv = 0;
    int rc;
    if (!g) {
        return err_set(e, ERR_NOMEM, "%s: out of memory", path);
    }
    memset(g, 0, sizeof *g);
    g->fd = -1;
    rc = map_file(path, g, e);
    if (rc) {
        goto done;
    }
    struct cursor c = {.data = g->data, .n = g->n_bytes};
    rc = read_head(&c, &n_tensors, &n_kv, e);
    if (!rc) {
        rc = read_kvs(g, &c, n_kv, e);
    }
    if (!rc) {
        rc = check_split(g, e); /* before the tensors: a part's own tensors may be fine */
    }
    if (!rc) {
        rc = read_tensors(g, &c, n_tensors, e);
    }
done:
    if (rc) {
        gguf_close(g);
        return e ? err_prefix(e, "%s", path) : rc;
    }
    *ret = g;
    return 0;
}

void gguf_close(struct gguf *g)
{
    if (!g) {
        return;
    }
    if (g->data) {
        munmap((void *)(uintptr_t)g->data, (size_t)g->n_bytes);
    }
    if (g->fd >= 0) {
        sys.close(g->fd);
    }
    free(g->kv);
    free(g->tensors);
    free(g->by_name);
    free(g->names);
    free(g);
}
