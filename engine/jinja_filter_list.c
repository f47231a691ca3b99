/* Filters of lists. What is a generator in Jinja2 is one here: it can be used once. */
#include <stdlib.h>
#include <string.h>

#include "engine/jinja_filter.h"

/* "a.b" of v, as filters take attributes: items first. missing stands for what is undefined on the
 * way; NULL: nothing does. */
static int attribute_of(struct jinja_run *r, const struct jinja_value *v,
                        const struct jinja_value *path, const struct jinja_value *missing,
                        struct jinja_value *ret)
{
    const bool is_str = path->type == JINJA_STR;
    int rc = 0;
    *ret = *v;
    for (size_t i = 0; rc == 0 && i <= (is_str ? path->str.n : 0);) {
        const char *dot = is_str ? memchr(path->str.s + i, '.', path->str.n - i) : NULL;
        size_t n = !is_str ? 0 : dot ? (size_t)(dot - path->str.s) - i : path->str.n - i;
        char *name = arena_copy(r->arena, is_str ? path->str.s + i : "", n);
        struct jinja_value of = *ret, key = is_str ? jinja_text(name, n) : *path;
        if (name && n > 0 && n < 18 && strspn(name, "0123456789") == n)
            key = jinja_int(strtoll(name, NULL, 10));
        rc = name ? jinja_item(r, &of, &key, ret) : jinja_nomem(r);
        if (rc == 0 && missing && ret->type == JINJA_UNDEFINED)
            *ret = *missing;
        i += n + 1;
    }
    return rc;
}

static bool has(const struct jinja_value *v)
{
    return v->type != JINJA_ABSENT && v->type != JINJA_NONE;
}

FILTER(filter_join)
{
    struct jinja_list *l;
    struct jinja_text t = {.r = r};
    struct jinja_str s, between = {.s = ""};
    int rc = jinja_iterate(r, self, &l);
    if (rc == 0 && args->v[0].type != JINJA_ABSENT)
        rc = jinja_to_str(r, &args->v[0], &between); /* "None" for none, as Jinja2 has it */
    for (size_t i = 0; rc == 0 && i < l->n; i++) {
        struct jinja_value v = l->v[i];
        if (has(&args->v[1]))
            rc = attribute_of(r, &l->v[i], &args->v[1], NULL, &v);
        if (rc == 0 && i > 0)
            rc = jinja_text_add(&t, &between);
        if (rc == 0)
            rc = jinja_to_str(r, &v, &s);
        if (rc == 0)
            rc = jinja_text_add(&t, &s);
    }
    s = jinja_text_str(&t);
    *ret = jinja_of_str(&s);
    return rc;
}

FILTER(filter_first)
{
    (void)args;
    struct jinja_list *l;
    if (self->type == JINJA_LIST && self->list->late)
        return jinja_fail(r, ERR_UNSUPPORTED, "the first of what fails");
    int rc = jinja_iterate(r, self, &l);
    if (rc == 0)
        *ret = l->n > 0 ? l->v[0] : jinja_undefined("No first item, sequence was empty.");
    return rc;
}

FILTER(filter_last)
{
    (void)args;
    struct jinja_list *l;
    if (self->type == JINJA_LIST && self->list->kind == LIST_GENERATOR)
        return jinja_fail(r, ERR_INVAL, "last of a generator");
    int rc = jinja_iterate(r, self, &l);
    if (rc == 0)
        *ret = l->n > 0 ? l->v[l->n - 1] : jinja_undefined("No last item, sequence was empty.");
    return rc;
}

static int copy(struct jinja_run *r, const struct jinja_value *self, enum jinja_list_kind kind,
                struct jinja_value *ret)
{
    struct jinja_list *l;
    int rc = jinja_iterate(r, self, &l);
    if (rc == 0)
        rc = jinja_list_make(r, kind, ret);
    for (size_t i = 0; rc == 0 && i < l->n; i++)
        rc = jinja_push(r, ret, &l->v[i]);
    return rc;
}

FILTER(filter_list)
{
    (void)args;
    return copy(r, self, LIST_PLAIN, ret);
}

FILTER(filter_reverse)
{
    (void)args;
    struct jinja_list *l;
    struct jinja_text t = {.r = r};
    const bool is_generator = self->type == JINJA_LIST && self->list->kind == LIST_GENERATOR;
    int rc = jinja_iterate(r, self, &l);
    if (rc == 0)
        rc = jinja_list_make(r, is_generator ? LIST_PLAIN : LIST_GENERATOR, ret);
    for (size_t i = rc == 0 ? l->n : 0; rc == 0 && i > 0; i--)
        rc = self->type == JINJA_STR ? jinja_text_add(&t, &l->v[i - 1].str)
                                     : jinja_push(r, ret, &l->v[i - 1]);
    struct jinja_str s = jinja_text_str(&t);
    if (self->type == JINJA_STR)
        *ret = jinja_of_str(&s);
    ret->is_markup = self->is_markup;
    return rc;
}

FILTER(filter_items)
{
    static const struct jinja_str name = {.s = "items", .n = 5};
    if (self->type == JINJA_UNDEFINED)
        return jinja_list_make(r, LIST_GENERATOR, ret);
    if (self->type != JINJA_DICT)
        return jinja_fail(r, ERR_INVAL, "items of %s", jinja_type_name(self));
    int rc = jinja_run_row(r, jinja_find_method(JINJA_DICT, &name), self, args, ret);
    if (rc == 0)
        ret->list->kind = LIST_GENERATOR;
    return rc;
}

int jinja_key_of(struct jinja_run *r, const struct jinja_value *v, const struct jinja_by *by,
                 struct jinja_value *ret)
{
    *ret = by->item >= 0 ? v->list->v[by->item] : *v;
    int rc = 0;
    if (by->attribute && has(by->attribute))
        rc = attribute_of(r, v, by->attribute, by->missing, ret);
    if (rc == 0 && ret->type == JINJA_STR && !by->is_case_sensitive)
        rc = jinja_case(r, &ret->str, 'l', &ret->str);
    return rc;
}

/* By insertion: lists in templates are short, and steps are counted. */
int jinja_sort(struct jinja_run *r, struct jinja_list *l, const struct jinja_by *by,
               bool is_reverse, bool is_listed)
{
    struct jinja_value *keys = arena_array(r->arena, l->n + 1, sizeof *keys);
    int rc = keys ? 0 : jinja_nomem(r);
    for (size_t i = 0; rc == 0 && i < l->n; i++) {
        struct jinja_value v = l->v[i], key;
        size_t k = i;
        rc = jinja_key_of(r, &v, by, &key);
        for (; rc == 0 && k > 0; k--) {
            bool is_same = false;
            int c = 0;
            if (is_listed)
                rc = jinja_equal(r, &keys[k - 1], &key, &is_same);
            if (rc == 0 && !is_same)
                rc = jinja_order(r, &keys[k - 1], &key, &c);
            if (rc < 0 || (is_reverse ? c >= 0 : c <= 0))
                break;
            keys[k] = keys[k - 1];
            l->v[k] = l->v[k - 1];
        }
        keys[k] = key;
        l->v[k] = v;
    }
    return rc;
}

bool jinja_is_true(const struct jinja_value *v)
{
    return v->type != JINJA_ABSENT && jinja_truth(v);
}

int jinja_need_flag(struct jinja_run *r, const struct jinja_value *v)
{
    return v->type == JINJA_ABSENT || v->type == JINJA_BOOL || v->type == JINJA_INT
               ? 0
               : jinja_fail(r, ERR_UNSUPPORTED, "%s where true or false is asked for",
                            jinja_type_name(v));
}

/* By one attribute of several: "a,b" is sorted by b, then by a, as stable sorts allow. */
static int sort_by_all(struct jinja_run *r, struct jinja_list *l, struct jinja_by *by,
                       bool is_reverse)
{
    const struct jinja_value *all = by->attribute;
    if (!has(all) || all->type != JINJA_STR || !memchr(all->str.s, ',', all->str.n))
        return jinja_sort(r, l, by, is_reverse, true);
    int rc = 0;
    for (size_t end = all->str.n + 1, from; rc == 0 && end > 0; end = from) {
        for (from = end - 1; from > 0 && all->str.s[from - 1] != ',';)
            from--;
        const struct jinja_value one = jinja_text(all->str.s + from, end - 1 - from);
        by->attribute = &one;
        rc = jinja_sort(r, l, by, is_reverse, true);
    }
    /* where the first attributes differ Jinja2 doesn't look at the others */
    return rc == ERR_INVAL ? jinja_fail(r, ERR_UNSUPPORTED, "several attributes that have no order")
                           : rc;
}

FILTER(filter_sort)
{
    struct jinja_by by = {
        .attribute = &args->v[2], .is_case_sensitive = jinja_is_true(&args->v[1]), .item = -1};
    int rc = jinja_need_flag(r, &args->v[0]);
    if (rc == 0)
        rc = copy(r, self, LIST_PLAIN, ret);
    return rc < 0 ? rc : sort_by_all(r, ret->list, &by, jinja_is_true(&args->v[0]));
}

FILTER(filter_dictsort)
{
    const bool is_str = args->v[1].type == JINJA_STR;
    const bool by_value = is_str && jinja_str_is(&args->v[1].str, "value"),
               by_key = is_str && jinja_str_is(&args->v[1].str, "key");
    struct jinja_by by = {.is_case_sensitive = jinja_is_true(&args->v[0]), .item = by_value};
    struct jinja_args none = {.n = 0};
    struct jinja_value items;
    if (self->type != JINJA_DICT || (args->v[1].type != JINJA_ABSENT && !by_value && !by_key))
        return jinja_fail(r, ERR_INVAL, "dictsort of %s, or by other than key or value",
                          jinja_type_name(self));
    int rc = jinja_need_flag(r, &args->v[2]);
    if (rc == 0)
        rc = filter_items(r, self, &none, &items);
    if (rc == 0)
        rc = copy(r, &items, LIST_PLAIN, ret);
    return rc < 0 ? rc : jinja_sort(r, ret->list, &by, jinja_is_true(&args->v[2]), false);
}

FILTER(filter_unique)
{
    struct jinja_by by = {
        .attribute = &args->v[1], .is_case_sensitive = jinja_is_true(&args->v[0]), .item = -1};
    struct jinja_list *l;
    struct jinja_value seen, key;
    int rc = jinja_iterate(r, self, &l);
    if (rc == 0)
        rc = jinja_list_make(r, LIST_GENERATOR, ret);
    if (rc == 0)
        rc = jinja_list_make(r, LIST_PLAIN, &seen);
    for (size_t i = 0; rc == 0 && i < l->n; i++) {
        bool is_seen = false;
        rc = jinja_key_of(r, &l->v[i], &by, &key);
        if (rc == 0)
            rc = jinja_need_hashable(r, &key);
        if (rc == 0)
            rc = jinja_contains(r, &seen, &key, &is_seen);
        if (rc == 0 && !is_seen && (rc = jinja_push(r, &seen, &key)) == 0)
            rc = jinja_push(r, ret, &l->v[i]);
    }
    return rc;
}

static int extreme(struct jinja_run *r, const struct jinja_value *self, struct jinja_args *args,
                   int sign, struct jinja_value *ret)
{
    struct jinja_by by = {
        .attribute = &args->v[1], .is_case_sensitive = jinja_is_true(&args->v[0]), .item = -1};
    struct jinja_list *l;
    struct jinja_value key, best = jinja_none();
    int c = 0, rc = jinja_iterate(r, self, &l);
    *ret = jinja_undefined("No aggregated item, sequence was empty.");
    for (size_t i = 0; rc == 0 && i < l->n; i++) {
        rc = jinja_key_of(r, &l->v[i], &by, &key);
        if (rc == 0 && i > 0)
            rc = jinja_order(r, &key, &best, &c);
        if (i > 0 && c * sign <= 0)
            continue;
        best = key;
        *ret = l->v[i];
    }
    return rc;
}

FILTER(filter_min)
{
    return extreme(r, self, args, -1, ret);
}

FILTER(filter_max)
{
    return extreme(r, self, args, 1, ret);
}

FILTER(filter_sum)
{
    struct jinja_list *l;
    struct jinja_value v[2] = {args->v[1].type != JINJA_ABSENT ? args->v[1] : jinja_int(0)};
    if (v[0].type == JINJA_STR)
        return jinja_fail(r, ERR_INVAL, "sum() can't sum strings");
    int rc = jinja_iterate(r, self, &l);
    for (size_t i = 0; rc == 0 && i < l->n; i++) {
        v[1] = l->v[i];
        if (has(&args->v[0]))
            rc = attribute_of(r, &l->v[i], &args->v[0], NULL, &v[1]);
        struct jinja_value sum;
        if (rc == 0 && (rc = jinja_binary(r, '+', v, &sum)) == 0)
            v[0] = sum;
    }
    *ret = v[0];
    return rc;
}

FILTER(filter_wordcount)
{
    (void)args;
    struct jinja_str s;
    int64_t n = 0;
    int rc = jinja_to_str(r, self, &s);
    for (size_t i = 0; rc == 0 && i < s.n; i++) {
        if ((unsigned char)s.s[i] >= 0x80)
            return jinja_fail(r, ERR_UNSUPPORTED, "wordcount of letters that aren't ASCII");
        char c = s.s[i], before = i > 0 ? s.s[i - 1] : ' ';
        bool is = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_';
        bool was = (before >= '0' && before <= '9') ||
                   ((before | 32) >= 'a' && (before | 32) <= 'z') || before == '_';
        n += is && !was;
    }
    *ret = jinja_int(n);
    return rc;
}

/* The arguments from `skip` on, for the filter or test that is named before them. */
static struct jinja_args *rest(struct jinja_run *r, const struct jinja_args *from, size_t skip)
{
    struct jinja_args *args = arena_alloc(r->arena, sizeof *args);
    if (!args)
        return NULL;
    *args = *from;
    args->n = from->n - skip;
    memmove(args->v, args->v + skip, args->n * sizeof *args->v);
    return args;
}

static int map_one(struct jinja_run *r, const struct jinja_value *v, const struct jinja_args *args,
                   struct jinja_value *ret)
{
    if (args->n == 0) {
        const bool is_second = !jinja_str_is(&args->names[0], "attribute");
        const struct jinja_value *missing = &args->named[!is_second];
        const bool has_missing = args->n_named == 2 && missing->type != JINJA_NONE;
        const struct jinja_value *path = &args->named[is_second];
        *ret = *v;
        return path->type == JINJA_NONE
                   ? 0
                   : attribute_of(r, v, path, has_missing ? missing : NULL, ret);
    }
    const struct jinja_filter *f =
        args->v[0].type == JINJA_STR ? jinja_find_filter(&args->v[0].str) : NULL;
    struct jinja_args *behind = f ? rest(r, args, 1) : NULL;
    if (!f)
        return jinja_fail(r, ERR_UNSUPPORTED, "map with a filter that isn't known");
    return behind ? jinja_run_row(r, &f->row, v, behind, ret) : jinja_nomem(r);
}

FILTER(filter_map)
{
    struct jinja_list *l;
    struct jinja_value v;
    bool is_attribute = args->n == 0 && args->n_named >= 1 && args->n_named <= 2 &&
                        (jinja_str_is(&args->names[0], "attribute")
                             ? args->n_named == 1 || jinja_str_is(&args->names[1], "default")
                             : args->n_named == 2 && jinja_str_is(&args->names[0], "default") &&
                                   jinja_str_is(&args->names[1], "attribute"));
    if (!jinja_truth(self))
        return jinja_list_make(r, LIST_GENERATOR, ret); /* `if value:` comes first in Jinja2 */
    if (args->n == 0 && !is_attribute)
        return jinja_fail(r, ERR_INVAL, "map requires a filter argument");
    int rc = jinja_iterate(r, self, &l);
    if (rc == 0)
        rc = jinja_list_make(r, LIST_GENERATOR, ret);
    for (size_t i = 0; rc == 0 && i < l->n; i++)
        if ((rc = map_one(r, &l->v[i], args, &v)) == 0)
            rc = jinja_push(r, ret, &v);
    return rc;
}

/* select, reject, selectattr, rejectattr. */
static int choose(struct jinja_run *r, const struct jinja_value *self, struct jinja_args *args,
                  int how, struct jinja_value *ret)
{
    const bool is_reject = how & 1, by_attribute = how & 2;
    const size_t skip = by_attribute ? 1 : 0;
    const struct jinja_test *test = NULL;
    struct jinja_list *l;
    if (!jinja_truth(self))
        return jinja_list_make(r, LIST_GENERATOR, ret);
    if (by_attribute && args->n == 0)
        return jinja_fail(r, ERR_INVAL, "selectattr without an attribute");
    if (args->n > skip) {
        static const struct {
            const char *op, *name;
        } ops[] = {{"==", "eq"}, {"!=", "ne"}, {"<", "lt"},
                   {"<=", "le"}, {">", "gt"},  {">=", "ge"}};
        struct jinja_str name =
            args->v[skip].type == JINJA_STR ? args->v[skip].str : (struct jinja_str){.s = ""};
        for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
            if (jinja_str_is(&name, ops[i].op))
                name = (struct jinja_str){.s = ops[i].name, .n = 2};
        test = jinja_find_test(&name);
        if (!test)
            return jinja_fail(r, ERR_UNSUPPORTED, "select with a test that isn't known");
    }
    int rc = jinja_iterate(r, self, &l);
    if (rc == 0)
        rc = jinja_list_make(r, LIST_GENERATOR, ret);
    for (size_t i = 0; rc == 0 && i < l->n; i++) {
        struct jinja_value v = l->v[i], is;
        if (by_attribute)
            rc = attribute_of(r, &l->v[i], &args->v[0], NULL, &v);
        is = v;
        struct jinja_args *behind = test ? rest(r, args, skip + 1) : NULL;
        if (rc == 0 && test)
            rc = behind ? jinja_run_row(r, &test->row, &v, behind, &is) : jinja_nomem(r);
        if (rc == 0 && jinja_truth(&is) != is_reject)
            rc = jinja_push(r, ret, &l->v[i]);
    }
    return rc;
}

FILTER(filter_select)
{
    return choose(r, self, args, 0, ret);
}

FILTER(filter_reject)
{
    return choose(r, self, args, 1, ret);
}

FILTER(filter_selectattr)
{
    return choose(r, self, args, 2, ret);
}

FILTER(filter_rejectattr)
{
    return choose(r, self, args, 3, ret);
}

FILTER(filter_attr)
{
    if (args->v[0].type == JINJA_ABSENT)
        return jinja_fail(r, ERR_INVAL, "attr without a name");
    if (args->v[0].type != JINJA_STR)
        return jinja_fail(r, ERR_UNSUPPORTED, "attr by %s", jinja_type_name(&args->v[0]));
    return jinja_getattr(r, self, &args->v[0].str, ret);
}

static const struct jinja_filter filters[] = {
    {{"join", filter_join, "d,attribute"}},
    {{"first", filter_first, ""}},
    {{"last", filter_last, ""}},
    {{"list", filter_list, ""}},
    {{"reverse", filter_reverse, ""}},
    {{"items", filter_items, "", true}},
    {{"sort", filter_sort, "reverse,case_sensitive,attribute"}},
    {{"dictsort", filter_dictsort, "case_sensitive,by,reverse"}},
    {{"unique", filter_unique, "case_sensitive,attribute", true}},
    {{"min", filter_min, "case_sensitive,attribute"}},
    {{"max", filter_max, "case_sensitive,attribute"}},
    {{"sum", filter_sum, "attribute,start"}},
    {{"wordcount", filter_wordcount, ""}},
    {{"attr", filter_attr, "name"}},
    {{"map", filter_map, NULL, true}},
    {{"select", filter_select, NULL, true}},
    {{"reject", filter_reject, NULL, true}},
    {{"selectattr", filter_selectattr, NULL, true}},
    {{"rejectattr", filter_rejectattr, NULL, true}},
};

const struct jinja_filter *jinja_find_list_filter(const struct jinja_str *name)
{
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        if (jinja_str_is(name, filters[i].row.name))
            return &filters[i];
    return jinja_find_group_filter(name);
}
