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
    int rc = jinja_need_hashable(r, &args->v[0]);
    if (rc < 0)
        return rc;
    const struct jinja_value *v = jinja_dict_find(self->dict, &args->v[0]);
    *ret = v ? *v : args->v[1].type == JINJA_ABSENT ? jinja_none() : args->v[1];
    return jinja_step(r, self->dict->n * 8);
}

BUILTIN(list_count)
{
    int64_t n = 0;
    if (args->v[0].type == JINJA_ABSENT)
        return jinja_fail(r, ERR_INVAL, "count of nothing");
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
    if (args->v[0].type == JINJA_ABSENT || args->v[1].type != JINJA_ABSENT)
        return jinja_fail(r, args->v[1].type != JINJA_ABSENT ? ERR_UNSUPPORTED : ERR_INVAL,
                          "index with other than one value");
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

BUILTIN(list_copy)
{
    (void)args;
    int rc = jinja_list_make(r, LIST_PLAIN, ret);
    for (size_t i = 0; rc == 0 && i < self->list->n; i++)
        rc = jinja_push(r, ret, &self->list->v[i]);
    return rc;
}

BUILTIN(dict_copy)
{
    (void)r;
    (void)args;
    *ret = *self; /* nothing can change it, and only `sameas` could tell */
    return 0;
}

/* Without a function: what would change a value, which Jinja2's immutable sandbox takes for
 * something undefined. */
static const struct {
    enum jinja_type type;
    struct jinja_builtin_row row;
} methods[] = {{JINJA_DICT, {"keys", dict_keys, ""}},
               {JINJA_DICT, {"values", dict_values, ""}},
               {JINJA_DICT, {"items", dict_items, ""}},
               {JINJA_DICT, {"get", dict_get, "/key,default"}},
               {JINJA_DICT, {"pop", NULL, NULL}},
               {JINJA_DICT, {"popitem", NULL, NULL}},
               {JINJA_DICT, {"update", NULL, NULL}},
               {JINJA_DICT, {"setdefault", NULL, NULL}},
               {JINJA_DICT, {"clear", NULL, NULL}},
               {JINJA_LIST, {"count", list_count, "/value"}},
               {JINJA_LIST, {"index", list_index, "/value,start,stop"}},
               {JINJA_LIST, {"copy", list_copy, ""}},
               {JINJA_DICT, {"copy", dict_copy, ""}},
               {JINJA_LIST, {"append", NULL, NULL}},
               {JINJA_LIST, {"pop", NULL, NULL}},
               {JINJA_LIST, {"insert", NULL, NULL}},
               {JINJA_LIST, {"extend", NULL, NULL}},
               {JINJA_LIST, {"remove", NULL, NULL}},
               {JINJA_LIST, {"reverse", NULL, NULL}},
               {JINJA_LIST, {"sort", NULL, NULL}},
               {JINJA_LIST, {"clear", NULL, NULL}}};
#define N_METHODS (sizeof methods / sizeof *methods)

bool jinja_is_foreign(const struct jinja_value *v, const struct jinja_str *name)
{
    static const struct {
        enum jinja_type type;
        const char *name;
    } attributes[] = {
        {JINJA_STR, "casefold"},      {JINJA_STR, "encode"},
        {JINJA_STR, "expandtabs"},    {JINJA_STR, "format_map"},
        {JINJA_STR, "isidentifier"},  {JINJA_STR, "isprintable"},
        {JINJA_STR, "maketrans"},     {JINJA_STR, "translate"},
        {JINJA_DICT, "fromkeys"},     {JINJA_LIST, "start"},
        {JINJA_LIST, "stop"},         {JINJA_LIST, "step"},
        {JINJA_LIST, "isdisjoint"},   {JINJA_LIST, "mapping"},
        {JINJA_LIST, "send"},         {JINJA_LIST, "throw"},
        {JINJA_LIST, "close"},        {JINJA_INT, "real"},
        {JINJA_INT, "imag"},          {JINJA_INT, "numerator"},
        {JINJA_INT, "denominator"},   {JINJA_INT, "conjugate"},
        {JINJA_INT, "bit_length"},    {JINJA_INT, "bit_count"},
        {JINJA_INT, "to_bytes"},      {JINJA_INT, "from_bytes"},
        {JINJA_INT, "is_integer"},    {JINJA_INT, "as_integer_ratio"},
        {JINJA_INT, "hex"},           {JINJA_INT, "fromhex"}};
    const bool is_number = jinja_is_int(v) || v->type == JINJA_FLOAT;
    const enum jinja_type type = is_number ? JINJA_INT : v->type;
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        if (attributes[i].type == type && jinja_str_is(name, attributes[i].name))
            return true;
    return type == JINJA_FUNCTION || (name->n > 1 && name->s[0] == '_' && name->s[1] == '_');
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
