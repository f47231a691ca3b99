/*
 * A query's terms, and which rows hold them.
 *
 *      text ─► distinct terms ─► without stop words (unless there is nothing else)
 *           ─► the rarest SEARCH_TERMS_MAX ─► a list of rows each ─► rows with a mask of terms
 *
 * The commonest words cost the most and tell the least. A term is left out when it is in more than
 * 5 % of the rows and its list isn't a short one anyhow, or when ROWS_MAX rows are read; at least
 * one term is asked, by its newest rows. A list's beginning tells how long it is: FTS5's own count
 * (fts5vocab) reads all of it.
 *
 * Lists are read term by term and weighed here: SQLite's bm25() reads the whole list of every
 * phrase, the owner's too, for each query, and knows no scope.
 *
 * Where the path that is asked for is a good part of all there is, lists are read without their
 * scope and each row is looked up in the path: FTS5 takes 0.8 us a row then, and 2 to 4 us when it
 * joins two lists, of which the scope's is the longer.
 */
#include "memory/query.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"
#include "memory/window.h"

/* Of a longer query its beginning and its end: half each. */
#define QUERY_TEXT_MAX ((size_t)32 << 10)
#define COMMON_SHARE 20 /* one row in so many */
#define SHORT_LIST 1000
#define ROWS_MAX 10000
#define POSTINGS_MAX ((size_t)SEARCH_TERMS_MAX * SHORT_LIST + ROWS_MAX)
#define RARITY_MAX 64
#define WIDE_SHARE 4 /* the path is at least one row in so many */

uint64_t query_hash(const char *bytes, size_t n, uint64_t seed)
{
    uint64_t h = seed ^ 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)bytes[i]) * 0x100000001b3u;
    return h;
}

static int16_t *slot_of(struct query *qu, uint64_t hash, const char *term, size_t n)
{
    size_t at = hash & (QUERY_SLOTS - 1);
    while (qu->slots[at] != 0) {
        const struct query_term *t = &qu->terms[qu->slots[at] - 1];
        if (t->hash == hash && t->n == n && memcmp(t->text, term, n) == 0)
            break;
        at = (at + 1) & (QUERY_SLOTS - 1);
    }
    return &qu->slots[at];
}

int query_find(const struct query *qu, const char *term, size_t n)
{
    /* Not written through. */
    return *slot_of((struct query *)qu, query_hash(term, n, 0), term, n) - 1;
}

static bool collect(void *user, const struct segment *t)
{
    struct query *qu = user;
    uint64_t hash = query_hash(t->term, t->n, 0);
    int16_t *slot = slot_of(qu, hash, t->term, t->n);
    if (*slot != 0) {
        qu->terms[*slot - 1].is_capital |= t->is_capital;
        return true;
    }
    struct query_term *new = &qu->terms[qu->n_terms];
    *new = (struct query_term){.n = t->n,
                               .hash = hash,
                               .kind = t->kind,
                               .is_stop = t->is_stop,
                               .is_capital = t->is_capital};
    memcpy(new->text, t->term, t->n + 1);
    *slot = (int16_t)++qu->n_terms;
    return qu->n_terms < QUERY_SEEN_MAX;
}

static bool has_any(const struct query *qu, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (query_find(qu, words[i], strlen(words[i])) >= 0)
            return true;
    return false;
}

int query_parse(struct memory *m, const struct memory_query *q, struct query *ret, struct arena *a,
                struct err *e)
{
    static const char *const time_words[] = {"when", "date", "year", "month", "week", "day",
                                             "time", "long", "何时", "几号",  "哪天", "哪年",
                                             "多久", "时候", "几月", "几点",  "日期"};
    *ret = (struct query){.terms = arena_array(a, QUERY_SEEN_MAX, sizeof(*ret->terms))};
    if (!ret->terms)
        return memory_out(e);
    size_t half = QUERY_TEXT_MAX / 2;
    if (q->n_text <= QUERY_TEXT_MAX) {
        segment_walk(m->index.segmenter, q->text, q->n_text, collect, ret);
    } else {
        segment_walk(m->index.segmenter, q->text + q->n_text - half, half, collect, ret);
        if (ret->n_terms < QUERY_SEEN_MAX)
            segment_walk(m->index.segmenter, q->text, half, collect, ret);
    }
    ret->asks_time = has_any(ret, time_words, sizeof(time_words) / sizeof(time_words[0]));
    return 0;
}

/* How many rows of the whole table hold the term, counted up to RARITY_MAX. */
static int count_rows(struct memory *m, struct query_term *t, struct err *e)
{
    char match[SEGMENT_TERM_MAX + 16];
    int n = snprintf(match, sizeof(match), "terms : \"%s\"", t->text);
    struct stmt *s = db_stmt(m->db,
                             "SELECT count(*) FROM (SELECT 1 FROM message_fts"
                             " WHERE message_fts MATCH ?1 LIMIT ?2)",
                             e);
    stmt_text(s, 1, match, (size_t)n);
    stmt_int(s, 2, RARITY_MAX);
    int rc = stmt_step(s, e);
    t->n_rows = rc == 1 ? column_int(s, 0) : 0;
    stmt_end(s);
    return rc < 0 ? rc : 0;
}

static int compare_rarest(const void *a, const void *b)
{
    const struct query_term *x = *(const struct query_term *const *)a;
    const struct query_term *y = *(const struct query_term *const *)b;
    if (x->n_rows != y->n_rows)
        return x->n_rows < y->n_rows ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* Into qu->asked: the terms but for stop words, of too many the rarest. */
static int choose(struct memory *m, struct query *qu, struct arena *a, struct err *e)
{
    struct query_term **kept = arena_array(a, (size_t)qu->n_terms, sizeof(*kept));
    bool has_content = false;
    int n = 0, rc = 0;
    if (!kept)
        return memory_out(e);
    for (int i = 0; i < qu->n_terms; i++)
        has_content = has_content || !qu->terms[i].is_stop;
    for (int i = 0; i < qu->n_terms; i++)
        if (!qu->terms[i].is_stop || !has_content)
            kept[n++] = &qu->terms[i];
    const bool is_long = n > SEARCH_TERMS_MAX;
    for (int i = 0; rc == 0 && is_long && i < n; i++)
        rc = count_rows(m, kept[i], e);
    if (is_long)
        qsort(kept, (size_t)n, sizeof(*kept), compare_rarest);
    for (int i = 0; rc == 0 && i < n && qu->n_asked < SEARCH_TERMS_MAX; i++)
        if (!is_long || kept[i]->n_rows > 0)
            qu->asked[qu->n_asked++] = (int)(kept[i] - qu->terms);
    return rc;
}

struct posting {
    int64_t row;
    int asked;
};

static int compare_posting(const void *a, const void *b)
{
    const struct posting *x = a, *y = b;
    return x->row != y->row ? (x->row < y->row ? -1 : 1) : x->asked - y->asked;
}

struct postings {
    struct posting *v; /* malloc'ed: [cap] */
    size_t n, cap;
};

struct scope {
    char name[INDEX_SCOPE_BYTES];
    int64_t n; /* rows in it */
    struct memory_rows only;
    bool is_wide; /* `only` is enough */
};

static int count_scope(struct memory *m, const char *sql, int64_t conversation, int64_t *ret,
                       struct err *e)
{
    struct stmt *s = db_stmt(m->db, sql, e);
    stmt_int(s, 1, conversation);
    int rc = stmt_step(s, e);
    if (rc == 1)
        *ret = column_int(s, 0);
    stmt_end(s);
    return rc < 0 ? rc : 0;
}

static int scope_of(struct memory *m, const struct memory_query *q, struct scope *ret,
                    struct err *e)
{
    static const char all[] = "SELECT ifnull(max(row), 0) FROM message WHERE ?1 = ?1";
    static const char one[] = "SELECT n_messages FROM conversation WHERE row = ?1";
    int64_t n_all = 0;
    *ret = (struct scope){.only = {.v = (int64_t *)q->only, .n = q->n_only}}; /* only read */
    if (q->conversation == 0) {
        index_owner_scope(q->owner, ret->name);
        return count_scope(m, all, 0, &ret->n, e);
    }
    index_conversation_scope(q->conversation, ret->name);
    if (!q->only)
        return count_scope(m, one, q->conversation, &ret->n, e);
    int rc = count_scope(m, all, 0, &n_all, e);
    ret->n = (int64_t)q->n_only;
    ret->is_wide = ret->n >= n_all / WIDE_SHARE;
    return rc;
}

struct list {
    const char *scope;
    const struct memory_rows *only; /* instead of the scope; or NULL */
    int asked;       /* which term */
    int64_t limit;   /* rows */
    size_t from, to; /* of the postings */
};

/* The newest rows in scope that hold the term. */
static int read_list(struct memory *m, struct query *qu, struct list *l, struct postings *p,
                     struct err *e)
{
    char match[INDEX_SCOPE_BYTES + SEGMENT_TERM_MAX + 48];
    const char *term = qu->terms[qu->asked[l->asked]].text;
    const int n = l->only ? snprintf(match, sizeof(match), "terms : \"%s\"", term)
                          : snprintf(match, sizeof(match), "scope : \"%s\" AND terms : \"%s\"",
                                     l->scope, term);
    struct stmt *s = db_stmt(m->db,
                             "SELECT rowid FROM message_fts WHERE message_fts MATCH ?1"
                             " ORDER BY rowid DESC",
                             e);
    int rc = 0;
    stmt_text(s, 1, match, (size_t)n);
    l->from = p->n;
    const size_t end = l->from + (size_t)l->limit < p->cap ? l->from + (size_t)l->limit : p->cap;
    while (p->n < end && (rc = stmt_step(s, e)) == 1) {
        const int64_t row = column_int(s, 0);
        if (!l->only || memory_rows_hold(l->only, row))
            p->v[p->n++] = (struct posting){.row = row, .asked = l->asked};
    }
    l->to = p->n;
    stmt_end(s);
    return rc < 0 ? rc : 0;
}

/* How many rows hold a term of which the newest SHORT_LIST were read: as if they went on as
 * densely. */
static int64_t extrapolate(const struct list *l, const struct postings *p, int64_t n_scope)
{
    int64_t newest = p->v[l->from].row, oldest = p->v[l->to - 1].row;
    double share = (double)(l->to - l->from) / (double)(newest - oldest + 1);
    return (int64_t)(share * (double)n_scope);
}

/* Reads what each term asks for: short lists whole; longer ones whole when they aren't common and
 * ROWS_MAX allows; when all are common, the rarest one's newest rows. */
static int read_lists(struct memory *m, struct query *qu, const struct scope *scope,
                      struct postings *p, struct err *e)
{
    const int64_t n_scope = scope->n;
    struct query_term *rarest = NULL;
    bool is_any_whole = false;
    int rc = 0;
    for (int i = 0; rc == 0 && i < qu->n_asked; i++) {
        struct query_term *t = &qu->terms[qu->asked[i]];
        struct list l = {.scope = scope->name,
                         .only = scope->is_wide ? &scope->only : NULL,
                         .asked = i,
                         .limit = SHORT_LIST};
        rc = read_list(m, qu, &l, p, e);
        t->n_rows = (int64_t)(l.to - l.from);
        t->is_asked = t->n_rows > 0;
        if (t->n_rows < SHORT_LIST) {
            is_any_whole = is_any_whole || t->is_asked;
            continue;
        }
        t->n_rows = extrapolate(&l, p, n_scope);
        if (!rarest || t->n_rows < rarest->n_rows)
            rarest = t;
        t->is_asked = t->n_rows <= n_scope / COMMON_SHARE && (int64_t)p->n + t->n_rows <= ROWS_MAX;
        if (!t->is_asked)
            continue;
        l.limit = ROWS_MAX;
        p->n = l.from;
        rc = read_list(m, qu, &l, p, e);
        t->n_rows = (int64_t)(l.to - l.from);
        is_any_whole = true;
    }
    if (rarest && !is_any_whole)
        rarest->is_asked = true;
    return rc;
}

static double weight_of(const struct memory_query *q, const struct query_term *t)
{
    return t->idf * (t->kind == SEGMENT_SINGLE ? q->weights->single : 1);
}

/* Sorts postings into rows. */
static int gather(const struct memory_query *q, struct query *qu, struct postings *p,
                  struct arena *a, struct err *e)
{
    qu->rows = arena_array(a, p->n, sizeof(*qu->rows));
    if (!qu->rows)
        return memory_out(e);
    qsort(p->v, p->n, sizeof(*p->v), compare_posting);
    for (size_t i = 0; i < p->n; i++) {
        const struct query_term *t = &qu->terms[qu->asked[p->v[i].asked]];
        if (!t->is_asked)
            continue;
        if (qu->n_rows == 0 || qu->rows[qu->n_rows - 1].row != p->v[i].row)
            qu->rows[qu->n_rows++] = (struct query_row){.row = p->v[i].row};
        struct query_row *r = &qu->rows[qu->n_rows - 1];
        r->mask |= (uint64_t)1 << p->v[i].asked;
        r->score += weight_of(q, t);
    }
    return 0;
}

int query_match(struct memory *m, const struct memory_query *q, struct query *qu, struct arena *a,
                struct err *e)
{
    struct scope scope;
    struct postings p = {.cap = POSTINGS_MAX};
    int rc = scope_of(m, q, &scope, e);
    if (rc == 0)
        rc = choose(m, qu, a, e);
    if (rc < 0 || qu->n_asked == 0)
        return rc;
    p.v = sys.malloc(p.cap * sizeof(*p.v));
    if (!p.v)
        return memory_out(e);
    rc = read_lists(m, qu, &scope, &p, e);
    const int64_t n_scope = scope.n;
    for (int i = 0; i < qu->n_asked; i++) {
        struct query_term *t = &qu->terms[qu->asked[i]];
        double n = (double)(n_scope > t->n_rows ? n_scope : t->n_rows), df = (double)t->n_rows;
        t->idf = t->is_asked ? log(1 + (n - df + 0.5) / (df + 0.5)) : 0;
    }
    if (rc == 0)
        rc = gather(q, qu, &p, a, e);
    free(p.v);
    return rc;
}

static int compare_row(const void *key, const void *item)
{
    const int64_t row = *(const int64_t *)key, other = ((const struct query_row *)item)->row;
    return row < other ? -1 : row > other;
}

const struct query_row *query_row_find(const struct query *qu, int64_t row)
{
    if (qu->n_rows == 0)
        return NULL;
    return bsearch(&row, qu->rows, qu->n_rows, sizeof(*qu->rows), compare_row);
}
