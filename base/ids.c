/* Lists of token ids: grow by doubling; a failed call leaves the list as it was. */
#include "base/ids.h"

#include <stdlib.h>
#include <string.h>

#include "base/sys.h"

#define FIRST_IDS 64

void ids_init(struct ids *a)
{
    *a = (struct ids){0};
}

void ids_done(struct ids *a)
{
    if (!a)
        return;
    free(a->v);
    *a = (struct ids){0};
}

int ids_push(struct ids *a, int32_t id)
{
    return ids_add(a, &id, 1);
}

int ids_add(struct ids *a, const int32_t *v, size_t n)
{
    if (n == 0)
        return 0;
    if (n > IDS_MAX - a->n)
        return ERR_LIMIT;
    if (a->n + n > a->cap) {
        size_t cap = a->cap ? a->cap * 2 : FIRST_IDS;
        if (cap < a->n + n)
            cap = a->n + n;
        int32_t *grown = sys.realloc(a->v, cap * sizeof(*grown));
        if (!grown)
            return ERR_NOMEM;
        a->v = grown;
        a->cap = cap;
    }
    memcpy(a->v + a->n, v, n * sizeof(*v));
    a->n += n;
    return 0;
}

size_t ids_common(const int32_t *a, size_t na, const int32_t *b, size_t nb)
{
    size_t most = na < nb ? na : nb;
    size_t n = 0;
    while (n < most && a[n] == b[n])
        n++;
    return n;
}
