/* What the client reads of a reply's objects: a field that is missing or of another type is nothing
 * to stop at. */
#ifndef HEARTH_CLIENT_FIELDS_H
#define HEARTH_CLIENT_FIELDS_H

#include "base/json.h"

/* 0 when it is no number. */
static inline double number(const json *o, const char *key)
{
    return json_double(json_get(o, key, NULL));
}

/* The object's, or `otherwise` when it is no string. */
static inline const char *str_or(const json *o, const char *key, const char *otherwise)
{
    const char *s = json_str(json_get(o, key, NULL));
    return s ? s : otherwise;
}

#endif
