/*
 * Expressions, by Jinja2's grammar (its parser's order of binding, loosest first):
 *
 *      x if y else z · or · and · not · comparisons and in · + - · ~ · * / // % · ** · unary ·
 *      postfix .a [b] (c) · filters and tests
 */
#include <string.h>

#include "engine/jinja_impl.h"

const struct jinja_token *jinja_peek(const struct jinja_parser *p)
{
    return &p->j->tokens[p->at];
}

bool jinja_is_op(const struct jinja_parser *p, int op)
{
    return jinja_peek(p)->kind == TOKEN_OP && jinja_peek(p)->op == op;
}

bool jinja_is_name(const struct jinja_parser *p, const char *name)
{
    return jinja_peek(p)->kind == TOKEN_NAME && jinja_str_is(&jinja_peek(p)->str, name);
}

bool jinja_take_op(struct jinja_parser *p, int op)
{
    bool is = jinja_is_op(p, op);
    p->at += is;
    return is;
}

bool jinja_take_name(struct jinja_parser *p, const char *name)
{
    bool is = jinja_is_name(p, name);
    p->at += is;
    return is;
}

int jinja_syntax(struct jinja_parser *p, const char *what)
{
    const struct jinja_token *t = jinja_peek(p);
    char op[3] = {(char)t->op, (char)(t->op >> 8), 0};
    bool has_str = t->kind == TOKEN_NAME || t->kind == TOKEN_STR;
    return err_set(p->e, ERR_CORRUPT, "line %d: %s at \"%.*s\"", t->line, what,
                   has_str ? (int)(t->str.n < 40 ? t->str.n : 40) : 2, has_str ? t->str.s : op);
}

int jinja_expect_op(struct jinja_parser *p, int op)
{
    char what[32] = "a missing \"?\"";
    what[11] = (char)op;
    return jinja_take_op(p, op) ? 0 : jinja_syntax(p, what);
}

struct jinja_node *jinja_node(struct jinja_parser *p, enum jinja_kind kind)
{
    struct jinja_node *x = arena_alloc(&p->j->arena, sizeof *x);
    if (!x) {
        (void)err_set(p->e, ERR_NOMEM, "no memory for the template");
        return NULL;
    }
    x->kind = kind;
    x->line = jinja_peek(p)->line;
    return x;
}

int jinja_node_add(struct jinja_parser *p, struct jinja_node *to, struct jinja_node *v)
{
    if ((to->n & (to->n - 1)) == 0) { /* 0, 1, 2, 4 …: full */
        struct jinja_node **grown =
            arena_array(&p->j->arena, to->n ? 2 * to->n : 1, sizeof(struct jinja_node *));
        if (!grown)
            return err_set(p->e, ERR_NOMEM, "no memory for the template");
        if (to->n > 0)
            memcpy(grown, to->v, to->n * sizeof *grown);
        to->v = grown;
    }
    to->v[to->n++] = v;
    return 0;
}

static int wrap(struct jinja_parser *p, enum jinja_kind kind, struct jinja_node **node)
{
    struct jinja_node *x = jinja_node(p, kind);
    if (!x)
        return ERR_NOMEM;
    x->a = *node;
    *node = x;
    return 0;
}

/* Whether v can stand behind the arguments that are there: positional ones first, * once, names
 * before **, that once. */
static bool may_follow(const struct jinja_node *call, const struct jinja_node *v)
{
    const bool is_named = v->kind == NODE_KEYWORD, is_list = v->kind == NODE_SPREAD && v->op == '*';
    for (size_t i = 0; i < call->n; i++) {
        const struct jinja_node *before = call->v[i];
        const bool is_spread = before->kind == NODE_SPREAD;
        if ((is_spread && (before->op != '*' || is_list)) ||
            ((is_spread || before->kind == NODE_KEYWORD) && v->kind != NODE_SPREAD && !is_named))
            return false;
    }
    return true;
}

/* The arguments behind "(", through ")". */
static int arguments(struct jinja_parser *p, struct jinja_node *call)
{
    while (!jinja_take_op(p, ')')) {
        struct jinja_node *v = NULL;
        const struct jinja_token *t = jinja_peek(p);
        const int stars = jinja_is_op(p, '*') || jinja_is_op(p, OP2('*', '*')) ? t->op : 0;
        bool is_keyword = t->kind == TOKEN_NAME && t[1].kind == TOKEN_OP && t[1].op == '=';
        p->at += is_keyword ? 2 : stars ? 1 : 0;
        int rc = jinja_expression(p, &v);
        if (rc == 0 && is_keyword && (rc = wrap(p, NODE_KEYWORD, &v)) == 0)
            v->name = t->str;
        if (rc == 0 && stars && (rc = wrap(p, NODE_SPREAD, &v)) == 0)
            v->op = stars;
        if (rc == 0 && call->n == JINJA_ARGS_MAX)
            rc = err_set(p->e, ERR_UNSUPPORTED, "line %d: more than %d arguments", t->line,
                         JINJA_ARGS_MAX);
        if (rc == 0 && !may_follow(call, v))
            rc = jinja_syntax(p, "an argument behind one with a name or a star");
        if (rc == 0)
            rc = jinja_node_add(p, call, v);
        if (rc == 0 && !jinja_is_op(p, ')'))
            rc = jinja_expect_op(p, ',');
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int display(struct jinja_parser *p, int close, struct jinja_node *x)
{
    while (!jinja_take_op(p, close)) {
        struct jinja_node *v = NULL;
        int rc = jinja_expression(p, &v);
        if (rc == 0)
            rc = jinja_node_add(p, x, v);
        if (rc == 0 && x->kind == NODE_DICT) {
            rc = jinja_expect_op(p, ':');
            if (rc == 0)
                rc = jinja_expression(p, &v);
            if (rc == 0)
                rc = jinja_node_add(p, x, v);
        }
        if (rc == 0 && !jinja_is_op(p, close))
            rc = jinja_expect_op(p, ',');
        if (rc < 0)
            return rc;
    }
    return 0;
}

int jinja_tuple(struct jinja_parser *p, struct jinja_node **ret)
{
    int rc = jinja_expression(p, ret);
    if (rc < 0 || !jinja_is_op(p, ','))
        return rc;
    struct jinja_node *x = jinja_node(p, NODE_TUPLE), *v;
    rc = x ? jinja_node_add(p, x, *ret) : ERR_NOMEM;
    while (rc == 0 && jinja_take_op(p, ',')) {
        enum jinja_token_kind k = jinja_peek(p)->kind;
        if (k == TOKEN_TAG_END || k == TOKEN_PRINT_END || jinja_is_op(p, ')') ||
            jinja_is_op(p, '='))
            break;
        rc = jinja_expression(p, &v);
        if (rc == 0)
            rc = jinja_node_add(p, x, v);
    }
    *ret = x;
    return rc;
}

static int constant(struct jinja_parser *p, struct jinja_node *x)
{
    static const struct {
        const char *name;
        enum jinja_type type;
        bool b;
    } words[] = {{"true", JINJA_BOOL, true},   {"True", JINJA_BOOL, true},
                 {"false", JINJA_BOOL, false}, {"False", JINJA_BOOL, false},
                 {"none", JINJA_NONE, false},  {"None", JINJA_NONE, false}};
    const struct jinja_token *t = jinja_peek(p);
    p->at++;
    x->kind = NODE_CONST;
    if (t->kind == TOKEN_INT) {
        x->value = jinja_int(t->i);
    } else if (t->kind == TOKEN_FLOAT) {
        x->value = (struct jinja_value){.type = JINJA_FLOAT, .f = t->f};
    } else {
        x->kind = NODE_NAME;
        x->name = t->str;
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            if (jinja_str_is(&t->str, words[i].name)) {
                x->kind = NODE_CONST;
                x->value = (struct jinja_value){.type = words[i].type, .b = words[i].b};
            }
        if (jinja_str_is(&t->str, "self"))
            return err_set(p->e, ERR_UNSUPPORTED, "line %d: the name \"self\"", t->line);
        static const char *const specials[N_SPECIALS] = {"caller", "kwargs", "varargs", "loop"};
        for (int i = 0; i < N_SPECIALS; i++)
            p->n_names[i] += jinja_str_is(&t->str, specials[i]);
    }
    return 0;
}

/* "a" "b": one string. */
static int strings(struct jinja_parser *p, struct jinja_node *x)
{
    x->kind = NODE_CONST;
    x->value = jinja_of_str(&jinja_peek(p)->str);
    p->at++;
    while (jinja_peek(p)->kind == TOKEN_STR) {
        const struct jinja_str *a = &x->value.str, *b = &jinja_peek(p)->str;
        char *s = arena_array(&p->j->arena, a->n + b->n + 1, 1);
        if (!s)
            return err_set(p->e, ERR_NOMEM, "no memory for the template");
        memcpy(s, a->s, a->n);
        memcpy(s + a->n, b->s, b->n);
        x->value = jinja_text(s, a->n + b->n);
        p->at++;
    }
    return 0;
}

int jinja_primary(struct jinja_parser *p, struct jinja_node **ret)
{
    const struct jinja_token *t = jinja_peek(p);
    struct jinja_node *x = *ret = jinja_node(p, NODE_CONST);
    if (!x)
        return ERR_NOMEM;
    if (t->kind == TOKEN_NAME || t->kind == TOKEN_INT || t->kind == TOKEN_FLOAT)
        return constant(p, x);
    if (t->kind == TOKEN_STR)
        return strings(p, x);
    if (jinja_take_op(p, '[')) {
        x->kind = NODE_LIST;
        return display(p, ']', x);
    }
    if (jinja_take_op(p, '{')) {
        x->kind = NODE_DICT;
        return display(p, '}', x);
    }
    if (!jinja_take_op(p, '('))
        return jinja_syntax(p, "an expression that isn't understood");
    if (jinja_take_op(p, ')')) {
        x->kind = NODE_TUPLE;
        return 0;
    }
    int rc = jinja_tuple(p, ret);
    return rc < 0 ? rc : jinja_expect_op(p, ')');
}

/* [b] or [from:to:step] behind its bracket. */
static int subscript(struct jinja_parser *p, struct jinja_node *x)
{
    struct jinja_node *v[3] = {NULL, NULL, NULL};
    int i = 0, rc = 0;
    bool is_slice = false;
    while (rc == 0 && !jinja_is_op(p, ']') && !jinja_is_op(p, ',')) {
        if (jinja_take_op(p, ':')) {
            is_slice = true;
            if (++i > 2)
                return jinja_syntax(p, "a slice that isn't understood");
        } else if (v[i]) {
            return jinja_syntax(p, "an index that isn't understood");
        } else {
            rc = jinja_expression(p, &v[i]);
        }
    }
    if (rc == 0 && (jinja_is_op(p, ',') || (!is_slice && !v[0])))
        rc = err_set(p->e, ERR_UNSUPPORTED, "line %d: an index that isn't one value",
                     jinja_peek(p)->line);
    if (rc == 0)
        rc = jinja_expect_op(p, ']');
    x->kind = is_slice ? NODE_SLICE : NODE_ITEM;
    x->b = v[0];
    for (i = 0; is_slice && rc == 0 && i < 3; i++)
        if ((rc = jinja_node_add(p, x, v[i])) < 0)
            return rc;
    return rc;
}

static int attribute(struct jinja_parser *p, struct jinja_node *x)
{
    const struct jinja_token *t = jinja_peek(p);
    p->at++;
    if (t->kind == TOKEN_INT) {
        x->kind = NODE_ITEM;
        x->b = jinja_node(p, NODE_CONST);
        if (!x->b)
            return ERR_NOMEM;
        x->b->value = jinja_int(t->i);
        return 0;
    }
    x->name = t->str;
    if (t->kind != TOKEN_NAME) {
        p->at--;
        return jinja_syntax(p, "an attribute that isn't understood");
    }
    return 0;
}

/* Functions and methods that no value of ours has are refused here, with their line. */
static int check_callee(struct jinja_parser *p, const struct jinja_node *callee)
{
    const struct jinja_str *name = &callee->name;
    if (callee->kind == NODE_ATTR && !jinja_is_method(name) && callee->a->kind != NODE_NAME)
        return err_set(p->e, ERR_UNSUPPORTED, "line %d: the method \"%.*s\"", callee->line,
                       (int)name->n, name->s);
    return 0;
}

int jinja_postfix(struct jinja_parser *p, struct jinja_node **node)
{
    int rc = 0;
    while (rc == 0) {
        bool is_call = jinja_is_op(p, '(');
        if (!is_call && !jinja_is_op(p, '.') && !jinja_is_op(p, '['))
            break;
        if (is_call && (rc = check_callee(p, *node)) < 0)
            break;
        rc = wrap(p, is_call ? NODE_CALL : NODE_ATTR, node);
        if (rc < 0)
            break;
        if (jinja_take_op(p, '('))
            rc = arguments(p, *node);
        else if (jinja_take_op(p, '.'))
            rc = attribute(p, *node);
        else if (jinja_take_op(p, '['))
            rc = subscript(p, *node);
    }
    return rc;
}

static int unknown(struct jinja_parser *p, const char *what, const struct jinja_token *t)
{
    return err_set(p->e, ERR_UNSUPPORTED, "line %d: the %s \"%.*s\"", t->line, what,
                   (int)(t->str.n < 40 ? t->str.n : 40), t->str.s);
}

int jinja_filters(struct jinja_parser *p, struct jinja_node **node)
{
    for (;;) {
        const struct jinja_token *t = jinja_peek(p);
        if (t->kind != TOKEN_NAME)
            return jinja_syntax(p, "a filter without a name");
        int rc = wrap(p, NODE_FILTER, node);
        if (rc < 0)
            return rc;
        p->at++;
        (*node)->filter = jinja_find_filter(&t->str);
        (*node)->name = t->str;
        if (!(*node)->filter || jinja_is_op(p, '.'))
            return unknown(p, "filter", t);
        if (jinja_take_op(p, '(') && (rc = arguments(p, *node)) < 0)
            return rc;
        if (!jinja_take_op(p, '|'))
            return 0;
    }
}

/* An argument without brackets: "is divisibleby 3". */
static int bare_argument(struct jinja_parser *p, struct jinja_node *test)
{
    const struct jinja_token *t = jinja_peek(p);
    bool is_value = (t->kind >= TOKEN_NAME && t->kind <= TOKEN_FLOAT) || jinja_is_op(p, '[') ||
                    jinja_is_op(p, '{');
    if (!is_value || jinja_is_name(p, "else") || jinja_is_name(p, "or") || jinja_is_name(p, "and"))
        return 0;
    if (jinja_is_name(p, "is"))
        return jinja_syntax(p, "a test behind a test");
    struct jinja_node *v;
    int rc = jinja_primary(p, &v);
    if (rc == 0)
        rc = jinja_postfix(p, &v);
    return rc < 0 ? rc : jinja_node_add(p, test, v);
}

static int test(struct jinja_parser *p, struct jinja_node **node)
{
    bool is_not = jinja_take_name(p, "not");
    const struct jinja_token *t = jinja_peek(p);
    if (t->kind != TOKEN_NAME)
        return jinja_syntax(p, "a test without a name");
    int rc = wrap(p, NODE_TEST, node);
    if (rc < 0)
        return rc;
    p->at++;
    (*node)->test = jinja_find_test(&t->str);
    (*node)->name = t->str;
    if (!(*node)->test || jinja_is_op(p, '.'))
        return unknown(p, "test", t);
    rc = jinja_take_op(p, '(') ? arguments(p, *node) : bare_argument(p, *node);
    return rc == 0 && is_not ? wrap(p, NODE_NOT, node) : rc;
}

static int unary(struct jinja_parser *p, bool with_filter, struct jinja_node **ret)
{
    int op = jinja_is_op(p, '-') ? '-' : jinja_is_op(p, '+') ? '+' : 0;
    int rc;
    if (op) {
        if (++p->depth > JINJA_DEPTH_MAX)
            return err_set(p->e, ERR_LIMIT, "line %d: nested deeper than %d", jinja_peek(p)->line,
                           JINJA_DEPTH_MAX);
        p->at++;
        rc = unary(p, false, ret);
        p->depth--;
        if (rc == 0 && (rc = wrap(p, NODE_UNARY, ret)) == 0)
            (*ret)->op = op;
    } else {
        rc = jinja_primary(p, ret);
    }
    if (rc == 0)
        rc = jinja_postfix(p, ret);
    while (rc == 0 && with_filter) {
        if (jinja_take_op(p, '|'))
            rc = jinja_filters(p, ret);
        else if (jinja_take_name(p, "is"))
            rc = test(p, ret);
        else if (jinja_is_op(p, '('))
            rc = jinja_postfix(p, ret);
        else
            break;
    }
    return rc;
}

/* Operators that bind to the left, loosest first. */
static const int levels[][5] = {
    {'+', '-', 0}, {'~', 0}, {'*', '/', OP2('/', '/'), '%', 0}, {OP2('*', '*'), 0}};
#define N_LEVELS (sizeof levels / sizeof *levels)

static int arithmetic(struct jinja_parser *p, size_t level, struct jinja_node **ret)
{
    if (level == N_LEVELS)
        return unary(p, true, ret);
    int rc = arithmetic(p, level + 1, ret);
    while (rc == 0) {
        int op = 0;
        for (const int *o = levels[level]; *o; o++)
            op = jinja_is_op(p, *o) ? *o : op;
        if (!op)
            break;
        rc = wrap(p, NODE_BINARY, ret);
        if (rc < 0)
            break;
        (*ret)->op = op;
        p->at++;
        rc = arithmetic(p, level + 1, &(*ret)->b);
    }
    return rc;
}

/* The comparison here, 0: none. 'i': in, 'n': not in. */
static int take_comparison(struct jinja_parser *p)
{
    static const int ops[] = {OP2('=', '='), OP2('!', '='), OP2('<', '='), OP2('>', '='), '<', '>'};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (jinja_take_op(p, ops[i]))
            return ops[i];
    if (jinja_take_name(p, "in"))
        return 'i';
    const struct jinja_token *t = jinja_peek(p);
    if (jinja_is_name(p, "not") && t[1].kind == TOKEN_NAME && jinja_str_is(&t[1].str, "in")) {
        p->at += 2;
        return 'n';
    }
    return 0;
}

static int comparison(struct jinja_parser *p, struct jinja_node **ret)
{
    int rc = arithmetic(p, 0, ret), op;
    struct jinja_node *x = NULL;
    while (rc == 0 && (op = take_comparison(p)) != 0) {
        if (!x && (rc = wrap(p, NODE_COMPARE, ret)) == 0)
            x = *ret;
        struct jinja_node *step = rc == 0 ? jinja_node(p, NODE_BINARY) : NULL;
        if (!step)
            return ERR_NOMEM;
        step->op = op;
        rc = arithmetic(p, 0, &step->b);
        if (rc == 0)
            rc = jinja_node_add(p, x, step);
    }
    return rc;
}

static int negation(struct jinja_parser *p, struct jinja_node **ret)
{
    int n = 0;
    while (jinja_take_name(p, "not"))
        n++;
    if (n > JINJA_DEPTH_MAX)
        return err_set(p->e, ERR_LIMIT, "line %d: nested deeper than %d", jinja_peek(p)->line,
                       JINJA_DEPTH_MAX);
    int rc = comparison(p, ret);
    for (; rc == 0 && n > 0; n--)
        rc = wrap(p, NODE_NOT, ret);
    return rc;
}

static int conjunction(struct jinja_parser *p, struct jinja_node **ret)
{
    int rc = negation(p, ret);
    while (rc == 0 && jinja_take_name(p, "and")) {
        rc = wrap(p, NODE_AND, ret);
        if (rc == 0)
            rc = negation(p, &(*ret)->b);
    }
    return rc;
}

int jinja_disjunction(struct jinja_parser *p, struct jinja_node **ret)
{
    int rc = conjunction(p, ret);
    while (rc == 0 && jinja_take_name(p, "or")) {
        rc = wrap(p, NODE_OR, ret);
        if (rc == 0)
            rc = conjunction(p, &(*ret)->b);
    }
    return rc;
}

int jinja_expression(struct jinja_parser *p, struct jinja_node **ret)
{
    if (++p->depth > JINJA_DEPTH_MAX)
        return err_set(p->e, ERR_LIMIT, "line %d: nested deeper than %d", jinja_peek(p)->line,
                       JINJA_DEPTH_MAX);
    int rc = jinja_disjunction(p, ret);
    while (rc == 0 && jinja_take_name(p, "if")) {
        rc = wrap(p, NODE_COND, ret);
        if (rc == 0)
            rc = jinja_disjunction(p, &(*ret)->b);
        if (rc == 0 && jinja_take_name(p, "else"))
            rc = jinja_expression(p, &(*ret)->c);
    }
    p->depth--;
    return rc;
}
