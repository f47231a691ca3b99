/*
 * Statements: the tokens become a tree. Known tags are the rows of `tags`; anything else is refused
 * by name and line. What stays unused of Jinja (include, import, extends, block, do, trans,
 * autoescape) is refused likewise.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/jinja_impl.h"

#define ARENA_BYTES_MAX ((size_t)256 << 20)

static int body(struct jinja_parser *p, const char *const *ends, struct jinja_node **ret);

static int tag_end(struct jinja_parser *p)
{
    if (jinja_peek(p)->kind != TOKEN_TAG_END)
        return jinja_syntax(p, "a tag that should end");
    p->at++;
    return 0;
}

/* loop can't be set in a loop. The names that make a macro take more than its parameters lose that
 * meaning by being set: refused. */
static int check_target(struct jinja_parser *p, const struct jinja_str *name)
{
    if (jinja_str_is(name, "loop") && p->n_fors > 0)
        return err_set(p->e, ERR_UNSUPPORTED, "line %d: an assignment to \"loop\" within a loop",
                       jinja_peek(p)->line);
    if (jinja_str_is(name, "caller") || jinja_str_is(name, "kwargs") ||
        jinja_str_is(name, "varargs"))
        return err_set(p->e, ERR_UNSUPPORTED, "line %d: an assignment to \"%s\"",
                       jinja_peek(p)->line, name->s);
    return 0;
}

/* Attributes can be set by set alone, and neither in brackets nor in a tuple within a tuple: depth
 * is of the tuples around in which they can. */
static int check_attributes(struct jinja_parser *p, const struct jinja_node *x, int depth)
{
    if (x->kind == NODE_ATTR && depth < 0)
        return jinja_syntax(p, "an attribute that can't be set there before");
    int rc = 0;
    for (size_t i = 0; rc == 0 && x->kind == NODE_TUPLE && i < x->n; i++)
        rc = check_attributes(p, x->v[i], depth - 1);
    return rc;
}

/* One part of a target: a name, or name.attribute of a namespace. */
static int target_part(struct jinja_parser *p, struct jinja_node **ret)
{
    if (jinja_take_op(p, '(')) {
        int rc = jinja_target(p, ret);
        if (rc == 0)
            rc = check_attributes(p, *ret, -1);
        return rc < 0 ? rc : jinja_expect_op(p, ')');
    }
    const struct jinja_token *t = jinja_peek(p);
    if (t->kind != TOKEN_NAME)
        return jinja_syntax(p, "a name that is missing");
    int rc = jinja_primary(p, ret);
    if (rc == 0 && (*ret)->kind != NODE_NAME)
        rc = jinja_syntax(p, "an assignment to a constant before");
    if (rc == 0 && !jinja_is_op(p, '.'))
        rc = check_target(p, &(*ret)->name);
    if (rc < 0 || !jinja_take_op(p, '.'))
        return rc;
    struct jinja_node *x = jinja_node(p, NODE_ATTR);
    if (!x)
        return ERR_NOMEM;
    t = jinja_peek(p);
    if (t->kind != TOKEN_NAME)
        return jinja_syntax(p, "an attribute that isn't understood");
    p->at++;
    x->a = *ret;
    x->name = t->str;
    *ret = x;
    return 0;
}

int jinja_target(struct jinja_parser *p, struct jinja_node **ret)
{
    if (++p->depth > JINJA_DEPTH_MAX)
        return jinja_syntax(p, "too deep a nesting");
    int rc = target_part(p, ret);
    if (rc == 0 && jinja_is_op(p, ',')) {
        struct jinja_node *x = jinja_node(p, NODE_TUPLE), *v;
        rc = x ? jinja_node_add(p, x, *ret) : ERR_NOMEM;
        while (rc == 0 && jinja_take_op(p, ',') && !jinja_is_op(p, ')') &&
               jinja_peek(p)->kind != TOKEN_TAG_END) {
            rc = jinja_is_name(p, "in") ? jinja_syntax(p, "a name that is missing")
                                        : target_part(p, &v);
            if (rc == 0)
                rc = jinja_node_add(p, x, v);
        }
        *ret = x;
    }
    p->depth--;
    return rc;
}

static struct jinja_node *captured(struct jinja_parser *p, int *rc)
{
    struct jinja_node *x = jinja_node(p, NODE_CAPTURED);
    *rc = x ? 0 : ERR_NOMEM;
    return x;
}

static int parse_set(struct jinja_parser *p, struct jinja_node *x)
{
    static const char *const ends[] = {"endset", NULL};
    int rc = jinja_target(p, &x->a);
    if (rc == 0)
        rc = check_attributes(p, x->a, 1);
    if (rc == 0 && jinja_take_op(p, '=')) {
        x->kind = NODE_SET;
        rc = jinja_tuple(p, &x->b);
        return rc < 0 ? rc : tag_end(p);
    }
    x->kind = NODE_SET_BLOCK;
    if (rc == 0 && x->a->kind == NODE_TUPLE)
        rc = jinja_syntax(p, "a block for several names");
    if (rc == 0 && jinja_take_op(p, '|')) {
        x->c = captured(p, &rc);
        if (rc == 0)
            rc = jinja_filters(p, &x->c);
    }
    if (rc == 0)
        rc = tag_end(p);
    if (rc == 0)
        rc = body(p, ends, &x->b);
    p->at++;
    return rc < 0 ? rc : tag_end(p);
}

/* The list of a for, where "x if y" is the loop's filter, and the condition of an if: one or
 * several in a row, none of them an "x if y". */
static int without_if(struct jinja_parser *p, struct jinja_node **ret)
{
    int rc = jinja_disjunction(p, ret);
    if (rc < 0 || !jinja_is_op(p, ','))
        return rc;
    struct jinja_node *x = jinja_node(p, NODE_TUPLE), *v;
    rc = x ? jinja_node_add(p, x, *ret) : ERR_NOMEM;
    while (rc == 0 && jinja_take_op(p, ',')) {
        rc = jinja_disjunction(p, &v);
        if (rc == 0)
            rc = jinja_node_add(p, x, v);
    }
    *ret = x;
    return rc;
}

static int parse_if(struct jinja_parser *p, struct jinja_node *x)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    static const char *const end[] = {"endif", NULL};
    struct jinja_node *v = NULL;
    int rc;
    x->kind = NODE_IF;
    do {
        rc = without_if(p, &v);
        if (rc == 0)
            rc = jinja_node_add(p, x, v);
        if (rc == 0)
            rc = tag_end(p);
        if (rc == 0)
            rc = body(p, ends, &v);
        if (rc == 0)
            rc = jinja_node_add(p, x, v);
        if (rc < 0)
            return rc;
    } while (jinja_take_name(p, "elif"));
    if (jinja_take_name(p, "else")) {
        rc = tag_end(p);
        if (rc == 0)
            rc = body(p, end, &x->a);
    }
    p->at++;
    return rc < 0 ? rc : tag_end(p);
}

static int parse_for(struct jinja_parser *p, struct jinja_node *x)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    static const char *const end[] = {"endfor", NULL};
    struct jinja_node *otherwise = NULL;
    x->kind = NODE_FOR;
    p->n_fors++;
    int rc = jinja_target(p, &x->target);
    if (rc == 0)
        rc = check_attributes(p, x->target, -1);
    if (rc == 0 && !jinja_take_name(p, "in"))
        rc = jinja_syntax(p, "for without in");
    if (rc == 0)
        rc = without_if(p, &x->a);
    if (rc == 0 && jinja_take_name(p, "if"))
        rc = jinja_expression(p, &x->b);
    x->is_recursive = rc == 0 && jinja_take_name(p, "recursive");
    if (rc == 0)
        rc = tag_end(p);
    if (rc < 0)
        return rc;
    const size_t n_names = p->n_names[SPECIAL_LOOP], n_breaks = p->n_breaks;
    p->n_loops++;
    rc = body(p, ends, &x->c);
    p->n_loops--;
    x->uses_loop = x->is_recursive || p->n_names[SPECIAL_LOOP] > n_names;
    x->has_break = p->n_breaks > n_breaks;
    if (rc == 0 && jinja_take_name(p, "else")) {
        rc = tag_end(p);
        if (rc == 0)
            rc = body(p, end, &otherwise);
        if (rc == 0)
            rc = jinja_node_add(p, x, otherwise);
    }
    p->n_fors--;
    p->at++;
    return rc < 0 ? rc : tag_end(p);
}

/* (a, b=1): the parameters of a macro or call block. */
static int params(struct jinja_parser *p, struct jinja_node *macro)
{
    while (!jinja_take_op(p, ')')) {
        struct jinja_node *x = jinja_node(p, NODE_PARAM);
        if (!x)
            return ERR_NOMEM;
        if (jinja_peek(p)->kind != TOKEN_NAME)
            return jinja_syntax(p, "a parameter without a name");
        x->name = jinja_peek(p)->str;
        p->at++;
        int rc = check_target(p, &x->name);
        if (rc == 0 && jinja_take_op(p, '='))
            rc = jinja_expression(p, &x->a);
        for (size_t i = 0; rc == 0 && i < macro->n; i++)
            if ((macro->v[i]->a && !x->a) || jinja_str_equal(&macro->v[i]->name, &x->name))
                rc = jinja_syntax(p, "a parameter that can't stand there before");
        if (rc == 0 && macro->n == JINJA_ARGS_MAX)
            rc = err_set(p->e, ERR_UNSUPPORTED, "line %d: more than %d parameters", x->line,
                         JINJA_ARGS_MAX);
        if (rc == 0)
            rc = jinja_node_add(p, macro, x);
        if (rc == 0 && !jinja_is_op(p, ')'))
            rc = jinja_expect_op(p, ',');
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int macro_body(struct jinja_parser *p, const char *const *end, struct jinja_node *macro)
{
    int n_loops = p->n_loops;
    size_t n_names[N_SPECIALS];
    memcpy(n_names, p->n_names, sizeof n_names);
    p->n_loops = 0;
    int rc = tag_end(p);
    if (rc == 0)
        rc = body(p, end, &macro->a);
    p->n_loops = n_loops;
    for (int i = 0; i < SPECIAL_LOOP; i++)
        macro->specials |= p->n_names[i] > n_names[i] ? 1u << i : 0;
    p->at++;
    return rc < 0 ? rc : tag_end(p);
}

static int parse_macro(struct jinja_parser *p, struct jinja_node *x)
{
    static const char *const end[] = {"endmacro", NULL};
    x->kind = NODE_MACRO;
    if (jinja_peek(p)->kind != TOKEN_NAME)
        return jinja_syntax(p, "a macro without a name");
    x->name = jinja_peek(p)->str;
    p->at++;
    int rc = jinja_expect_op(p, '(');
    if (rc == 0)
        rc = params(p, x);
    return rc < 0 ? rc : macro_body(p, end, x);
}

static int parse_call(struct jinja_parser *p, struct jinja_node *x)
{
    static const char *const end[] = {"endcall", NULL};
    x->kind = NODE_CALL_BLOCK;
    struct jinja_node *caller = x->b = jinja_node(p, NODE_MACRO);
    if (!caller)
        return ERR_NOMEM;
    caller->name = (struct jinja_str){.s = "caller", .n = 6};
    int rc = jinja_take_op(p, '(') ? params(p, caller) : 0;
    if (rc == 0)
        rc = jinja_expression(p, &x->a);
    if (rc == 0 && x->a->kind != NODE_CALL)
        rc = jinja_syntax(p, "a call block without a call");
    return rc < 0 ? rc : macro_body(p, end, caller);
}

static int parse_filter(struct jinja_parser *p, struct jinja_node *x)
{
    static const char *const end[] = {"endfilter", NULL};
    int rc;
    x->kind = NODE_FILTER_BLOCK;
    x->b = captured(p, &rc);
    if (rc == 0)
        rc = jinja_filters(p, &x->b);
    if (rc == 0)
        rc = tag_end(p);
    if (rc == 0)
        rc = body(p, end, &x->a);
    p->at++;
    return rc < 0 ? rc : tag_end(p);
}

static int parse_with(struct jinja_parser *p, struct jinja_node *x)
{
    static const char *const end[] = {"endwith", NULL};
    int rc = 0;
    x->kind = NODE_SCOPE;
    while (rc == 0 && jinja_peek(p)->kind != TOKEN_TAG_END) {
        struct jinja_node *target = NULL, *value = NULL;
        if (x->n > 0)
            rc = jinja_expect_op(p, ',');
        if (rc == 0)
            rc = jinja_target(p, &target);
        if (rc == 0)
            rc = check_attributes(p, target, -1);
        if (rc == 0)
            rc = jinja_expect_op(p, '=');
        if (rc == 0)
            rc = jinja_expression(p, &value);
        if (rc == 0)
            rc = jinja_node_add(p, x, target);
        if (rc == 0)
            rc = jinja_node_add(p, x, value);
    }
    if (rc == 0)
        rc = tag_end(p);
    if (rc == 0)
        rc = body(p, end, &x->a);
    p->at++;
    return rc < 0 ? rc : tag_end(p);
}

/* Hugging Face's mark for what a model is trained on: its text is just there. */
static int parse_generation(struct jinja_parser *p, struct jinja_node *x)
{
    static const char *const end[] = {"endgeneration", NULL};
    x->kind = NODE_SCOPE;
    int rc = macro_body(p, end, x);
    return rc == 0 && x->specials
               ? err_set(p->e, ERR_UNSUPPORTED, "line %d: caller or arguments within generation",
                         x->line)
               : rc;
}

static int parse_break(struct jinja_parser *p, struct jinja_node *x)
{
    x->kind = NODE_BREAK;
    p->n_breaks++;
    return p->n_loops > 0 ? tag_end(p) : jinja_syntax(p, "break outside a loop");
}

static int parse_continue(struct jinja_parser *p, struct jinja_node *x)
{
    x->kind = NODE_CONTINUE;
    return p->n_loops > 0 ? tag_end(p) : jinja_syntax(p, "continue outside a loop");
}

static const struct {
    const char *name;
    int (*parse)(struct jinja_parser *p, struct jinja_node *x);
} tags[] = {{"set", parse_set},     {"if", parse_if},
            {"for", parse_for},     {"macro", parse_macro},
            {"call", parse_call},   {"filter", parse_filter},
            {"with", parse_with},   {"generation", parse_generation},
            {"break", parse_break}, {"continue", parse_continue}};

static int statement(struct jinja_parser *p, struct jinja_node *x)
{
    const struct jinja_token *t = jinja_peek(p);
    if (t->kind != TOKEN_NAME)
        return jinja_syntax(p, "a tag without a name");
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
        if (jinja_take_name(p, tags[i].name))
            return tags[i].parse(p, x);
    bool is_end = t->str.n > 3 && memcmp(t->str.s, "end", 3) == 0;
    return err_set(p->e, ERR_UNSUPPORTED, "line %d: the tag \"%.*s\"%s", t->line,
                   (int)(t->str.n < 40 ? t->str.n : 40), t->str.s,
                   is_end ? ", which ends nothing here" : "");
}

static int print(struct jinja_parser *p, struct jinja_node *x)
{
    x->kind = NODE_PRINT;
    p->at++;
    int rc = jinja_tuple(p, &x->a);
    if (rc < 0)
        return rc;
    if (jinja_peek(p)->kind != TOKEN_PRINT_END)
        return jinja_syntax(p, "an expression that should end");
    p->at++;
    return 0;
}

static bool is_one_of(const struct jinja_parser *p, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (jinja_is_name(p, *ends))
            return true;
    return false;
}

/* Up to a tag of `ends`, whose name is next; NULL: up to the end of the source. */
static int body(struct jinja_parser *p, const char *const *ends, struct jinja_node **ret)
{
    struct jinja_node *list = *ret = jinja_node(p, NODE_BODY);
    if (!list)
        return ERR_NOMEM;
    if (++p->depth > JINJA_DEPTH_MAX)
        return err_set(p->e, ERR_LIMIT, "line %d: tags nested deeper than %d", list->line,
                       JINJA_DEPTH_MAX);
    int rc = 0;
    while (rc == 0) {
        const struct jinja_token *t = jinja_peek(p);
        struct jinja_node *x;
        if (t->kind == TOKEN_END) {
            while (ends && ends[1])
                ends++; /* the last is what ends it; the others go on */
            rc = ends ? err_set(p->e, ERR_CORRUPT, "line %d: a block without its %s", list->line,
                                ends[0])
                      : 0;
            break;
        }
        if (t->kind == TOKEN_TAG) {
            p->at++;
            if (is_one_of(p, ends))
                break;
        }
        x = jinja_node(p, NODE_TEXT);
        if (!x)
            return ERR_NOMEM;
        x->name = t->str;
        if (t->kind == TOKEN_TAG)
            rc = statement(p, x);
        else if (t->kind == TOKEN_PRINT)
            rc = print(p, x);
        else
            p->at++;
        if (rc == 0)
            rc = jinja_node_add(p, list, x);
    }
    p->depth--;
    return rc;
}

/* Jinja2 reads \r\n and \r as \n, and drops one newline at the end. */
static char *normalised(struct arena *a, const char *source, size_t *n)
{
    char *s = arena_array(a, *n + 2, 1);
    size_t k = 0;
    for (size_t i = 0; s && i < *n; i++) {
        if (source[i] == '\r' && i + 1 < *n && source[i + 1] == '\n')
            continue;
        s[k++] = source[i] == '\r' ? '\n' : source[i];
    }
    *n = k > 0 && s[k - 1] == '\n' ? k - 1 : k;
    return s;
}

/* A call of a name that the source never sets and that no function has: refused. */
static int check_calls(const struct jinja *j, struct err *e)
{
    for (size_t i = 0; i + 1 < j->n_tokens; i++) {
        const struct jinja_token *t = &j->tokens[i];
        bool is_call = t->kind == TOKEN_NAME && t[1].kind == TOKEN_OP && t[1].op == '(';
        bool is_plain = i > 0 && (t[-1].kind != TOKEN_OP || (t[-1].op != '.' && t[-1].op != '|'));
        if (!is_call || !is_plain || jinja_find_global(&t->str) ||
            jinja_str_is(&t->str, "caller") || jinja_str_is(&t->str, "loop"))
            continue;
        size_t k = 0;
        static const char *const words[] = {"in",   "for",  "if",   "not", "and",  "or", "is",
                                            "elif", "else", "call", "set", "with", NULL};
        bool is_known = jinja_find_test(&t->str) && t[-1].kind == TOKEN_NAME;
        for (const char *const *w = words; *w; w++)
            is_known = is_known || jinja_str_is(&t->str, *w);
        for (; k < j->n_tokens && !is_known; k++)
            is_known = j->tokens[k].kind == TOKEN_NAME && k > 0 &&
                       j->tokens[k - 1].kind == TOKEN_NAME &&
                       (jinja_str_is(&j->tokens[k - 1].str, "macro") ||
                        jinja_str_is(&j->tokens[k - 1].str, "set")) &&
                       jinja_str_equal(&j->tokens[k].str, &t->str);
        bool is_filter_tag = t[-1].kind == TOKEN_NAME && jinja_str_is(&t[-1].str, "filter");
        if (!is_known && !is_filter_tag)
            return err_set(e, ERR_UNSUPPORTED, "line %d: the function \"%.*s\"", t->line,
                           (int)t->str.n, t->str.s);
    }
    return 0;
}

int jinja_new(const char *source, size_t n, struct jinja **ret, struct err *e)
{
    if (n > JINJA_SOURCE_BYTES_MAX)
        return err_set(e, ERR_LIMIT, "a template of %zu bytes; the limit is %zu", n,
                       JINJA_SOURCE_BYTES_MAX);
    struct jinja *j = calloc(1, sizeof *j);
    if (!j)
        return err_set(e, ERR_NOMEM, "no memory for the template");
    arena_init(&j->arena, ARENA_BYTES_MAX);
    struct jinja_parser p = {.j = j, .e = e};
    const char *s = normalised(&j->arena, source, &n);
    int rc = s ? jinja_lex(j, s, n, e) : err_set(e, ERR_NOMEM, "no memory for the template");
    if (rc == 0)
        rc = body(&p, NULL, &j->body);
    if (rc == 0)
        rc = check_calls(j, e);
    if (rc == 0)
        rc = jinja_scopes(j, e);
    if (rc < 0) {
        jinja_free(j);
        return rc;
    }
    *ret = j;
    return 0;
}

void jinja_free(struct jinja *j)
{
    if (!j)
        return;
    arena_done(&j->arena);
    free(j);
}

bool jinja_names(const struct jinja *j, const char *name)
{
    for (size_t i = 0; i < j->n_tokens; i++) {
        const bool is_attribute = i > 0 && j->tokens[i - 1].kind == TOKEN_OP &&
                                  j->tokens[i - 1].op == '.';
        if (j->tokens[i].kind == TOKEN_NAME && !is_attribute &&
            jinja_str_is(&j->tokens[i].str, name))
            return true;
    }
    return false;
}

bool jinja_literal(const struct jinja *j, size_t i, struct jinja_str *ret)
{
    *ret = (struct jinja_str){.s = ""};
    if (i < j->n_tokens && j->tokens[i].kind == TOKEN_STR)
        *ret = j->tokens[i].str;
    return i < j->n_tokens;
}
