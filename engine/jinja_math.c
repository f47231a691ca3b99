/* Arithmetic as Python does it: numbers, strings and lists by operators. */
#include <math.h>
#include <string.h>

#include "engine/jinja_impl.h"

bool jinja_is_int(const struct jinja_value *v)
{
    return v->type == JINJA_INT || v->type == JINJA_BOOL;
}

int64_t jinja_int_of(const struct jinja_value *v)
{
    return v->type == JINJA_BOOL ? v->b : v->i;
}

static double float_of(const struct jinja_value *v)
{
    return v->type == JINJA_FLOAT ? v->f : (double)jinja_int_of(v);
}

int jinja_fail_undefined(struct jinja_run *r, const struct jinja_value *v)
{
    return jinja_fail(r, ERR_INVAL, "'%.60s' is undefined", v->name ? v->name : "a value");
}

static int power(struct jinja_run *r, int64_t a, int64_t b, int64_t *ret)
{
    *ret = 1;
    for (int64_t i = 0; i < b; i++)
        if (i > 64 * 64 || __builtin_mul_overflow(*ret, a, ret))
            return jinja_fail(r, ERR_UNSUPPORTED, "a number beyond 64 bits");
    return 0;
}

/* a // b and a % b, as CPython computes them (float_floor_div). */
static double float_divmod(double a, double b, bool is_mod)
{
    double mod = fmod(a, b), div = (a - mod) / b;
    if (mod != 0 && (b < 0) != (mod < 0)) {
        mod += b;
        div -= 1;
    }
    if (is_mod)
        return mod != 0 ? mod : copysign(0, b);
    double whole = floor(div);
    whole += div - whole > 0.5;
    return div != 0 ? whole : copysign(0, a / b);
}

/* Beyond these a double doesn't hold each integer. */
static bool is_exact(const struct jinja_value *v)
{
    const int64_t max = (int64_t)1 << 53;
    return v->type == JINJA_FLOAT || (jinja_int_of(v) <= max && jinja_int_of(v) >= -max);
}

static int float_power(struct jinja_run *r, double a, double b, double *ret)
{
    if (a == 0 && b < 0)
        return jinja_fail(r, ERR_INVAL, "0.0 cannot be raised to a negative power");
    if (a < 0 && isfinite(b) && floor(b) != b)
        return jinja_fail(r, ERR_UNSUPPORTED, "a complex number");
    *ret = pow(a, b);
    return isinf(*ret) && isfinite(a) && isfinite(b)
               ? jinja_fail(r, ERR_INVAL, "numerical result out of range")
               : 0;
}

static int int_math(struct jinja_run *r, int op, int64_t a, int64_t b, struct jinja_value *ret)
{
    int64_t i = 0;
    bool over = false;
    if ((op == '%' || op == OP2('/', '/')) && b == 0)
        return jinja_fail(r, ERR_INVAL, "division by zero");
    if ((op == '%' || op == OP2('/', '/')) && b == -1) {
        over = __builtin_sub_overflow((int64_t)0, a, &i);
        i = op == '%' ? 0 : i;
    } else if (op == '+') {
        over = __builtin_add_overflow(a, b, &i);
    } else if (op == '-') {
        over = __builtin_sub_overflow(a, b, &i);
    } else if (op == '*') {
        over = __builtin_mul_overflow(a, b, &i);
    } else if (op == '%') {
        i = a % b;
        i += i != 0 && (i < 0) != (b < 0) ? b : 0;
    } else if (op == OP2('/', '/')) {
        i = a / b - (a % b != 0 && (a % b < 0) != (b < 0));
    } else if (power(r, a, b, &i) < 0) {
        return ERR_UNSUPPORTED;
    }
    *ret = jinja_int(i);
    return over ? jinja_fail(r, ERR_UNSUPPORTED, "a number beyond 64 bits") : 0;
}

static int numbers(struct jinja_run *r, int op, const struct jinja_value v[2],
                   struct jinja_value *ret)
{
    bool is_whole = jinja_is_int(&v[0]) && jinja_is_int(&v[1]) && op != '/';
    if (is_whole && !(op == OP2('*', '*') && jinja_int_of(&v[1]) < 0))
        return int_math(r, op, jinja_int_of(&v[0]), jinja_int_of(&v[1]), ret);
    double a = float_of(&v[0]), b = float_of(&v[1]), f = 0;
    if ((op == '/' || op == '%' || op == OP2('/', '/')) && b == 0)
        return jinja_fail(r, ERR_INVAL, "division by zero");
    if (!is_exact(&v[0]) || !is_exact(&v[1]))
        return jinja_fail(r, ERR_UNSUPPORTED, "integers that a float doesn't hold");
    if (op == '+')
        f = a + b;
    else if (op == '-')
        f = a - b;
    else if (op == '*')
        f = a * b;
    else if (op == '/')
        f = a / b;
    else if (op == OP2('/', '/') || op == '%')
        f = float_divmod(a, b, op == '%');
    else if (float_power(r, a, b, &f) < 0)
        return r->e->code;
    *ret = (struct jinja_value){.type = JINJA_FLOAT, .f = f};
    return 0;
}

static int repeat(struct jinja_run *r, const struct jinja_value *what, int64_t n,
                  struct jinja_value *ret)
{
    int rc = 0;
    struct jinja_text t = {.r = r};
    if (what->type == JINJA_STR) {
        for (int64_t i = 0; rc == 0 && i < n && what->str.n > 0; i++)
            rc = jinja_text_add(&t, &what->str);
        struct jinja_str s = jinja_text_str(&t);
        *ret = jinja_of_str(&s);
        ret->is_markup = what->is_markup;
        return rc;
    }
    rc = jinja_list_make(r, what->list->kind, ret);
    for (int64_t i = 0; rc == 0 && i < n && what->list->n > 0; i++)
        for (size_t k = 0; rc == 0 && k < what->list->n; k++)
            rc = jinja_push(r, ret, &what->list->v[k]);
    return rc;
}

static bool is_plain_list(const struct jinja_value *v)
{
    return v->type == JINJA_LIST && v->list->kind <= LIST_TUPLE;
}

static int concat(struct jinja_run *r, const struct jinja_value v[2], struct jinja_value *ret)
{
    struct jinja_str s;
    struct jinja_text t = {.r = r};
    for (int i = 0; i < 2; i++) {
        int rc = jinja_to_str(r, &v[i], &s);
        if (rc == 0)
            rc = jinja_text_add(&t, &s);
        if (rc < 0)
            return rc;
    }
    s = jinja_text_str(&t);
    *ret = jinja_of_str(&s);
    return 0;
}

/* a + b. One that safe or escape gave escapes the other, as MarkupSafe has it; a ~ b doesn't. */
static int add_strings(struct jinja_run *r, const struct jinja_value v[2], struct jinja_value *ret)
{
    struct jinja_value made[2] = {v[0], v[1]};
    const bool is_markup = v[0].is_markup || v[1].is_markup;
    int rc = 0;
    for (int i = 0; rc == 0 && is_markup && i < 2; i++)
        rc = jinja_escape(r, &v[i], &made[i]);
    if (rc == 0)
        rc = concat(r, made, ret);
    ret->is_markup = is_markup;
    return rc;
}

static int join_lists(struct jinja_run *r, const struct jinja_value v[2], struct jinja_value *ret)
{
    int rc = jinja_list_make(r, v[0].list->kind, ret);
    for (int i = 0; i < 2; i++)
        for (size_t k = 0; rc == 0 && k < v[i].list->n; k++)
            rc = jinja_push(r, ret, &v[i].list->v[k]);
    return rc;
}

int jinja_binary(struct jinja_run *r, int op, const struct jinja_value v[2],
                 struct jinja_value *ret)
{
    if (op == '~')
        return concat(r, v, ret);
    if (op == '%' && v[0].type == JINJA_STR) {
        if (v[0].is_markup || v[1].is_markup)
            return jinja_fail(r, ERR_UNSUPPORTED, "formatting what safe or escape gave");
        return jinja_percent(r, &v[0].str, &v[1], ret);
    }
    for (int i = 0; i < 2; i++)
        if (v[i].type == JINJA_UNDEFINED)
            return jinja_fail_undefined(r, &v[i]);
    bool is_number[2];
    for (int i = 0; i < 2; i++)
        is_number[i] = jinja_is_int(&v[i]) || v[i].type == JINJA_FLOAT;
    if (is_number[0] && is_number[1])
        return numbers(r, op, v, ret);
    if (op == '+' && v[0].type == JINJA_STR && v[1].type == JINJA_STR)
        return add_strings(r, v, ret);
    if (op == '+' && is_plain_list(&v[0]) && is_plain_list(&v[1]) &&
        v[0].list->kind == v[1].list->kind)
        return join_lists(r, v, ret);
    for (int i = 0; i < 2 && op == '*'; i++)
        if ((v[i].type == JINJA_STR || is_plain_list(&v[i])) && jinja_is_int(&v[1 - i]))
            return repeat(r, &v[i], jinja_int_of(&v[1 - i]), ret);
    return jinja_fail(r, ERR_INVAL, "unsupported operand types: %s and %s", jinja_type_name(&v[0]),
                      jinja_type_name(&v[1]));
}
