/* See talks.h. */
#include "tests/bench/recall/talks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"

void check(int rc, const struct err *e)
{
    if (rc >= 0)
        return;
    fprintf(stderr, "recall: %s\n", e->text);
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
    const json *at = json_get(j, "at", NULL);
    struct tm day = {0};
    t->turns = grown(t->turns, t->n_turns, sizeof(*t->turns));
    struct turn *turn = &t->turns[t->n_turns++];
    if (!t->first)
        t->first = strdup(by);
    *turn = (struct turn){.text = strdup(text), .is_second = strcmp(by, t->first) != 0};
    if (at && strptime(json_str(at), "%Y-%m-%d", &day))
        turn->at = timegm(&day) + 43200 + t->n_turns; /* noon */
    if (asprintf(&turn->named, "%s: %s", by, text) < 0)
        exit(1);
}

static enum question_kind kind_of(const json *j, int n_evidence)
{
    const json *kind = json_get(j, "kind", NULL);
    if (n_evidence > 1)
        return QUESTION_SEVERAL;
    return kind && strcmp(json_str(kind), "time") == 0 ? QUESTION_TIME : QUESTION_ONE;
}

static void add_question(struct talk *t, const json *j)
{
    const json *list = json_get(j, "evidence", NULL), *half = json_get(j, "half", NULL);
    t->questions = grown(t->questions, t->n_questions, sizeof(*t->questions));
    struct question *q = &t->questions[t->n_questions++];
    *q = (struct question){.text = strdup(json_str(json_get(j, "ask", NULL))),
                           .is_held = half && strcmp(json_str(half), "held") == 0};
    for (const json *it = json_first(list); it; it = json_next(it)) {
        q->evidence = grown(q->evidence, q->n_evidence, sizeof(*q->evidence));
        q->evidence[q->n_evidence++] = (int)json_double(it);
    }
    q->kind = kind_of(j, q->n_evidence);
}

void talks_read(struct talks *t, const char *path)
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
    t->n = 0;
    while ((n = getline(&line, &cap, f)) > 0) {
        json *j;
        check(json_parse(line, (size_t)n, &j, &e), &e);
        struct talk *last = t->n > 0 ? &t->v[t->n - 1] : NULL;
        if (json_get(j, "talk", NULL) && t->n < TALKS_MAX)
            t->v[t->n++] = (struct talk){.n_turns = 0};
        else if (last && json_get(j, "ask", NULL))
            add_question(last, j);
        else if (last && json_get(j, "by", NULL))
            add_turn(last, j);
        json_free(j);
    }
    free(line);
    fclose(f);
}

const char *talks_text(const struct talks *t, const struct turn *turn)
{
    return t->is_named ? turn->named : turn->text;
}

static void store_one(struct memory *m, const struct talks *all, struct talk *t)
{
    struct arena a;
    struct err e = {0};
    struct memory_conversation c;
    arena_init(&a, SIZE_MAX);
    check(memory_conversation_add(m, &(struct memory_new_conversation){.owner = TALKS_OWNER}, &c,
                                  &a, &e),
          &e);
    struct memory_new_message *new = calloc((size_t)t->n_turns, sizeof(*new));
    struct memory_message *added = calloc((size_t)t->n_turns, sizeof(*added));
    t->rows = realloc(t->rows, (size_t)t->n_turns * sizeof(*t->rows));
    if (!new || !added || !t->rows)
        exit(1);
    for (int k = 0; k < t->n_turns; k++) {
        const char *text = talks_text(all, &t->turns[k]);
        bool is_second = t->turns[k].is_second;
        new[k] = (struct memory_new_message){.conversation = c.row,
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

struct memory *talks_store(struct talks *t, const char *path)
{
    struct err e = {0};
    struct memory *m;
    unlink(path);
    check(memory_open(path, &m, &e), &e);
    for (int i = 0; i < t->n; i++)
        store_one(m, t, &t->v[i]);
    return m;
}

double recalled_add(struct recalled *r, const struct talk *t, const struct question *q,
                    const int64_t *rows, int n)
{
    int found = 0;
    for (int i = 0; i < q->n_evidence; i++)
        for (int k = 0; k < n; k++)
            if (rows[k] == t->rows[q->evidence[i]]) {
                found++;
                break;
            }
    const double got = q->n_evidence > 0 ? (double)found / q->n_evidence : 0;
    r->sum[q->is_held] += got;
    r->n[q->is_held]++;
    if (!q->is_held) {
        r->by_kind[q->kind] += got;
        r->n_kind[q->kind]++;
    }
    return got;
}

static void print_mean(double sum, int n)
{
    if (n > 0)
        printf("  %.3f", sum / n);
    else
        printf("      –");
}

void recalled_head(const char *what)
{
    printf("%-28s    dev   held | one  several  time (dev)\n", what);
}

void recalled_print(const char *name, const struct recalled *r)
{
    printf("%-28s", name);
    for (int i = 0; i < 2; i++)
        print_mean(r->sum[i], r->n[i]);
    for (int i = 0; i < QUESTION_KINDS; i++)
        print_mean(r->by_kind[i], r->n_kind[i]);
    printf("\n");
    fflush(stdout);
}
