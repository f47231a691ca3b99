/*
 * Hits: from rows that hold a query's terms to a ranked list.
 *
 * The best SEARCH_POOL rows are read, with the messages before and after the best NEAR_MAX of
 * them, and scored:
 *
 *      own      BM25 over the terms that the query asked for
 *      + before × own of the message after it, + after × own of the message before it: an answer
 *        without a word of the question stands beside it, and talk keeps to a subject
 *      × speaker, time, question, recent: see struct memory_weights
 *
 * Who speaks is told by "Name: …" at a text's beginning. Where there are no such names, a name in
 * the query that one role calls the other by ("Hey Maria, …") names the other role.
 */
#include "memory/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "memory/called.h"
#include "memory/query.h"

#define NEAR_MAX 24     /* hits whose neighbours are looked at */
#define POOL_BASE 40    /* candidates, and two more for each hit that is wanted */
#define CHILDREN_MAX 2  /* newest branches after a hit */
#define READ_BYTES 8192 /* of each candidate's text */
/* Of a name's weight in a message that calls somebody so: it is told by the speaker. */
#define NAME_SHARE 0.2
#define HALF_LIFE_S (30.0 * 86400)

const struct memory_weights memory_weights_default = {
    .k1 = 1.2,
    .b = 0.5,
    .single = 0.5,
    .before = 0.3,
    .after = 0.5,
    .speaker = 0.5,
    .time = 0.1,
    .question = 0.2,
    .recent = 0.05,
    .meaning = 0.8,
    .meaning_floor = 1,
    .meaning_sure = 2.5,
    .meaning_before = 0.3,
    .meaning_after = 0.4,
};

struct candidate {
    int64_t row, parent, conversation, created_at;
    enum memory_role role;
    const char *text; /* its first READ_BYTES */
    size_t n_text, n_speaker;
    double score;
    unsigned why;
    uint64_t mask;     /* terms asked for that it holds */
    double own;        /* BM25 */
    double near;       /* from its neighbours */
    uint64_t sameness; /* hash of its terms, the speaker's name among them */
    double n_terms;
    bool asks_only, tells_time;
};

struct recall {
    struct memory *m;
    const struct memory_query *q;
    struct query qu;
    struct called called;
    bool is_name[SEARCH_TERMS_MAX]; /* of the terms asked for: whom roles call so */
    struct arena *a;
    struct candidate *v; /* [cap], in the arena */
    size_t n, cap;
    uint64_t query_sameness;
    const struct memory_list *ranked; /* or NULL */
};

static bool has_row(const int64_t *rows, size_t n, int64_t row)
{
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (rows[mid] < row)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < n && rows[lo] == row;
}

static bool is_wanted(const struct memory_query *q, int64_t row)
{
    if (q->exclude && has_row(q->exclude, q->n_exclude, row))
        return false;
    return !q->only || has_row(q->only, q->n_only, row);
}

/* What one walk over a candidate's text gathers. */
struct look {
    struct recall *r;
    struct candidate *c;
    int tf[SEARCH_TERMS_MAX];
    size_t from; /* behind the speaker's name */
};

static bool is_time_word(const char *term, size_t n)
{
    static const char *const words[] = {
        "yesterday", "today",    "tomorrow", "tonight", "ago",      "last",      "next",
        "week",      "month",    "year",     "monday",  "tuesday",  "wednesday", "thursday",
        "friday",    "saturday", "sunday",   "januari", "februari", "march",     "april",
        "june",      "juli",     "august",   "septemb", "octob",    "novemb",    "decemb",
        "weekend",   "morn",     "sinc",     "summer",  "winter",   "spring",    "昨天",
        "今天",      "明天",     "前天",     "后天",    "上周",     "下周",      "去年",
        "今年",      "明年",     "上个",     "下个",    "周末",     "星期",      "早上",
        "晚上",      "点钟",     "月底"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strlen(words[i]) == n && memcmp(words[i], term, n) == 0)
            return true;
    return false;
}

static bool look_at(void *user, const struct segment *t)
{
    struct look *k = user;
    struct candidate *c = k->c;
    c->n_terms += t->kind == SEGMENT_WORD || t->kind == SEGMENT_SINGLE;
    c->sameness = query_hash(t->term, t->n, c->sameness);
    int i = query_find(&k->r->qu, t->term, t->n);
    for (int j = 0; i >= 0 && j < k->r->qu.n_asked; j++)
        if (k->r->qu.asked[j] == i)
            k->tf[j]++;
    bool is_number = t->kind == SEGMENT_WORD && t->term[0] >= '0' && t->term[0] <= '9';
    if (k->r->qu.asks_time && !c->tells_time)
        c->tells_time = is_number || is_time_word(t->term, t->n);
    return true;
}

bool search_only_asks(const char *text, size_t n)
{
    while (n > 0 && (unsigned char)text[n - 1] <= ' ')
        n--;
    bool is_asking =
        (n >= 1 && text[n - 1] == '?') || (n >= 3 && memcmp(text + n - 3, "？", 3) == 0);
    if (!is_asking)
        return false;
    for (size_t i = 0; i + 1 < n; i++)
        if (strchr(".!?\n", text[i]) && text[i] != '\0' && text[i + 1] == ' ')
            return false;
    return memmem(text, n, "。", 3) == NULL && memmem(text, n, "！", 3) == NULL;
}

/* Own score without the length's part, which needs all lengths first: tf is kept in *k. */
static void look_over(struct recall *r, struct candidate *c, struct look *k)
{
    *k = (struct look){.r = r, .c = c};
    c->n_speaker = segment_speaker(c->text, c->n_text, &k->from);
    segment_walk(r->m->index.segmenter, c->text, c->n_text, look_at, k);
    c->asks_only = search_only_asks(c->text + k->from, c->n_text - k->from);
}

static void score_own(struct recall *r, struct candidate *c, const struct look *k)
{
    /* 20 terms are a usual message of a chat; a mean over the pool would be of hits only. */
    const struct memory_weights *w = r->q->weights;
    double length = 1 - w->b + w->b * c->n_terms / 20;
    for (int j = 0; j < r->qu.n_asked; j++) {
        const struct query_term *t = &r->qu.terms[r->qu.asked[j]];
        /* In the part that wasn't read it stands at least once. */
        double tf = k->tf[j] > 0 ? k->tf[j] : (double)(c->mask >> j & 1);
        double part = t->idf * tf * (w->k1 + 1) / (tf + w->k1 * length);
        if (t->kind == SEGMENT_SINGLE)
            part *= w->single;
        c->own += r->is_name[j] && c->n_speaker == 0 ? part * NAME_SHARE : part;
    }
}

/* 1: read, 0: not there, another's, or still being written. */
static int read_candidate(struct recall *r, int64_t row, struct candidate *ret, struct err *e)
{
    struct stmt *s = db_stmt(r->m->db,
                             "SELECT m.parent, m.conversation, m.created_at, m.role,"
                             " substr(CAST(m.text AS BLOB), 1, ?3)"
                             " FROM message m JOIN conversation c ON c.row = m.conversation"
                             " WHERE m.row = ?1 AND c.owner = ?2 AND m.status <> 1",
                             e);
    stmt_int(s, 1, row);
    stmt_str(s, 2, r->q->owner);
    stmt_int(s, 3, READ_BYTES);
    int rc = stmt_step(s, e);
    if (rc == 1) {
        *ret = (struct candidate){.row = row,
                                  .parent = column_int(s, 0),
                                  .conversation = column_int(s, 1),
                                  .created_at = column_int(s, 2),
                                  .role = (enum memory_role)column_int(s, 3)};
        const void *text = column_blob(s, 4, &ret->n_text);
        ret->text = arena_copy(r->a, text ? text : "", ret->n_text);
        if (!ret->text)
            rc = memory_out(e);
    }
    stmt_end(s);
    return rc;
}

/* Adds the row to the pool, scored; *ret_at its index, or -1. */
static int add_candidate(struct recall *r, int64_t row, int64_t conversation, long *ret_at,
                         struct err *e)
{
    *ret_at = -1;
    if (r->n == r->cap || !is_wanted(r->q, row))
        return 0;
    struct candidate *c = &r->v[r->n];
    int rc = read_candidate(r, row, c, e);
    if (rc <= 0 || (conversation != 0 && c->conversation != conversation))
        return rc < 0 ? rc : 0;
    const struct query_row *found = query_row_find(&r->qu, row);
    struct look k;
    c->mask = found ? found->mask : 0;
    look_over(r, c, &k);
    score_own(r, c, &k);
    *ret_at = (long)r->n++;
    return 0;
}

static int compare_raw(const void *a, const void *b)
{
    const struct query_row *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->row > y->row ? -1 : x->row < y->row;
}

/* The best rows by the sums of their terms' weights. */
static int read_pool(struct recall *r, struct err *e)
{
    size_t n = 0;
    struct query_row *best = arena_array(r->a, r->qu.n_rows, sizeof(*best));
    if (!best)
        return memory_out(e);
    for (size_t i = 0; i < r->qu.n_rows; i++)
        if (is_wanted(r->q, r->qu.rows[i].row))
            best[n++] = r->qu.rows[i];
    qsort(best, n, sizeof(*best), compare_raw);
    int rc = 0;
    long at;
    size_t n_pool = POOL_BASE + 2 * (size_t)(r->q->offset + r->q->limit);
    if (n_pool > SEARCH_POOL)
        n_pool = SEARCH_POOL;
    for (size_t i = 0; rc == 0 && i < n && r->n < n_pool; i++)
        rc = add_candidate(r, best[i].row, r->q->conversation, &at, e);
    return rc;
}

static long find_candidate(const struct recall *r, int64_t row)
{
    for (size_t i = 0; i < r->n; i++)
        if (r->v[i].row == row)
            return (long)i;
    return -1;
}

static int add_near(struct recall *r, size_t from, int64_t row, double share, struct err *e)
{
    if (row == 0 || share == 0)
        return 0;
    long at = find_candidate(r, row);
    int rc = 0;
    if (at < 0)
        rc = add_candidate(r, row, r->v[from].conversation, &at, e);
    if (rc == 0 && at >= 0) {
        r->v[at].near += share * r->v[from].own;
        r->v[at].why |= MEMORY_WHY_NEIGHBOUR;
    }
    return rc;
}

static int children_of(struct recall *r, int64_t row, int64_t ret[CHILDREN_MAX], struct err *e)
{
    struct stmt *s = db_stmt(r->m->db,
                             "SELECT row FROM message WHERE parent = ?1 AND parent > 0"
                             " ORDER BY row DESC LIMIT 2",
                             e);
    int rc, n = 0;
    stmt_int(s, 1, row);
    while ((rc = stmt_step(s, e)) == 1 && n < CHILDREN_MAX)
        ret[n++] = column_int(s, 0);
    stmt_end(s);
    return rc < 0 ? rc : 0;
}

static int compare_own(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->own != y->own)
        return x->own > y->own ? -1 : 1;
    return x->row > y->row ? -1 : x->row < y->row;
}

static int share_with_neighbours(struct recall *r, struct err *e)
{
    qsort(r->v, r->n, sizeof(*r->v), compare_own);
    size_t n = r->n < NEAR_MAX ? r->n : NEAR_MAX;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        int64_t children[CHILDREN_MAX] = {0};
        rc = children_of(r, r->v[i].row, children, e);
        if (rc == 0)
            rc = add_near(r, i, r->v[i].parent, r->q->weights->before, e);
        for (int k = 0; rc == 0 && k < CHILDREN_MAX; k++)
            rc = add_near(r, i, children[k], r->q->weights->after, e);
    }
    return rc;
}

struct named {
    const struct query *qu;
    bool is_named;
};

static bool look_for_name(void *user, const struct segment *t)
{
    struct named *n = user;
    bool is_name = t->kind == SEGMENT_WORD ? t->n > 1 && !t->is_stop : t->kind == SEGMENT_PAIR;
    n->is_named = n->is_named || (is_name && query_find(n->qu, t->term, t->n) >= 0);
    return !n->is_named;
}

/* Whether the query names who said it. */
static bool names_speaker(struct recall *r, const struct candidate *c)
{
    struct named n = {.qu = &r->qu};
    if (c->n_speaker == 0)
        return called_names(&r->called, c->conversation, c->role);
    segment_walk(r->m->index.segmenter, c->text, c->n_speaker, look_for_name, &n);
    return n.is_named;
}

static void score_all(struct recall *r)
{
    const struct memory_weights *w = r->q->weights;
    for (size_t i = 0; i < r->n; i++) {
        struct candidate *c = &r->v[i];
        double score = c->own + c->near;
        if (c->own > 0)
            c->why |= MEMORY_WHY_TERMS;
        if (names_speaker(r, c)) {
            score *= 1 + w->speaker;
            c->why |= MEMORY_WHY_SPEAKER;
        }
        if (r->qu.asks_time && c->tells_time)
            score *= 1 + w->time;
        if (c->asks_only)
            score *= 1 - w->question;
        double age_s = (double)(r->q->now - c->created_at);
        if (r->q->now > 0)
            score *= 1 + w->recent * exp2(-(age_s > 0 ? age_s : 0) / HALF_LIFE_S);
        c->score = score;
    }
}

/* Equal texts next to each other, the newest first. */
static int compare_same(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->sameness != y->sameness)
        return x->sameness < y->sameness ? -1 : 1;
    return x->row > y->row ? -1 : x->row < y->row;
}

static int compare_score(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->row > y->row ? -1 : x->row < y->row;
}

/* Each text once; none that is the query itself. */
static void drop_same(struct recall *r)
{
    size_t n = 0;
    qsort(r->v, r->n, sizeof(*r->v), compare_same);
    for (size_t i = 0; i < r->n; i++) {
        struct candidate *c = &r->v[i];
        bool is_query = c->sameness == r->query_sameness && !r->q->is_search;
        if (is_query || c->score <= 0)
            continue;
        if (n > 0 && r->v[n - 1].sameness == c->sameness) {
            if (r->v[n - 1].score < c->score)
                r->v[n - 1].score = c->score;
            continue;
        }
        r->v[n++] = *c;
    }
    r->n = n;
}

static bool add_sameness(void *user, const struct segment *t)
{
    uint64_t *hash = user;
    *hash = query_hash(t->term, t->n, *hash);
    return true;
}

static int read_hit(struct recall *r, const struct candidate *c, struct memory_hit *ret,
                    struct err *e)
{
    struct memory_message whole;
    int rc = memory_message_by_row(r->m, c->row, &whole, r->a, e);
    if (rc < 0)
        return rc;
    *ret = (struct memory_hit){.row = c->row,
                               .conversation = c->conversation,
                               .role = whole.role,
                               .created_at = c->created_at,
                               .text = whole.text,
                               .n_text = whole.n_text,
                               .score = c->score,
                               .why = c->why};
    memcpy(ret->id, whole.id, sizeof(ret->id));
    if (c->n_speaker < sizeof(ret->speaker))
        memcpy(ret->speaker, c->text, c->n_speaker);
    struct stmt *s = db_stmt(r->m->db, "SELECT id FROM conversation WHERE row = ?1", e);
    stmt_int(s, 1, c->conversation);
    rc = stmt_step(s, e);
    size_t n = 0;
    const char *id = rc == 1 ? column_text(s, 0, &n) : "";
    if (n < sizeof(ret->conversation_id))
        memcpy(ret->conversation_id, id, n);
    stmt_end(s);
    return rc < 0 ? rc : 0;
}

/* The page of hits, with their whole texts. */
static int take_page(struct recall *r, struct memory_hits *ret, struct err *e)
{
    const size_t from = (size_t)r->q->offset < r->n ? (size_t)r->q->offset : r->n;
    const size_t left = r->n - from, limit = (size_t)r->q->limit;
    ret->n = left < limit ? left : limit;
    ret->has_more = left > limit;
    ret->v = arena_array(r->a, ret->n, sizeof(*ret->v));
    if (!ret->v)
        return memory_out(e);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < ret->n; i++)
        rc = read_hit(r, &r->v[from + i], &ret->v[i], e);
    return rc;
}

static int rank(struct recall *r, struct err *e)
{
    int rc = query_parse(r->m, r->q, &r->qu, r->a, e);
    if (rc < 0)
        return rc;
    rc = query_match(r->m, r->q, &r->qu, r->a, e);
    if (rc < 0) /* of the index: its damage is forgiven, and then there are no hits */
        return index_failed(r->m, rc) ? 0 : rc;
    rc = called_gather(r->m, r->q, &r->qu, &r->called, e);
    for (int j = 0; j < r->qu.n_asked; j++)
        r->is_name[j] = called_is_name(&r->called, &r->qu, r->qu.asked[j]);
    if (rc == 0)
        rc = read_pool(r, e);
    if (rc == 0)
        rc = share_with_neighbours(r, e);
    if (rc == 0)
        score_all(r);
    return rc;
}

/* Candidates in the order of the list: drop_same and the sorting keep to their scores. */
static int read_rows(struct recall *r, struct err *e)
{
    const struct memory_list *list = r->ranked;
    int rc = query_parse(r->m, r->q, &r->qu, r->a, e);
    for (size_t i = 0; rc == 0 && i < list->n && r->n < SEARCH_POOL; i++) {
        long at;
        rc = add_candidate(r, list->v[i].row, r->q->conversation, &at, e);
        if (rc == 0 && at >= 0) {
            r->v[at].score = 1.0 / (double)(i + 1);
            r->v[at].why = MEMORY_WHY_MEANING;
        }
    }
    return rc;
}

static int check_query(const struct memory_query *q, struct err *e)
{
    if (q->limit < 1 || q->limit > SEARCH_LIMIT_MAX)
        return err_set(e, ERR_INVAL, "limit is %d: from 1 to %d", q->limit, SEARCH_LIMIT_MAX);
    if (q->offset < 0 || q->offset > SEARCH_POOL - q->limit)
        return err_set(e, ERR_INVAL, "offset is %d: with the limit at most %d", q->offset,
                       SEARCH_POOL);
    return 0;
}

/* ranked: rows found elsewhere, or NULL: found here. */
static int run(struct memory *m, const struct memory_query *asked, const struct memory_list *ranked,
               struct memory_hits *ret, struct arena *a, struct err *e)
{
    struct memory_query q = *asked;
    struct memory_hits hits = {.n = 0};
    struct recall r = {
        .m = m, .q = &q, .a = a, .cap = SEARCH_POOL + 3 * NEAR_MAX, .ranked = ranked};
    if (!q.weights)
        q.weights = &memory_weights_default;
    r.v = arena_array(a, r.cap, sizeof(*r.v));
    if (!r.v)
        return memory_out(e);
    segment_walk(m->index.segmenter, q.text, q.n_text, add_sameness, &r.query_sameness);
    int rc = db_begin_read(m->db, e);
    if (rc < 0)
        return rc;
    index_check(m);
    if (ranked)
        rc = read_rows(&r, e);
    else if (!m->index.is_damaged)
        rc = rank(&r, e);
    if (rc == 0) {
        drop_same(&r);
        qsort(r.v, r.n, sizeof(*r.v), compare_score);
        rc = take_page(&r, &hits, e);
    }
    rc = db_end(m->db, rc, e);
    hits.is_damaged = m->index.is_damaged;
    hits.is_partial = hits.is_damaged || m->index.fill > 0;
    if (rc == 0)
        *ret = hits;
    return rc;
}

int memory_recall(struct memory *m, const struct memory_query *q, struct memory_hits *ret,
                  struct arena *a, struct err *e)
{
    int rc = check_query(q, e);
    return rc < 0 ? rc : run(m, q, NULL, ret, a, e);
}

int memory_recall_rows(struct memory *m, const struct memory_query *q,
                       const struct memory_list *ranked, struct memory_hits *ret, struct arena *a,
                       struct err *e)
{
    int rc = check_query(q, e);
    return rc < 0 ? rc : run(m, q, ranked, ret, a, e);
}

int memory_search_state(struct memory *m, struct memory_search_state *ret, struct err *e)
{
    struct memory_search_state state = {.is_damaged = m->index.is_damaged};
    struct stmt *s = db_stmt(m->db, "SELECT count(*) FROM message WHERE row <= ?1", e);
    stmt_int(s, 1, state.is_damaged ? INT64_MAX : m->index.fill);
    int rc = stmt_step(s, e);
    if (rc == 1)
        state.n_waiting = column_int(s, 0);
    stmt_end(s);
    if (rc < 0)
        return rc;
    *ret = state;
    return 0;
}
