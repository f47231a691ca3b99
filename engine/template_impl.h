/* Shared by template.c (tags and their execution) and template_expr.c (expressions). */
#ifndef HEARTH_ENGINE_TEMPLATE_IMPL_H
#define HEARTH_ENGINE_TEMPLATE_IMPL_H

#include "base/arena.h"
#include "engine/template.h"

#define TEMPLATE_STEPS_MAX 1000000
#define TEMPLATE_VARS_MAX 64

enum value_kind {
    VALUE_UNDEFINED,
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_STRING,
    VALUE_MESSAGES, /* messages[i, i + n) */
    VALUE_MESSAGE,  /* messages[i] */
    VALUE_LOOP,     /* the innermost loop: step i of n */
};

struct value {
    enum value_kind kind;
    int64_t i, n;
    const char *s; /* [len], in the source, a message or the arena */
    size_t len;
};

struct template_var {
    const char *name; /* [len], in the source */
    size_t len;
    struct value value;
};

/* One rendering. */
struct template_run {
    const struct template_args *args;
    struct arena arena;
    struct buf *out;
    struct template_var vars[TEMPLATE_VARS_MAX]; /* a later one of the same name hides an earlier */
    size_t n_vars;
    int n_steps;
};

/* ERR_UNSUPPORTED "line N: what", with the source's text at `at`. */
int template_unknown(const struct template_run *r, const char *what, const char *at, size_t n,
                     struct err *e);
/* ERR_LIMIT once the work is out of proportion. */
int template_step(struct template_run *r, struct err *e) MUST_USE;

/* An expression that fills text[0, n). */
int template_eval(struct template_run *r, const char *text, size_t n, struct value *ret,
                  struct err *e) MUST_USE;
bool value_is_true(const struct value *v);
/* What {{ v }} prints; ERR_UNSUPPORTED for a list or an object. */
int value_text(const struct template_run *r, const struct value *v, const char *at,
               struct value *ret_string, struct err *e) MUST_USE;

#endif
