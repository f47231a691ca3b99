/* Filters of one value: text, numbers, JSON. Those of lists are in jinja_filter_list.c. */
#include <math.h>
#include <stdio.h>
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
    if (!has_chars && chars->type != JINJA_ABSENT && chars->type != JINJA_NONE)
        return jinja_fail(r, ERR_INVAL, "trim of %s", jinja_type_name(chars));
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
    else if (self->type == JINJA_LOOP)
        n = jinja_loop_length(self->loop);
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
    if (v[2].type == JINJA_NONE)
        v[2].type = JINJA_ABSENT;
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

/* What Python may read as a number and read_number doesn't: digits of other scripts, 1_000, many
 * digits. */
static bool is_odd_number(const struct jinja_str *s, bool is_int)
{
    size_t n_digits = 0;
    bool is_odd = memchr(s->s, 0, s->n) != NULL;
    for (size_t at = 0; at < s->n;) {
        const uint32_t c = jinja_next(s, &at);
        n_digits += c >= '0' && c <= '9';
        is_odd = is_odd || (c >= 0x80 && jinja_char_of(c) == CHAR_DECIMAL) ||
                 (c == '_' && n_digits > 0);
    }
    return is_odd || (is_int ? n_digits > 17 : n_digits > 40);
}

FILTER(filter_int)
{
    struct jinja_value v = *self;
    if (self->type == JINJA_STR && is_odd_number(&self->str, true))
        return jinja_fail(r, ERR_UNSUPPORTED, "a number that isn't plainly written");
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
    if (self->type == JINJA_STR && is_odd_number(&self->str, false))
        return jinja_fail(r, ERR_UNSUPPORTED, "a number that isn't plainly written");
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
    if (self->type == JINJA_BOOL)
        *ret = jinja_int(self->b);
    else if (self->type == JINJA_INT && self->i > INT64_MIN)
        ret->i = self->i < 0 ? -self->i : self->i;
    else if (self->type == JINJA_FLOAT)
        ret->f = fabs(self->f);
    else
        return jinja_fail(r, ERR_INVAL, "abs of %s", jinja_type_name(self));
    return 0;
}

static int round_up_or_down(struct jinja_run *r, const struct jinja_value *v,
                            const struct jinja_value *how, int n, struct jinja_value *ret)
{
    const bool is_ceil = how->type == JINJA_STR && jinja_str_is(&how->str, "ceil");
    if (!is_ceil && !(how->type == JINJA_STR && jinja_str_is(&how->str, "floor")))
        return jinja_fail(r, ERR_INVAL, "method must be common, ceil or floor");
    const double f = v->type == JINJA_FLOAT ? v->f : (double)jinja_int_of(v), by = pow(10, n);
    if (fabs(f) > 1e15 / by || !isfinite(f))
        return jinja_fail(r, ERR_UNSUPPORTED, "rounding of a number so large");
    *ret = (struct jinja_value){.type = JINJA_FLOAT};
    ret->f = (is_ceil ? ceil(f * by) : floor(f * by)) / by;
    ret->f += 0.0; /* no -0.0: Python's ceil and floor give integers */
    return 0;
}

FILTER(filter_round)
{
    const struct jinja_value *how = &args->v[1], *digits = &args->v[0];
    const bool is_common = how->type == JINJA_ABSENT ||
                           (how->type == JINJA_STR && jinja_str_is(&how->str, "common"));
    if (digits->type != JINJA_ABSENT &&
        (digits->type != JINJA_INT || digits->i < 0 || digits->i > 15))
        return jinja_fail(r, ERR_UNSUPPORTED, "round to other than 0 to 15 digits");
    const int n = digits->type == JINJA_INT ? (int)digits->i : 0;
    if (!jinja_is_int(self) && self->type != JINJA_FLOAT)
        return jinja_fail(r, is_common ? ERR_INVAL : ERR_UNSUPPORTED, "round of %s",
                          jinja_type_name(self));
    if (!is_common)
        return round_up_or_down(r, self, how, n, ret);
    *ret = self->type == JINJA_FLOAT ? *self : jinja_int(jinja_int_of(self));
    if (self->type == JINJA_FLOAT && isfinite(self->f)) {
        char text[400]; /* correctly rounded, half to even in binary: as Python does it */
        snprintf(text, sizeof text, "%.*f", n, self->f);
        ret->f = strtod(text, NULL);
    }
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
    if (indent->type == JINJA_INT && indent->i <= 64)
        how.indent = indent->i > 0 ? indent->i : 0;
    else if (indent->type == JINJA_STR)
        how = (struct jinja_json){.indent = 1, .unit = &indent->str};
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
    } else if (args->v[0].type != JINJA_INT && args->v[0].type != JINJA_ABSENT) {
        return jinja_fail(r, ERR_INVAL, "indent by %s", jinja_type_name(&args->v[0]));
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
    if (jinja_has_odd_lines(&s))
        return jinja_fail(r, ERR_UNSUPPORTED, "indent of lines that end in other than \\n");
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

FILTER(filter_format)
{
    struct jinja_value v = jinja_none();
    int rc = args->n > 0 && args->n_named > 0
                 ? jinja_fail(r, ERR_INVAL, "format takes arguments in order or by name, not both")
                 : 0;
    if (rc == 0 && args->n_named > 0)
        rc = jinja_dict_new(r->arena, &v) < 0 ? jinja_nomem(r) : 0;
    else if (rc == 0)
        rc = jinja_list_make(r, LIST_TUPLE, &v);
    for (size_t i = 0; rc == 0 && i < args->n; i++)
        rc = jinja_push(r, &v, &args->v[i]);
    for (size_t i = 0; rc == 0 && i < args->n_named; i++) {
        const struct jinja_value k = jinja_of_str(&args->names[i]);
        rc = jinja_dict_put(r, v.dict, &k, &args->named[i]);
    }
    struct jinja_str s;
    if (rc == 0 && self->is_markup)
        rc = jinja_fail(r, ERR_UNSUPPORTED, "formatting what safe or escape gave");
    if (rc == 0)
        rc = jinja_to_str(r, self, &s);
    return rc < 0 ? rc : jinja_percent(r, &s, &v, ret);
}

static const struct jinja_filter filters[] = {
    {{"format", filter_format, NULL}},
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
