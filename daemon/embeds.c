/*
 * Embeddings on the history thread: a job that comes back becomes a reply, or vectors of messages;
 * and while nobody has a turn, messages without vectors go out, a few at a time.
 */
#include "daemon/embeds.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "daemon/history.h"
#include "daemon/limits.h"
#include "memory/vectors.h"

#define MESSAGES 32 /* of one job, … */
#define MESSAGE_BYTES ((size_t)2048) /* … or so much text: some 500 tokens, 0.2 s */

/* The history learns of the model when it is there. */
static bool is_told(struct history *h)
{
    const struct embed *m = embedder_model();
    struct err e;
    if (!m)
        return false;
    if (h->has_vectors)
        return true;
    uint8_t hash[EMBED_HASH_BYTES];
    struct vectors_model model = {.dim = embed_dim(m)};
    embed_hash(m, hash);
    memcpy(model.id, hash, sizeof model.id);
    (void)embedder_bytes(h->d->config, atomic_load(&h->d->n.memory_bytes_max), &model.bytes_max);
    if (memory_vectors_use(h->memory, &model, &e)) {
        log_warn("vectors: %s", e.text);
        return false;
    }
    h->has_vectors = true;
    return true;
}

bool embedder_has_work(const struct history *h)
{
    if (h->is_stopping || h->is_embedding || h->n_turns_out > 0 || !embedder_model())
        return false;
    return !h->has_vectors || memory_vectors_has_work(h->memory);
}

void embedder_work(struct history *h)
{
    struct vectors_text texts[MESSAGES];
    struct http_error ignored;
    size_t n = 0;
    if (!embedder_has_work(h) || !is_told(h))
        return;
    struct embed_job *job = embed_job_new(EMBED_JOB_MESSAGES);
    const struct vectors_wanted wanted = {MESSAGES, MESSAGE_BYTES};
    if (!job || memory_vectors_next(h->memory, wanted, texts, &n, &job->arena) || n == 0)
        goto done;
    job->texts = arena_array(&job->arena, n, sizeof *job->texts);
    if (!job->texts)
        goto done;
    for (size_t i = 0; i < n; i++)
        job->texts[i] =
            (struct embed_source){.s = texts[i].text, .n = texts[i].n_text, .row = texts[i].row};
    job->n_texts = n;
    h->is_embedding = embedder_submit(h, job, &ignored);
    if (h->is_embedding)
        job = NULL;
done:
    embed_job_free(job);
}

static void store(struct history *h, const struct embed_job *job)
{
    struct vectors_made made[MESSAGES];
    const float *at = job->vectors;
    struct err e;
    static struct log_limit limit = {.burst = 3};
    for (size_t i = 0; i < job->n_texts; i++) {
        made[i] = (struct vectors_made){job->texts[i].row, at, job->n_of[i]};
        at += (size_t)job->n_of[i] * (size_t)embed_dim(embedder_model());
    }
    if (memory_vectors_add(h->memory, made, job->n_texts, &e) < 0 && log_allowed(&limit))
        log_warn("vectors of %zu messages aren't stored yet: %s", job->n_texts, e.text);
}

void embedder_done(struct history *h, struct embed_job *job)
{
    static struct log_limit limit = {.burst = 3};
    h->n_embeds_out--;
    if (job->kind == EMBED_JOB_MESSAGES) {
        h->is_embedding = false;
        if (job->error.status == 0)
            store(h, job);
        else if (!h->is_stopping && log_allowed(&limit))
            log_warn("vectors of messages: %s", job->error.message);
    } else if (h->is_stopping) {
        http_error_set(&job->error, 503, "stopping", NULL, "the daemon is stopping");
        reply_error(h->d, job->r->conn, &job->error, false);
    } else if (job->error.status) {
        reply_error(h->d, job->r->conn, &job->error, false);
    } else {
        embeds_reply(h, job);
    }
    embed_job_free(job);
}

void embeds_status(const struct history *h, json *o)
{
    struct vectors_state s;
    memory_vectors_state(h->memory, &s);
    json_set_int(o, "vectors", s.n_vectors);
    json_set_int(o, "vectors_bytes", (int64_t)s.n_bytes);
    json_set_bool(o, "waiting", !h->has_vectors || s.is_waiting || h->is_embedding);
    json_set_bool(o, "all_in_memory", !s.is_cut);
}
