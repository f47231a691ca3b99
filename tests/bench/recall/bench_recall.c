/*
 * How much of the evidence for a question is among the first ten messages found. Not in the suite:
 * it prints, and asserts nothing.
 *
 *     ninja tests/bench/bench_recall
 *     tests/bench/bench_recall FILE.jsonl…         talks of generate.py, scenes.py, or one's own
 *     tests/bench/bench_recall --size N            what a search costs at N messages
 *
 * Methods: FTS5 by its own tokenizer; by porter, the query without stop words; pairs of characters
 * (for Chinese); ours; with ABLATE in the environment, ours without each of its parts. Each is
 * asked in three ways: the turns are a user's and an assistant's messages; each begins with its
 * speaker's name; and, with names, over all talks at once. MISSES=1 tells what wasn't found.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/hash.h"
#include "memory/memory.h"
#include "memory/search.h"
#include "tests/bench/recall/plain.h"
#include "tests/bench/recall/talks.h"

struct bench {
    struct talks talks;
    bool is_together;
    char dir[64];
};

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

/* Of the half that weights are chosen by: what wasn't found, and what was instead. */
static void tell_miss(const struct bench *b, const struct talk *t, const struct question *q,
                      const struct memory_hits *hits)
{
    printf("MISS %s\n", q->text);
    for (int i = 0; i < q->n_evidence; i++) {
        size_t h = 0;
        while (h < hits->n && hits->v[h].row != t->rows[q->evidence[i]])
            h++;
        printf("   %s %s\n", h < hits->n ? "had " : "want",
               talks_text(&b->talks, &t->turns[q->evidence[i]]));
    }
    for (size_t h = 0; h < hits->n && h < 5; h++)
        printf("   %.2f %s\n", hits->v[h].score, hits->v[h].text);
}

static struct recalled ours(struct bench *b, struct memory *m, const struct memory_weights *w)
{
    struct recalled sum = {.n = {0}};
    struct err e = {0};
    for (int i = 0; i < b->talks.n; i++)
        for (int k = 0; k < b->talks.v[i].n_questions; k++) {
            const struct talk *t = &b->talks.v[i];
            const struct question *q = &t->questions[k];
            struct memory_query query = {.owner = TALKS_OWNER,
                                         .conversation = b->is_together ? 0 : t->conversation,
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
            const double got = recalled_add(&sum, t, q, rows, (int)hits.n);
            if (getenv("DUMP") && !w)
                dump(m, t, q, query);
            if (getenv("MISSES") && !w && !q->is_held && got < 1)
                tell_miss(b, t, q, &hits);
            arena_done(&a);
        }
    return sum;
}

static struct recalled plain(struct bench *b, enum plain_how how)
{
    char path[96];
    struct recalled sum = {.n = {0}};
    struct plain *p = NULL;
    snprintf(path, sizeof(path), "%s/plain.db", b->dir);
    for (int i = 0; i < b->talks.n; i++) {
        const struct talk *t = &b->talks.v[i];
        if (!p)
            p = plain_new(&b->talks, how, b->is_together ? -1 : i, path);
        for (int k = 0; k < t->n_questions; k++) {
            int64_t rows[TOP];
            const int n = plain_ask(p, t->questions[k].text, rows, TOP);
            recalled_add(&sum, t, &t->questions[k], rows, n);
        }
        if (!b->is_together || i + 1 == b->talks.n) {
            plain_free(p);
            p = NULL;
        }
    }
    return sum;
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
        PART(k1, 1.8),       PART(single, 0),   PART(single, 0.25), PART(single, 0.75),
    };
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        struct memory_weights w = memory_weights_default;
        memcpy((char *)&w + parts[i].at, &parts[i].value, sizeof(double));
        const struct recalled r = ours(b, m, &w);
        recalled_print(parts[i].name, &r);
    }
}

static void report(struct bench *b, bool is_ablating)
{
    static const struct {
        const char *name;
        enum plain_how how;
    } baselines[] = {{"FTS5, its own tokenizer", PLAIN_DEFAULT},
                     {"FTS5, porter, no stop words", PLAIN_STEMS},
                     {"pairs of characters", PLAIN_PAIRS}};
    char path[96];
    snprintf(path, sizeof(path), "%s/history.db", b->dir);
    struct memory *m = talks_store(&b->talks, path);
    for (size_t i = 0; i < sizeof(baselines) / sizeof(baselines[0]); i++) {
        const struct recalled r = plain(b, baselines[i].how);
        recalled_print(baselines[i].name, &r);
    }
    const struct recalled r = ours(b, m, NULL);
    recalled_print("ours", &r);
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
            struct memory_query q = {.owner = TALKS_OWNER,
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
        const struct memory_new_conversation talk = {.owner = TALKS_OWNER};
        check(memory_conversation_add(m, &talk, &c, &a, &e), &e);
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
        talks_read(&b.talks, argv[i]);
        for (int way = 0; way < 3; way++) {
            static const char *const ways[] = {"by roles", "with names", "with names, all talks"};
            b.talks.is_named = way > 0;
            b.is_together = way == 2;
            printf("%s, ", argv[i]);
            recalled_head(ways[way]);
            report(&b, getenv("ABLATE") != NULL);
        }
    }
    char path[96];
    snprintf(path, sizeof(path), "%s/history.db", b.dir);
    unlink(path);
    rmdir(b.dir);
    return 0;
}
