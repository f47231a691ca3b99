/* See resent_book.h. Oldest use out first, beyond BOOK_STATES or BOOK_BYTES of the lists' texts: a
 * state and its index take a few times as much. */
#include "daemon/resent_book.h"

#include <stdlib.h>
#include <string.h>

#define BOOK_STATES 32
#define BOOK_BYTES ((size_t)8 << 20)

struct kept {
    struct fold_state *state; /* NULL: free */
    uint8_t chain[HASH_BYTES];
    size_t n_bytes;
    uint64_t used;
};

struct resent_book {
    struct kept v[BOOK_STATES];
    size_t n_bytes;
    uint64_t n_uses;
};

static void drop(struct resent_book *b, struct kept *k)
{
    fold_state_free(k->state);
    b->n_bytes -= k->n_bytes;
    *k = (struct kept){.state = NULL};
}

void resent_book_free(struct resent_book *b)
{
    for (size_t i = 0; b && i < BOOK_STATES; i++)
        fold_state_free(b->v[i].state);
    free(b);
}

struct fold_state *resent_book_take(struct resent_book *b, const uint8_t (*chains)[HASH_BYTES],
                                    size_t n)
{
    struct kept *best = NULL;
    for (size_t i = 0; b && i < BOOK_STATES; i++) {
        struct kept *k = &b->v[i];
        const size_t at = k->state ? fold_state_at(k->state) : n;
        if (at < n && memcmp(chains[at], k->chain, HASH_BYTES) == 0 &&
            (!best || at > fold_state_at(best->state)))
            best = k;
    }
    if (!best)
        return NULL;
    struct fold_state *state = best->state;
    best->state = NULL;
    drop(b, best);
    return state;
}

/* A free one; the oldest if there is none. */
static struct kept *oldest(struct resent_book *b)
{
    struct kept *k = &b->v[0];
    for (size_t i = 0; i < BOOK_STATES; i++)
        if (b->v[i].used < k->used)
            k = &b->v[i];
    return k;
}

static struct kept *oldest_used(struct resent_book *b)
{
    struct kept *k = NULL;
    for (size_t i = 0; i < BOOK_STATES; i++)
        if (b->v[i].state && (!k || b->v[i].used < k->used))
            k = &b->v[i];
    return k;
}

void resent_book_keep(struct resent_book **book, const uint8_t (*chains)[HASH_BYTES],
                      struct fold_state *state, size_t n_bytes)
{
    if (!*book)
        *book = calloc(1, sizeof **book);
    struct resent_book *b = *book;
    if (!state || !b || n_bytes > BOOK_BYTES) {
        fold_state_free(state);
        return;
    }
    while (b->n_bytes + n_bytes > BOOK_BYTES)
        drop(b, oldest_used(b));
    struct kept *k = oldest(b);
    if (k->state)
        drop(b, k);
    *k = (struct kept){.state = state, .n_bytes = n_bytes, .used = ++b->n_uses};
    memcpy(k->chain, chains[fold_state_at(state)], HASH_BYTES);
    b->n_bytes += n_bytes;
}
