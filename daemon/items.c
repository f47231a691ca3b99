/*
 * Items: see items.h.
 */
#include "daemon/items.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/body.h"
#include "daemon/limits.h"
#include "daemon/prepare.h"

#define PAGE_DEFAULT 20
#define SHOWN_BYTES 64
#define METADATA_BYTES (64u << 10) /* 16 × (64 + 512) characters of up to 6 bytes each fit */

int items_error(struct http_error *ret, const struct err *e, const char *param)
{
    http_error_from(ret, e);
    if (ret->status == 400 || ret->status == 404)
        ret->param = param;
    return e->code;
}

/* ---- in ---- */

static int check_type(const json *item, const char *field, struct http_error *ret)
{
    char name[SHOWN_BYTES + 8];
    const char *type = NULL;
    snprintf(name, sizeof(name), "%s.type", field);
    int rc = body_str(item, "type", name, &type, ret);
    if (rc || !type || strcmp(type, "message") == 0)
        return rc;
    return body_refused(ret, "unsupported_parameter", name,
                        "%s: items of type \"%.*s\" are not supported; \"message\" is", name,
                        SHOWN_BYTES, type);
}

/* How an answer ended and who wrote it, as exports tell it; a person's words have neither. */
static int parse_answer(const json *item, const char *field, struct arena *a,
                        struct memory_new_message *m, struct http_error *ret)
{
    char name[SHOWN_BYTES + 16];
    const char *status = NULL, *model = NULL;
    const json *hearth = NULL;
    int rc;
    snprintf(name, sizeof(name), "%s.status", field);
    if ((rc = body_str(item, "status", name, &status, ret)) ||
        (rc = body_object(item, "hearth", &hearth, ret)))
        return rc;
    bool is_whole = !status || strcmp(status, "completed") == 0;
    if (!is_whole && strcmp(status, "incomplete") != 0 && strcmp(status, "in_progress") != 0)
        return body_refused(ret, "invalid_value", name,
                            "%s: \"%.*s\" is none of completed, incomplete, in_progress", name,
                            SHOWN_BYTES, status);
    m->status = is_whole ? MEMORY_COMPLETE : MEMORY_INTERRUPTED;
    snprintf(name, sizeof(name), "%s.hearth.model", field);
    if (hearth && (rc = body_str(hearth, "model", name, &model, ret)))
        return rc;
    m->model = model ? arena_str(a, model) : NULL;
    return model && !m->model ? http_out_of_memory(ret, "the request") : 0;
}

/* ---- thoughts ---- */

/* How a thought without marks is written. */
#define BEFORE "<think>\n"
#define BETWEEN "\n</think>\n\n"

static bool is_thought_part(const json *part)
{
    const char *type = json_str(json_get(part, "type", NULL));
    return type && strcmp(type, "reasoning_text") == 0;
}

static int thinking_marks(const json *item, const char *field, const char **ret_before,
                          const char **ret_between, struct http_error *ret)
{
    char name[SHOWN_BYTES + 32];
    const json *hearth = NULL, *thinking = NULL;
    snprintf(name, sizeof(name), "%s.hearth.thinking", field);
    int rc = body_object(item, "hearth", &hearth, ret);
    *ret_before = *ret_between = NULL;
    if (rc == 0 && hearth)
        rc = body_object(hearth, "thinking", &thinking, ret);
    if (rc == 0 && thinking)
        rc = body_str(thinking, "before", name, ret_before, ret);
    if (rc == 0 && thinking)
        rc = body_str(thinking, "between", name, ret_between, ret);
    return rc;
}

/* An item while it is read. */
struct reading {
    const char *field; /* "input[3]" */
    struct arena *a;
    const char *thought; /* of an item of its own before it; NULL: none */
};

/* The answer's thought: its first part, or an item of its own. */
static int own_thought(const json *item, const struct reading *r, const char **ret_thought,
                       struct http_error *ret)
{
    const json *content = json_get(item, "content", NULL);
    const json *first = json_type(content) == JSON_ARRAY ? json_first(content) : NULL;
    *ret_thought = r->thought;
    if (!first || !is_thought_part(first))
        return 0;
    if (r->thought)
        return body_refused(ret, "invalid_value", r->field,
                            "%s has a thought, and so has the item before it", r->field);
    *ret_thought = json_str(json_get(first, "text", NULL));
    return *ret_thought ? 0
                        : body_refused(ret, "invalid_value", r->field, "%s: a part without text",
                                       r->field);
}

/* An answer as it was stored: what its thought had around it comes back. */
static int join_thought(const json *item, const struct reading *r, struct body_text *answer,
                        struct http_error *ret)
{
    const char *before, *between, *thought;
    int rc = thinking_marks(item, r->field, &before, &between, ret);
    if (rc == 0)
        rc = own_thought(item, r, &thought, ret);
    if (rc || (!thought && !before))
        return rc;
    before = before ? before : BEFORE;
    between = between ? between : thought ? BETWEEN : "";
    thought = thought ? thought : "";
    const size_t n[] = {strlen(before), strlen(thought), strlen(between), answer->n};
    const char *const parts[] = {before, thought, between, answer->s ? answer->s : ""};
    char *s = arena_alloc(r->a, n[0] + n[1] + n[2] + n[3] + 1), *at = s;
    if (!s)
        return http_out_of_memory(ret, "the request");
    for (size_t i = 0; i < 4; at += n[i], i++)
        memcpy(at, parts[i], n[i]);
    *answer = (struct body_text){s, (size_t)(at - s)};
    return 0;
}

static bool is_thought_item(const json *item)
{
    const char *type = json_str(json_get(item, "type", NULL));
    return type && strcmp(type, "reasoning") == 0;
}

/* An item of type reasoning, as responses have it. What is encrypted in it can't be read here. */
static int parse_thought(const json *item, const struct reading *r, const char **ret_thought,
                         struct http_error *ret)
{
    char name[SHOWN_BYTES];
    const char *encrypted = NULL;
    const json *content = NULL;
    struct buf b;
    snprintf(name, sizeof(name), "%.39s.content", r->field);
    int rc = body_array(item, "content", &content, ret);
    if (rc == 0)
        rc = body_str(item, "encrypted_content", "encrypted_content", &encrypted, ret);
    if (rc == 0 && encrypted)
        rc = body_refused(ret, "unsupported_parameter", r->field,
                          "%s: an encrypted thought can't be read by this server", r->field);
    if (rc)
        return rc;
    buf_init(&b, LIMIT_BODY_BYTES);
    for (const json *it = json_first(content); it && rc == 0; it = json_next(it)) {
        const char *text = json_str(json_get(it, "text", NULL));
        if (is_thought_part(it) && text)
            buf_str(&b, text);
        else
            rc = body_refused(ret, "unsupported_parameter", name,
                              "%s: parts of type reasoning_text, with text, are expected", name);
    }
    *ret_thought = b.len > 0 ? arena_copy(r->a, b.data, b.len) : NULL;
    if (rc == 0 && (buf_error(&b) || (b.len > 0 && !*ret_thought)))
        rc = http_out_of_memory(ret, "the request");
    buf_done(&b);
    return rc;
}

static int parse_one(const json *item, const struct reading *r, struct memory_new_message *ret,
                     struct http_error *ret_error)
{
    const char *field = r->field;
    struct body_text text;
    enum chat_role role = CHAT_NONE;
    int rc;
    if ((rc = check_type(item, field, ret_error)) ||
        (rc = body_role(item, field, &role, ret_error)) ||
        (rc = body_refuse_in_message(item, field, role, ret_error)) ||
        (rc = body_content(item, field, r->a, &text, ret_error)))
        return rc;
    if (!text.s && role != CHAT_ASSISTANT)
        return body_refused(ret_error, "invalid_value", field, "%s has no content", field);
    if (role != CHAT_ASSISTANT && r->thought)
        return body_refused(ret_error, "invalid_value", field,
                            "%s: a thought comes before an answer", field);
    const struct body_text answer = text;
    if (role == CHAT_ASSISTANT && (rc = join_thought(item, r, &text, ret_error)))
        return rc;
    *ret = (struct memory_new_message){
        .role = prepare_role(role),
        .text = text.s ? text.s : "",
        .n_text = text.n,
        .status = MEMORY_STORED,
        .is_opened = text.s != answer.s, /* without marks of its own it is all thought */
    };
    return role == CHAT_ASSISTANT ? parse_answer(item, field, r->a, ret, ret_error) : 0;
}

int items_parse(const json *array, const struct items_rule *rule, struct arena *a,
                struct items *ret, struct http_error *ret_error)
{
    char name[SHOWN_BYTES];
    struct reading r = {.field = name, .a = a};
    size_t n = json_count(array), n_messages = 0, i = 0;
    if (n > rule->max)
        return body_refused(ret_error, "invalid_value", rule->field,
                            "%s: %zu items, at most %zu are taken", rule->field, n, rule->max);
    struct memory_new_message *v = arena_array(a, n, sizeof(*v));
    if (!v)
        return http_out_of_memory(ret_error, "the request");
    for (const json *it = json_first(array); it; it = json_next(it), i++) {
        snprintf(name, sizeof(name), "%s[%zu]", rule->field, i);
        int rc;
        if (json_type(it) != JSON_OBJECT)
            return body_refused(ret_error, "invalid_type", name, "%s: object expected, %s given",
                                name, json_type_name(json_type(it)));
        if (is_thought_item(it) && !r.thought) {
            rc = parse_thought(it, &r, &r.thought, ret_error);
        } else if ((rc = parse_one(it, &r, &v[n_messages], ret_error)) == 0) {
            r.thought = NULL;
            n_messages++;
        }
        if (rc)
            return rc;
    }
    if (r.thought)
        return body_refused(ret_error, "invalid_value", name,
                            "%s: a thought comes before an answer", name);
    *ret = (struct items){.v = v, .n = n_messages};
    return 0;
}

int items_of_text(const char *text, struct arena *a, struct items *ret,
                  struct http_error *ret_error)
{
    size_t n = strlen(text);
    struct memory_new_message *v = arena_array(a, 1, sizeof(*v));
    char *copy = arena_copy(a, text, n);
    if (!v || !copy)
        return http_out_of_memory(ret_error, "the request");
    *v = (struct memory_new_message){
        .role = MEMORY_USER, .text = copy, .n_text = n, .status = MEMORY_STORED};
    *ret = (struct items){.v = v, .n = 1};
    return 0;
}

/* ---- out ---- */

static const char *role_name(enum memory_role role)
{
    switch (role) {
    case MEMORY_SYSTEM:
        return "system";
    case MEMORY_ASSISTANT:
        return "assistant";
    case MEMORY_USER:
        break;
    }
    return "user";
}

static const char *item_status(enum memory_status status)
{
    switch (status) {
    case MEMORY_GENERATING:
        return "in_progress";
    case MEMORY_INTERRUPTED:
    case MEMORY_FAILED:
        return "incomplete";
    default:
        return "completed";
    }
}

/* More exact than OpenAI's three words. */
static const char *own_status(enum memory_status status)
{
    static const char *const names[] = {[MEMORY_STORED] = "stored",
                                        [MEMORY_GENERATING] = "generating",
                                        [MEMORY_COMPLETE] = "complete",
                                        [MEMORY_INTERRUPTED] = "interrupted",
                                        [MEMORY_FAILED] = "failed"};
    return names[status];
}

/* What was begun as a thought ends at the closing mark of whichever model wrote it; without one it
 * is thought to its end, as it was streamed. */
static void split_opened(const struct memory_message *m, struct chat_split *ret)
{
    const struct chat_think *k;
    for (size_t i = 0; (k = chat_think_row(i)) != NULL; i++)
        if (chat_think_split(k, m->text, m->n_text, ret))
            return;
    chat_think_all(m->text, m->n_text, ret);
}

/* An answer's parts; false: no thought is in it. */
static bool find_thought(const struct memory_message *m, const struct chat_think *marks,
                         struct chat_split *ret)
{
    const struct chat_think *k;
    if (m->role != MEMORY_ASSISTANT || m->n_text == 0)
        return false;
    for (size_t i = 0; (k = chat_think_row(i)) != NULL; i++)
        if (chat_think_opens(k, m->text, m->n_text))
            return chat_think_split(k, m->text, m->n_text, ret);
    if (marks && chat_think_split(marks, m->text, m->n_text, ret))
        return true;
    if (m->is_opened)
        split_opened(m, ret);
    return m->is_opened;
}

void item_set_marks(json *hearth, const char *text, const struct chat_split *split)
{
    const bool is_empty = split->n_thought == 0;
    const char *begin = is_empty ? split->answer : split->thought;
    const char *end = begin + (is_empty ? 0 : split->n_thought);
    json *thinking = json_set(hearth, "thinking", json_object());
    json_set_strn(thinking, "before", text, (size_t)(begin - text));
    json_set_strn(thinking, "between", end, (size_t)(split->answer - end));
}

/* The thought as a part of its own, and what stood around it. */
static void set_thought(json *content, json *hearth, const struct memory_message *m,
                        const struct chat_split *split)
{
    item_set_marks(hearth, m->text, split);
    if (split->n_thought == 0)
        return;
    json *part = json_add(content, json_object());
    json_set_str(part, "type", "reasoning_text");
    json_set_strn(part, "text", split->thought, split->n_thought);
}

json *item_json(const struct memory_message *m, const struct chat_think *marks)
{
    struct chat_split split = {.answer = m->text, .n_answer = m->n_text};
    bool is_answer = m->role == MEMORY_ASSISTANT;
    const bool has_thought = find_thought(m, marks, &split);
    json *o = json_object();
    json_set_str(o, "id", m->id);
    json_set_str(o, "type", "message");
    json_set_str(o, "role", role_name(m->role));
    /* An answer that its token limit ended is as incomplete here as it was in its response. */
    bool is_cut = m->status == MEMORY_COMPLETE && strcmp(m->finish, "length") == 0;
    json_set_str(o, "status", is_cut ? "incomplete" : item_status(m->status));
    json *content = json_set(o, "content", json_array()), *hearth = json_object();
    if (has_thought)
        set_thought(content, hearth, m, &split);
    json *part = json_add(content, json_object());
    json_set_str(part, "type", is_answer ? "output_text" : "input_text");
    json_set_strn(part, "text", split.answer, split.n_answer);
    if (is_answer) {
        json_set(part, "annotations", json_array());
        json_set(part, "logprobs", json_array());
    }
    json_set(o, "hearth", hearth);
    json_set_int(hearth, "created_at", m->created_at);
    json_set_str(hearth, "status", own_status(m->status));
    if (is_answer && *m->model)
        json_set_str(hearth, "model", m->model);
    if (is_answer && *m->finish)
        json_set_str(hearth, "finish", m->finish);
    return o;
}

json *list_json(json *data, bool has_more)
{
    json *o = json_object();
    const json *last = NULL;
    json_set_str(o, "object", "list");
    json_set(o, "data", data);
    for (const json *it = json_first(data); it; it = json_next(it))
        last = it;
    const char *first_id = json_str(json_get(json_first(data), "id", NULL));
    const char *last_id = json_str(json_get(last, "id", NULL));
    /* Strings in OpenAI's schema, so not null when the list is empty. */
    json_set_str(o, "first_id", first_id ? first_id : "");
    json_set_str(o, "last_id", last_id ? last_id : "");
    json_set_bool(o, "has_more", has_more);
    return o;
}

/* ---- pages ---- */

/* A query parameter in the arena, or NULL. */
static int query(const struct request *r, const char *name, struct arena *a, const char **ret,
                 struct http_error *ret_error)
{
    char *value = NULL;
    int rc = request_query(r, name, &value);
    *ret = NULL;
    if (rc == ERR_NOTFOUND)
        return 0;
    if (rc == ERR_NOMEM)
        return http_out_of_memory(ret_error, "the request");
    if (rc)
        return body_refused(ret_error, "invalid_value", name, "%s: the query can't be read", name);
    *ret = arena_str(a, value);
    free(value);
    return *ret ? 0 : http_out_of_memory(ret_error, "the request");
}

static int page_limit(const char *text, int *ret, struct http_error *ret_error)
{
    size_t n = strspn(text, "0123456789"); /* strtol would take "+5" and " 5" as well */
    errno = 0;
    long v = strtol(text, NULL, 10);
    if (errno || text[n] || n == 0 || v < 1 || v > MEMORY_PAGE_MAX)
        return body_refused(ret_error, "invalid_value", "limit",
                            "limit: \"%.*s\" is not a whole number from 1 to %d", SHOWN_BYTES, text,
                            MEMORY_PAGE_MAX);
    *ret = (int)v;
    return 0;
}

int items_page(const struct request *r, struct arena *a, struct memory_page *ret,
               struct http_error *ret_error)
{
    const char *limit, *order, *after;
    struct memory_page page = {.limit = PAGE_DEFAULT};
    int rc;
    if ((rc = query(r, "limit", a, &limit, ret_error)) ||
        (rc = query(r, "order", a, &order, ret_error)) ||
        (rc = query(r, "after", a, &after, ret_error)))
        return rc;
    if (limit && (rc = page_limit(limit, &page.limit, ret_error)))
        return rc;
    if (order && strcmp(order, "asc") != 0 && strcmp(order, "desc") != 0)
        return body_refused(ret_error, "invalid_value", "order",
                            "order: \"%.*s\" is neither asc nor desc", SHOWN_BYTES, order);
    page.is_ascending = order && strcmp(order, "asc") == 0;
    page.after = after && *after ? after : NULL;
    *ret = page;
    return 0;
}

/* ---- metadata ---- */

static size_t n_chars(const char *s)
{
    size_t n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

static int check_pair(const json *member, struct http_error *ret)
{
    const char *key = json_key(member);
    if (json_type(member) != JSON_STRING)
        return body_refused(ret, "invalid_type", "metadata",
                            "metadata: \"%.*s\" is a %s; strings are taken", SHOWN_BYTES, key,
                            json_type_name(json_type(member)));
    if (n_chars(key) > LIMIT_METADATA_KEY)
        return body_refused(ret, "invalid_value", "metadata",
                            "metadata: a key of %zu characters; at most %d are taken", n_chars(key),
                            LIMIT_METADATA_KEY);
    if (n_chars(json_str(member)) > LIMIT_METADATA_VALUE)
        return body_refused(
            ret, "invalid_value", "metadata",
            "metadata: the value of \"%.*s\" has %zu characters; at most %d are taken", SHOWN_BYTES,
            key, n_chars(json_str(member)), LIMIT_METADATA_VALUE);
    return 0;
}

int metadata_parse(const json *o, struct arena *a, const char **ret, struct http_error *ret_error)
{
    const json *map = NULL;
    struct buf b;
    int rc = body_object(o, "metadata", &map, ret_error);
    *ret = NULL;
    if (rc || !map)
        return rc;
    if (json_count(map) > LIMIT_METADATA_PAIRS)
        return body_refused(ret_error, "invalid_value", "metadata",
                            "metadata: %zu pairs, at most %d are taken", json_count(map),
                            LIMIT_METADATA_PAIRS);
    for (const json *it = json_first(map); it; it = json_next(it))
        if ((rc = check_pair(it, ret_error)))
            return rc;
    buf_init(&b, METADATA_BYTES);
    json_write(map, &b);
    *ret = buf_error(&b) ? NULL : arena_copy(a, b.data, b.len);
    buf_done(&b);
    return *ret ? 0 : http_out_of_memory(ret_error, "the request");
}

json *metadata_json(const char *text)
{
    json *j = NULL;
    struct err ignored;
    if (text && json_parse(text, strlen(text), &j, &ignored) == 0)
        return j;
    return json_object();
}
