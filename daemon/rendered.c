/* See rendered.h. */
#include "daemon/rendered.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

#define SLOTS_FIRST 256 /* a power of two */

struct segment {
    uint8_t key[HASH_BYTES];
    size_t at, n; /* of the half's ids */
    size_t own;   /* where the message's own segment begins: behind what opens the window */
};

struct half {
    struct segment *v; /* [n], malloc'ed, [cap] */
    size_t n, cap;
    uint32_t *slots; /* [n_slots] index into v + 1, or 0 */
    size_t n_slots;
    struct ids ids;
};

struct rendered {
    struct half newer, older;
    uint8_t render[HASH_BYTES]; /* the model that is asked for: part of each key */
};

static void half_clear(struct half *h)
{
    free(h->v);
    free(h->slots);
    ids_done(&h->ids);
    *h = (struct half){.n = 0};
    ids_init(&h->ids);
}

void rendered_free(struct rendered *r)
{
    if (!r)
        return;
    half_clear(&r->newer);
    half_clear(&r->older);
    free(r);
}

/* ---- one half ---- */

/* The key is a hash already. */
static size_t slot_of(const struct half *h, const uint8_t *key)
{
    uint64_t at;
    memcpy(&at, key, sizeof at);
    at &= h->n_slots - 1;
    while (h->slots[at] && memcmp(h->v[h->slots[at] - 1].key, key, HASH_BYTES) != 0)
        at = (at + 1) & (h->n_slots - 1);
    return at;
}

static const struct segment *find(const struct half *h, const uint8_t *key)
{
    const uint32_t found = h->n_slots > 0 ? h->slots[slot_of(h, key)] : 0;
    return found ? &h->v[found - 1] : NULL;
}

/* Room for one more; false: no memory. */
static bool grow(struct half *h)
{
    if (2 * (h->n + 1) <= h->n_slots && h->n < h->cap)
        return true;
    const size_t n_slots = h->n_slots ? 2 * h->n_slots : SLOTS_FIRST;
    uint32_t *slots = calloc(n_slots, sizeof *slots);
    struct segment *v = slots ? realloc(h->v, n_slots / 2 * sizeof *v) : NULL;
    h->v = v ? v : h->v;
    if (!v) {
        free(slots);
        return false;
    }
    free(h->slots);
    h->slots = slots;
    h->n_slots = n_slots;
    h->cap = n_slots / 2;
    for (size_t i = 0; i < h->n; i++)
        h->slots[slot_of(h, h->v[i].key)] = (uint32_t)i + 1;
    return true;
}

/* ---- both ---- */

/* What isn't kept is only made again. */
static void keep(struct rendered *r, const uint8_t *key, const int32_t *ids, size_t n, size_t own)
{
    struct half *h = &r->newer;
    if (n > RENDERED_IDS / 2)
        return;
    if (h->ids.n + n > RENDERED_IDS / 2) {
        half_clear(&r->older);
        r->older = r->newer;
        r->newer = (struct half){.n = 0};
        ids_init(&h->ids);
    }
    if (!grow(h) || ids_add(&h->ids, ids, n))
        return;
    struct segment *s = &h->v[h->n];
    *s = (struct segment){.at = h->ids.n - n, .n = n, .own = own};
    memcpy(s->key, key, HASH_BYTES);
    h->slots[slot_of(h, key)] = (uint32_t)++h->n;
}

/* Appends what is kept: 1; 0: nothing is. */
static int take(struct rendered *r, const uint8_t *key, struct ids *ret, size_t *ret_own)
{
    const struct segment *s = find(&r->newer, key);
    const bool is_new = s != NULL;
    const struct half *h = is_new ? &r->newer : &r->older;
    if (!is_new)
        s = find(&r->older, key);
    if (!s)
        return 0;
    const size_t own = s->own, n = s->n;
    int rc = ids_add(ret, h->ids.v + s->at, n);
    if (rc)
        return rc;
    *ret_own = own;
    if (!is_new)
        keep(r, key, ret->v + ret->n - n, n, own);
    return 1;
}

/* ---- a window ---- */

/* Of one segment's messages: those that open a window, with the time it tells, or one. */
struct span {
    const struct chat_message *v;
    size_t n;
    enum chat_role prev; /* CHAT_NONE: they open */
    int64_t now;
};

static void key_of(const uint8_t *render, const struct span *p, uint8_t ret[HASH_BYTES])
{
    struct hash_state s;
    hash_init(&s);
    hash_add(&s, render, HASH_BYTES);
    if (p->prev == CHAT_NONE)
        hash_add(&s, &p->now, sizeof p->now);
    for (const struct chat_message *m = p->v; m < p->v + p->n; m++) {
        const uint64_t head[] = {(uint64_t)p->prev, (uint64_t)m->role, m->n_text, m->n_ids};
        hash_add(&s, head, sizeof head);
        hash_add(&s, m->text, m->n_text);
        if (m->n_ids > 0)
            hash_add(&s, m->ids, m->n_ids * sizeof *m->ids);
    }
    hash_end(&s, ret);
}

/* *ret_own: where the first message's own segment begins, behind what opens the window. */
static int make(const struct chat *c, const struct span *p, struct ids *ret, size_t *ret_own,
                struct err *e)
{
    const size_t begin = ret->n;
    size_t starts[3] = {begin, begin, begin};
    struct chat_rendering to = {.ids = ret, .starts = starts, .now = p->now};
    int rc = p->prev == CHAT_NONE ? chat_open_window(c, p->v, &to, e)
                                  : chat_segment(c, p->v, p->prev, ret, e);
    *ret_own = starts[0] - begin;
    return rc;
}

/* The segment that begins with v[i]; how many messages it has: more than one only in the beginning,
 * and their share counts as the first one's. */
static int add(struct rendered *r, const struct chat *c, const struct chat_message *v, size_t i,
               struct chat_rendering *ret, struct err *e)
{
    const struct span p = {.v = &v[i],
                           .n = i == 0 ? chat_opening(c, v, 2) : 1,
                           .prev = i > 0 ? v[i - 1].role : CHAT_NONE,
                           .now = ret->now};
    uint8_t key[HASH_BYTES];
    const size_t begin = ret->ids->n;
    size_t own = 0;
    key_of(r->render, &p, key);
    int rc = take(r, key, ret->ids, &own);
    if (rc < 0)
        return err_set(e, rc, "no room for token ids");
    if (rc == 0) {
        if ((rc = make(c, &p, ret->ids, &own, e)))
            return rc;
        keep(r, key, ret->ids->v + begin, ret->ids->n - begin, own);
    }
    ret->starts[i] = begin + own;
    for (size_t k = 1; k < p.n; k++)
        ret->starts[i + k] = ret->ids->n;
    return (int)p.n;
}

/* *kept, made at the first time; NULL: no memory. */
static struct rendered *open(struct rendered **kept, const struct chat *c)
{
    if (!*kept && (*kept = calloc(1, sizeof **kept))) {
        ids_init(&(*kept)->newer.ids);
        ids_init(&(*kept)->older.ids);
    }
    if (*kept)
        chat_render_id(c, (*kept)->render);
    return *kept;
}

int rendered_window(struct rendered **kept, const struct chat *c, const struct chat_message *v,
                    size_t n, struct chat_rendering *ret, struct err *e)
{
    const size_t n_before = ret->ids->n;
    const bool is_row = ret->thinking == CHAT_THINKING_UNSET && chat_is_segments(c, v, n);
    struct rendered *r = is_row && n > 0 ? open(kept, c) : NULL;
    int rc = 0;
    if (!r)
        return chat_render(c, v, n, true, ret, e);
    for (size_t i = 0; i < n && rc >= 0; i += (size_t)(rc > 0 ? rc : 0))
        rc = add(r, c, v, i, ret, e);
    ret->starts[n] = ret->ids->n;
    if (rc >= 0)
        rc = chat_generation_prompt(c, ret->ids, e);
    if (rc)
        ret->ids->n = n_before;
    return rc;
}
