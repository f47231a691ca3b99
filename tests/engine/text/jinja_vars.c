/* See jinja_vars.h. */
#include "tests/engine/text/jinja_vars.h"

#include <string.h>

/* JSON is at most JSON_DEPTH_MAX deep. */
struct jinja_value jinja_vars_of(struct arena *a, const json *j)
{
    struct jinja_value v = jinja_none(), item;
    enum json_type t = json_type(j);
    double f = json_double(j);
    int rc = 0;
    if (t == JSON_BOOL)
        return jinja_bool(json_bool(j));
    if (t == JSON_NUMBER && f > -1e15 && f < 1e15 && f == (double)(int64_t)f)
        return jinja_int((int64_t)f);
    if (t == JSON_NUMBER)
        return (struct jinja_value){.type = JINJA_FLOAT, .f = f};
    if (t == JSON_STRING)
        return jinja_text(json_str(j), strlen(json_str(j)));
    if (t == JSON_ARRAY)
        rc = jinja_list_new(a, &v);
    if (t == JSON_OBJECT)
        rc = jinja_dict_new(a, &v);
    for (const json *i = t >= JSON_ARRAY ? json_first(j) : NULL; i && rc == 0; i = json_next(i)) {
        item = jinja_vars_of(a, i);
        rc = t == JSON_ARRAY ? jinja_list_add(a, &v, &item)
                             : jinja_dict_set(a, &v, json_key(i), &item);
    }
    return rc < 0 ? jinja_none() : v;
}
