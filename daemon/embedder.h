/*
 * The embedding model of --embedding-model, and the thread that loads it and works with it when
 * nobody waits for a turn:
 *
 *      history: POST /v1/embeddings, messages that ──MAIL_EMBED────► embedder: loads, then job by
 *               have no vector yet                 ◄──MAIL_EMBEDDED── job, oldest first
 *
 * A query's vector is a few milliseconds and is made by the history thread itself (the model is
 * const). A model that can't be loaded is logged and told by status and endpoint; all else goes on
 * without it.
 *
 * All functions are the history thread's but embedder_bytes.
 */
#ifndef HEARTH_DAEMON_EMBEDDER_H
#define HEARTH_DAEMON_EMBEDDER_H

#include "base/arena.h"
#include "base/json.h"
#include "daemon/request.h"
#include "engine/embed.h"
#include "memory/search.h"

struct history;

#define EMBEDDER_CHUNK_TOKENS 128 /* of an indexed message: what such models are trained on */
#define EMBEDDER_CHUNKS_MAX 16    /* of one message; what comes after them has no vector */

enum embed_job_kind { EMBED_JOB_REQUEST, EMBED_JOB_MESSAGES };

struct embed_source {
    const char *s;
    size_t n;
    int64_t row; /* of a message */
};

struct embed_job {
    struct mail mail; /* MAIL_EMBED, then MAIL_EMBEDDED */
    enum embed_job_kind kind;
    struct request *r; /* the job's; NULL for messages */
    json *body;        /* what the texts point into, or NULL … */
    struct arena arena; /* … and else this */
    struct embed_source *texts; /* [n_texts], in the arena */
    size_t n_texts;
    bool is_base64, can_truncate;
    int n_dim; /* wanted; 0: whatever the model gives */
    /* The result. */
    struct http_error error; /* status 0: none */
    size_t n_tokens;         /* of all texts */
    int *n_of;               /* [n_texts] vectors of each text: 1, or more of a long message */
    float *vectors;          /* [their sum, embed_dim] */
    bool *is_truncated;      /* [n_texts] */
};
/* NULL: no memory. */
struct embed_job *embed_job_new(enum embed_job_kind kind);
void embed_job_free(struct embed_job *job); /* with its request; NULL is fine */

/* What the model and the vectors of messages may take of `memory_bytes`; 0 without a model. From
 * any thread. *ret_vectors: the vectors' part. */
uint64_t embedder_bytes(const struct config *c, uint64_t memory_bytes, uint64_t *ret_vectors);

/* Starts the thread, which begins to load; nothing without --embedding-model. */
int embedder_start(struct daemon *d, struct err *e) MUST_USE;
/* Whatever it does ends soon; jobs come back canceled. */
void embedder_abort(void);
/* Ends the thread. No job may be out. */
void embedder_stop(void);

/* NULL while it loads, and when there is none. */
const struct embed *embedder_model(void);
/* Moves the job to the thread; false: there is no model and none is being loaded (*ret says why),
 * or too many jobs are waiting, and the job is still the caller's. */
bool embedder_submit(struct history *h, struct embed_job *job, struct http_error *ret);
/* A job has come back (MAIL_EMBEDDED); takes it. */
void embedder_done(struct history *h, struct embed_job *job);

/* Whether messages could be given vectors now; and giving some to the thread. */
bool embedder_has_work(const struct history *h);
void embedder_work(struct history *h);

/* A query's vector [embed_dim], of memory_vectors_question's text: malloc'd, NULL without a model
 * or memory, or when the model can't read the text (search then goes by words alone). */
float *embedder_query(struct history *h, const struct memory_query *q);

/* For status: {"state", "model", "dimensions", …}. */
json *embedder_status(const struct history *h);

#endif
