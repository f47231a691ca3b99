/*
 * The Jinja that chat templates are written in: a source is compiled once, then run with values.
 *
 *      source ─► jinja_lex.c: tokens ─► jinja_parse.c, jinja_expr.c: a tree ─► jinja_run.c,
 *      jinja_eval.c: text
 *
 * It prints what Jinja2 prints in Hugging Face's setting (ImmutableSandboxedEnvironment,
 * trim_blocks, lstrip_blocks, loopcontrols, their tojson, their strftime_now), or it refuses: what
 * isn't known (a tag, a filter, a test, a method, a function) fails the compilation with its name
 * and line, in a branch not taken too. What Jinja2 fails at fails here. Steps, depth, memory and
 * output have limits.
 *
 * Marks: each byte of a string may carry a mark, which follows it through slices, trims,
 * replacements, joins and into the output. So whoever gave the values knows which bytes of the
 * output came from where (chat.c: what people wrote never becomes a control token), by bookkeeping
 * and not by searching.
 */
#ifndef HEARTH_ENGINE_JINJA_H
#define HEARTH_ENGINE_JINJA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

#define JINJA_SOURCE_BYTES_MAX ((size_t)1 << 20)

enum jinja_type {
    JINJA_UNDEFINED,
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_FLOAT,
    JINJA_STR,
    JINJA_LIST,
    JINJA_DICT,
    JINJA_NAMESPACE,
    JINJA_LOOP,     /* the variable of a for */
    JINJA_FUNCTION, /* a global's, a method, a macro */
    JINJA_ABSENT,   /* an argument that wasn't given */
};

struct jinja_str {
    const char *s;
    size_t n;
    const uint8_t *marks; /* [n], or NULL: all 0 */
};
struct jinja_list;
struct jinja_dict;
struct jinja_function;
struct jinja_loop;

/* Small, copied freely; what it points to lives in the arena it was made in. */
struct jinja_value {
    enum jinja_type type;
    bool is_markup; /* a string out of `safe` or `escape` */
    union {
        bool b;
        int64_t i;
        double f;
        struct jinja_str str;
        struct jinja_list *list;
        struct jinja_dict *dict;
        const struct jinja_function *function;
        struct jinja_loop *loop;
        const char *name; /* of something undefined, for messages; or NULL */
    };
};

struct jinja_value jinja_none(void);
struct jinja_value jinja_bool(bool b);
struct jinja_value jinja_int(int64_t i);
/* s is borrowed. */
struct jinja_value jinja_text(const char *s, size_t n);
/* As jinja_text with `mark` on each byte; NULL memory gives an undefined value and ERR_NOMEM. */
int jinja_marked(struct arena *a, const char *s, size_t n, uint8_t mark, struct jinja_value *ret)
    MUST_USE;
/* Empty ones; ERR_NOMEM. */
int jinja_list_new(struct arena *a, struct jinja_value *ret) MUST_USE;
int jinja_dict_new(struct arena *a, struct jinja_value *ret) MUST_USE;
int jinja_list_add(struct arena *a, struct jinja_value *list, const struct jinja_value *v) MUST_USE;
/* key is borrowed; a value of the same key is replaced. */
int jinja_dict_set(struct arena *a, struct jinja_value *dict, const char *key,
                   const struct jinja_value *v) MUST_USE;

struct jinja;

/*
 * ERR_UNSUPPORTED (a known or unknown construct that isn't implemented), ERR_CORRUPT (no valid
 * Jinja), ERR_LIMIT, ERR_NOMEM; the text says the line.
 */
int jinja_new(const char *source, size_t n, struct jinja **ret, struct err *e) MUST_USE;
void jinja_free(struct jinja *j); /* NULL is fine */
/* Whether the source says this name anywhere ("enable_thinking") but as an attribute. */
bool jinja_names(const struct jinja *j, const char *name);

/* Whether it is white space as Python's strip sees it, or nothing. */
bool jinja_is_blank(const char *s, size_t n);

/* s less white space, as Python's strip sees it, on its sides: 1 left, 2 right, 3 both, 0 none. */
struct jinja_str jinja_strip_space(const struct jinja_str *s, int sides);
/* The string literal that is token i of the source, empty if that is something else; false: there
 * are no more tokens. */
bool jinja_literal(const struct jinja *j, size_t i, struct jinja_str *ret);

struct jinja_output {
    struct buf *text;
    struct buf *marks; /* as long as text; may be NULL */
};

/*
 * Appends the rendering with the variables of `vars` (a dict made in `a`, where all that comes up
 * while it runs is made too). now: what strftime_now tells, in seconds since 1970.
 * ERR_INVAL: raise_exception's text, or what Jinja2 would raise (an operation on something
 * undefined, a wrong type); ERR_UNSUPPORTED: it would work there and doesn't here; ERR_LIMIT. All
 * name the line. On failure the output is as before.
 */
int jinja_render(const struct jinja *j, struct arena *a, const struct jinja_value *vars,
                 int64_t now, struct jinja_output *ret, struct err *e) MUST_USE;

#endif
