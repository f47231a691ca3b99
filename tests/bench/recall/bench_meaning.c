/*
 * What vectors add to search: how much of the evidence for a question is among the first ten
 * messages, by words, by meaning, and by both; and what a search costs. Not in the suite.
 *
 *     ninja tests/bench/recall/bench_meaning
 *     tests/bench/recall/bench_meaning MODEL.gguf FILE.jsonl…   the talks of generate.py, or others
 *     tests/bench/recall/bench_meaning --size N DIM             a search among N vectors
 *
 * ABLATE=1: with each weight changed in turn. DUMP=1: each question's lists.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/json.h"
#include "engine/embed.h"
#include "memory/vectors.h"

#define TOP 10
#define OWNER "bench"
#define EVIDENCE_MAX 32
#define CHUNK 128

struct question {
    char *text;
    int64_t conversation, evidence[EVIDENCE_MAX]; /* message rows */
    int n_evidence;
    float *vector;
    bool is_known; /* the model can read it */
};
struct bench {
    struct memory *m;
    struct embed *model;
    struct question *questions;
    int n_questions;
    char path[64];
    bool is_named;
};

static void check(int rc, const struct err *e)
{
    if (rc >= 0)
        return;
    fprintf(stderr, "bench_meaning: %s\n", e->text);
    exit(1);
}

/* ---- filling ---- */

struct talk {
    int64_t conversation, last;
    int64_t rows[4096];
    int n_turns;
    char first[64];
};

static void begin_talk(struct bench *b, struct talk *t)
{
    struct arena a;
    struct err e = {0};
    struct memory_conversation c;
    arena_init(&a, SIZE_MAX);
    check(memory_conversation_add(b->m, &(struct memory_new_conversation){.owner = OWNER}, &c, &a,
                                  &e),
          &e);
    *t = (struct talk){.conversation = c.row};
    arena_done(&a);
}

static void add_turn(struct bench *b, struct talk *t, const json *j)
{
    const char *by = json_str(json_get(j, "by", NULL)), *text = json_str(json_get(j, "text", NULL));
    struct arena a;
    struct err e = {0};
    struct memory_message added;
    char *named = NULL;
    if (t->n_turns == 0)
        snprintf(t->first, sizeof t->first, "%s", by);
    if (asprintf(&named, "%s%s%s", b->is_named ? by : "", b->is_named ? ": " : "", text) < 0)
        exit(1);
    const bool is_second = strcmp(by, t->first) != 0;
    arena_init(&a, SIZE_MAX);
    const struct memory_new_message new = {.conversation = t->conversation,
                                           .parent = t->last,
                                           .role = is_second ? MEMORY_ASSISTANT : MEMORY_USER,
                                           .status = is_second ? MEMORY_COMPLETE : MEMORY_STORED,
                                           .text = named,
                                           .n_text = strlen(named)};
    check(memory_message_add_all(b->m, &new, 1, &added, &a, &e), &e);
    t->rows[t->n_turns++] = t->last = added.row;
    arena_done(&a);
    free(named);
}

static void add_question(struct bench *b, const struct talk *t, const json *j)
{
    b->questions = realloc(b->questions, (size_t)(b->n_questions + 1) * sizeof *b->questions);
    struct question *q = &b->questions[b->n_questions++];
    *q = (struct question){.text = strdup(json_str(json_get(j, "ask", NULL))),
                           .conversation = t->conversation};
    const json *list = json_get(j, "evidence", NULL);
    for (const json *it = json_first(list); it && q->n_evidence < EVIDENCE_MAX; it = json_next(it))
        q->evidence[q->n_evidence++] = t->rows[(int)json_double(it)];
}

/* Questions may stand before their talk's turns: two passes. */
static void read_file(struct bench *b, const char *path)
{
    static struct talk t;
    static json *asked[8192];
    size_t n_asked = 0, cap = 0;
    char *line = NULL;
    ssize_t n;
    struct err e = {0};
    FILE *f = fopen(path, "r");
    if (!f) {
        perror(path);
        exit(1);
    }
    for (;;) {
        json *j = NULL;
        n = getline(&line, &cap, f);
        if (n > 0)
            check(json_parse(line, (size_t)n, &j, &e), &e);
        if (n <= 0 || json_get(j, "talk", NULL)) {
            while (n_asked > 0) {
                add_question(b, &t, asked[--n_asked]);
                json_free(asked[n_asked]);
            }
            if (n > 0)
                begin_talk(b, &t);
            json_free(j);
        } else if (json_get(j, "ask", NULL)) {
            asked[n_asked++] = j;
        } else {
            if (json_get(j, "by", NULL))
                add_turn(b, &t, j);
            json_free(j);
        }
        if (n <= 0)
            break;
    }
    free(line);
    fclose(f);
}

static float *vectors_of(struct bench *b, const char *s, size_t n, int *ret_n)
{
    const size_t dim = (size_t)embed_dim(b->model);
    struct err e = {0};
    float *v = malloc(16 * dim * sizeof *v);
    *ret_n = 0;
    while (n > 0 && *ret_n < 16) {
        struct ids ids;
        size_t used;
        ids_init(&ids);
        check(embed_tokenize(b->model, (struct embed_text){s, n}, CHUNK, &ids, &used), &e);
        check(embed_run(b->model, &(struct embed_tokens){ids.v, (int)ids.n}, 1, NULL,
                        v + (size_t)(*ret_n)++ * dim, &e),
              &e);
        ids_done(&ids);
        s += used;
        n -= used;
    }
    return v;
}

static bool knows(struct bench *b, const struct buf *text)
{
    struct ids ids;
    struct err e = {0};
    size_t used;
    ids_init(&ids);
    check(embed_tokenize(b->model, (struct embed_text){text->data, text->len}, CHUNK, &ids, &used),
          &e);
    const bool is_known = embed_knows(b->model, &ids);
    ids_done(&ids);
    return is_known;
}

static void embed_all(struct bench *b)
{
    struct vectors_model model = {.dim = embed_dim(b->model), .bytes_max = 1 << 30};
    struct err e = {0};
    const int64_t begin = clock_us();
    int n_all = 0;
    check(memory_vectors_use(b->m, &model, &e), &e);
    while (memory_vectors_has_work(b->m)) {
        struct vectors_text texts[64];
        struct arena a;
        size_t n;
        arena_init(&a, SIZE_MAX);
        check(memory_vectors_next(b->m, (struct vectors_wanted){64, 1 << 20}, texts, &n, &a), &e);
        for (size_t i = 0; i < n; i++) {
            struct vectors_made made = {.row = texts[i].row};
            float *v = vectors_of(b, texts[i].text, texts[i].n_text, &made.n_parts);
            made.vectors = v;
            check(memory_vectors_add(b->m, &made, 1, &e), &e);
            free(v);
            n_all++;
        }
        arena_done(&a);
    }
    printf("%d messages embedded in %.1f s\n", n_all, (double)(clock_us() - begin) / 1e6);
    for (int i = 0; i < b->n_questions; i++) {
        struct question *q = &b->questions[i];
        const struct memory_query query = {.owner = OWNER,
                                           .conversation = q->conversation,
                                           .text = q->text,
                                           .n_text = strlen(q->text)};
        struct buf text;
        int n;
        buf_init(&text, SIZE_MAX);
        if (memory_vectors_question(b->m, &query, &text))
            exit(1);
        q->vector = vectors_of(b, text.data, text.len, &n);
        q->is_known = knows(b, &text);
        buf_done(&text);
    }
}

/* ---- asking ---- */

enum how { BY_WORDS, BY_MEANING, BY_BOTH };

static int ask(struct bench *b, const struct question *q, enum how how,
               const struct memory_weights *w, int64_t rows[TOP])
{
    struct memory_query query = {.owner = OWNER,
                                 .conversation = q->conversation,
                                 .text = q->text,
                                 .n_text = strlen(q->text),
                                 .limit = TOP,
                                 .weights = w};
    struct err e = {0};
    struct arena a;
    struct memory_hits hits = {.n = 0};
    struct vectors_hits near = {.n = 0};
    const bool is_by_both = how == BY_BOTH && q->is_known;
    arena_init(&a, SIZE_MAX);
    if (how == BY_MEANING)
        check(memory_vectors_search(b->m, &query, q->vector, TOP, &near), &e);
    else
        check(memory_recall_both(b->m, &query, is_by_both ? q->vector : NULL, &hits, &a, &e),
              &e);
    for (size_t i = 0; i < near.n; i++)
        rows[i] = near.v[i].row;
    for (size_t i = 0; i < hits.n; i++)
        rows[i] = hits.v[i].row;
    arena_done(&a);
    return (int)(near.n + hits.n);
}

static double share(const struct question *q, const int64_t *rows, int n)
{
    int found = 0;
    for (int i = 0; i < q->n_evidence; i++)
        for (int k = 0; k < n; k++)
            found += rows[k] == q->evidence[i];
    return q->n_evidence ? (double)found / q->n_evidence : 0;
}

static void say(struct bench *b, const char *name, enum how how, const struct memory_weights *w)
{
    double sum = 0;
    const int64_t begin = clock_us();
    for (int i = 0; i < b->n_questions; i++) {
        int64_t rows[TOP];
        sum += share(&b->questions[i], rows, ask(b, &b->questions[i], how, w, rows));
    }
    printf("%-28s %.3f   %.2f ms\n", name, sum / b->n_questions,
           (double)(clock_us() - begin) / 1e3 / b->n_questions);
    fflush(stdout);
}

/* For trying out other ways to merge: a question's evidence and both lists, a line of JSON. */
static void dump(struct bench *b)
{
    for (int i = 0; i < b->n_questions; i++) {
        const struct question *q = &b->questions[i];
        struct memory_query query = {.owner = OWNER,
                                     .conversation = q->conversation,
                                     .text = q->text,
                                     .n_text = strlen(q->text),
                                     .limit = SEARCH_LIMIT_MAX};
        struct memory_hits hits;
        struct vectors_hits near;
        struct err e = {0};
        struct arena a;
        arena_init(&a, SIZE_MAX);
        check(memory_recall(b->m, &query, &hits, &a, &e), &e);
        check(memory_vectors_search(b->m, &query, q->vector, 100, &near), &e);
        printf("{\"evidence\":[");
        for (int k = 0; k < q->n_evidence; k++)
            printf(k ? ",%lld" : "%lld", (long long)q->evidence[k]);
        printf("],\"words\":[");
        for (size_t k = 0; k < hits.n; k++)
            printf("%s[%lld,%.4f]", k ? "," : "", (long long)hits.v[k].row, hits.v[k].score);
        printf("],\"meaning\":[");
        for (size_t k = 0; k < near.n; k++)
            printf("%s[%lld,%.4f]", k ? "," : "", (long long)near.v[k].row, near.v[k].score);
        printf("]}\n");
        arena_done(&a);
    }
}

static void ablate(struct bench *b)
{
    static const struct {
        const char *name;
        size_t at;
        double value;
    } parts[] = {
#define PART(f, v) {"  " #f " " #v, offsetof(struct memory_weights, f), v}
        PART(meaning, 0.2),        PART(meaning, 0.4),        PART(meaning, 0.8),
        PART(meaning, 1),          PART(meaning, 1.5),        PART(meaning_before, 0),
        PART(meaning_before, 0.15), PART(meaning_before, 0.5), PART(meaning_after, 0),
        PART(meaning_after, 0.2),  PART(meaning_after, 0.6),  PART(meaning_floor, 0),
        PART(meaning_floor, 0.5),  PART(meaning_floor, 1.5), PART(meaning_floor, 2),
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        struct memory_weights w = memory_weights_default;
        memcpy((char *)&w + parts[i].at, &parts[i].value, sizeof(double));
        say(b, parts[i].name, BY_BOTH, &w);
    }
}

static void report(struct bench *b, const char *file)
{
    struct err e = {0};
    struct memory_weights alone = memory_weights_default;
    alone.meaning_before = alone.meaning_after = 0;
    unlink(b->path);
    check(memory_open(b->path, &b->m, &e), &e);
    b->n_questions = 0;
    read_file(b, file);
    printf("%s, %s: %d questions\n", file, b->is_named ? "with names" : "by roles",
           b->n_questions);
    embed_all(b);
    say(b, "by words", BY_WORDS, NULL);
    say(b, "by meaning, no neighbours", BY_MEANING, &alone);
    say(b, "by meaning", BY_MEANING, NULL);
    say(b, "by both, no neighbours", BY_BOTH, &alone);
    say(b, "by both", BY_BOTH, NULL);
    if (getenv("ABLATE"))
        ablate(b);
    if (getenv("DUMP"))
        dump(b);
    memory_close(b->m);
}

/* ---- size ---- */

static void size(struct bench *b, int n, int dim)
{
    struct err e = {0};
    struct arena a;
    struct memory_conversation c;
    struct vectors_model model = {.dim = dim, .bytes_max = 1 << 30};
    float *v = calloc((size_t)dim, sizeof *v);
    uint64_t seed = 1;
    unlink(b->path);
    check(memory_open(b->path, &b->m, &e), &e);
    arena_init(&a, SIZE_MAX);
    check(memory_conversation_add(b->m, &(struct memory_new_conversation){.owner = OWNER}, &c, &a,
                                  &e),
          &e);
    check(memory_vectors_use(b->m, &model, &e), &e);
    for (int i = 0; i < n; i += 1000) {
        static struct memory_new_message new[1000];
        static struct memory_message added[1000];
        static struct vectors_made made[1000];
        float *all = malloc(1000 * (size_t)dim * sizeof *all);
        for (int k = 0; k < 1000; k++)
            new[k] = (struct memory_new_message){
                .conversation = c.row, .role = MEMORY_USER, .text = "a", .n_text = 1};
        check(memory_message_add_all(b->m, new, 1000, added, &a, &e), &e);
        for (int k = 0; k < 1000; k++) {
            made[k] = (struct vectors_made){added[k].row, all + (size_t)k * (size_t)dim, 1};
            for (int d = 0; d < dim; d++) {
                seed = seed * 6364136223846793005u + 1442695040888963407u;
                all[(size_t)k * (size_t)dim + (size_t)d] =
                    ((float)(seed >> 40) * 0x1p-24f - 0.5f) * 0.1f;
            }
        }
        check(memory_vectors_add(b->m, made, 1000, &e), &e);
        free(all);
    }
    memory_close(b->m);
    check(memory_open(b->path, &b->m, &e), &e);
    check(memory_vectors_use(b->m, &model, &e), &e);
    v[0] = 1;
    for (int k = 0; k < 6; k++) {
        struct vectors_hits near;
        const int64_t begin = clock_us();
        check(memory_vectors_search(b->m, &(struct memory_query){.owner = OWNER}, v, TOP,
                                    &near),
              &e);
        printf("%d × %d: %.1f ms%s\n", n, dim, (double)(clock_us() - begin) / 1e3,
               k ? "" : " (with reading them)");
    }
    memory_close(b->m);
    arena_done(&a);
    free(v);
}

int main(int argc, char **argv)
{
    struct bench b = {.path = "/tmp/bench_meaning.XXXXXX"};
    struct err e = {0};
    check(hash_start(&e), &e);
    const int fd = mkstemp(b.path);
    if (argc < 3 || fd < 0) {
        fprintf(stderr, "usage: bench_meaning MODEL.gguf FILE.jsonl… | --size N DIM\n");
        return 2;
    }
    close(fd);
    if (strcmp(argv[1], "--size") == 0 && argc == 4) {
        size(&b, (int)strtol(argv[2], NULL, 10), (int)strtol(argv[3], NULL, 10));
    } else {
        check(embed_open(argv[1], NULL, &b.model, &e), &e);
        for (int i = 2; i < argc; i++) {
            for (int way = 0; way < 2; way++) {
                b.is_named = way == 1;
                report(&b, argv[i]);
            }
        }
        embed_close(b.model);
    }
    unlink(b.path);
    return 0;
}
