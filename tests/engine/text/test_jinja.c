/*
 * Templates against what Jinja2 printed for them: jinja.jsonl, made by tests/reference/jinja.py.
 * What Jinja2 fails at must fail; what it prints must be printed, or (for a counted few) refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "engine/jinja.h"
#include "tests/engine/text/jinja_vars.h"

#define ARENA_BYTES ((size_t)64 << 20)
#define REFUSED_MAX 40 /* snippets that Jinja2 prints and hearth refuses by name */

struct totals {
    size_t n, n_refused, n_wrong;
};

static void check(const char *template_text, const json *vars, const char *want, struct totals *t)
{
    struct arena a;
    struct jinja *j = NULL;
    struct buf text, marks;
    struct err e = {0};
    arena_init(&a, ARENA_BYTES);
    buf_init(&text, 1 << 20);
    buf_init(&marks, 1 << 20);
    struct jinja_output out = {.text = &text, .marks = &marks};
    struct jinja_value v = jinja_vars_of(&a, vars);
    int rc = jinja_new(template_text, strlen(template_text), &j, &e);
    if (rc == 0)
        rc = jinja_render(j, &a, &v, 1753012800, &out, &e);
    buf_str(&text, "");
    bool is_equal = want && text.len == strlen(want) && memcmp(text.data, want, text.len) == 0;
    bool is_refused = want && rc == ERR_UNSUPPORTED;
    t->n++;
    t->n_refused += is_refused;
    if (is_refused)
        print_message("refused: %s: %s\n", template_text, e.text);
    else if (rc == 0 ? !is_equal : want != NULL)
        print_message("%zu WRONG: %s\n  want %s\n  have %s (%s)\n", ++t->n_wrong, template_text,
                      want ? want : "an error", rc == 0 ? text.data : "-", e.text);
    if (rc == 0)
        assert_int_equal(text.len, marks.len);
    jinja_free(j);
    buf_done(&text);
    buf_done(&marks);
    arena_done(&a);
}

static void prints_what_jinja2_prints_or_refuses(void **state)
{
    (void)state;
    FILE *f = fopen(getenv("HEARTH_JINJA"), "r");
    char *line = NULL, *template_text = NULL;
    size_t cap = 0;
    json *defaults = NULL;
    struct totals t = {0};
    struct err e;
    assert_non_null(f);
    for (ssize_t n; (n = getline(&line, &cap, f)) > 0;) {
        json *j;
        assert_int_equal(json_parse(line, (size_t)n, &j, &e), 0);
        const char *source = json_str(json_get(j, "template", NULL));
        const char *want = json_str(json_get(j, "text", NULL));
        const json *vars = json_get(j, "vars", NULL);
        if (json_get(j, "defaults", NULL)) {
            defaults = json_copy(json_get(j, "defaults", NULL));
        } else if (json_get(j, "name", NULL)) {
            free(template_text);
            template_text = strdup(source);
        } else {
            check(source ? source : template_text, vars ? vars : defaults, want, &t);
        }
        json_free(j);
    }
    print_message("%zu renderings, %zu refused\n", t.n, t.n_refused);
    json_free(defaults);
    free(template_text);
    free(line);
    fclose(f);
    assert_int_equal(t.n_wrong, 0);
    assert_true(t.n > 600);
    assert_true(t.n_refused <= REFUSED_MAX);
}

static int run(const char *source, struct err *e)
{
    struct arena a;
    struct jinja *j = NULL;
    struct buf text;
    struct jinja_value vars;
    arena_init(&a, ARENA_BYTES);
    buf_init(&text, 1 << 16);
    assert_int_equal(jinja_dict_new(&a, &vars), 0);
    struct jinja_output out = {.text = &text};
    int rc = jinja_new(source, strlen(source), &j, e);
    if (rc == 0)
        rc = jinja_render(j, &a, &vars, 0, &out, e);
    jinja_free(j);
    buf_done(&text);
    arena_done(&a);
    return rc;
}

static void endless_work_ends(void **state)
{
    (void)state;
    struct err e;
    assert_int_equal(run("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", &e), ERR_LIMIT);
    assert_int_equal(run("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}"
                         "{% endfor %}",
                         &e),
                     ERR_LIMIT);
    assert_int_equal(run("{% for a in range(9999) %}0123456789{% endfor %}", &e), ERR_LIMIT);
    assert_int_equal(run("{{ 'x' * 99999999999 }}", &e), ERR_LIMIT);
    char deep[4096] = "{{ ";
    memset(deep + 3, '[', 2000);
    assert_int_equal(run(deep, &e), ERR_LIMIT);
}

static void what_is_refused_is_named_with_its_line(void **state)
{
    (void)state;
    struct err e;
    assert_int_equal(run("a\n\n{% include 'x' %}", &e), ERR_UNSUPPORTED);
    assert_string_equal(e.text, "line 3: the tag \"include\"");
    assert_int_equal(run("\n{% if false %}{{ 1 | frob }}{% endif %}", &e), ERR_UNSUPPORTED);
    assert_string_equal(e.text, "line 2: the filter \"frob\"");
    assert_int_equal(run("{% if false %}{{ 1 is frob }}{% endif %}", &e), ERR_UNSUPPORTED);
    assert_string_equal(e.text, "line 1: the test \"frob\"");
    assert_int_equal(run("{% if false %}{{ frob(1) }}{% endif %}", &e), ERR_UNSUPPORTED);
    assert_string_equal(e.text, "line 1: the function \"frob\"");
    assert_int_equal(run("\n{% set x|default(frob) %}{% endset %}", &e), ERR_UNSUPPORTED);
    assert_string_equal(e.text, "line 2: the name \"frob\" in the filter of a set block, which is "
                                "said nowhere else");
    assert_int_equal(run("{% set n = namespace() %}\n{% for x in [1] %}"
                         "{% macro f() %}{% endmacro %}{% set n.f = [f] %}{% endfor %}", &e),
                     ERR_UNSUPPORTED);
    assert_string_equal(e.text, "line 2: a macro of an inner scope in a namespace");
}

static void marks_follow_their_bytes(void **state)
{
    (void)state;
    static const char source[] = "{{ '<' ~ (x|trim)[::-1].replace('b', 'é') ~ x|tojson ~ '>' }}";
    struct arena a;
    struct jinja *j;
    struct buf text, marks;
    struct jinja_value vars, x;
    struct err e;
    arena_init(&a, ARENA_BYTES);
    buf_init(&text, 1 << 16);
    buf_init(&marks, 1 << 16);
    assert_int_equal(jinja_dict_new(&a, &vars), 0);
    assert_int_equal(jinja_marked(&a, " ab ", 4, 7, &x), 0);
    assert_int_equal(jinja_dict_set(&a, &vars, "x", &x), 0);
    struct jinja_output out = {.text = &text, .marks = &marks};
    assert_int_equal(jinja_new(source, sizeof source - 1, &j, &e), 0);
    assert_int_equal(jinja_render(j, &a, &vars, 0, &out, &e), 0);
    assert_string_equal(text.data, "<\xC3\xA9"
                                   "a\" ab \">");
    assert_memory_equal(marks.data, "\0\0\0\7\0\7\7\7\7\0\0", 11);
    jinja_free(j);
    buf_done(&text);
    buf_done(&marks);
    arena_done(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prints_what_jinja2_prints_or_refuses),
        cmocka_unit_test(endless_work_ends),
        cmocka_unit_test(what_is_refused_is_named_with_its_line),
        cmocka_unit_test(marks_follow_their_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
