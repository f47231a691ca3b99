/* Calls: arguments evaluated and bound, builtin functions, filters, tests and macros run. */
#include <string.h>

#include "engine/jinja_impl.h"

int jinja_eval_args(struct jinja_run *r, const struct jinja_node *x, struct jinja_args *args)
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

/* Whether the call gives parameter i, and what. */
static int argument(struct jinja_run *r, const struct jinja_node *param, size_t i,
                    struct jinja_args *args, struct jinja_value *ret)
{
    *ret = jinja_undefined(param->name.s);
    bool is_given = i < args->n;
    if (is_given)
        *ret = args->v[i];
    for (size_t k = 0; k < args->n_named; k++)
        if (jinja_str_equal(&args->names[k], &param->name)) {
            if (is_given)
                return jinja_fail(r, ERR_INVAL, "an argument twice: %.40s", param->name.s);
            *ret = args->named[k];
            args->names[k] = (struct jinja_str){.s = ""};
            is_given = true;
        }
    return !is_given && param->a ? jinja_eval(r, param->a, ret) : 0;
}

static int bind_macro(struct jinja_run *r, const struct jinja_node *m, struct jinja_args *args)
{
    static const struct jinja_str caller = {.s = "caller", .n = 6};
    struct jinja_value v;
    if (args->n > m->n)
        return jinja_fail(r, ERR_INVAL, "macro \"%.40s\" takes not more than %zu arguments",
                          m->name.s, m->n);
    for (size_t i = 0; i < m->n; i++) {
        int rc = argument(r, m->v[i], i, args, &v);
        if (rc == 0)
            rc = jinja_set(r, &m->v[i]->name, &v);
        if (rc < 0)
            return rc;
    }
    for (size_t k = 0; k < args->n_named; k++) {
        if (args->names[k].n == 0)
            continue;
        if (!jinja_str_equal(&args->names[k], &caller))
            return jinja_fail(r, ERR_INVAL, "macro \"%.40s\" takes no argument \"%.40s\"",
                              m->name.s, args->names[k].s);
        int rc = jinja_set(r, &caller, &args->named[k]);
        if (rc < 0)
            return rc;
    }
    return 0;
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
