/* What becomes of embeddings on the history thread: replies, and vectors of messages. */
#ifndef HEARTH_DAEMON_EMBEDS_H
#define HEARTH_DAEMON_EMBEDS_H

#include "daemon/embedder.h"

#define EMBED_JOB_BYTES ((size_t)4 << 20)
#define EMBED_REPLY_BYTES ((size_t)192 << 20) /* 2,048 vectors of 4,096 numbers */

/* api_embeddings.c: answers the job's request. */
void embeds_reply(struct history *h, const struct embed_job *job);
/* embeds.c: how far the vectors are, into status. */
void embeds_status(const struct history *h, json *o);

#endif
