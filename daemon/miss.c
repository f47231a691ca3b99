/* See miss.h. */
#include "daemon/miss.h"

#include <stddef.h>

const char *miss_name(enum miss m)
{
    static const char *const names[MISS_N] = {
        [MISS_OFF] = "off",           [MISS_NEW] = "new",     [MISS_EVICTED] = "evicted",
        [MISS_CHANGED] = "changed",   [MISS_MODEL] = "model", [MISS_CUT] = "cut",
        [MISS_TEMPLATE] = "template",
    };
    return m < MISS_N ? names[m] : NULL;
}
