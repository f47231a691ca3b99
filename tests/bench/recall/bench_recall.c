/*
 * How much of the evidence for a question is among the first ten messages found. Not in the suite:
 * it prints, and asserts nothing.
 *
 *     ninja tests/bench/recall/bench_recall
 *     tests/bench/recall/bench_recall FILE.jsonl…         the talks of generate.py, or one's own
 *     tests/bench/recall/bench_recall --size N            what a search costs at N messages
 *
 * Methods: FTS5 by its own tokenizer; by porter, the query without stop words; pairs of characters
 * (for Chinese); ours; ours without each of its parts. Each is asked in three ways: the turns are a
 * user's and an assistant's messages; each begins with its speaker's name; and, with names, over
 * all talks at once.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/utf8.h"
#include "memory/db.h"
#include "memory/memory.h"
#include "memory/search.h"
#include "memory/segment.h"

#define TOP 10
#define TALKS_MAX 64
#define OWNER "bench"

struct turn {
    char *text, *named; /* named: "Maria: text" */
    bool is_second;     /* of the two speakers: the assistant */
};
struct question {
    char *text;
    int *evidence;
    int n_evidence;
};
struct talk {
    char *first; /* who speaks as the user */
    struct turn *turns;
    struct question *questions;
    int n_turns, n_questions;
    int64_t conversation;
    int64_t *rows; /* [n_turns] of the messages */
};
struct bench {
    struct talk talks[TALKS_MAX];
    int n_talks;
    bool is_named, is_together;
    char dir[64];
};

static void check(int rc, const struct err *e)
{
    if (rc >= 0)
        return;
    fprintf(stderr, "bench_recall: %s\n", e->text);
    exit(1);
}

static void *grown(void *v, int n, size_t size)
{
    if ((n & (n - 1)) != 0)
        return v;
    v = realloc(v, (size_t)(n ? 2 * n : 1) * size);
    if (!v)
        exit(1);
    return v;
}

static void add_turn(struct talk *t, const json *j)
{
    const char *by = json_str(json_get(j, "by", NULL)), *text = json_str(json_get(j, "text", NULL));
    t->turns = grown(t->turns, t->n_turns, sizeof(*t->turns));
    struct turn *turn = &t->turns[t->n_turns++];
    if (!t->first)
        t->first = strdup(by);
    turn->text = strdup(text);
    turn->is_second = strcmp(by, t->first) != 0;
    if (asprintf(&turn->named, "%s: %s", by, text) < 0)
        exit(1);
}

static void add_question(struct talk *t, const json *j)
{
    const json *list = json_get(j, "evidence", NULL);
    t->questions = grown(t->questions, t->n_questions, sizeof(*t->questions));
    struct question *q = &t->questions[t->n_questions++];
    *q = (struct question){.text = strdup(json_str(json_get(j, "ask", NULL)))};
    for (const json *it = json_first(list); it; it = json_next(it)) {
        q->evidence = grown(q->evidence, q->n_evidence, sizeof(*q->evidence));
        q->evidence[q->n_evidence++] = (int)json_double(it);
    }
}

static void read_talks(struct bench *b, const char *path)
{
    struct err e = {0};
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    FILE *f = fopen(path, "r");
    if (!f) {
        perror(path);
        exit(1);
    }
    b->n_talks = 0;
    while ((n = getline(&line, &cap, f)) > 0) {
        json *j;
        check(json_parse(line, (size_t)n, &j, &e), &e);
        struct talk *t = b->n_talks > 0 ? &b->talks[b->n_talks - 1] : NULL;
        if (json_get(j, "talk", NULL) && b->n_talks < TALKS_MAX)
            b->talks[b->n_talks++] = (struct talk){.n_turns = 0};
        else if (t && json_get(j, "ask", NULL))
            add_question(t, j);
        else if (t && json_get(j, "by", NULL))
            add_turn(t, j);
        json_free(j);
    }
    free(line);
    fclose(f);
}

static const char *text_of(const struct bench *b, const struct turn *t)
{
    return b->is_named ? t->named : t->text;
}

/* The share of the evidence that is among the rows. */
static double recalled(const struct question *q, const struct talk *t, const int64_t *rows, int n)
{
    int found = 0;
    for (int i = 0; i < q->n_evidence; i++)
        for (int k = 0; k < n; k++)
            if (rows[k] == t->rows[q->evidence[i]]) {
                found++;
                break;
            }
    return q->n_evidence > 0 ? (double)found / q->n_evidence : 0;
}

/* The history: ours. */
static struct memory *store(struct bench *b)
{
    char path[96];
    struct err e = {0};
    struct memory *m;
    snprintf(path, sizeof(path), "%s/history.db", b->dir);
    unlink(path);
    check(memory_open(path, &m, &e), &e);
    for (int i = 0; i < b->n_talks; i++) {
        struct talk *t = &b->talks[i];
        struct arena a;
        struct memory_conversation c;
        arena_init(&a, SIZE_MAX);
        check(memory_conversation_add(m, &(struct memory_new_conversation){.owner = OWNER}, &c, &a,
                                      &e),
              &e);
        struct memory_new_message *new = calloc((size_t)t->n_turns, sizeof(*new));
        struct memory_message *added = calloc((size_t)t->n_turns, sizeof(*added));
        t->rows = realloc(t->rows, (size_t)t->n_turns * sizeof(*t->rows));
        if (!new || !added || !t->rows)
            exit(1);
        for (int k = 0; k < t->n_turns; k++) {
            const char *text = text_of(b, &t->turns[k]);
            bool is_second = t->turns[k].is_second;
            new[k] =
                (struct memory_new_message){.conversation = c.row,
                                            .role = is_second ? MEMORY_ASSISTANT : MEMORY_USER,
                                            .status = is_second ? MEMORY_COMPLETE : MEMORY_STORED,
                                            .text = text,
                                            .n_text = strlen(text)};
        }
        check(memory_message_add_all(m, new, (size_t)t->n_turns, added, &a, &e), &e);
        for (int k = 0; k < t->n_turns; k++)
            t->rows[k] = added[k].row;
        t->conversation = c.row;
        free(new);
        free(added);
        arena_done(&a);
    }
    return m;
}

/* For trying out other ways to merge: a question and its list, a line of JSON. */
static void dump(struct memory *m, const struct talk *t, const struct question *q,
                 struct memory_query query)
{
    struct memory_hits hits;
    struct arena a;
    struct err e = {0};
    query.limit = SEARCH_LIMIT_MAX;
    arena_init(&a, SIZE_MAX);
    check(memory_recall(m, &query, &hits, &a, &e), &e);
    printf("DUMP {\"conversation\":%lld,\"ask\":\"%s\",\"words\":[", (long long)t->conversation,
           q->text);
    for (size_t h = 0; h < hits.n; h++)
        printf("%s[%lld,%.4f,%u]", h ? "," : "", (long long)hits.v[h].row, hits.v[h].score,
               hits.v[h].why);
    printf("]}\n");
    arena_done(&a);
}

static double ours(struct bench *b, struct memory *m, const struct memory_weights *w)
{
    double sum = 0;
    int n = 0;
    struct err e = {0};
    for (int i = 0; i < b->n_talks; i++)
        for (int k = 0; k < b->talks[i].n_questions; k++) {
            const struct question *q = &b->talks[i].questions[k];
            struct memory_query query = {.owner = OWNER,
                                         .conversation =
                                             b->is_together ? 0 : b->talks[i].conversation,
                                         .text = q->text,
                                         .n_text = strlen(q->text),
                                         .limit = TOP,
                                         .weights = w};
            struct memory_hits hits;
            struct arena a;
            int64_t rows[TOP];
            arena_init(&a, SIZE_MAX);
            check(memory_recall(m, &query, &hits, &a, &e), &e);
            for (size_t h = 0; h < hits.n; h++)
                rows[h] = hits.v[h].row;
            double got = recalled(q, &b->talks[i], rows, (int)hits.n);
            if (getenv("DUMP") && !w)
                dump(m, &b->talks[i], q, query);
            if (getenv("MISSES") && !w && got < 1) {
                printf("MISS %s\n   want %s\n", q->text,
                       text_of(b, &b->talks[i].turns[q->evidence[0]]));
                for (size_t h = 0; h < hits.n && h < 4; h++)
                    printf("   %.2f %s\n", hits.v[h].score, hits.v[h].text);
            }
            sum += got;
            n++;
            arena_done(&a);
        }
    return n ? sum / n : 0;
}

/* Plain FTS5 tables, as one would write them in five lines. */
enum plain { PLAIN_DEFAULT, PLAIN_STEMS, PLAIN_PAIRS };

struct words {
    const char *text;
    struct buf *out;
    enum plain how;
};

static bool add_word(void *user, const struct segment *t)
{
    struct words *w = user;
    if (t->kind != SEGMENT_WORD || (w->how == PLAIN_STEMS && t->is_stop))
        return true;
    buf_str(w->out, w->out->len ? " OR \"" : "\"");
    buf_add(w->out, w->text + t->from, t->to - t->from);
    buf_str(w->out, "\"");
    return true;
}

/* Every two characters that stand side by side. */
static void pairs(const char *text, const char *between, struct buf *out)
{
    size_t n = strlen(text), i = 0, before = 0;
    bool is_after = false;
    while (i < n) {
        size_t from = i;
        bool is_letter = utf8_kind(utf8_next(text, n, &i)) != UTF8_OTHER;
        if (is_letter && is_after) {
            if (out->len > 0)
                buf_str(out, between);
            buf_char(out, '"');
            buf_add(out, text + before, i - before);
            buf_char(out, '"');
        }
        is_after = is_letter;
        before = from;
    }
}

static void plain_query(struct segmenter *s, const char *text, enum plain how, struct buf *out)
{
    struct words w = {.text = text, .out = out, .how = how};
    if (how == PLAIN_PAIRS)
        pairs(text, " OR ", out);
    else
        segment_walk(s, text, strlen(text), add_word, &w);
}

static void plain_fill(struct bench *b, struct db *db, enum plain how, int talk)
{
    struct err e = {0};
    struct buf text;
    buf_init(&text, SIZE_MAX);
    check(db_begin(db, DB_NORMAL, &e), &e);
    check(db_exec(db,
                  how == PLAIN_STEMS
                      ? "DROP TABLE IF EXISTS f; CREATE VIRTUAL TABLE f USING fts5"
                        " (t, tokenize = 'porter unicode61')"
                      : "DROP TABLE IF EXISTS f; CREATE VIRTUAL TABLE f USING fts5 (t)",
                  &e),
          &e);
    for (int i = 0; i < b->n_talks; i++)
        for (int k = 0; (talk < 0 || i == talk) && k < b->talks[i].n_turns; k++) {
            const char *t = text_of(b, &b->talks[i].turns[k]);
            buf_clear(&text);
            if (how == PLAIN_PAIRS)
                pairs(t, " ", &text);
            else
                buf_str(&text, t);
            struct stmt *s = db_stmt(db, "INSERT INTO f (rowid, t) VALUES (?1, ?2)", &e);
            stmt_int(s, 1, b->talks[i].rows[k]);
            stmt_text(s, 2, text.data ? text.data : "", text.len);
            check(stmt_run(s, &e), &e);
        }
    check(db_end(db, 0, &e), &e);
    buf_done(&text);
}

static double plain_talk(struct bench *b, struct db *db, enum plain how, int talk)
{
    struct err e = {0};
    double sum = 0;
    struct segmenter *seg = segmenter_new();
    const struct talk *t = &b->talks[talk];
    for (int k = 0; k < t->n_questions; k++) {
        struct buf query;
        int64_t rows[TOP];
        int n = 0, rc;
        buf_init(&query, SIZE_MAX);
        plain_query(seg, t->questions[k].text, how, &query);
        struct stmt *s =
            db_stmt(db, "SELECT rowid FROM f WHERE f MATCH ?1 ORDER BY rank LIMIT 10", &e);
        stmt_text(s, 1, query.data ? query.data : "\"\"", query.data ? query.len : 2);
        while ((rc = stmt_step(s, &e)) == 1 && n < TOP)
            rows[n++] = column_int(s, 0);
        check(rc, &e);
        stmt_end(s);
        buf_done(&query);
        sum += recalled(&t->questions[k], t, rows, n);
    }
    segmenter_free(seg);
    return sum;
}

static double plain(struct bench *b, enum plain how)
{
    char path[96];
    struct err e = {0};
    struct db *db;
    double sum = 0;
    int n = 0;
    snprintf(path, sizeof(path), "%s/plain.db", b->dir);
    fclose(fopen(path, "w"));
    check(db_open(path, &db, &e), &e);
    if (b->is_together)
        plain_fill(b, db, how, -1);
    for (int i = 0; i < b->n_talks; i++) {
        if (!b->is_together)
            plain_fill(b, db, how, i);
        sum += plain_talk(b, db, how, i);
        n += b->talks[i].n_questions;
    }
    db_close(db);
    unlink(path);
    return n ? sum / n : 0;
}

static void ablate(struct bench *b, struct memory *m)
{
    static const struct {
        const char *name;
        size_t at;
        double value;
    } parts[] = {
#define PART(f, v) {"  " #f " " #v, offsetof(struct memory_weights, f), v}
        PART(before, 0),     PART(before, 0.2), PART(before, 0.5),  PART(after, 0),
        PART(after, 0.2),    PART(after, 0.6),  PART(speaker, 0),   PART(speaker, 0.2),
        PART(speaker, 0.8),  PART(time, 0),     PART(time, 0.3),    PART(question, 0),
        PART(question, 0.4), PART(b, 0.25),     PART(b, 0.75),      PART(k1, 0.6),
        PART(k1, 1.8),       PART(single, 0),   PART(single, 0.15), PART(single, 0.6),
    };
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        struct memory_weights w = memory_weights_default;
        memcpy((char *)&w + parts[i].at, &parts[i].value, sizeof(double));
        printf("%-24s %.3f\n", parts[i].name, ours(b, m, &w));
    }
}

static void report(struct bench *b, bool is_ablating)
{
    struct memory *m = store(b);
    printf("fts5 unicode61           %.3f\n", plain(b, PLAIN_DEFAULT));
    printf("fts5 porter, no stops    %.3f\n", plain(b, PLAIN_STEMS));
    printf("character pairs          %.3f\n", plain(b, PLAIN_PAIRS));
    printf("ours                     %.3f\n", ours(b, m, NULL));
    if (is_ablating)
        ablate(b, m);
    memory_close(m);
}

/* Words by a Zipf-like law, so that some are in most messages. */
static void say(uint64_t *seed, struct buf *out)
{
    buf_clear(out);
    for (int i = 0; i < 25; i++) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        double u = (double)(*seed >> 11) / (double)(1ull << 53);
        buf_printf(out, "%sw%da", i ? " " : "", (int)(1.0 / (u + 0.00005)));
    }
}

static void time_queries(struct memory *m, const char *what, int64_t conversation)
{
    static const char *const queries[] = {"w1a w2a w3a w10a w50a w200a w900a w4000a", "w1a",
                                          "what did w700a say about w1500a, w33a and w2a?"};
    struct err e = {0};
    for (int i = 0; i < 3; i++) {
        double worst = 0, sum = 0;
        for (int k = 0; k < 200; k++) {
            struct memory_query q = {.owner = OWNER,
                                     .conversation = conversation,
                                     .text = queries[i],
                                     .n_text = strlen(queries[i]),
                                     .limit = TOP};
            struct memory_hits hits;
            struct arena a;
            arena_init(&a, SIZE_MAX);
            clock_t from = clock(); /* of the processor: the machine may be busy */
            check(memory_recall(m, &q, &hits, &a, &e), &e);
            double ms = (double)(clock() - from) * 1e3 / CLOCKS_PER_SEC;
            sum += ms;
            worst = ms > worst ? ms : worst;
            arena_done(&a);
        }
        printf("%-10s %-48s mean %.2f ms, worst %.2f ms\n", what, queries[i], sum / 200, worst);
    }
}

static void size(struct bench *b, int n)
{
    char path[96];
    struct err e = {0};
    struct memory *m;
    struct buf text;
    uint64_t seed = 1;
    int64_t last = 0;
    snprintf(path, sizeof(path), "%s/history.db", b->dir);
    buf_init(&text, SIZE_MAX);
    check(memory_open(path, &m, &e), &e);
    int64_t from = clock_us();
    for (int i = 0; i < n; i += 2000) {
        struct arena a;
        struct memory_conversation c;
        static struct memory_new_message new[2000];
        static struct memory_message added[2000];
        arena_init(&a, SIZE_MAX);
        check(memory_conversation_add(m, &(struct memory_new_conversation){.owner = OWNER}, &c, &a,
                                      &e),
              &e);
        for (int k = 0; k < 2000; k++) {
            say(&seed, &text);
            new[k] = (struct memory_new_message){.conversation = c.row,
                                                 .role = MEMORY_USER,
                                                 .text = arena_str(&a, text.data),
                                                 .n_text = text.len};
        }
        check(memory_message_add_all(m, new, 2000, added, &a, &e), &e);
        last = c.row;
        arena_done(&a);
    }
    printf("%d messages stored and indexed in %.1f s\n", n, (double)(clock_us() - from) / 1e6);
    time_queries(m, "all", 0);
    time_queries(m, "one of 2k", last);
    memory_close(m);
    buf_done(&text);
}

int main(int argc, char **argv)
{
    struct bench b = {.dir = "/tmp/bench_recall.XXXXXX"};
    struct err e = {0};
    check(hash_start(&e), &e);
    if (argc < 2 || !mkdtemp(b.dir)) {
        fprintf(stderr, "usage: bench_recall FILE.jsonl… | --size N\n");
        return 2;
    }
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--size") == 0 && i + 1 < argc) {
            size(&b, (int)strtol(argv[++i], NULL, 10));
            continue;
        }
        read_talks(&b, argv[i]);
        for (int way = 0; way < 3; way++) {
            static const char *const ways[] = {"by roles", "with names", "with names, all talks"};
            b.is_named = way > 0;
            b.is_together = way == 2;
            printf("%s, %s\n", argv[i], ways[way]);
            report(&b, getenv("ABLATE") != NULL);
        }
    }
    char path[96];
    snprintf(path, sizeof(path), "%s/history.db", b.dir);
    unlink(path);
    rmdir(b.dir);
    return 0;
}
