/*
 * Tags of the template subset (see template.h): the source becomes a list of nodes, the nodes are
 * linked by jumps, and a loop runs them.
 *
 *      0 text   1 {% for m in messages %}   2 {{ m.content }}   3 {% if … %}   4 text   5 {% else
 *      %}   6 text   7 {% endif %}   8 {% endfor %}
 *                    jump = 8                                      jump = 5               jump = 7
 *                                                    jump = 1
 *                                                                                         exit = 7
 * A failed if goes to its jump (elif: tried; else: entered; endif: passed). Falling onto elif or
 * else after a taken branch goes to its exit.
 */
#include "engine/template.h"

#include <stdlib.h>
#include <string.h>

#include "engine/template_impl.h"

#define NODES_MAX 4096
#define NESTING_MAX 32
#define ARENA_BYTES_MAX ((size_t)8 << 20)

enum node_kind {
    NODE_TEXT,
    NODE_PRINT,
    NODE_FOR,
    NODE_ENDFOR,
    NODE_IF,
    NODE_ELIF,
    NODE_ELSE,
    NODE_ENDIF,
    NODE_SET,
    NODE_UNKNOWN
};

struct node {
    enum node_kind kind;
    const char *s; /* [n] text, or what follows the tag's first word */
    size_t n;
    size_t jump, exit;
};

struct loop {
    size_t node, n_vars;
    const char *name;
    size_t len;
    struct value list;
    int64_t i;
};

struct program {
    struct template_run run;
    struct node nodes[NODES_MAX];
    size_t n_nodes;
    struct loop loops[NESTING_MAX];
    size_t n_loops;
};

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\v' || c == '\f';
}

/* The source line of `at`, from 1. */
static int line_of(const struct template_run *r, const char *at)
{
    int line = 1;
    for (const char *p = r->args->source; p < at; p++)
        line += *p == '\n';
    return line;
}

int template_unknown(const struct template_run *r, const char *what, const char *at, size_t n,
                     struct err *e)
{
    return err_set(e, ERR_UNSUPPORTED, "line %d: %s \"%.*s\"", line_of(r, at), what,
                   (int)(n < 40 ? n : 40), at);
}

int template_step(struct template_run *r, struct err *e)
{
    return r->n_steps++ < TEMPLATE_STEPS_MAX
               ? 0
               : err_set(e, ERR_LIMIT, "it takes more than %d steps", TEMPLATE_STEPS_MAX);
}

static int set_var(struct template_run *r, const char *name, size_t len, const struct value *v,
                   struct err *e)
{
    if (r->n_vars == TEMPLATE_VARS_MAX)
        return err_set(e, ERR_LIMIT, "it sets more than %d variables", TEMPLATE_VARS_MAX);
    r->vars[r->n_vars++] = (struct template_var){.name = name, .len = len, .value = *v};
    return 0;
}

static int add_node(struct program *p, enum node_kind kind, const char *s, size_t n, struct err *e)
{
    if (p->n_nodes == NODES_MAX)
        return err_set(e, ERR_LIMIT, "it has more than %d tags", NODES_MAX);
    p->nodes[p->n_nodes++] = (struct node){.kind = kind, .s = s, .n = n};
    return 0;
}

static void strip(const char **s, size_t *n)
{
    while (*n > 0 && is_space(**s))
        (*s)++, (*n)--;
    while (*n > 0 && is_space((*s)[*n - 1]))
        (*n)--;
}

/* {% word rest %} */
static int add_statement(struct program *p, const char *s, size_t n, struct err *e)
{
    static const struct {
        const char *word;
        enum node_kind kind;
    } words[] = {{"for", NODE_FOR},   {"endfor", NODE_ENDFOR}, {"if", NODE_IF},
                 {"elif", NODE_ELIF}, {"else", NODE_ELSE},     {"endif", NODE_ENDIF},
                 {"set", NODE_SET}};
    strip(&s, &n);
    size_t len = 0;
    while (len < n && s[len] >= 'a' && s[len] <= 'z')
        len++;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i].word) == len && memcmp(s, words[i].word, len) == 0)
            return add_node(p, words[i].kind, s + len, n - len, e);
    if (len == 3 && memcmp(s, "raw", 3) == 0)
        return template_unknown(&p->run, "the tag", s, n, e);
    return add_node(p, NODE_UNKNOWN, s, n, e);
}

/* The end of the tag that begins at s[0, 2): its closing brackets, outside strings. NULL: none. */
static const char *tag_end(const char *s, const char *end)
{
    char close = s[1] == '{' ? '}' : s[1];
    char quote = 0;
    for (const char *p = s + 2; p + 1 < end; p++) {
        if (quote && *p == '\\')
            p++;
        else if (quote)
            quote = *p == quote ? 0 : quote;
        else if (close != '#' && (*p == '"' || *p == '\''))
            quote = *p;
        else if (*p == close && p[1] == '}')
            return p;
    }
    return NULL;
}

static const char *next_tag(const char *s, const char *end)
{
    for (; s + 1 < end; s++)
        if (s[0] == '{' && (s[1] == '{' || s[1] == '%' || s[1] == '#'))
            return s;
    return end;
}

/*
 * Text up to a tag: what "-" and lstrip_blocks leave of it. is_line_start: a newline (or nothing at
 * all) comes before the text.
 */
static size_t trimmed(const char *text, const char *tag, const char *end, bool is_line_start)
{
    size_t n = (size_t)(tag - text);
    char mark = tag + 2 < end ? tag[2] : 0;
    if (tag == end || mark == '+' || (tag[1] == '{' && mark != '-'))
        return n;
    size_t left = n;
    while (left > 0 && (mark == '-' ? is_space(text[left - 1])
                                    : (text[left - 1] == ' ' || text[left - 1] == '\t')))
        left--;
    bool is_line = left > 0 ? text[left - 1] == '\n' : is_line_start;
    return mark == '-' || is_line ? left : n;
}

static int add_tag(struct program *p, const char *tag, const char *close, struct err *e)
{
    const char *s = tag + 2;
    size_t n = (size_t)(close - s);
    if (tag[1] == '#')
        return 0;
    if (n > 0 && (*s == '-' || *s == '+'))
        s++, n--;
    if (n > 0 && (s[n - 1] == '-' || (s[n - 1] == '+' && tag[1] == '%')))
        n--;
    return tag[1] == '{' ? add_node(p, NODE_PRINT, s, n, e) : add_statement(p, s, n, e);
}

/*
 * Where the text after a tag begins: "-" eats white space, trim_blocks one newline after a block.
 */
static const char *after_tag(const char *tag, const char *close, const char *end)
{
    const char *s = close + 2;
    char mark = close > tag + 2 ? close[-1] : 0;
    if (mark == '-')
        while (s < end && is_space(*s))
            s++;
    else if (tag[1] != '{' && mark != '+' && s < end && *s == '\n')
        s++;
    return s;
}

static int scan(struct program *p, struct err *e)
{
    const struct template_args *a = p->run.args;
    const char *s = a->source, *end = s + a->n_source;
    if (end > s && end[-1] == '\n')
        end--;
    while (s < end) {
        const char *tag = next_tag(s, end);
        size_t n = trimmed(s, tag, end, s == a->source || s[-1] == '\n');
        int rc = n > 0 ? add_node(p, NODE_TEXT, s, n, e) : 0;
        if (rc < 0 || tag == end)
            return rc;
        const char *close = tag_end(tag, end);
        if (!close)
            return template_unknown(&p->run, "a tag without its end:", tag, (size_t)(end - tag), e);
        rc = add_tag(p, tag, close, e);
        if (rc < 0)
            return rc;
        s = after_tag(tag, close, end);
    }
    return 0;
}

/* The chain if → elif → else is closed by endif `end`. */
static void close_chain(struct program *p, size_t first, size_t last, size_t end)
{
    p->nodes[last].jump = end;
    for (size_t i = first; i != end; i = p->nodes[i].jump)
        p->nodes[i].exit = end;
}

static int link_nodes(struct program *p, struct err *e)
{
    size_t first[NESTING_MAX], last[NESTING_MAX], n_open = 0;
    for (size_t i = 0; i < p->n_nodes; i++) {
        struct node *node = &p->nodes[i];
        bool in_if = n_open > 0 && p->nodes[first[n_open - 1]].kind == NODE_IF;
        bool in_for = n_open > 0 && !in_if;
        bool is_after_else = n_open > 0 && p->nodes[last[n_open - 1]].kind == NODE_ELSE;
        if (node->kind == NODE_IF || node->kind == NODE_FOR) {
            if (n_open == NESTING_MAX)
                return template_unknown(&p->run, "tags nested deeper than 32 at", node->s, node->n,
                                        e);
            first[n_open] = last[n_open] = i;
            n_open++;
        } else if ((node->kind == NODE_ELIF || node->kind == NODE_ELSE) && in_if &&
                   !is_after_else) {
            p->nodes[last[n_open - 1]].jump = i;
            last[n_open - 1] = i;
        } else if (node->kind == NODE_ENDIF && in_if) {
            n_open--;
            close_chain(p, first[n_open], last[n_open], i);
        } else if (node->kind == NODE_ENDFOR && in_for) {
            n_open--;
            node->jump = first[n_open];
            p->nodes[first[n_open]].jump = i;
        } else if (node->kind >= NODE_ENDFOR && node->kind <= NODE_ENDIF) {
            return template_unknown(&p->run, "a tag out of place before", node->s, node->n, e);
        }
    }
    return n_open == 0
               ? 0
               : template_unknown(&p->run,
                                  "a block without its end:", p->nodes[first[n_open - 1]].s, 20, e);
}

/* A name at *s: steps over it and the blanks after it. 0: none. */
static size_t take_name(const char **s, size_t *n)
{
    strip(s, n);
    const char *from = *s;
    while (*n > 0 && ((**s >= 'a' && **s <= 'z') || (**s >= 'A' && **s <= 'Z') || **s == '_' ||
                      (*s > from && **s >= '0' && **s <= '9')))
        (*s)++, (*n)--;
    size_t len = (size_t)(*s - from);
    strip(s, n);
    return len;
}

/* The variables of the loop's current step. */
static int enter_step(struct program *p, struct loop *l, struct err *e)
{
    struct value item = {.kind = VALUE_MESSAGE, .i = l->list.i + l->i},
                 loop = {.kind = VALUE_LOOP, .i = l->i, .n = l->list.n};
    p->run.n_vars = l->n_vars;
    int rc = set_var(&p->run, l->name, l->len, &item, e);
    return rc < 0 ? rc : set_var(&p->run, "loop", 4, &loop, e);
}

static int run_for(struct program *p, size_t *pc, struct err *e)
{
    const struct node *node = &p->nodes[*pc];
    const char *s = node->s;
    size_t n = node->n;
    struct loop l = {.node = *pc, .n_vars = p->run.n_vars};
    l.name = s + strspn(s, " \t\r\n");
    l.len = take_name(&s, &n);
    if (l.len == 0 || n < 3 || memcmp(s, "in", 2) != 0 || !is_space(s[2]) ||
        memmem(s, n, " if ", 4))
        return template_unknown(&p->run, "the loop", node->s, node->n, e);
    int rc = template_eval(&p->run, s + 2, n - 2, &l.list, e);
    if (rc < 0)
        return rc;
    if (l.list.kind != VALUE_MESSAGES && value_is_true(&l.list))
        return template_unknown(&p->run, "a loop over", s + 2, n - 2, e);
    if (!value_is_true(&l.list)) {
        *pc = node->jump + 1;
        return 0;
    }
    p->loops[p->n_loops] = l; /* link_nodes bounds the nesting */
    *pc += 1;
    return enter_step(p, &p->loops[p->n_loops++], e);
}

static int run_endfor(struct program *p, size_t *pc, struct err *e)
{
    struct loop *l = &p->loops[p->n_loops - 1];
    if (++l->i < l->list.n) {
        *pc = l->node + 1;
        return enter_step(p, l, e);
    }
    p->run.n_vars = l->n_vars;
    p->n_loops--;
    *pc += 1;
    return 0;
}

/* if, and the elif and else that its failure leads to. */
static int run_if(struct program *p, size_t *pc, struct err *e)
{
    for (size_t i = *pc;; i = p->nodes[i].jump) {
        const struct node *node = &p->nodes[i];
        struct value v = {.kind = VALUE_BOOL, .i = 1};
        int rc = node->kind == NODE_IF || node->kind == NODE_ELIF
                     ? template_eval(&p->run, node->s, node->n, &v, e)
                     : 0;
        if (rc < 0)
            return rc;
        if (!value_is_true(&v))
            continue;
        *pc = i + 1;
        return 0;
    }
}

static int run_set(struct program *p, const struct node *node, struct err *e)
{
    const char *s = node->s;
    size_t n = node->n;
    struct value v = {0};
    const char *name = s + strspn(s, " \t\r\n");
    size_t len = take_name(&s, &n);
    if (len == 0 || n < 2 || *s != '=')
        return template_unknown(&p->run, "set", node->s, node->n, e);
    int rc = template_eval(&p->run, s + 1, n - 1, &v, e);
    return rc < 0 ? rc : set_var(&p->run, name, len, &v, e);
}

static int run_print(struct program *p, const struct node *node, struct err *e)
{
    struct value v = {0}, text;
    int rc = template_eval(&p->run, node->s, node->n, &v, e);
    if (rc == 0)
        rc = value_text(&p->run, &v, node->s, &text, e);
    if (rc == 0)
        buf_add(p->run.out, text.s, text.len);
    return rc;
}

static int run_node(struct program *p, size_t *pc, struct err *e)
{
    const struct node *node = &p->nodes[*pc];
    switch (node->kind) {
    case NODE_FOR:
        return run_for(p, pc, e);
    case NODE_ENDFOR:
        return run_endfor(p, pc, e);
    case NODE_IF:
        return run_if(p, pc, e);
    case NODE_ELIF:
    case NODE_ELSE:
        *pc = node->exit;
        return 0;
    case NODE_UNKNOWN:
        return template_unknown(&p->run, "the tag", node->s, node->n, e);
    default:
        break;
    }
    *pc += 1;
    if (node->kind == NODE_TEXT)
        buf_add(p->run.out, node->s, node->n);
    else if (node->kind == NODE_SET)
        return run_set(p, node, e);
    else if (node->kind == NODE_PRINT)
        return run_print(p, node, e);
    return 0;
}

static int set_globals(struct template_run *r, struct err *e)
{
    const struct template_args *a = r->args;
    const struct {
        const char *name;
        struct value value;
    } globals[] = {
        {"messages", {.kind = VALUE_MESSAGES, .n = (int64_t)a->n_messages}},
        {"add_generation_prompt", {.kind = VALUE_BOOL, .i = a->add_generation_prompt}},
        {"bos_token", {.kind = VALUE_STRING, .s = a->bos.s, .len = a->bos.n}},
        {"eos_token", {.kind = VALUE_STRING, .s = a->eos.s, .len = a->eos.n}},
        {"tools", {.kind = VALUE_NONE}},
        {"documents", {.kind = VALUE_NONE}},
    };
    int rc = 0;
    for (size_t i = 0; i < sizeof globals / sizeof *globals && rc == 0; i++)
        rc = set_var(r, globals[i].name, strlen(globals[i].name), &globals[i].value, e);
    return rc;
}

int template_render(const struct template_args *a, struct buf *ret, struct err *e)
{
    if (a->n_source > TEMPLATE_BYTES_MAX)
        return err_set(e, ERR_LIMIT, "it has %zu bytes, the limit is %zu", a->n_source,
                       TEMPLATE_BYTES_MAX);
    struct program *p = calloc(1, sizeof *p);
    if (!p)
        return err_set(e, ERR_NOMEM, "no memory for the template");
    size_t n_before = ret->len;
    p->run.args = a;
    p->run.out = ret;
    arena_init(&p->run.arena, ARENA_BYTES_MAX);
    int rc = set_globals(&p->run, e);
    if (rc == 0)
        rc = scan(p, e);
    if (rc == 0)
        rc = link_nodes(p, e);
    for (size_t pc = 0; rc == 0 && pc < p->n_nodes;) {
        rc = template_step(&p->run, e);
        rc = rc < 0 ? rc : run_node(p, &pc, e);
    }
    if (rc == 0 && buf_error(ret) < 0)
        rc = err_set(e, buf_error(ret), "no room for the rendering");
    if (rc < 0 && buf_error(ret) == 0)
        ret->len = n_before;
    arena_done(&p->run.arena);
    free(p);
    return rc;
}
