/* Tests: x is name. Each gives a bool. */
#include <string.h>

#include "engine/jinja_impl.h"

#define TEST(name)                                                                                 \
    static int name(struct jinja_run *r, const struct jinja_value *v, struct jinja_args *args,     \
                    struct jinja_value *ret)

static int is(struct jinja_value *ret, bool b)
{
    *ret = jinja_bool(b);
    return 0;
}

/* A test of the type alone. */
#define TYPE_TEST(name, condition)                                                                 \
    TEST(name)                                                                                     \
    {                                                                                              \
        (void)r;                                                                                   \
        (void)args;                                                                                \
        return is(ret, condition);                                                                 \
    }

TYPE_TEST(is_defined, v->type != JINJA_UNDEFINED)
TYPE_TEST(is_undefined, v->type == JINJA_UNDEFINED)
TYPE_TEST(is_none, v->type == JINJA_NONE)
TYPE_TEST(is_string, v->type == JINJA_STR)
TYPE_TEST(is_mapping, v->type == JINJA_DICT)
TYPE_TEST(is_iterable, v->type == JINJA_UNDEFINED || v->type == JINJA_STR ||
                           v->type == JINJA_LIST || v->type == JINJA_DICT ||
                           v->type == JINJA_LOOP)
TYPE_TEST(is_sequence, v->type == JINJA_UNDEFINED || v->type == JINJA_STR ||
                           v->type == JINJA_DICT ||
                           (v->type == JINJA_LIST && v->list->kind <= LIST_RANGE))
TYPE_TEST(is_number, v->type == JINJA_INT || v->type == JINJA_FLOAT || v->type == JINJA_BOOL)
TYPE_TEST(is_integer, v->type == JINJA_INT)
TYPE_TEST(is_float, v->type == JINJA_FLOAT)
TYPE_TEST(is_boolean, v->type == JINJA_BOOL)
TYPE_TEST(is_true, v->type == JINJA_BOOL && v->b)
TYPE_TEST(is_false, v->type == JINJA_BOOL && !v->b)
TYPE_TEST(is_callable, v->type == JINJA_FUNCTION || v->type == JINJA_LOOP ||
                           v->type == JINJA_UNDEFINED)
TYPE_TEST(is_escaped, v->is_markup)

/* x is the same object as other, where that is sure. */
TEST(is_same)
{
    const struct jinja_value *o = &args->v[0];
    const bool is_single = v->type == JINJA_NONE || v->type == JINJA_BOOL;
    if (o->type == JINJA_ABSENT)
        return jinja_fail(r, ERR_INVAL, "a test without its argument");
    if (v->type != o->type)
        return is(ret, false);
    if (!is_single)
        return jinja_fail(r, ERR_UNSUPPORTED, "sameas of %s", jinja_type_name(v));
    return is(ret, v->type == JINJA_NONE || v->b == o->b);
}

/* The name of a filter or a test; one that isn't known here may be known there. */
static int is_known(struct jinja_run *r, const struct jinja_value *v, bool is_filter,
                    struct jinja_value *ret)
{
    const bool is = v->type == JINJA_STR && (is_filter ? jinja_find_filter(&v->str) != NULL
                                                       : jinja_find_test(&v->str) != NULL);
    return is ? is_defined(r, v, NULL, ret)
              : jinja_fail(r, ERR_UNSUPPORTED, "whether a filter or test is known");
}

TEST(is_filter)
{
    (void)args;
    return is_known(r, v, true, ret);
}

TEST(is_test)
{
    (void)args;
    return is_known(r, v, false, ret);
}

/* v % by == want */
static int modulo(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value *by,
                  int64_t want, struct jinja_value *ret)
{
    const struct jinja_value x[2] = {*v, *by}, w = jinja_int(want);
    struct jinja_value m;
    bool b = false;
    int rc = jinja_binary(r, '%', x, &m);
    if (rc == 0)
        rc = jinja_equal(r, &m, &w, &b);
    return rc < 0 ? rc : is(ret, b);
}

TEST(is_odd)
{
    const struct jinja_value two = jinja_int(2);
    (void)args;
    return modulo(r, v, &two, 1, ret);
}

TEST(is_even)
{
    const struct jinja_value two = jinja_int(2);
    (void)args;
    return modulo(r, v, &two, 0, ret);
}

TEST(is_divisible)
{
    if (args->v[0].type == JINJA_ABSENT)
        return jinja_fail(r, ERR_INVAL, "divisibleby nothing");
    return modulo(r, v, &args->v[0], 0, ret);
}

static int need(struct jinja_run *r, const struct jinja_args *args)
{
    return args->v[0].type == JINJA_ABSENT ? jinja_fail(r, ERR_INVAL, "a test without its argument")
                                           : 0;
}

TEST(is_equal)
{
    bool b = false;
    int rc = need(r, args);
    if (rc == 0)
        rc = jinja_equal(r, v, &args->v[0], &b);
    return rc < 0 ? rc : is(ret, b);
}

TEST(is_unequal)
{
    int rc = is_equal(r, v, args, ret);
    return rc < 0 ? rc : is(ret, !ret->b);
}

TEST(is_in)
{
    bool b = false;
    int rc = need(r, args);
    if (rc == 0)
        rc = jinja_contains(r, &args->v[0], v, &b);
    return rc < 0 ? rc : is(ret, b);
}

static int ordered(struct jinja_run *r, const struct jinja_value *v, struct jinja_args *args,
                   int *ret)
{
    int rc = need(r, args);
    if (rc == 0 && (v->type == JINJA_UNDEFINED || args->v[0].type == JINJA_UNDEFINED))
        rc = jinja_fail(r, ERR_INVAL, "comparing what is undefined");
    return rc < 0 ? rc : jinja_order(r, v, &args->v[0], ret);
}

#define ORDER_TEST(name, condition)                                                                \
    TEST(name)                                                                                     \
    {                                                                                              \
        int c = 0, rc = ordered(r, v, args, &c);                                                   \
        return rc < 0 ? rc : is(ret, condition);                                                   \
    }

ORDER_TEST(is_less, c < 0)
ORDER_TEST(is_greater, c > 0)
ORDER_TEST(is_at_most, c <= 0)
ORDER_TEST(is_at_least, c >= 0)

static int cased(struct jinja_run *r, const struct jinja_value *v, char how,
                 struct jinja_value *ret)
{
    struct jinja_str s;
    bool b = false;
    int rc = jinja_to_str(r, v, &s);
    if (rc == 0)
        rc = jinja_is_cased(r, &s, how, &b);
    return rc < 0 ? rc : is(ret, b);
}

TEST(is_lower)
{
    (void)args;
    return cased(r, v, 'l', ret);
}

TEST(is_upper)
{
    (void)args;
    return cased(r, v, 'u', ret);
}

static const struct jinja_test tests[] = {{{"defined", is_defined, ""}},
                                          {{"undefined", is_undefined, ""}},
                                          {{"none", is_none, ""}},
                                          {{"escaped", is_escaped, ""}},
                                          {{"sameas", is_same, "other"}},
                                          {{"filter", is_filter, ""}},
                                          {{"test", is_test, ""}},
                                          {{"string", is_string, ""}},
                                          {{"mapping", is_mapping, ""}},
                                          {{"iterable", is_iterable, ""}},
                                          {{"sequence", is_sequence, ""}},
                                          {{"number", is_number, ""}},
                                          {{"integer", is_integer, ""}},
                                          {{"float", is_float, ""}},
                                          {{"boolean", is_boolean, ""}},
                                          {{"true", is_true, ""}},
                                          {{"false", is_false, ""}},
                                          {{"callable", is_callable, ""}},
                                          {{"odd", is_odd, ""}},
                                          {{"even", is_even, ""}},
                                          {{"divisibleby", is_divisible, "num"}},
                                          {{"equalto", is_equal, "other"}},
                                          {{"eq", is_equal, "other"}},
                                          {{"ne", is_unequal, "other"}},
                                          {{"in", is_in, "seq"}},
                                          {{"lt", is_less, "other"}},
                                          {{"lessthan", is_less, "other"}},
                                          {{"gt", is_greater, "other"}},
                                          {{"greaterthan", is_greater, "other"}},
                                          {{"le", is_at_most, "other"}},
                                          {{"ge", is_at_least, "other"}},
                                          {{"lower", is_lower, ""}},
                                          {{"upper", is_upper, ""}}};

const struct jinja_test *jinja_find_test(const struct jinja_str *name)
{
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (jinja_str_is(name, tests[i].row.name))
            return &tests[i];
    return NULL;
}
