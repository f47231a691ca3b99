/*
 * Four formats, told apart by the one list that a line holds:
 *
 *     "messages"       [{"role": "system"|"developer"|"user"|"assistant", "content": TEXT}…]
 *                      OpenAI's lists, and our own export ("object": "hearth.conversation")
 *     "conversations"  [{"from": "system"|"human"|"user"|"gpt"|"chatgpt"|"assistant",
 *                        "value": TEXT}…]                                           ShareGPT
 *     "turns"          [TEXT…], with "reference": [TEXT…], the answers to them      MT-Bench
 *
 * TEXT is a string, or OpenAI's list of text parts. What can't be played as it was (tools, images,
 * another role) is refused: a replay without it would be another conversation.
 */
#include "client/replay_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "client/jsonl.h"

#define TEXT_MAX ((size_t)64 << 20)
#define NAME_BYTES 200

/* ---- turns ---- */

size_t replay_question_end(const struct replay_conversation *c, size_t at)
{
    bool has_user = false;
    for (; at < c->n_messages; at++) {
        const struct replay_message *m = &c->messages[at];
        if (has_user && m->role == REPLAY_ASSISTANT)
            break;
        has_user = has_user || m->role == REPLAY_USER;
        if (m->is_asked)
            return at + 1;
    }
    return has_user ? at : 0;
}

size_t replay_answer_end(const struct replay_conversation *c, size_t at)
{
    while (at < c->n_messages && c->messages[at].role == REPLAY_ASSISTANT)
        at++;
    return at;
}

const char *replay_role_name(enum replay_role r)
{
    static const char *const names[] = {"system", "user", "assistant"};
    return names[r];
}

static size_t count_turns(const struct replay_conversation *c)
{
    size_t n = 0;
    for (size_t at = 0; (at = replay_question_end(c, at)); at = replay_answer_end(c, at))
        n++;
    return n;
}

/* ---- messages ---- */

/* Where a text stands, for errors: "messages[3].content". */
struct place {
    char text[80];
};

static struct place place_of(const char *list, size_t i, const char *field)
{
    struct place p;
    snprintf(p.text, sizeof p.text, field ? "%s[%zu].%s" : "%s[%zu]", list, i, field);
    return p;
}

/* json_get whose doubled key is an error. */
static int get(const json *object, const char *key, const json **ret, struct err *e)
{
    struct err doubled = {0};
    *ret = json_get(object, key, &doubled);
    return doubled.code ? err_set(e, doubled.code, "%s", doubled.text) : 0;
}

static int add_part(const json *part, const char *where, struct buf *b, struct err *e)
{
    const char *type = json_str(json_get(part, "type", NULL)),
               *text = json_str(json_get(part, "text", NULL));
    if (type && strcmp(type, "text") && strcmp(type, "input_text") && strcmp(type, "output_text"))
        return err_set(e, ERR_UNSUPPORTED, "%s: a part of type '%s'; only text can be played",
                       where, type);
    if (!text)
        return err_set(e, ERR_INVAL, "%s: a part without \"text\"", where);
    buf_str(b, text);
    return 0;
}

/* A string or a list of text parts. *ret: allocated. */
static int read_text(const json *j, const char *where, char **ret, struct err *e)
{
    struct buf b;
    buf_init(&b, TEXT_MAX);
    buf_str(&b, "");
    int r = 0;
    if (json_str(j))
        buf_str(&b, json_str(j));
    else if (json_type(j) != JSON_ARRAY)
        r = err_set(e, ERR_INVAL, "%s is %s; a text is wanted", where,
                    j ? json_type_name(json_type(j)) : "missing");
    else
        for (const json *part = json_first(j); part && !r; part = json_next(part))
            r = add_part(part, where, &b, e);
    if (!r && buf_error(&b))
        r = err_set(e, buf_error(&b), "%s: %s (a text has at most %zu bytes)", where,
                    err_name(buf_error(&b)), TEXT_MAX);
    if (!r)
        *ret = buf_take(&b, NULL);
    buf_done(&b);
    return r;
}

/* There is room: messages are counted before. */
static int add_message(struct replay_conversation *c, enum replay_role role, const json *text,
                       const char *where, struct err *e)
{
    struct replay_message *m = &c->messages[c->n_messages];
    int r = read_text(text, where, &m->text, e);
    if (r)
        return r;
    m->role = role;
    c->n_bytes += strlen(m->text);
    c->n_messages++;
    return 0;
}

static int make_room(struct replay_conversation *c, size_t n, struct err *e)
{
    c->messages = calloc(n ? n : 1, sizeof *c->messages);
    return c->messages ? 0 : err_set(e, ERR_NOMEM, "no memory for %zu messages", n);
}

/* ---- lists of objects: OpenAI's and ShareGPT's ---- */

struct role_word {
    const char *word;
    enum replay_role role;
};

struct dialect {
    const char *list, *who, *what;
    struct role_word roles[7]; /* ends with a NULL word */
};

static const struct dialect openai = {
    "messages",
    "role",
    "content",
    {{"system", REPLAY_SYSTEM},
     {"developer", REPLAY_SYSTEM},
     {"user", REPLAY_USER},
     {"assistant", REPLAY_ASSISTANT}},
};
static const struct dialect sharegpt = {
    "conversations",
    "from",
    "value",
    {{"system", REPLAY_SYSTEM},
     {"human", REPLAY_USER},
     {"user", REPLAY_USER},
     {"gpt", REPLAY_ASSISTANT},
     {"chatgpt", REPLAY_ASSISTANT},
     {"assistant", REPLAY_ASSISTANT}},
};

static int read_role(const struct dialect *d, const json *message, size_t i, enum replay_role *ret,
                     struct err *e)
{
    struct place where = place_of(d->list, i, d->who);
    const json *j;
    int r = get(message, d->who, &j, e);
    if (r)
        return err_prefix(e, "%s", where.text);
    const char *word = json_str(j);
    if (!word)
        return err_set(e, ERR_INVAL, "%s is %s; a role is wanted", where.text,
                       j ? json_type_name(json_type(j)) : "missing");
    for (const struct role_word *w = d->roles; w->word; w++) {
        if (!strcmp(w->word, word)) {
            *ret = w->role;
            return 0;
        }
    }
    return err_set(e, ERR_UNSUPPORTED, "%s '%.40s' can't be played", where.text, word);
}

static int read_message(const struct dialect *d, const json *message, struct replay_conversation *c,
                        struct err *e)
{
    size_t i = c->n_messages;
    struct place where = place_of(d->list, i, NULL);
    enum replay_role role = REPLAY_USER;
    const json *calls, *text;
    if (json_type(message) != JSON_OBJECT)
        return err_set(e, ERR_INVAL, "%s is no object", where.text);
    int r = read_role(d, message, i, &role, e);
    if (!r)
        r = get(message, "tool_calls", &calls, e);
    if (!r && json_count(calls))
        r = err_set(e, ERR_UNSUPPORTED, "%s calls tools, which can't be played", where.text);
    if (!r)
        r = get(message, d->what, &text, e);
    if (!r)
        r = add_message(c, role, text, place_of(d->list, i, d->what).text, e);
    return r;
}

static int read_list(const struct dialect *d, const json *list, struct replay_conversation *c,
                     struct err *e)
{
    int r = make_room(c, json_count(list), e);
    for (const json *m = json_first(list); m && !r; m = json_next(m))
        r = read_message(d, m, c, e);
    return r;
}

/* ---- MT-Bench ---- */

static int read_turns(const json *line, const json *turns, struct replay_conversation *c,
                      struct err *e)
{
    const json *reference;
    int r = get(line, "reference", &reference, e);
    if (r)
        return r;
    if (reference && json_type(reference) != JSON_ARRAY)
        return err_set(e, ERR_INVAL, "reference is %s; a list of answers is wanted",
                       json_type_name(json_type(reference)));
    size_t n = json_count(turns), n_answers = json_count(reference);
    if (n_answers > n)
        return err_set(e, ERR_INVAL, "reference has %zu answers to %zu turns", n_answers, n);
    r = make_room(c, 2 * n, e);
    const json *answer = json_first(reference);
    size_t i = 0;
    for (const json *q = json_first(turns); q && !r; q = json_next(q), i++) {
        const char *text = json_str(answer);
        r = add_message(c, REPLAY_USER, q, place_of("turns", i, NULL).text, e);
        if (!r)
            c->messages[c->n_messages - 1].is_asked = true;
        if (!r && answer && json_type(answer) != JSON_NULL && !(text && !*text))
            r = add_message(c, REPLAY_ASSISTANT, answer, place_of("reference", i, NULL).text, e);
        answer = answer ? json_next(answer) : NULL;
    }
    return r;
}

/* ---- a line ---- */

/* What people would call it: the first of these that it has. */
static char *name_of(const json *line)
{
    static const char *const keys[] = {"title", "id", "question_id", "conversation_id"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json *j = json_get(line, keys[i], NULL);
        char text[NAME_BYTES + 1];
        if (json_str(j) && *json_str(j))
            return strndup(json_str(j), NAME_BYTES);
        if (json_type(j) == JSON_NUMBER) {
            snprintf(text, sizeof text, "%s %.0f", keys[i], json_double(j));
            return strdup(text);
        }
    }
    return NULL;
}

static int check_version(const json *line, struct err *e)
{
    const char *object = json_str(json_get(line, "object", NULL));
    double version = json_double(json_get(line, "version", NULL));
    if (object && !strcmp(object, "hearth.conversation") && version > EXPORT_VERSION)
        return err_set(e, ERR_UNSUPPORTED, "an export of version %.0f; up to %d is understood",
                       version, EXPORT_VERSION);
    return 0;
}

/* The one list that it holds: *ret_format is its index in `names`. */
static int find_list(const json *line, const char *const names[3], size_t *ret_format,
                     const json **ret, struct err *e)
{
    const json *found = NULL;
    for (size_t i = 0; i < 3; i++) {
        const json *j;
        int r = get(line, names[i], &j, e);
        if (r)
            return r;
        if (!j)
            continue;
        if (found)
            return err_set(e, ERR_INVAL, "both \"%s\" and \"%s\"", names[*ret_format], names[i]);
        if (json_type(j) != JSON_ARRAY)
            return err_set(e, ERR_INVAL, "\"%s\" is %s; a list is wanted", names[i],
                           json_type_name(json_type(j)));
        found = j;
        *ret_format = i;
    }
    *ret = found;
    if (!found)
        return err_set(e, ERR_INVAL, "neither \"messages\", \"conversations\" nor \"turns\"");
    return 0;
}

static int read_conversation(const json *line, struct replay_conversation *c, struct err *e)
{
    static const char *const names[3] = {"messages", "conversations", "turns"};
    size_t format = 0;
    const json *list = NULL;
    if (json_type(line) == JSON_ARRAY)
        return err_set(e, ERR_INVAL, "a list; one conversation a line is wanted (jq -c '.[]')");
    if (json_type(line) != JSON_OBJECT)
        return err_set(e, ERR_INVAL, "no object");
    int r = check_version(line, e);
    if (!r)
        r = find_list(line, names, &format, &list, e);
    if (!r && format == 2)
        r = read_turns(line, list, c, e);
    else if (!r)
        r = read_list(format ? &sharegpt : &openai, list, c, e);
    if (r)
        return r;
    c->n_turns = count_turns(c);
    c->name = name_of(line);
    return c->n_turns ? 0 : err_set(e, ERR_INVAL, "there is no message of a user");
}

int replay_read_line(const char *text, size_t n, struct replay_conversation *ret, struct err *e)
{
    struct replay_conversation c = {0};
    json *line = NULL;
    int r = json_parse(text, n, &line, e);
    if (!r)
        r = read_conversation(line, &c, e);
    json_free(line);
    if (r)
        replay_conversation_done(&c);
    else
        *ret = c;
    return r;
}

void replay_conversation_done(struct replay_conversation *c)
{
    for (size_t i = 0; i < c->n_messages; i++)
        free(c->messages[i].text);
    free(c->messages);
    free(c->name);
    *c = (struct replay_conversation){0};
}
