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
                           v->type == JINJA_LIST || v->type == JINJA_DICT)
TYPE_TEST(is_sequence, v->type == JINJA_UNDEFINED || v->type == JINJA_STR ||
                           v->type == JINJA_DICT ||
                           (v->type == JINJA_LIST && v->list->kind <= LIST_RANGE))
TYPE_TEST(is_number, v->type == JINJA_INT || v->type == JINJA_FLOAT || v->type == JINJA_BOOL)
TYPE_TEST(is_integer, v->type == JINJA_INT)
TYPE_TEST(is_float, v->type == JINJA_FLOAT)
TYPE_TEST(is_boolean, v->type == JINJA_BOOL)
TYPE_TEST(is_true, v->type == JINJA_BOOL && v->b)
TYPE_TEST(is_false, v->type == JINJA_BOOL && !v->b)
TYPE_TEST(is_callable, v->type == JINJA_FUNCTION)

static int modulo(struct jinja_run *r, const struct jinja_value *v, int64_t by, int64_t *ret)
{
    struct jinja_value m, x[2] = {*v, jinja_int(by)};
    if (v->type != JINJA_INT && v->type != JINJA_BOOL)
        return jinja_fail(r, ERR_INVAL, "%s divided", jinja_type_name(v));
    int rc = jinja_binary(r, '%', x, &m);
    *ret = rc == 0 ? m.i : 0;
    return rc;
}

TEST(is_odd)
{
    int64_t m;
    (void)args;
    int rc = modulo(r, v, 2, &m);
    return rc < 0 ? rc : is(ret, m == 1);
}

TEST(is_even)
{
    int64_t m;
    (void)args;
    int rc = modulo(r, v, 2, &m);
    return rc < 0 ? rc : is(ret, m == 0);
}

TEST(is_divisible)
{
    int64_t m;
    if (args->v[0].type != JINJA_INT)
        return jinja_fail(r, ERR_INVAL, "divisibleby %s", jinja_type_name(&args->v[0]));
    int rc = modulo(r, v, args->v[0].i, &m);
    return rc < 0 ? rc : is(ret, m == 0);
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
    struct jinja_str s, made;
    int rc = jinja_to_str(r, v, &s);
    bool has_letter = false;
    for (size_t i = 0; rc == 0 && i < s.n; i++)
        if ((unsigned char)s.s[i] >= 0x80)
            return jinja_fail(r, ERR_UNSUPPORTED, "the case of letters that aren't ASCII");
        else
            has_letter = has_letter || ((s.s[i] | 32) >= 'a' && (s.s[i] | 32) <= 'z');
    if (rc == 0)
        rc = jinja_case(r, &s, how, &made);
    return rc < 0 ? rc : is(ret, has_letter && jinja_str_equal(&s, &made));
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
