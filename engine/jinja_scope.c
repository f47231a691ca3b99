/*
 * What a name means, found out before anything runs, as Jinja2's compiler does it.
 *
 * Each scope (the template, a turn of a for, its condition, its else, a macro, a call block, a set
 * block, a filter block, a with) has the names that its own level says, without the scopes in it.
 * Where the first thing said of a name is that it is set, on every path, and no scope around has
 * it, the name is undefined from the scope's entry until then: scopes inside that read it earlier
 * see that, and not the caller's variable of this name. Everywhere else the value is what the scope
 * around, or the caller, has. What a branch of an if sets counts as said, but isn't on every path.
 *
 * The names that scopes inside can see so go to the scope's body: jinja_run_body defines them.
 */
#include <string.h>

#include "engine/jinja_impl.h"

struct entry {
    const struct jinja_str *name; /* NULL: free */
    bool is_late, is_seen;        /* undefined at entry; named by a scope inside */
};

struct level {
    struct level *parent;
    struct entry *v; /* a hash table */
    size_t n, cap;   /* a power of two */
    struct arena *arena;
    struct err *e;
};

static int nomem(const struct level *s)
{
    return err_set(s->e, ERR_NOMEM, "no memory for the template");
}

/* Where the name is, or would be. */
static struct entry *place(struct entry *v, size_t cap, const struct jinja_str *name)
{
    uint64_t h = 1469598103934665603u; /* FNV-1a */
    for (size_t i = 0; i < name->n; i++)
        h = (h ^ (uint8_t)name->s[i]) * 1099511628211u;
    size_t i = (size_t)(h ^ h >> 32) & (cap - 1);
    while (v[i].name && !jinja_str_equal(v[i].name, name))
        i = (i + 1) & (cap - 1);
    return &v[i];
}

static struct entry *find(const struct level *s, const struct jinja_str *name)
{
    struct entry *at = s->cap > 0 ? place(s->v, s->cap, name) : NULL;
    return at && at->name ? at : NULL;
}

static int add(struct level *s, const struct jinja_str *name, bool is_late)
{
    if (s->n * 2 >= s->cap) {
        const size_t cap = s->cap > 0 ? s->cap * 2 : 16;
        struct entry *v = arena_array(s->arena, cap, sizeof *v);
        if (!v)
            return nomem(s);
        for (size_t i = 0; i < s->cap; i++)
            if (s->v[i].name)
                *place(v, cap, s->v[i].name) = s->v[i];
        s->v = v;
        s->cap = cap;
    }
    *place(s->v, s->cap, name) = (struct entry){.name = name, .is_late = is_late};
    s->n++;
    return 0;
}

/* The name in the scopes around; NULL: none has it. */
static struct entry *find_around(const struct level *s, const struct jinja_str *name)
{
    struct entry *at = NULL;
    for (s = s->parent; s && !at; s = s->parent)
        at = find(s, name);
    return at;
}

static int reads(struct level *s, const struct jinja_str *name)
{
    bool is_known = find(s, name) != NULL;
    for (const struct level *o = s->parent; o; o = o->parent) {
        struct entry *at = find(o, name);
        if (at)
            at->is_seen = is_known = true;
    }
    return is_known ? 0 : add(s, name, false);
}

static int has(struct level *s, const struct jinja_str *name)
{
    return find(s, name) ? 0 : add(s, name, false);
}

static int sets(struct level *s, const struct jinja_str *name, bool in_branch)
{
    return find(s, name) ? 0 : add(s, name, !in_branch && !find_around(s, name));
}

/* The names in an expression; only: those that aren't known in s are refused. What is long in an
 * expression (a chain of filters, of operators) goes down its a; all else is nested no deeper than
 * the parser lets it be. */
static int expression(struct level *s, const struct jinja_node *x, bool only)
{
    int rc = 0;
    for (; rc == 0 && x; x = x->a) {
        if (x->kind == NODE_NAME) {
            if (only && !find(s, &x->name) && !find_around(s, &x->name))
                return err_set(s->e, ERR_UNSUPPORTED,
                               "line %d: the name \"%.40s\" in the filter of a set block, which is "
                               "said nowhere else", x->line, x->name.s);
            return reads(s, &x->name);
        }
        if (x->b)
            rc = expression(s, x->b, only);
        if (rc == 0 && x->c)
            rc = expression(s, x->c, only);
        for (size_t i = 0; rc == 0 && i < x->n; i++)
            if (x->v[i])
                rc = expression(s, x->v[i], only);
    }
    return rc;
}

enum target { TARGET_SET, TARGET_SET_IN_BRANCH, TARGET_PARAMETER };

static int target(struct level *s, const struct jinja_node *x, enum target how)
{
    if (x->kind == NODE_ATTR)
        return expression(s, x->a, false);
    if (x->kind == NODE_NAME)
        return how == TARGET_PARAMETER ? has(s, &x->name)
                                       : sets(s, &x->name, how == TARGET_SET_IN_BRANCH);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < x->n; i++)
        rc = target(s, x->v[i], how);
    return rc;
}

/* What a body says on the level of its own scope. */
static int own(struct level *s, const struct jinja_node *body, bool in_branch);

static int own_if(struct level *s, const struct jinja_node *x)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i + 1 < x->n; i += 2) {
        rc = expression(s, x->v[i], false);
        if (rc == 0)
            rc = own(s, x->v[i + 1], true);
    }
    return rc == 0 && x->a ? own(s, x->a, true) : rc;
}

static int own_statement(struct level *s, const struct jinja_node *x, bool in_branch)
{
    const enum target how = in_branch ? TARGET_SET_IN_BRANCH : TARGET_SET;
    int rc = 0;
    switch (x->kind) {
    case NODE_PRINT:
    case NODE_FOR:
    case NODE_CALL_BLOCK:
        return expression(s, x->a, false);
    case NODE_IF:
        return own_if(s, x);
    case NODE_SET:
        rc = expression(s, x->b, false);
        return rc < 0 ? rc : target(s, x->a, how);
    case NODE_SET_BLOCK:
        return target(s, x->a, how);
    case NODE_MACRO:
        return sets(s, &x->name, in_branch);
    case NODE_FILTER_BLOCK:
        return expression(s, x->b, false);
    case NODE_SCOPE:
        for (size_t i = 0; rc == 0 && i + 1 < x->n; i += 2)
            rc = expression(s, x->v[i + 1], false);
        return rc;
    default:
        return 0;
    }
}

static int own(struct level *s, const struct jinja_node *body, bool in_branch)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < body->n; i++)
        rc = own_statement(s, body->v[i], in_branch);
    return rc;
}

/* The scopes in a body. */
static int inner(struct level *s, const struct jinja_node *body);

/* A scope to its end: s knows its parameters; its body gets what is undefined at entry. */
static int scope(struct level *s, struct jinja_node *body)
{
    size_t n = 0;
    int rc = own(s, body, false);
    if (rc == 0)
        rc = inner(s, body);
    for (size_t i = 0; rc == 0 && i < s->cap; i++)
        n += s->v[i].is_late && s->v[i].is_seen;
    if (rc < 0 || n == 0)
        return rc;
    body->late = arena_array(s->arena, n, sizeof *body->late);
    if (!body->late)
        return nomem(s);
    for (size_t i = 0; i < s->cap; i++)
        if (s->v[i].is_late && s->v[i].is_seen)
            body->late[body->n_late++] = s->v[i].name;
    return 0;
}

static int special(struct level *s, const char *const name)
{
    struct jinja_str *str = arena_alloc(s->arena, sizeof *str);
    if (!str)
        return nomem(s);
    *str = (struct jinja_str){.s = name, .n = strlen(name)};
    return has(s, str);
}

static int inner_macro(struct level *s, const struct jinja_node *x)
{
    static const char *const names[] = {"caller", "kwargs", "varargs"};
    struct level in = {.parent = s, .arena = s->arena, .e = s->e};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < x->n; i++)
        rc = has(&in, &x->v[i]->name);
    for (size_t i = 0; rc == 0 && i < sizeof names / sizeof *names; i++)
        if (x->specials & 1u << i)
            rc = special(&in, names[i]);
    for (size_t i = 0; rc == 0 && i < x->n; i++)
        if (x->v[i]->a)
            rc = expression(&in, x->v[i]->a, false);
    return rc < 0 ? rc : scope(&in, x->a);
}

static int inner_for(struct level *s, const struct jinja_node *x)
{
    struct level turn = {.parent = s, .arena = s->arena, .e = s->e}, test = turn, other = turn;
    int rc = x->uses_loop ? special(&turn, "loop") : 0;
    if (rc == 0)
        rc = target(&turn, x->target, TARGET_PARAMETER);
    if (rc == 0)
        rc = scope(&turn, x->c);
    if (rc == 0 && x->b)
        rc = target(&test, x->target, TARGET_PARAMETER);
    if (rc == 0 && x->b)
        rc = expression(&test, x->b, false);
    return rc == 0 && x->n > 0 ? scope(&other, x->v[0]) : rc;
}

static int inner_with(struct level *s, const struct jinja_node *x)
{
    struct level in = {.parent = s, .arena = s->arena, .e = s->e};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i + 1 < x->n; i += 2)
        rc = target(&in, x->v[i], TARGET_PARAMETER);
    return rc < 0 ? rc : scope(&in, x->a);
}

static int inner_if(struct level *s, const struct jinja_node *x)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i + 1 < x->n; i += 2)
        rc = inner(s, x->v[i + 1]);
    return rc == 0 && x->a ? inner(s, x->a) : rc;
}

/* A set block's filters run in the block's scope, and Jinja2 doesn't look for names in them. */
static int inner_set_block(struct level *in, const struct jinja_node *x)
{
    int rc = scope(in, x->b);
    return rc == 0 && x->c ? expression(in, x->c, true) : rc;
}

/* … and a filter block's, where it does: as if they stood at the body's end. */
static int inner_filter_block(struct level *in, const struct jinja_node *x)
{
    int rc = scope(in, x->a);
    return rc < 0 ? rc : expression(in, x->b, false);
}

static int inner_statement(struct level *s, const struct jinja_node *x)
{
    struct level in = {.parent = s, .arena = s->arena, .e = s->e};
    switch (x->kind) {
    case NODE_IF:
        return inner_if(s, x);
    case NODE_FOR:
        return inner_for(s, x);
    case NODE_SET_BLOCK:
        return inner_set_block(&in, x);
    case NODE_MACRO:
        return inner_macro(s, x);
    case NODE_CALL_BLOCK:
        return inner_macro(s, x->b);
    case NODE_FILTER_BLOCK:
        return inner_filter_block(&in, x);
    case NODE_SCOPE:
        return inner_with(s, x);
    default:
        return 0;
    }
}

static int inner(struct level *s, const struct jinja_node *body)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < body->n; i++)
        rc = inner_statement(s, body->v[i]);
    return rc;
}

int jinja_scopes(struct jinja *j, struct err *e)
{
    struct level root = {.arena = &j->arena, .e = e};
    return scope(&root, j->body);
}
