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
    if (args->v[1].type != JINJA_ABSENT && !jinja_is_int(&args->v[1]))
        return jinja_fail(r, ERR_INVAL, "split %s times", jinja_type_name(&args->v[1]));
    *ret_max = args->v[1].type == JINJA_ABSENT ? -1 : jinja_int_of(&args->v[1]);
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
    const struct jinja_value *v = &args->v[0];
    const bool keep = v->type != JINJA_ABSENT && jinja_truth(v);
    int rc = jinja_list_make(r, LIST_PLAIN, ret);
    if (rc == 0 && v->type != JINJA_ABSENT && !jinja_is_int(v))
        rc = jinja_fail(r, ERR_UNSUPPORTED, "splitlines of %s", jinja_type_name(v));
    for (size_t i = 0, from = 0; rc == 0 && i < s->n; from = i) {
        while (i < s->n && s->s[i] != '\n' && s->s[i] != '\r') {
            const struct jinja_str rest = jinja_sub(s, i, s->n - i < 3 ? s->n - i : 3);
            const size_t len = jinja_char_len(rest.s, rest.n);
            const struct jinja_str c = jinja_sub(&rest, 0, len);
            if (jinja_has_odd_lines(&c))
                return jinja_fail(r, ERR_UNSUPPORTED, "splitlines at other than newlines");
            i += len;
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
    if (args->v[1].type != JINJA_ABSENT)
        return jinja_fail(r, ERR_UNSUPPORTED, "startswith and endswith from a place on");
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

/* how: 'f'ind, 'r'find; in upper case what isn't there is an error. */
static int found(struct jinja_run *r, const struct jinja_value *self, struct jinja_args *args,
                 char how, struct jinja_value *ret)
{
    const struct jinja_value *v = &args->v[0], *start = &args->v[1];
    const bool is_last = how == 'r' || how == 'R', must = how == 'F' || how == 'R';
    const bool has_start = start->type != JINJA_ABSENT && start->type != JINJA_NONE;
    if (v->type != JINJA_STR)
        return jinja_fail(r, ERR_INVAL, "find of %s", jinja_type_name(v));
    if (args->v[2].type != JINJA_ABSENT ||
        (has_start && (is_last || start->type != JINJA_INT || start->i < 0)))
        return jinja_fail(r, ERR_UNSUPPORTED, "find up to a place, or from one at the end");
    size_t from = 0;
    for (int64_t i = has_start ? start->i : 0; i > 0; i--) {
        if (from == self->str.n)
            return jinja_fail(r, ERR_UNSUPPORTED, "find from behind the end");
        from += jinja_char_len(self->str.s + from, self->str.n - from);
    }
    size_t at = is_last ? find_last(&self->str, &v->str, self->str.n)
                        : jinja_find(&self->str, &v->str, from);
    if (must && at == (size_t)-1)
        return jinja_fail(r, ERR_INVAL, "substring not found");
    struct jinja_str before = jinja_sub(&self->str, 0, at == (size_t)-1 ? 0 : at);
    *ret = jinja_int(at == (size_t)-1 ? -1 : (int64_t)jinja_n_chars(&before));
    return jinja_step(r, self->str.n);
}

BUILTIN(str_find)
{
    return found(r, self, args, 'f', ret);
}

BUILTIN(str_rfind)
{
    return found(r, self, args, 'r', ret);
}

BUILTIN(str_index)
{
    return found(r, self, args, 'F', ret);
}

BUILTIN(str_rindex)
{
    return found(r, self, args, 'R', ret);
}

BUILTIN(str_count)
{
    const struct jinja_value *v = &args->v[0];
    int64_t n = 0;
    if (v->type != JINJA_STR)
        return jinja_fail(r, ERR_INVAL, "count of %s", jinja_type_name(v));
    if (args->v[1].type != JINJA_ABSENT)
        return jinja_fail(r, ERR_UNSUPPORTED, "count from a place on");
    if (v->str.n == 0)
        n = (int64_t)jinja_n_chars(&self->str) + 1;
    for (size_t at = 0;
         v->str.n > 0 && (at = jinja_find(&self->str, &v->str, at)) != (size_t)-1; at += v->str.n)
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

BUILTIN(str_format)
{
    return jinja_format(r, &self->str, args, ret);
}

/* Splits at the first or last place of what is given: (before, it, behind). */
static int parted(struct jinja_run *r, const struct jinja_value *self, struct jinja_args *args,
                  bool is_last, struct jinja_value *ret)
{
    const struct jinja_value *v = &args->v[0];
    const struct jinja_str *s = &self->str;
    if (v->type != JINJA_STR || v->str.n == 0)
        return jinja_fail(r, ERR_INVAL, "partition by %s, or by nothing", jinja_type_name(v));
    const size_t hit = is_last ? find_last(s, &v->str, s->n) : jinja_find(s, &v->str, 0);
    const bool is = hit != (size_t)-1;
    /* where nothing is found the whole is the first part, or the last */
    const size_t from = is ? hit : is_last ? 0 : s->n, to = is ? hit + v->str.n : from;
    int rc = jinja_list_make(r, LIST_TUPLE, ret);
    if (rc == 0)
        rc = push_sub(r, ret, s, 0, from);
    if (rc == 0)
        rc = push_sub(r, ret, s, from, to);
    if (rc == 0)
        rc = push_sub(r, ret, s, to, s->n);
    return rc < 0 ? rc : jinja_step(r, s->n);
}

BUILTIN(str_partition)
{
    return parted(r, self, args, false, ret);
}

BUILTIN(str_rpartition)
{
    return parted(r, self, args, true, ret);
}

/* n times the fill on the left, then s, then m times on the right. */
static int padded(struct jinja_run *r, const struct jinja_str *s, const struct jinja_str *fill,
                  const size_t n[2], struct jinja_value *ret)
{
    struct jinja_text t = {.r = r};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n[0]; i++)
        rc = jinja_text_add(&t, fill);
    if (rc == 0)
        rc = jinja_text_add(&t, s);
    for (size_t i = 0; rc == 0 && i < n[1]; i++)
        rc = jinja_text_add(&t, fill);
    const struct jinja_str made = jinja_text_str(&t);
    *ret = jinja_of_str(&made);
    return rc;
}

static int justified(struct jinja_run *r, const struct jinja_value *self, struct jinja_args *args,
                     char side, struct jinja_value *ret)
{
    static const struct jinja_str space = {.s = " ", .n = 1};
    const struct jinja_value *width = &args->v[0], *fill = &args->v[1];
    const bool has_fill = fill->type != JINJA_ABSENT;
    if (!jinja_is_int(width) ||
        (has_fill && (fill->type != JINJA_STR || jinja_n_chars(&fill->str) != 1)))
        return jinja_fail(r, ERR_INVAL, "a width or fill character of a wrong type");
    const int64_t n = (int64_t)jinja_n_chars(&self->str), want = jinja_int_of(width);
    const size_t gap = want > n ? (size_t)(want - n) : 0;
    /* the odd one is on the left where the width is odd (CPython's pad) */
    const size_t left = side == 'l' ? 0 : side == 'r' ? gap : gap / 2 + (gap & (size_t)want & 1);
    return padded(r, &self->str, has_fill ? &fill->str : &space, (size_t[]){left, gap - left}, ret);
}

BUILTIN(str_ljust)
{
    return justified(r, self, args, 'l', ret);
}

BUILTIN(str_rjust)
{
    return justified(r, self, args, 'r', ret);
}

BUILTIN(str_center)
{
    return justified(r, self, args, 'c', ret);
}

BUILTIN(str_zfill)
{
    static const struct jinja_str zero = {.s = "0", .n = 1};
    const struct jinja_str *s = &self->str;
    if (!jinja_is_int(&args->v[0]))
        return jinja_fail(r, ERR_INVAL, "zfill to %s", jinja_type_name(&args->v[0]));
    const int64_t n = (int64_t)jinja_n_chars(s), want = jinja_int_of(&args->v[0]);
    const size_t sign = s->n > 0 && (s->s[0] == '-' || s->s[0] == '+');
    const struct jinja_str digits = jinja_sub(s, sign, s->n - sign), mark = jinja_sub(s, 0, sign);
    struct jinja_value made, both[2] = {jinja_of_str(&mark)};
    int rc = padded(r, &digits, &zero, (size_t[]){want > n ? (size_t)(want - n) : 0, 0}, &made);
    both[1] = made;
    return rc < 0 ? rc : jinja_binary(r, '+', both, ret);
}

/* Whether all characters are of the kinds in `kinds`, a bit each by JINJA_CHAR. unsure: kinds that
 * Python looks at more closely. */
static int of_kinds(struct jinja_run *r, const struct jinja_value *self, unsigned kinds,
                    unsigned unsure, struct jinja_value *ret)
{
    bool is = self->str.n > 0;
    unsigned seen = 0;
    for (size_t at = 0; at < self->str.n;) {
        const unsigned bit = 1u << jinja_char_of(jinja_next(&self->str, &at));
        seen |= bit;
        is = is && (bit & kinds);
    }
    if (seen & (unsure | 1u << CHAR_UNKNOWN))
        return jinja_fail(r, ERR_UNSUPPORTED, "the kind of some characters");
    *ret = jinja_bool(is);
    return jinja_step(r, self->str.n);
}

#define LETTER (1u << CHAR_LETTER)
#define DECIMAL (1u << CHAR_DECIMAL)
#define NUMBER (1u << CHAR_NUMBER)

BUILTIN(str_isdigit)
{
    (void)args;
    return of_kinds(r, self, DECIMAL, NUMBER, ret);
}

BUILTIN(str_isdecimal)
{
    (void)args;
    return of_kinds(r, self, DECIMAL, 0, ret);
}

BUILTIN(str_isnumeric)
{
    (void)args;
    bool is_ascii = true; /* Chinese letters are numbers among others */
    for (size_t i = 0; i < self->str.n; i++)
        is_ascii = is_ascii && (unsigned char)self->str.s[i] < 0x80;
    return of_kinds(r, self, DECIMAL, NUMBER | (is_ascii ? 0 : LETTER), ret);
}

BUILTIN(str_isalpha)
{
    (void)args;
    return of_kinds(r, self, LETTER, 0, ret);
}

BUILTIN(str_isalnum)
{
    (void)args;
    return of_kinds(r, self, LETTER | DECIMAL, NUMBER, ret);
}

BUILTIN(str_isascii)
{
    (void)args;
    bool is = true;
    for (size_t i = 0; i < self->str.n; i++)
        is = is && (unsigned char)self->str.s[i] < 0x80;
    *ret = jinja_bool(is);
    return jinja_step(r, self->str.n);
}

BUILTIN(str_isspace)
{
    (void)args;
    struct jinja_str s = jinja_strip(&self->str, NULL, 3);
    *ret = jinja_bool(self->str.n > 0 && s.n == 0);
    return jinja_step(r, self->str.n);
}

static int is_cased(struct jinja_run *r, const struct jinja_value *self, char how,
                    struct jinja_value *ret)
{
    bool is = false;
    int rc = jinja_is_cased(r, &self->str, how, &is);
    *ret = jinja_bool(is);
    return rc;
}

BUILTIN(str_islower)
{
    (void)args;
    return is_cased(r, self, 'l', ret);
}

BUILTIN(str_isupper)
{
    (void)args;
    return is_cased(r, self, 'u', ret);
}

BUILTIN(str_istitle)
{
    (void)args;
    return is_cased(r, self, 't', ret);
}

BUILTIN(str_swapcase)
{
    (void)args;
    return cased(r, self, 's', ret);
}

static const struct jinja_builtin_row methods[] = {
    {"strip", str_strip, "/chars"},
    {"lstrip", str_lstrip, "/chars"},
    {"rstrip", str_rstrip, "/chars"},
    {"split", str_split, "sep,maxsplit"},
    {"rsplit", str_rsplit, "sep,maxsplit"},
    {"splitlines", str_splitlines, "keepends"},
    {"startswith", str_startswith, "/prefix,start,end"},
    {"endswith", str_endswith, "/suffix,start,end"},
    {"removeprefix", str_removeprefix, "/prefix"},
    {"removesuffix", str_removesuffix, "/suffix"},
    {"replace", str_replace, "/old,new,count"},
    {"upper", str_upper, ""},
    {"lower", str_lower, ""},
    {"title", str_title, ""},
    {"capitalize", str_capitalize, ""},
    {"find", str_find, "/sub,start,end"},
    {"rfind", str_rfind, "/sub,start,end"},
    {"count", str_count, "/sub,start,end"},
    {"join", str_join, "/iterable"},
    {"format", str_format, NULL},
    {"isdigit", str_isdigit, ""},
    {"isalpha", str_isalpha, ""},
    {"isalnum", str_isalnum, ""},
    {"isspace", str_isspace, ""},
    {"isdecimal", str_isdecimal, ""},
    {"isnumeric", str_isnumeric, ""},
    {"isascii", str_isascii, ""},
    {"islower", str_islower, ""},
    {"isupper", str_isupper, ""},
    {"istitle", str_istitle, ""},
    {"swapcase", str_swapcase, ""},
    {"index", str_index, "/sub,start,end"},
    {"rindex", str_rindex, "/sub,start,end"},
    {"partition", str_partition, "/sep"},
    {"rpartition", str_rpartition, "/sep"},
    {"ljust", str_ljust, "/width,fillchar"},
    {"rjust", str_rjust, "/width,fillchar"},
    {"center", str_center, "/width,fillchar"},
    {"zfill", str_zfill, "/width"},
};

const struct jinja_builtin_row *jinja_find_str_method(const struct jinja_str *name)
{
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (jinja_str_is(name, methods[i].name))
            return &methods[i];
    return NULL;
}
