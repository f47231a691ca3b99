/*
 * What was said: a message as the pure parts of memory read it (extract.h, facts.h). Nothing here
 * touches the database.
 */
#ifndef HEARTH_MEMORY_SAID_H
#define HEARTH_MEMORY_SAID_H

#include <stddef.h>
#include <stdint.h>

#include "memory/memory.h"

/* One message. The text is borrowed, any bytes, NULs among them. Rows ascend along a path, so they
 * are also the order of time. */
struct said {
    int64_t row;
    enum memory_role role;
    const char *text;
    size_t n_text;
};

#endif
