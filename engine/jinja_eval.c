/*
 * Expressions evaluated, with Python's arithmetic and Jinja2's lookups: x.name is an attribute
 * first (a dict's method hides its key), x[key] an item first. What isn't there is undefined, which
 * prints as nothing and fails at anything but printing, testing and comparing.
 */
#include <math.h>
#include <string.h>

#include "engine/jinja_impl.h"

static bool is_int(const struct jinja_value *v)
{
    return v->type == JINJA_INT || v->type == JINJA_BOOL;
}

static int64_t int_of(const struct jinja_value *v)
{
    return v->type == JINJA_BOOL ? v->b : v->i;
}

static double float_of(const struct jinja_value *v)
{
    return v->type == JINJA_FLOAT ? v->f : (double)int_of(v);
}

static int undefined(struct jinja_run *r, const struct jinja_value *v)
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
    bool is_whole = is_int(&v[0]) && is_int(&v[1]) && op != '/';
    if (is_whole && !(op == OP2('*', '*') && int_of(&v[1]) < 0))
        return int_math(r, op, int_of(&v[0]), int_of(&v[1]), ret);
    double a = float_of(&v[0]), b = float_of(&v[1]), f = 0;
    if ((op == '/' || op == '%' || op == OP2('/', '/')) && b == 0)
        return jinja_fail(r, ERR_INVAL, "division by zero");
    if (op == '+')
        f = a + b;
    else if (op == '-')
        f = a - b;
    else if (op == '*')
        f = a * b;
    else if (op == '/')
        f = a / b;
    else if (op == OP2('/', '/'))
        f = floor(a / b);
    else if (op == '%')
        f = a - floor(a / b) * b;
    else
        f = pow(a, b);
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
    for (int i = 0; i < 2; i++)
        if (v[i].type == JINJA_UNDEFINED)
            return undefined(r, &v[i]);
    bool is_number[2];
    for (int i = 0; i < 2; i++)
        is_number[i] = is_int(&v[i]) || v[i].type == JINJA_FLOAT;
    if (is_number[0] && is_number[1])
        return numbers(r, op, v, ret);
    if (op == '+' && v[0].type == JINJA_STR && v[1].type == JINJA_STR)
        return add_strings(r, v, ret);
    if (op == '+' && is_plain_list(&v[0]) && is_plain_list(&v[1]) &&
        v[0].list->kind == v[1].list->kind)
        return join_lists(r, v, ret);
    for (int i = 0; i < 2 && op == '*'; i++)
        if ((v[i].type == JINJA_STR || is_plain_list(&v[i])) && is_int(&v[1 - i]))
            return repeat(r, &v[i], int_of(&v[1 - i]), ret);
    if (op == '%' && v[0].type == JINJA_STR)
        return jinja_fail(r, ERR_UNSUPPORTED, "formatting with %%");
    return jinja_fail(r, ERR_INVAL, "unsupported operand types: %s and %s", jinja_type_name(&v[0]),
                      jinja_type_name(&v[1]));
}

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
    if (!row) {
        *ret = jinja_undefined(name->s);
        bool is_foreign = jinja_is_foreign(name) &&
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
        return undefined(r, v);
    int rc = v->type == JINJA_NAMESPACE ? 0 : method(r, v, name, ret);
    bool is_there = v->type != JINJA_NAMESPACE && (rc < 0 || ret->type != JINJA_UNDEFINED);
    if (is_there || (v->type != JINJA_DICT && v->type != JINJA_NAMESPACE))
        return rc;
    const struct jinja_value *item = jinja_dict_find_str(v->dict, name);
    *ret = item ? *item : jinja_undefined(name->s);
    return jinja_step(r, v->dict->n * 8);
}

int jinja_item(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value *key,
               struct jinja_value *ret)
{
    if (v->type == JINJA_UNDEFINED)
        return undefined(r, v);
    *ret = jinja_undefined(key->type == JINJA_STR ? key->str.s : "an item");
    if (v->type == JINJA_DICT) {
        const struct jinja_value *item = jinja_dict_find(v->dict, key);
        int rc = jinja_step(r, v->dict->n * 8);
        if (rc < 0 || item) {
            *ret = item ? *item : *ret;
            return rc;
        }
    } else if (v->type == JINJA_LIST && v->list->kind <= LIST_RANGE && is_int(key)) {
        int64_t i = index_of(int_of(key), v->list->n);
        *ret = i >= 0 ? v->list->v[i] : *ret;
    } else if (v->type == JINJA_STR && is_int(key)) {
        int64_t i = index_of(int_of(key), jinja_n_chars(&v->str));
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
    if (v->type == JINJA_NAMESPACE)
        return jinja_attribute(r, v, &key->str, ret);
    char *name = arena_copy(r->arena, key->str.s, key->str.n);
    struct jinja_str s = {.s = name, .n = key->str.n};
    return name ? method(r, v, &s, ret) : jinja_nomem(r);
}

/* from, to and step as Python reads a slice of n things. */
static int slice_bounds(struct jinja_run *r, const struct jinja_value v[3], size_t n,
                        int64_t ret[3])
{
    for (int i = 0; i < 3; i++)
        if (v[i].type != JINJA_NONE && !is_int(&v[i]))
            return jinja_fail(r, ERR_INVAL, "a slice by %s", jinja_type_name(&v[i]));
    int64_t step = v[2].type == JINJA_NONE ? 1 : int_of(&v[2]), len = (int64_t)n;
    if (step == 0)
        return jinja_fail(r, ERR_INVAL, "slice step cannot be zero");
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? len - 1 : len;
    ret[2] = step;
    for (int i = 0; i < 2; i++) {
        bool is_open = v[i].type == JINJA_NONE;
        int64_t at = is_open ? 0 : int_of(&v[i]);
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

static int slice(struct jinja_run *r, const struct jinja_node *x, struct jinja_value *ret)
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
        return undefined(r, &of);
    bool is_list = of.type == JINJA_LIST && of.list->kind <= LIST_RANGE;
    if (of.type != JINJA_STR && !is_list)
        return jinja_fail(r, x->a->kind == NODE_CONST ? ERR_UNSUPPORTED : ERR_INVAL,
                          "a slice of %s", jinja_type_name(&of));
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

static int eval_args(struct jinja_run *r, const struct jinja_node *x, struct jinja_args *args)
{
    args->n = args->n_named = 0;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < x->n; i++) {
        const struct jinja_node *v = x->v[i];
        if (v->kind != NODE_KEYWORD) {
            rc = jinja_eval(r, v, &args->v[args->n++]);
            continue;
        }
        args->names[args->n_named] = v->name;
        rc = jinja_eval(r, v->a, &args->named[args->n_named++]);
    }
    return rc;
}

/* The argument given by name, if any, goes to *v. */
static int bind_named(struct jinja_run *r, const struct jinja_builtin_row *row,
                      struct jinja_args *args, const struct jinja_str *name, struct jinja_value *v)
{
    for (size_t i = 0; i < args->n_named; i++) {
        if (!jinja_str_equal(&args->names[i], name))
            continue;
        if (v->type != JINJA_ABSENT)
            return jinja_fail(r, ERR_INVAL, "%s has an argument twice", row->name);
        *v = args->named[i];
        args->names[i] = (struct jinja_str){.s = ""};
    }
    return 0;
}

/* Puts arguments in the order of "a,b,c". */
static int bind(struct jinja_run *r, const struct jinja_builtin_row *row, struct jinja_args *args)
{
    size_t n = 0;
    for (const char *p = row->params; *p; n++) {
        const struct jinja_str name = {.s = p, .n = strcspn(p, ",")};
        if (n >= args->n)
            args->v[n].type = JINJA_ABSENT;
        int rc = bind_named(r, row, args, &name, &args->v[n]);
        if (rc < 0)
            return rc;
        p += name.n + (p[name.n] == ',');
    }
    for (size_t i = 0; i < args->n_named; i++)
        if (args->names[i].n > 0)
            return jinja_fail(r, ERR_INVAL, "%s has no argument \"%.40s\"", row->name,
                              args->names[i].s);
    return args->n > n
               ? jinja_fail(r, ERR_INVAL, "%s takes %zu arguments, not %zu", row->name, n, args->n)
               : 0;
}

int jinja_run_row(struct jinja_run *r, const struct jinja_builtin_row *row,
                  const struct jinja_value *self, struct jinja_args *args, struct jinja_value *ret)
{
    int rc = row->params ? bind(r, row, args) : 0;
    return rc < 0 ? rc : row->run(r, self, args, ret);
}

int jinja_call(struct jinja_run *r, const struct jinja_value *fn, struct jinja_args *args,
               struct jinja_value *ret)
{
    if (fn->type == JINJA_UNDEFINED)
        return undefined(r, fn);
    if (fn->type != JINJA_FUNCTION)
        return jinja_fail(r, ERR_INVAL, "%s can't be called", jinja_type_name(fn));
    const struct jinja_function *f = fn->function;
    int rc = f->macro ? jinja_call_macro(r, f, args, ret)
                      : jinja_run_row(r, f->row, &f->self, args, ret);
    if (rc == 0 && f->self.is_markup && ret->type == JINJA_STR)
        ret->is_markup = true;
    return rc;
}

static int call(struct jinja_run *r, const struct jinja_node *x, struct jinja_value *ret)
{
    struct jinja_value fn;
    struct jinja_args *args = arena_alloc(r->arena, sizeof *args);
    if (!args)
        return jinja_nomem(r);
    int rc = jinja_eval(r, x->a, &fn);
    if (rc == 0)
        rc = eval_args(r, x, args);
    r->line = x->line;
    return rc < 0 ? rc : jinja_call(r, &fn, args, ret);
}

static int pipe_or_test(struct jinja_run *r, const struct jinja_node *x, struct jinja_value *ret)
{
    struct jinja_value v;
    struct jinja_args *args = arena_alloc(r->arena, sizeof *args);
    if (!args)
        return jinja_nomem(r);
    int rc = jinja_eval(r, x->a, &v);
    if (rc == 0)
        rc = eval_args(r, x, args);
    r->line = x->line;
    const struct jinja_builtin_row *row = x->kind == NODE_FILTER ? &x->filter->row : &x->test->row;
    return rc < 0 ? rc : jinja_run_row(r, row, &v, args, ret);
}

static int compare_step(struct jinja_run *r, int op, const struct jinja_value v[2], bool *ret)
{
    int c = 0, rc;
    if (op == OP2('=', '=') || op == OP2('!', '=')) {
        rc = jinja_equal(r, &v[0], &v[1], ret);
        *ret = *ret == (op == OP2('=', '='));
        return rc;
    }
    if (op == 'i' || op == 'n') {
        rc = jinja_contains(r, &v[1], &v[0], ret);
        *ret = *ret == (op == 'i');
        return rc;
    }
    for (int i = 0; i < 2; i++)
        if (v[i].type == JINJA_UNDEFINED)
            return undefined(r, &v[i]);
    rc = jinja_order(r, &v[0], &v[1], &c);
    *ret = op == '<' ? c < 0 : op == '>' ? c > 0 : op == OP2('<', '=') ? c <= 0 : c >= 0;
    return rc;
}

static int compare(struct jinja_run *r, const struct jinja_node *x, struct jinja_value *ret)
{
    struct jinja_value v[2];
    bool is = true;
    int rc = jinja_eval(r, x->a, &v[0]);
    for (size_t i = 0; rc == 0 && is && i < x->n; i++) {
        rc = jinja_eval(r, x->v[i]->b, &v[1]);
        if (rc == 0)
            rc = compare_step(r, x->v[i]->op, v, &is);
        v[0] = v[1];
    }
    *ret = jinja_bool(is);
    return rc;
}

static int list(struct jinja_run *r, const struct jinja_node *x, struct jinja_value *ret)
{
    struct jinja_value v;
    int rc = jinja_list_make(r, x->kind == NODE_TUPLE ? LIST_TUPLE : LIST_PLAIN, ret);
    for (size_t i = 0; rc == 0 && i < x->n; i++)
        if ((rc = jinja_eval(r, x->v[i], &v)) == 0)
            rc = jinja_push(r, ret, &v);
    return rc;
}

static int dict(struct jinja_run *r, const struct jinja_node *x, struct jinja_value *ret)
{
    struct jinja_value k, v;
    int rc = jinja_dict_new(r->arena, ret) < 0 ? jinja_nomem(r) : 0;
    for (size_t i = 0; rc == 0 && i + 1 < x->n; i += 2) {
        rc = jinja_eval(r, x->v[i], &k);
        if (rc == 0)
            rc = jinja_eval(r, x->v[i + 1], &v);
        if (rc == 0)
            rc = jinja_dict_put(r, ret->dict, &k, &v);
    }
    return rc;
}

static int name(struct jinja_run *r, const struct jinja_node *x, struct jinja_value *ret)
{
    for (const struct jinja_scope *s = r->scope; s; s = s->parent) {
        const struct jinja_value *v = jinja_dict_find_str(&s->vars, &x->name);
        if (v) {
            *ret = *v;
            return 0;
        }
    }
    const struct jinja_value *v = jinja_dict_find_str(r->vars->dict, &x->name);
    const struct jinja_builtin_row *row = v ? NULL : jinja_find_global(&x->name);
    *ret = v ? *v : jinja_undefined(x->name.s);
    if (!row)
        return 0;
    struct jinja_function *f = arena_alloc(r->arena, sizeof *f);
    if (!f)
        return jinja_nomem(r);
    *f = (struct jinja_function){.name = row->name, .builtin = row->run, .row = row};
    *ret = (struct jinja_value){.type = JINJA_FUNCTION, .function = f};
    return 0;
}

static int unary(struct jinja_run *r, const struct jinja_node *x, struct jinja_value *ret)
{
    struct jinja_value v[2] = {jinja_int(0)};
    int rc = jinja_eval(r, x->a, &v[1]);
    if (rc < 0)
        return rc;
    if (v[1].type == JINJA_FLOAT) {
        *ret = v[1];
        ret->f = x->op == '-' ? -ret->f : ret->f;
        return 0;
    }
    if (v[1].type != JINJA_INT && v[1].type != JINJA_BOOL)
        return jinja_fail(r, ERR_INVAL, "bad operand type for unary %c: %s", x->op,
                          jinja_type_name(&v[1]));
    return jinja_binary(r, x->op, v, ret);
}

static int logic(struct jinja_run *r, const struct jinja_node *x, struct jinja_value *ret)
{
    int rc = jinja_eval(r, x->kind == NODE_COND ? x->b : x->a, ret);
    bool is = rc == 0 && jinja_truth(ret);
    if (rc < 0)
        return rc;
    if (x->kind == NODE_NOT)
        *ret = jinja_bool(!is);
    else if (x->kind == NODE_COND && !is && !x->c)
        *ret = jinja_undefined("the inline if-expression without else");
    else if (x->kind == NODE_COND)
        return jinja_eval(r, is ? x->a : x->c, ret);
    else if (is == (x->kind == NODE_AND))
        return jinja_eval(r, x->b, ret);
    return 0;
}

static int binary(struct jinja_run *r, const struct jinja_node *x, struct jinja_value *ret)
{
    struct jinja_value v[2];
    int rc = jinja_eval(r, x->a, &v[0]);
    if (rc == 0)
        rc = jinja_eval(r, x->b, &v[1]);
    r->line = x->line;
    if (rc < 0 || x->kind == NODE_BINARY)
        return rc < 0 ? rc : jinja_binary(r, x->op, v, ret);
    return jinja_item(r, &v[0], &v[1], ret);
}

static int dispatch(struct jinja_run *r, const struct jinja_node *x, struct jinja_value *ret)
{
    struct jinja_value v;
    int rc;
    switch (x->kind) {
    case NODE_CONST:
        *ret = x->value;
        return 0;
    case NODE_NAME:
        return name(r, x, ret);
    case NODE_ATTR:
        rc = jinja_eval(r, x->a, &v);
        return rc < 0 ? rc : jinja_attribute(r, &v, &x->name, ret);
    case NODE_ITEM:
    case NODE_BINARY:
        return binary(r, x, ret);
    case NODE_SLICE:
        return slice(r, x, ret);
    case NODE_CALL:
        return call(r, x, ret);
    case NODE_FILTER:
    case NODE_TEST:
        return pipe_or_test(r, x, ret);
    case NODE_UNARY:
        return unary(r, x, ret);
    case NODE_COMPARE:
        return compare(r, x, ret);
    case NODE_LIST:
    case NODE_TUPLE:
        return list(r, x, ret);
    case NODE_DICT:
        return dict(r, x, ret);
    case NODE_CAPTURED:
        *ret = r->captured;
        return 0;
    default:
        return logic(r, x, ret);
    }
}

int jinja_eval(struct jinja_run *r, const struct jinja_node *x, struct jinja_value *ret)
{
    struct jinja_value v = jinja_none();
    r->line = x->line;
    int rc = jinja_step(r, 0);
    if (rc == 0 && ++r->depth > JINJA_EVAL_DEPTH_MAX)
        rc = jinja_fail(r, ERR_LIMIT, "nested deeper than %d", JINJA_EVAL_DEPTH_MAX);
    if (rc == 0)
        rc = dispatch(r, x, &v);
    r->depth--;
    if (rc == 0)
        *ret = v;
    return rc;
}
