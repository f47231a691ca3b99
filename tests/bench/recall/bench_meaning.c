/*
 * What vectors add to search: how much of the evidence for a question is among the first ten
 * messages, by words, by meaning, and by both; beside what one would write in an afternoon (the
 * cosines of whole texts; both lists by reciprocal ranks; the same with each hit's neighbours);
 * and what a search costs. Not in the suite.
 *
 *     ninja tests/bench/bench_meaning
 *     tests/bench/bench_meaning MODEL.gguf FILE.jsonl…   talks of generate.py, scenes.py, or others
 *     tests/bench/bench_meaning --size N DIM             a search among N vectors
 *
 * ABLATE=1: with each weight changed in turn. DUMP=1: each question's lists, of the half that
 * weights are chosen by. WAY=0 or 1: only by roles, or only with names.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/hash.h"
#include "engine/embed.h"
#include "memory/vectors.h"
#include "tests/bench/recall/plain.h"
#include "tests/bench/recall/talks.h"

#define OWNER TALKS_OWNER
#define CHUNK 128
#define LIST 100   /* of each list that is merged */
#define RANK 60.0  /* the usual offset of reciprocal ranks */
#define TURNS_MAX 4096

struct bench {
    struct memory *m;
    struct embed *model;
    struct talks talks;
    char path[64], plain_path[80];
};

/* ---- filling ---- */

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

static void embed_questions(struct bench *b, struct talk *t)
{
    for (int i = 0; i < t->n_questions; i++) {
        struct question *q = &t->questions[i];
        const struct memory_query query = {.owner = OWNER,
                                           .conversation = t->conversation,
                                           .text = q->text,
                                           .n_text = strlen(q->text)};
        struct buf text;
        int n;
        buf_init(&text, SIZE_MAX);
        if (memory_vectors_question(b->m, &query, &text))
            exit(1);
        q->vectors = vectors_of(b, text.data, text.len, &n);
        q->is_known = knows(b, &text);
        buf_done(&text);
    }
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
    for (int i = 0; i < b->talks.n; i++)
        embed_questions(b, &b->talks.v[i]);
}

/* ---- what it is measured against ---- */

struct scored {
    double score;
    int turn;
};

static int by_score(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->turn - y->turn;
}

/* One talk's texts as they are stored, and SQLite's list. */
struct baseline {
    const struct talk *t;
    float *vectors; /* [n_turns, dim] */
    struct plain *plain;
    int dim;
    struct recalled by_meaning, by_both, with_near;
};

static void order(struct scored *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_score);
}

static void count(struct recalled *r, const struct baseline *k, const struct question *q,
                  const struct scored *v)
{
    int64_t rows[TOP];
    for (int i = 0; i < TOP; i++)
        rows[i] = k->t->rows[v[i].turn];
    recalled_add(r, k->t, q, rows, TOP);
}

static void ask_baseline(struct bench *b, struct baseline *k, const struct question *q)
{
    static struct scored near[TURNS_MAX], both[TURNS_MAX], wide[TURNS_MAX];
    int64_t words[LIST];
    int n_parts;
    const int n = k->t->n_turns, n_words = plain_ask(k->plain, q->text, words, LIST);
    float *v = vectors_of(b, q->text, strlen(q->text), &n_parts);
    for (int i = 0; i < n; i++) {
        near[i] = (struct scored){0, i};
        for (int d = 0; d < k->dim; d++)
            near[i].score += (double)v[d] * (double)k->vectors[(size_t)i * (size_t)k->dim + d];
        both[i] = wide[i] = (struct scored){0, i};
    }
    order(near, n);
    for (int i = 0; i < LIST && i < n; i++)
        both[near[i].turn].score += 1 / (RANK + i + 1);
    for (int i = 0; i < n_words; i++)
        both[words[i] - k->t->rows[0]].score += 1 / (RANK + i + 1);
    for (int i = 0; i < n; i++)
        wide[i].score = both[i].score + 0.5 * ((i > 0 ? both[i - 1].score : 0) +
                                               (i + 1 < n ? both[i + 1].score : 0));
    order(both, n);
    order(wide, n);
    count(&k->by_meaning, k, q, near);
    count(&k->by_both, k, q, both);
    count(&k->with_near, k, q, wide);
    free(v);
}

static void baselines(struct bench *b)
{
    struct baseline k = {.dim = embed_dim(b->model)};
    for (int i = 0; i < b->talks.n; i++) {
        k.t = &b->talks.v[i];
        if (k.t->n_turns > TURNS_MAX || k.t->n_turns < TOP)
            exit(1);
        k.vectors = malloc((size_t)k.t->n_turns * (size_t)k.dim * sizeof *k.vectors);
        k.plain = plain_new(&b->talks, PLAIN_STEMS, i, b->plain_path);
        for (int j = 0; j < k.t->n_turns; j++) {
            const char *text = talks_text(&b->talks, &k.t->turns[j]);
            int n;
            float *v = vectors_of(b, text, strlen(text), &n);
            memcpy(k.vectors + (size_t)j * (size_t)k.dim, v, (size_t)k.dim * sizeof *v);
            free(v);
        }
        for (int j = 0; j < k.t->n_questions; j++)
            ask_baseline(b, &k, &k.t->questions[j]);
        plain_free(k.plain);
        free(k.vectors);
    }
    recalled_print("plain: cosines of texts", &k.by_meaning);
    recalled_print("plain: with porter, by rank", &k.by_both);
    recalled_print("plain: … and neighbours", &k.with_near);
}

/* ---- asking ---- */

enum how { BY_WORDS, BY_MEANING, BY_BOTH };

struct asked {
    const struct talk *t;
    const struct question *q;
    enum how how;
    const struct memory_weights *w;
};

static int ask(struct bench *b, const struct asked *k, int64_t rows[TOP])
{
    const struct question *q = k->q;
    struct memory_query query = {.owner = OWNER,
                                 .conversation = k->t->conversation,
                                 .text = q->text,
                                 .n_text = strlen(q->text),
                                 .limit = TOP,
                                 .weights = k->w};
    struct err e = {0};
    struct arena a;
    struct memory_hits hits = {.n = 0};
    struct vectors_hits near = {.n = 0};
    const bool is_by_both = k->how == BY_BOTH && q->is_known;
    arena_init(&a, SIZE_MAX);
    if (k->how == BY_MEANING)
        check(memory_vectors_search(b->m, &query, q->vectors, TOP, &near), &e);
    else
        check(memory_recall_both(b->m, &query, is_by_both ? q->vectors : NULL, &hits, &a, &e),
              &e);
    for (size_t i = 0; i < near.n; i++)
        rows[i] = near.v[i].row;
    for (size_t i = 0; i < hits.n; i++)
        rows[i] = hits.v[i].row;
    arena_done(&a);
    return (int)(near.n + hits.n);
}

static void say(struct bench *b, const char *name, enum how how, const struct memory_weights *w)
{
    struct recalled sum = {.n = {0}};
    for (int i = 0; i < b->talks.n; i++)
        for (int k = 0; k < b->talks.v[i].n_questions; k++) {
            const struct talk *t = &b->talks.v[i];
            int64_t rows[TOP];
            const int n = ask(b, &(struct asked){t, &t->questions[k], how, w}, rows);
            recalled_add(&sum, t, &t->questions[k], rows, n);
        }
    recalled_print(name, &sum);
}

/* For trying out other ways to merge: a question's evidence and both lists, a line of JSON. */
static void dump_one(struct bench *b, const struct talk *t, const struct question *q)
{
    struct memory_query query = {.owner = OWNER,
                                 .conversation = t->conversation,
                                 .text = q->text,
                                 .n_text = strlen(q->text),
                                 .limit = SEARCH_LIMIT_MAX};
    struct memory_hits hits;
    struct vectors_hits near;
    struct err e = {0};
    struct arena a;
    arena_init(&a, SIZE_MAX);
    check(memory_recall(b->m, &query, &hits, &a, &e), &e);
    check(memory_vectors_search(b->m, &query, q->vectors, 100, &near), &e);
    printf("{\"evidence\":[");
    for (int k = 0; k < q->n_evidence; k++)
        printf(k ? ",%lld" : "%lld", (long long)t->rows[q->evidence[k]]);
    printf("],\"words\":[");
    for (size_t k = 0; k < hits.n; k++)
        printf("%s[%lld,%.4f]", k ? "," : "", (long long)hits.v[k].row, hits.v[k].score);
    printf("],\"meaning\":[");
    for (size_t k = 0; k < near.n; k++)
        printf("%s[%lld,%.4f]", k ? "," : "", (long long)near.v[k].row, near.v[k].score);
    printf("]}\n");
    arena_done(&a);
}

static void dump(struct bench *b)
{
    for (int i = 0; i < b->talks.n; i++)
        for (int k = 0; k < b->talks.v[i].n_questions; k++)
            if (!b->talks.v[i].questions[k].is_held)
                dump_one(b, &b->talks.v[i], &b->talks.v[i].questions[k]);
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
    struct memory_weights alone = memory_weights_default;
    alone.meaning_before = alone.meaning_after = 0;
    talks_read(&b->talks, file);
    b->m = talks_store(&b->talks, b->path);
    embed_all(b);
    printf("%s, ", file);
    recalled_head(b->talks.is_named ? "with names" : "by roles");
    baselines(b);
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
    static struct bench b = {.path = "/tmp/bench_meaning.XXXXXX"};
    const char *only = getenv("WAY");
    struct err e = {0};
    check(hash_start(&e), &e);
    const int fd = mkstemp(b.path);
    if (argc < 3 || fd < 0) {
        fprintf(stderr, "usage: bench_meaning MODEL.gguf FILE.jsonl… | --size N DIM\n");
        return 2;
    }
    close(fd);
    snprintf(b.plain_path, sizeof b.plain_path, "%s.plain", b.path);
    if (strcmp(argv[1], "--size") == 0 && argc == 4) {
        size(&b, (int)strtol(argv[2], NULL, 10), (int)strtol(argv[3], NULL, 10));
    } else {
        check(embed_open(argv[1], NULL, &b.model, &e), &e);
        for (int i = 2; i < argc; i++) {
            for (int way = 0; way < 2; way++) {
                b.talks.is_named = way == 1;
                if (!only || only[0] - '0' == way)
                    report(&b, argv[i]);
            }
        }
        embed_close(b.model);
    }
    unlink(b.path);
    return 0;
}
