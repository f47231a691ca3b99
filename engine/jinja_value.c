/* Values of a template: making, comparing, printing them, as Python does. */
#include <stdio.h>
#include <string.h>

#include "engine/jinja_impl.h"

#define COMPARE_DEPTH_MAX 32

struct jinja_value jinja_none(void)
{
    return (struct jinja_value){.type = JINJA_NONE};
}

struct jinja_value jinja_bool(bool b)
{
    return (struct jinja_value){.type = JINJA_BOOL, .b = b};
}

struct jinja_value jinja_int(int64_t i)
{
    return (struct jinja_value){.type = JINJA_INT, .i = i};
}

struct jinja_value jinja_text(const char *s, size_t n)
{
    return (struct jinja_value){.type = JINJA_STR, .str = {.s = s, .n = n}};
}

struct jinja_value jinja_of_str(const struct jinja_str *s)
{
    return (struct jinja_value){.type = JINJA_STR, .str = *s};
}

struct jinja_value jinja_undefined(const char *name)
{
    return (struct jinja_value){.type = JINJA_UNDEFINED, .name = name};
}

int jinja_marked(struct arena *a, const char *s, size_t n, uint8_t mark, struct jinja_value *ret)
{
    uint8_t *marks = arena_alloc(a, n + 1);
    if (!marks)
        return ERR_NOMEM;
    memset(marks, mark, n);
    *ret = jinja_text(s, n);
    ret->str.marks = marks;
    return 0;
}

int jinja_list_new(struct arena *a, struct jinja_value *ret)
{
    struct jinja_list *l = arena_alloc(a, sizeof *l);
    if (!l)
        return ERR_NOMEM;
    *ret = (struct jinja_value){.type = JINJA_LIST, .list = l};
    return 0;
}

int jinja_dict_new(struct arena *a, struct jinja_value *ret)
{
    struct jinja_dict *d = arena_alloc(a, sizeof *d);
    if (!d)
        return ERR_NOMEM;
    *ret = (struct jinja_value){.type = JINJA_DICT, .dict = d};
    return 0;
}

/* *v with room for one more. NULL: no memory. */
static void *grown(struct arena *a, void *v, size_t n, size_t *cap, size_t size)
{
    if (n < *cap)
        return v;
    size_t more = *cap ? 2 * *cap : 4;
    void *to = arena_array(a, more, size);
    if (to && n > 0)
        memcpy(to, v, n * size);
    *cap = to ? more : *cap;
    return to;
}

int jinja_list_add(struct arena *a, struct jinja_value *list, const struct jinja_value *v)
{
    struct jinja_list *l = list->list;
    struct jinja_value *to = grown(a, l->v, l->n, &l->cap, sizeof *l->v);
    if (!to)
        return ERR_NOMEM;
    l->v = to;
    l->v[l->n++] = *v;
    return 0;
}

static int dict_add(struct arena *a, struct jinja_dict *d, const struct jinja_value *k,
                    const struct jinja_value *v)
{
    struct jinja_pair *to = grown(a, d->v, d->n, &d->cap, sizeof *d->v);
    if (!to)
        return ERR_NOMEM;
    d->v = to;
    d->v[d->n++] = (struct jinja_pair){.key = *k, .value = *v};
    return 0;
}

int jinja_dict_set(struct arena *a, struct jinja_value *dict, const char *key,
                   const struct jinja_value *v)
{
    struct jinja_value k = jinja_text(key, strlen(key));
    struct jinja_value *old = (struct jinja_value *)jinja_dict_find(dict->dict, &k);
    if (!old)
        return dict_add(a, dict->dict, &k, v);
    *old = *v;
    return 0;
}

bool jinja_str_is(const struct jinja_str *s, const char *literal)
{
    return s->n == strlen(literal) && memcmp(s->s, literal, s->n) == 0;
}

bool jinja_str_equal(const struct jinja_str *a, const struct jinja_str *b)
{
    return a->n == b->n && memcmp(a->s, b->s, a->n) == 0;
}

int jinja_fail(struct jinja_run *r, int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int rc = err_setv(r->e, code, fmt, ap);
    va_end(ap);
    err_prefix(r->e, "line %d", r->line);
    return rc;
}

int jinja_nomem(struct jinja_run *r)
{
    return jinja_fail(r, ERR_LIMIT, "the template takes more than %zu bytes of memory",
                      r->arena->max);
}

int jinja_step(struct jinja_run *r, size_t n)
{
    r->n_steps += 1 + n / 64;
    return r->n_steps <= JINJA_STEPS_MAX
               ? 0
               : jinja_fail(r, ERR_LIMIT, "the template takes more than %d steps", JINJA_STEPS_MAX);
}

const char *jinja_type_name(const struct jinja_value *v)
{
    static const char *const names[] = {"undefined", "none",     "bool",   "int",
                                        "float",     "str",      "list",   "dict",
                                        "namespace", "loop",     "function",
                                        "nothing"};
    return v->type == JINJA_LIST && v->list->kind == LIST_TUPLE ? "tuple" : names[v->type];
}

bool jinja_truth(const struct jinja_value *v)
{
    switch (v->type) {
    case JINJA_BOOL:
        return v->b;
    case JINJA_INT:
        return v->i != 0;
    case JINJA_FLOAT:
        return v->f != 0;
    case JINJA_STR:
        return v->str.n > 0;
    case JINJA_LIST:
        return v->list->n > 0 || v->list->kind == LIST_GENERATOR;
    case JINJA_DICT:
        return v->dict->n > 0;
    case JINJA_NAMESPACE:
    case JINJA_LOOP:
    case JINJA_FUNCTION:
        return true;
    default:
        return false;
    }
}

static bool is_number(const struct jinja_value *v)
{
    return v->type == JINJA_BOOL || v->type == JINJA_INT || v->type == JINJA_FLOAT;
}

static int64_t as_int(const struct jinja_value *v)
{
    return v->type == JINJA_INT ? v->i : (int64_t)v->b;
}

static int order_numbers(const struct jinja_value *a, const struct jinja_value *b)
{
    if (a->type != JINJA_FLOAT && b->type != JINJA_FLOAT)
        return (as_int(a) > as_int(b)) - (as_int(a) < as_int(b));
    long double x = a->type == JINJA_FLOAT ? (long double)a->f : (long double)as_int(a),
                y = b->type == JINJA_FLOAT ? (long double)b->f : (long double)as_int(b);
    return (x > y) - (x < y); /* its 64 bits hold every integer of ours */
}

static bool same(const struct jinja_value *a, const struct jinja_value *b, int depth);

static bool same_dicts(const struct jinja_dict *a, const struct jinja_dict *b, int depth)
{
    bool is = a->n == b->n;
    for (size_t i = 0; is && i < a->n; i++) {
        const struct jinja_value *other = jinja_dict_find(b, &a->v[i].key);
        is = other && same(&a->v[i].value, other, depth + 1);
    }
    return is;
}

/* Depth is bounded by COMPARE_DEPTH_MAX: what lies deeper counts as different. */
static bool same(const struct jinja_value *a, const struct jinja_value *b, int depth)
{
    if (is_number(a) && is_number(b))
        return order_numbers(a, b) == 0;
    if (a->type != b->type || depth > COMPARE_DEPTH_MAX)
        return false;
    if (a->type == JINJA_STR)
        return jinja_str_equal(&a->str, &b->str);
    if (a->type == JINJA_DICT)
        return a->dict == b->dict || same_dicts(a->dict, b->dict, depth);
    if (a->type == JINJA_NAMESPACE)
        return a->dict == b->dict;
    if (a->type == JINJA_FUNCTION)
        return a->function == b->function;
    if (a->type == JINJA_LOOP)
        return a->loop == b->loop;
    if (a->type != JINJA_LIST || a->list == b->list)
        return true;
    if (a->list->kind == LIST_GENERATOR || b->list->kind == LIST_GENERATOR)
        return false;
    bool is = a->list->n == b->list->n && a->list->kind == b->list->kind;
    for (size_t i = 0; is && i < a->list->n; i++)
        is = same(&a->list->v[i], &b->list->v[i], depth + 1);
    return is;
}

int jinja_equal(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b,
                bool *ret)
{
    if ((a->type == JINJA_LIST && a->list->kind == LIST_VIEW) ||
        (b->type == JINJA_LIST && b->list->kind == LIST_VIEW) ||
        (a->type == JINJA_FUNCTION && b->type == JINJA_FUNCTION && !a->function->macro))
        return jinja_fail(r, ERR_UNSUPPORTED, "comparing what isn't a plain value");
    *ret = same(a, b, 0);
    return jinja_step(r, a->type == JINJA_STR ? a->str.n : 1);
}

/* By their first difference; lists in them aren't ordered. */
static int order_lists(struct jinja_run *r, const struct jinja_list *a, const struct jinja_list *b,
                       int *ret)
{
    size_t i = 0;
    while (i < a->n && i < b->n && same(&a->v[i], &b->v[i], 0))
        i++;
    *ret = (a->n > b->n) - (a->n < b->n);
    if (i == a->n || i == b->n)
        return jinja_step(r, i);
    if (a->v[i].type == JINJA_LIST)
        return jinja_fail(r, ERR_UNSUPPORTED, "lists of lists are not ordered here");
    return jinja_order(r, &a->v[i], &b->v[i], ret);
}

int jinja_order(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b,
                int *ret)
{
    if (is_number(a) && is_number(b)) {
        *ret = order_numbers(a, b);
        return jinja_step(r, 0);
    }
    if (a->type == JINJA_STR && b->type == JINJA_STR) {
        size_t n = a->str.n < b->str.n ? a->str.n : b->str.n;
        int c = memcmp(a->str.s, b->str.s, n); /* UTF-8 sorts as its code points do */
        *ret = c ? (c > 0) - (c < 0) : (a->str.n > b->str.n) - (a->str.n < b->str.n);
        return jinja_step(r, n);
    }
    if (a->type == JINJA_LIST && b->type == JINJA_LIST && a->list->kind == b->list->kind)
        return order_lists(r, a->list, b->list, ret);
    return jinja_fail(r, ERR_INVAL, "%s and %s can't be ordered", jinja_type_name(a),
                      jinja_type_name(b));
}

/* Deeper than anything hashable is made: refused. */
static int need_hashable(struct jinja_run *r, const struct jinja_value *v, int depth)
{
    int rc = depth > COMPARE_DEPTH_MAX
                 ? jinja_fail(r, ERR_UNSUPPORTED, "a key nested deeper than %d", COMPARE_DEPTH_MAX)
                 : 0;
    const bool is_list = v->type == JINJA_LIST;
    if (v->type == JINJA_DICT || (is_list && v->list->kind == LIST_PLAIN))
        return jinja_fail(r, ERR_INVAL, "unhashable type: %s", jinja_type_name(v));
    if (is_list && v->list->kind == LIST_VIEW)
        return jinja_fail(r, ERR_UNSUPPORTED, "a view as a key");
    for (size_t i = 0; rc == 0 && is_list && v->list->kind == LIST_TUPLE && i < v->list->n; i++)
        rc = need_hashable(r, &v->list->v[i], depth + 1);
    return rc;
}

int jinja_need_hashable(struct jinja_run *r, const struct jinja_value *v)
{
    return need_hashable(r, v, 0);
}

int jinja_contains(struct jinja_run *r, const struct jinja_value *in, const struct jinja_value *v,
                   bool *ret)
{
    *ret = false;
    if (in->type == JINJA_UNDEFINED)
        return 0;
    if (in->type == JINJA_STR) {
        if (v->type != JINJA_STR)
            return jinja_fail(r, ERR_INVAL, "%s in str", jinja_type_name(v));
        *ret = jinja_find(&in->str, &v->str, 0) != (size_t)-1;
        return jinja_step(r, in->str.n);
    }
    if (in->type == JINJA_DICT) {
        int rc = jinja_need_hashable(r, v);
        if (rc < 0)
            return rc;
        *ret = jinja_dict_find(in->dict, v) != NULL;
        return jinja_step(r, in->dict->n * 64);
    }
    if (in->type != JINJA_LIST || in->list->late)
        return jinja_fail(r, in->type == JINJA_LIST || in->type == JINJA_LOOP ? ERR_UNSUPPORTED
                                                                              : ERR_INVAL,
                          "in %s", jinja_type_name(in));
    struct jinja_list *l;
    int rc = jinja_iterate(r, in, &l);
    for (size_t i = 0; rc == 0 && i < l->n && !*ret; i++)
        rc = jinja_equal(r, &l->v[i], v, ret);
    return rc;
}

const struct jinja_value *jinja_dict_find(const struct jinja_dict *d, const struct jinja_value *k)
{
    for (size_t i = 0; i < d->n; i++)
        if (same(&d->v[i].key, k, 0))
            return &d->v[i].value;
    return NULL;
}

const struct jinja_value *jinja_dict_find_str(const struct jinja_dict *d, const struct jinja_str *k)
{
    struct jinja_value key = jinja_of_str(k);
    return jinja_dict_find(d, &key);
}

int jinja_dict_put(struct jinja_run *r, struct jinja_dict *d, const struct jinja_value *k,
                   const struct jinja_value *v)
{
    int rc = jinja_need_hashable(r, k);
    if (rc == 0)
        rc = jinja_step(r, d->n * 8);
    struct jinja_value *old = (struct jinja_value *)jinja_dict_find(d, k);
    if (rc < 0)
        return rc;
    if (!old)
        return dict_add(r->arena, d, k, v) < 0 ? jinja_nomem(r) : 0;
    *old = *v;
    return 0;
}

int jinja_list_make(struct jinja_run *r, enum jinja_list_kind kind, struct jinja_value *ret)
{
    if (jinja_list_new(r->arena, ret) < 0)
        return jinja_nomem(r);
    ret->list->kind = kind;
    return 0;
}

int jinja_push(struct jinja_run *r, struct jinja_value *list, const struct jinja_value *v)
{
    int rc = jinja_step(r, 0);
    return rc < 0 ? rc : jinja_list_add(r->arena, list, v) < 0 ? jinja_nomem(r) : 0;
}

int jinja_iterate(struct jinja_run *r, const struct jinja_value *v, struct jinja_list **ret)
{
    struct jinja_value made;
    int rc = 0;
    if (v->type == JINJA_LIST) {
        if (v->list->kind == LIST_GENERATOR && v->list->is_spent)
            return jinja_fail(r, ERR_UNSUPPORTED, "a filter's result that is used twice");
        if (v->list->late)
            return jinja_fail(r, ERR_INVAL, "%s", v->list->late);
        v->list->is_spent = v->list->kind == LIST_GENERATOR;
        *ret = v->list;
        return 0;
    }
    if (v->type != JINJA_UNDEFINED && v->type != JINJA_STR && v->type != JINJA_DICT)
        return jinja_fail(r, v->type == JINJA_LOOP ? ERR_UNSUPPORTED : ERR_INVAL,
                          "%s can't be iterated", jinja_type_name(v));
    rc = jinja_list_make(r, LIST_PLAIN, &made);
    for (size_t i = 0; rc == 0 && v->type == JINJA_DICT && i < v->dict->n; i++)
        rc = jinja_push(r, &made, &v->dict->v[i].key);
    for (size_t i = 0, k; rc == 0 && v->type == JINJA_STR && i < v->str.n; i += k) {
        k = jinja_char_len(v->str.s + i, v->str.n - i);
        struct jinja_str c = jinja_sub(&v->str, i, k);
        struct jinja_value one = jinja_of_str(&c);
        rc = jinja_push(r, &made, &one);
    }
    *ret = rc == 0 ? made.list : NULL;
    return rc;
}

int jinja_to_str(struct jinja_run *r, const struct jinja_value *v, struct jinja_str *ret)
{
    if (v->type == JINJA_STR) {
        *ret = v->str;
        return 0;
    }
    *ret = (struct jinja_str){.s = ""};
    if (v->type == JINJA_UNDEFINED)
        return 0;
    struct jinja_text t = {.r = r};
    int rc = jinja_repr(&t, v, 0);
    if (rc == 0)
        *ret = jinja_text_str(&t);
    return rc;
}

static int text_grow(struct jinja_text *t, size_t n, bool with_marks)
{
    size_t cap = t->n + n > t->cap ? 2 * (t->n + n) + 16 : t->cap;
    if (cap > t->cap) {
        char *s = arena_alloc(t->r->arena, cap);
        uint8_t *marks = t->marks ? arena_alloc(t->r->arena, cap) : NULL;
        if (!s || (t->marks && !marks))
            return jinja_nomem(t->r);
        if (t->n > 0)
            memcpy(s, t->s, t->n);
        if (marks)
            memcpy(marks, t->marks, t->n);
        t->s = s;
        t->marks = marks;
        t->cap = cap;
    }
    if (with_marks && !t->marks && !(t->marks = arena_alloc(t->r->arena, t->cap)))
        return jinja_nomem(t->r);
    return jinja_step(t->r, n);
}

int jinja_text_add(struct jinja_text *t, const struct jinja_str *s)
{
    int rc = text_grow(t, s->n, s->marks != NULL);
    if (rc < 0 || s->n == 0)
        return rc;
    memcpy(t->s + t->n, s->s, s->n);
    if (s->marks)
        memcpy(t->marks + t->n, s->marks, s->n);
    t->n += s->n;
    return 0;
}

int jinja_text_char(struct jinja_text *t, char c, uint8_t mark)
{
    struct jinja_str s = {.s = &c, .n = 1, .marks = mark ? &mark : NULL};
    return jinja_text_add(t, &s);
}

int jinja_text_lit(struct jinja_text *t, const char *s)
{
    struct jinja_str str = {.s = s, .n = strlen(s)};
    return jinja_text_add(t, &str);
}

struct jinja_str jinja_text_str(const struct jinja_text *t)
{
    return (struct jinja_str){.s = t->s ? t->s : "", .n = t->n, .marks = t->marks};
}
