/*
 * A growing list of token ids (int32, as the engine and the cache hash them). Errors are returned,
 * not sticky.
 */
#ifndef HEARTH_BASE_IDS_H
#define HEARTH_BASE_IDS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct ids {
    int32_t *v;
    size_t n, cap;
};

#define IDS_MAX ((size_t)64 << 20) /* more ids than any 8 MiB body can make */

void ids_init(struct ids *a);
void ids_done(struct ids *a);
int ids_push(struct ids *a, int32_t id) MUST_USE;                /* 0, ERR_NOMEM, ERR_LIMIT */
int ids_add(struct ids *a, const int32_t *v, size_t n) MUST_USE; /* appends n ids */
/* Length of the common prefix of two lists. */
size_t ids_common(const int32_t *a, size_t na, const int32_t *b, size_t nb);

#endif
