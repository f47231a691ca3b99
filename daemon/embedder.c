/* The embedding model's thread. See embedder.h. */
#include "daemon/embedder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "daemon/embeds.h"
#include "daemon/history.h"
#include "daemon/limits.h"
#include "memory/vectors.h"

#define GROUP 16 /* texts between two looks at who has gone */

enum state { NO_MODEL, LOADING, READY, FAILED };

/* One daemon a process, so one of these. */
static struct {
    struct daemon *d;
    pthread_t thread;
    struct mailbox mail;
    _Atomic int state;
    atomic_int abort;
    struct embed *model; /* set before READY */
    char error[512];     /* set before FAILED */
} self;

/* ---- jobs ---- */

struct embed_job *embed_job_new(enum embed_job_kind kind)
{
    struct embed_job *job = calloc(1, sizeof *job);
    if (!job)
        return NULL;
    job->kind = kind;
    job->mail.kind = MAIL_EMBED;
    arena_init(&job->arena, EMBED_JOB_BYTES);
    return job;
}

void embed_job_free(struct embed_job *job)
{
    if (!job)
        return;
    request_free(job->r);
    json_free(job->body);
    arena_done(&job->arena);
    free(job->n_of);
    free(job->vectors);
    free(job->is_truncated);
    free(job);
}

/* Token ids of all texts of a job, cut into what gives a vector each. */
struct pieces {
    struct ids ids;
    size_t *at; /* [n + 1] where each begins */
    size_t n, cap;
};

static int out_of_memory(struct embed_job *job)
{
    return http_out_of_memory(&job->error, "embeddings");
}

static int add_piece(struct pieces *p)
{
    if (p->n + 1 >= p->cap) {
        const size_t cap = p->cap ? 2 * p->cap : 64;
        size_t *at = realloc(p->at, cap * sizeof *at);
        if (!at)
            return ERR_NOMEM;
        p->at = at;
        p->cap = cap;
    }
    p->at[p->n++] = p->ids.n;
    return 0;
}

/* A message's chunks: as many as it needs, to a limit. Nothing for one without any word. */
static int cut_message(struct embed_job *job, size_t i, struct pieces *p)
{
    struct embed_text rest = {job->texts[i].s, job->texts[i].n};
    int max = embed_n_ctx(self.model);
    if (max > EMBEDDER_CHUNK_TOKENS)
        max = EMBEDDER_CHUNK_TOKENS;
    while (rest.n > 0 && job->n_of[i] < EMBEDDER_CHUNKS_MAX) {
        size_t used = 0;
        if (add_piece(p) || embed_tokenize(self.model, rest, max, &p->ids, &used))
            return out_of_memory(job);
        if (p->ids.n - p->at[p->n - 1] <= 2) { /* no word in it */
            p->ids.n = p->at[--p->n];
            break;
        }
        job->n_of[i]++;
        rest.s += used;
        rest.n -= used;
    }
    return 0;
}

static int cut_text(struct embed_job *job, size_t i, struct pieces *p)
{
    const struct embed_text text = {job->texts[i].s, job->texts[i].n};
    const int max = embed_n_ctx(self.model);
    size_t used = 0;
    if (add_piece(p) || embed_tokenize(self.model, text, max, &p->ids, &used))
        return out_of_memory(job);
    job->n_of[i] = 1;
    job->is_truncated[i] = used < text.n;
    if (!job->is_truncated[i] || job->can_truncate)
        return 0;
    http_error_set(&job->error, 400, "context_length_exceeded", "input",
                   "input %zu is longer than the %d tokens of %s (its first %zu of %zu bytes fit); "
                   "shorten it, or send \"truncate\": true",
                   i, max, embed_name(self.model), used, text.n);
    return ERR_LIMIT;
}

static int check_dim(struct embed_job *job)
{
    const int dim = embed_dim(self.model);
    if (job->n_dim == 0 || job->n_dim == dim)
        return 0;
    http_error_set(&job->error, 400, "unsupported_parameter", "dimensions",
                   "dimensions is %d; %s gives %d and can't be shortened", job->n_dim,
                   embed_name(self.model), dim);
    return ERR_UNSUPPORTED;
}

static int cut_all(struct embed_job *job, struct pieces *p)
{
    int rc = check_dim(job);
    for (size_t i = 0; rc == 0 && i < job->n_texts; i++) {
        rc = job->kind == EMBED_JOB_MESSAGES ? cut_message(job, i, p) : cut_text(job, i, p);
        if (rc == 0 && p->ids.n > LIMIT_EMBED_TOKENS) {
            http_error_set(&job->error, 400, "invalid_value", "input",
                           "the inputs have more than %d tokens together", LIMIT_EMBED_TOKENS);
            rc = ERR_LIMIT;
        }
    }
    if (rc == 0 && p->at)
        p->at[p->n] = p->ids.n;
    job->n_tokens = p->ids.n;
    return rc;
}

static int run_pieces(struct embed_job *job, const struct pieces *p)
{
    const size_t dim = (size_t)embed_dim(self.model);
    struct err e;
    int rc = 0;
    job->vectors = malloc((p->n + 1) * dim * sizeof *job->vectors);
    if (!job->vectors)
        return out_of_memory(job);
    for (size_t i = 0; rc == 0 && i < p->n; i += GROUP) {
        struct embed_tokens v[GROUP];
        size_t n = 0;
        for (; n < GROUP && i + n < p->n; n++)
            v[n] = (struct embed_tokens){.v = p->ids.v + p->at[i + n],
                                         .n = (int)(p->at[i + n + 1] - p->at[i + n])};
        if (job->r && atomic_load(&job->r->cancel->is_set))
            rc = err_set(&e, ERR_CANCELED, "the client has gone");
        else
            rc = embed_run(self.model, v, n, &self.abort, job->vectors + i * dim, &e);
    }
    if (rc)
        http_error_from(&job->error, &e);
    return rc;
}

static void run_job(struct embed_job *job)
{
    struct pieces p = {.n = 0};
    if (atomic_load(&self.state) != READY) {
        http_error_set(&job->error, 503, "embedding_model", NULL, "%s", self.error);
        return;
    }
    ids_init(&p.ids);
    job->n_of = calloc(job->n_texts + 1, sizeof *job->n_of);
    job->is_truncated = calloc(job->n_texts + 1, sizeof *job->is_truncated);
    int rc = job->n_of && job->is_truncated ? cut_all(job, &p) : out_of_memory(job);
    if (rc == 0)
        (void)!run_pieces(job, &p);
    ids_done(&p.ids);
    free(p.at);
}

/* ---- the thread ---- */

static void load(void)
{
    const char *path = self.d->config->embedding_model;
    const int64_t begin = clock_us();
    struct err e;
    if (embed_open(path, &self.abort, &self.model, &e)) {
        snprintf(self.error, sizeof self.error, "%s", e.text);
        atomic_store(&self.state, FAILED);
        if (e.code != ERR_CANCELED)
            log_error("search goes by words alone: %s", e.text);
        return;
    }
    log_info("embedding model %s: %d dimensions, %.0f MiB, loaded in %.2f s",
             embed_name(self.model), embed_dim(self.model),
             (double)embed_bytes(self.model) / (1 << 20), (double)(clock_us() - begin) / 1e6);
    atomic_store(&self.state, READY);
    history_wake(self.d);
}

/* false: it says stop. */
static bool handle(struct mail *m)
{
    if (m->kind == MAIL_STOP) {
        free(m);
        return false;
    }
    run_job((struct embed_job *)m);
    m->kind = MAIL_EMBEDDED;
    if (!mailbox_push(&self.d->history, m))
        embed_job_free((struct embed_job *)m); /* can't be: it waits for its jobs */
    return true;
}

static void *run(void *arg)
{
    bool is_running = true;
    (void)arg;
    load();
    while (is_running) {
        struct mail *m = mailbox_take(&self.mail);
        if (!m)
            mailbox_wait(&self.mail, -1);
        while (m) {
            struct mail *next = m->next;
            m->next = NULL;
            is_running = handle(m) && is_running;
            m = next;
        }
    }
    return NULL;
}

int embedder_start(struct daemon *d, struct err *e)
{
    if (!d->config->embedding_model)
        return 0;
    self.d = d;
    int rc = mailbox_init(&self.mail, e);
    if (rc)
        return rc;
    atomic_store(&self.state, LOADING);
    rc = thread_start(&self.thread, THREAD_EMBEDDER, run, NULL, e);
    if (rc) {
        mailbox_done(&self.mail);
        atomic_store(&self.state, NO_MODEL);
    }
    return rc;
}

void embedder_abort(void)
{
    atomic_store(&self.abort, 1);
}

void embedder_stop(void)
{
    if (atomic_load(&self.state) == NO_MODEL)
        return;
    struct mail *m = calloc(1, sizeof *m);
    embedder_abort();
    if (!m) {
        log_error("embedder: out of memory while stopping");
        return;
    }
    m->kind = MAIL_STOP;
    if (!mailbox_push(&self.mail, m))
        free(m);
    pthread_join(self.thread, NULL);
    mailbox_done(&self.mail);
    embed_close(self.model);
    self.model = NULL;
    atomic_store(&self.state, NO_MODEL);
}

/* ---- the history thread's side ---- */

const struct embed *embedder_model(void)
{
    return atomic_load(&self.state) == READY ? self.model : NULL;
}

bool embedder_submit(struct history *h, struct embed_job *job, struct http_error *ret)
{
    const int state = atomic_load(&self.state);
    if (state == NO_MODEL)
        http_error_set(ret, 404, "model_not_found", "model",
                       "there is no embedding model; start hearthd with --embedding-model FILE");
    else if (state == FAILED)
        http_error_set(ret, 503, "embedding_model", NULL, "%s", self.error);
    else if (h->n_embeds_out >= LIMIT_EMBED_JOBS)
        http_error_set(ret, 503, "overloaded", NULL,
                       "%d requests for embeddings are waiting; that is the limit",
                       h->n_embeds_out);
    else if (mailbox_push(&self.mail, &job->mail)) {
        h->n_embeds_out++;
        return true;
    } else
        http_error_set(ret, 503, "stopping", NULL, "the daemon is stopping");
    return false;
}

float *embedder_query(struct history *h, const struct memory_query *q)
{
    const struct embed *m = embedder_model();
    struct ids ids;
    struct err e;
    size_t used;
    struct buf text;
    if (!m)
        return NULL;
    ids_init(&ids);
    buf_init(&text, SIZE_MAX);
    float *v = malloc((size_t)embed_dim(m) * sizeof *v);
    int max = embed_n_ctx(m);
    if (max > EMBEDDER_CHUNK_TOKENS)
        max = EMBEDDER_CHUNK_TOKENS; /* more would only take longer */
    int rc = v ? memory_vectors_question(h->memory, q, &text) : ERR_NOMEM;
    if (rc == 0)
        rc = embed_tokenize(m, (struct embed_text){text.data, text.len}, max, &ids, &used);
    if (rc == 0 && !embed_knows(m, &ids))
        rc = ERR_UNSUPPORTED;
    if (rc == 0)
        rc = embed_run(m, &(struct embed_tokens){ids.v, (int)ids.n}, 1, NULL, v, &e);
    ids_done(&ids);
    buf_done(&text);
    if (rc) {
        free(v);
        return NULL;
    }
    return v;
}

uint64_t embedder_bytes(const struct config *c, uint64_t memory_bytes, uint64_t *ret_vectors)
{
    *ret_vectors = 0;
    if (!c->embedding_model)
        return 0;
    *ret_vectors = memory_bytes / VECTORS_DIVISOR;
    if (*ret_vectors > VECTORS_BYTES_MAX)
        *ret_vectors = VECTORS_BYTES_MAX;
    return embed_bytes_of(c->embedding_model) + *ret_vectors;
}

json *embedder_status(const struct history *h)
{
    static const char *const names[] = {"off", "loading", "ready", "failed"};
    const int state = atomic_load(&self.state);
    json *o = json_object();
    json_set_str(o, "state", names[state]);
    if (state == FAILED)
        json_set_str(o, "error", self.error);
    if (state == READY) {
        json_set_str(o, "model", embed_name(self.model));
        json_set_int(o, "dimensions", embed_dim(self.model));
        json_set_int(o, "bytes", (int64_t)embed_bytes(self.model));
        embeds_status(h, o);
    }
    return o;
}
