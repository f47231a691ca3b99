/* See lookup.h. */
#include "daemon/lookup.h"

#include <stdlib.h>
#include <string.h>

#define DRAFT_FIRST 2
#define PAUSE_FIRST 2
#define PAUSE_MAX 64 /* a failed draft of one id in so many costs less than a hundredth */

void lookup_init(struct lookup *l, int n)
{
    uint32_t n_slots = 256;
    while (n_slots < LOOKUP_SLOTS_MAX && n_slots < 2 * (uint32_t)n)
        n_slots *= 2;
    *l = (struct lookup){.mask = n_slots - 1, .n_next = DRAFT_FIRST, .pause_next = PAUSE_FIRST};
    l->slots = calloc(n_slots, sizeof *l->slots);
}

void lookup_done(struct lookup *l)
{
    free(l->slots);
    l->slots = NULL;
}

static uint32_t slot_of(const struct lookup *l, const int32_t *gram)
{
    uint64_t h = 0;
    for (int i = 0; i < LOOKUP_GRAM; i++)
        h = (h ^ (uint32_t)gram[i]) * 0x9e3779b97f4a7c15ull;
    return (uint32_t)(h >> 40) & l->mask;
}

int lookup_draft(struct lookup *l, const struct ids *ids, int n_max, int32_t *ret)
{
    const int n = (int)ids->n;
    if (!l->slots || n <= LOOKUP_GRAM)
        return 0;
    const int n_new = n - l->n_indexed;
    /* All grams but the last: it would find itself. */
    for (int at = l->n_indexed < LOOKUP_GRAM ? LOOKUP_GRAM : l->n_indexed; at < n; at++)
        l->slots[slot_of(l, ids->v + at - LOOKUP_GRAM)] = (uint32_t)at;
    l->n_indexed = n;
    if (l->pause > 0) {
        l->pause = l->pause > n_new ? l->pause - n_new : 0;
        return 0;
    }
    const int32_t *gram = ids->v + n - LOOKUP_GRAM;
    const int at = (int)l->slots[slot_of(l, gram)];
    if (at == 0 || memcmp(ids->v + at - LOOKUP_GRAM, gram, LOOKUP_GRAM * sizeof *gram) != 0)
        return 0;
    int n_draft = l->n_next < n_max ? l->n_next : n_max;
    n_draft = n_draft < n - at ? n_draft : n - at;
    if (n_draft > 0)
        memcpy(ret, ids->v + at, (size_t)n_draft * sizeof *ret);
    return n_draft > 0 ? n_draft : 0;
}

void lookup_tell(struct lookup *l, int n_drafted, int n_accepted)
{
    if (n_accepted == n_drafted) {
        l->n_next = l->n_next * 2 < LOOKUP_DRAFT_MAX ? l->n_next * 2 : LOOKUP_DRAFT_MAX;
        l->pause_next = PAUSE_FIRST;
    } else if (2 * n_accepted < n_drafted) {
        l->n_next = l->n_next > 1 ? l->n_next / 2 : 1;
    }
    if (n_accepted == 0) {
        l->pause = l->pause_next;
        l->pause_next = l->pause_next * 2 < PAUSE_MAX ? l->pause_next * 2 : PAUSE_MAX;
    }
}
