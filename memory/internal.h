/* What the files of this room share, and nobody else sees. */
#ifndef HEARTH_MEMORY_INTERNAL_H
#define HEARTH_MEMORY_INTERNAL_H

#include "memory/db.h"
#include "memory/index.h"
#include "memory/memory.h"

/* paths.c: the path that was asked for last. */
struct path_kept {
    int64_t *rows; /* [n] ascending; malloc'ed, [cap] */
    size_t n, cap;
    size_t n_saved; /* of them, the first, are in path_saved */
};
/* So many that aren't saved are worth it: a millisecond. */
#define PATHS_SAVE_ROWS 4096

/* History thread. */
struct memory {
    struct db *db;
    bool has_remains; /* deleted text may still be in the -wal: a reader was in the way of the
                       * checkpoint */
    struct index index;
    struct vectors *vectors; /* NULL: no embedding model (vectors.h) */
    struct path_kept path;
};

/* messages.c: deletes one row within the caller's transaction; its children get its parent. Its
 * blocks are noted under gone->batch. */
int message_delete(struct memory *m, int64_t row, struct memory_removed *gone,
                   struct err *e) MUST_USE;
/* The row before it; 0: none. */
int message_parent(struct memory *m, int64_t row, int64_t *ret, struct err *e) MUST_USE;

/* paths.c: rows are about to go, or the memory. */
void path_forget(struct memory *m);
/* Saves the kept path, if it is worth it; path_write: in any case. Outside of transactions. */
void path_save(struct memory *m);
void path_write(struct memory *m);
/* Within the caller's transaction, before the message is deleted. */
int path_saved_forget(struct memory *m, int64_t message, struct err *e) MUST_USE;

/* window.c: before a message is deleted, within the caller's transaction: what holds its words goes
 * too. */
int window_forget(struct memory *m, int64_t message, struct err *e) MUST_USE;
/* contexts.c: within the caller's transaction. */
int context_store(struct memory *m, int64_t message, const struct memory_context *c,
                  struct err *e) MUST_USE;

/* conversations.c: the conversation was used now. Within the caller's transaction; ERR_NOTFOUND
 * when it is gone. */
int conversation_touch(struct memory *m, int64_t row, struct err *e) MUST_USE;

/* tokens.c: within the caller's transaction. */
int tokens_insert(struct memory *m, int64_t message, const uint8_t *render, const int32_t *ids,
                  size_t n, struct err *e) MUST_USE;
/* Appends the int32 values of a blob column. */
int tokens_read(struct stmt *s, int column, struct ids *ret, struct err *e) MUST_USE;

/* responses.c: within the caller's transaction. */
int response_insert(struct memory *m, const char *owner, const struct memory_response *r,
                    struct err *e) MUST_USE;

/* blocks.c: within the caller's transaction. */
int blocks_insert(struct memory *m, const struct memory_answer *answer, struct err *e) MUST_USE;
/*
 * blocks.c, within the caller's transaction: gone_begin ─ gone_note_… before the rows go ─ the rows
 * go ─ gone_end, which leaves in the journal, and in gone->blocks, what nobody uses any more.
 */
int gone_begin(struct memory *m, struct memory_removed *gone, struct err *e) MUST_USE;
int gone_note_conversation(struct memory *m, int64_t conversation, struct memory_removed *gone,
                           struct err *e) MUST_USE;
/* Those that end in the message or below it; their uses go, and the conversation's pins of them. */
int gone_note_message(struct memory *m, int64_t row, struct memory_removed *gone,
                      struct err *e) MUST_USE;
int gone_end(struct memory *m, struct memory_removed *gone, struct err *e) MUST_USE;

/* savings.c: counts answer->turn, within the caller's transaction. */
int savings_add_answer(struct memory *m, const struct memory_answer *answer,
                       struct err *e) MUST_USE;

/* store.c: after a delete, outside of any transaction: takes what was deleted out of the -wal, now
 * or later. */
void store_wipe(struct memory *m);

int memory_out(struct err *e); /* sets and returns ERR_NOMEM */

#endif
