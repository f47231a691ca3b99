/*
 * From source to tokens, with Jinja2's white space rules: "-" takes all of it on its side,
 * trim_blocks the newline behind a tag or comment, lstrip_blocks what is before one that begins its
 * line, "+" keeps it.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/jinja_impl.h"

#define BRACKETS_MAX JINJA_DEPTH_MAX

struct lexer {
    struct jinja *j;
    const char *s, *at, *end;
    int line;
    const char *counted; /* lines up to here are in `line` */
    size_t cap;
    char open[BRACKETS_MAX];
    size_t n_open;
    struct err *e;
};

static int line_at(struct lexer *l, const char *p)
{
    for (; l->counted < p; l->counted++)
        l->line += *l->counted == '\n';
    return l->line;
}

static int fail(struct lexer *l, const char *at, const char *what)
{
    size_t n = (size_t)(l->end - at);
    return err_set(l->e, ERR_CORRUPT, "line %d: %s at \"%.*s\"", line_at(l, at), what,
                   (int)(n < 30 ? n : 30), at);
}

static int add(struct lexer *l, const struct jinja_token *t, const char *at)
{
    struct jinja *j = l->j;
    if (j->n_tokens == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 256;
        struct jinja_token *v = arena_array(&j->arena, cap, sizeof *v);
        if (!v)
            return err_set(l->e, ERR_NOMEM, "no memory for the template");
        if (j->n_tokens > 0)
            memcpy(v, j->tokens, j->n_tokens * sizeof *v);
        j->tokens = v;
        l->cap = cap;
    }
    j->tokens[j->n_tokens] = *t;
    j->tokens[j->n_tokens++].line = line_at(l, at);
    return 0;
}

static int add_kind(struct lexer *l, enum jinja_token_kind kind, const char *at)
{
    return add(l, &(struct jinja_token){.kind = kind}, at);
}

static const char *skip_space(const struct lexer *l, const char *p)
{
    for (size_t k; p < l->end && (k = jinja_space_at(p, (size_t)(l->end - p))) > 0; p += k)
        ;
    return p;
}

static const char *find(const struct lexer *l, const char *p, const char *what)
{
    size_t n = strlen(what);
    for (; p + n <= l->end; p++)
        if (memcmp(p, what, n) == 0)
            return p;
    return NULL;
}

/* Text that ends at a tag, less what the tag's mark or lstrip_blocks take. */
static size_t text_len(const struct lexer *l, const char *from, const char *tag)
{
    size_t n = (size_t)(tag - from), left = n, k;
    char mark = tag + 2 < l->end ? tag[2] : 0;
    if (mark == '-') {
        while (left > 0 && (k = jinja_space_before(from, left)) > 0)
            left -= k;
        return left;
    }
    if (mark == '+' || tag[1] == '{')
        return n;
    while (left > 0 && from[left - 1] != '\n' && (k = jinja_space_before(from, left)) > 0)
        left -= k;
    bool is_line = left > 0 ? from[left - 1] == '\n' : from == l->s || from[-1] == '\n';
    return is_line ? left : n;
}

static int add_text(struct lexer *l, const char *from, size_t n)
{
    struct jinja_token t = {.kind = TOKEN_TEXT, .str = {.s = from, .n = n}};
    return n > 0 ? add(l, &t, from) : 0;
}

/* Steps over the end of a tag or comment: [-+]?X} and what it takes. NULL: it isn't one. */
static const char *tag_end(const struct lexer *l, const char *p, char close)
{
    char mark = *p == '-' || (*p == '+' && close != '}') ? *p : 0;
    const char *q = p + (mark != 0);
    if (l->end - q < 2 || q[0] != close || q[1] != '}')
        return NULL;
    q += 2;
    if (mark == '-')
        return skip_space(l, q);
    return close != '}' && mark != '+' && q < l->end && *q == '\n' ? q + 1 : q;
}

static int comment(struct lexer *l)
{
    const char *p = find(l, l->at + 2, "#}");
    if (!p)
        return fail(l, l->at, "a comment without its end");
    if (p > l->at + 2 && (p[-1] == '-' || p[-1] == '+'))
        p--;
    l->at = tag_end(l, p, '#');
    return 0;
}

/* If {% name %} is at p: where its "%}" is, else NULL. */
static const char *bare_tag(const struct lexer *l, const char *p, const char *name)
{
    size_t n = strlen(name);
    if (l->end - p < 2 || p[0] != '{' || p[1] != '%')
        return NULL;
    p += 2;
    if (p < l->end && (*p == '-' || *p == '+'))
        p++;
    p = skip_space(l, p);
    if ((size_t)(l->end - p) < n || memcmp(p, name, n) != 0)
        return NULL;
    p = skip_space(l, p + n);
    return p < l->end && tag_end(l, p, '%') ? p : NULL;
}

static int raw(struct lexer *l, const char *close)
{
    const char *from = *close == '-' ? skip_space(l, close + 3) : close + 2;
    if (*close == '+')
        return fail(l, l->at, "a raw tag with +%}");
    for (const char *p = from; (p = find(l, p, "{%")) != NULL; p += 2) {
        const char *end = bare_tag(l, p, "endraw");
        if (!end)
            continue;
        l->at = tag_end(l, end, '%');
        return add_text(l, from, text_len(l, from, p));
    }
    return fail(l, l->at, "raw without its end");
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static const char *digits(const struct lexer *l, const char *p)
{
    while (p < l->end && is_digit(*p))
        p++;
    return p;
}

static int number(struct lexer *l)
{
    const char *from = l->at, *p = digits(l, from);
    struct jinja_token t = {.kind = TOKEN_INT};
    if (l->end - p > 1 && *p == '.' && is_digit(p[1])) {
        p = digits(l, p + 1);
        t.kind = TOKEN_FLOAT;
    }
    if (p < l->end && (*p == 'e' || *p == 'E')) {
        const char *q = p + 1;
        q += q < l->end && (*q == '+' || *q == '-');
        if (q < l->end && is_digit(*q)) {
            p = digits(l, q);
            t.kind = TOKEN_FLOAT;
        }
    }
    char text[40];
    size_t n = (size_t)(p - from);
    const bool has_zero = t.kind == TOKEN_INT && *from == '0' && strspn(from, "0") < n;
    if ((p < l->end && is_word(*p)) || n > 18 || has_zero)
        return err_set(l->e, ERR_UNSUPPORTED, "line %d: the number \"%.*s\"", line_at(l, from),
                       (int)(n < 30 ? n + 1 : 30), from);
    memcpy(text, from, n);
    text[n] = 0;
    t.i = t.kind == TOKEN_INT ? strtoll(text, NULL, 10) : 0;
    t.f = strtod(text, NULL);
    l->at = p;
    return add(l, &t, from);
}

static int hex(const char *p, size_t n, uint32_t *ret)
{
    *ret = 0;
    for (size_t i = 0; i < n; i++) {
        char c = p[i];
        int d = is_digit(c)            ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0)
            return -1;
        *ret = *ret * 16 + (uint32_t)d;
    }
    return 0;
}

static size_t put_code_point(char *to, uint32_t cp)
{
    if (cp < 0x80) {
        to[0] = (char)cp;
        return 1;
    }
    size_t n = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    static const uint8_t first[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = n - 1; i > 0; i--, cp >>= 6)
        to[i] = (char)(0x80 | (cp & 0x3F));
    to[0] = (char)(first[n] | cp);
    return n;
}

/* An escape at p (behind the backslash) as Python reads it. Returns where it ends, NULL: none. */
static const char *escape(const struct lexer *l, const char *p, char *to, size_t *n)
{
    static const char names[] = "abfnrtv\\'\"", values[] = "\a\b\f\n\r\t\v\\'\"";
    const char *named = *p ? strchr(names, *p) : NULL;
    *n = 1;
    if (named) {
        *to = values[named - names];
        return p + 1;
    }
    if (*p == '\n') {
        *n = 0;
        return p + 1;
    }
    uint32_t cp = 0;
    if (*p >= '0' && *p <= '7') {
        int k = 0;
        for (; k < 3 && p < l->end && *p >= '0' && *p <= '7'; k++, p++)
            cp = cp * 8 + (uint32_t)(*p - '0');
        *n = put_code_point(to, cp);
        return p;
    }
    size_t len = *p == 'x' ? 2 : *p == 'u' ? 4 : *p == 'U' ? 8 : 0;
    if (len > 0) {
        if ((size_t)(l->end - p) <= len || hex(p + 1, len, &cp) < 0 || cp > 0x10FFFF ||
            (cp >= 0xD800 && cp < 0xE000))
            return NULL;
        *n = put_code_point(to, cp);
        return p + 1 + len;
    }
    if (*p == 'N' || (unsigned char)*p >= 0x80)
        return NULL;
    to[0] = '\\';
    to[1] = *p;
    *n = 2;
    return p + 1;
}

static int string(struct lexer *l)
{
    const char *from = l->at, *p = from + 1;
    while (p < l->end && *p != *from)
        p += *p == '\\' ? 2 : 1;
    if (p >= l->end)
        return fail(l, from, "a string without its end");
    char *to = arena_array(&l->j->arena, (size_t)(p - from) + 1, 1);
    if (!to)
        return err_set(l->e, ERR_NOMEM, "no memory for the template");
    struct jinja_token t = {.kind = TOKEN_STR, .str = {.s = to}};
    for (const char *q = from + 1; q < p;) {
        size_t n = 1;
        if (*q == '\\') {
            q = escape(l, q + 1, to + t.str.n, &n);
            if (!q)
                return err_set(l->e, ERR_UNSUPPORTED,
                               "line %d: a string with an escape that isn't understood",
                               line_at(l, from));
        } else {
            to[t.str.n] = *q++;
        }
        t.str.n += n;
    }
    l->at = p + 1;
    return add(l, &t, from);
}

static int name(struct lexer *l)
{
    const char *p = l->at;
    while (p < l->end && is_word(*p))
        p++;
    size_t n = (size_t)(p - l->at);
    struct jinja_token t = {.kind = TOKEN_NAME, .str = {.n = n}};
    t.str.s = arena_copy(&l->j->arena, l->at, n);
    const char *from = l->at;
    l->at = p;
    return t.str.s ? add(l, &t, from) : err_set(l->e, ERR_NOMEM, "no memory for the template");
}

static int operator(struct lexer *l)
{
    static const char two[][3] = {"//", "**", "==", "!=", ">=", "<="};
    const char *p = l->at;
    struct jinja_token t = {.kind = TOKEN_OP, .op = *p};
    size_t n = 1;
    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        if (l->end - p > 1 && memcmp(p, two[i], 2) == 0) {
            t.op = OP2(p[0], p[1]);
            n = 2;
        }
    if (n == 1 && (!*p || !strchr("+-*/%~[](){}><=.:|,;", *p)))
        return (unsigned char)*p >= 0x80
                   ? err_set(l->e, ERR_UNSUPPORTED, "line %d: a name beyond ASCII", line_at(l, p))
                   : fail(l, p, "a character that isn't understood");
    if (n == 1 && strchr("([{", *p)) {
        if (l->n_open == BRACKETS_MAX)
            return err_set(l->e, ERR_LIMIT, "line %d: brackets nested deeper than %d",
                           line_at(l, p), BRACKETS_MAX);
        l->open[l->n_open++] = *p == '(' ? ')' : (char)(*p + 2);
    } else if (n == 1 && strchr(")]}", *p)) {
        if (l->n_open == 0 || l->open[l->n_open - 1] != *p)
            return fail(l, p, "a bracket out of place");
        l->n_open--;
    }
    l->at += n;
    return add(l, &t, p);
}

/* What is between {{ or {% and its end. */
static int inside(struct lexer *l, char close)
{
    const char *tag = l->at;
    l->at += 2;
    l->at += l->at < l->end && (*l->at == '-' || *l->at == '+');
    l->n_open = 0;
    for (;;) {
        l->at = skip_space(l, l->at);
        if (l->at == l->end)
            return fail(l, tag, "a tag without its end");
        const char *p = l->at, *end = l->n_open == 0 ? tag_end(l, p, close) : NULL;
        if (end) {
            l->at = end;
            return add_kind(l, close == '}' ? TOKEN_PRINT_END : TOKEN_TAG_END, p);
        }
        int rc;
        if (*p == '"' || *p == '\'')
            rc = string(l);
        else if (is_digit(*p))
            rc = number(l);
        else if (is_word(*p))
            rc = name(l);
        else
            rc = operator(l);
        if (rc < 0)
            return rc;
    }
}

static const char *next_tag(const struct lexer *l, const char *p)
{
    for (; p + 1 < l->end; p++)
        if (p[0] == '{' && (p[1] == '{' || p[1] == '%' || p[1] == '#'))
            return p;
    return l->end;
}

int jinja_lex(struct jinja *j, const char *source, size_t n, struct err *e)
{
    struct lexer l = {.j = j, .s = source, .at = source, .end = source + n, .e = e};
    l.counted = source;
    l.line = 1;
    while (l.at < l.end) {
        const char *tag = next_tag(&l, l.at), *close;
        int rc = add_text(&l, l.at, tag == l.end ? (size_t)(tag - l.at) : text_len(&l, l.at, tag));
        l.at = tag;
        if (rc < 0 || tag == l.end) {
            if (rc < 0)
                return rc;
        } else if (tag[1] == '#') {
            rc = comment(&l);
        } else if ((close = bare_tag(&l, tag, "raw")) != NULL) {
            rc = raw(&l, close);
        } else {
            rc = add_kind(&l, tag[1] == '{' ? TOKEN_PRINT : TOKEN_TAG, tag);
            if (rc == 0)
                rc = inside(&l, tag[1] == '{' ? '}' : '%');
        }
        if (rc < 0)
            return rc;
    }
    return add_kind(&l, TOKEN_END, l.end);
}
