/* Calls: arguments evaluated and bound, builtin functions, filters, tests and macros run. */
#include <string.h>

#include "engine/jinja_impl.h"

static int too_many(struct jinja_run *r)
{
    return jinja_fail(r, ERR_UNSUPPORTED, "more than %d arguments", JINJA_ARGS_MAX);
}

static int add_named(struct jinja_run *r, struct jinja_args *args, const struct jinja_str *name,
                     const struct jinja_value *v)
{
    for (size_t i = 0; i < args->n_named; i++)
        if (jinja_str_equal(&args->names[i], name))
            return jinja_fail(r, ERR_INVAL, "an argument twice: %.*s",
                              (int)(name->n < 40 ? name->n : 40), name->s);
    if (args->n_named == JINJA_ARGS_MAX)
        return too_many(r);
    args->names[args->n_named] = *name;
    args->named[args->n_named++] = *v;
    return 0;
}

/* *v */
static int spread_list(struct jinja_run *r, const struct jinja_value *v, struct jinja_args *args)
{
    struct jinja_list *l;
    int rc = jinja_iterate(r, v, &l);
    if (rc == 0 && l->n > JINJA_ARGS_MAX - args->n)
        rc = too_many(r);
    for (size_t i = 0; rc == 0 && i < l->n; i++)
        args->v[args->n++] = l->v[i];
    return rc;
}

/* **v */
static int spread_dict(struct jinja_run *r, const struct jinja_value *v, struct jinja_args *args)
{
    if (v->type != JINJA_DICT)
        return jinja_fail(r, v->type == JINJA_UNDEFINED ? ERR_UNSUPPORTED : ERR_INVAL, "**%s",
                          jinja_type_name(v));
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < v->dict->n; i++) {
        const struct jinja_pair *pair = &v->dict->v[i];
        if (pair->key.type != JINJA_STR)
            return jinja_fail(r, ERR_INVAL, "keywords must be strings");
        rc = add_named(r, args, &pair->key.str, &pair->value);
    }
    return rc;
}

int jinja_eval_args(struct jinja_run *r, const struct jinja_node *x, struct jinja_args *args)
{
    args->n = args->n_named = 0;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < x->n; i++) {
        const struct jinja_node *a = x->v[i];
        const bool is_plain = a->kind != NODE_KEYWORD && a->kind != NODE_SPREAD;
        struct jinja_value v;
        rc = jinja_eval(r, is_plain ? a : a->a, &v);
        if (rc < 0)
            break;
        if (is_plain)
            args->v[args->n++] = v; /* the parser has counted them */
        else if (a->kind == NODE_KEYWORD)
            rc = add_named(r, args, &a->name, &v);
        else
            rc = a->op == '*' ? spread_list(r, &v, args) : spread_dict(r, &v, args);
    }
    return rc;
}

/* The argument given by name, if any, goes to *v. */
static int bind_named(struct jinja_run *r, const struct jinja_builtin_row *row,
                      struct jinja_args *args, const struct jinja_str *name, struct jinja_value *v)
{
    for (size_t i = 0; i < args->n_named; i++) {
        if (args->named[i].type == JINJA_ABSENT || !jinja_str_equal(&args->names[i], name))
            continue;
        if (v->type != JINJA_ABSENT)
            return jinja_fail(r, ERR_INVAL, "%s has an argument twice", row->name);
        *v = args->named[i];
        args->named[i].type = JINJA_ABSENT; /* it is taken */
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
        if (args->named[i].type != JINJA_ABSENT)
            return jinja_fail(r, ERR_INVAL, "%s has no argument \"%.*s\"", row->name,
                              (int)(args->names[i].n < 40 ? args->names[i].n : 40),
                              args->names[i].s);
    return args->n > n
               ? jinja_fail(r, ERR_INVAL, "%s takes %zu arguments, not %zu", row->name, n, args->n)
               : 0;
}

/* A generator that fails when it is used, as r->e says. */
static int fails_later(struct jinja_run *r, struct jinja_value *ret)
{
    char *why = arena_copy(r->arena, r->e->text, strlen(r->e->text));
    if (!why)
        return jinja_nomem(r);
    *r->e = (struct err){0};
    int rc = jinja_list_make(r, LIST_GENERATOR, ret);
    if (rc == 0)
        ret->list->late = why;
    return rc;
}

int jinja_run_row(struct jinja_run *r, const struct jinja_builtin_row *row,
                  const struct jinja_value *self, struct jinja_args *args, struct jinja_value *ret)
{
    int rc = row->params ? bind(r, row, args) : 0;
    if (rc < 0)
        return rc;
    rc = row->run(r, self, args, ret);
    return rc == ERR_INVAL && row->is_lazy ? fails_later(r, ret) : rc;
}

/* What the call gives as parameter i; JINJA_ABSENT: nothing. */
static int argument(struct jinja_run *r, const struct jinja_node *param, size_t i,
                    struct jinja_args *args, struct jinja_value *ret)
{
    *ret = (struct jinja_value){.type = JINJA_ABSENT};
    if (i < args->n)
        *ret = args->v[i];
    for (size_t k = 0; k < args->n_named; k++)
        if (jinja_str_equal(&args->names[k], &param->name)) {
            if (ret->type != JINJA_ABSENT)
                return jinja_fail(r, ERR_INVAL, "an argument twice: %.40s", param->name.s);
            *ret = args->named[k];
            args->named[k].type = JINJA_ABSENT; /* it is taken */
        }
    return 0;
}

/* The arguments that no parameter took: kwargs, or the first of them fails the call. */
static int bind_kwargs(struct jinja_run *r, const struct jinja_node *m,
                       const struct jinja_args *args)
{
    static const struct jinja_str kwargs = {.s = "kwargs", .n = 6};
    struct jinja_value rest;
    int rc = jinja_dict_new(r->arena, &rest) < 0 ? jinja_nomem(r) : 0;
    for (size_t k = 0; rc == 0 && k < args->n_named; k++) {
        const struct jinja_value name = jinja_of_str(&args->names[k]);
        if (args->named[k].type == JINJA_ABSENT)
            continue;
        if (!(m->specials & 1u << SPECIAL_KWARGS))
            return jinja_fail(r, ERR_INVAL, "macro \"%.40s\" takes no argument \"%.*s\"", m->name.s,
                              (int)(name.str.n < 40 ? name.str.n : 40), name.str.s);
        rc = jinja_dict_put(r, rest.dict, &name, &args->named[k]);
    }
    if (rc < 0 || !(m->specials & 1u << SPECIAL_KWARGS))
        return rc;
    return jinja_set(r, &kwargs, &rest);
}

static int bind_varargs(struct jinja_run *r, const struct jinja_node *m,
                        const struct jinja_args *args)
{
    static const struct jinja_str varargs = {.s = "varargs", .n = 7};
    struct jinja_value rest;
    if (!(m->specials & 1u << SPECIAL_VARARGS))
        return args->n <= m->n ? 0
                               : jinja_fail(r, ERR_INVAL,
                                            "macro \"%.40s\" takes not more than %zu arguments",
                                            m->name.s, m->n);
    int rc = jinja_list_make(r, LIST_TUPLE, &rest);
    for (size_t i = m->n; rc == 0 && i < args->n; i++)
        rc = jinja_push(r, &rest, &args->v[i]);
    return rc < 0 ? rc : jinja_set(r, &varargs, &rest);
}

/* A macro whose body names its caller has one, if only undefined. */
static int bind_caller(struct jinja_run *r, const struct jinja_node *m, struct jinja_args *args)
{
    static const struct jinja_str name = {.s = "caller", .n = 6};
    struct jinja_value caller = jinja_undefined("caller");
    if (!(m->specials & 1u << SPECIAL_CALLER))
        return 0;
    for (size_t k = 0; k < args->n_named; k++)
        if (jinja_str_equal(&args->names[k], &name)) {
            caller = args->named[k].type == JINJA_NONE ? caller : args->named[k];
            args->named[k].type = JINJA_ABSENT;
        }
    return jinja_set(r, &name, &caller);
}

/* Defaults come last: they see all that was given, and what wasn't, of later ones too, as
 * undefined. */
static int bind_macro(struct jinja_run *r, const struct jinja_node *m, struct jinja_args *args)
{
    struct jinja_value v;
    bool is_given[JINJA_ARGS_MAX] = {false};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < m->n; i++) {
        rc = argument(r, m->v[i], i, args, &v);
        is_given[i] = rc == 0 && v.type != JINJA_ABSENT;
        if (!is_given[i])
            v = jinja_undefined(m->v[i]->name.s);
        if (rc == 0)
            rc = jinja_set(r, &m->v[i]->name, &v);
    }
    if (rc == 0)
        rc = bind_caller(r, m, args);
    if (rc == 0)
        rc = bind_kwargs(r, m, args);
    if (rc == 0)
        rc = bind_varargs(r, m, args);
    for (size_t i = 0; rc == 0 && i < m->n; i++) {
        if (is_given[i] || !m->v[i]->a)
            continue;
        rc = jinja_eval(r, m->v[i]->a, &v);
        if (rc == 0)
            rc = jinja_set(r, &m->v[i]->name, &v);
    }
    return rc;
}

static int call_macro(struct jinja_run *r, const struct jinja_function *f,
                      struct jinja_args *args, struct jinja_value *ret)
{
    struct jinja_scope *outer = r->scope, *scope = jinja_scope_push(r, f->scope);
    if (!scope)
        return ERR_LIMIT;
    if (++r->n_calls > JINJA_CALLS_MAX)
        return jinja_fail(r, ERR_LIMIT, "more than %d macros within each other", JINJA_CALLS_MAX);
    r->scope = scope;
    int rc = bind_macro(r, f->macro, args);
    r->scope = outer;
    if (rc == 0)
        rc = jinja_captured(r, f->macro->a, scope, ret);
    r->n_calls--;
    return rc;
}

int jinja_call(struct jinja_run *r, const struct jinja_value *fn, struct jinja_args *args,
               struct jinja_value *ret)
{
    if (fn->type == JINJA_UNDEFINED)
        return jinja_fail_undefined(r, fn);
    if (fn->type == JINJA_LOOP)
        return jinja_loop_call(r, fn->loop, args, ret);
    if (fn->type != JINJA_FUNCTION)
        return jinja_fail(r, ERR_INVAL, "%s can't be called", jinja_type_name(fn));
    const struct jinja_function *f = fn->function;
    int rc = f->macro ? call_macro(r, f, args, ret)
                      : jinja_run_row(r, f->row, &f->self, args, ret);
    if (rc == 0 && f->self.is_markup && ret->type == JINJA_STR)
        ret->is_markup = true;
    return rc;
}

int jinja_eval_call(struct jinja_run *r, const struct jinja_node *x, struct jinja_value *ret)
{
    struct jinja_value fn;
    struct jinja_args *args = arena_alloc(r->arena, sizeof *args);
    if (!args)
        return jinja_nomem(r);
    int rc = jinja_eval(r, x->a, &fn);
    if (rc == 0)
        rc = jinja_eval_args(r, x, args);
    r->line = x->line;
    return rc < 0 ? rc : jinja_call(r, &fn, args, ret);
}

int jinja_eval_pipe(struct jinja_run *r, const struct jinja_node *x, struct jinja_value *ret)
{
    struct jinja_value v;
    struct jinja_args *args = arena_alloc(r->arena, sizeof *args);
    if (!args)
        return jinja_nomem(r);
    int rc = jinja_eval(r, x->a, &v);
    if (rc == 0)
        rc = jinja_eval_args(r, x, args);
    r->line = x->line;
    const struct jinja_builtin_row *row = x->kind == NODE_FILTER ? &x->filter->row : &x->test->row;
    return rc < 0 ? rc : jinja_run_row(r, row, &v, args, ret);
}
