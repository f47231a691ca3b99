/* Methods of strings. */
#include <string.h>

#include "engine/jinja_impl.h"

static bool is_given(const struct jinja_value *v)
{
    return v->type != JINJA_ABSENT && v->type != JINJA_NONE;
}

static int stripped(struct jinja_run *r, const struct jinja_value *self, struct jinja_args *args,
                    int sides, struct jinja_value *ret)
{
    if (is_given(&args->v[0]) && args->v[0].type != JINJA_STR)
        return jinja_fail(r, ERR_INVAL, "strip of %s", jinja_type_name(&args->v[0]));
    struct jinja_str s =
        jinja_strip(&self->str, is_given(&args->v[0]) ? &args->v[0].str : NULL, sides);
    *ret = jinja_of_str(&s);
    return jinja_step(r, self->str.n);
}

BUILTIN(str_strip)
{
    return stripped(r, self, args, 3, ret);
}

BUILTIN(str_lstrip)
{
    return stripped(r, self, args, 1, ret);
}

BUILTIN(str_rstrip)
{
    return stripped(r, self, args, 2, ret);
}

static int push_sub(struct jinja_run *r, struct jinja_value *list, const struct jinja_str *s,
                    size_t from, size_t to)
{
    struct jinja_str sub = jinja_sub(s, from, to - from);
    struct jinja_value v = jinja_of_str(&sub);
    return jinja_push(r, list, &v);
}

/* By white space. */
static int split_words(struct jinja_run *r, const struct jinja_str *s, int64_t max,
                       struct jinja_value *ret)
{
    size_t i = 0, k;
    int rc = 0;
    while (rc == 0) {
        while (i < s->n && (k = jinja_space_at(s->s + i, s->n - i)) > 0)
            i += k;
        if (i == s->n)
            break;
        size_t from = i;
        if (max-- == 0) {
            struct jinja_str rest = jinja_sub(s, from, s->n - from);
            return push_sub(r, ret, &rest, 0, rest.n);
        }
        while (i < s->n && jinja_space_at(s->s + i, s->n - i) == 0)
            i += jinja_char_len(s->s + i, s->n - i);
        rc = push_sub(r, ret, s, from, i);
    }
    return rc;
}

static int split_args(struct jinja_run *r, struct jinja_args *args, int64_t *ret_max)
{
    *ret_max = args->v[1].type == JINJA_INT ? args->v[1].i : -1;
    if (is_given(&args->v[0]) && args->v[0].type != JINJA_STR)
        return jinja_fail(r, ERR_INVAL, "split by %s", jinja_type_name(&args->v[0]));
    if (is_given(&args->v[0]) && args->v[0].str.n == 0)
        return jinja_fail(r, ERR_INVAL, "empty separator");
    return 0;
}

BUILTIN(str_split)
{
    int64_t max;
    const struct jinja_str *s = &self->str;
    int rc = split_args(r, args, &max);
    if (rc == 0)
        rc = jinja_list_make(r, LIST_PLAIN, ret);
    if (rc == 0)
        rc = jinja_step(r, s->n);
    if (rc < 0 || !is_given(&args->v[0]))
        return rc < 0 ? rc : split_words(r, s, max, ret);
    size_t at = 0, hit;
    while (rc == 0 && max-- != 0 && (hit = jinja_find(s, &args->v[0].str, at)) != (size_t)-1) {
        rc = push_sub(r, ret, s, at, hit);
        at = hit + args->v[0].str.n;
    }
    return rc < 0 ? rc : push_sub(r, ret, s, at, s->n);
}

/* The last place of `what` that ends at or before `end`, or -1. */
static size_t find_last(const struct jinja_str *s, const struct jinja_str *what, size_t end)
{
    for (size_t i = end; i >= what->n; i--)
        if (memcmp(s->s + i - what->n, what->s, what->n) == 0)
            return i - what->n;
    return (size_t)-1;
}

BUILTIN(str_rsplit)
{
    int64_t max;
    const struct jinja_str *s = &self->str;
    int rc = split_args(r, args, &max);
    if (rc < 0)
        return rc;
    if (max < 0)
        return str_split(r, self, args, ret);
    if (!is_given(&args->v[0]))
        return jinja_fail(r, ERR_UNSUPPORTED, "rsplit by white space with a limit");
    struct jinja_value back;
    rc = jinja_list_make(r, LIST_PLAIN, &back);
    size_t end = s->n, hit;
    while (rc == 0 && max-- > 0 && (hit = find_last(s, &args->v[0].str, end)) != (size_t)-1) {
        rc = push_sub(r, &back, s, hit + args->v[0].str.n, end);
        end = hit;
    }
    if (rc == 0)
        rc = push_sub(r, &back, s, 0, end);
    if (rc == 0)
        rc = jinja_list_make(r, LIST_PLAIN, ret);
    for (size_t i = back.list->n; rc == 0 && i > 0; i--)
        rc = jinja_push(r, ret, &back.list->v[i - 1]);
    return rc < 0 ? rc : jinja_step(r, s->n);
}

BUILTIN(str_splitlines)
{
    const struct jinja_str *s = &self->str;
    bool keep = jinja_truth(&args->v[0]) && args->v[0].type != JINJA_ABSENT;
    int rc = jinja_list_make(r, LIST_PLAIN, ret);
    for (size_t i = 0, from = 0; rc == 0 && i < s->n; from = i) {
        while (i < s->n && s->s[i] != '\n' && s->s[i] != '\r') {
            unsigned char c = (unsigned char)s->s[i];
            if (c == 11 || c == 12 || (c >= 28 && c <= 30) ||
                (c == 0xC2 && i + 1 < s->n && (unsigned char)s->s[i + 1] == 0x85) ||
                (c == 0xE2 && s->n - i > 2 && memcmp(s->s + i, "\xE2\x80\xA8", 2) == 0 &&
                 ((unsigned char)s->s[i + 2] | 1) == 0xA9))
                return jinja_fail(r, ERR_UNSUPPORTED, "splitlines at other than newlines");
            i++;
        }
        size_t end = i;
        if (i < s->n)
            i += s->s[i] == '\r' && i + 1 < s->n && s->s[i + 1] == '\n' ? 2 : 1;
        rc = push_sub(r, ret, s, from, keep ? i : end);
    }
    return rc < 0 ? rc : jinja_step(r, s->n);
}

static bool has_affix(const struct jinja_str *s, const struct jinja_str *x, bool at_end)
{
    return x->n <= s->n && memcmp(s->s + (at_end ? s->n - x->n : 0), x->s, x->n) == 0;
}

static int affix(struct jinja_run *r, const struct jinja_value *self, struct jinja_args *args,
                 bool at_end, struct jinja_value *ret)
{
    const struct jinja_value *v = &args->v[0];
    bool is = false;
    bool is_tuple = v->type == JINJA_LIST && v->list->kind == LIST_TUPLE;
    for (size_t i = 0; is_tuple && i < v->list->n; i++) {
        if (v->list->v[i].type != JINJA_STR)
            return jinja_fail(r, ERR_INVAL, "startswith and endswith take strings");
        is = is || has_affix(&self->str, &v->list->v[i].str, at_end);
    }
    if (!is_tuple && v->type != JINJA_STR)
        return jinja_fail(r, ERR_INVAL, "startswith and endswith take a string, not %s",
                          jinja_type_name(v));
    *ret = jinja_bool(is_tuple ? is : has_affix(&self->str, &v->str, at_end));
    return 0;
}

BUILTIN(str_startswith)
{
    return affix(r, self, args, false, ret);
}

BUILTIN(str_endswith)
{
    return affix(r, self, args, true, ret);
}

static int cut_affix(struct jinja_run *r, const struct jinja_value *self, struct jinja_args *args,
                     bool at_end, struct jinja_value *ret)
{
    const struct jinja_value *v = &args->v[0];
    if (v->type != JINJA_STR)
        return jinja_fail(r, ERR_INVAL, "a prefix or suffix of type %s", jinja_type_name(v));
    size_t n = has_affix(&self->str, &v->str, at_end) ? v->str.n : 0;
    struct jinja_str s = jinja_sub(&self->str, at_end ? 0 : n, self->str.n - n);
    *ret = jinja_of_str(&s);
    return 0;
}

BUILTIN(str_removeprefix)
{
    return cut_affix(r, self, args, false, ret);
}

BUILTIN(str_removesuffix)
{
    return cut_affix(r, self, args, true, ret);
}

BUILTIN(str_replace)
{
    return jinja_replace(r, &self->str, args->v, ret);
}

static int cased(struct jinja_run *r, const struct jinja_value *self, char how,
                 struct jinja_value *ret)
{
    struct jinja_str s;
    int rc = jinja_case(r, &self->str, how, &s);
    if (rc == 0)
        *ret = jinja_of_str(&s);
    return rc;
}

BUILTIN(str_upper)
{
    (void)args;
    return cased(r, self, 'u', ret);
}

BUILTIN(str_lower)
{
    (void)args;
    return cased(r, self, 'l', ret);
}

BUILTIN(str_title)
{
    (void)args;
    return cased(r, self, 'T', ret);
}

BUILTIN(str_capitalize)
{
    (void)args;
    return cased(r, self, 'c', ret);
}

static int found(struct jinja_run *r, const struct jinja_value *self, struct jinja_args *args,
                 bool is_last, struct jinja_value *ret)
{
    const struct jinja_value *v = &args->v[0];
    if (v->type != JINJA_STR || args->v[1].type != JINJA_ABSENT)
        return jinja_fail(r, ERR_UNSUPPORTED, "find with other than one string");
    size_t at =
        is_last ? find_last(&self->str, &v->str, self->str.n) : jinja_find(&self->str, &v->str, 0);
    struct jinja_str before = jinja_sub(&self->str, 0, at == (size_t)-1 ? 0 : at);
    *ret = jinja_int(at == (size_t)-1 ? -1 : (int64_t)jinja_n_chars(&before));
    return jinja_step(r, self->str.n);
}

BUILTIN(str_find)
{
    return found(r, self, args, false, ret);
}

BUILTIN(str_rfind)
{
    return found(r, self, args, true, ret);
}

BUILTIN(str_count)
{
    const struct jinja_value *v = &args->v[0];
    int64_t n = 0;
    if (v->type != JINJA_STR || v->str.n == 0)
        return jinja_fail(r, ERR_UNSUPPORTED, "count of other than a string");
    for (size_t at = 0; (at = jinja_find(&self->str, &v->str, at)) != (size_t)-1; at += v->str.n)
        n++;
    *ret = jinja_int(n);
    return jinja_step(r, self->str.n);
}

BUILTIN(str_join)
{
    struct jinja_list *l;
    struct jinja_text t = {.r = r};
    int rc = jinja_iterate(r, &args->v[0], &l);
    for (size_t i = 0; rc == 0 && i < l->n; i++) {
        if (l->v[i].type != JINJA_STR)
            return jinja_fail(r, ERR_INVAL, "sequence item %zu: expected str, %s found", i,
                              jinja_type_name(&l->v[i]));
        rc = i > 0 ? jinja_text_add(&t, &self->str) : 0;
        if (rc == 0)
            rc = jinja_text_add(&t, &l->v[i].str);
    }
    struct jinja_str s = jinja_text_str(&t);
    *ret = jinja_of_str(&s);
    return rc;
}

/* {} and {0}, without format specifications. */
BUILTIN(str_format)
{
    struct jinja_text t = {.r = r};
    size_t next = 0;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < self->str.n; i++) {
        const char *p = self->str.s + i;
        size_t left = self->str.n - i;
        if ((*p == '{' || *p == '}') && left > 1 && p[1] == *p) {
            rc = jinja_text_char(&t, *p, self->str.marks ? self->str.marks[i] : 0);
            i++;
        } else if (*p == '{') {
            bool is_numbered = left > 2 && p[1] >= '0' && p[1] <= '9' && p[2] == '}';
            size_t at = is_numbered ? (size_t)(p[1] - '0') : next++;
            struct jinja_str s;
            if (!is_numbered && (left < 2 || p[1] != '}'))
                return jinja_fail(r, ERR_UNSUPPORTED, "format with more than {} and {0}");
            if (at >= args->n)
                return jinja_fail(r, ERR_INVAL, "format has no argument %zu", at);
            rc = jinja_to_str(r, &args->v[at], &s);
            if (rc == 0)
                rc = jinja_text_add(&t, &s);
            i += is_numbered ? 2 : 1;
        } else if (*p == '}') {
            return jinja_fail(r, ERR_INVAL, "single '}' in format");
        } else {
            rc = jinja_text_char(&t, *p, self->str.marks ? self->str.marks[i] : 0);
        }
    }
    struct jinja_str s = jinja_text_str(&t);
    *ret = jinja_of_str(&s);
    return rc;
}

static int ascii_class(struct jinja_run *r, const struct jinja_value *self, const char *from_to,
                       struct jinja_value *ret)
{
    bool is = self->str.n > 0;
    for (size_t i = 0; i < self->str.n; i++) {
        char c = self->str.s[i];
        if ((unsigned char)c >= 0x80)
            return jinja_fail(r, ERR_UNSUPPORTED, "is… of letters that aren't ASCII");
        bool in = false;
        for (const char *p = from_to; *p; p += 2)
            in = in || (c >= p[0] && c <= p[1]);
        is = is && in;
    }
    *ret = jinja_bool(is);
    return 0;
}

BUILTIN(str_isdigit)
{
    (void)args;
    return ascii_class(r, self, "09", ret);
}

BUILTIN(str_isalpha)
{
    (void)args;
    return ascii_class(r, self, "azAZ", ret);
}

BUILTIN(str_isalnum)
{
    (void)args;
    return ascii_class(r, self, "azAZ09", ret);
}

BUILTIN(str_isspace)
{
    (void)args;
    struct jinja_str s = jinja_strip(&self->str, NULL, 3);
    *ret = jinja_bool(self->str.n > 0 && s.n == 0);
    return jinja_step(r, self->str.n);
}

static const struct jinja_builtin_row methods[] = {
    {"strip", str_strip, "chars"},
    {"lstrip", str_lstrip, "chars"},
    {"rstrip", str_rstrip, "chars"},
    {"split", str_split, "sep,maxsplit"},
    {"rsplit", str_rsplit, "sep,maxsplit"},
    {"splitlines", str_splitlines, "keepends"},
    {"startswith", str_startswith, "prefix"},
    {"endswith", str_endswith, "suffix"},
    {"removeprefix", str_removeprefix, "prefix"},
    {"removesuffix", str_removesuffix, "suffix"},
    {"replace", str_replace, "old,new,count"},
    {"upper", str_upper, ""},
    {"lower", str_lower, ""},
    {"title", str_title, ""},
    {"capitalize", str_capitalize, ""},
    {"find", str_find, "sub,start"},
    {"rfind", str_rfind, "sub,start"},
    {"count", str_count, "sub"},
    {"join", str_join, "iterable"},
    {"format", str_format, NULL},
    {"isdigit", str_isdigit, ""},
    {"isalpha", str_isalpha, ""},
    {"isalnum", str_isalnum, ""},
    {"isspace", str_isspace, ""},
};

const struct jinja_builtin_row *jinja_find_str_method(const struct jinja_str *name)
{
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (jinja_str_is(name, methods[i].name))
            return &methods[i];
    return NULL;
}
