/*
 * The interpreter by hand or under a driver (tests/reference/jinja_fuzz.py): a line of JSON in, a
 * line out.
 *
 *      {"template": TEXT, "now": N, "runs": [VARS, …]}   →   {"load": ERROR | null,
 *                                                             "runs": [{"text"} | {"error"}, …]}
 *
 * An ERROR is {"code": negative, "text"}. A line that isn't such is answered with {"load": …} too.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "engine/jinja.h"
#include "tests/engine/text/jinja_vars.h"

#define ARENA_BYTES ((size_t)256 << 20)
#define TEXT_BYTES ((size_t)1 << 20)

static json *error(int code, const struct err *e)
{
    json *o = json_object();
    json_set_int(o, "code", code);
    json_set_strn(o, "text", e->text, strlen(e->text));
    return o;
}

static json *render(const struct jinja *j, const json *vars, int64_t now)
{
    struct arena a;
    struct buf text, marks;
    struct err e = {0};
    struct jinja_output out = {.text = &text, .marks = &marks};
    json *o = json_object();
    arena_init(&a, ARENA_BYTES);
    buf_init(&text, TEXT_BYTES);
    buf_init(&marks, TEXT_BYTES);
    struct jinja_value v = jinja_vars_of(&a, vars);
    int rc = jinja_render(j, &a, &v, now, &out, &e);
    if (rc < 0)
        json_set(o, "error", error(rc, &e));
    else
        json_set_strn(o, "text", text.len > 0 ? text.data : "", text.len);
    if (rc == 0 && text.len != marks.len)
        abort(); /* each byte has its mark */
    buf_done(&text);
    buf_done(&marks);
    arena_done(&a);
    return o;
}

static json *answer(const json *q)
{
    struct jinja *j = NULL;
    struct err e = {0};
    const char *source = json_str(json_get(q, "template", NULL));
    json *o = json_object(), *runs;
    int rc =
        source ? jinja_new(source, strlen(source), &j, &e) : err_set(&e, ERR_INVAL, "no template");
    if (rc < 0) {
        json_set(o, "load", error(rc, &e));
        return o;
    }
    json_set_null(o, "load");
    runs = json_set(o, "runs", json_array());
    for (const json *v = json_first(json_get(q, "runs", NULL)); v; v = json_next(v))
        json_add(runs, render(j, v, (int64_t)json_double(json_get(q, "now", NULL))));
    jinja_free(j);
    return o;
}

int main(void)
{
    char *line = NULL;
    size_t cap = 0;
    for (ssize_t n; (n = getline(&line, &cap, stdin)) > 0;) {
        json *q = NULL, *o;
        struct err e;
        struct buf text;
        buf_init(&text, (size_t)1 << 30);
        if (json_parse(line, (size_t)n, &q, &e) < 0) {
            o = json_object();
            json_set(o, "load", error(e.code, &e));
        } else {
            o = answer(q);
        }
        json_write(o, &text);
        buf_char(&text, '\n');
        if (text.error)
            abort();
        fwrite(text.data, 1, text.len, stdout);
        fflush(stdout);
        buf_done(&text);
        json_free(o);
        json_free(q);
    }
    free(line);
    return 0;
}
