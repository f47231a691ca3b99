/*
 * A query's terms, and which rows hold them.
 *
 *      text ─► distinct terms ─► without stop words (unless there is nothing else)
 *           ─► the rarest SEARCH_TERMS_MAX ─► a list of rows each ─► rows with a mask of terms
 *
 * The commonest words cost the most and tell the least. A term is left out when it is in more than
 * 5 % of the rows and its list isn't a short one anyhow, and the rest is asked rarest first until
 * ROWS_MAX rows are read; at least one term is asked, by its newest rows.
 *
 * Lists are read term by term and weighed here: SQLite's bm25() reads the whole list of every
 * phrase, the owner's too, for each query, and knows no scope.
 */
#include "memory/query.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"

/* Of a longer query its beginning and its end: half each. */
#define QUERY_TEXT_MAX ((size_t)32 << 10)
#define COMMON_SHARE 20 /* one row in so many */
#define SHORT_LIST 2000
#define ROWS_MAX 15000
/* Every term in every row of a short scope, or two budgets. */
#define POSTINGS_MAX ((size_t)SEARCH_TERMS_MAX * SHORT_LIST)

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
                                             "time", "long", "何时", "几号", "哪天", "哪年",
                                             "多久", "时候", "几月", "几点", "日期"};
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

/* How many rows of the whole table hold the term. */
static int count_rows(struct memory *m, const struct query_term *t, int64_t *ret, struct err *e)
{
    struct stmt *s = db_stmt(m->db, "SELECT doc FROM temp.message_vocab WHERE term = ?1", e);
    stmt_text(s, 1, t->text, t->n);
    int rc = stmt_step(s, e);
    *ret = rc == 1 ? column_int(s, 0) : 0;
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

/* How many rows in scope hold each term that is asked for, at most. Few rows: not worth asking. */
static int estimate(struct memory *m, struct query *qu, int64_t n_scope, struct query_term *t,
                    struct err *e)
{
    t->n_rows = n_scope;
    if (n_scope <= SHORT_LIST && qu->n_terms <= SEARCH_TERMS_MAX)
        return 0;
    int64_t n = 0;
    int rc = count_rows(m, t, &n, e);
    if (n < n_scope)
        t->n_rows = n;
    return rc;
}

/* Into qu->asked: the rarest terms that are in any row. n_scope: rows in scope. */
static int choose(struct memory *m, struct query *qu, int64_t n_scope, struct arena *a,
                  struct err *e)
{
    struct query_term **by_rarity = arena_array(a, (size_t)qu->n_terms, sizeof(*by_rarity));
    bool has_content = false;
    int n = 0;
    if (!by_rarity)
        return memory_out(e);
    for (int i = 0; i < qu->n_terms; i++)
        has_content = has_content || !qu->terms[i].is_stop;
    for (int i = 0; i < qu->n_terms; i++) {
        struct query_term *t = &qu->terms[i];
        if (t->is_stop && has_content)
            continue;
        int rc = estimate(m, qu, n_scope, t, e);
        if (rc < 0)
            return rc;
        if (t->n_rows > 0)
            by_rarity[n++] = t;
    }
    qsort(by_rarity, (size_t)n, sizeof(*by_rarity), compare_rarest);
    int64_t sum = 0;
    for (int i = 0; i < n && qu->n_asked < SEARCH_TERMS_MAX; i++) {
        int64_t n_rows = by_rarity[i]->n_rows;
        bool is_common = n_rows > n_scope / COMMON_SHARE && n_rows > SHORT_LIST;
        bool is_costly = n_scope > SHORT_LIST && (is_common || sum + n_rows > ROWS_MAX);
        if (qu->n_asked > 0 && is_costly)
            break;
        qu->asked[qu->n_asked++] = (int)(by_rarity[i] - qu->terms);
        sum += n_rows;
    }
    return 0;
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

/* The rows in scope that hold the term, newest first. */
static int read_rows(struct memory *m, const char *scope, struct query_term *t, int asked,
                     struct postings *ret, struct err *e)
{
    char match[INDEX_SCOPE_BYTES + SEGMENT_TERM_MAX + 48];
    int n = snprintf(match, sizeof(match), "scope : \"%s\" AND terms : \"%s\"", scope, t->text);
    struct stmt *s = db_stmt(m->db,
                             "SELECT rowid FROM message_fts WHERE message_fts MATCH ?1"
                             " ORDER BY rowid DESC LIMIT ?2",
                             e);
    size_t before = ret->n;
    int rc;
    stmt_text(s, 1, match, (size_t)n);
    stmt_int(s, 2, ROWS_MAX);
    while ((rc = stmt_step(s, e)) == 1 && ret->n < ret->cap)
        ret->v[ret->n++] = (struct posting){.row = column_int(s, 0), .asked = asked};
    stmt_end(s);
    /* As many as the table has, unless the reading was cut short. */
    if (ret->n - before < ROWS_MAX)
        t->n_rows = (int64_t)(ret->n - before);
    t->is_asked = true;
    return rc < 0 ? rc : 0;
}

static int scope_of(struct memory *m, const struct memory_query *q, char ret[INDEX_SCOPE_BYTES],
                    int64_t *ret_n, struct err *e)
{
    static const char all[] = "SELECT ifnull(max(row), 0) FROM message WHERE ?1 = 0";
    static const char one[] = "SELECT count(*) FROM message WHERE conversation = ?1";
    if (q->conversation != 0)
        index_conversation_scope(q->conversation, ret);
    else
        index_owner_scope(q->owner, ret);
    struct stmt *s = db_stmt(m->db, q->conversation != 0 ? one : all, e);
    stmt_int(s, 1, q->conversation);
    int rc = stmt_step(s, e);
    if (rc == 1)
        *ret_n = column_int(s, 0);
    stmt_end(s);
    return rc < 0 ? rc : 0;
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
        if (i == 0 || p->v[i].row != p->v[i - 1].row)
            qu->rows[qu->n_rows++] = (struct query_row){.row = p->v[i].row};
        struct query_row *r = &qu->rows[qu->n_rows - 1];
        r->mask |= (uint64_t)1 << p->v[i].asked;
        r->score += weight_of(q, &qu->terms[qu->asked[p->v[i].asked]]);
    }
    return 0;
}

int query_match(struct memory *m, const struct memory_query *q, struct query *qu, struct arena *a,
                struct err *e)
{
    char scope[INDEX_SCOPE_BYTES];
    int64_t n_scope = 0;
    struct postings p = {.cap = POSTINGS_MAX};
    int rc = scope_of(m, q, scope, &n_scope, e);
    if (rc == 0)
        rc = choose(m, qu, n_scope, a, e);
    if (rc < 0 || qu->n_asked == 0)
        return rc;
    p.v = sys.malloc(p.cap * sizeof(*p.v));
    if (!p.v)
        return memory_out(e);
    for (int i = 0; rc == 0 && i < qu->n_asked; i++) {
        struct query_term *t = &qu->terms[qu->asked[i]];
        rc = read_rows(m, scope, t, i, &p, e);
        double n = (double)(n_scope > t->n_rows ? n_scope : t->n_rows), df = (double)t->n_rows;
        t->idf = log(1 + (n - df + 0.5) / (df + 0.5));
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
