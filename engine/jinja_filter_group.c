/* Filters that make lists of lists: groupby, batch, slice. */
#include <string.h>

#include "engine/jinja_filter.h"

/* (key, items), with .grouper and .list */
static int add_group(struct jinja_run *r, struct jinja_value *groups, const struct jinja_value *key,
                     const struct jinja_value *items)
{
    struct jinja_value pair;
    int rc = jinja_list_make(r, LIST_TUPLE, &pair);
    if (rc == 0)
        rc = jinja_push(r, &pair, key);
    if (rc == 0)
        rc = jinja_push(r, &pair, items);
    if (rc < 0)
        return rc;
    pair.list->is_group = true;
    return jinja_push(r, groups, &pair);
}

static int sorted_copy(struct jinja_run *r, const struct jinja_value *of, const struct jinja_by *by,
                       struct jinja_value *ret)
{
    struct jinja_list *l;
    int rc = jinja_iterate(r, of, &l);
    if (rc == 0)
        rc = jinja_list_make(r, LIST_PLAIN, ret);
    for (size_t i = 0; rc == 0 && i < l->n; i++)
        rc = jinja_push(r, ret, &l->v[i]);
    return rc < 0 ? rc : jinja_sort(r, ret->list, by, false, false);
}

FILTER(filter_groupby)
{
    const struct jinja_value *missing = &args->v[1];
    const bool has_missing = missing->type != JINJA_ABSENT && missing->type != JINJA_NONE;
    const struct jinja_by by = {.attribute = &args->v[0],
                                .missing = has_missing ? missing : NULL,
                                .is_case_sensitive = jinja_is_true(&args->v[2]),
                                .item = -1};
    struct jinja_by own = by; /* what a group is called by: its first item's key as it stands */
    struct jinja_value all, key, last = jinja_none(), name = jinja_none(), items = jinja_none();
    own.is_case_sensitive = true;
    if (args->v[0].type == JINJA_ABSENT)
        return jinja_fail(r, ERR_INVAL, "groupby without an attribute");
    int rc = sorted_copy(r, self, &by, &all);
    if (rc == 0)
        rc = jinja_list_make(r, LIST_PLAIN, ret);
    for (size_t i = 0; rc == 0 && i < all.list->n; i++) {
        bool is_same = false;
        rc = jinja_key_of(r, &all.list->v[i], &by, &key);
        if (rc == 0 && i > 0)
            rc = jinja_equal(r, &last, &key, &is_same);
        if (rc == 0 && !is_same && i > 0)
            rc = add_group(r, ret, &name, &items);
        if (rc == 0 && !is_same)
            rc = jinja_list_make(r, LIST_PLAIN, &items);
        if (rc == 0 && !is_same)
            rc = jinja_key_of(r, &all.list->v[i], &own, &name);
        if (rc == 0)
            rc = jinja_push(r, &items, &all.list->v[i]);
        last = is_same ? last : key;
    }
    return rc == 0 && all.list->n > 0 ? add_group(r, ret, &name, &items) : rc;
}

static int fill(struct jinja_run *r, struct jinja_value *list, const struct jinja_value *with,
                int64_t n)
{
    int rc = 0;
    for (int64_t i = 0; rc == 0 && i < n; i++)
        rc = jinja_push(r, list, with);
    return rc;
}

/* Rows of n items, the last filled up. */
FILTER(filter_batch)
{
    const struct jinja_value *with = &args->v[1];
    struct jinja_list *l;
    struct jinja_value row = jinja_none();
    if (args->v[0].type != JINJA_INT)
        return jinja_fail(r, args->v[0].type == JINJA_ABSENT ? ERR_INVAL : ERR_UNSUPPORTED,
                          "batch by other than a number");
    const int64_t n = args->v[0].i;
    int rc = jinja_iterate(r, self, &l);
    if (rc == 0)
        rc = jinja_list_make(r, LIST_GENERATOR, ret);
    if (rc == 0)
        rc = jinja_list_make(r, LIST_PLAIN, &row);
    for (size_t i = 0; rc == 0 && i < l->n; i++) {
        if ((int64_t)row.list->n == n) {
            rc = jinja_push(r, ret, &row);
            if (rc == 0)
                rc = jinja_list_make(r, LIST_PLAIN, &row);
        }
        if (rc == 0)
            rc = jinja_push(r, &row, &l->v[i]);
    }
    if (rc < 0 || row.list->n == 0)
        return rc;
    if (with->type != JINJA_ABSENT && with->type != JINJA_NONE)
        rc = fill(r, &row, with, n - (int64_t)row.list->n);
    return rc < 0 ? rc : jinja_push(r, ret, &row);
}

/* n columns, the first ones longer by one or the last ones filled up. */
FILTER(filter_slice)
{
    const struct jinja_value *with = &args->v[1];
    const bool has_fill = with->type != JINJA_ABSENT && with->type != JINJA_NONE;
    struct jinja_list *l;
    struct jinja_value column;
    if (args->v[0].type != JINJA_INT)
        return jinja_fail(r, args->v[0].type == JINJA_ABSENT ? ERR_INVAL : ERR_UNSUPPORTED,
                          "slice into other than a number");
    int rc = jinja_iterate(r, self, &l);
    if (rc == 0 && args->v[0].i == 0)
        rc = jinja_fail(r, ERR_INVAL, "slice into 0");
    if (rc == 0)
        rc = jinja_list_make(r, LIST_GENERATOR, ret);
    const size_t n = args->v[0].i > 0 ? (size_t)args->v[0].i : 0;
    for (size_t i = 0, at = 0; rc == 0 && i < n; i++) {
        const size_t len = l->n / n + (i < l->n % n);
        rc = jinja_list_make(r, LIST_PLAIN, &column);
        for (size_t k = 0; rc == 0 && k < len; k++)
            rc = jinja_push(r, &column, &l->v[at++]);
        if (rc == 0 && has_fill && i >= l->n % n)
            rc = jinja_push(r, &column, with);
        if (rc == 0)
            rc = jinja_push(r, ret, &column);
    }
    return rc;
}

static const struct jinja_filter filters[] = {
    {{"groupby", filter_groupby, "attribute,default,case_sensitive"}},
    {{"batch", filter_batch, "linecount,fill_with", true}},
    {{"slice", filter_slice, "slices,fill_with", true}},
};

const struct jinja_filter *jinja_find_group_filter(const struct jinja_str *name)
{
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        if (jinja_str_is(name, filters[i].row.name))
            return &filters[i];
    return NULL;
}
