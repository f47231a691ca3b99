/*
 * JSON: the one file that knows cJSON (json.c), behind rules that cJSON does not have.
 *
 * json_parse first makes one pass over the bytes and refuses, with the offset: invalid UTF-8, any
 * NUL (raw or \u0000), nesting > 64, more than 100,000 values, anything after the value; then
 * parses. Look-ups are case-sensitive. A key that occurs twice in an object is an error of the
 * look-up that meets it, or of json_check_keys, anywhere in the tree. Integers are exact within
 * ±(2^53 − 1) in both directions.
 */
#ifndef HEARTH_BASE_JSON_H
#define HEARTH_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define JSON_DEPTH_MAX 64
#define JSON_VALUES_MAX 100000
#define JSON_INT_MAX 9007199254740991LL

typedef struct cJSON json; /* the one typedef: callers never see cJSON's fields */

/* 0 and a tree that the caller frees with json_free; ERR_INVAL with text "offset N: why";
 * ERR_LIMIT; ERR_NOMEM. */
int json_parse(const char *text, size_t n, json **ret, struct err *e) MUST_USE;
void json_free(json *j);

enum json_type {
    JSON_ABSENT,
    JSON_NULL,
    JSON_BOOL,
    JSON_NUMBER,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT
};
enum json_type json_type(const json *j); /* JSON_ABSENT for NULL */
const char *json_type_name(enum json_type t);

/* Borrowed, or NULL when absent *or null* (null is absent). A doubled key: *e is set (ERR_INVAL,
 * naming it) if e isn't NULL, and NULL returned; without e the first counts. */
const json *json_get(const json *object, const char *key, struct err *e);
/* 0, or ERR_INVAL: a key occurs twice in an object somewhere in the tree; *ret_key is that key,
 * borrowed. ERR_NOMEM. Each object's keys are sorted: n log n. */
int json_check_keys(const json *j, const char **ret_key, struct err *e) MUST_USE;

size_t json_count(const json *array_or_object);
/* for (const json *it = json_first(a); it; it = json_next(it)) */
const json *json_first(const json *array_or_object);
const json *json_next(const json *item);
const char *json_key(const json *member);

/* NUL-terminated (no NUL inside, by json_parse); NULL when not a string. */
const char *json_str(const json *j);
bool json_bool(const json *j);     /* false when not a bool */
double json_double(const json *j); /* 0 when not a number */
/* A whole number within [min, max], and never beyond ±JSON_INT_MAX; 1.0 and 1e3 are whole.
 * ERR_INVAL names `field`, the value and the range. */
int json_int(const json *j, const char *field, int64_t min, int64_t max, int64_t *ret,
             struct err *e) MUST_USE;
/* A finite number within [min, max]; the same errors. */
int json_num(const json *j, const char *field, double min, double max, double *ret,
             struct err *e) MUST_USE;

/* Building. Each takes ownership of what is added and returns it (or the new node); NULL is passed
 * through, so that a chain is checked once: json_write of a tree that lost a node fails with
 * ERR_NOMEM. A key that is there already is replaced. */
json *json_object(void);
json *json_array(void);
json *json_copy(const json *j);
json *json_set_str(json *object, const char *key, const char *s);
/* Invalid UTF-8 and NULs are repaired. */
json *json_set_strn(json *object, const char *key, const char *s, size_t n);
json *json_set_int(json *object, const char *key, int64_t v); /* exact beyond 1e15 too */
json *json_set_num(json *object, const char *key, double v);  /* null when not finite */
json *json_set_bool(json *object, const char *key, bool v);
json *json_set_null(json *object, const char *key);
json *json_set(json *object, const char *key, json *value); /* takes value */
json *json_add(json *array, json *value);                   /* takes value */
json *json_add_str(json *array, const char *s);
json *json_add_int(json *array, int64_t v);
json *json_add_num(json *array, double v);

/* Appends compact (or indented) text. Errors stick in the buffer; ERR_LIMIT also when the tree is
 * more than 128 deep. */
void json_write(const json *j, struct buf *b);
void json_write_pretty(const json *j, struct buf *b);
/* Appends s as a JSON string with quotes; bytes that aren't UTF-8, and NULs, become U+FFFD
 * (json_parse refuses NULs, and a streamed text must equal the whole one, that json_set_strn
 * repairs). */
void json_write_str(struct buf *b, const char *s, size_t n);

#endif
