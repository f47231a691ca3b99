/* The functions that every template has. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "engine/jinja_impl.h"

BUILTIN(global_range)
{
    (void)self;
    int64_t v[3] = {0, 0, 1};
    for (size_t i = 0; i < args->n && i < 3; i++) {
        if (!jinja_is_int(&args->v[i]))
            return jinja_fail(r, ERR_INVAL, "range of %s", jinja_type_name(&args->v[i]));
        v[i] = jinja_int_of(&args->v[i]);
    }
    if (args->n == 1) {
        v[1] = v[0];
        v[0] = 0;
    }
    if (args->n == 0 || args->n > 3 || args->n_named > 0 || v[2] == 0)
        return jinja_fail(r, ERR_INVAL, "range takes one to three numbers");
    int rc = jinja_list_make(r, LIST_RANGE, ret);
    for (int64_t i = v[0]; rc == 0 && (v[2] > 0 ? i < v[1] : i > v[1]);) {
        struct jinja_value one = jinja_int(i);
        if (ret->list->n == JINJA_RANGE_MAX)
            return jinja_fail(r, ERR_INVAL, "range of more than %d", JINJA_RANGE_MAX);
        rc = jinja_push(r, ret, &one);
        if (__builtin_add_overflow(i, v[2], &i))
            break;
    }
    return rc;
}

BUILTIN(global_raise)
{
    struct jinja_str s;
    (void)self;
    (void)ret;
    int rc = jinja_to_str(r, &args->v[0], &s);
    if (rc < 0)
        return rc;
    if (s.n == 0 || s.s[0] == '\0')
        return jinja_fail(r, ERR_INVAL, "raise_exception without a text");
    return err_set(r->e, ERR_INVAL, "%.*s", (int)(s.n < 400 ? s.n : 400), s.s);
}

/* Python's time of day here has no zone: %z and %Z print nothing. false: %f, which no two runs
 * print alike. */
static bool without_zone(const struct jinja_str *from, char *to)
{
    size_t n = 0;
    for (size_t i = 0; i < from->n; i++) {
        const char next = from->s[i] == '%' && i + 1 < from->n ? from->s[i + 1] : 0;
        if (next == 'f')
            return false;
        if (next == 'z' || next == 'Z') {
            i++;
            continue;
        }
        to[n++] = from->s[i];
        if (next)
            to[n++] = from->s[++i];
    }
    to[n] = 0;
    return true;
}

BUILTIN(global_strftime)
{
    (void)self;
    char format[128], text[512];
    struct tm tm;
    time_t now = (time_t)r->now;
    if (args->v[0].type != JINJA_STR)
        return jinja_fail(r, ERR_INVAL, "strftime_now of %s", jinja_type_name(&args->v[0]));
    if (args->v[0].str.n >= sizeof format || !without_zone(&args->v[0].str, format))
        return jinja_fail(r, ERR_UNSUPPORTED, "strftime_now of a long format, or with %%f");
    size_t n = localtime_r(&now, &tm) ? strftime(text, sizeof text, format, &tm) : 0;
    char *copy = arena_copy(r->arena, text, n);
    *ret = jinja_text(copy, n);
    return copy ? 0 : jinja_nomem(r);
}

/* dict(a=1) and namespace(a=1), from a dict too. */
static int from_named(struct jinja_run *r, struct jinja_args *args, struct jinja_value *ret)
{
    int rc = jinja_dict_new(r->arena, ret) < 0 ? jinja_nomem(r) : 0;
    if (args->n > 1 || (args->n == 1 && args->v[0].type != JINJA_DICT))
        return jinja_fail(r, ERR_UNSUPPORTED, "dict or namespace of other than a dict");
    for (size_t i = 0; rc == 0 && args->n == 1 && i < args->v[0].dict->n; i++)
        rc = jinja_dict_put(r, ret->dict, &args->v[0].dict->v[i].key, &args->v[0].dict->v[i].value);
    for (size_t i = 0; rc == 0 && i < args->n_named; i++) {
        struct jinja_value k = jinja_of_str(&args->names[i]);
        rc = jinja_dict_put(r, ret->dict, &k, &args->named[i]);
    }
    return rc;
}

BUILTIN(global_dict)
{
    (void)self;
    return from_named(r, args, ret);
}

BUILTIN(global_namespace)
{
    (void)self;
    int rc = from_named(r, args, ret);
    ret->type = JINJA_NAMESPACE;
    return rc;
}

static const struct jinja_builtin_row globals[] = {{"range", global_range, NULL},
                                                   {"raise_exception", global_raise, "message"},
                                                   {"strftime_now", global_strftime, "format"},
                                                   {"dict", global_dict, NULL},
                                                   {"namespace", global_namespace, NULL}};

const struct jinja_builtin_row *jinja_find_global(const struct jinja_str *name)
{
    for (size_t i = 0; i < sizeof globals / sizeof *globals; i++)
        if (jinja_str_is(name, globals[i].name))
            return &globals[i];
    return NULL;
}
