/*
 * Python's two ways of formatting:
 *
 *      "%-5s|%(name)03d" % args     %[(key)][flags][width][.precision]letter
 *      "{0.a[k]!r:>8.2f}".format()  {[field][!conversion][:[[fill]align][sign][#][0][width]
 *                                   [,|_][.precision][letter]]}
 *
 * What the two do with a number or a string is one function, put(). Widths and precisions are
 * bounded; locale ("n"), ascii ("a") and nested specifications are refused.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/jinja_impl.h"

#define WIDTH_MAX 1000
#define PRECISION_MAX 60

struct spec {
    struct jinja_str fill; /* a character; n 0: by type */
    char align;            /* '<', '>', '^', '='; 0: by type */
    char sign;             /* '+', ' ' or 0 */
    bool is_alternate;     /* # */
    char grouping;         /* ',' or '_' or 0 */
    int width, precision;  /* -1: none */
    char letter;           /* 0: none */
};

static int refused(struct jinja_run *r, const char *what)
{
    return jinja_fail(r, ERR_UNSUPPORTED, "formatting with %s", what);
}

/* The digits at s[*i], -1 if there are none; -2 if they are too large. */
static int number_at(const struct jinja_str *s, size_t *i)
{
    int v = -1;
    for (; *i < s->n && s->s[*i] >= '0' && s->s[*i] <= '9'; (*i)++)
        v = v == -2 || v > WIDTH_MAX ? -2 : (v < 0 ? 0 : v) * 10 + (s->s[*i] - '0');
    return v > WIDTH_MAX ? -2 : v;
}

static int fill_up(struct jinja_text *t, const struct spec *spec, int n)
{
    const struct jinja_str space = {.s = " ", .n = 1};
    int rc = 0;
    for (; rc == 0 && n > 0; n--)
        rc = jinja_text_add(t, spec->fill.n > 0 ? &spec->fill : &space);
    return rc;
}

/* A sign or prefix of n_head bytes and what follows, in its field. */
static int put(struct jinja_text *t, const struct jinja_str *s, size_t n_head,
               const struct spec *spec)
{
    const int n = (int)(jinja_n_chars(s) < WIDTH_MAX ? jinja_n_chars(s) : WIDTH_MAX),
              gap = spec->width > n ? spec->width - n : 0;
    const int left = spec->align == '<' ? 0 : spec->align == '^' ? gap / 2 : gap;
    const struct jinja_str head = jinja_sub(s, 0, n_head),
                           rest = jinja_sub(s, n_head, s->n - n_head);
    int rc = spec->align == '=' ? 0 : fill_up(t, spec, left);
    if (rc == 0)
        rc = jinja_text_add(t, &head);
    if (rc == 0 && spec->align == '=')
        rc = fill_up(t, spec, left);
    if (rc == 0)
        rc = jinja_text_add(t, &rest);
    return rc < 0 ? rc : fill_up(t, spec, gap - left);
}

static int put_text(struct jinja_text *t, const struct jinja_str *s, const struct spec *spec)
{
    struct spec own = *spec;
    struct jinja_str cut = *s;
    size_t at = 0;
    for (int i = 0; spec->precision >= 0 && i < spec->precision && at < s->n; i++)
        at += jinja_char_len(s->s + at, s->n - at);
    if (spec->precision >= 0)
        cut = jinja_sub(s, 0, at);
    own.align = own.align ? own.align : '<';
    return put(t, &cut, 0, &own);
}

/* Puts the separators between groups of the digits in s, which has room for them. */
static void group(char *s, char mark, int size)
{
    const size_t n = strspn(s, "0123456789abcdefABCDEF");
    for (size_t i = n, k = 0; i > 1; i--)
        if (++k % (size_t)size == 0) {
            memmove(s + i, s + i - 1, strlen(s + i - 1) + 1);
            s[i - 1] = mark;
        }
}

/* Sign, prefix and the digits of i: into s[160], the number of bytes before the digits. */
static size_t int_digits(int64_t i, const struct spec *spec, int precision, char *s)
{
    const char letter = spec->letter ? spec->letter : 'd';
    uint64_t v = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    const unsigned base = letter == 'o' ? 8 : letter == 'b' ? 2 : letter == 'd' ? 10 : 16;
    const char *digits = letter == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
    char back[80];
    size_t n = 0, head = 0;
    do {
        back[n++] = digits[v % base];
        v /= base;
    } while (v > 0);
    while ((int)n < precision && n < sizeof back)
        back[n++] = '0';
    if (i < 0 || spec->sign)
        s[head++] = i < 0 ? '-' : spec->sign;
    if (spec->is_alternate && base != 10) {
        s[head++] = '0';
        s[head++] = letter;
    }
    for (size_t k = 0; k < n; k++)
        s[head + k] = back[n - 1 - k];
    s[head + n] = 0;
    if (spec->grouping)
        group(s + head, spec->grouping, base == 10 ? 3 : 4);
    return head;
}

static int put_int(struct jinja_text *t, int64_t i, const struct spec *spec)
{
    char s[200];
    struct spec own = *spec;
    if (spec->precision > PRECISION_MAX)
        return refused(t->r, "so many digits");
    if (spec->grouping && spec->fill.n == 1 && *spec->fill.s == '0' && spec->align == '=')
        return refused(t->r, "zeros and separators");
    const size_t head = int_digits(i, spec, spec->precision, s);
    const struct jinja_str str = {.s = s, .n = strlen(s)};
    own.align = own.align ? own.align : '>';
    return put(t, &str, head, &own);
}

static int put_float(struct jinja_text *t, double f, const struct spec *spec)
{
    char form[16], s[700];
    struct spec own = *spec;
    if (!isfinite(f) || spec->precision > PRECISION_MAX || (spec->grouping && spec->letter != 'f'))
        return refused(t->r, "a float so special");
    if (spec->grouping && spec->fill.n == 1 && *spec->fill.s == '0')
        return refused(t->r, "zeros and separators");
    const bool is_percent = spec->letter == '%';
    snprintf(form, sizeof form, "%s%%%s.*%c",
             signbit(f) || !spec->sign ? ""
             : spec->sign == '+'       ? "+"
                                       : " ",
             spec->is_alternate ? "#" : "", is_percent ? 'f' : spec->letter);
    snprintf(s, sizeof s - 40, form, spec->precision < 0 ? 6 : spec->precision,
             is_percent ? f * 100 : f);
    const size_t head = s[0] == '-' || s[0] == '+' || s[0] == ' ';
    if (spec->grouping) {
        if (fabs(f) > 1e30)
            return refused(t->r, "a float so special");
        group(s + head, spec->grouping, 3);
    }
    if (is_percent)
        strncat(s, "%", 2);
    const struct jinja_str str = {.s = s, .n = strlen(s)};
    own.align = own.align ? own.align : '>';
    return put(t, &str, head, &own);
}

/* --- % --- */

struct percent {
    struct jinja_run *r;
    const struct jinja_str *fmt;
    size_t i;
    const struct jinja_value *args;
    size_t n_used;
    struct jinja_text t;
};

/* The next argument in order. */
static int next_argument(struct percent *p, struct jinja_value *ret)
{
    const bool is_tuple = p->args->type == JINJA_LIST && p->args->list->kind == LIST_TUPLE;
    const size_t n = is_tuple ? p->args->list->n : 1;
    if (p->n_used >= n)
        return jinja_fail(p->r, ERR_INVAL, "not enough arguments for format string");
    *ret = is_tuple ? p->args->list->v[p->n_used] : *p->args;
    p->n_used++;
    return 0;
}

/* "(key)" at p->i, or the next argument. */
static int percent_argument(struct percent *p, const struct jinja_str *key, struct jinja_value *ret)
{
    if (!key->s)
        return next_argument(p, ret);
    if (p->args->type != JINJA_DICT)
        return jinja_fail(p->r, ERR_INVAL, "format requires a mapping");
    const struct jinja_value *v = jinja_dict_find_str(p->args->dict, key);
    if (!v)
        return jinja_fail(p->r, ERR_INVAL, "a format's key that isn't there");
    p->n_used = 1;
    *ret = *v;
    return 0;
}

static int percent_width(struct percent *p, int *ret)
{
    struct jinja_value v;
    if (p->i >= p->fmt->n || p->fmt->s[p->i] != '*') {
        *ret = number_at(p->fmt, &p->i);
        return *ret == -2 ? refused(p->r, "a field so wide") : 0;
    }
    p->i++;
    int rc = next_argument(p, &v);
    if (rc == 0 && !jinja_is_int(&v))
        rc = jinja_fail(p->r, ERR_INVAL, "* wants int");
    if (rc < 0)
        return rc;
    if (jinja_int_of(&v) < 0 || jinja_int_of(&v) > WIDTH_MAX)
        return refused(p->r, "a field so wide");
    *ret = (int)jinja_int_of(&v);
    return 0;
}

/* [(key)][flags][width][.precision]letter */
static int percent_spec(struct percent *p, struct jinja_str *key, struct spec *spec)
{
    const struct jinja_str *f = p->fmt;
    *key = (struct jinja_str){.s = NULL};
    *spec = (struct spec){.precision = -1, .align = '>'};
    if (p->i < f->n && f->s[p->i] == '(') {
        const char *end = memchr(f->s + p->i, ')', f->n - p->i);
        *key = jinja_sub(f, p->i + 1, end ? (size_t)(end - f->s) - p->i - 1 : 0);
        if (!end || memchr(key->s, '(', key->n))
            return end ? refused(p->r, "brackets within a key")
                       : jinja_fail(p->r, ERR_INVAL, "incomplete format key");
        p->i += key->n + 2;
    }
    bool is_zero = false, is_left = false;
    for (; p->i < f->n && f->s[p->i] && strchr("-+ #0", f->s[p->i]); p->i++) {
        const char c = f->s[p->i];
        is_zero = is_zero || c == '0';
        is_left = is_left || c == '-';
        spec->is_alternate = spec->is_alternate || c == '#';
        spec->sign = c == '+' || (c == ' ' && !spec->sign) ? c : spec->sign;
    }
    int rc = percent_width(p, &spec->width);
    if (rc == 0 && p->i < f->n && f->s[p->i] == '.') {
        p->i++;
        rc = percent_width(p, &spec->precision);
        spec->precision = spec->precision < 0 ? 0 : spec->precision;
    }
    if (p->i < f->n && f->s[p->i] && strchr("hlL", f->s[p->i]))
        p->i++;
    if (rc == 0 && p->i >= f->n)
        rc = jinja_fail(p->r, ERR_INVAL, "incomplete format");
    spec->letter = rc == 0 ? f->s[p->i++] : 0;
    spec->align = is_left ? '<' : '>';
    if (is_zero && !is_left && spec->letter && strchr("diuxXoeEfFgG", spec->letter)) {
        spec->fill = (struct jinja_str){.s = "0", .n = 1};
        spec->align = '=';
    }
    return rc;
}

static int percent_number(struct percent *p, const struct jinja_value *v, struct spec *spec)
{
    const bool is_float = v->type == JINJA_FLOAT, is_number = is_float || jinja_is_int(v);
    if (!is_number || (is_float && strchr("xXo", spec->letter)))
        return jinja_fail(p->r, ERR_INVAL, "%%%c format: a number is required, not %s",
                          spec->letter, jinja_type_name(v));
    if (strchr("eEfFgG", spec->letter))
        return put_float(&p->t, is_float ? v->f : (double)jinja_int_of(v), spec);
    if (is_float && !(fabs(v->f) < 9e18))
        return refused(p->r, "a float so large");
    if (strchr("diu", spec->letter))
        spec->letter = 'd';
    return put_int(&p->t, is_float ? (int64_t)v->f : jinja_int_of(v), spec);
}

static int percent_one(struct percent *p)
{
    struct jinja_value v;
    struct jinja_str key, s;
    struct spec spec;
    int rc = percent_spec(p, &key, &spec);
    if (rc < 0)
        return rc;
    if (spec.letter == '%')
        return key.s || spec.width >= 0 || spec.precision >= 0 ? refused(p->r, "%% in a field")
                                                               : jinja_text_char(&p->t, '%', 0);
    if (!strchr("sracdiuxXoeEfFgG", spec.letter))
        return jinja_fail(p->r, ERR_INVAL, "unsupported format character '%c'", spec.letter);
    rc = percent_argument(p, &key, &v);
    if (rc < 0)
        return rc;
    if (v.is_markup || strchr("ac", spec.letter))
        return refused(p->r, "%a, %c or what safe gave");
    if (!strchr("sr", spec.letter))
        return percent_number(p, &v, &spec);
    struct jinja_text made = {.r = p->r};
    rc = spec.letter == 's' ? jinja_to_str(p->r, &v, &s) : jinja_repr(&made, &v, 0);
    if (rc == 0 && spec.letter == 'r')
        s = jinja_text_str(&made);
    return rc < 0 ? rc : put_text(&p->t, &s, &spec);
}

int jinja_percent(struct jinja_run *r, const struct jinja_str *fmt, const struct jinja_value *args,
                  struct jinja_value *ret)
{
    struct percent p = {.r = r, .fmt = fmt, .args = args, .t = {.r = r}};
    int rc = jinja_step(r, fmt->n);
    while (rc == 0 && p.i < fmt->n) {
        const char *hit = memchr(fmt->s + p.i, '%', fmt->n - p.i);
        const size_t n = hit ? (size_t)(hit - fmt->s) - p.i : fmt->n - p.i;
        const struct jinja_str plain = jinja_sub(fmt, p.i, n);
        rc = jinja_text_add(&p.t, &plain);
        p.i += n + (hit != NULL);
        if (rc == 0 && hit)
            rc = percent_one(&p);
    }
    /* a mapping may be left over, and what Python takes for one (a list, something undefined) */
    const bool is_tuple = args->type == JINJA_LIST && args->list->kind == LIST_TUPLE;
    const bool is_mapping = !is_tuple && (args->type == JINJA_DICT || args->type == JINJA_LIST ||
                                          args->type == JINJA_UNDEFINED);
    if (rc == 0 && args->type >= JINJA_NAMESPACE)
        rc = refused(r, "an object");
    if (rc == 0 && args->type == JINJA_LIST && args->list->kind > LIST_TUPLE)
        rc = refused(r, "other than a plain list");
    if (rc == 0 && !is_mapping && p.n_used < (is_tuple ? args->list->n : 1))
        rc = jinja_fail(r, ERR_INVAL, "not all arguments converted during string formatting");
    const struct jinja_str s = jinja_text_str(&p.t);
    *ret = jinja_of_str(&s);
    return rc;
}

/* --- {} --- */

struct braces {
    struct jinja_run *r;
    const struct jinja_args *args;
    size_t next;
    bool is_counting, is_numbered;
    struct jinja_text t;
};

/* ".name" and "[key]" in a row, from f[i] on. */
static int field_path(struct jinja_run *r, const struct jinja_str *f, size_t i,
                      struct jinja_value *v)
{
    int rc = 0;
    while (rc == 0 && i < f->n) {
        const bool is_item = f->s[i] == '[';
        size_t end = ++i;
        while (end < f->n && (is_item ? f->s[end] != ']' : f->s[end] != '.' && f->s[end] != '['))
            end++;
        char *name = arena_copy(r->arena, f->s + i, end - i);
        if (!name)
            return jinja_nomem(r);
        if (end == i || (is_item && end == f->n))
            return jinja_fail(r, ERR_INVAL, "an empty attribute in a format");
        size_t at = 0;
        const struct jinja_str s = {.s = name, .n = end - i};
        const int index = number_at(&s, &at);
        const struct jinja_value of = *v,
                                 key = at == s.n ? jinja_int(index) : jinja_of_str(&s);
        if (index == -2 || (is_item && at > 0 && at < s.n))
            return refused(r, "an index so odd");
        rc = is_item ? jinja_item(r, &of, &key, v) : jinja_attribute(r, &of, &s, v);
        i = end + is_item;
        if (is_item && i < f->n && f->s[i] != '.' && f->s[i] != '[')
            return jinja_fail(r, ERR_INVAL, "only '.' or '[' may follow ']' in a format");
    }
    return rc;
}

/* "0.name[key]" */
static int field_value(struct braces *b, const struct jinja_str *f, struct jinja_value *ret)
{
    size_t i = 0;
    const int index = number_at(f, &i);
    size_t n = i;
    while (i == 0 && n < f->n && f->s[n] != '.' && f->s[n] != '[')
        n++;
    if (i > 0 && i < f->n && f->s[i] != '.' && f->s[i] != '[')
        return refused(b->r, "a field's name that begins with a digit");
    if (n == 0 || i > 0) {
        b->is_counting = b->is_counting || n == 0;
        b->is_numbered = b->is_numbered || n > 0;
        if (n < f->n && (n == 0 || b->is_counting)) /* versions of Python differ */
            return refused(b->r, "a path of a field without its number");
        const size_t at = n == 0 ? b->next++ : (size_t)index;
        if ((b->is_counting && b->is_numbered) || index == -2 || at >= b->args->n)
            return jinja_fail(b->r, ERR_INVAL, "a format's argument that isn't there");
        *ret = b->args->v[at];
    } else {
        const struct jinja_str name = jinja_sub(f, 0, n);
        size_t k = 0;
        while (k < b->args->n_named && !jinja_str_equal(&b->args->names[k], &name))
            k++;
        if (k == b->args->n_named)
            return jinja_fail(b->r, ERR_INVAL, "a format's argument that isn't there");
        *ret = b->args->named[k];
    }
    return n < f->n ? field_path(b->r, f, n, ret) : 0;
}

static bool is_align(char c)
{
    return c == '<' || c == '>' || c == '^' || c == '=';
}

/* [[fill]align][sign][#][0][width][,|_][.precision][letter] */
static int read_spec(struct jinja_run *r, const struct jinja_str *s, struct spec *spec)
{
    size_t i = 0;
    const size_t first = s->n > 0 ? jinja_char_len(s->s, s->n) : 0;
    *spec = (struct spec){.precision = -1};
    if (first < s->n && is_align(s->s[first])) {
        spec->fill = jinja_sub(s, 0, first);
        spec->align = s->s[first];
        i = first + 1;
    } else if (s->n > 0 && is_align(s->s[0])) {
        spec->align = s->s[i++];
    }
    if (i < s->n && (s->s[i] == '+' || s->s[i] == '-' || s->s[i] == ' '))
        spec->sign = s->s[i++];
    if (i < s->n && s->s[i] == 'z')
        return refused(r, "z");
    if (i < s->n && s->s[i] == '#') {
        spec->is_alternate = true;
        i++;
    }
    if (i < s->n && s->s[i] == '0' && spec->fill.n == 0) {
        spec->fill = (struct jinja_str){.s = "0", .n = 1};
        spec->align = spec->align ? spec->align : '0'; /* '=' for numbers, else none */
    }
    spec->width = number_at(s, &i);
    if (i < s->n && (s->s[i] == ',' || s->s[i] == '_'))
        spec->grouping = s->s[i++];
    if (i < s->n && s->s[i] == '.') {
        i++;
        spec->precision = number_at(s, &i);
        if (spec->precision == -1)
            return jinja_fail(r, ERR_INVAL, "format specifier missing precision");
    }
    if (spec->width == -2 || spec->precision == -2)
        return refused(r, "a field so wide");
    if (i < s->n)
        spec->letter = s->s[i++];
    return i < s->n ? jinja_fail(r, ERR_INVAL, "invalid format specifier") : 0;
}

static int brace_str(struct jinja_text *t, const struct jinja_value *v, struct spec *spec)
{
    if ((spec->letter && spec->letter != 's') || spec->sign || spec->is_alternate ||
        spec->grouping || spec->align == '=')
        return jinja_fail(t->r, ERR_INVAL, "a format that isn't for str");
    if (spec->align == '0')
        spec->align = 0;
    return put_text(t, &v->str, spec);
}

static int brace_float(struct jinja_text *t, double f, struct spec *spec)
{
    if (spec->letter)
        return put_float(t, f, spec);
    char text[40] = "+";
    if (!isfinite(f) || spec->precision >= 0 || spec->grouping || spec->is_alternate)
        return refused(t->r, "a float without a letter");
    const bool has_sign = spec->sign && !signbit(f);
    text[0] = spec->sign;
    jinja_format_float(f, text + has_sign);
    const struct jinja_str s = {.s = text, .n = strlen(text)};
    spec->align = spec->align ? spec->align : '>';
    return put(t, &s, has_sign || signbit(f), spec);
}

static int brace_number(struct jinja_text *t, const struct jinja_value *v, struct spec *spec)
{
    const bool is_float = v->type == JINJA_FLOAT;
    const char c = spec->letter;
    spec->align = spec->align == '0' ? '=' : spec->align;
    spec->sign = spec->sign == '-' ? 0 : spec->sign;
    if (c == 'n' || c == 'c')
        return refused(t->r, "n or c");
    if (c && !strchr(is_float ? "eEfFgG%" : "dbxXoeEfFgG%", c))
        return jinja_fail(t->r, ERR_INVAL, "unknown format code '%c'", c);
    if (is_float || (c && strchr("eEfFgG%", c)))
        return brace_float(t, is_float ? v->f : (double)jinja_int_of(v), spec);
    if (spec->precision >= 0 || (spec->grouping == ',' && c && c != 'd'))
        return jinja_fail(t->r, ERR_INVAL, "a precision or comma in an integer's format");
    return put_int(t, jinja_int_of(v), spec);
}

static int brace_value(struct jinja_text *t, const struct jinja_value *v, const struct jinja_str *s)
{
    struct spec spec;
    struct jinja_str str;
    if (v->is_markup)
        return refused(t->r, "what safe or escape gave");
    if (s->n == 0) {
        int rc = jinja_to_str(t->r, v, &str);
        return rc < 0 ? rc : jinja_text_add(t, &str);
    }
    const bool is_number = jinja_is_int(v) || v->type == JINJA_FLOAT;
    if (!is_number && v->type != JINJA_STR)
        return jinja_fail(t->r, ERR_INVAL, "a format for %s", jinja_type_name(v));
    int rc = read_spec(t->r, s, &spec);
    if (rc < 0)
        return rc;
    return is_number ? brace_number(t, v, &spec) : brace_str(t, v, &spec);
}

/* What is between { and }. */
static int brace_field(struct braces *b, const struct jinja_str *in)
{
    struct jinja_value v;
    size_t n = 0;
    while (n < in->n && in->s[n] != ':' && in->s[n] != '!')
        n++;
    const struct jinja_str name = jinja_sub(in, 0, n);
    const char conversion = n < in->n && in->s[n] == '!' ? n + 1 < in->n ? in->s[n + 1] : '?' : 0;
    if (memchr(name.s, '[', name.n) && !memchr(name.s, ']', name.n))
        return refused(b->r, "a key so odd");
    n += conversion ? 2 : 0;
    if (n < in->n && in->s[n] != ':')
        return jinja_fail(b->r, ERR_INVAL, "expected ':' after conversion specifier");
    n += n < in->n;
    const struct jinja_str spec = jinja_sub(in, n < in->n ? n : in->n, n < in->n ? in->n - n : 0);
    int rc = field_value(b, &name, &v);
    if (rc < 0)
        return rc;
    struct jinja_text made = {.r = b->r};
    struct jinja_str s;
    if (conversion && conversion != 's' && conversion != 'r')
        return conversion == 'a' ? refused(b->r, "!a")
                                 : jinja_fail(b->r, ERR_INVAL, "an unknown conversion");
    if (conversion == 's')
        rc = jinja_to_str(b->r, &v, &s);
    else if (conversion == 'r' && (rc = jinja_repr(&made, &v, 0)) == 0)
        s = jinja_text_str(&made);
    if (rc == 0 && conversion)
        v = jinja_of_str(&s);
    return rc < 0 ? rc : brace_value(&b->t, &v, &spec);
}

int jinja_format(struct jinja_run *r, const struct jinja_str *fmt, const struct jinja_args *args,
                 struct jinja_value *ret)
{
    struct braces b = {.r = r, .args = args, .t = {.r = r}};
    int rc = jinja_step(r, fmt->n);
    for (size_t i = 0; rc == 0 && i < fmt->n; i++) {
        const char c = fmt->s[i];
        const bool is_double = i + 1 < fmt->n && fmt->s[i + 1] == c;
        if ((c != '{' && c != '}') || is_double) {
            const struct jinja_str one = jinja_sub(fmt, i, 1);
            rc = jinja_text_add(&b.t, &one);
            i += (c == '{' || c == '}') && is_double;
            continue;
        }
        const char *end = c == '{' ? memchr(fmt->s + i, '}', fmt->n - i) : NULL;
        if (!end)
            return jinja_fail(r, ERR_INVAL, "single '%c' encountered in format string", c);
        const size_t n = (size_t)(end - fmt->s) - i - 1;
        if (memchr(fmt->s + i + 1, '{', n))
            return refused(r, "a field within a field");
        const struct jinja_str field = jinja_sub(fmt, i + 1, n);
        rc = brace_field(&b, &field);
        i += n + 1;
    }
    const struct jinja_str s = jinja_text_str(&b.t);
    *ret = jinja_of_str(&s);
    return rc;
}
