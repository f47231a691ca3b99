/*
 * KV blocks: memory cut into slots, a byte budget, and plain reference counts (the rules of
 * ownership: engine/kv.h).
 *
 *     mapping   [ full slots … | windowed slots … ]   each section's slots in a row (kv_slots.h)
 *     blocks    [ {data → full slot 0}, … ]           block i has full slot i, for ever
 *     bytes     those of both in use, against the budget
 *
 * Address space is reserved for as many slots of each kind as the budget could hold of it alone,
 * and touched slot by slot, so a generous budget costs nothing until it is used; what free slots
 * have touched can be given back (kv_pool_trim when memory is short, kv_pool_slim at rest), and is
 * where both sections together would hold more pages than the budget. A windowed section that is
 * dropped leaves a slot to the next block, and at rest those that are left move together: memory
 * stays dense whatever goes.
 *
 * A block is zeroed when it is taken, not when it is released: release happens in bursts (an
 * evicted subtree), taking one at a time. A first touch costs more than filling: the system clears
 * the page, and a virtual machine's host may have to find it. What will be read from the disk soon
 * is therefore touched in idle time, and isn't zeroed.
 */
#include "engine/kv.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>

#include "base/sys.h"
#include "base/thread.h"
#include "engine/kv_slots.h"

#define F16_BYTES 2u

struct kv_pool {
    struct kv_shape shape;
    struct kv_block *blocks; /* [full.n_slots] */
    struct kv_slots full, window; /* window: of a shape with one section, none */
    size_t bytes_reserved, bytes_max, bytes_used; /* max: the budget, of what was reserved */
    unsigned char *map;
    size_t map_bytes;
};

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
    s.full_bytes = s.block_bytes;
    *ret = s;
    return 0;
}

int kv_shape_init_latent(struct kv_shape *ret, enum kv_type type, int n_layers, int dim,
                         struct err *e)
{
    struct kv_shape s;
    const int rc = kv_shape_init(&s, type, n_layers, 1, dim, e);
    if (rc) {
        return rc;
    }
    s.is_latent = true;
    s.head_bytes /= 2;
    s.layer_bytes /= 2;
    s.block_bytes /= 2;
    s.full_bytes = s.block_bytes;
    *ret = s;
    return 0;
}

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* Where all layers are windowed, a block's full section is of no use but to be a place in the pool:
 * so small a part that thin blocks cost next to nothing, and so large that there aren't many more
 * of them than whole ones, since each slot has a row in tables. */
#define EMPTY_SHARE 256

void kv_shape_set_window(struct kv_shape *s, int window, int period)
{
    const int n_full = period > 0 ? s->n_layers / period : 0;
    if (window < 1 || n_full == s->n_layers) {
        return;
    }
    s->n_sections = 2;
    s->window = window;
    s->window_period = period > 0 ? period : 0;
    s->full_bytes = (size_t)n_full * s->layer_bytes;
    s->window_bytes = s->block_bytes - s->full_bytes;
    if (n_full == 0) {
        s->full_bytes = round_up(s->window_bytes / EMPTY_SHARE, 64);
        s->block_bytes = s->full_bytes + s->window_bytes;
    }
}

int kv_usable(const struct kv_shape *s, int n_found, bool (*has)(void *ctx, int n_block),
              void *ctx)
{
    int n = n_found, from = kv_window_from(s, n);
    if (s->n_sections == 1) {
        return n_found;
    }
    for (int i = (n + KV_BLOCK - 1) / KV_BLOCK; i-- > from;) {
        if (!has(ctx, i)) { /* no n in between sees less than this block */
            n = i * KV_BLOCK;
            from = kv_window_from(s, n);
        }
    }
    return n;
}

/* ---- the pool ---- */

/* How many slots of each kind, their tables, and what all of them take. */
static int measure(struct kv_pool *p, size_t n_blocks, struct err *e)
{
    const struct kv_shape *s = &p->shape;
    const size_t n_align = s->n_sections; /* each section begins on a huge page's boundary */
    size_t bytes = 0;
    if (n_blocks > SIZE_MAX / sizeof(struct kv_block) ||
        !mul_fits(n_blocks, s->block_bytes, &bytes) ||
        bytes > SIZE_MAX / 2 - n_align * HUGE_PAGE_BYTES) {
        return err_set(e, ERR_LIMIT,
                       "a KV pool of %zu blocks of %zu bytes exceeds the address space", n_blocks,
                       s->block_bytes);
    }
    p->bytes_reserved = p->bytes_max = bytes;
    p->map_bytes = n_align * (bytes + HUGE_PAGE_BYTES);
    const int rc = slots_init(&p->full, bytes / s->full_bytes, s->full_bytes, e);
    if (rc || s->n_sections == 1) {
        return rc;
    }
    return slots_init(&p->window, bytes / s->window_bytes, s->window_bytes, e);
}

static unsigned char *align(unsigned char *p)
{
    return p + (HUGE_PAGE_BYTES - (uintptr_t)p % HUGE_PAGE_BYTES) % HUGE_PAGE_BYTES;
}

/* The mapping, and where in it each section and each block's data begin. */
static int place(struct kv_pool *p, struct err *e)
{
    void *map = sys.mmap(NULL, p->map_bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) {
        return err_sys(e, errno, "reserving %zu bytes for %zu KV blocks", p->map_bytes,
                       p->full.n_slots);
    }
    p->map = map;
    slots_place(&p->full, align(p->map));
    if (p->window.n_slots > 0) {
        slots_place(&p->window, align(p->full.first + p->bytes_reserved));
    }
    for (size_t i = 0; i < p->full.n_slots; i++) {
        p->blocks[i] =
            (struct kv_block){.data = p->full.first + i * p->shape.full_bytes, .pool = p};
    }
    return 0;
}

static void pool_free(struct kv_pool *p)
{
    slots_done(&p->full);
    slots_done(&p->window);
    if (p->map) {
        munmap(p->map, p->map_bytes);
    }
    free(p->blocks);
    free(p);
}

int kv_pool_new(const struct kv_shape *shape, size_t n_blocks, struct kv_pool **ret, struct err *e)
{
    if (n_blocks < 1) {
        return err_set(e, ERR_INVAL, "a KV pool of 0 blocks");
    }
    struct kv_pool *p = sys.malloc(sizeof *p);
    if (!p) {
        return err_set(e, ERR_NOMEM, "out of memory for the KV pool");
    }
    *p = (struct kv_pool){.shape = *shape};
    int rc = measure(p, n_blocks, e);
    if (!rc) {
        p->blocks = sys.malloc(p->full.n_slots * sizeof *p->blocks);
        rc = p->blocks ? place(p, e)
                       : err_set(e, ERR_NOMEM, "out of memory for the table of %zu KV blocks",
                                 p->full.n_slots);
    }
    if (rc) {
        pool_free(p);
        return rc;
    }
    *ret = p;
    return 0;
}

void kv_pool_free(struct kv_pool *p)
{
    if (!p) {
        return;
    }
    assert(p->bytes_used == 0);
    pool_free(p);
}

const struct kv_shape *kv_pool_shape(const struct kv_pool *p)
{
    return &p->shape;
}

size_t kv_pool_n_blocks(const struct kv_pool *p)
{
    return p->bytes_max / p->shape.block_bytes;
}

size_t kv_pool_n_used(const struct kv_pool *p)
{
    return p->full.n_slots - p->full.n_free;
}

size_t kv_pool_n_free(const struct kv_pool *p)
{
    return kv_pool_bytes_free(p) / p->shape.block_bytes;
}

size_t kv_pool_bytes_max(const struct kv_pool *p)
{
    return p->bytes_max;
}

size_t kv_pool_bytes_used(const struct kv_pool *p)
{
    return p->bytes_used;
}

size_t kv_pool_bytes_free(const struct kv_pool *p)
{
    return p->bytes_used < p->bytes_max ? p->bytes_max - p->bytes_used : 0;
}

void kv_pool_set_limit(struct kv_pool *p, size_t n_blocks)
{
    assert(thread_is(THREAD_WORKER));
    const size_t n_max = p->bytes_reserved / p->shape.block_bytes;
    p->bytes_max = (n_blocks < n_max ? n_blocks : n_max) * p->shape.block_bytes;
}

size_t kv_pool_bytes_resident(const struct kv_pool *p)
{
    return p->full.n_resident * p->full.slot_bytes + p->window.n_resident * p->window.slot_bytes;
}

size_t kv_pool_trim(struct kv_pool *p)
{
    assert(thread_is(THREAD_WORKER));
    return slots_trim(&p->full) + slots_trim(&p->window);
}

void kv_pool_relax(struct kv_pool *p)
{
    slots_relax(&p->full);
    if (p->window.n_slots > 0) {
        slots_relax(&p->window);
    }
}

/* Free slots of one section may have pages that the other needs now: both stay below the budget.
 * true: some went. */
static bool keep_budget(struct kv_pool *p)
{
    bool is_over = false;
    while (p->window.n_slots > 0 && kv_pool_bytes_resident(p) > p->bytes_max &&
           (slots_forget(&p->window) || slots_forget(&p->full))) {
        is_over = true;
    }
    return is_over;
}

/* ---- at rest ---- */

#define MOVED_BYTES ((size_t)16 << 20) /* in one step: a few milliseconds */

bool kv_pool_has_slack(const struct kv_pool *p, struct kv_keep keep)
{
    return slots_has_slack(&p->full, keep.n_full) || slots_has_slack(&p->window, keep.n_window);
}

/* n sections in use lie in the first n slots. false: not all of them yet. */
static bool gather_windows(struct kv_pool *p)
{
    struct kv_slots *w = &p->window;
    const size_t n_used = w->n_slots - w->n_free, n_max = MOVED_BYTES / w->slot_bytes + 1;
    size_t lowest = 0, n = 0;
    for (size_t i = 0; i < p->full.n_slots && n < n_max; i++) {
        struct kv_block *b = &p->blocks[i];
        if (b->window && slots_index(w, b->window) >= n_used) {
            b->window = slots_move(w, b->window, &lowest);
            n++;
        }
    }
    slots_sort(w);
    return n < n_max;
}

size_t kv_pool_slim(struct kv_pool *p, struct kv_keep keep)
{
    size_t given = 0;
    assert(thread_is(THREAD_WORKER));
    if (slots_has_slack(&p->full, keep.n_full)) {
        given += slots_slim(&p->full, keep.n_full);
    }
    if (slots_has_slack(&p->window, keep.n_window) && gather_windows(p)) {
        given += slots_slim(&p->window, keep.n_window);
    }
    return given;
}

size_t kv_pool_n_window(const struct kv_pool *p)
{
    return (size_t)p->shape.window / KV_BLOCK + 2;
}

size_t kv_pool_touch(struct kv_pool *p, size_t n_ahead, size_t n)
{
    assert(thread_is(THREAD_WORKER));
    if (n_ahead > kv_pool_n_free(p)) {
        n_ahead = kv_pool_n_free(p);
    }
    const size_t n_done = slots_touch(&p->full, n_ahead, n);
    /* Of what a turn reads, its end alone has windowed sections. */
    const size_t n_window = kv_pool_n_window(p);
    const size_t n_touched =
        n_done + slots_touch(&p->window, n_window < n_ahead ? n_window : n_ahead, n - n_done);
    return keep_budget(p) ? 0 : n_touched; /* all is touched that may be */
}

/* ---- blocks ---- */

struct kv_block *kv_take_thin(struct kv_pool *p)
{
    assert(thread_is(THREAD_WORKER));
    if (kv_pool_bytes_free(p) < p->shape.full_bytes) {
        return NULL;
    }
    struct kv_block *b = &p->blocks[slots_index(&p->full, slots_take(&p->full))];
    p->bytes_used += p->shape.full_bytes;
    b->n_refs = 1;
    b->is_raw = true;
    b->is_window_raw = false;
    (void)keep_budget(p);
    return b;
}

bool kv_window_take(struct kv_block *b)
{
    struct kv_pool *p = b->pool;
    if (kv_block_is_whole(b, &p->shape)) {
        return true;
    }
    if (kv_pool_bytes_free(p) < p->shape.window_bytes) {
        return false;
    }
    b->window = slots_take(&p->window);
    b->is_window_raw = true;
    p->bytes_used += p->shape.window_bytes;
    (void)keep_budget(p);
    return true;
}

void kv_window_drop(struct kv_block *b)
{
    if (b->window) {
        slots_give(&b->pool->window, b->window);
        b->window = NULL;
        b->is_window_raw = false;
        b->pool->bytes_used -= b->pool->shape.window_bytes;
    }
}

void kv_window_move(struct kv_block *to, struct kv_block *from)
{
    assert(to->pool == from->pool && !to->window && !from->is_window_raw);
    to->window = from->window;
    from->window = NULL;
}

struct kv_block *kv_take_raw(struct kv_pool *p)
{
    if (kv_pool_bytes_free(p) < p->shape.block_bytes) {
        return NULL;
    }
    struct kv_block *b = kv_take_thin(p);
    const bool is_whole = kv_window_take(b);
    assert(is_whole); /* the bytes were there */
    (void)is_whole;
    return b;
}

struct kv_block *kv_take(struct kv_pool *p)
{
    struct kv_block *b = kv_take_raw(p);
    if (b) {
        kv_block_zero_from(b, 0);
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
    kv_window_drop(b);
    slots_give(&b->pool->full, b->data);
    b->pool->bytes_used -= b->pool->shape.full_bytes;
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
    return s->is_latent ? 2 : 4;
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

/* One section, of whatever layers. */
static void section_cut(const struct kv_shape *s, unsigned char *dst, const unsigned char *src,
                        size_t n_bytes, int n)
{
    struct plane planes[4];
    const int n_planes = head_planes(s, planes);

    for (size_t at = 0; at < n_bytes;) {
        for (int i = 0; i < n_planes; i++) {
            plane_cut(dst + at, src ? src + at : NULL, planes[i], n);
            at += planes[i].n_rows * planes[i].element * KV_BLOCK;
        }
    }
}

static void block_cut(struct kv_block *dst, const struct kv_block *src, int n)
{
    const struct kv_shape *s = &dst->pool->shape;
    const bool has_full_layers = s->window_bytes < (size_t)s->n_layers * s->layer_bytes;

    if (has_full_layers) {
        section_cut(s, dst->data, src ? src->data : NULL, s->full_bytes, n);
    } else {
        memset(dst->data, 0, s->full_bytes); /* a place in the pool: no head would fit */
    }
    dst->is_raw = false;
    if (dst->window) {
        section_cut(s, dst->window, src ? src->window : NULL, s->window_bytes, n);
        dst->is_window_raw = false;
    }
}

void kv_block_copy(struct kv_block *dst, const struct kv_block *src, int n_positions)
{
    assert(dst != src && dst->pool == src->pool && dst->n_refs == 1);
    assert(n_positions >= 0 && n_positions <= KV_BLOCK);
    assert(n_positions == 0 || !dst->window || src->window);
    block_cut(dst, src, n_positions);
}

void kv_block_zero_from(struct kv_block *b, int n_positions)
{
    assert(n_positions >= 0 && n_positions <= KV_BLOCK);
    assert(n_positions == 0 || (!b->is_raw && !b->is_window_raw));
    if (n_positions == 0) {
        b->is_raw = b->is_window_raw = true;
        kv_block_settle(b);
    } else if (n_positions < KV_BLOCK) {
        block_cut(b, NULL, n_positions);
    }
}

void kv_block_settle(struct kv_block *b)
{
    if (b->is_raw) {
        memset(b->data, 0, b->pool->shape.full_bytes);
    }
    if (b->is_window_raw && b->window) {
        memset(b->window, 0, b->pool->shape.window_bytes);
    }
    b->is_raw = b->is_window_raw = false;
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
