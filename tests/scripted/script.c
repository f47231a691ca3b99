/* From a script's JSON to rules (tests/scripted/script.h). Fields are checked like a request's: a
 * typo in a test's script is an error, not a default. */
#include "tests/scripted/script.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"

#define SCRIPT_BYTES_MAX ((size_t)4 << 20)
#define IDS_PER_RULE_MAX 65536

static const char default_template[] =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ "
    "'<|im_start|>system\nYou follow a script.<|im_end|>\n' }}"
    "{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + "
    "'\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

static int copy(const char *s, char **ret, struct err *e)
{
    char *p = strdup(s);
    if (!p) {
        return err_set(e, ERR_NOMEM, "out of memory for the script");
    }
    *ret = p;
    return 0;
}

static int check_keys(const json *object, const char *const *known, const char *what, struct err *e)
{
    for (const json *m = json_first(object); m; m = json_next(m)) {
        size_t i = 0;
        while (known[i] && strcmp(known[i], json_key(m)) != 0) {
            i++;
        }
        if (!known[i]) {
            return err_set(e, ERR_INVAL, "%s has no field \"%s\"", what, json_key(m));
        }
    }
    return 0;
}

struct int_field {
    const char *name;
    int64_t min, max;
    int64_t *value; /* holds the default */
};

static int read_ints(const json *object, const struct int_field *fields, size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        const json *j = json_get(object, fields[i].name, NULL);
        const int rc =
            j ? json_int(j, fields[i].name, fields[i].min, fields[i].max, fields[i].value, e) : 0;
        if (rc) {
            return rc;
        }
    }
    return 0;
}

static int one_id(const json *item, const char *kind, struct vocab *v, int32_t *ret, struct err *e)
{
    int64_t id = 0;
    int rc;
    if (!strcmp(kind, "pieces")) {
        const char *s = json_str(item);
        return s ? vocab_add(v, s, strlen(s), ret, e)
                 : err_set(e, ERR_INVAL, "\"pieces\" must hold strings");
    }
    rc = json_int(item, "ids", 0, vocab_size(v) - 1, &id, e);
    if (!rc) {
        *ret = (int32_t)id;
    }
    return rc;
}

/* "bytes": two hex digits a token. */
static int read_bytes(const char *hex, struct rule *r, struct err *e)
{
    const size_t n = strlen(hex) / 2;
    unsigned char *bytes = malloc(n + 1);
    int rc = 0;
    r->ids = calloc(n + 1, sizeof *r->ids);
    if (!bytes || !r->ids) {
        rc = err_set(e, ERR_NOMEM, "out of memory for the script");
    } else if (!n || n > IDS_PER_RULE_MAX || !hex_parse(hex, strlen(hex), bytes, n)) {
        rc = err_set(e, ERR_INVAL, "\"bytes\" must be an even number of hex digits");
    } else {
        for (size_t i = 0; i < n; i++) {
            r->ids[i] = bytes[i];
        }
        r->n_ids = (int64_t)n;
    }
    free(bytes);
    return rc;
}

static int read_answer(const json *j, struct vocab *v, struct rule *r, struct err *e)
{
    const json *pieces = json_get(j, "pieces", NULL), *ids = json_get(j, "ids", NULL),
               *bytes = json_get(j, "bytes", NULL);
    const json *list = pieces ? pieces : ids;
    if ((pieces != NULL) + (ids != NULL) + (bytes != NULL) > 1) {
        return err_set(e, ERR_INVAL,
                       "only one of \"pieces\", \"ids\" and \"bytes\" can be the answer");
    }
    if (bytes) {
        return json_str(bytes) ? read_bytes(json_str(bytes), r, e)
                               : err_set(e, ERR_INVAL, "\"bytes\" must be a string");
    }
    if (!list) {
        return 0; /* an empty answer: the end of generation at once */
    }
    if (json_type(list) != JSON_ARRAY || json_count(list) > IDS_PER_RULE_MAX) {
        return err_set(e, ERR_INVAL, "an answer must be an array of at most %d items",
                       IDS_PER_RULE_MAX);
    }
    r->ids = calloc(json_count(list) + 1, sizeof *r->ids);
    if (!r->ids) {
        return err_set(e, ERR_NOMEM, "out of memory for the script");
    }
    for (const json *it = json_first(list); it; it = json_next(it)) {
        const int rc = one_id(it, pieces ? "pieces" : "ids", v, &r->ids[r->n_ids], e);
        if (rc) {
            return rc;
        }
        r->n_ids++;
    }
    return 0;
}

static int read_rule(const json *j, bool is_default, struct vocab *v, struct rule *r, struct err *e)
{
    static const char *const known[] = {"when",    "pieces", "ids",    "bytes",      "repeat",
                                        "then",    "nan_at", "inf_at", "all_nan_at", "error_at",
                                        "hang_at", "bad_id", "spread", NULL};
    const int64_t most = INT32_MAX;
    *r = (struct rule){
        .repeat = 1, .nan_at = -1, .inf_at = -1, .all_nan_at = -1, .error_at = -1, .hang_at = -1};
    const struct int_field ints[] = {
        {"repeat", 1, most, &r->repeat},         {"nan_at", 0, most, &r->nan_at},
        {"inf_at", 0, most, &r->inf_at},         {"all_nan_at", 0, most, &r->all_nan_at},
        {"error_at", 0, most, &r->error_at},     {"hang_at", 0, most, &r->hang_at},
        {"bad_id", 0, VOCAB_MAX - 1, &r->bad_id}};
    const char *when = json_str(json_get(j, "when", NULL));
    const json *then = json_get(j, "then", NULL);
    if (json_type(j) != JSON_OBJECT || (is_default ? when != NULL : !when || !*when)) {
        return err_set(
            e, ERR_INVAL,
            "a rule must be an object with a \"when\" that isn't empty; the default has none");
    }
    int rc = check_keys(j, known, "a rule", e);
    if (!rc) {
        rc = read_ints(j, ints, sizeof ints / sizeof *ints, e);
    }
    if (!rc && when) {
        rc = copy(when, &r->when, e);
    }
    if (!rc) {
        rc = read_answer(j, v, r, e);
    }
    if (rc) {
        return rc;
    }
    r->is_spread = json_bool(json_get(j, "spread", NULL));
    r->is_endless = then && json_str(then) && !strcmp(json_str(then), "forever");
    if (then && !r->is_endless && (!json_str(then) || strcmp(json_str(then), "eog") != 0)) {
        return err_set(e, ERR_INVAL, "\"then\" must be \"eog\" or \"forever\"");
    }
    return r->is_endless && !r->n_ids ? err_set(e, ERR_INVAL, "an empty answer can't go on forever")
                                      : 0;
}

static int read_rules(const json *j, struct vocab *v, struct script *s, struct err *e)
{
    const json *rules = json_get(j, "rules", NULL), *fallback = json_get(j, "default", NULL);
    int rc = 0;
    if (rules && json_type(rules) != JSON_ARRAY) {
        return err_set(e, ERR_INVAL, "\"rules\" must be an array");
    }
    s->rules = calloc(json_count(rules) + 1, sizeof *s->rules);
    if (!s->rules) {
        return err_set(e, ERR_NOMEM, "out of memory for the script");
    }
    for (const json *it = json_first(rules); it && !rc; it = json_next(it)) {
        rc = read_rule(it, false, v, &s->rules[s->n_rules++], e);
    }
    if (rc) {
        return rc;
    }
    struct rule *last = &s->rules[s->n_rules++];
    if (fallback) {
        return read_rule(fallback, true, v, last, e);
    }
    *last = (struct rule){
        .repeat = 1, .nan_at = -1, .inf_at = -1, .all_nan_at = -1, .error_at = -1, .hang_at = -1};
    return 0;
}

/* "6162 63": the bytes of both sides, in hex. */
static int read_merge(const json *item, struct vocab *v, struct err *e)
{
    unsigned char left[VOCAB_PIECE_BYTES_MAX], right[VOCAB_PIECE_BYTES_MAX];
    const char *s = json_str(item), *gap = s ? strchr(s, ' ') : NULL;
    const size_t n_left = gap ? (size_t)(gap - s) / 2 : 0, n_right = gap ? strlen(gap + 1) / 2 : 0;
    if (!n_left || !n_right || n_left + n_right > VOCAB_PIECE_BYTES_MAX ||
        !hex_parse(s, (size_t)(gap - s), left, n_left) ||
        !hex_parse(gap + 1, strlen(gap + 1), right, n_right)) {
        return err_set(e, ERR_INVAL, "a merge must be two strings of hex digits, and a space");
    }
    return vocab_merge(v, (struct tok_str){(const char *)left, n_left},
                       (struct tok_str){(const char *)right, n_right}, e);
}

static int read_top(const json *j, struct vocab *v, struct script *s, struct err *e)
{
    static const char *const known[] = {"ctx",     "pace_us",       "prefill_us_per_token",
                                        "load_ms", "kv_layers",     "weights_bytes",
                                        "weights", "chat_template", "vocab",
                                        "merges",  "rules",         "default",
                                        NULL};
    const struct int_field ints[] = {
        {"ctx", 1, 1 << 20, &s->ctx},
        {"pace_us", 0, 60000000, &s->pace_us},
        {"prefill_us_per_token", 0, 60000000, &s->prefill_us_per_token},
        {"load_ms", 0, 60000, &s->load_ms},
        {"kv_layers", 1, 4096, &s->n_layers},
        {"weights_bytes", 0, JSON_INT_MAX, &s->weights_bytes}};
    if (json_type(j) != JSON_OBJECT) {
        return err_set(e, ERR_INVAL, "a script must be an object");
    }
    int rc = check_keys(j, known, "a script", e);
    if (!rc) {
        rc = read_ints(j, ints, sizeof ints / sizeof *ints, e);
    }
    const char *weights = json_str(json_get(j, "weights", NULL)),
               *text = json_str(json_get(j, "chat_template", NULL));
    if (!rc) {
        rc = copy(weights ? weights : "", &s->weights, e);
    }
    if (!rc && !(text && !*text)) { /* "": a model without a template */
        rc = copy(text ? text : default_template, &s->template_text, e);
    }
    for (const json *it = json_first(json_get(j, "vocab", NULL)); it && !rc; it = json_next(it)) {
        int32_t id;
        rc = one_id(it, "pieces", v, &id, e);
    }
    for (const json *it = json_first(json_get(j, "merges", NULL)); it && !rc; it = json_next(it)) {
        rc = read_merge(it, v, e);
    }
    return rc ? rc : read_rules(j, v, s, e);
}

int script_read(const char *path, struct vocab *v, struct script **ret, struct err *e)
{
    struct buf b;
    json *j = NULL;
    struct script *s = calloc(1, sizeof *s);
    int rc;
    buf_init(&b, SCRIPT_BYTES_MAX);
    if (!s) {
        return err_set(e, ERR_NOMEM, "out of memory for the script");
    }
    *s = (struct script){.ctx = 8192, .n_layers = 1, .weights_bytes = 1 << 20};
    rc = file_read(path, &b, e);
    if (rc) {
        goto done; /* the text names the file */
    }
    rc = json_parse(b.data ? b.data : "", b.len, &j, e);
    if (!rc) {
        rc = read_top(j, v, s, e);
    }
    if (rc) {
        err_prefix(e, "%s", path);
    }
done:
    json_free(j);
    buf_done(&b);
    if (rc) {
        script_free(s);
        return rc;
    }
    *ret = s;
    return 0;
}

void script_free(struct script *s)
{
    if (!s) {
        return;
    }
    for (size_t i = 0; i < s->n_rules; i++) {
        free(s->rules[i].when);
        free(s->rules[i].ids);
    }
    free(s->rules);
    free(s->weights);
    free(s->template_text);
    free(s);
}

const struct rule *script_find(const struct script *s, const char *text, size_t n, size_t *ret_end)
{
    for (size_t i = 0; i + 1 < s->n_rules; i++) {
        const size_t n_when = strlen(s->rules[i].when);
        const char *at = n ? memmem(text, n, s->rules[i].when, n_when) : NULL;
        if (at) {
            *ret_end = (size_t)(at - text) + n_when;
            return &s->rules[i];
        }
    }
    *ret_end = 0;
    return &s->rules[s->n_rules - 1];
}

int32_t script_id(const struct rule *r, int64_t k)
{
    if (!r->n_ids || (!r->is_endless && k / r->n_ids >= r->repeat)) {
        return VOCAB_IM_END;
    }
    return r->ids[k % r->n_ids];
}
