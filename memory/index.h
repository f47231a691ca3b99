/* The full-text index as a file of this room sees it; its story is in index.c. */
#ifndef HEARTH_MEMORY_INDEX_H
#define HEARTH_MEMORY_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "memory/segment.h"

struct memory;

/* Part of struct memory. */
struct index {
    struct segmenter *segmenter;
    struct buf terms; /* scratch */
    int64_t fill;     /* rows up to this one aren't indexed yet; 0: all are */
    bool is_damaged;  /* until the next reset */
    bool is_checked;  /* found whole by index_check: once a run is enough */
    bool has_removed; /* words of deleted messages are still in its segments */
    bool is_resting;  /* a reset failed: not at once again, but after the next message */
};

#define INDEX_SCOPE_BYTES 40
/* The term of an owner ("o" and 128 bits of a hash), and of a conversation ("c12"). */
void index_owner_scope(const char *owner, char ret[INDEX_SCOPE_BYTES]);
void index_conversation_scope(int64_t row, char ret[INDEX_SCOPE_BYTES]);

/* After the migrations. Another segmenter's index is thrown away, to be filled again. */
int index_open(struct memory *m, struct err *e) MUST_USE;
void index_close(struct memory *m);

/* Before a search: notices an index that finds nothing of what it has. Cheap, and once a run. */
void index_check(struct memory *m);

/* Within the caller's transaction. Damage is no error, it is noted; ERR_NOMEM, ERR_FULL, ERR_BUSY
 * are. */
struct index_message {
    int64_t row; /* stored already */
    const char *text;
    size_t n_text;
};
int index_add_messages(struct memory *m, const struct index_message *v, size_t n,
                       struct err *e) MUST_USE;
/* Before the rows are deleted. */
int index_remove_message(struct memory *m, int64_t row, struct err *e) MUST_USE;
int index_remove_conversation(struct memory *m, int64_t row, struct err *e) MUST_USE;

/* Outside of transactions. Takes deleted words out of the segments, by a reset if need be. */
void index_tidy(struct memory *m);
/* One piece of what is left to do. */
void index_work(struct memory *m);
/* What a failure on the index means: true: it is damaged (noted), false: the error is the caller's
 * to report. */
bool index_failed(struct memory *m, int rc);

#endif
