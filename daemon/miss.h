/* Why a prompt's beginning had to be read again: a word for replies, SQLite and /metrics alike. */
#ifndef HEARTH_DAEMON_MISS_H
#define HEARTH_DAEMON_MISS_H

enum miss {
    MISS_NONE,    /* only what is new was computed, and the rest of a block */
    MISS_OFF,     /* the request or the daemon asked for no cache */
    MISS_NEW,     /* nothing like it was read before, as far as is known */
    MISS_EVICTED, /* it was read before, and its blocks are gone */
    MISS_CHANGED, /* an earlier message is not what was read before */
    MISS_MODEL,   /* another model, or template, read it */
    MISS_CUT,     /* the window was cut, and the new one not read ahead */
    MISS_TEMPLATE, /* the chat template now prints an earlier message otherwise (chat_window.c) */
    MISS_N
};

/* "off", "new", …; NULL for MISS_NONE. Static. */
const char *miss_name(enum miss m);

#endif
