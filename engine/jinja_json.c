/* How values are written: JSON as Python's json.dumps does it, and Python's own repr. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "engine/jinja_impl.h"

#define WRITE_DEPTH_MAX 64

/* Shortest digits that read back the same, spelled as Python spells them. */
void jinja_format_float(double f, char ret[40])
{
    char digits[40], *e;
    if (isnan(f) || isinf(f)) {
        snprintf(ret, 40, "%s", isnan(f) ? "nan" : f > 0 ? "inf" : "-inf");
        return;
    }
    int precision = 0;
    do
        snprintf(digits, sizeof digits, "%.*e", precision, f);
    while (strtod(digits, NULL) != f && ++precision < 17);
    e = strchr(digits, 'e');
    int exponent = e ? (int)strtol(e + 1, NULL, 10) : 0;
    if (exponent >= -4 && exponent < 16) {
        int after = precision - exponent;
        snprintf(ret, 40, "%.*f", after > 1 ? after : 1, f);
        return;
    }
    /* "1e+16" is C's spelling and Python's alike */
    memcpy(ret, digits, sizeof digits);
}

static int scalar(struct jinja_text *t, const struct jinja_value *v)
{
    char text[40];
    if (v->type == JINJA_FLOAT)
        jinja_format_float(v->f, text);
    else
        snprintf(text, sizeof text, "%lld", (long long)v->i);
    return jinja_text_lit(t, text);
}

static int hex_escape(struct jinja_text *t, uint32_t cp, bool is_json, uint8_t mark)
{
    char text[16];
    if (is_json && cp > 0xFFFF)
        snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xD7C0 + (cp >> 10), 0xDC00 + (cp & 0x3FF));
    else if (is_json || (cp > 0xFF && cp <= 0xFFFF))
        snprintf(text, sizeof text, "\\u%04x", cp);
    else
        snprintf(text, sizeof text, cp > 0xFF ? "\\U%08x" : "\\x%02x", cp);
    int rc = 0;
    for (const char *p = text; rc == 0 && *p; p++)
        rc = jinja_text_char(t, *p, mark);
    return rc;
}

static char short_escape(char c, bool is_json)
{
    static const char from[] = "\n\r\t\b\f", to[] = "nrtbf";
    const char *p = c ? strchr(from, c) : NULL;
    return p && (is_json || p < from + 3) ? to[p - from] : 0;
}

/* How strings are quoted. */
struct quoting {
    char quote;
    bool is_json, is_ascii; /* is_ascii: the rest is escaped */
};

static int quoted_char(struct jinja_text *t, const struct jinja_str *c, uint32_t cp,
                       const struct quoting *q)
{
    const uint8_t mark = c->marks ? c->marks[0] : 0;
    const char named = cp < 0x80 ? short_escape((char)cp, q->is_json) : 0;
    if (cp == (uint32_t)q->quote || cp == '\\' || named) {
        int rc = jinja_text_char(t, '\\', mark);
        return rc < 0 ? rc : jinja_text_char(t, named ? named : (char)cp, mark);
    }
    if (!q->is_json && jinja_char_of(cp) == CHAR_UNKNOWN)
        return jinja_fail(t->r, ERR_UNSUPPORTED, "the repr of U+%04X", cp);
    if (cp < 0x20 || (q->is_json ? q->is_ascii && cp >= 0x7F : jinja_char_of(cp) == CHAR_HIDDEN))
        return hex_escape(t, cp, q->is_json, mark);
    return jinja_text_add(t, c);
}

static int quoted(struct jinja_text *t, const struct jinja_str *s, const struct quoting *q)
{
    int rc = jinja_text_char(t, q->quote, 0);
    for (size_t i = 0, k; rc == 0 && i < s->n; i += k) {
        bool ok = false;
        k = utf8_step(s->s + i, s->n - i, &ok);
        size_t at = i;
        uint32_t cp = ok ? utf8_next(s->s, s->n, &at) : 0xFFFD;
        struct jinja_str c = jinja_sub(s, i, k);
        rc = quoted_char(t, &c, cp, q);
    }
    return rc < 0 ? rc : jinja_text_char(t, q->quote, 0);
}

static int too_deep(struct jinja_text *t, int depth)
{
    return depth > WRITE_DEPTH_MAX
               ? jinja_fail(t->r, ERR_LIMIT, "a value nested deeper than %d", WRITE_DEPTH_MAX)
               : 0;
}

static int separator(struct jinja_text *t, const struct jinja_json *how, int depth, bool is_first)
{
    int rc = is_first ? 0 : jinja_text_add(t, &how->item);
    if (rc < 0 || how->indent < 0)
        return rc;
    rc = jinja_text_lit(t, "\n");
    const struct jinja_str space = {.s = " ", .n = 1};
    for (int64_t i = 0; rc == 0 && i < how->indent * depth; i++)
        rc = jinja_text_add(t, how->unit ? how->unit : &space);
    return rc;
}

static int json_key(struct jinja_text *t, const struct jinja_value *k, const struct jinja_json *how)
{
    const struct quoting q = {.quote = '"', .is_json = true, .is_ascii = how->ensure_ascii};
    if (k->type == JINJA_STR)
        return quoted(t, &k->str, &q);
    if (k->type != JINJA_INT && k->type != JINJA_BOOL && k->type != JINJA_NONE &&
        k->type != JINJA_FLOAT)
        return jinja_fail(t->r, ERR_INVAL, "keys must be str, int, float, bool or None, not %s",
                          jinja_type_name(k));
    int rc = jinja_text_lit(t, "\"");
    rc = rc == 0 ? jinja_to_json(t, k, how, 0) : rc;
    return rc < 0 ? rc : jinja_text_lit(t, "\"");
}

/* The pairs of d by key: an index, sorted by insertion. NULL: no memory. */
static size_t *sorted(struct jinja_text *t, const struct jinja_dict *d, bool by_key)
{
    size_t *at = arena_array(t->r->arena, d->n + 1, sizeof *at);
    for (size_t i = 0; at && i < d->n; i++) {
        size_t k = i;
        int c = 1;
        for (; by_key && k > 0; k--) {
            if (jinja_order(t->r, &d->v[at[k - 1]].key, &d->v[i].key, &c) < 0)
                return NULL;
            if (c <= 0)
                break;
            at[k] = at[k - 1];
        }
        at[k] = i;
    }
    return at;
}

static int json_dict(struct jinja_text *t, const struct jinja_dict *d, const struct jinja_json *how,
                     int depth)
{
    size_t *at = sorted(t, d, how->sort_keys);
    if (!at)
        return t->r->e->code < 0 ? t->r->e->code : jinja_nomem(t->r);
    int rc = jinja_text_lit(t, "{");
    for (size_t i = 0; rc == 0 && i < d->n; i++) {
        const struct jinja_pair *pair = &d->v[at[i]];
        rc = separator(t, how, depth + 1, i == 0);
        if (rc == 0)
            rc = json_key(t, &pair->key, how);
        if (rc == 0)
            rc = jinja_text_add(t, &how->key);
        if (rc == 0)
            rc = jinja_to_json(t, &pair->value, how, depth + 1);
    }
    if (rc == 0 && d->n > 0)
        rc = separator(t, how, depth, true);
    return rc < 0 ? rc : jinja_text_lit(t, "}");
}

static int json_list(struct jinja_text *t, const struct jinja_list *l, const struct jinja_json *how,
                     int depth)
{
    int rc = jinja_text_lit(t, "[");
    for (size_t i = 0; rc == 0 && i < l->n; i++) {
        rc = separator(t, how, depth + 1, i == 0);
        if (rc == 0)
            rc = jinja_to_json(t, &l->v[i], how, depth + 1);
    }
    if (rc == 0 && l->n > 0)
        rc = separator(t, how, depth, true);
    return rc < 0 ? rc : jinja_text_lit(t, "]");
}

int jinja_to_json(struct jinja_text *t, const struct jinja_value *v, const struct jinja_json *how,
                  int depth)
{
    const struct quoting q = {.quote = '"', .is_json = true, .is_ascii = how->ensure_ascii};
    int rc = too_deep(t, depth);
    if (rc < 0)
        return rc;
    switch (v->type) {
    case JINJA_NONE:
        return jinja_text_lit(t, "null");
    case JINJA_BOOL:
        return jinja_text_lit(t, v->b ? "true" : "false");
    case JINJA_INT:
        return scalar(t, v);
    case JINJA_FLOAT:
        if (isnan(v->f) || isinf(v->f))
            return jinja_text_lit(t, isnan(v->f) ? "NaN" : v->f > 0 ? "Infinity" : "-Infinity");
        return scalar(t, v);
    case JINJA_STR:
        return quoted(t, &v->str, &q);
    case JINJA_DICT:
        return json_dict(t, v->dict, how, depth);
    case JINJA_LIST:
        if (v->list->kind <= LIST_TUPLE)
            return json_list(t, v->list, how, depth);
        break;
    default:
        break;
    }
    return jinja_fail(t->r, ERR_INVAL, "%s is not JSON serializable", jinja_type_name(v));
}

static int repr_range(struct jinja_text *t, const struct jinja_list *l)
{
    char text[96];
    if (l->n < 2)
        return jinja_fail(t->r, ERR_UNSUPPORTED, "printing a range so short");
    const int64_t step = l->v[1].i - l->v[0].i, end = l->v[l->n - 1].i;
    if (step != 1)
        return jinja_fail(t->r, ERR_UNSUPPORTED, "printing a range with steps");
    snprintf(text, sizeof text, "range(%lld, %lld)", (long long)l->v[0].i, (long long)end + 1);
    return jinja_text_lit(t, text);
}

static int repr_list(struct jinja_text *t, const struct jinja_list *l, int depth)
{
    const bool is_tuple = l->kind == LIST_TUPLE;
    if (l->kind == LIST_RANGE)
        return repr_range(t, l);
    if (l->kind > LIST_TUPLE)
        return jinja_fail(t->r, ERR_UNSUPPORTED, "printing what isn't a list yet");
    int rc = jinja_text_lit(t, is_tuple ? "(" : "[");
    for (size_t i = 0; rc == 0 && i < l->n; i++) {
        rc = i > 0 ? jinja_text_lit(t, ", ") : 0;
        if (rc == 0)
            rc = jinja_repr(t, &l->v[i], depth + 1);
    }
    return rc < 0 ? rc : jinja_text_lit(t, is_tuple ? l->n == 1 ? ",)" : ")" : "]");
}

static int repr_dict(struct jinja_text *t, const struct jinja_dict *d, int depth)
{
    int rc = jinja_text_lit(t, "{");
    for (size_t i = 0; rc == 0 && i < d->n; i++) {
        rc = i > 0 ? jinja_text_lit(t, ", ") : 0;
        if (rc == 0)
            rc = jinja_repr(t, &d->v[i].key, depth + 1);
        if (rc == 0)
            rc = jinja_text_lit(t, ": ");
        if (rc == 0)
            rc = jinja_repr(t, &d->v[i].value, depth + 1);
    }
    return rc < 0 ? rc : jinja_text_lit(t, "}");
}

int jinja_repr(struct jinja_text *t, const struct jinja_value *v, int depth)
{
    struct quoting q = {.quote = '\''};
    int rc = too_deep(t, depth);
    if (rc < 0)
        return rc;
    switch (v->type) {
    case JINJA_NONE:
        return jinja_text_lit(t, "None");
    case JINJA_UNDEFINED:
        return jinja_text_lit(t, "Undefined");
    case JINJA_BOOL:
        return jinja_text_lit(t, v->b ? "True" : "False");
    case JINJA_INT:
    case JINJA_FLOAT:
        return scalar(t, v);
    case JINJA_STR:
        if (v->is_markup)
            return jinja_fail(t->r, ERR_UNSUPPORTED, "the repr of what safe or escape gave");
        if (v->str.n > 0 && memchr(v->str.s, '\'', v->str.n) && !memchr(v->str.s, '"', v->str.n))
            q.quote = '"';
        return quoted(t, &v->str, &q);
    case JINJA_DICT:
        return repr_dict(t, v->dict, depth);
    case JINJA_LIST:
        return repr_list(t, v->list, depth);
    case JINJA_LOOP:
        return jinja_loop_repr(t, v->loop);
    case JINJA_NAMESPACE:
        t->r->n_reads++;
        rc = jinja_text_lit(t, "<Namespace ");
        if (rc == 0)
            rc = repr_dict(t, v->dict, depth);
        return rc < 0 ? rc : jinja_text_lit(t, ">");
    default:
        break;
    }
    return jinja_fail(t->r, ERR_UNSUPPORTED, "printing a %s", jinja_type_name(v));
}
