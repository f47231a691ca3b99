/*
 * KV blocks: one mapping cut into slots, a free list, and plain reference counts (the rules of
 * ownership: engine/kv.h).
 *
 *     mapping   [ slot 0 | slot 1 | … ]   block_bytes each, the first on a huge page's boundary
 *     blocks    [ {data → slot 0}, … ]    free ones linked by next_free, last released first
 *
 * The mapping is reserved whole and touched slot by slot, so a generous budget costs nothing until
 * it is used; what free slots have touched can be given back (kv_pool_trim). A block is zeroed when
 * it is taken, not when it is released: release happens in bursts (an evicted subtree), taking one
 * at a time. A first touch costs more than filling: the system clears the page, and a virtual
 * machine's host may have to find it. What will be read from the disk soon is therefore touched in
 * idle time, and isn't zeroed.
 *
 * A slot that nobody holds is poisoned for AddressSanitizer: reading a block after its last unref
 * is then a report, not a wrong answer.
 */
#include "engine/kv.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/sys.h"
#include "base/thread.h"

#if defined(__SANITIZE_ADDRESS__)
#define KV_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KV_ASAN 1
#endif
#endif
#ifdef KV_ASAN
#include <sanitizer/asan_interface.h>
#endif

#define F16_BYTES 2u
#define HUGE_PAGE_BYTES ((size_t)2 << 20)

struct kv_pool {
    struct kv_shape shape;
    struct kv_block *blocks; /* [n_blocks] */
    struct kv_block *free;
    size_t n_blocks, n_free, n_resident;
    size_t n_limit; /* of n_blocks, those that may be in use */
    unsigned char *map;
    size_t map_bytes;
};

static void slot_poison(const struct kv_pool *p, const struct kv_block *b)
{
#ifdef KV_ASAN
    ASAN_POISON_MEMORY_REGION(b->data, p->shape.block_bytes);
#else
    (void)p;
    (void)b;
#endif
}

static void slot_unpoison(const struct kv_pool *p, const struct kv_block *b)
{
#ifdef KV_ASAN
    ASAN_UNPOISON_MEMORY_REGION(b->data, p->shape.block_bytes);
#else
    (void)p;
    (void)b;
#endif
}

/* a × b into *ret; false when it doesn't fit. */
static bool mul_fits(size_t a, size_t b, size_t *ret)
{
    if (b && a > SIZE_MAX / b) {
        return false;
    }
    *ret = a * b;
    return true;
}

/* Of one position's K or V. */
static size_t q8_scale_bytes(int head_dim)
{
    return (size_t)kv_n_scales(head_dim) * F16_BYTES;
}

static const char *const type_names[KV_N_TYPES] = {[KV_F16] = "f16", [KV_Q8_0] = "q8_0"};

const char *kv_type_name(enum kv_type type)
{
    return (unsigned)type < KV_N_TYPES ? type_names[type] : "?";
}

bool kv_type_find(const char *name, enum kv_type *ret)
{
    for (int i = 0; i < KV_N_TYPES; i++) {
        if (strcasecmp(name, type_names[i]) == 0) {
            *ret = (enum kv_type)i;
            return true;
        }
    }
    return false;
}

int kv_shape_init(struct kv_shape *ret, enum kv_type type, int n_layers, int n_kv_heads,
                  int head_dim, struct err *e)
{
    if (n_layers < 1 || n_kv_heads < 1 || head_dim < 1) {
        return err_set(
            e, ERR_INVAL,
            "KV shape of %d layers, %d KV heads, head dimension %d: each must be at least 1",
            n_layers, n_kv_heads, head_dim);
    }
    if (type != KV_F16 && type != KV_Q8_0) {
        return err_set(e, ERR_UNSUPPORTED, "KV type %d is unknown (f16 and q8_0 are known)",
                       (int)type);
    }
    if (type == KV_Q8_0 && head_dim % 16 != 0) {
        return err_set(e, ERR_UNSUPPORTED,
                       "KV type q8_0 with head dimension %d: it takes multiples of 16 (f16 takes "
                       "any)",
                       head_dim);
    }
    struct kv_shape s = {.type = type,
                         .n_layers = n_layers,
                         .n_kv_heads = n_kv_heads,
                         .head_dim = head_dim,
                         .n_sections = 1};
    /* K and V of a head, 32 positions each: every size is a multiple of 64. */
    const size_t position = type == KV_F16 ? (size_t)head_dim * F16_BYTES
                                           : (size_t)head_dim + q8_scale_bytes(head_dim);
    if (!mul_fits(position, (size_t)2 * KV_BLOCK, &s.head_bytes) ||
        !mul_fits(s.head_bytes, (size_t)n_kv_heads, &s.layer_bytes) ||
        !mul_fits(s.layer_bytes, (size_t)n_layers, &s.block_bytes)) {
        return err_set(
            e, ERR_LIMIT,
            "a KV block of %d layers, %d KV heads and head dimension %d exceeds the address space",
            n_layers, n_kv_heads, head_dim);
    }
    *ret = s;
    return 0;
}

int kv_shape_init_latent(struct kv_shape *ret, enum kv_type type, int n_layers, int dim,
                         struct err *e)
{
    struct kv_shape s;
    if (type != KV_F16) {
        return err_set(e, ERR_UNSUPPORTED,
                       "KV type %s for a model whose keys and values are compressed (MLA): it "
                       "takes f16",
                       kv_type_name(type));
    }
    const int rc = kv_shape_init(&s, type, n_layers, 1, dim, e);
    if (rc) {
        return rc;
    }
    s.is_latent = true;
    s.head_bytes /= 2;
    s.layer_bytes /= 2;
    s.block_bytes /= 2;
    *ret = s;
    return 0;
}

int kv_pool_new(const struct kv_shape *shape, size_t n_blocks, struct kv_pool **ret, struct err *e)
{
    struct kv_pool *p = NULL;
    size_t bytes = 0;
    int rc = 0;

    if (n_blocks < 1) {
        return err_set(e, ERR_INVAL, "a KV pool of 0 blocks");
    }
    if (n_blocks > SIZE_MAX / sizeof(struct kv_block) ||
        !mul_fits(n_blocks, shape->block_bytes, &bytes) || bytes > SIZE_MAX - HUGE_PAGE_BYTES) {
        return err_set(e, ERR_LIMIT,
                       "a KV pool of %zu blocks of %zu bytes exceeds the address space", n_blocks,
                       shape->block_bytes);
    }
    p = sys.malloc(sizeof *p);
    if (!p) {
        return err_set(e, ERR_NOMEM, "out of memory for the KV pool");
    }
    *p = (struct kv_pool){
        .shape = *shape, .n_blocks = n_blocks, .map_bytes = bytes + HUGE_PAGE_BYTES};
    p->blocks = sys.malloc(n_blocks * sizeof *p->blocks);
    if (!p->blocks) {
        rc = err_set(e, ERR_NOMEM, "out of memory for the table of %zu KV blocks", n_blocks);
        goto done;
    }
    void *map = sys.mmap(NULL, p->map_bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) {
        rc = err_sys(e, errno, "reserving %zu bytes for %zu KV blocks", p->map_bytes, n_blocks);
        goto done;
    }
    p->map = map;
    unsigned char *first =
        p->map + (HUGE_PAGE_BYTES - (uintptr_t)p->map % HUGE_PAGE_BYTES) % HUGE_PAGE_BYTES;
    (void)madvise(first, bytes,
                  MADV_HUGEPAGE); /* advice: a kernel without huge pages is as correct */
    (void)madvise(first, bytes, MADV_DONTDUMP); /* a core file is no place for what people wrote */
    for (size_t i = n_blocks; i-- > 0;) {
        struct kv_block *b = &p->blocks[i];
        *b = (struct kv_block){
            .data = first + i * shape->block_bytes, .pool = p, .next_free = p->free};
        p->free = b;
        slot_poison(p, b);
    }
    p->n_free = p->n_limit = n_blocks;
    *ret = p;
    p = NULL;
done:
    if (p) {
        free(p->blocks);
        free(p);
    }
    return rc;
}

void kv_pool_free(struct kv_pool *p)
{
    if (!p) {
        return;
    }
    assert(p->n_free == p->n_blocks);
    for (size_t i = 0; i < p->n_blocks; i++) {
        slot_unpoison(p, &p->blocks[i]); /* the addresses may be mapped again by others */
    }
    munmap(p->map, p->map_bytes);
    free(p->blocks);
    free(p);
}

const struct kv_shape *kv_pool_shape(const struct kv_pool *p)
{
    return &p->shape;
}

size_t kv_pool_n_blocks(const struct kv_pool *p)
{
    return p->n_limit;
}

size_t kv_pool_n_used(const struct kv_pool *p)
{
    return p->n_blocks - p->n_free;
}

size_t kv_pool_n_free(const struct kv_pool *p)
{
    const size_t n_used = kv_pool_n_used(p);
    return n_used < p->n_limit ? p->n_limit - n_used : 0;
}

void kv_pool_set_limit(struct kv_pool *p, size_t n_blocks)
{
    assert(thread_is(THREAD_WORKER));
    p->n_limit = n_blocks < p->n_blocks ? n_blocks : p->n_blocks;
}

size_t kv_pool_n_resident(const struct kv_pool *p)
{
    return p->n_resident;
}

/* The whole pages of slots [from, to) and of no others. */
static size_t give_pages(struct kv_pool *p, size_t from, size_t to)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t first = (uintptr_t)p->blocks[from].data;
    const uintptr_t end = first + (to - from) * p->shape.block_bytes;
    const uintptr_t a = (first + page - 1) / page * page, b = end / page * page;
    if (a >= b || madvise((void *)a, b - a, MADV_DONTNEED)) {
        return 0;
    }
    return b - a;
}

size_t kv_pool_trim(struct kv_pool *p)
{
    size_t given = 0;
    assert(thread_is(THREAD_WORKER));
    if (p->n_resident == p->n_blocks - p->n_free) {
        return 0;
    }
    (void)madvise(p->blocks[0].data, p->n_blocks * p->shape.block_bytes, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < p->n_blocks;) {
        size_t end = i;
        size_t n = 0; /* of the run of free slots, those that have pages */
        for (; end < p->n_blocks && p->blocks[end].n_refs == 0; end++) {
            n += p->blocks[end].is_resident;
            p->blocks[end].is_resident = false;
        }
        if (n > 0) {
            const size_t bytes = give_pages(p, i, end), most = n * p->shape.block_bytes;
            given += bytes < most ? bytes : most;
            p->n_resident -= n;
        }
        i = end + 1;
    }
    return given;
}

void kv_pool_relax(struct kv_pool *p)
{
    (void)madvise(p->blocks[0].data, p->n_blocks * p->shape.block_bytes, MADV_HUGEPAGE);
}

/* The slot has pages now that the system must hold. */
static void set_resident(struct kv_pool *p, struct kv_block *b)
{
    p->n_resident += !b->is_resident;
    b->is_resident = true;
}

size_t kv_pool_touch(struct kv_pool *p, size_t n_ahead, size_t n)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t n_touched = 0;
    assert(thread_is(THREAD_WORKER));
    if (n_ahead > kv_pool_n_free(p)) {
        n_ahead = kv_pool_n_free(p);
    }
    for (struct kv_block *b = p->free; b && n_ahead-- > 0 && n_touched < n; b = b->next_free) {
        if (b->is_resident) {
            continue;
        }
        slot_unpoison(p, b);
        for (size_t at = 0; at < p->shape.block_bytes; at += page) {
            ((volatile unsigned char *)b->data)[at] = 0;
        }
        slot_poison(p, b);
        set_resident(p, b);
        n_touched++;
    }
    return n_touched;
}

struct kv_block *kv_take_raw(struct kv_pool *p)
{
    assert(thread_is(THREAD_WORKER));
    struct kv_block *b = p->free;
    if (kv_pool_n_free(p) == 0) {
        return NULL;
    }
    p->free = b->next_free;
    p->n_free--;
    b->next_free = NULL;
    b->n_refs = 1;
    b->is_raw = true;
    set_resident(p, b);
    slot_unpoison(p, b);
    return b;
}

struct kv_block *kv_take(struct kv_pool *p)
{
    struct kv_block *b = kv_take_raw(p);
    if (b) {
        memset(b->data, 0, p->shape.block_bytes);
        b->is_raw = false;
    }
    return b;
}

struct kv_block *kv_ref(struct kv_block *b)
{
    assert(b->n_refs > 0);
    b->n_refs++;
    return b;
}

void kv_unref(struct kv_block *b)
{
    if (!b) {
        return;
    }
    assert(b->n_refs > 0);
    if (--b->n_refs) {
        return;
    }
    slot_poison(b->pool, b);
    b->next_free = b->pool->free;
    b->pool->free = b;
    b->pool->n_free++;
}

/*
 * What a head consists of, whatever its type: planes of rows of 32 elements, one a position.
 *
 *     F16    K: head_dim rows of 2 bytes an element        V: one row of 2 · head_dim
 *     Q8_0   K: head_dim / 4 of 4, n_scales of 2           V: one of head_dim, n_scales of 2
 */
struct plane {
    size_t n_rows, element;
};

static int head_planes(const struct kv_shape *s, struct plane ret[4])
{
    const size_t dim = (size_t)s->head_dim, n_scales = (size_t)kv_n_scales(s->head_dim);
    if (s->type == KV_F16) {
        ret[0] = (struct plane){dim, F16_BYTES};
        ret[1] = (struct plane){1, dim * F16_BYTES};
        return s->is_latent ? 1 : 2;
    }
    ret[0] = (struct plane){dim / 4, 4};
    ret[1] = (struct plane){n_scales, F16_BYTES};
    ret[2] = (struct plane){1, dim};
    ret[3] = (struct plane){n_scales, F16_BYTES};
    return 4;
}

/* A plane's positions [0, n) of `src` (NULL: leaves them); the rest becomes zero. */
static void plane_cut(unsigned char *dst, const unsigned char *src, struct plane p, int n)
{
    const size_t row = KV_BLOCK * p.element, used = (size_t)n * p.element;
    for (size_t at = 0; at < p.n_rows * row; at += row) {
        if (src) {
            memcpy(dst + at, src + at, used);
        }
        memset(dst + at + used, 0, row - used);
    }
}

static void block_cut(struct kv_block *dst, const struct kv_block *src, int n)
{
    struct plane planes[4];
    const struct kv_shape *s = &dst->pool->shape;
    const int n_planes = head_planes(s, planes);

    for (size_t at = 0; at < s->block_bytes;) {
        for (int i = 0; i < n_planes; i++) {
            plane_cut(dst->data + at, src ? src->data + at : NULL, planes[i], n);
            at += planes[i].n_rows * planes[i].element * KV_BLOCK;
        }
    }
    dst->is_raw = false;
}

void kv_block_copy(struct kv_block *dst, const struct kv_block *src, int n_positions)
{
    assert(dst != src && dst->pool == src->pool && dst->n_refs == 1);
    assert(n_positions >= 0 && n_positions <= KV_BLOCK);
    block_cut(dst, src, n_positions);
}

void kv_block_zero_from(struct kv_block *b, int n_positions)
{
    assert(n_positions >= 0 && n_positions <= KV_BLOCK && (n_positions == 0 || !b->is_raw));
    if (n_positions == 0) {
        memset(b->data, 0, b->pool->shape.block_bytes);
        b->is_raw = false;
    } else if (n_positions < KV_BLOCK) {
        block_cut(b, NULL, n_positions);
    }
}

void kv_seq_init(struct kv_seq *s)
{
    *s = (struct kv_seq){0};
}

void kv_seq_done(struct kv_seq *s)
{
    if (!s) {
        return;
    }
    for (int i = s->n_blocks; i-- > 0;) {
        kv_unref(s->blocks[i]);
    }
    free(s->blocks);
    kv_seq_init(s);
}

int kv_seq_push(struct kv_seq *s, struct kv_block *b, struct err *e)
{
    if (s->n_blocks == s->cap_blocks) {
        const int cap = s->cap_blocks ? 2 * s->cap_blocks : 8;
        if (cap > INT32_MAX / KV_BLOCK) {
            return err_set(e, ERR_LIMIT, "a sequence of more than %d positions", INT32_MAX);
        }
        struct kv_block **more = sys.realloc(s->blocks, (size_t)cap * sizeof *more);
        if (!more) {
            return err_set(e, ERR_NOMEM, "out of memory for a sequence of %d KV blocks", cap);
        }
        s->blocks = more;
        s->cap_blocks = cap;
    }
    s->blocks[s->n_blocks++] = b;
    return 0;
}

void kv_seq_seal(struct kv_seq *s)
{
    const int i = s->n_tokens / KV_BLOCK, used = s->n_tokens % KV_BLOCK;

    assert(s->n_tokens <= kv_seq_capacity(s));
    /* A block boundary: the block that an abandoned pass may have scribbled on is the next one, if
     * it was reserved. */
    if (i < s->n_blocks) {
        kv_block_zero_from(s->blocks[i], used);
    }
}
