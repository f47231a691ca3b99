/* Methods of lists and dicts; which names are methods at all. */
#include <string.h>

#include "engine/jinja_impl.h"

static int view(struct jinja_run *r, const struct jinja_dict *d, int what, struct jinja_value *ret)
{
    int rc = jinja_list_make(r, LIST_VIEW, ret);
    for (size_t i = 0; rc == 0 && i < d->n; i++) {
        struct jinja_value pair = what == 'k' ? d->v[i].key : d->v[i].value;
        if (what == 'i') {
            rc = jinja_list_make(r, LIST_TUPLE, &pair);
            if (rc == 0)
                rc = jinja_push(r, &pair, &d->v[i].key);
            if (rc == 0)
                rc = jinja_push(r, &pair, &d->v[i].value);
        }
        if (rc == 0)
            rc = jinja_push(r, ret, &pair);
    }
    return rc;
}

BUILTIN(dict_keys)
{
    (void)args;
    return view(r, self->dict, 'k', ret);
}

BUILTIN(dict_values)
{
    (void)args;
    return view(r, self->dict, 'v', ret);
}

BUILTIN(dict_items)
{
    (void)args;
    return view(r, self->dict, 'i', ret);
}

BUILTIN(dict_get)
{
    if (args->v[0].type == JINJA_ABSENT)
        return jinja_fail(r, ERR_INVAL, "get without a key");
    const struct jinja_value *v = jinja_dict_find(self->dict, &args->v[0]);
    *ret = v ? *v : args->v[1].type == JINJA_ABSENT ? jinja_none() : args->v[1];
    return jinja_step(r, self->dict->n * 8);
}

BUILTIN(list_count)
{
    int64_t n = 0;
    for (size_t i = 0; i < self->list->n; i++) {
        bool is;
        int rc = jinja_equal(r, &self->list->v[i], &args->v[0], &is);
        if (rc < 0)
            return rc;
        n += is;
    }
    *ret = jinja_int(n);
    return 0;
}

BUILTIN(list_index)
{
    for (size_t i = 0; i < self->list->n; i++) {
        bool is;
        int rc = jinja_equal(r, &self->list->v[i], &args->v[0], &is);
        if (rc < 0)
            return rc;
        if (is) {
            *ret = jinja_int((int64_t)i);
            return 0;
        }
    }
    return jinja_fail(r, ERR_INVAL, "the list doesn't hold it");
}

/* What would change a value: Jinja2's immutable sandbox forbids it. */
BUILTIN(forbidden)
{
    (void)self;
    (void)args;
    (void)ret;
    return jinja_fail(r, ERR_INVAL, "changing a list or dict is not allowed in a template");
}

static const struct {
    enum jinja_type type;
    struct jinja_builtin_row row;
} methods[] = {{JINJA_DICT, {"keys", dict_keys, ""}},
               {JINJA_DICT, {"values", dict_values, ""}},
               {JINJA_DICT, {"items", dict_items, ""}},
               {JINJA_DICT, {"get", dict_get, "key,default"}},
               {JINJA_DICT, {"pop", forbidden, NULL}},
               {JINJA_DICT, {"popitem", forbidden, NULL}},
               {JINJA_DICT, {"update", forbidden, NULL}},
               {JINJA_DICT, {"setdefault", forbidden, NULL}},
               {JINJA_DICT, {"clear", forbidden, NULL}},
               {JINJA_LIST, {"count", list_count, "value"}},
               {JINJA_LIST, {"index", list_index, "value"}},
               {JINJA_LIST, {"append", forbidden, NULL}},
               {JINJA_LIST, {"pop", forbidden, NULL}},
               {JINJA_LIST, {"insert", forbidden, NULL}},
               {JINJA_LIST, {"extend", forbidden, NULL}},
               {JINJA_LIST, {"remove", forbidden, NULL}},
               {JINJA_LIST, {"reverse", forbidden, NULL}},
               {JINJA_LIST, {"sort", forbidden, NULL}},
               {JINJA_LIST, {"clear", forbidden, NULL}}};
#define N_METHODS (sizeof methods / sizeof *methods)

/* What Python's own types have beside these: never taken for something undefined. */
bool jinja_is_foreign(const struct jinja_str *name)
{
    static const char *const names[] = {"casefold",    "center",
                                        "encode",      "expandtabs",
                                        "format_map",  "isascii",
                                        "isdecimal",   "isidentifier",
                                        "islower",     "isnumeric",
                                        "isprintable", "istitle",
                                        "isupper",     "ljust",
                                        "maketrans",   "partition",
                                        "rindex",      "rjust",
                                        "rpartition",  "swapcase",
                                        "translate",   "zfill",
                                        "copy",        "fromkeys",
                                        "real",        "imag",
                                        "numerator",   "denominator",
                                        "conjugate",   "bit_length",
                                        "bit_count",   "to_bytes",
                                        "from_bytes",  "as_integer_ratio",
                                        "is_integer",  "hex",
                                        "fromhex",     "index"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (jinja_str_is(name, names[i]))
            return true;
    return name->n > 1 && name->s[0] == '_' && name->s[1] == '_';
}

bool jinja_is_method(const struct jinja_str *name)
{
    for (size_t i = 0; i < N_METHODS; i++)
        if (jinja_str_is(name, methods[i].row.name))
            return true;
    return jinja_find_str_method(name) != NULL;
}

const struct jinja_builtin_row *jinja_find_method(enum jinja_type type,
                                                  const struct jinja_str *name)
{
    if (type == JINJA_STR)
        return jinja_find_str_method(name);
    for (size_t i = 0; i < N_METHODS; i++)
        if (methods[i].type == type && jinja_str_is(name, methods[i].row.name))
            return &methods[i].row;
    return NULL;
}
