/*
 * Names from being called by them. A conversation's roles have no names; but when the user writes
 * "Hey Maria!" again and again, and the assistant doesn't, the assistant's messages are Maria's.
 *
 * A name stands for being called when it ends its phrase (a comma, a mark or the end follows) and
 * begins it or follows a comma or a greeting: "my sister Maria said" is none.
 */
#include "memory/called.h"

#include <string.h>

#include "base/utf8.h"

#define ROWS_MAX 40 /* messages looked at for a name */
#define VOTES_MIN 3
#define TEXT_BYTES 1024

struct look {
    const struct query *qu;
    int term;
    const char *text;
    size_t n;
    /* Where the word before it ended, and the one before that: a pair's first character is told
     * before the pair is. Likewise, whether that word is a greeting. */
    size_t before, before_pair;
    bool is_after_greeting, is_pair_after_greeting, is_calling;
    /* A name of three characters is two pairs of the query: where they begin, and end. */
    size_t chain_from, chain_before, chain_to;
    bool is_chain_after_greeting;
};

static bool is_one_of(const char *text, size_t n, const char *const *words)
{
    for (; *words; words++)
        if (strlen(*words) == n && memcmp(*words, text, n) == 0)
            return true;
    return false;
}

/* What stands right behind the name ends a phrase. */
static bool ends_phrase(const char *text, size_t n)
{
    static const char *const wide[] = {"，", "！", "。", "？", "～", "…", "、", NULL};
    if (n == 0 || strchr(",!?.\n", text[0]))
        return true;
    return n >= 3 && is_one_of(text, 3, wide);
}

/* Nothing but space, or a mark of punctuation, between the word before and the name. */
static bool begins_phrase(const char *text, size_t from, size_t to)
{
    static const char *const wide[] = {"，", "！", "。", "？", "～", "…", "、", NULL};
    for (size_t i = from; i < to; i++)
        if (strchr(",!?.\n", text[i]) || (i + 3 <= to && is_one_of(text + i, 3, wide)))
            return true;
    return from == 0;
}

/* A pair of the query: it goes on with the one before it when they overlap. */
static void chain(struct look *k, const struct segment *t)
{
    if (k->chain_to <= t->from) {
        k->chain_from = t->from;
        k->chain_before = k->before_pair;
        k->is_chain_after_greeting = k->is_pair_after_greeting;
    }
    k->chain_to = t->to;
}

static bool look_for_call(void *user, const struct segment *t)
{
    static const char *const greetings[] = {"hey",  "hi",   "hello",   "thank",     "you",
                                            "wow",  "bye",  "congrat", "congratul", "oh",
                                            "dear", "morn", "嗨",      "嘿",        "喂",
                                            "哈",   "啊",   "哇",      "哦",        "呀",
                                            "谢",   "的",   "安",      NULL};
    struct look *k = user;
    const int term = query_find(k->qu, t->term, t->n);
    if (t->kind == SEGMENT_PAIR && term >= 0)
        chain(k, t);
    if (term == k->term && ends_phrase(k->text + t->to, k->n - t->to))
        k->is_calling =
            t->kind == SEGMENT_PAIR
                ? k->is_chain_after_greeting ||
                      begins_phrase(k->text, k->chain_before, k->chain_from)
                : k->is_after_greeting || begins_phrase(k->text, k->before, t->from);
    if (t->kind == SEGMENT_WORD || t->kind == SEGMENT_SINGLE) {
        k->before_pair = k->before;
        k->is_pair_after_greeting = k->is_after_greeting;
        k->is_after_greeting = is_one_of(t->term, t->n, greetings);
        k->before = t->to;
    }
    return !k->is_calling;
}

/* The entry of the name there; NULL: there are too many. */
static struct called_votes *entry(struct called *c, int64_t conversation, int term)
{
    int i = 0;
    while (i < c->n && (c->v[i].conversation != conversation || c->v[i].term != term))
        i++;
    if (i == CALLED_MAX)
        return NULL;
    if (i == c->n)
        c->v[c->n++] = (struct called_votes){.conversation = conversation, .term = term};
    return &c->v[i];
}

/* A text that has the word and calls nobody by it, when others do. */
static void note_mention(struct called *c, int64_t conversation, int term)
{
    for (int i = 0; i < c->n; i++)
        if (c->v[i].conversation == conversation && c->v[i].term == term)
            c->v[i].mentions++;
}

static bool look_for_term(void *user, const struct segment *t)
{
    struct look *k = user;
    k->is_calling = k->is_calling || query_find(k->qu, t->term, t->n) == k->term;
    return !k->is_calling;
}

static int read_vote(struct memory *m, int64_t row, int term, const struct query *qu,
                     struct called *ret, struct err *e)
{
    struct stmt *s = db_stmt(m->db,
                             "SELECT conversation, role, substr(CAST(text AS BLOB), 1, ?2)"
                             " FROM message WHERE row = ?1",
                             e);
    stmt_int(s, 1, row);
    stmt_int(s, 2, TEXT_BYTES);
    int rc = stmt_step(s, e);
    if (rc == 1) {
        struct look k = {.qu = qu, .term = term};
        size_t rest;
        k.text = column_blob(s, 2, &k.n);
        const size_t n_speaker = k.text ? segment_speaker(k.text, k.n, &rest) : 0;
        if (k.text && n_speaker == 0)
            segment_walk(m->index.segmenter, k.text, k.n, look_for_call, &k);
        else
            segment_walk(m->index.segmenter, k.text, n_speaker, look_for_term, &k);
        struct called_votes *v = k.is_calling ? entry(ret, column_int(s, 0), term) : NULL;
        if (v)
            v->is_pair = qu->terms[term].kind == SEGMENT_PAIR;
        if (v && n_speaker > 0)
            v->speaks++;
        else if (v)
            v->by[column_int(s, 1) == MEMORY_ASSISTANT]++;
        else if (n_speaker == 0)
            note_mention(ret, column_int(s, 0), term);
    }
    stmt_end(s);
    return rc < 0 ? rc : 0;
}

/* Of the rows that hold the term some, evenly. */
static int gather_one(struct memory *m, const struct query *qu, int asked, struct called *ret,
                      struct err *e)
{
    const int term = qu->asked[asked];
    const int64_t every = 1 + qu->terms[term].n_rows / ROWS_MAX;
    int64_t seen = 0;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < qu->n_rows; i++)
        if ((qu->rows[i].mask >> asked & 1) && seen++ % every == 0)
            rc = read_vote(m, qu->rows[i].row, term, qu, ret, e);
    return rc;
}

int called_gather(struct memory *m, const struct memory_query *q, const struct query *qu,
                  struct called *ret, struct err *e)
{
    int rc = 0;
    ret->n = 0;
    if (q->weights->speaker == 0)
        return 0;
    for (int i = 0; rc == 0 && i < qu->n_asked; i++) {
        const struct query_term *t = &qu->terms[qu->asked[i]];
        bool is_name = t->kind == SEGMENT_PAIR || (t->kind == SEGMENT_WORD && t->is_capital);
        if (is_name && !t->is_stop && t->n_rows >= VOTES_MIN)
            rc = gather_one(m, qu, i, ret, e);
    }
    return rc;
}

/* One role calls the other so, and not the other way round. Chinese has no capitals: what stands
 * within phrases more often than for a call (昨天, 周末) is no name. */
static bool is_settled(const struct called_votes *v, enum memory_role named)
{
    int by_other = v->by[named == MEMORY_USER], by_self = v->by[named == MEMORY_ASSISTANT];
    if (v->is_pair && v->mentions > by_other + by_self)
        return false;
    return by_other >= VOTES_MIN && by_other >= 4 * by_self;
}

bool called_names(const struct called *c, int64_t conversation, enum memory_role role)
{
    for (int i = 0; i < c->n; i++)
        if (c->v[i].conversation == conversation && is_settled(&c->v[i], role))
            return true;
    return false;
}

static bool is_name(const struct called_votes *v, bool or_speaks)
{
    return is_settled(v, MEMORY_USER) || is_settled(v, MEMORY_ASSISTANT) ||
           (or_speaks && v->speaks >= VOTES_MIN);
}

/* A character of the pair, or the pair before it in a name of three. */
static bool is_part_of(const struct query_term *t, const struct query_term *pair)
{
    if (t->kind == SEGMENT_SINGLE)
        return memmem(pair->text, pair->n, t->text, t->n) != NULL;
    return t->kind == SEGMENT_PAIR && t->n == 6 && pair->n == 6 &&
           memcmp(t->text + 3, pair->text, 3) == 0;
}

/* Whether the term is one of the names, or a character of one. */
static bool is_of_name(const struct called *c, const struct query *qu, int term, bool or_speaks)
{
    const struct query_term *t = &qu->terms[term];
    for (int i = 0; i < c->n; i++) {
        const struct query_term *name = &qu->terms[c->v[i].term];
        bool is_part = name->kind == SEGMENT_PAIR && is_part_of(t, name);
        if ((c->v[i].term == term || is_part) && is_name(&c->v[i], or_speaks))
            return true;
    }
    return false;
}

bool called_is_name(const struct called *c, const struct query *qu, int term)
{
    return is_of_name(c, qu, term, false);
}

bool called_speaks(const struct called *c, const struct query *qu, int term)
{
    return is_of_name(c, qu, term, true);
}
