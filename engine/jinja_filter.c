/* Filters of one value: text, numbers, JSON. Those of lists are in jinja_filter_list.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/jinja_filter.h"

static int of_case(struct jinja_run *r, const struct jinja_value *self, char how,
                   struct jinja_value *ret)
{
    struct jinja_str s;
    int rc = jinja_to_str(r, self, &s);
    if (rc == 0)
        rc = jinja_case(r, &s, how, &s);
    if (rc == 0)
        *ret = jinja_of_str(&s);
    ret->is_markup = self->is_markup && how != 't';
    return rc;
}

FILTER(filter_upper)
{
    (void)args;
    return of_case(r, self, 'u', ret);
}

FILTER(filter_lower)
{
    (void)args;
    return of_case(r, self, 'l', ret);
}

FILTER(filter_title)
{
    (void)args;
    return of_case(r, self, 't', ret);
}

FILTER(filter_capitalize)
{
    (void)args;
    return of_case(r, self, 'c', ret);
}

FILTER(filter_trim)
{
    struct jinja_str s;
    const struct jinja_value *chars = &args->v[0];
    bool has_chars = chars->type == JINJA_STR;
    int rc = jinja_to_str(r, self, &s);
    if (rc < 0)
        return rc;
    s = jinja_strip(&s, has_chars ? &chars->str : NULL, 3);
    *ret = jinja_of_str(&s);
    ret->is_markup = self->is_markup;
    return jinja_step(r, s.n);
}

FILTER(filter_length)
{
    (void)args;
    size_t n = 0;
    if (self->type == JINJA_STR)
        n = jinja_n_chars(&self->str);
    else if (self->type == JINJA_LIST && self->list->kind != LIST_GENERATOR)
        n = self->list->n;
    else if (self->type == JINJA_DICT)
        n = self->dict->n;
    else if (self->type != JINJA_UNDEFINED)
        return jinja_fail(r, ERR_INVAL, "%s has no length", jinja_type_name(self));
    *ret = jinja_int((int64_t)n);
    return jinja_step(r, self->type == JINJA_STR ? self->str.n : 0);
}

FILTER(filter_default)
{
    (void)r;
    bool is_wanted =
        self->type == JINJA_UNDEFINED ||
        (args->v[1].type != JINJA_ABSENT && jinja_truth(&args->v[1]) && !jinja_truth(self));
    *ret = !is_wanted ? *self : args->v[0].type == JINJA_ABSENT ? jinja_text("", 0) : args->v[0];
    return 0;
}

FILTER(filter_replace)
{
    struct jinja_str s;
    struct jinja_value v[3] = {args->v[0], args->v[1], args->v[2]};
    int rc = jinja_to_str(r, self, &s);
    for (int i = 0; rc == 0 && i < 2; i++) {
        struct jinja_str part;
        if (v[i].type == JINJA_ABSENT)
            return jinja_fail(r, ERR_INVAL, "replace needs two arguments");
        rc = jinja_to_str(r, &v[i], &part);
        v[i] = jinja_of_str(&part);
    }
    return rc < 0 ? rc : jinja_replace(r, &s, v, ret);
}

FILTER(filter_string)
{
    (void)args;
    struct jinja_str s;
    int rc = jinja_to_str(r, self, &s);
    if (rc == 0)
        *ret = jinja_of_str(&s);
    ret->is_markup = self->is_markup;
    return rc;
}

/* A string as Python's int() and float() read it; false: not a number. */
static bool read_number(const struct jinja_str *in, bool is_int, struct jinja_value *ret)
{
    char text[64], *end = text;
    struct jinja_str s = jinja_strip(in, NULL, 3);
    if (s.n == 0 || s.n >= sizeof text || memchr(s.s, 'x', s.n) || memchr(s.s, 'X', s.n) ||
        memchr(s.s, 'p', s.n) || memchr(s.s, '_', s.n) || (is_int && s.n > 18))
        return false;
    memcpy(text, s.s, s.n);
    text[s.n] = 0;
    *ret = (struct jinja_value){.type = JINJA_FLOAT};
    if (is_int)
        *ret = jinja_int(strtoll(text, &end, 10));
    else
        ret->f = strtod(text, &end);
    return *end == 0;
}

FILTER(filter_int)
{
    struct jinja_value v = *self;
    if (args->v[1].type != JINJA_ABSENT)
        return jinja_fail(r, ERR_UNSUPPORTED, "int with a base");
    if (self->type == JINJA_UNDEFINED)
        return jinja_fail(r, ERR_INVAL, "int of what is undefined");
    bool ok = self->type == JINJA_INT || self->type == JINJA_FLOAT || self->type == JINJA_BOOL;
    if (self->type == JINJA_STR)
        ok = read_number(&self->str, true, &v) || read_number(&self->str, false, &v);
    if (ok && v.type == JINJA_BOOL)
        v = jinja_int(v.b);
    ok = ok && (v.type != JINJA_FLOAT || isfinite(v.f));
    if (ok && v.type == JINJA_FLOAT && fabs(v.f) > 9e18)
        return jinja_fail(r, ERR_UNSUPPORTED, "a number beyond 64 bits");
    if (ok && v.type == JINJA_FLOAT)
        v = jinja_int((int64_t)v.f);
    *ret = ok ? v : args->v[0].type == JINJA_ABSENT ? jinja_int(0) : args->v[0];
    return 0;
}

FILTER(filter_float)
{
    struct jinja_value v = *self;
    if (self->type == JINJA_UNDEFINED)
        return jinja_fail(r, ERR_INVAL, "float of what is undefined");
    bool ok = self->type == JINJA_INT || self->type == JINJA_FLOAT || self->type == JINJA_BOOL;
    if (self->type == JINJA_STR)
        ok = read_number(&self->str, false, &v);
    double f = 0;
    if (ok)
        f = v.type == JINJA_FLOAT ? v.f : v.type == JINJA_INT ? (double)v.i : (double)v.b;
    *ret = (struct jinja_value){.type = JINJA_FLOAT, .f = ok ? f : 0};
    if (!ok && args->v[0].type != JINJA_ABSENT)
        *ret = args->v[0];
    return 0;
}

FILTER(filter_abs)
{
    (void)args;
    *ret = *self;
    if (self->type == JINJA_INT && self->i > INT64_MIN)
        ret->i = self->i < 0 ? -self->i : self->i;
    else if (self->type == JINJA_FLOAT)
        ret->f = fabs(self->f);
    else
        return jinja_fail(r, ERR_INVAL, "abs of %s", jinja_type_name(self));
    return 0;
}

FILTER(filter_round)
{
    if (args->v[1].type != JINJA_ABSENT ||
        (args->v[0].type != JINJA_ABSENT && (args->v[0].type != JINJA_INT || args->v[0].i != 0)))
        return jinja_fail(r, ERR_UNSUPPORTED, "round with arguments");
    if (self->type == JINJA_BOOL)
        return jinja_fail(r, ERR_UNSUPPORTED, "round of a bool");
    if (self->type != JINJA_INT && self->type != JINJA_FLOAT)
        return jinja_fail(r, ERR_INVAL, "round of %s", jinja_type_name(self));
    *ret = *self;
    if (self->type == JINJA_FLOAT)
        ret->f = rint(self->f);
    return 0;
}

FILTER(filter_safe)
{
    (void)args;
    struct jinja_str s;
    int rc = jinja_to_str(r, self, &s);
    if (rc < 0)
        return rc;
    *ret = jinja_of_str(&s);
    ret->is_markup = true;
    return 0;
}

int jinja_escape(struct jinja_run *r, const struct jinja_value *v, struct jinja_value *ret)
{
    struct jinja_str s;
    struct jinja_text t = {.r = r};
    int rc = jinja_to_str(r, v, &s);
    for (size_t i = 0; rc == 0 && i < s.n; i++) {
        static const char from[] = "&<>\"'";
        static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#34;", "&#39;"};
        struct jinja_str c = jinja_sub(&s, i, 1);
        const char *hit = s.s[i] && !v->is_markup ? strchr(from, s.s[i]) : NULL;
        rc = hit ? jinja_text_lit(&t, to[hit - from]) : jinja_text_add(&t, &c);
    }
    struct jinja_str made = jinja_text_str(&t);
    *ret = jinja_of_str(&made);
    ret->is_markup = true;
    return rc;
}

FILTER(filter_escape)
{
    (void)args;
    return jinja_escape(r, self, ret);
}

/* Hugging Face's: json.dumps(x, ensure_ascii=False, …), nothing escaped for HTML. */
FILTER(filter_tojson)
{
    struct jinja_json how = {.indent = -1};
    const struct jinja_value *separators = &args->v[2];
    const struct jinja_value *indent = &args->v[1];
    if (indent->type == JINJA_INT && indent->i >= 0 && indent->i <= 64)
        how.indent = indent->i;
    else if (indent->type != JINJA_ABSENT && indent->type != JINJA_NONE)
        return jinja_fail(r, ERR_UNSUPPORTED, "tojson with an indent that isn't 0 to 64");
    how.ensure_ascii = args->v[0].type != JINJA_ABSENT && jinja_truth(&args->v[0]);
    how.sort_keys = args->v[3].type != JINJA_ABSENT && jinja_truth(&args->v[3]);
    how.item = how.indent >= 0 ? (struct jinja_str){.s = ",", .n = 1}
                               : (struct jinja_str){.s = ", ", .n = 2};
    how.key = (struct jinja_str){.s = ": ", .n = 2};
    if (separators->type == JINJA_LIST && separators->list->n == 2 &&
        separators->list->v[0].type == JINJA_STR && separators->list->v[1].type == JINJA_STR) {
        how.item = separators->list->v[0].str;
        how.key = separators->list->v[1].str;
    } else if (separators->type != JINJA_ABSENT && separators->type != JINJA_NONE) {
        return jinja_fail(r, ERR_UNSUPPORTED, "tojson with separators that aren't two strings");
    }
    struct jinja_text t = {.r = r};
    int rc = jinja_to_json(&t, self, &how, 0);
    struct jinja_str s = jinja_text_str(&t);
    *ret = jinja_of_str(&s);
    return rc;
}

/* Spaces before each line but the first (first=false) and the blank ones (blank=false). */
FILTER(filter_indent)
{
    struct jinja_str s, pad = {.s = "    ", .n = 4};
    struct jinja_text t = {.r = r};
    int rc = self->type == JINJA_STR ? jinja_to_str(r, self, &s)
                                     : jinja_fail(r, ERR_INVAL, "indent of %s",
                                                  jinja_type_name(self));
    if (rc < 0)
        return rc;
    if (args->v[0].type == JINJA_BOOL)
        return jinja_fail(r, ERR_UNSUPPORTED, "indent by a bool");
    if (self->is_markup && args->v[0].type == JINJA_STR)
        return jinja_fail(r, ERR_UNSUPPORTED, "indent of what safe or escape gave");
    if (args->v[0].type == JINJA_STR) {
        pad = args->v[0].str;
    } else if (args->v[0].type == JINJA_INT) {
        char *p = arena_alloc(
            r->arena, args->v[0].i >= 0 && args->v[0].i < 1000 ? (size_t)args->v[0].i + 1 : 1);
        if (!p || args->v[0].i >= 1000)
            return jinja_fail(r, ERR_LIMIT, "indent by more than 999");
        pad = (struct jinja_str){.s = p, .n = args->v[0].i > 0 ? (size_t)args->v[0].i : 0};
        memset(p, ' ', pad.n);
    }
    bool first = args->v[1].type != JINJA_ABSENT && jinja_truth(&args->v[1]);
    bool blank = args->v[2].type != JINJA_ABSENT && jinja_truth(&args->v[2]);
    if (memchr(s.s, '\r', s.n))
        return jinja_fail(r, ERR_UNSUPPORTED, "indent of lines that end in \\r");
    if (rc == 0 && first)
        rc = jinja_text_add(&t, &pad);
    for (size_t i = 0, end; rc == 0 && i < s.n; i = end) {
        const char *nl = memchr(s.s + i, '\n', s.n - i);
        end = nl ? (size_t)(nl - s.s) + 1 : s.n;
        struct jinja_str line = jinja_sub(&s, i, end - i);
        if (i > 0 && (blank || s.s[i] != '\n'))
            rc = jinja_text_add(&t, &pad);
        if (rc == 0)
            rc = jinja_text_add(&t, &line);
    }
    if (rc == 0 && blank && s.n > 0 && s.s[s.n - 1] == '\n')
        rc = jinja_text_add(&t, &pad);
    s = jinja_text_str(&t);
    *ret = jinja_of_str(&s);
    ret->is_markup = self->is_markup;
    return rc;
}

static const struct jinja_filter filters[] = {
    {{"upper", filter_upper, ""}},
    {{"lower", filter_lower, ""}},
    {{"title", filter_title, ""}},
    {{"capitalize", filter_capitalize, ""}},
    {{"trim", filter_trim, "chars"}},
    {{"length", filter_length, ""}},
    {{"count", filter_length, ""}},
    {{"default", filter_default, "default_value,boolean"}},
    {{"d", filter_default, "default_value,boolean"}},
    {{"replace", filter_replace, "old,new,count"}},
    {{"string", filter_string, ""}},
    {{"int", filter_int, "default,base"}},
    {{"float", filter_float, "default"}},
    {{"abs", filter_abs, ""}},
    {{"round", filter_round, "precision,method"}},
    {{"safe", filter_safe, ""}},
    {{"escape", filter_escape, ""}},
    {{"e", filter_escape, ""}},
    {{"tojson", filter_tojson, "ensure_ascii,indent,separators,sort_keys"}},
    {{"indent", filter_indent, "width,first,blank"}},
};

const struct jinja_filter *jinja_find_filter(const struct jinja_str *name)
{
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        if (jinja_str_is(name, filters[i].row.name))
            return &filters[i];
    return jinja_find_list_filter(name);
}
