/* Shared by jinja*.c: tokens, the tree, and what a run has. */
#ifndef HEARTH_ENGINE_JINJA_IMPL_H
#define HEARTH_ENGINE_JINJA_IMPL_H

#include "engine/jinja.h"

#define JINJA_DEPTH_MAX 100      /* of nested tags and brackets */
#define JINJA_CALLS_MAX 60       /* of macros in macros */
#define JINJA_EVAL_DEPTH_MAX 600 /* of the tree, through macros */
#define JINJA_STEPS_MAX 20000000
#define JINJA_ARGS_MAX 16
#define JINJA_RANGE_MAX 100000 /* as Jinja2's sandbox has it */

enum jinja_token_kind {
    TOKEN_TEXT,
    TOKEN_PRINT,     /* {{ */
    TOKEN_PRINT_END, /* }} */
    TOKEN_TAG,       /* {% */
    TOKEN_TAG_END,   /* %} */
    TOKEN_NAME,
    TOKEN_STR,
    TOKEN_INT,
    TOKEN_FLOAT,
    TOKEN_OP,
    TOKEN_END
};

/* An operator's bytes in one number. */
#define OP1(a) ((int)(a))
#define OP2(a, b) ((int)(a) | (int)(b) << 8)

struct jinja_token {
    enum jinja_token_kind kind;
    int op, line;
    struct jinja_str str; /* text, name, the string's value */
    int64_t i;
    double f;
};

enum jinja_kind {
    /* statements */
    NODE_BODY, /* v */
    NODE_TEXT,
    NODE_PRINT,     /* a */
    NODE_IF,        /* v: condition, body, condition, body …; a: else, or NULL */
    NODE_FOR,       /* target, a: list, b: condition or NULL, c: body, v[0]: else (n = 1) */
    NODE_SET,       /* a: target, b: value */
    NODE_SET_BLOCK, /* a: target, b: body, c: filter chain over NODE_CAPTURED, or NULL */
    NODE_MACRO,     /* name, v: NODE_PARAM, a: body */
    NODE_CALL_BLOCK, /* a: the call, b: NODE_MACRO of the body */
    NODE_FILTER_BLOCK, /* a: body, b: chain over NODE_CAPTURED */
    NODE_SCOPE,        /* with, generation. v: targets and values in pairs; a: body */
    NODE_BREAK,
    NODE_CONTINUE,
    /* expressions */
    NODE_CONST, /* value */
    NODE_NAME,
    NODE_ATTR,  /* a.name */
    NODE_ITEM,  /* a[b] */
    NODE_SLICE, /* a[v[0]:v[1]:v[2]], each may be NULL */
    NODE_CALL,  /* a(v…) */
    NODE_FILTER, /* a | fn(v…) */
    NODE_TEST,   /* a is fn(v…) */
    NODE_UNARY,  /* op a */
    NODE_BINARY, /* a op b */
    NODE_COMPARE, /* a, then v: NODE_BINARY with op and b */
    NODE_AND,
    NODE_OR,
    NODE_NOT,
    NODE_COND, /* a if b else c (NULL: undefined) */
    NODE_LIST,
    NODE_TUPLE,
    NODE_DICT, /* v: key, value, … */
    NODE_KEYWORD, /* name = a, among arguments */
    NODE_SPREAD,  /* op '*' or "**" and a, among arguments */
    NODE_PARAM,   /* name, a: default or NULL */
    NODE_CAPTURED /* the text of the block that is being filtered */
};

struct jinja_filter;
struct jinja_test;

struct jinja_node {
    enum jinja_kind kind;
    int op, line;
    struct jinja_node *a, *b, *c, *target;
    struct jinja_node **v;
    size_t n;
    struct jinja_str name; /* NUL-terminated */
    struct jinja_value value;
    const struct jinja_filter *filter;
    const struct jinja_test *test;
    bool uses_loop, has_break, is_recursive; /* NODE_FOR: the name "loop", "break" in its body */
    unsigned specials;                       /* NODE_MACRO: 1 << the SPECIAL_ its body names */
    const struct jinja_str **late; /* NODE_BODY of a scope: names undefined until they are set */
    size_t n_late;
};

/* Names that a macro has without a parameter, if its body says them. */
enum { SPECIAL_CALLER, SPECIAL_KWARGS, SPECIAL_VARARGS, SPECIAL_LOOP, N_SPECIALS };

struct jinja {
    struct arena arena;
    struct jinja_token *tokens;
    size_t n_tokens;
    struct jinja_node *body;
};

/* Fills j->tokens, which borrow from source (newlines normalised already). */
int jinja_lex(struct jinja *j, const char *source, size_t n, struct err *e) MUST_USE;

/* jinja_scope.c: fills late in all bodies; ERR_UNSUPPORTED for a name that Jinja2 can't tell. */
int jinja_scopes(struct jinja *j, struct err *e) MUST_USE;

struct jinja_parser {
    struct jinja *j;
    size_t at;
    int depth, n_loops;
    int n_fors;                 /* as n_loops, through macros too */
    size_t n_breaks;            /* seen so far, and so below */
    size_t n_names[N_SPECIALS]; /* by SPECIAL_ */
    struct err *e;
};

const struct jinja_token *jinja_peek(const struct jinja_parser *p);
bool jinja_is_op(const struct jinja_parser *p, int op);
bool jinja_is_name(const struct jinja_parser *p, const char *name);
/* Steps over it if it is there. */
bool jinja_take_op(struct jinja_parser *p, int op);
bool jinja_take_name(struct jinja_parser *p, const char *name);
int jinja_expect_op(struct jinja_parser *p, int op) MUST_USE;
struct jinja_node *jinja_node(struct jinja_parser *p, enum jinja_kind kind);
int jinja_node_add(struct jinja_parser *p, struct jinja_node *to, struct jinja_node *v) MUST_USE;
/* "line N: not understood at …" */
int jinja_syntax(struct jinja_parser *p, const char *what) MUST_USE;
int jinja_expression(struct jinja_parser *p, struct jinja_node **ret) MUST_USE;
/* An expression without "x if y else z" on its outside. */
int jinja_disjunction(struct jinja_parser *p, struct jinja_node **ret) MUST_USE;
/* a, b, c; one alone stays itself. */
int jinja_tuple(struct jinja_parser *p, struct jinja_node **ret) MUST_USE;
/* name, name.attr, (a, b), a, b */
int jinja_target(struct jinja_parser *p, struct jinja_node **ret) MUST_USE;
int jinja_postfix(struct jinja_parser *p, struct jinja_node **node) MUST_USE;
/* "name(…) | name …" behind a "|" that is gone. */
int jinja_filters(struct jinja_parser *p, struct jinja_node **node) MUST_USE;
int jinja_primary(struct jinja_parser *p, struct jinja_node **ret) MUST_USE;

enum jinja_list_kind {
    LIST_PLAIN,
    LIST_TUPLE,
    LIST_RANGE,
    LIST_VIEW,     /* keys(), values(), items() */
    LIST_GENERATOR /* what map, select … give: seen once */
};
struct jinja_list {
    struct jinja_value *v;
    size_t n, cap;
    enum jinja_list_kind kind;
    bool is_spent;
    bool is_group;    /* a pair out of groupby: it has .grouper and .list */
    const char *late; /* what Jinja2 would raise when this generator is used; or NULL */
};
struct jinja_pair {
    struct jinja_value key, value;
};
struct jinja_dict {
    struct jinja_pair *v;
    size_t n, cap;
};

struct jinja_scope {
    struct jinja_scope *parent;
    struct jinja_dict vars;
};

/* Arguments of a call, evaluated. */
struct jinja_args {
    struct jinja_value v[JINJA_ARGS_MAX];
    size_t n;
    struct jinja_str names[JINJA_ARGS_MAX];
    struct jinja_value named[JINJA_ARGS_MAX];
    size_t n_named;
};

struct jinja_run {
    const struct jinja *j;
    struct arena *arena;
    struct jinja_output out;
    size_t n_start; /* of out */
    struct jinja_scope *scope, *root;
    const struct jinja_value *vars;
    struct jinja_value captured;
    int64_t now;
    int line, depth, n_calls;
    size_t n_reads, n_writes; /* of namespaces' attributes */
    bool has_inner_macros;    /* made in other scopes than the template's own */
    uint64_t n_steps;
    enum { FLOW_NONE, FLOW_BREAK, FLOW_CONTINUE } flow;
    struct err *e;
};

typedef int jinja_builtin(struct jinja_run *r, const struct jinja_value *self,
                          struct jinja_args *args, struct jinja_value *ret);
/* The head of a builtin function or method. */
#define BUILTIN(name)                                                                              \
    static int name(struct jinja_run *r, const struct jinja_value *self, struct jinja_args *args,  \
                    struct jinja_value *ret)
struct jinja_builtin_row;
/* A function as a value: a builtin with the object it belongs to, or a macro with where it was
 * made. */
struct jinja_function {
    const char *name;
    jinja_builtin *builtin;
    const struct jinja_builtin_row *row;
    struct jinja_value self;
    const struct jinja_node *macro;
    struct jinja_scope *scope;
};
struct jinja_builtin_row {
    const char *name;
    jinja_builtin *run;
    const char *params; /* "width,first": bound in order into args->v, JINJA_ABSENT where not
                         * given; NULL: as they come. Behind "/": not to be given by name. */
    bool is_lazy;       /* a generator in Jinja2: what goes wrong does so when it is used */
};
struct jinja_filter {
    struct jinja_builtin_row row;
};
struct jinja_test {
    struct jinja_builtin_row row; /* ret is a bool */
};

const struct jinja_filter *jinja_find_filter(const struct jinja_str *name);
const struct jinja_test *jinja_find_test(const struct jinja_str *name);
/* Methods of strings, lists, dicts and namespaces; is_known: some type has it. */
bool jinja_is_method(const struct jinja_str *name);
/* An attribute that v's Python type has, or one like it, and hearth doesn't know. */
bool jinja_is_foreign(const struct jinja_value *v, const struct jinja_str *name);
const struct jinja_builtin_row *jinja_find_method(enum jinja_type type,
                                                  const struct jinja_str *name);
const struct jinja_builtin_row *jinja_find_str_method(const struct jinja_str *name);
const struct jinja_builtin_row *jinja_find_global(const struct jinja_str *name);

/* jinja_value.c */
bool jinja_str_is(const struct jinja_str *s, const char *literal);
bool jinja_str_equal(const struct jinja_str *a, const struct jinja_str *b);
int jinja_fail(struct jinja_run *r, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int jinja_nomem(struct jinja_run *r);
/* Counts work: 1 and a share of n bytes. */
int jinja_step(struct jinja_run *r, size_t n) MUST_USE;
const char *jinja_type_name(const struct jinja_value *v);
bool jinja_truth(const struct jinja_value *v);
int jinja_equal(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b,
                bool *ret) MUST_USE;
/* Whether it can be a key: ERR_INVAL if not. */
int jinja_need_hashable(struct jinja_run *r, const struct jinja_value *v) MUST_USE;
/* -1, 0, 1; ERR_INVAL for what Python doesn't order. */
int jinja_order(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b,
                int *ret) MUST_USE;
int jinja_contains(struct jinja_run *r, const struct jinja_value *in, const struct jinja_value *v,
                   bool *ret) MUST_USE;
/* As str() prints it. */
int jinja_to_str(struct jinja_run *r, const struct jinja_value *v, struct jinja_str *ret) MUST_USE;
struct jinja_value jinja_of_str(const struct jinja_str *s);
struct jinja_value jinja_undefined(const char *name);
const struct jinja_value *jinja_dict_find(const struct jinja_dict *d, const struct jinja_value *k);
const struct jinja_value *jinja_dict_find_str(const struct jinja_dict *d,
                                              const struct jinja_str *k);
int jinja_dict_put(struct jinja_run *r, struct jinja_dict *d, const struct jinja_value *k,
                   const struct jinja_value *v) MUST_USE;
int jinja_list_make(struct jinja_run *r, enum jinja_list_kind kind, struct jinja_value *ret)
    MUST_USE;
int jinja_push(struct jinja_run *r, struct jinja_value *list, const struct jinja_value *v) MUST_USE;
/* The items of anything that can be iterated, as a list that isn't to be changed. */
int jinja_iterate(struct jinja_run *r, const struct jinja_value *v, struct jinja_list **ret)
    MUST_USE;

/* A string being made, with its marks. */
struct jinja_text {
    struct jinja_run *r;
    char *s;
    uint8_t *marks; /* NULL while there are none */
    size_t n, cap;
};
int jinja_text_add(struct jinja_text *t, const struct jinja_str *s) MUST_USE;
int jinja_text_char(struct jinja_text *t, char c, uint8_t mark) MUST_USE;
int jinja_text_lit(struct jinja_text *t, const char *s) MUST_USE;
struct jinja_str jinja_text_str(const struct jinja_text *t);

/* jinja_text.c */
size_t jinja_char_len(const char *s, size_t n); /* of the code point at s; 1 for a bad byte */
size_t jinja_n_chars(const struct jinja_str *s);
struct jinja_str jinja_sub(const struct jinja_str *s, size_t from, size_t n);
size_t jinja_space_at(const char *s, size_t n); /* length of the white space character at s, or 0 */
size_t jinja_space_before(const char *s, size_t n); /* … that ends at s + n */
/* sides: 1 left, 2 right; chars NULL: white space. */
struct jinja_str jinja_strip(const struct jinja_str *s, const struct jinja_str *chars, int sides);
/* Whether it has an end of line other than "\n" for Python's splitlines. */
bool jinja_has_odd_lines(const struct jinja_str *s);
/* The byte offset of what in s from `from`; (size_t)-1: not there. */
size_t jinja_find(const struct jinja_str *s, const struct jinja_str *what, size_t from);
int jinja_replace(struct jinja_run *r, const struct jinja_str *s, const struct jinja_value v[3],
                  struct jinja_value *ret) MUST_USE;
/* How Python sees a code point. */
enum jinja_char {
    CHAR_OTHER,
    CHAR_LETTER,
    CHAR_DECIMAL,
    CHAR_NUMBER, /* a number of another kind */
    CHAR_MARK,   /* combining */
    CHAR_HIDDEN, /* not printable */
    CHAR_UNKNOWN /* unassigned, in this table */
};
/* The code point at *at, which moves behind it; U+FFFD for bytes that aren't UTF-8. */
uint32_t jinja_next(const struct jinja_str *s, size_t *at);
enum jinja_char jinja_char_of(uint32_t cp);
/* 'u'pper, 'l'ower, 't'itle case letter; 0: has no case; '?': not known here. */
char jinja_case_of(uint32_t cp);
/* Whether s is in upper ('u'), lower ('l') or title ('t') case, as str.isupper() … say. */
int jinja_is_cased(struct jinja_run *r, const struct jinja_str *s, char how, bool *ret) MUST_USE;
/* how: 'u'pper, 'l'ower, 't'itle (Jinja's filter), 'T'itle (Python's method), 'c'apitalize,
 * 's'wapcase */
int jinja_case(struct jinja_run *r, const struct jinja_str *s, char how, struct jinja_str *ret)
    MUST_USE;

/* jinja_json.c */
struct jinja_json {
    int64_t indent; /* a level; -1: none */
    const struct jinja_str *unit; /* what indent counts; NULL: spaces */
    bool ensure_ascii, sort_keys;
    struct jinja_str item, key; /* separators */
};
int jinja_to_json(struct jinja_text *t, const struct jinja_value *v, const struct jinja_json *how,
                  int depth) MUST_USE;
/* As Python's repr writes them. */
int jinja_repr(struct jinja_text *t, const struct jinja_value *v, int depth) MUST_USE;
void jinja_format_float(double f, char ret[40]);

/* jinja_format.c: fmt % args, and fmt.format(…), as Python has them. */
int jinja_percent(struct jinja_run *r, const struct jinja_str *fmt, const struct jinja_value *args,
                  struct jinja_value *ret) MUST_USE;
int jinja_format(struct jinja_run *r, const struct jinja_str *fmt, const struct jinja_args *args,
                 struct jinja_value *ret) MUST_USE;

/* jinja_filter.c: for HTML, unless it is that already. */
int jinja_escape(struct jinja_run *r, const struct jinja_value *v, struct jinja_value *ret)
    MUST_USE;

/* jinja_math.c */
bool jinja_is_int(const struct jinja_value *v); /* a bool is one */
int64_t jinja_int_of(const struct jinja_value *v);
int jinja_binary(struct jinja_run *r, int op, const struct jinja_value v[2],
                 struct jinja_value *ret) MUST_USE;
int jinja_fail_undefined(struct jinja_run *r, const struct jinja_value *v);

/* jinja_item.c */
int jinja_attribute(struct jinja_run *r, const struct jinja_value *v, const struct jinja_str *name,
                    struct jinja_value *ret) MUST_USE;
/* The attribute alone, without a dict's items: what the filter attr gives. */
int jinja_getattr(struct jinja_run *r, const struct jinja_value *v, const struct jinja_str *name,
                  struct jinja_value *ret) MUST_USE;
int jinja_item(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value *key,
               struct jinja_value *ret) MUST_USE;
int jinja_slice(struct jinja_run *r, const struct jinja_node *x, struct jinja_value *ret) MUST_USE;

/* jinja_eval.c */
int jinja_eval(struct jinja_run *r, const struct jinja_node *x, struct jinja_value *ret) MUST_USE;

/* jinja_call.c */
int jinja_eval_args(struct jinja_run *r, const struct jinja_node *x, struct jinja_args *args)
    MUST_USE;
int jinja_eval_call(struct jinja_run *r, const struct jinja_node *x, struct jinja_value *ret)
    MUST_USE;
/* A filter or a test. */
int jinja_eval_pipe(struct jinja_run *r, const struct jinja_node *x, struct jinja_value *ret)
    MUST_USE;
int jinja_call(struct jinja_run *r, const struct jinja_value *fn, struct jinja_args *args,
               struct jinja_value *ret) MUST_USE;
int jinja_run_row(struct jinja_run *r, const struct jinja_builtin_row *row,
                  const struct jinja_value *self, struct jinja_args *args,
                  struct jinja_value *ret) MUST_USE;

/* jinja_loop.c */
int jinja_run_for(struct jinja_run *r, const struct jinja_node *x) MUST_USE;
/* loop.name; undefined for what it hasn't. */
int jinja_loop_attribute(struct jinja_run *r, const struct jinja_value *v,
                         const struct jinja_str *name, struct jinja_value *ret) MUST_USE;
/* loop(items) of a recursive for: what its body prints for them. */
int jinja_loop_call(struct jinja_run *r, const struct jinja_loop *loop, struct jinja_args *args,
                    struct jinja_value *ret) MUST_USE;
size_t jinja_loop_length(const struct jinja_loop *loop);
int jinja_loop_repr(struct jinja_text *t, const struct jinja_loop *loop) MUST_USE;

/* jinja_run.c */
/* A body's statements, until a break or continue. */
int jinja_run_body(struct jinja_run *r, const struct jinja_node *x) MUST_USE;
int jinja_assign(struct jinja_run *r, const struct jinja_node *target, const struct jinja_value *v)
    MUST_USE;
/* Cuts what was printed since `from` off, as a string. */
int jinja_capture(struct jinja_run *r, size_t from, struct jinja_value *ret) MUST_USE;
int jinja_set(struct jinja_run *r, const struct jinja_str *name, const struct jinja_value *v)
    MUST_USE;
/* NULL: no memory, and r->e says so. */
struct jinja_scope *jinja_scope_push(struct jinja_run *r, struct jinja_scope *parent);
/* What a body prints in a scope, as a string. */
int jinja_captured(struct jinja_run *r, const struct jinja_node *body, struct jinja_scope *scope,
                   struct jinja_value *ret) MUST_USE;

#endif
