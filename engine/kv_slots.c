/* Equal slots of memory in a row. See kv_slots.h. */
#include "engine/kv_slots.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/sys.h"

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

static unsigned char *at(const struct kv_slots *s, size_t i)
{
    return s->first + i * s->slot_bytes;
}

static void poison(const struct kv_slots *s, size_t i)
{
#ifdef KV_ASAN
    ASAN_POISON_MEMORY_REGION(at(s, i), s->slot_bytes);
#else
    (void)s;
    (void)i;
#endif
}

static void unpoison(const struct kv_slots *s, size_t i)
{
#ifdef KV_ASAN
    ASAN_UNPOISON_MEMORY_REGION(at(s, i), s->slot_bytes);
#else
    (void)s;
    (void)i;
#endif
}

int slots_init(struct kv_slots *s, size_t n, size_t slot_bytes, struct err *e)
{
    struct kv_slot *v = n <= SIZE_MAX / sizeof *v ? sys.malloc(n * sizeof *v) : NULL;
    if (!v) {
        return err_set(e, ERR_NOMEM, "out of memory for the table of %zu KV slots", n);
    }
    *s = (struct kv_slots){
        .slot_bytes = slot_bytes, .n_slots = n, .n_free = n, .v = v, .free = v};
    for (size_t i = 0; i < n; i++) {
        v[i] = (struct kv_slot){.is_free = true, .next_free = i + 1 < n ? &v[i + 1] : NULL};
    }
    return 0;
}

void slots_done(struct kv_slots *s)
{
    for (size_t i = 0; s->first && i < s->n_slots; i++) {
        unpoison(s, i); /* the addresses may be mapped again by others */
    }
    free(s->v);
    *s = (struct kv_slots){0};
}

void slots_place(struct kv_slots *s, unsigned char *first)
{
    const size_t bytes = s->n_slots * s->slot_bytes;
    s->first = first;
    (void)madvise(first, bytes,
                  MADV_HUGEPAGE); /* advice: a kernel without huge pages is as correct */
    (void)madvise(first, bytes, MADV_DONTDUMP); /* a core file is no place for what people wrote */
    for (size_t i = 0; i < s->n_slots; i++) {
        poison(s, i);
    }
}

/* The slot has pages now that the system must hold. */
static void set_resident(struct kv_slots *s, struct kv_slot *x)
{
    s->n_resident += !x->is_resident;
    x->is_resident = true;
}

unsigned char *slots_take(struct kv_slots *s)
{
    struct kv_slot *x = s->free;
    const size_t i = (size_t)(x - s->v);
    assert(x && x->is_free);
    s->free = x->next_free;
    s->n_free--;
    x->next_free = NULL;
    x->is_free = false;
    s->is_slim = false;
    set_resident(s, x);
    unpoison(s, i);
    return at(s, i);
}

void slots_give(struct kv_slots *s, unsigned char *slot)
{
    const size_t i = slots_index(s, slot);
    struct kv_slot *x = &s->v[i];
    assert(i < s->n_slots && !x->is_free);
    poison(s, i);
    x->is_free = true;
    x->next_free = s->free;
    s->free = x;
    s->n_free++;
    s->is_slim = false;
}

size_t slots_touch(struct kv_slots *s, size_t n_ahead, size_t n)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t n_touched = 0;
    for (struct kv_slot *x = s->free; x && n_ahead-- > 0 && n_touched < n; x = x->next_free) {
        const size_t i = (size_t)(x - s->v);
        if (x->is_resident) {
            continue;
        }
        unpoison(s, i);
        for (size_t k = 0; k < s->slot_bytes; k += page) {
            ((volatile unsigned char *)at(s, i))[k] = 0;
        }
        poison(s, i);
        set_resident(s, x);
        n_touched++;
    }
    return n_touched;
}

/* The whole pages of slots [from, to) and of no others. */
static size_t give_pages(const struct kv_slots *s, size_t from, size_t to)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t first = (uintptr_t)at(s, from), end = (uintptr_t)at(s, to);
    const uintptr_t a = (first + page - 1) / page * page, b = end / page * page;
    if (a >= b || madvise((void *)a, b - a, MADV_DONTNEED)) {
        return 0;
    }
    return b - a;
}

bool slots_forget(struct kv_slots *s)
{
    struct kv_slot *x = s->n_resident > s->n_slots - s->n_free ? s->free : NULL;
    while (x && !x->is_resident) {
        x = x->next_free; /* last released, first in the list: those that have pages */
    }
    if (!x) {
        return false;
    }
    const size_t i = (size_t)(x - s->v);
    (void)give_pages(s, i, i + 1);
    x->is_resident = false;
    s->n_resident--;
    return true;
}

size_t slots_trim(struct kv_slots *s)
{
    size_t given = 0;
    if (s->n_resident == s->n_slots - s->n_free) {
        return 0;
    }
    (void)madvise(s->first, s->n_slots * s->slot_bytes, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < s->n_slots;) {
        size_t end = i;
        size_t n = 0; /* of the run of free slots, those that have pages */
        for (; end < s->n_slots && s->v[end].is_free; end++) {
            n += s->v[end].is_resident;
            s->v[end].is_resident = false;
        }
        if (n > 0) {
            const size_t bytes = give_pages(s, i, end), most = n * s->slot_bytes;
            given += bytes < most ? bytes : most;
            s->n_resident -= n;
        }
        i = end + 1;
    }
    return given;
}

void slots_relax(struct kv_slots *s)
{
    (void)madvise(s->first, s->n_slots * s->slot_bytes, MADV_HUGEPAGE);
}

/* ---- at rest ---- */

static size_t n_used(const struct kv_slots *s)
{
    return s->n_slots - s->n_free;
}

bool slots_has_slack(const struct kv_slots *s, size_t n_keep)
{
    return !s->is_slim && s->n_resident - n_used(s) > 2 * n_keep;
}

unsigned char *slots_move(struct kv_slots *s, unsigned char *slot, size_t *lowest)
{
    const size_t from = slots_index(s, slot);
    while (!s->v[*lowest].is_free) {
        ++*lowest;
    }
    const size_t to = *lowest;
    assert(!s->v[from].is_free && to < s->n_slots);
    unpoison(s, to);
    memcpy(at(s, to), slot, s->slot_bytes);
    poison(s, from);
    s->v[to].is_free = false;
    s->v[from].is_free = true;
    set_resident(s, &s->v[to]);
    return at(s, to);
}

void slots_sort(struct kv_slots *s)
{
    struct kv_slot **end = &s->free;
    for (size_t i = 0; i < s->n_slots; i++) {
        if (s->v[i].is_free) {
            *end = &s->v[i];
            end = &s->v[i].next_free;
        }
    }
    *end = NULL;
}

/* Of free slots [from, to), the huge pages that they alone lie in. */
static size_t give_huge(struct kv_slots *s, size_t from, size_t to)
{
    const size_t a = (from * s->slot_bytes + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES;
    const size_t b = to * s->slot_bytes / HUGE_PAGE_BYTES;
    const size_t first = (a * HUGE_PAGE_BYTES + s->slot_bytes - 1) / s->slot_bytes;
    const size_t end = b * HUGE_PAGE_BYTES / s->slot_bytes;
    size_t n = 0;
    for (size_t i = first; i < end; i++) {
        n += s->v[i].is_resident;
    }
    if (n == 0 ||
        madvise(s->first + a * HUGE_PAGE_BYTES, (b - a) * HUGE_PAGE_BYTES, MADV_DONTNEED)) {
        return 0;
    }
    for (size_t i = first; i < end; i++) {
        s->v[i].is_resident = false;
    }
    s->n_resident -= n;
    return n * s->slot_bytes;
}

size_t slots_slim(struct kv_slots *s, size_t n_keep)
{
    size_t given = 0;
    slots_sort(s);
    for (size_t i = 0, n_kept = 0; i < s->n_slots; i++) {
        const size_t from = i;
        if (s->v[i].is_free && n_kept < n_keep) {
            n_kept++;
            continue;
        }
        while (i < s->n_slots && s->v[i].is_free) {
            i++;
        }
        given += i > from ? give_huge(s, from, i) : 0;
    }
    s->is_slim = true;
    return given;
}
