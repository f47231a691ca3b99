/*
 * Jinja2's lookups: x.name is an attribute first (a dict's method hides its key), x[key] an item
 * first; slices.
 */
#include <string.h>

#include "engine/jinja_impl.h"

/* The index of a list or string of n that i means, or -1. */
static int64_t index_of(int64_t i, size_t n)
{
    i += i < 0 ? (int64_t)n : 0;
    return i >= 0 && i < (int64_t)n ? i : -1;
}

static size_t char_offset(const struct jinja_str *s, int64_t i)
{
    size_t at = 0;
    for (; i > 0 && at < s->n; i--)
        at += jinja_char_len(s->s + at, s->n - at);
    return at;
}

/* Methods that MarkupSafe has its own of, beyond giving its own type again. */
static bool is_markup_own(const struct jinja_str *name)
{
    static const char *const names[] = {"split",  "rsplit", "splitlines",   "join",  "replace",
                                        "format", "title",  "removeprefix", "removesuffix"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (jinja_str_is(name, names[i]))
            return true;
    return false;
}

static int method(struct jinja_run *r, const struct jinja_value *v, const struct jinja_str *name,
                  struct jinja_value *ret)
{
    const struct jinja_builtin_row *row = jinja_find_method(v->type, name);
    const enum jinja_list_kind kind = v->type == JINJA_LIST ? v->list->kind : LIST_PLAIN;
    if (row && kind != LIST_PLAIN &&
        (kind > LIST_RANGE || (!jinja_str_is(name, "count") && !jinja_str_is(name, "index"))))
        row = NULL; /* a tuple and a range have these two */
    if (row && !row->run) { /* Jinja2's immutable sandbox: it would change the value */
        *ret = jinja_undefined(name->s);
        return 0;
    }
    if (!row) {
        *ret = jinja_undefined(name->s);
        bool is_foreign = jinja_is_foreign(v, name) &&
                          !(v->type == JINJA_DICT && jinja_dict_find_str(v->dict, name));
        return is_foreign ? jinja_fail(r, ERR_UNSUPPORTED, "the attribute \"%.40s\" of %s", name->s,
                                       jinja_type_name(v))
                          : 0;
    }
    if (v->is_markup && is_markup_own(name))
        return jinja_fail(r, ERR_UNSUPPORTED, "%.40s of what safe or escape gave", name->s);
    struct jinja_function *f = arena_alloc(r->arena, sizeof *f);
    if (!f)
        return jinja_nomem(r);
    *f = (struct jinja_function){.name = row->name, .builtin = row->run, .self = *v};
    f->row = row;
    *ret = (struct jinja_value){.type = JINJA_FUNCTION, .function = f};
    return 0;
}

int jinja_attribute(struct jinja_run *r, const struct jinja_value *v, const struct jinja_str *name,
                    struct jinja_value *ret)
{
    if (v->type == JINJA_UNDEFINED && name->n > 1 && memcmp(name->s, "__", 2) == 0)
        return jinja_fail(r, ERR_UNSUPPORTED, "the attribute \"%.40s\"", name->s);
    if (v->type == JINJA_UNDEFINED)
        return jinja_fail_undefined(r, v);
    if (v->type == JINJA_LIST && v->list->is_group &&
        (jinja_str_is(name, "grouper") || jinja_str_is(name, "list"))) {
        *ret = v->list->v[name->s[0] == 'l'];
        return 0;
    }
    int rc = v->type == JINJA_NAMESPACE ? 0 : method(r, v, name, ret);
    if (rc == 0 && v->type == JINJA_LOOP)
        return jinja_loop_attribute(r, v, name, ret);
    /* a method that would change the dict hides its key too */
    bool is_there = v->type != JINJA_NAMESPACE && (rc < 0 || ret->type != JINJA_UNDEFINED ||
                                                   jinja_find_method(v->type, name) != NULL);
    if (is_there || (v->type != JINJA_DICT && v->type != JINJA_NAMESPACE))
        return rc;
    const struct jinja_value *item = jinja_dict_find_str(v->dict, name);
    const bool is_hidden = v->type == JINJA_NAMESPACE && name->n > 0 && name->s[0] == '_';
    *ret = item && !is_hidden ? *item : jinja_undefined(name->s);
    r->n_reads += v->type == JINJA_NAMESPACE;
    return jinja_step(r, v->dict->n * 8);
}

int jinja_getattr(struct jinja_run *r, const struct jinja_value *v, const struct jinja_str *name,
                  struct jinja_value *ret)
{
    if (v->type != JINJA_DICT)
        return jinja_attribute(r, v, name, ret);
    if (jinja_is_foreign(v, name))
        return jinja_fail(r, ERR_UNSUPPORTED, "the attribute \"%.40s\" of a dict", name->s);
    return method(r, v, name, ret);
}

int jinja_item(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value *key,
               struct jinja_value *ret)
{
    if (v->type == JINJA_UNDEFINED)
        return jinja_fail_undefined(r, v);
    *ret = jinja_undefined(key->type == JINJA_STR ? key->str.s : "an item");
    if (v->type == JINJA_DICT) {
        const struct jinja_value *item = jinja_dict_find(v->dict, key);
        int rc = jinja_step(r, v->dict->n * 8);
        if (rc < 0 || item) {
            *ret = item ? *item : *ret;
            return rc;
        }
    } else if (v->type == JINJA_LIST && v->list->kind <= LIST_RANGE && jinja_is_int(key)) {
        int64_t i = index_of(jinja_int_of(key), v->list->n);
        *ret = i >= 0 ? v->list->v[i] : *ret;
    } else if (v->type == JINJA_STR && jinja_is_int(key)) {
        int64_t i = index_of(jinja_int_of(key), jinja_n_chars(&v->str));
        if (i >= 0) {
            size_t at = char_offset(&v->str, i);
            struct jinja_str s =
                jinja_sub(&v->str, at, jinja_char_len(v->str.s + at, v->str.n - at));
            *ret = jinja_of_str(&s);
            ret->is_markup = v->is_markup;
        }
        return jinja_step(r, v->str.n);
    }
    if (key->type != JINJA_STR)
        return 0;
    char *name = arena_copy(r->arena, key->str.s, key->str.n);
    struct jinja_str s = {.s = name, .n = key->str.n};
    if (!name)
        return jinja_nomem(r);
    return v->type == JINJA_DICT ? method(r, v, &s, ret) : jinja_attribute(r, v, &s, ret);
}

/* from, to and step as Python reads a slice of n things. */
static int slice_bounds(struct jinja_run *r, const struct jinja_value v[3], size_t n,
                        int64_t ret[3])
{
    for (int i = 0; i < 3; i++)
        if (v[i].type != JINJA_NONE && !jinja_is_int(&v[i]))
            return jinja_fail(r, ERR_INVAL, "a slice by %s", jinja_type_name(&v[i]));
    int64_t step = v[2].type == JINJA_NONE ? 1 : jinja_int_of(&v[2]), len = (int64_t)n;
    if (step == 0)
        return jinja_fail(r, ERR_INVAL, "slice step cannot be zero");
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? len - 1 : len;
    ret[2] = step;
    for (int i = 0; i < 2; i++) {
        bool is_open = v[i].type == JINJA_NONE;
        int64_t at = is_open ? 0 : jinja_int_of(&v[i]);
        if (!is_open && at < 0)
            at = at < -len ? low : at + len < low ? low : at + len;
        else if (at > high)
            at = high;
        ret[i] = !is_open ? at : (i == 0) == (step > 0) ? low : high;
    }
    return 0;
}

static int slice_str(struct jinja_run *r, const struct jinja_str *s, const int64_t b[3],
                     struct jinja_value *ret)
{
    struct jinja_text t = {.r = r};
    if (b[2] == 1) {
        size_t from = char_offset(s, b[0]), to = b[1] > b[0] ? char_offset(s, b[1]) : from;
        struct jinja_str sub = jinja_sub(s, from, to - from);
        *ret = jinja_of_str(&sub);
        return jinja_step(r, s->n);
    }
    size_t n = jinja_n_chars(s), *at = arena_array(r->arena, n + 1, sizeof *at);
    if (!at)
        return jinja_nomem(r);
    for (size_t i = 0, k = 0; i < s->n; i += jinja_char_len(s->s + i, s->n - i))
        at[k++] = i;
    at[n] = s->n;
    int rc = 0;
    for (int64_t i = b[0]; rc == 0 && (b[2] > 0 ? i < b[1] : i > b[1]); i += b[2]) {
        struct jinja_str c = jinja_sub(s, at[i], at[i + 1] - at[i]);
        rc = jinja_text_add(&t, &c);
    }
    struct jinja_str made = jinja_text_str(&t);
    *ret = jinja_of_str(&made);
    return rc;
}

int jinja_slice(struct jinja_run *r, const struct jinja_node *x, struct jinja_value *ret)
{
    struct jinja_value of, v[3];
    int64_t b[3];
    int rc = jinja_eval(r, x->a, &of);
    for (int i = 0; rc == 0 && i < 3; i++) {
        v[i] = jinja_none();
        rc = x->v[i] ? jinja_eval(r, x->v[i], &v[i]) : 0;
    }
    if (rc < 0)
        return rc;
    if (of.type == JINJA_UNDEFINED)
        return jinja_fail_undefined(r, &of);
    bool is_list = of.type == JINJA_LIST && of.list->kind <= LIST_RANGE;
    if (of.type != JINJA_STR && !is_list)
        return jinja_fail(r, ERR_UNSUPPORTED, "a slice of %s", /* undefined if it's a constant */
                          jinja_type_name(&of));
    rc = slice_bounds(r, v, is_list ? of.list->n : jinja_n_chars(&of.str), b);
    if (rc == 0 && !is_list) {
        rc = slice_str(r, &of.str, b, ret);
        ret->is_markup = of.is_markup;
        return rc;
    }
    rc = rc == 0 ? jinja_list_make(r, of.list->kind, ret) : rc;
    for (int64_t i = b[0]; rc == 0 && (b[2] > 0 ? i < b[1] : i > b[1]); i += b[2])
        rc = jinja_push(r, ret, &of.list->v[i]);
    return rc;
}
