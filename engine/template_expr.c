/*
 * Expressions of the template subset: a recursive descent over the text (depth is bounded by
 * EXPR_DEPTH_MAX, not by the input) that computes as it goes.
 *
 *      expr    := or [ "if" or [ "else" expr ] ]
 *      or      := and { "or" and }          and := not { "and" not }          not := "not" not |
 *      compare
 *      compare := sum { (== != < > <= >= in, not in) sum | "is" ["not"] test }
 *      sum     := part { (+ - ~) part }     part := atom { .name  [expr]  [expr:expr]  | filter }
 *
 * A side that isn't to be evaluated (right of a decided and/or, the other arm of an if) is read
 * with `n_dead` > 0: then nothing is looked up and nothing can be wrong but the syntax.
 */
#include "engine/template_impl.h"

#include <string.h>

#define EXPR_DEPTH_MAX 24

enum token { T_END, T_NAME, T_STRING, T_INT, T_OP };

struct expr {
    struct template_run *run;
    const char *at, *end; /* what is left after the current token */
    enum token token;
    const char *s;      /* the token's text */
    const char *before; /* the token before it */
    size_t len;
    struct value value; /* of a string or number token */
    int n_dead, depth;
    struct err *e;
};

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int unknown(const struct expr *x, const char *what)
{
    return template_unknown(x->run, what, x->s, x->len, x->e);
}

/* A quoted string; escapes are undone into the arena. */
static int read_string(struct expr *x, char quote)
{
    const char *from = ++x->at;
    while (x->at < x->end && *x->at != quote)
        x->at += *x->at == '\\' && x->at + 1 < x->end ? 2 : 1;
    if (x->at >= x->end)
        return unknown(x, "a string without its end");
    char *to = arena_alloc(&x->run->arena, (size_t)(x->at - from) + 1);
    if (!to)
        return err_set(x->e, ERR_LIMIT, "the template's strings are too long");
    size_t n = 0;
    for (const char *p = from; p < x->at; p++) {
        char c = *p;
        if (c == '\\') {
            static const char codes[] = "n\nt\tr\r\\\\'\'\"\"";
            const char *code = strchr(codes, *++p);
            if (!code || *p == 0 || (code - codes) % 2 != 0)
                return unknown(x, "the escape in");
            c = code[1];
        }
        to[n++] = c;
    }
    x->len = (size_t)(++x->at - x->s);
    x->token = T_STRING;
    x->value = (struct value){.kind = VALUE_STRING, .s = to, .len = n};
    return 0;
}

static int read_int(struct expr *x)
{
    int64_t v = 0;
    for (; x->at < x->end && is_digit(*x->at) && v < INT32_MAX; x->at++)
        v = v * 10 + (*x->at - '0');
    x->len = (size_t)(x->at - x->s);
    x->token = T_INT;
    x->value = (struct value){.kind = VALUE_INT, .i = v};
    return 0;
}

static int next(struct expr *x)
{
    while (x->at < x->end && strchr(" \t\r\n", *x->at))
        x->at++;
    x->before = x->s;
    x->s = x->at;
    x->len = 0;
    x->token = T_END;
    if (x->at == x->end)
        return 0;
    if (*x->at == '\'' || *x->at == '"')
        return read_string(x, *x->at);
    if (is_digit(*x->at))
        return read_int(x);
    if (is_name_char(*x->at)) {
        while (x->at < x->end && is_name_char(*x->at))
            x->at++;
        x->token = T_NAME;
    } else {
        bool is_double = x->at + 1 < x->end && x->at[1] == '=' && strchr("=!<>", *x->at);
        x->at += is_double ? 2 : 1;
        x->token = T_OP;
    }
    x->len = (size_t)(x->at - x->s);
    return 0;
}

static bool is(const struct expr *x, enum token token, const char *text)
{
    return x->token == token && x->len == strlen(text) && memcmp(x->s, text, x->len) == 0;
}

/* Steps over the token if it is this one. */
static int accept(struct expr *x, enum token token, const char *text, bool *ret)
{
    *ret = is(x, token, text);
    return *ret ? next(x) : 0;
}

static int expect(struct expr *x, const char *op)
{
    return is(x, T_OP, op) ? next(x) : unknown(x, "unexpected");
}

static int eval(struct expr *x, struct value *ret);

bool value_is_true(const struct value *v)
{
    switch (v->kind) {
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        return false;
    case VALUE_BOOL:
    case VALUE_INT:
        return v->i != 0;
    case VALUE_STRING:
        return v->len > 0;
    case VALUE_MESSAGES:
        return v->n > 0;
    default:
        return true;
    }
}

int value_text(const struct template_run *r, const struct value *v, const char *at,
               struct value *ret, struct err *e)
{
    if (v->kind != VALUE_STRING && v->kind != VALUE_UNDEFINED)
        return template_unknown(r, "printing a value that is no string:", at, 20, e);
    *ret = *v;
    ret->kind = VALUE_STRING;
    return 0;
}

static bool equal(const struct value *a, const struct value *b)
{
    bool is_number = (a->kind == VALUE_BOOL || a->kind == VALUE_INT) &&
                     (b->kind == VALUE_BOOL || b->kind == VALUE_INT);
    if (is_number)
        return a->i == b->i;
    if (a->kind != b->kind)
        return false;
    if (a->kind == VALUE_STRING)
        return a->len == b->len && memcmp(a->s, b->s, a->len) == 0;
    return a->i == b->i && a->n == b->n;
}

static struct value string_value(const char *s, size_t n)
{
    return (struct value){.kind = VALUE_STRING, .s = s, .len = n};
}

static struct value bool_value(bool b)
{
    return (struct value){.kind = VALUE_BOOL, .i = b};
}

static struct value int_value(int64_t i)
{
    return (struct value){.kind = VALUE_INT, .i = i};
}

static struct value lookup(const struct template_run *r, const char *s, size_t n)
{
    for (size_t i = r->n_vars; i-- > 0;)
        if (r->vars[i].len == n && memcmp(r->vars[i].name, s, n) == 0)
            return r->vars[i].value;
    return (struct value){.kind = VALUE_UNDEFINED};
}

/* A name that is a constant of the language. */
static bool constant(const struct expr *x, struct value *ret)
{
    if (is(x, T_NAME, "true") || is(x, T_NAME, "True"))
        *ret = bool_value(true);
    else if (is(x, T_NAME, "false") || is(x, T_NAME, "False"))
        *ret = bool_value(false);
    else if (is(x, T_NAME, "none") || is(x, T_NAME, "None"))
        *ret = (struct value){.kind = VALUE_NONE};
    else
        return false;
    return true;
}

static int atom(struct expr *x, struct value *ret)
{
    bool is_group;
    int rc = accept(x, T_OP, "(", &is_group);
    if (rc == 0 && is_group) {
        rc = eval(x, ret);
        return rc < 0 ? rc : expect(x, ")");
    }
    if (rc == 0 && is(x, T_OP, "-")) {
        rc = next(x);
        if (rc < 0 || x->token != T_INT)
            return rc < 0 ? rc : unknown(x, "a minus before");
        x->value.i = -x->value.i;
    }
    if (rc < 0)
        return rc;
    if (x->token == T_STRING || x->token == T_INT)
        *ret = x->value;
    else if (x->token != T_NAME)
        return unknown(x, "unexpected");
    else if (!constant(x, ret))
        *ret = lookup(x->run, x->s, x->len);
    return next(x);
}

/* obj.name and obj['name']. What a message doesn't have is undefined (tool_calls, name …). */
static int attribute(struct expr *x, const struct value *obj, const char *s, size_t n,
                     struct value *ret)
{
    const struct template_run *r = x->run;
    struct value name = string_value(s, n), wanted = {0};
    const char *const fields[] = {"role", "content", "first", "last", "index", "index0", "length"};
    int field = -1;
    for (int i = 0; i < 7; i++) {
        wanted = string_value(fields[i], strlen(fields[i]));
        if (equal(&name, &wanted))
            field = i;
    }
    *ret = (struct value){.kind = VALUE_UNDEFINED};
    if (obj->kind == VALUE_MESSAGE && field <= 1) {
        const struct chat_message *m = &r->args->messages[obj->i];
        const char *role = chat_role_name(m->role);
        if (field >= 0)
            *ret = field == 0 ? string_value(role, strlen(role)) : string_value(m->text, m->n_text);
        return 0;
    }
    if (obj->kind == VALUE_LOOP && field >= 2) {
        const struct value of[] = {bool_value(obj->i == 0), bool_value(obj->i + 1 == obj->n),
                                   int_value(obj->i + 1), int_value(obj->i), int_value(obj->n)};
        *ret = of[field - 2];
        return 0;
    }
    if (obj->kind == VALUE_MESSAGE)
        return 0;
    return template_unknown(r, "the attribute", s, n, x->e);
}

static int subscript(struct expr *x, const struct value *obj, const struct value *index,
                     struct value *ret)
{
    if (index->kind == VALUE_STRING)
        return attribute(x, obj, index->s, index->len, ret);
    if (obj->kind != VALUE_MESSAGES || index->kind != VALUE_INT)
        return unknown(x, "an index before");
    int64_t i = index->i < 0 ? index->i + obj->n : index->i;
    if (i < 0 || i >= obj->n)
        *ret = (struct value){.kind = VALUE_UNDEFINED};
    else
        *ret = (struct value){.kind = VALUE_MESSAGE, .i = obj->i + i};
    return 0;
}

/* messages[a:] and messages[a:b], after the colon. */
static int slice(struct expr *x, const struct value *obj, int64_t from, struct value *ret)
{
    struct value to = int_value(obj->n);
    if (!is(x, T_OP, "]")) {
        int rc = eval(x, &to);
        if (rc < 0)
            return rc;
    }
    if (x->n_dead > 0)
        return 0;
    if (obj->kind != VALUE_MESSAGES || to.kind != VALUE_INT)
        return unknown(x, "a slice before");
    int64_t end = to.i < 0 ? to.i + obj->n : to.i;
    from = from < 0 ? from + obj->n : from;
    from = from < 0 ? 0 : from;
    end = end > obj->n ? obj->n : end;
    *ret = (struct value){.kind = VALUE_MESSAGES,
                          .i = obj->i + (from < obj->n ? from : obj->n),
                          .n = end > from ? end - from : 0};
    return 0;
}

/* After "[". */
static int bracket(struct expr *x, struct value *obj)
{
    struct value index = int_value(0), result = {0};
    bool is_slice = false;
    int rc = is(x, T_OP, ":") ? 0 : eval(x, &index);
    if (rc == 0)
        rc = accept(x, T_OP, ":", &is_slice);
    if (rc < 0)
        return rc;
    if (is_slice)
        rc = slice(x, obj, index.i, &result);
    else if (x->n_dead == 0)
        rc = subscript(x, obj, &index, &result);
    *obj = result;
    return rc < 0 ? rc : expect(x, "]");
}

static int filter(struct expr *x, struct value *v)
{
    if (x->n_dead > 0)
        return next(x);
    if (is(x, T_NAME, "trim") && v->kind == VALUE_STRING) {
        while (v->len > 0 && strchr(" \t\r\n\v\f", v->s[0]) && v->s[0])
            v->s++, v->len--;
        while (v->len > 0 && strchr(" \t\r\n\v\f", v->s[v->len - 1]) && v->s[v->len - 1])
            v->len--;
    } else if ((is(x, T_NAME, "length") || is(x, T_NAME, "count")) && v->kind == VALUE_MESSAGES) {
        *v = int_value(v->n);
    } else {
        return unknown(x, "the filter");
    }
    return next(x);
}

/* Skips a call's arguments in a side that isn't evaluated. */
static int call(struct expr *x)
{
    if (x->n_dead == 0)
        return template_unknown(x->run, "the call", x->before, (size_t)(x->at - x->before), x->e);
    int n_open = 0;
    do {
        n_open += is(x, T_OP, "(") - is(x, T_OP, ")");
        int rc = x->token == T_END ? unknown(x, "a call without its end") : next(x);
        if (rc < 0)
            return rc;
    } while (n_open > 0);
    return 0;
}

static int part(struct expr *x, struct value *ret)
{
    int rc = atom(x, ret);
    while (rc == 0 && x->token == T_OP) {
        bool is_dot = is(x, T_OP, "."), is_pipe = is(x, T_OP, "|");
        if (is(x, T_OP, "(")) {
            rc = call(x);
        } else if (is(x, T_OP, "[")) {
            rc = next(x);
            rc = rc < 0 ? rc : bracket(x, ret);
        } else if (is_dot || is_pipe) {
            rc = next(x);
            if (rc == 0 && x->token != T_NAME)
                rc = unknown(x, "unexpected");
            struct value result = {0};
            if (rc == 0 && is_pipe)
                rc = filter(x, ret);
            else if (rc == 0) {
                rc = x->n_dead > 0 ? 0 : attribute(x, ret, x->s, x->len, &result);
                *ret = result;
                rc = rc < 0 ? rc : next(x);
            }
        } else {
            break;
        }
    }
    return rc;
}

static int concat(struct expr *x, struct value *a, const struct value *b)
{
    if (a->kind != VALUE_STRING || b->kind != VALUE_STRING)
        return unknown(x, "adding what is no string, before");
    char *s = arena_alloc(&x->run->arena, a->len + b->len + 1);
    if (!s)
        return err_set(x->e, ERR_LIMIT, "the template's strings are too long");
    if (a->len > 0)
        memcpy(s, a->s, a->len);
    if (b->len > 0)
        memcpy(s + a->len, b->s, b->len);
    *a = string_value(s, a->len + b->len);
    return 0;
}

static int sum(struct expr *x, struct value *ret)
{
    int rc = part(x, ret);
    while (rc == 0 && (is(x, T_OP, "+") || is(x, T_OP, "-") || is(x, T_OP, "~"))) {
        struct value right = {0};
        char op = *x->s;
        rc = next(x);
        rc = rc < 0 ? rc : part(x, &right);
        if (rc < 0 || x->n_dead > 0)
            continue;
        if (ret->kind == VALUE_INT && right.kind == VALUE_INT && op != '~')
            ret->i += op == '+' ? right.i : -right.i;
        else
            rc = op == '-' ? unknown(x, "a minus before") : concat(x, ret, &right);
    }
    return rc;
}

static int test(struct expr *x, struct value *ret)
{
    bool is_not;
    int rc = accept(x, T_NAME, "not", &is_not);
    if (rc < 0)
        return rc;
    bool holds;
    if (is(x, T_NAME, "defined"))
        holds = ret->kind != VALUE_UNDEFINED;
    else if (is(x, T_NAME, "undefined"))
        holds = ret->kind == VALUE_UNDEFINED;
    else if (is(x, T_NAME, "none"))
        holds = ret->kind == VALUE_NONE;
    else if (is(x, T_NAME, "string"))
        holds = ret->kind == VALUE_STRING;
    else
        return unknown(x, "the test");
    *ret = bool_value(holds != is_not);
    return next(x);
}

static bool contains(const struct value *text, const struct value *part_of)
{
    return part_of->len == 0 ||
           (text->len > 0 && memmem(text->s, text->len, part_of->s, part_of->len));
}

/* `op` as read; the operands are live. */
static int apply(struct expr *x, const char *op, size_t n, struct value *a, const struct value *b)
{
    bool is_in = op[0] == 'i' || op[0] == 'n';
    if (is_in && (a->kind != VALUE_STRING || b->kind != VALUE_STRING))
        return unknown(x, "\"in\" of what is no string, before");
    if (is_in)
        *a = bool_value(contains(b, a) == (op[0] == 'i'));
    else if (n == 2 && (op[0] == '=' || op[0] == '!'))
        *a = bool_value(equal(a, b) == (op[0] == '='));
    else if (a->kind != VALUE_INT || b->kind != VALUE_INT)
        return unknown(x, "an order of what is no number, before");
    else
        *a = bool_value(op[0] == '<' ? (n == 2 ? a->i <= b->i : a->i < b->i)
                                     : (n == 2 ? a->i >= b->i : a->i > b->i));
    return 0;
}

static bool is_comparison(const struct expr *x)
{
    static const char *const ops[] = {"==", "!=", "<", ">", "<=", ">="};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (is(x, T_OP, ops[i]))
            return true;
    return is(x, T_NAME, "in") || is(x, T_NAME, "not");
}

static int compare(struct expr *x, struct value *ret)
{
    int rc = sum(x, ret);
    while (rc == 0) {
        bool is_test;
        rc = accept(x, T_NAME, "is", &is_test);
        if (rc == 0 && is_test) {
            rc = test(x, ret);
            continue;
        }
        if (rc < 0 || !is_comparison(x))
            break;
        const char *op = x->s;
        size_t n = x->len;
        struct value right = {0};
        rc = next(x);
        if (rc == 0 && op[0] == 'n')
            rc = is(x, T_NAME, "in") ? next(x) : unknown(x, "unexpected");
        rc = rc < 0 ? rc : sum(x, &right);
        if (rc == 0 && x->n_dead == 0)
            rc = apply(x, op, n, ret, &right);
    }
    return rc;
}

static int negation(struct expr *x, struct value *ret)
{
    bool is_not, negate = false;
    int rc = accept(x, T_NAME, "not", &is_not);
    for (; rc == 0 && is_not; negate = !negate)
        rc = accept(x, T_NAME, "not", &is_not);
    rc = rc < 0 ? rc : compare(x, ret);
    if (rc == 0 && negate)
        *ret = bool_value(!value_is_true(ret));
    return rc;
}

/* a and b and …: Jinja's value is the operand that decided. */
static int conjunction(struct expr *x, struct value *ret)
{
    bool is_more = false;
    int rc = negation(x, ret);
    while (rc == 0 && (rc = accept(x, T_NAME, "and", &is_more)) == 0 && is_more) {
        struct value right = {0};
        bool is_dead = !value_is_true(ret);
        x->n_dead += is_dead;
        rc = negation(x, &right);
        x->n_dead -= is_dead;
        if (rc == 0 && !is_dead)
            *ret = right;
    }
    return rc;
}

static int disjunction(struct expr *x, struct value *ret)
{
    bool is_more = false;
    int rc = conjunction(x, ret);
    while (rc == 0 && (rc = accept(x, T_NAME, "or", &is_more)) == 0 && is_more) {
        struct value right = {0};
        bool is_dead = value_is_true(ret);
        x->n_dead += is_dead;
        rc = conjunction(x, &right);
        x->n_dead -= is_dead;
        if (rc == 0 && !is_dead)
            *ret = right;
    }
    return rc;
}

/*
 * a if b else c. `a` is read without evaluating to find out whether an "if" follows, then once more
 * when it counts.
 */
static int choice(struct expr *x, struct value *ret)
{
    struct expr start = *x;
    struct value condition = {0};
    bool has_if = false, has_else = false;
    x->n_dead++;
    int rc = disjunction(x, ret);
    x->n_dead--;
    rc = rc < 0 ? rc : accept(x, T_NAME, "if", &has_if);
    if (rc == 0 && has_if)
        rc = disjunction(x, &condition);
    if (rc < 0)
        return rc;
    bool is_taken = !has_if || value_is_true(&condition);
    struct expr rest = *x;
    if (is_taken && x->n_dead == 0) {
        *x = start;
        rc = disjunction(x, ret);
        *x = rest;
    } else {
        *ret = (struct value){.kind = VALUE_UNDEFINED};
    }
    if (rc == 0 && has_if)
        rc = accept(x, T_NAME, "else", &has_else);
    if (rc < 0 || !has_else)
        return rc;
    struct value other = {0};
    x->n_dead += is_taken;
    rc = eval(x, &other);
    x->n_dead -= is_taken;
    if (rc == 0 && !is_taken)
        *ret = other;
    return rc;
}

static int eval(struct expr *x, struct value *ret)
{
    int rc = template_step(x->run, x->e);
    if (rc == 0 && ++x->depth > EXPR_DEPTH_MAX)
        rc = unknown(x, "an expression nested deeper than 24 at");
    rc = rc < 0 ? rc : choice(x, ret);
    x->depth--;
    return rc;
}

int template_eval(struct template_run *r, const char *text, size_t n, struct value *ret,
                  struct err *e)
{
    struct expr x = {.run = r, .at = text, .end = text + n, .e = e};
    int rc = next(&x);
    rc = rc < 0 ? rc : eval(&x, ret);
    if (rc == 0 && x.token != T_END)
        rc = unknown(&x, "unexpected");
    return rc;
}
