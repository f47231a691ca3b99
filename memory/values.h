/*
 * Exact values in a sentence: what must be repeated letter by letter. Hand-written recognisers,
 * tried in this order at the start of each run of characters; English and Chinese dates, times,
 * amounts. Private to memory.
 */
#ifndef HEARTH_MEMORY_VALUES_H
#define HEARTH_MEMORY_VALUES_H

#include <stddef.h>
#include <stdint.h>

enum value_kind {
    VALUE_URL = 1, /* https://…, s3://… */
    VALUE_EMAIL,   /* and user@host, @handle */
    VALUE_PATH,    /* /etc/x, ~/x, src/a.c, C:\x */
    VALUE_HOST,    /* names with dots, addresses, with a port or without; file.ext too */
    VALUE_IDENT,   /* INC-4471, x86_64, #12, a_b, a-b-c, 7 and more digits */
    VALUE_VERSION, /* 2.3.1, v2.3 */
    VALUE_PHONE,
    VALUE_MONEY,
    VALUE_DATE, /* of a day, a month, a day of the week */
    VALUE_TIME,
    VALUE_NUMBER, /* with what is glued to it: 16GB, 40% */
    VALUE_YEAR,   /* four digits alone */
    VALUE_QUOTE,  /* between quotation marks, without them */
    VALUE_NAME,   /* capitalised, not the first word; several in a row are one */
};

struct value {
    enum value_kind kind;
    uint32_t at, n; /* bytes of the sentence */
};

/* The first values of s[0, n), valid UTF-8 in one line, in order and apart; returns how many, at
 * most max. Linear. */
size_t values_find(const char *s, size_t n, struct value *ret, size_t max);

#endif
