/*
 * Statements run. Scopes are as Jinja2 compiles them: the body of a for (each turn anew), a macro,
 * a with, a call block and the body of a set block have one of their own; an if has none. So a set
 * in a loop isn't seen behind it, which is what namespace() is for.
 */
#include <string.h>

#include "engine/jinja_impl.h"

#define HELD_MAX 10000 /* lists and dicts looked into */

struct jinja_scope *jinja_scope_push(struct jinja_run *r, struct jinja_scope *parent)
{
    struct jinja_scope *s = arena_alloc(r->arena, sizeof *s);
    if (!s) {
        (void)jinja_nomem(r);
        return NULL;
    }
    s->parent = parent;
    return s;
}

int jinja_set(struct jinja_run *r, const struct jinja_str *name, const struct jinja_value *v)
{
    struct jinja_value k = jinja_of_str(name);
    return jinja_dict_put(r, &r->scope->vars, &k, v);
}

static int emit(struct jinja_run *r, const struct jinja_str *s)
{
    int rc = jinja_step(r, s->n);
    if (rc < 0)
        return rc;
    buf_add(r->out.text, s->s, s->n);
    if (r->out.marks) {
        char *to = buf_reserve(r->out.marks, s->n + 1);
        if (to && s->marks)
            memcpy(to, s->marks, s->n);
        else if (to)
            memset(to, 0, s->n);
        r->out.marks->len += to ? s->n : 0;
    }
    if (buf_error(r->out.text) < 0 || (r->out.marks && buf_error(r->out.marks) < 0))
        return jinja_fail(r, ERR_LIMIT, "the rendering is longer than %zu bytes", r->out.text->max);
    return 0;
}

/* Cuts what was printed since `from` off, as a string. */
int jinja_capture(struct jinja_run *r, size_t from, struct jinja_value *ret)
{
    size_t n = r->out.text->len - from;
    char *s = arena_copy(r->arena, n > 0 ? r->out.text->data + from : "", n);
    *ret = jinja_text(s, n);
    r->out.text->len = from;
    if (!r->out.marks)
        return s ? 0 : jinja_nomem(r);
    char *marks = arena_copy(r->arena, n > 0 ? r->out.marks->data + from : "", n);
    r->out.marks->len = from;
    ret->str.marks = (uint8_t *)marks;
    return s && marks ? 0 : jinja_nomem(r);
}

/* Whether v is, or holds, a macro of an inner scope; what is deep or more than *left counts as
 * one. */
static bool holds_macro(const struct jinja_run *r, const struct jinja_value *v, int depth,
                        size_t *left)
{
    if (v->type == JINJA_FUNCTION)
        return v->function->macro && v->function->scope != r->root;
    const bool is_list = v->type == JINJA_LIST;
    if (!is_list && v->type != JINJA_DICT && v->type != JINJA_NAMESPACE)
        return false;
    bool is = depth > 4 || *left == 0;
    *left -= *left > 0;
    for (size_t i = 0; is_list && !is && i < v->list->n; i++)
        is = holds_macro(r, &v->list->v[i], depth + 1, left);
    for (size_t i = 0; !is_list && !is && i < v->dict->n; i++)
        is = holds_macro(r, &v->dict->v[i].value, depth + 1, left);
    return is;
}

/* ns.name = v. A macro that outlives its scope that way finds other values there in Jinja2. */
static int assign_attribute(struct jinja_run *r, const struct jinja_node *target,
                            const struct jinja_value *v)
{
    struct jinja_value ns, k = jinja_of_str(&target->name);
    size_t left = HELD_MAX;
    int rc = jinja_eval(r, target->a, &ns);
    if (rc == 0 && ns.type != JINJA_NAMESPACE) /* a block is set in a dict there */
        rc = jinja_fail(r, ns.type == JINJA_DICT ? ERR_UNSUPPORTED : ERR_INVAL,
                        "cannot assign attribute on non-namespace object");
    if (rc == 0 && r->has_inner_macros && holds_macro(r, v, 0, &left))
        rc = jinja_fail(r, ERR_UNSUPPORTED, "a macro of an inner scope in a namespace");
    r->n_writes++;
    return rc < 0 ? rc : jinja_dict_put(r, ns.dict, &k, v);
}

int jinja_assign(struct jinja_run *r, const struct jinja_node *target, const struct jinja_value *v)
{
    struct jinja_list *l;
    if (target->kind == NODE_NAME)
        return jinja_set(r, &target->name, v);
    if (target->kind == NODE_ATTR)
        return assign_attribute(r, target, v);
    int rc = jinja_iterate(r, v, &l);
    if (rc == 0 && l->n != target->n)
        rc = jinja_fail(r, ERR_INVAL, "%zu values for %zu names", l->n, target->n);
    for (size_t i = 0; rc == 0 && i < target->n; i++)
        rc = jinja_assign(r, target->v[i], &l->v[i]); /* as deep as the source was let to be */
    return rc;
}

int jinja_captured(struct jinja_run *r, const struct jinja_node *body,
                         struct jinja_scope *scope, struct jinja_value *ret)
{
    struct jinja_scope *outer = r->scope;
    size_t from = r->out.text->len;
    r->scope = scope;
    int rc = scope ? jinja_run_body(r, body) : ERR_LIMIT;
    r->scope = outer;
    return rc < 0 ? rc : jinja_capture(r, from, ret);
}

/* The text of a block, through its filters, which see what the block has set. */
static int filtered(struct jinja_run *r, const struct jinja_node *chain, struct jinja_scope *scope,
                    struct jinja_value *v)
{
    struct jinja_value outer = r->captured;
    struct jinja_scope *at = r->scope;
    r->scope = scope;
    r->captured = *v;
    int rc = chain ? jinja_eval(r, chain, v) : 0;
    r->captured = outer;
    r->scope = at;
    return rc;
}

static int set_block(struct jinja_run *r, const struct jinja_node *x)
{
    struct jinja_value v;
    struct jinja_scope *scope = jinja_scope_push(r, r->scope);
    int rc = jinja_captured(r, x->b, scope, &v);
    if (rc < 0 || r->flow != FLOW_NONE)
        return rc; /* break leaves it undone */
    rc = filtered(r, x->c, scope, &v);
    return rc < 0 ? rc : jinja_assign(r, x->a, &v);
}

static int filter_block(struct jinja_run *r, const struct jinja_node *x)
{
    struct jinja_value v;
    struct jinja_scope *scope = jinja_scope_push(r, r->scope);
    int rc = jinja_captured(r, x->a, scope, &v);
    if (rc < 0 || r->flow != FLOW_NONE)
        return rc;
    rc = filtered(r, x->b, scope, &v);
    if (rc == 0 && v.type != JINJA_STR) /* as Jinja2, which joins the pieces of its output */
        rc = jinja_fail(r, ERR_INVAL, "a filter block that gives %s", jinja_type_name(&v));
    return rc < 0 ? rc : emit(r, &v.str);
}

static int run_if(struct jinja_run *r, const struct jinja_node *x)
{
    struct jinja_value v;
    for (size_t i = 0; i + 1 < x->n; i += 2) {
        int rc = jinja_eval(r, x->v[i], &v);
        if (rc < 0)
            return rc;
        if (jinja_truth(&v))
            return jinja_run_body(r, x->v[i + 1]);
    }
    return x->a ? jinja_run_body(r, x->a) : 0;
}

static int make_macro(struct jinja_run *r, const struct jinja_node *x, struct jinja_value *ret)
{
    struct jinja_function *f = arena_alloc(r->arena, sizeof *f);
    if (!f)
        return jinja_nomem(r);
    *f = (struct jinja_function){.name = x->name.s, .macro = x, .scope = r->scope};
    *ret = (struct jinja_value){.type = JINJA_FUNCTION, .function = f};
    r->has_inner_macros = r->has_inner_macros || r->scope != r->root;
    return 0;
}

static int call_block(struct jinja_run *r, const struct jinja_node *x)
{
    struct jinja_value fn, caller, v;
    struct jinja_str s;
    struct jinja_args *args = arena_alloc(r->arena, sizeof *args);
    if (!args)
        return jinja_nomem(r);
    int rc = make_macro(r, x->b, &caller);
    if (rc == 0)
        rc = jinja_eval(r, x->a->a, &fn);
    if (rc == 0)
        rc = jinja_eval_args(r, x->a, args);
    if (rc == 0 && args->n_named == JINJA_ARGS_MAX)
        rc = jinja_fail(r, ERR_UNSUPPORTED, "more than %d arguments", JINJA_ARGS_MAX - 1);
    if (rc < 0)
        return rc;
    args->names[args->n_named] = (struct jinja_str){.s = "caller", .n = 6};
    args->named[args->n_named++] = caller;
    rc = jinja_call(r, &fn, args, &v);
    if (rc == 0)
        rc = jinja_to_str(r, &v, &s);
    return rc < 0 ? rc : emit(r, &s);
}

static int run_scope(struct jinja_run *r, const struct jinja_node *x)
{
    struct jinja_scope *outer = r->scope, *inner = jinja_scope_push(r, outer);
    int rc = inner ? 0 : ERR_LIMIT;
    for (size_t i = 0; rc == 0 && i + 1 < x->n; i += 2) {
        struct jinja_value v;
        rc = jinja_eval(r, x->v[i + 1], &v); /* outside: x = x */
        r->scope = inner;
        if (rc == 0)
            rc = jinja_assign(r, x->v[i], &v);
        r->scope = outer;
    }
    r->scope = inner;
    if (rc == 0)
        rc = jinja_run_body(r, x->a);
    r->scope = outer;
    return rc;
}

static int print(struct jinja_run *r, const struct jinja_node *x)
{
    struct jinja_value v;
    struct jinja_str s;
    int rc = jinja_eval(r, x->a, &v);
    if (rc == 0)
        rc = jinja_to_str(r, &v, &s);
    return rc < 0 ? rc : emit(r, &s);
}

static int statement(struct jinja_run *r, const struct jinja_node *x)
{
    struct jinja_value v;
    int rc;
    switch (x->kind) {
    case NODE_TEXT:
        return emit(r, &x->name);
    case NODE_PRINT:
        return print(r, x);
    case NODE_IF:
        return run_if(r, x);
    case NODE_FOR:
        return jinja_run_for(r, x);
    case NODE_SET:
        rc = jinja_eval(r, x->b, &v);
        return rc < 0 ? rc : jinja_assign(r, x->a, &v);
    case NODE_SET_BLOCK:
        return set_block(r, x);
    case NODE_MACRO:
        rc = make_macro(r, x, &v);
        return rc < 0 ? rc : jinja_set(r, &x->name, &v);
    case NODE_CALL_BLOCK:
        return call_block(r, x);
    case NODE_FILTER_BLOCK:
        return filter_block(r, x);
    case NODE_SCOPE:
        return run_scope(r, x);
    default:
        r->flow = x->kind == NODE_BREAK ? FLOW_BREAK : FLOW_CONTINUE;
        return 0;
    }
}

/* A body's statements, until a break or continue. */
int jinja_run_body(struct jinja_run *r, const struct jinja_node *x)
{
    int rc = 0;
    if (++r->depth > JINJA_EVAL_DEPTH_MAX)
        return jinja_fail(r, ERR_LIMIT, "nested deeper than %d", JINJA_EVAL_DEPTH_MAX);
    for (size_t i = 0; rc == 0 && i < x->n_late; i++) {
        const struct jinja_value v = jinja_undefined(x->late[i]->s);
        rc = jinja_set(r, x->late[i], &v);
    }
    for (size_t i = 0; rc == 0 && i < x->n && r->flow == FLOW_NONE; i++) {
        r->line = x->v[i]->line;
        rc = jinja_step(r, 0);
        if (rc == 0)
            rc = statement(r, x->v[i]);
    }
    r->depth--;
    return rc;
}

int jinja_render(const struct jinja *j, struct arena *a, const struct jinja_value *vars,
                 int64_t now, struct jinja_output *ret, struct err *e)
{
    struct err own = {0};
    struct jinja_scope root = {0};
    struct jinja_run r = {.j = j, .arena = a, .out = *ret, .vars = vars, .now = now};
    size_t n_text = ret->text->len, n_marks = ret->marks ? ret->marks->len : 0;
    r.scope = r.root = &root;
    r.e = e ? e : &own;
    int rc = jinja_run_body(&r, j->body);
    if (rc < 0) {
        if (buf_error(ret->text) == 0)
            ret->text->len = n_text;
        if (ret->marks && buf_error(ret->marks) == 0)
            ret->marks->len = n_marks;
    }
    return rc;
}
