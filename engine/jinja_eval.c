/*
 * Expressions evaluated. What isn't there is undefined, which prints as nothing and fails at
 * anything but printing, testing and comparing. Arithmetic is in jinja_math.c, lookups in
 * jinja_item.c, calls in jinja_call.c.
 */
#include <string.h>

#include "engine/jinja_impl.h"

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
            return jinja_fail_undefined(r, &v[i]);
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

/* Functions that Jinja2 always has, and that aren't here: not even "is defined" may see them. */
static bool is_foreign_global(const struct jinja_str *name)
{
    return jinja_str_is(name, "cycler") || jinja_str_is(name, "joiner") ||
           jinja_str_is(name, "lipsum");
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
    if (!v && is_foreign_global(&x->name))
        return jinja_fail(r, ERR_UNSUPPORTED, "the function \"%s\"", x->name.s);
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
        return jinja_slice(r, x, ret);
    case NODE_CALL:
        return jinja_eval_call(r, x, ret);
    case NODE_FILTER:
    case NODE_TEST:
        return jinja_eval_pipe(r, x, ret);
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
