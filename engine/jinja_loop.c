/*
 * for. The loop variable is one object for all turns, with the items before it.
 *
 * Jinja2 evaluates a loop's own condition ("for x in xs if …") item by item: just before each turn
 * where the body doesn't say "loop", and as far ahead as loop's attributes look where it does. Here
 * it is just before each turn, or for all items first; what could tell the difference in the second
 * case (a condition that reads a namespace which the body writes) is refused.
 *
 * "else" runs when no turn came to the end of its body, so behind a break or continue too.
 */
#include <stdio.h>
#include <string.h>

#include "engine/jinja_impl.h"

struct jinja_loop {
    const struct jinja_node *x;
    struct jinja_scope *outer; /* where the for stands */
    const struct jinja_list *l;
    size_t i;
    int depth;
    struct jinja_value changed; /* what changed() was told last, a tuple; JINJA_ABSENT: nothing */
};

size_t jinja_loop_length(const struct jinja_loop *loop)
{
    return loop->l->n;
}

int jinja_loop_repr(struct jinja_text *t, const struct jinja_loop *loop)
{
    char text[64];
    snprintf(text, sizeof text, "<LoopContext %zu/%zu>", loop->i + 1, loop->l->n);
    return jinja_text_lit(t, text);
}

static int need_unnamed(struct jinja_run *r, const struct jinja_args *args)
{
    return args->n_named > 0 ? jinja_fail(r, ERR_INVAL, "a named argument of loop's") : 0;
}

BUILTIN(loop_cycle)
{
    int rc = need_unnamed(r, args);
    if (rc < 0 || args->n == 0)
        return rc < 0 ? rc : jinja_fail(r, ERR_INVAL, "no items for cycling given");
    *ret = args->v[self->loop->i % args->n];
    return 0;
}

BUILTIN(loop_changed)
{
    struct jinja_value now;
    bool is_same = false;
    int rc = need_unnamed(r, args);
    if (rc == 0)
        rc = jinja_list_make(r, LIST_TUPLE, &now);
    for (size_t i = 0; rc == 0 && i < args->n; i++)
        rc = jinja_push(r, &now, &args->v[i]);
    if (rc == 0 && self->loop->changed.type != JINJA_ABSENT)
        rc = jinja_equal(r, &self->loop->changed, &now, &is_same);
    if (rc < 0)
        return rc;
    self->loop->changed = now;
    *ret = jinja_bool(!is_same);
    return 0;
}

static int bound(struct jinja_run *r, const struct jinja_value *self,
                 const struct jinja_builtin_row *row, struct jinja_value *ret)
{
    struct jinja_function *f = arena_alloc(r->arena, sizeof *f);
    if (!f)
        return jinja_nomem(r);
    *f = (struct jinja_function){.name = row->name, .builtin = row->run, .row = row, .self = *self};
    *ret = (struct jinja_value){.type = JINJA_FUNCTION, .function = f};
    return 0;
}

int jinja_loop_attribute(struct jinja_run *r, const struct jinja_value *v,
                         const struct jinja_str *name, struct jinja_value *ret)
{
    static const struct jinja_builtin_row rows[] = {{.name = "cycle", .run = loop_cycle},
                                                    {.name = "changed", .run = loop_changed}};
    const struct jinja_loop *loop = v->loop;
    const int64_t i = (int64_t)loop->i, n = (int64_t)loop->l->n;
    const struct {
        const char *name;
        int64_t i;
    } numbers[] = {{"index", i + 1},  {"index0", i},
                   {"revindex", n - i}, {"revindex0", n - i - 1},
                   {"length", n},     {"depth", loop->depth + 1},
                   {"depth0", loop->depth}};
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
        if (jinja_str_is(name, numbers[k].name))
            *ret = jinja_int(numbers[k].i);
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        if (jinja_str_is(name, rows[k].name))
            return bound(r, v, &rows[k], ret);
    if (jinja_str_is(name, "first"))
        *ret = jinja_bool(i == 0);
    else if (jinja_str_is(name, "last"))
        *ret = jinja_bool(i + 1 == n);
    else if (jinja_str_is(name, "previtem"))
        *ret = i > 0 ? loop->l->v[i - 1] : jinja_undefined("there is no previous item");
    else if (jinja_str_is(name, "nextitem"))
        *ret = i + 1 < n ? loop->l->v[i + 1] : jinja_undefined("there is no next item");
    return 0;
}

/* Whether the loop's own condition keeps the item. */
static int is_kept(struct jinja_run *r, const struct jinja_node *x, struct jinja_scope *outer,
                   const struct jinja_value *item, bool *ret)
{
    struct jinja_value v = jinja_none();
    struct jinja_scope *at = r->scope;
    r->scope = jinja_scope_push(r, outer);
    int rc = r->scope ? jinja_assign(r, x->target, item) : ERR_LIMIT;
    if (rc == 0)
        rc = jinja_eval(r, x->b, &v);
    r->scope = at;
    *ret = jinja_truth(&v);
    return rc;
}

/* Those items that the condition keeps. */
static int keep_some(struct jinja_run *r, const struct jinja_node *x, struct jinja_scope *outer,
                     struct jinja_list **list)
{
    struct jinja_value kept;
    int rc = jinja_list_make(r, LIST_PLAIN, &kept);
    for (size_t i = 0; rc == 0 && i < (*list)->n; i++) {
        bool is = false;
        rc = is_kept(r, x, outer, &(*list)->v[i], &is);
        if (rc == 0 && is)
            rc = jinja_push(r, &kept, &(*list)->v[i]);
    }
    *list = kept.list;
    return rc;
}

/* The items of a loop; those that a condition keeps if it is evaluated for all of them first. */
static int items_of(struct jinja_run *r, const struct jinja_loop *loop, const struct jinja_value *v,
                    struct jinja_list **ret, bool *ret_reads)
{
    const struct jinja_node *x = loop->x;
    const size_t n_reads = r->n_reads;
    int rc = jinja_iterate(r, v, ret);
    if (rc == 0 && x->b && x->uses_loop)
        rc = keep_some(r, x, loop->outer, ret);
    *ret_reads = r->n_reads != n_reads;
    return rc == ERR_INVAL && x->has_break
               ? jinja_fail(r, ERR_UNSUPPORTED, "a loop with break over what fails")
               : rc;
}

static int turn(struct jinja_run *r, struct jinja_loop *loop)
{
    static const struct jinja_str loop_name = {.s = "loop", .n = 4};
    const struct jinja_node *x = loop->x;
    const struct jinja_value self = {.type = JINJA_LOOP, .loop = loop};
    r->scope = jinja_scope_push(r, loop->outer);
    int rc = r->scope ? 0 : ERR_LIMIT;
    if (rc == 0 && x->uses_loop)
        rc = jinja_set(r, &loop_name, &self);
    if (rc == 0)
        rc = jinja_assign(r, x->target, &loop->l->v[loop->i]);
    return rc < 0 ? rc : jinja_run_body(r, x->c);
}

static int run_else(struct jinja_run *r, const struct jinja_loop *loop)
{
    r->scope = jinja_scope_push(r, loop->outer);
    return r->scope ? jinja_run_body(r, loop->x->v[0]) : ERR_LIMIT;
}

/* All turns over v; prints. */
static int run_over(struct jinja_run *r, struct jinja_loop *loop, const struct jinja_value *v)
{
    const struct jinja_node *x = loop->x;
    struct jinja_scope *at = r->scope;
    struct jinja_list *l = NULL;
    bool has_ended = false, reads = false;
    int rc = items_of(r, loop, v, &l, &reads);
    loop->l = l;
    const size_t n_writes = r->n_writes;
    for (size_t i = 0; rc == 0 && i < l->n && r->flow != FLOW_BREAK; i++) {
        bool is = true;
        r->flow = FLOW_NONE;
        loop->i = i;
        if (x->b && !x->uses_loop)
            rc = is_kept(r, x, loop->outer, &l->v[i], &is);
        if (rc < 0 || !is)
            continue;
        rc = turn(r, loop);
        has_ended = has_ended || r->flow == FLOW_NONE;
        r->scope = at;
        if (rc == 0 && reads && r->n_writes != n_writes)
            rc = jinja_fail(r, ERR_UNSUPPORTED,
                            "a loop whose condition reads a namespace that is set in it");
    }
    r->flow = FLOW_NONE;
    if (rc == 0 && !has_ended && x->n > 0)
        rc = run_else(r, loop);
    r->scope = at;
    return rc;
}

static struct jinja_loop *make_loop(struct jinja_run *r, const struct jinja_node *x,
                                    struct jinja_scope *outer, int depth)
{
    struct jinja_loop *loop = arena_alloc(r->arena, sizeof *loop);
    if (!loop) {
        (void)jinja_nomem(r);
        return NULL;
    }
    *loop = (struct jinja_loop){.x = x, .outer = outer, .depth = depth};
    loop->changed.type = JINJA_ABSENT;
    return loop;
}

int jinja_run_for(struct jinja_run *r, const struct jinja_node *x)
{
    struct jinja_value v;
    struct jinja_loop *loop = make_loop(r, x, r->scope, 0);
    int rc = loop ? jinja_eval(r, x->a, &v) : ERR_LIMIT;
    return rc < 0 ? rc : run_over(r, loop, &v);
}

int jinja_loop_call(struct jinja_run *r, const struct jinja_loop *loop, struct jinja_args *args,
                    struct jinja_value *ret)
{
    if (!loop->x->is_recursive)
        return jinja_fail(r, ERR_INVAL, "a call of the loop, which isn't recursive");
    int rc = need_unnamed(r, args);
    if (rc < 0 || args->n != 1)
        return rc < 0 ? rc : jinja_fail(r, ERR_INVAL, "loop takes one argument");
    struct jinja_loop *inner = make_loop(r, loop->x, loop->outer, loop->depth + 1);
    if (!inner)
        return ERR_LIMIT;
    if (++r->n_calls > JINJA_CALLS_MAX)
        return jinja_fail(r, ERR_LIMIT, "more than %d loops and macros within each other",
                          JINJA_CALLS_MAX);
    const size_t from = r->out.text->len;
    rc = run_over(r, inner, &args->v[0]);
    r->n_calls--;
    return rc < 0 ? rc : jinja_capture(r, from, ret);
}
