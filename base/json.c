/*
 * JSON over cJSON. Parsing is json_scan's rules and then cJSON; look-ups are our own loops; writing
 * is our own walk, because cJSON prints 2^53 as 9.00719925474099e+15 and bad UTF-8 as it is.
 *
 * A tree under construction that lost a node (no memory) carries LOST in the `type` of the object
 * or array that should have got it; cJSON uses the low ten bits and copies the rest. The writer
 * refuses such a tree.
 */
#include "base/json.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/json_scan.h"
#include "base/sys.h"
#include "base/utf8.h"

#define LOST (1 << 16)
#define NUMBER_BYTES 40
/* Parsed trees are at most 64 deep; replies wrap them in a few more. */
#define WRITE_DEPTH_MAX 128

static void *cjson_malloc(size_t n)
{
    return sys.malloc(n);
}

/* cJSON's allocations go through the table like ours. Before main: the hooks are a global of
 * cJSON's. */
__attribute__((constructor)) static void set_hooks(void)
{
    cJSON_InitHooks(&(cJSON_Hooks){.malloc_fn = cjson_malloc, .free_fn = free});
}

int json_parse(const char *text, size_t n, json **ret, struct err *e)
{
    int rc = json_scan(text, n, e);
    if (rc < 0)
        return rc;
    const char *end = NULL;
    cJSON *j = cJSON_ParseWithLengthOpts(text, n, &end, 0);
    if (!j) /* the text is right, so it can only be memory */
        return err_set(e, ERR_NOMEM, "out of memory for JSON of %zu bytes", n);
    size_t at = (size_t)(end - text);
    while (at < n && strchr(" \n\r\t", text[at]))
        at++;
    if (at != n) {
        cJSON_Delete(j);
        return err_set(e, ERR_INVAL, "offset %zu: something follows the value", at);
    }
    *ret = j;
    return 0;
}

void json_free(json *j)
{
    cJSON_Delete(j);
}

enum json_type json_type(const json *j)
{
    if (!j)
        return JSON_ABSENT;
    switch (j->type & 0xFF) {
    case cJSON_NULL:
        return JSON_NULL;
    case cJSON_False:
    case cJSON_True:
        return JSON_BOOL;
    case cJSON_Number:
    case cJSON_Raw: /* a large integer, by json_set_int */
        return JSON_NUMBER;
    case cJSON_String:
        return JSON_STRING;
    case cJSON_Array:
        return JSON_ARRAY;
    case cJSON_Object:
        return JSON_OBJECT;
    default:
        return JSON_ABSENT;
    }
}

const char *json_type_name(enum json_type t)
{
    switch (t) {
    case JSON_ABSENT:
        return "nothing";
    case JSON_NULL:
        return "null";
    case JSON_BOOL:
        return "boolean";
    case JSON_NUMBER:
        return "number";
    case JSON_STRING:
        return "string";
    case JSON_ARRAY:
        return "array";
    case JSON_OBJECT:
        return "object";
    }
    return "nothing";
}

static cJSON *find(const cJSON *from, const char *key)
{
    for (const cJSON *it = from; it; it = it->next)
        if (it->string && strcmp(it->string, key) == 0)
            return (cJSON *)it;
    return NULL;
}

const json *json_get(const json *object, const char *key, struct err *e)
{
    if (json_type(object) != JSON_OBJECT)
        return NULL;
    const cJSON *found = find(object->child, key);
    if (!found)
        return NULL;
    if (e && find(found->next, key)) {
        err_set(e, ERR_INVAL, "the key \"%s\" occurs twice", key);
        return NULL;
    }
    return json_type(found) == JSON_NULL ? NULL : found;
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The object's doubled key, or NULL. room: as many pointers as it has members. */
static const char *doubled_key(const cJSON *object, const char **room)
{
    size_t n = 0;
    for (const cJSON *it = object->child; it; it = it->next)
        room[n++] = it->string;
    qsort(room, n, sizeof(*room), compare_keys);
    for (size_t i = 1; i < n; i++)
        if (strcmp(room[i - 1], room[i]) == 0)
            return room[i];
    return NULL;
}

/* The number of members of the largest object, or the first doubled key: one walk over the tree,
 * without room only to measure. */
static size_t walk_objects(const cJSON *root, const char **room, const char **ret_key)
{
    const cJSON *up[JSON_DEPTH_MAX + 1];
    size_t most = 0;
    int depth = 0;
    for (const cJSON *it = root; it;) {
        if (json_type(it) == JSON_OBJECT) {
            size_t n = json_count(it);
            most = n > most ? n : most;
            if (room && (*ret_key = doubled_key(it, room)))
                return most;
        }
        if (json_first(it)) {
            assert(depth <= JSON_DEPTH_MAX);
            up[depth++] = it;
            it = json_first(it);
            continue;
        }
        while (depth > 0 && !it->next)
            it = up[--depth];
        it = depth > 0 ? it->next : NULL;
    }
    return most;
}

int json_check_keys(const json *j, const char **ret_key, struct err *e)
{
    const char *key = NULL;
    size_t n = walk_objects(j, NULL, NULL);
    if (n < 2)
        return 0;
    const char **room = sys.malloc(n * sizeof(*room));
    if (!room)
        return err_set(e, ERR_NOMEM, "out of memory for %zu keys", n);
    walk_objects(j, room, &key);
    free(room);
    if (!key)
        return 0;
    *ret_key = key;
    return err_set(e, ERR_INVAL, "the key \"%s\" occurs twice", key);
}

const json *json_first(const json *j)
{
    enum json_type t = json_type(j);
    return t == JSON_ARRAY || t == JSON_OBJECT ? j->child : NULL;
}

const json *json_next(const json *item)
{
    return item->next;
}

size_t json_count(const json *j)
{
    size_t n = 0;
    for (const json *it = json_first(j); it; it = json_next(it))
        n++;
    return n;
}

const char *json_key(const json *member)
{
    return member ? member->string : NULL;
}

const char *json_str(const json *j)
{
    return json_type(j) == JSON_STRING ? j->valuestring : NULL;
}

bool json_bool(const json *j)
{
    return j && (j->type & 0xFF) == cJSON_True;
}

double json_double(const json *j)
{
    if (json_type(j) != JSON_NUMBER)
        return 0;
    return (j->type & 0xFF) == cJSON_Raw ? strtod(j->valuestring, NULL) : j->valuedouble;
}

/* The shortest of %.15g … %.17g that reads back the same; whole numbers up to 2^53 as integers. Not
 * finite: null. */
static void number_text(double d, char ret[NUMBER_BYTES])
{
    if (!isfinite(d)) {
        snprintf(ret, NUMBER_BYTES, "null");
        return;
    }
    if (fabs(d) <= (double)(JSON_INT_MAX + 1) && floor(d) == d && !(d == 0 && signbit(d))) {
        snprintf(ret, NUMBER_BYTES, "%lld", (long long)d);
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(ret, NUMBER_BYTES, "%.*g", digits, d);
        if (strtod(ret, NULL) == d)
            break;
    }
    char *comma = strchr(ret, ','); /* a program may have set a locale */
    if (comma)
        *comma = '.';
}

int json_int(const json *j, const char *field, int64_t min, int64_t max, int64_t *ret,
             struct err *e)
{
    if (min < -JSON_INT_MAX)
        min = -JSON_INT_MAX;
    if (max > JSON_INT_MAX)
        max = JSON_INT_MAX;
    if (json_type(j) != JSON_NUMBER)
        return err_set(e, ERR_INVAL, "%s must be an integer, not %s", field,
                       json_type_name(json_type(j)));
    double d = json_double(j);
    char text[NUMBER_BYTES];
    number_text(d, text);
    if (!isfinite(d))
        return err_set(e, ERR_INVAL, "%s is not a finite number", field);
    if (floor(d) != d)
        return err_set(e, ERR_INVAL, "%s must be an integer; %s is not", field, text);
    if (d < (double)min || d > (double)max)
        return err_set(e, ERR_INVAL, "%s must be from %lld to %lld; it is %s", field,
                       (long long)min, (long long)max, text);
    *ret = (int64_t)d;
    return 0;
}

int json_num(const json *j, const char *field, double min, double max, double *ret, struct err *e)
{
    if (json_type(j) != JSON_NUMBER)
        return err_set(e, ERR_INVAL, "%s must be a number, not %s", field,
                       json_type_name(json_type(j)));
    double d = json_double(j);
    if (!isfinite(d))
        return err_set(e, ERR_INVAL, "%s is not a finite number", field);
    if (d < min || d > max) {
        char text[NUMBER_BYTES], low[NUMBER_BYTES], high[NUMBER_BYTES];
        number_text(d, text);
        number_text(min, low);
        number_text(max, high);
        return err_set(e, ERR_INVAL, "%s must be from %s to %s; it is %s", field, low, high, text);
    }
    *ret = d;
    return 0;
}

json *json_object(void)
{
    return cJSON_CreateObject();
}

json *json_array(void)
{
    return cJSON_CreateArray();
}

json *json_copy(const json *j)
{
    return j ? cJSON_Duplicate(j, true) : NULL;
}

json *json_set(json *object, const char *key, json *value)
{
    if (!object) {
        cJSON_Delete(value);
        return NULL;
    }
    assert(json_type(object) == JSON_OBJECT);
    if (value) {
        bool done = find(object->child, key)
                        ? cJSON_ReplaceItemInObjectCaseSensitive(object, key, value)
                        : cJSON_AddItemToObject(object, key, value);
        if (done && value->string)
            return value;
        if (!done) /* replacing with no memory for the key keeps the node, nameless: lost as well */
            cJSON_Delete(value);
    }
    object->type |= LOST;
    return NULL;
}

json *json_add(json *array, json *value)
{
    if (!array) {
        cJSON_Delete(value);
        return NULL;
    }
    assert(json_type(array) == JSON_ARRAY);
    if (value && cJSON_AddItemToArray(array, value))
        return value;
    cJSON_Delete(value);
    array->type |= LOST;
    return NULL;
}

/* Appends s with bad UTF-8 and NULs replaced by U+FFFD. */
static void repair(struct buf *b, const char *s, size_t n)
{
    while (n > 0) {
        const char *nul = memchr(s, 0, n);
        size_t len = nul ? (size_t)(nul - s) : n;
        utf8_repair(b, s, len);
        if (!nul)
            return;
        buf_str(b, "\xEF\xBF\xBD");
        s += len + 1;
        n -= len + 1;
    }
}

static json *string_node(const char *s, size_t n)
{
    struct buf b;
    buf_init(&b, SIZE_MAX);
    repair(&b, s, n);
    buf_add(&b, "", 0);
    json *j = buf_error(&b) ? NULL : cJSON_CreateString(b.data);
    buf_done(&b);
    return j;
}

static json *int_node(int64_t v)
{
    if (v >= -JSON_INT_MAX && v <= JSON_INT_MAX)
        return cJSON_CreateNumber((double)v);
    char text[NUMBER_BYTES];
    snprintf(text, sizeof(text), "%lld", (long long)v);
    return cJSON_CreateRaw(text);
}

static json *num_node(double v)
{
    return isfinite(v) ? cJSON_CreateNumber(v) : cJSON_CreateNull();
}

json *json_set_str(json *object, const char *key, const char *s)
{
    return json_set(object, key, string_node(s, strlen(s)));
}

json *json_set_strn(json *object, const char *key, const char *s, size_t n)
{
    return json_set(object, key, string_node(s, n));
}

json *json_set_int(json *object, const char *key, int64_t v)
{
    return json_set(object, key, int_node(v));
}

json *json_set_num(json *object, const char *key, double v)
{
    return json_set(object, key, num_node(v));
}

json *json_set_bool(json *object, const char *key, bool v)
{
    return json_set(object, key, cJSON_CreateBool(v));
}

json *json_set_null(json *object, const char *key)
{
    return json_set(object, key, cJSON_CreateNull());
}

json *json_add_str(json *array, const char *s)
{
    return json_add(array, string_node(s, strlen(s)));
}

json *json_add_int(json *array, int64_t v)
{
    return json_add(array, int_node(v));
}

json *json_add_num(json *array, double v)
{
    return json_add(array, num_node(v));
}

/* s: valid UTF-8 without NUL. */
static void write_escaped(struct buf *b, const char *s, size_t n)
{
    static const char short_form[32] = {
        ['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't'};
    size_t from = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        buf_add(b, s + from, i - from);
        from = i + 1;
        if (c >= 0x20)
            buf_printf(b, "\\%c", c);
        else if (short_form[c])
            buf_printf(b, "\\%c", short_form[c]);
        else
            buf_printf(b, "\\u%04x", c);
    }
    buf_add(b, s + from, n - from);
}

void json_write_str(struct buf *b, const char *s, size_t n)
{
    buf_char(b, '"');
    if (utf8_valid(s, n, NULL) && (n == 0 || !memchr(s, 0, n))) {
        write_escaped(b, s, n);
    } else {
        struct buf repaired;
        buf_init(&repaired, SIZE_MAX);
        repair(&repaired, s, n);
        if (buf_error(&repaired)) {
            if (!b->error)
                b->error = buf_error(&repaired);
        } else {
            write_escaped(b, repaired.data, repaired.len);
        }
        buf_done(&repaired);
    }
    buf_char(b, '"');
}

/* The walk's state: the chain of open arrays and objects down to the current node. */
struct walk {
    struct buf *b;
    bool is_pretty;
    int depth;
    const cJSON *open[WRITE_DEPTH_MAX];
};

static void new_line(struct walk *w)
{
    if (!w->is_pretty)
        return;
    buf_char(w->b, '\n');
    for (int i = 0; i < w->depth; i++)
        buf_str(w->b, "  ");
}

static void write_leaf(struct buf *b, const cJSON *j)
{
    char text[NUMBER_BYTES];
    switch (j->type & 0xFF) {
    case cJSON_False:
        buf_str(b, "false");
        break;
    case cJSON_True:
        buf_str(b, "true");
        break;
    case cJSON_Number:
        number_text(j->valuedouble, text);
        buf_str(b, text);
        break;
    case cJSON_Raw:
        buf_str(b, j->valuestring);
        break;
    case cJSON_String:
        json_write_str(b, j->valuestring, strlen(j->valuestring));
        break;
    default:
        buf_str(b, "null");
    }
}

static void fail(struct buf *b, int code)
{
    if (!b->error)
        b->error = code;
}

/* Writes the node's own text; opens it when it has children. Returns what comes next, or NULL when
 * the node is finished. */
static const cJSON *write_node(struct walk *w, const cJSON *j)
{
    if (w->depth > 0 && (w->open[w->depth - 1]->type & 0xFF) == cJSON_Object) {
        json_write_str(w->b, j->string, strlen(j->string));
        buf_str(w->b, w->is_pretty ? ": " : ":");
    }
    bool is_object = (j->type & 0xFF) == cJSON_Object;
    if (!is_object && (j->type & 0xFF) != cJSON_Array) {
        write_leaf(w->b, j);
        return NULL;
    }
    if (j->type & LOST)
        fail(w->b, ERR_NOMEM);
    if (!j->child) {
        buf_str(w->b, is_object ? "{}" : "[]");
        return NULL;
    }
    if (w->depth == WRITE_DEPTH_MAX) {
        fail(w->b, ERR_LIMIT);
        return NULL;
    }
    buf_char(w->b, is_object ? '{' : '[');
    w->open[w->depth++] = j;
    new_line(w);
    return j->child;
}

static void write_tree(const json *root, struct buf *b, bool is_pretty)
{
    if (!root) {
        fail(b, ERR_NOMEM);
        return;
    }
    struct walk w = {.b = b, .is_pretty = is_pretty};
    const cJSON *j = root;
    while (j && !buf_error(b)) {
        const cJSON *child = write_node(&w, j);
        if (child) {
            j = child;
            continue;
        }
        while (w.depth > 0 && !j->next) {
            j = w.open[--w.depth];
            new_line(&w);
            buf_char(b, (j->type & 0xFF) == cJSON_Object ? '}' : ']');
        }
        j = w.depth > 0 ? j->next : NULL;
        if (j) {
            buf_char(b, ',');
            new_line(&w);
        }
    }
}

void json_write(const json *j, struct buf *b)
{
    write_tree(j, b, false);
}

void json_write_pretty(const json *j, struct buf *b)
{
    write_tree(j, b, true);
}
