/*
 * Phrases by what they begin with (phrases.h).
 *
 *     " i'm allergic to nuts "        at each word's beginning and each character that isn't ASCII:
 *       ^   ^        ^  ^             its first two letters, or its three bytes ──► a chain of the
 *                                     phrases that begin so, in the order of their list
 *
 * The chains are made from the data once, by whoever asks first, and only read from then on.
 */
#include "memory/phrases.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#define ENTRIES_MAX 1024
#define HEADS 1024u

enum entry_kind { ENTRY_PHRASE, ENTRY_HABIT, ENTRY_THOUGHT, ENTRY_PASSING, ENTRY_LEAD_IN };

struct entry {
    const char *text; /* without ^ */
    const char *tail; /* what follows the *, NULL: no * */
    enum entry_kind kind;
    uint16_t index;      /* of a phrase or lead-in in its list */
    uint16_t n, n_space; /* bytes up to * or the end; a space before the first word */
    uint16_t next;       /* index + 1, 0: the last */
    bool is_first;       /* only at the beginning */
};

static struct {
    struct entry v[ENTRIES_MAX];
    size_t n;
    uint16_t heads[HEADS], lasts[HEADS];
} table;
static pthread_once_t made = PTHREAD_ONCE_INIT;

static unsigned head_of(const char *s)
{
    unsigned h = (unsigned char)s[0] * 31u + (unsigned char)s[1];
    if ((unsigned char)s[0] >= 0x80)
        h = h * 31u + (unsigned char)s[2];
    return (h * 2654435761u >> 16) % HEADS;
}

static void add(enum entry_kind kind, size_t index, const char *text)
{
    assert(table.n < ENTRIES_MAX);
    struct entry *e = &table.v[table.n++];
    *e = (struct entry){.kind = kind, .index = (uint16_t)index};
    e->is_first = text[0] == '^';
    e->text = text + e->is_first;
    e->n_space = e->text[0] == ' ';
    const char *star = strchr(e->text, '*');
    e->tail = star ? star + 1 : NULL;
    e->n = (uint16_t)(star ? (size_t)(star - e->text) : strlen(e->text));
    unsigned head = head_of(e->text + e->n_space);
    if (table.lasts[head])
        table.v[table.lasts[head] - 1].next = (uint16_t)table.n;
    else
        table.heads[head] = (uint16_t)table.n;
    table.lasts[head] = (uint16_t)table.n;
}

static void make_table(void)
{
    for (size_t i = 0; i < n_phrases; i++)
        add(ENTRY_PHRASE, i, phrases[i].text);
    for (size_t i = 0; habits[i]; i++)
        add(ENTRY_HABIT, i, habits[i]);
    for (size_t i = 0; thoughts[i]; i++)
        add(ENTRY_THOUGHT, i, thoughts[i]);
    for (size_t i = 0; passing[i]; i++)
        add(ENTRY_PASSING, i, passing[i]);
    for (size_t i = 0; i < n_lead_ins; i++)
        add(ENTRY_LEAD_IN, i, lead_ins[i].text);
}

/* Whether the entry stands where the word or character at p->s[i] is, i > 0. */
static bool stands_at(const struct plain *p, size_t i, const struct entry *e)
{
    size_t from = i - e->n_space;
    return (!e->is_first || i == 1) && p->n - from >= e->n &&
           memcmp(p->s + from, e->text, e->n) == 0;
}

/* What the phrase at p->s[i] is about; false: what should follow its * doesn't. */
static bool value_of(const struct plain *p, size_t i, const struct entry *e, size_t ret[2])
{
    size_t begin = i - e->n_space + e->n, end = p->n;
    if (e->tail) {
        const char *tail = memmem(p->s + begin, p->n - begin, e->tail, strlen(e->tail));
        if (!tail)
            return false;
        end = (size_t)(tail - p->s);
    }
    while (end > begin && p->s[end - 1] == ' ')
        end--;
    ret[0] = p->at[begin];
    ret[1] = end > begin ? p->at[end] : p->at[begin];
    return true;
}

/* Of a clause without a known word no English phrase is believed, and without CJK no Chinese. */
static bool may_be_in(const struct clause *c, const struct entry *e)
{
    return (unsigned char)e->text[e->n_space] < 0x80 ? c->flags != 0 : c->is_cjk;
}

struct spotting {
    struct spotted found;
    bool is_none;
};

/* The entry stands at i. */
static void spot(struct spotting *s, const struct clause *c, size_t i, const struct entry *e)
{
    struct spotted *f = &s->found;
    f->is_habit = f->is_habit || e->kind == ENTRY_HABIT;
    f->is_thought = f->is_thought || e->kind == ENTRY_THOUGHT;
    f->is_passing = f->is_passing || e->kind == ENTRY_PASSING;
    if (e->kind != ENTRY_PHRASE || !may_be_in(c, e))
        return;
    const struct phrase *x = &phrases[e->index], *best = f->phrase;
    bool is_better =
        !best || x->weight > best->weight || (x->weight == best->weight && x < best);
    size_t value[2];
    if ((x->weight && !is_better) || !value_of(&c->plain, i, e, value))
        return;
    s->is_none = s->is_none || !x->weight;
    f->phrase = x;
    f->value[0] = value[0];
    f->value[1] = value[1];
}

struct spotted phrases_spot(const struct clause *c)
{
    const struct plain *p = &c->plain;
    struct spotting s = {.is_none = false};
    pthread_once(&made, make_table);
    for (size_t i = 1; i + 1 < p->n; i++) {
        unsigned char first = (unsigned char)p->s[i];
        bool is_begin = first >= 0xC0 || (first < 0x80 && p->s[i - 1] == ' ');
        for (uint16_t k = is_begin ? table.heads[head_of(p->s + i)] : 0; k; k = table.v[k - 1].next)
            if (table.v[k - 1].kind != ENTRY_LEAD_IN && stands_at(p, i, &table.v[k - 1]))
                spot(&s, c, i, &table.v[k - 1]);
    }
    if (s.is_none)
        s.found.phrase = NULL;
    return s.found;
}

const struct lead_in *lead_in_find(const struct plain *p, size_t *ret_end)
{
    pthread_once(&made, make_table);
    for (uint16_t k = p->n > 2 ? table.heads[head_of(p->s + 1)] : 0; k; k = table.v[k - 1].next) {
        const struct entry *e = &table.v[k - 1];
        if (e->kind != ENTRY_LEAD_IN || p->n <= (size_t)e->n + 2 || !stands_at(p, 1, e))
            continue;
        size_t from = (size_t)e->n + 1;
        while (from < p->n && p->s[from] == ' ')
            from++;
        *ret_end = p->at[from];
        return &lead_ins[e->index];
    }
    return NULL;
}
