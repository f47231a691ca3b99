/* See began.h. */
#include "daemon/began.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

struct began {
    struct {
        uint64_t key; /* 0: free */
        int64_t at;
    } v[BEGAN_PLACES];
};

void began_free(struct began *b)
{
    free(b);
}

int64_t began_at(struct began **b, const char *owner, const struct chat_message *m, size_t n,
                 int64_t now)
{
    struct hash_state s;
    uint8_t hash[HASH_BYTES];
    uint64_t key;
    if (!*b && !(*b = calloc(1, sizeof **b)))
        return now;
    hash_init(&s);
    hash_add(&s, owner, strlen(owner) + 1);
    for (size_t i = 0; i < n; i++) {
        const uint64_t head[] = {(uint64_t)m[i].role, m[i].n_text};
        hash_add(&s, head, sizeof head);
        hash_add(&s, m[i].text, m[i].n_text);
        if (m[i].role == CHAT_USER)
            break;
    }
    hash_end(&s, hash);
    memcpy(&key, hash, sizeof key);
    key |= 1;
    const size_t place = (size_t)(key >> 32) % BEGAN_PLACES;
    if ((*b)->v[place].key != key) {
        (*b)->v[place].key = key;
        (*b)->v[place].at = now;
    }
    return (*b)->v[place].at;
}
