/*
 * Facts as text (facts.h): for the model, and for the store and a person's editor.
 */
#include "memory/facts.h"

#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "memory/facts_list.h"
#include "memory/sentence.h"

static const char *const kind_names[] = {
    [FACT_NOTE] = "note", [FACT_SELF] = "self",         [FACT_PREFERENCE] = "preference",
    [FACT_RULE] = "rule", [FACT_DECISION] = "decision", [FACT_IDENTIFIER] = "identifier",
    [FACT_DATE] = "date", [FACT_NUMBER] = "number",     [FACT_NAME] = "name",
};
#define N_KINDS (sizeof kind_names / sizeof kind_names[0])

const char *fact_kind_name(enum fact_kind k)
{
    return (size_t)k < N_KINDS && kind_names[k] ? kind_names[k] : "?";
}

static void compose_line(const struct fact *f, struct buf *b)
{
    size_t n_was = 0;
    buf_str(b, "- ");
    buf_add(b, f->text, f->n_text);
    for (int i = 0; i < f->n_pairs; i++) {
        if (!f->pairs[i].was[0])
            continue;
        buf_str(b, n_was++ ? "; " : " (earlier: ");
        buf_str(b, f->pairs[i].was);
    }
    buf_str(b, n_was ? ")\n" : "\n");
}

static void compose_role(const struct facts *f, bool is_assistant, struct buf *b)
{
    bool is_begun = false;
    for (size_t i = 0; i < f->n; i++) {
        if ((f->v[i].role == MEMORY_ASSISTANT) != is_assistant)
            continue;
        if (!is_begun)
            buf_str(b, is_assistant ? "Assistant:\n" : "User:\n");
        is_begun = true;
        compose_line(&f->v[i], b);
    }
}

void facts_compose(const struct facts *f, struct buf *b)
{
    compose_role(f, false, b);
    compose_role(f, true, b);
}

/* ,"is":{"port":"9090"}: the pairs' values, or what they were before; nothing without pairs. */
static void write_pairs(const struct fact *f, bool is_was, struct buf *b)
{
    size_t n = 0;
    for (int i = 0; i < f->n_pairs; i++) {
        const struct fact_pair *p = &f->pairs[i];
        if (is_was && !p->was[0])
            continue;
        buf_str(b, n++ ? "," : is_was ? ",\"was\":{" : ",\"is\":{");
        json_write_str(b, p->key, strlen(p->key));
        buf_char(b, ':');
        json_write_str(b, is_was ? p->was : p->value, is_was ? strlen(p->was) : p->n_value);
    }
    if (n)
        buf_char(b, '}');
}

void facts_write(const struct facts *f, struct buf *b)
{
    for (size_t i = 0; i < f->n; i++) {
        const struct fact *x = &f->v[i];
        buf_add(b, x->text, x->n_text);
        buf_printf(b, " {\"by\":\"%s\",\"row\":%lld,\"kind\":\"%s\",\"weight\":%d",
                   x->role == MEMORY_ASSISTANT ? "assistant" : "user", (long long)x->row,
                   fact_kind_name(x->kind), x->weight);
        write_pairs(x, false, b);
        write_pairs(x, true, b);
        buf_str(b, "}\n");
    }
}

/* ---- reading ---- */

/* Where the object begins that ends the line, n: there is none. Within JSON strings the quote after
 * a brace is escaped, so the last one is the outer one. */
static size_t object_at(const char *s, size_t n)
{
    if (n < 4 || s[n - 1] != '}')
        return n;
    for (size_t i = n - 3; i > 0; i--)
        if (memcmp(s + i, " {\"", 3) == 0)
            return i;
    return n;
}

static enum fact_kind kind_of(const char *name)
{
    for (size_t i = FACT_NOTE; name && i < N_KINDS; i++)
        if (strcmp(kind_names[i], name) == 0)
            return (enum fact_kind)i;
    return FACT_NOTE;
}

void facts_settle(struct facts *f)
{
    for (size_t i = 0; i < f->n; i++) {
        struct fact *x = &f->v[i];
        for (int k = 0; k < x->n_pairs; k++)
            x->pairs[k].value = memmem(x->text, x->n_text, x->pairs[k].value, x->pairs[k].n_value);
    }
}

/* The pairs whose values are in the text. */
static void read_pairs(const json *j, struct fact *f)
{
    const json *is = json_get(j, "is", NULL), *was = json_get(j, "was", NULL);
    if (json_type(is) != JSON_OBJECT)
        return;
    for (const json *it = json_first(is); it && f->n_pairs < FACT_PAIRS_MAX; it = json_next(it)) {
        const char *key = json_key(it), *value = json_str(it);
        size_t n = value ? strlen(value) : 0, n_key = strlen(key);
        const char *at = n ? memmem(f->text, f->n_text, value, n) : NULL;
        if (!at || !n_key || n_key >= FACT_KEY_BYTES)
            continue;
        struct fact_pair *p = &f->pairs[f->n_pairs++];
        *p = (struct fact_pair){.value = at, .n_value = n};
        memcpy(p->key, key, n_key);
        const char *before =
            json_type(was) == JSON_OBJECT ? json_str(json_get(was, key, NULL)) : NULL;
        if (before && strlen(before) < FACT_WAS_BYTES)
            memcpy(p->was, before, strlen(before));
    }
}

/* The object of a line into f, whose text is there; false: it is none of ours. */
static bool read_object(const char *s, size_t n, struct fact *f)
{
    json *j;
    struct err e;
    if (json_parse(s, n, &j, &e))
        return false;
    const char *by = json_str(json_get(j, "by", NULL));
    int64_t row = 0, weight = 0;
    bool is_ours = by && !json_int(json_get(j, "row", NULL), "row", 0, JSON_INT_MAX, &row, &e) &&
                   !json_int(json_get(j, "weight", NULL), "weight", 0, 10000, &weight, &e);
    if (is_ours) {
        f->role = strcmp(by, "assistant") == 0 ? MEMORY_ASSISTANT : MEMORY_USER;
        f->row = row;
        f->weight = (int)weight;
        f->kind = kind_of(json_str(json_get(j, "kind", NULL)));
        read_pairs(j, f);
    }
    json_free(j);
    return is_ours;
}

/* A space, or a dash before one: what a line of text doesn't begin with. */
static bool is_bullet(const char *s, size_t n)
{
    return s[0] == ' ' || (s[0] == '-' && (n == 1 || s[1] == ' '));
}

/* Repaired, control characters as spaces, trimmed, without "- ". ERR_NOMEM. */
static int clean_line(const char *s, size_t n, struct buf *b)
{
    buf_clear(b);
    if (n > FACTS_LINE_MAX)
        n = utf8_complete(s, FACTS_LINE_MAX);
    utf8_repair(b, s, n);
    int error = buf_error(b);
    if (error)
        return error;
    for (size_t i = 0; i < b->len; i++)
        if ((unsigned char)b->data[i] < 0x20 || b->data[i] == 0x7F)
            b->data[i] = ' ';
    while (b->len && b->data[b->len - 1] == ' ')
        b->len--;
    size_t skip = 0;
    while (skip < b->len && is_bullet(b->data + skip, b->len - skip))
        skip++;
    buf_consume(b, skip);
    return 0;
}

static int read_line(struct facts_list *l, const struct buf *line, struct arena *a)
{
    struct fact f = {.kind = FACT_NOTE, .role = MEMORY_USER, .weight = FACT_NOTE_WEIGHT};
    size_t n = object_at(line->data, line->len);
    if (!line->len)
        return 0;
    char *text = arena_copy(a, line->data, line->len);
    if (!text)
        return ERR_NOMEM;
    f.text = text;
    f.n_text = n;
    while (f.n_text && text[f.n_text - 1] == ' ')
        f.n_text--;
    if (n == line->len || !f.n_text || !read_object(line->data + n + 1, line->len - n - 1, &f))
        f.n_text = line->len;
    text[f.n_text] = 0;
    return facts_list_add(l, &f, text, f.n_text);
}

int facts_parse(const char *text, size_t n, struct arena *a, struct facts *ret, struct err *e)
{
    struct facts_list list;
    struct buf line;
    int error = 0;
    facts_list_init(&list);
    buf_init(&line, SIZE_MAX);
    for (size_t i = 0; i < n && !error;) {
        const char *end = memchr(text + i, '\n', n - i);
        size_t len = end ? (size_t)(end - text) - i : n - i;
        error = clean_line(text + i, len, &line);
        if (!error)
            error = read_line(&list, &line, a);
        i += len + 1;
    }
    if (!error)
        error = facts_list_take(&list, SIZE_MAX, a, ret);
    buf_done(&line);
    facts_list_done(&list);
    return error ? err_set(e, error, "no memory for a list of facts of %zu bytes", n) : 0;
}
