/* GGUF files for tests (gguf_writer.h). Layout: engine/gguf.c. Written little-endian by copying, so
 * on little-endian machines only. */
#include "tests/engine/load/gguf_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/quant.h"

#define HEADER_BYTES_MAX ((size_t)64 << 20)

static void must(bool is_fine, const char *what)
{
    if (!is_fine) {
        fprintf(stderr, "gguf_writer: %s\n", what);
        abort();
    }
}

static void add_u32(struct buf *b, uint32_t v)
{
    buf_add(b, &v, sizeof v);
}

static void add_u64(struct buf *b, uint64_t v)
{
    buf_add(b, &v, sizeof v);
}

static void add_string(struct buf *b, const char *s, size_t n)
{
    add_u64(b, n);
    buf_add(b, s, n);
}

void gguf_writer_init(struct gguf_writer *w)
{
    *w = (struct gguf_writer){.version = 3, .alignment = 32, .seed = 0x853c49e6748fea9bu};
    buf_init(&w->kv, HEADER_BYTES_MAX);
}

void gguf_writer_done(struct gguf_writer *w)
{
    buf_done(&w->kv);
    free(w->tensors);
}

/* ---- metadata ---- */

void gguf_put_raw(struct gguf_writer *w, const char *key, uint32_t type, const void *value,
                  size_t n)
{
    add_string(&w->kv, key, strlen(key));
    add_u32(&w->kv, type);
    buf_add(&w->kv, value, n);
    must(!buf_error(&w->kv), "out of memory");
    w->n_kv++;
}

void gguf_put_int(struct gguf_writer *w, const char *key, int type, int64_t v)
{
    static const size_t bytes[] = {
        [GGUF_U8] = 1,  [GGUF_I8] = 1,   [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4,
        [GGUF_I32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8};
    gguf_put_raw(w, key, (uint32_t)type, &v, bytes[type]);
}

void gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t v)
{
    gguf_put_int(w, key, GGUF_U32, v);
}

void gguf_put_f32(struct gguf_writer *w, const char *key, float v)
{
    gguf_put_raw(w, key, GGUF_F32, &v, sizeof v);
}

void gguf_put_strn(struct gguf_writer *w, const char *key, const char *s, size_t n)
{
    struct buf b;
    buf_init(&b, HEADER_BYTES_MAX);
    add_string(&b, s, n);
    gguf_put_raw(w, key, GGUF_STRING, b.data, b.len);
    buf_done(&b);
}

void gguf_put_str(struct gguf_writer *w, const char *key, const char *s)
{
    gguf_put_strn(w, key, s, strlen(s));
}

void gguf_put_strs(struct gguf_writer *w, const char *key, const struct tok_str *v, size_t n)
{
    struct buf b;
    buf_init(&b, HEADER_BYTES_MAX);
    add_u32(&b, GGUF_STRING);
    add_u64(&b, n);
    for (size_t i = 0; i < n; i++) {
        add_string(&b, v[i].s, v[i].n);
    }
    gguf_put_raw(w, key, GGUF_ARRAY, b.data, b.len);
    buf_done(&b);
}

void gguf_put_i32s(struct gguf_writer *w, const char *key, const int32_t *v, size_t n)
{
    struct buf b;
    buf_init(&b, HEADER_BYTES_MAX);
    add_u32(&b, GGUF_I32);
    add_u64(&b, n);
    buf_add(&b, v, n * sizeof *v);
    gguf_put_raw(w, key, GGUF_ARRAY, b.data, b.len);
    buf_done(&b);
}

static uint64_t read_u64(const char *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Bytes of a value that this writer wrote, at p. */
static size_t value_bytes(const char *p, uint32_t type)
{
    static const size_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type == GGUF_STRING) {
        return 8 + (size_t)read_u64(p);
    }
    if (type != GGUF_ARRAY) {
        return bytes[type];
    }
    uint32_t item;
    memcpy(&item, p, sizeof item);
    const uint64_t n = read_u64(p + 4);
    size_t all = 12;
    for (uint64_t i = 0; i < n; i++) {
        all += value_bytes(p + all, item);
    }
    return all;
}

bool gguf_remove(struct gguf_writer *w, const char *key)
{
    for (size_t at = 0; at < w->kv.len;) {
        const size_t n_key = (size_t)read_u64(w->kv.data + at);
        uint32_t type;
        memcpy(&type, w->kv.data + at + 8 + n_key, sizeof type);
        const size_t n = 8 + n_key + 4 + value_bytes(w->kv.data + at + 8 + n_key + 4, type);
        if (n_key == strlen(key) && !memcmp(w->kv.data + at + 8, key, n_key)) {
            memmove(w->kv.data + at, w->kv.data + at + n, w->kv.len - at - n);
            w->kv.len -= n;
            w->n_kv--;
            return true;
        }
        at += n;
    }
    return false;
}

/* ---- tensors ---- */

static uint64_t padded(uint64_t n, uint64_t alignment)
{
    return (n + alignment - 1) / alignment * alignment;
}

struct gguf_writer_tensor *gguf_put_tensor(struct gguf_writer *w, const char *name, uint32_t type,
                                           uint32_t n_dims, const uint64_t *dims)
{
    const struct quant_type *q = quant_type(type);
    if (w->n == w->cap) {
        w->cap = w->cap ? 2 * w->cap : 64;
        w->tensors = realloc(w->tensors, w->cap * sizeof *w->tensors);
        must(w->tensors != NULL, "out of memory");
    }
    struct gguf_writer_tensor *t = &w->tensors[w->n], *before = w->n ? t - 1 : NULL;
    *t = (struct gguf_writer_tensor){
        .type = type, .n_dims = n_dims, .dims = {1, 1, 1, 1}, .scale = 0.02f};
    snprintf(t->name, sizeof t->name, "%s", name);
    uint64_t values = 1;
    for (uint32_t d = 0; d < n_dims && d < 4; d++) {
        t->dims[d] = dims[d];
        values *= dims[d];
    }
    t->n_bytes = q ? values / (uint64_t)q->block_values * (uint64_t)q->block_bytes : 0;
    t->offset = before ? padded(before->offset + before->n_bytes, w->alignment) : 0;
    w->n++;
    w->n_tensors++;
    return t;
}

struct gguf_writer_tensor *gguf_writer_find(struct gguf_writer *w, const char *name)
{
    for (size_t i = 0; i < w->n; i++) {
        if (!strcmp(w->tensors[i].name, name)) {
            return &w->tensors[i];
        }
    }
    return NULL;
}

void gguf_remove_tensor(struct gguf_writer *w, const char *name)
{
    struct gguf_writer_tensor *t = gguf_writer_find(w, name);
    must(t != NULL, "no such tensor to remove");
    memmove(t, t + 1, (size_t)(w->tensors + w->n - (t + 1)) * sizeof *t);
    w->n--;
    w->n_tensors--;
    for (size_t i = 0; i < w->n; i++) {
        const struct gguf_writer_tensor *before = i ? &w->tensors[i - 1] : NULL;
        w->tensors[i].offset = before ? padded(before->offset + before->n_bytes, w->alignment) : 0;
    }
}

/* ---- weights ---- */

static uint64_t next(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    uint64_t x = *state;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static void put_f16(unsigned char *p, float v)
{
    const uint16_t h = quant_f32_to_f16(v);
    memcpy(p, &h, sizeof h);
}

/* About normal: the sum of four uniform numbers, unit variance. */
static float bell(uint64_t *state)
{
    const uint64_t x = next(state);
    float sum = 0.0f;
    for (int i = 0; i < 4; i++) {
        sum += (float)(x >> (16 * i) & 0xffffu) / 65536.0f - 0.5f;
    }
    return sum * 1.7320508f;
}

static void random_values(uint32_t type, uint64_t *state, float scale, size_t n, unsigned char *ret)
{
    for (size_t i = 0; i < n; i++) {
        const float v = bell(state) * scale;
        uint32_t bits;
        memcpy(&bits, &v, sizeof bits);
        if (type == QUANT_F32) {
            memcpy(ret + 4 * i, &bits, 4);
        } else if (type == QUANT_F16) {
            put_f16(ret + 2 * i, v);
        } else {
            const uint16_t high = (uint16_t)(bits >> 16);
            memcpy(ret + 2 * i, &high, 2);
        }
    }
}

/*
 * Where a type keeps its scales, and what makes random bytes have unit deviation and mean 0. d at
 * `d`; a second F16 at `m` (−1: none) is d × m_ratio.
 */
static const struct scales {
    uint32_t type;
    int d, m;
    float deviation, m_ratio;
} scales[] = {
    {QUANT_Q8_0, 0, -1, 73.9f, 0.0f},   {QUANT_Q4_0, 0, -1, 4.6f, 0.0f},
    {QUANT_Q4_1, 0, 2, 4.6f, -7.5f},    {QUANT_Q5_0, 0, -1, 9.2f, 0.0f},
    {QUANT_Q5_1, 0, 2, 9.2f, -15.5f},   {QUANT_Q2_K, 80, 82, 17.0f, 1.5f},
    {QUANT_Q3_K, 108, -1, 28.0f, 0.0f}, {QUANT_Q4_K, 0, 2, 260.0f, 7.5f},
    {QUANT_Q5_K, 0, 2, 520.0f, 15.5f},  {QUANT_Q6_K, 208, -1, 1360.0f, 0.0f},
    {QUANT_IQ4_NL, 0, -1, 66.0f, 0.0f},
};

void gguf_random_blocks(uint32_t type, uint64_t *state, float scale, size_t n_blocks,
                        unsigned char *ret)
{
    const struct quant_type *q = quant_type(type);
    must(q != NULL, "random weights of an unknown type");
    if (q->block_values == 1) {
        random_values(type, state, scale, n_blocks, ret);
        return;
    }
    const struct scales *s = scales;
    while (s->type != type) {
        s++;
    }
    for (size_t i = 0; i < n_blocks; i++, ret += q->block_bytes) {
        for (int at = 0; at < q->block_bytes; at += 8) {
            const uint64_t x = next(state);
            memcpy(ret + at, &x, (size_t)(q->block_bytes - at < 8 ? q->block_bytes - at : 8));
        }
        const float d = scale / s->deviation * (0.75f + (float)(next(state) >> 40) * 0x1p-25f);
        put_f16(ret + s->d, d);
        if (s->m >= 0) {
            put_f16(ret + s->m, d * s->m_ratio);
        }
    }
}

/* ---- the file ---- */

void gguf_writer_header(const struct gguf_writer *w, struct buf *ret)
{
    buf_str(ret, "GGUF");
    add_u32(ret, w->version);
    add_u64(ret, w->n_tensors);
    add_u64(ret, w->n_kv);
    buf_add(ret, w->kv.data ? w->kv.data : "", w->kv.len);
    for (size_t i = 0; i < w->n; i++) {
        const struct gguf_writer_tensor *t = &w->tensors[i];
        add_string(ret, t->name, strlen(t->name));
        add_u32(ret, t->n_dims);
        for (uint32_t d = 0; d < t->n_dims && d < 4; d++) {
            add_u64(ret, t->dims[d]);
        }
        add_u32(ret, t->type);
        add_u64(ret, t->offset);
    }
    while (ret->len % w->alignment) {
        buf_char(ret, '\0');
    }
    must(!buf_error(ret), "the header is too large");
}

static bool write_all(int fd, const void *data, size_t n)
{
    const unsigned char *p = data;
    while (n) {
        const ssize_t k = write(fd, p, n);
        if (k < 0 && errno == EINTR) {
            continue;
        }
        if (k <= 0) {
            return false;
        }
        p += k;
        n -= (size_t)k;
    }
    return true;
}

static bool write_tensor(const struct gguf_writer_tensor *t, uint64_t *state, int fd)
{
    enum { CHUNK_BLOCKS = 4096 };
    const struct quant_type *q = quant_type(t->type);
    if (t->values) {
        return write_all(fd, t->values, (size_t)t->n_bytes);
    }
    if (!q || !t->n_bytes) {
        return true;
    }
    unsigned char *chunk = malloc((size_t)CHUNK_BLOCKS * (size_t)q->block_bytes);
    must(chunk != NULL, "out of memory");
    bool is_fine = true;
    for (uint64_t left = t->n_bytes / (uint64_t)q->block_bytes; left && is_fine;) {
        const size_t n = left < CHUNK_BLOCKS ? (size_t)left : CHUNK_BLOCKS;
        gguf_random_blocks(t->type, state, t->scale, n, chunk);
        is_fine = write_all(fd, chunk, n * (size_t)q->block_bytes);
        left -= n;
    }
    free(chunk);
    return is_fine;
}

bool gguf_writer_save_fd(const struct gguf_writer *w, int fd)
{
    struct buf header;
    uint64_t state = w->seed, at = 0;
    buf_init(&header, HEADER_BYTES_MAX);
    gguf_writer_header(w, &header);
    bool is_fine = write_all(fd, header.data, header.len);
    buf_done(&header);
    for (size_t i = 0; i < w->n && is_fine; i++) {
        static const char zeros[65536];
        const uint64_t pad = padded(at, w->alignment) - at;
        is_fine = write_all(fd, zeros, (size_t)pad) && write_tensor(&w->tensors[i], &state, fd);
        at += pad + w->tensors[i].n_bytes;
    }
    return is_fine;
}

bool gguf_writer_save(const struct gguf_writer *w, const char *path)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) {
        return false;
    }
    const bool is_fine = gguf_writer_save_fd(w, fd);
    return close(fd) == 0 && is_fine;
}
