/*
 * Memory: what was said, durably. SQLite in WAL mode; the history thread owns the only connection.
 *
 * Messages form a tree: `parent` is the message before it, so an edit or a regeneration is a
 * branch, and a conversation's window is the path from a tip to the root. Token ids belong to
 * (message, render id). The schema is drawn in memory/schema.h.
 *
 * Every look-up takes the owner and answers ERR_NOTFOUND for another owner's id. Strings in results
 * are allocated in the caller's arena. Row numbers never leave the daemon; ids are "conv_…",
 * "msg_…", "resp_…" with 128 random bits.
 */
#ifndef HEARTH_MEMORY_MEMORY_H
#define HEARTH_MEMORY_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/ids.h"

#define MEMORY_ID_BYTES 48

struct memory;

/*
 * Opens or makes the database (0600 from its first instant), migrates it in one transaction a step
 * (a copy `….v<N>` is kept by VACUUM INTO first), and marks answers that were being generated as
 * interrupted. A newer or foreign database, or a damaged one, is refused with its file untouched:
 * ERR_UNSUPPORTED, ERR_CORRUPT.
 */
int memory_open(const char *path, struct memory **ret, struct err *e) MUST_USE;
void memory_close(struct memory *m); /* checkpoints (TRUNCATE); NULL is fine */
/* When idle: a PASSIVE checkpoint, or the TRUNCATE that a reader was in the way of. */
void memory_idle(struct memory *m);
/* Another program was reading while something was deleted: its text may still be in the -wal.
 * memory_idle and memory_close try again. */
bool memory_has_remains(const struct memory *m);
/* SQLite's quick_check: seconds a gigabyte. ERR_CORRUPT. */
int memory_check(struct memory *m, struct err *e) MUST_USE;

enum memory_role { MEMORY_SYSTEM = 1, MEMORY_USER = 2, MEMORY_ASSISTANT = 3 };
enum memory_status {
    MEMORY_STORED = 0,
    MEMORY_GENERATING,
    MEMORY_COMPLETE,
    MEMORY_INTERRUPTED,
    MEMORY_FAILED
};

struct memory_conversation {
    int64_t row;
    char id[MEMORY_ID_BYTES];
    const char *title;              /* "" until one is set or derived from the first user message */
    const char *metadata;           /* JSON object text */
    const char *model;              /* of its newest answer, or "" */
    int64_t created_at, updated_at; /* seconds since 1970 */
    int64_t n_messages;
    int64_t tip;    /* row of the newest message, 0: empty */
    bool is_hidden; /* made by a response without a conversation: not listed */
};

struct memory_message {
    int64_t row, parent; /* parent 0: first */
    int64_t conversation;
    char id[MEMORY_ID_BYTES];
    enum memory_role role;
    enum memory_status status;
    const char *text; /* n_text bytes and a NUL; may hold NULs */
    size_t n_text;
    const char *finish; /* "stop", "length", "canceled", "error" or "" */
    const char *model;  /* of an answer */
    int64_t created_at;
    bool is_opened; /* its prompt ended within a thought: it begins as one */
};

/* Conversations. metadata NULL: {}. */
struct memory_new_conversation {
    const char *owner, *metadata;
    bool is_hidden;
};
int memory_conversation_add(struct memory *m, const struct memory_new_conversation *c,
                            struct memory_conversation *ret, struct arena *a,
                            struct err *e) MUST_USE;
int memory_conversation_find(struct memory *m, const char *owner, const char *id,
                             struct memory_conversation *ret, struct arena *a,
                             struct err *e) MUST_USE;
int memory_conversation_by_row(struct memory *m, int64_t row, struct memory_conversation *ret,
                               struct arena *a, struct err *e) MUST_USE;
/* NULL leaves a field as it is. */
int memory_conversation_set(struct memory *m, int64_t row, const char *title, const char *metadata,
                            struct err *e) MUST_USE;
/*
 * What a removal took along. blocks: the cache's ids that no conversation uses any more, sorted;
 * [n_blocks * HASH_BYTES]. unpinned: those that no conversation pins any more. The caller frees
 * both. The blocks are in a journal too, until memory_gone_done(batch): a daemon that is killed
 * before they have left the cache finds them with memory_gone_read.
 */
struct memory_removed {
    int64_t n_messages;
    uint8_t *blocks, *unpinned;
    size_t n_blocks, n_unpinned;
    int64_t batch;
};
void memory_removed_done(struct memory_removed *r);
/* Rows, full-text segments when they exist, WAL remains (secure_delete, checkpoint TRUNCATE).
 * ret: what went; NULL is fine. */
int memory_conversation_remove(struct memory *m, const char *owner, const char *id,
                               struct memory_removed *ret, struct err *e) MUST_USE;
/* A page, newest first (or oldest first): up to limit <= 100 after the conversation named `after`
 * (NULL: from the start). *ret_more: there are others. */
#define MEMORY_PAGE_MAX 100
struct memory_page {
    const char *after;
    int limit;
    bool is_ascending;
};
struct memory_conversations {
    struct memory_conversation *v; /* [n], in the arena */
    size_t n;
    bool has_more; /* beyond the page */
};
int memory_conversation_list(struct memory *m, const char *owner, const struct memory_page *page,
                             struct memory_conversations *ret, struct arena *a,
                             struct err *e) MUST_USE;

/* Messages. Durable when the call returns (synchronous=FULL). `parent` 0: the first of its
 * conversation. */
struct memory_context;
struct memory_new_message {
    int64_t conversation, parent;
    enum memory_role role;
    const char *text;
    size_t n_text;
    const char *model;         /* answers imported or added by items; may be NULL */
    enum memory_status status; /* MEMORY_STORED for a person's, MEMORY_COMPLETE for an added
                                * answer, MEMORY_GENERATING for one that begins */
    const struct memory_context *context; /* injected with it (memory/window.h), or NULL */
    bool is_opened; /* memory_message's */
};
int memory_message_add(struct memory *m, const struct memory_new_message *msg,
                       struct memory_message *ret, struct arena *a, struct err *e) MUST_USE;
/* Several in one transaction, each the parent of the next; ret[n]. All or none. */
int memory_message_add_all(struct memory *m, const struct memory_new_message *msgs, size_t n,
                           struct memory_message *ret, struct arena *a, struct err *e) MUST_USE;
int memory_message_find(struct memory *m, const char *owner, const char *id,
                        struct memory_message *ret, struct arena *a, struct err *e) MUST_USE;
int memory_message_by_row(struct memory *m, int64_t row, struct memory_message *ret,
                          struct arena *a, struct err *e) MUST_USE;
/* Removes one message; its children get its parent. The blocks that end in it or in what followed
 * it go, as no turn will read these words after one another again. ret: NULL is fine. */
int memory_message_remove(struct memory *m, const char *owner, const char *id,
                          struct memory_removed *ret, struct err *e) MUST_USE;
/* The path from the root to `tip`, in order. ERR_LIMIT beyond max messages. */
struct memory_messages {
    struct memory_message *v; /* [n], in the arena */
    size_t n;
    bool has_more; /* beyond the page */
};
int memory_path(struct memory *m, int64_t tip, size_t max, struct memory_messages *ret,
                struct arena *a, struct err *e) MUST_USE;
/* Of ascending rows the newest (from_end) or the oldest, until they have max_bytes of text; at
 * least one, if there are any. Each call is one read. */
struct memory_rows_span {
    const int64_t *rows; /* [n] */
    size_t n, max_bytes;
    bool from_end;
};
/* How many those are. What is gone has no bytes. */
int memory_rows_fit(struct memory *m, const struct memory_rows_span *span, size_t *ret_n,
                    struct err *e) MUST_USE;
/* Them, in order. ERR_NOTFOUND: one was deleted. */
int memory_messages_of(struct memory *m, const struct memory_rows_span *span,
                       struct memory_messages *ret, struct arena *a, struct err *e) MUST_USE;
/* Rows of the path to `tip`, ascending; borrowed until the next call or deletion. The path that was
 * asked for last is kept: one that goes on from it, or branches off it, is read from there on. */
int memory_path_rows(struct memory *m, int64_t tip, const int64_t **ret, size_t *ret_n,
                     struct err *e) MUST_USE;
/* A page of the current path's messages (root … conversation's tip), as items. */
int memory_message_list(struct memory *m, int64_t conversation, const struct memory_page *page,
                        struct memory_messages *ret, struct arena *a, struct err *e) MUST_USE;
/* The same for a piece of a path: from the row `first` (or the first above it) down to `tip`. */
struct memory_branch {
    int64_t first, tip;
};
int memory_branch_list(struct memory *m, const struct memory_branch *branch,
                       const struct memory_page *page, struct memory_messages *ret, struct arena *a,
                       struct err *e) MUST_USE;

/*
 * Answers: a message added with MEMORY_GENERATING and no text (best in one memory_message_add_all
 * with its question), flushed now and then (synchronous=NORMAL), ended once (FULL).
 */
int memory_answer_flush(struct memory *m, int64_t row, const char *text, size_t n_text,
                        struct err *e) MUST_USE;

/* Statistics of a turn: what it cost and where its tokens came from. */
struct memory_turn {
    int64_t conversation, answer; /* rows */
    int prompt_tokens, completion_tokens, cached_tokens, cached_ram, cached_disk, cached_shared,
        computed_tokens;
    int64_t queue_us, restore_us, prefill_us, ttft_us, decode_us, saved_us;
    const char *miss_reason; /* or NULL */
    const char *finish;
    /* With a reason: which message of the window diverged (-1: none), and its row (0: it is not a
     * stored one). */
    int miss_at;
    int64_t miss_message;
    int64_t cut; /* row of the cut under which its window was read (memory/window.h), 0: none */
};
/* Text, status, finish, generated ids under `render`, the turn's statistics and the stored
 * response, in one transaction. */
struct memory_response;
struct memory_answer {
    int64_t row;
    enum memory_status status;
    const char *text;
    size_t n_text;
    const char *finish;
    const uint8_t *render; /* [HASH_BYTES] */
    const int32_t *ids;    /* generated ids whose bytes are a prefix of text */
    size_t n_ids;
    const struct memory_turn *turn;         /* or NULL */
    const struct memory_response *response; /* or NULL; belongs to `owner` */
    const char *owner;
    /* The cache's blocks that hold the conversation up to here: ids, [n_blocks * HASH_BYTES]. */
    const uint8_t *blocks;
    const int64_t *block_messages; /* [n_blocks] the rows of the messages that they end in, 0: none;
                                    * NULL: not known */
    size_t n_blocks;
    /* What this turn read, 8 bytes a message that mean something to the caller; NULL leaves what
     * the turn before left. Kept with `turn` only. */
    const uint8_t *window;
    size_t n_window_bytes;
};
/* ERR_NOTFOUND: it has ended already, or its conversation was deleted meanwhile. */
int memory_answer_end(struct memory *m, const struct memory_answer *answer, struct err *e) MUST_USE;

/* ERR_NOTFOUND: no turn ended with this answer. */
int memory_turn_get(struct memory *m, int64_t answer, struct memory_turn *ret, struct arena *a,
                    struct err *e) MUST_USE;

/* The cut (0: none) under which the newest answer of the path to `tip` was read that has
 * statistics; ERR_NOTFOUND: none has. */
int memory_turn_newest(struct memory *m, int64_t tip, int64_t *ret_cut, struct err *e) MUST_USE;

/* A page of a conversation's turns, after the answer of id `after`; branches too. */
struct memory_turn_entry {
    struct memory_turn turn;
    const char *answer_id;
    const char *miss_id; /* of turn.miss_message; "": none, or it was deleted */
    int64_t created_at;  /* when the answer began */
};
struct memory_turns {
    struct memory_turn_entry *v; /* [n], in the arena */
    size_t n;
    bool has_more;
};
int memory_turn_list(struct memory *m, int64_t conversation, const struct memory_page *page,
                     struct memory_turns *ret, struct arena *a, struct err *e) MUST_USE;

/*
 * What the cache was worth: sums over turns. A conversation's are kept while it is there, also over
 * turns whose messages were deleted; an owner's for good, and over stateless turns too. Both grow
 * with memory_answer_end, in its transaction. A turn that ended before its prompt was read has
 * prompt_tokens > cached + computed.
 */
#define MEMORY_REASONS_MAX 16
struct memory_savings {
    int64_t since; /* an owner's first turn, seconds since 1970; 0: there was none */
    int64_t turns, prompt_tokens, completion_tokens, cached_ram, cached_disk, cached_shared,
        computed_tokens, restore_us, prefill_us, saved_us;
    struct {
        char reason[16];
        int64_t n;
    } misses[MEMORY_REASONS_MAX]; /* [n_misses], by name */
    size_t n_misses;
};
/* Adds a turn to sums in RAM. */
void memory_savings_count(struct memory_savings *s, const struct memory_turn *t);
/* For turns that memory_answer_end doesn't see. */
int memory_savings_add(struct memory *m, const char *owner, const struct memory_turn *t,
                       struct err *e) MUST_USE;
/* All zero where there were no turns. */
int memory_savings_of_conversation(struct memory *m, int64_t conversation,
                                   struct memory_savings *ret, struct err *e) MUST_USE;
int memory_savings_of_owner(struct memory *m, const char *owner, struct memory_savings *ret,
                            struct err *e) MUST_USE;
/* The listed conversations that saved most: rows into ret_rows[max], most first; *ret_n of them. */
int memory_savings_top(struct memory *m, const char *owner, int64_t *ret_rows, size_t max,
                       size_t *ret_n, struct err *e) MUST_USE;
/* What memory_answer.window said last: 8 bytes a message, in the arena; NULL and 0 for nothing. */
int memory_window_get(struct memory *m, int64_t conversation, struct arena *a, const uint8_t **ret,
                      size_t *ret_n, struct err *e) MUST_USE;

/* Token ids of a message under a render id; ERR_NOTFOUND. Appended to ret. */
int memory_tokens_get(struct memory *m, int64_t message, const uint8_t render[HASH_BYTES],
                      struct ids *ret, struct err *e) MUST_USE;
int memory_tokens_set(struct memory *m, int64_t message, const uint8_t render[HASH_BYTES],
                      const int32_t *ids, size_t n, struct err *e) MUST_USE;
/* The render id under which the message has ids, if any: true and *ret. For "another model than the
 * conversation's". */
bool memory_tokens_render(struct memory *m, int64_t message, uint8_t ret[HASH_BYTES]);

/* Stored responses (/v1/responses): id → the answer's message; `body` is the response object as
 * JSON text. */
struct memory_response {
    char id[MEMORY_ID_BYTES];
    int64_t conversation, answer; /* rows */
    int64_t first_input;          /* row of the first message that came with it; the answer's
                                   * own: none came */
    bool is_in_conversation;      /* asked with `conversation`, not a hidden one */
    const char *body;
};
int memory_response_add(struct memory *m, const char *owner, const struct memory_response *r,
                        struct err *e) MUST_USE;
int memory_response_find(struct memory *m, const char *owner, const char *id,
                         struct memory_response *ret, struct arena *a, struct err *e) MUST_USE;
/* Removes the response; of a hidden conversation also the messages that only it could name, and the
 * conversation with its last response, and the blocks that only it used. ret: as for a
 * conversation; NULL is fine. */
int memory_response_remove(struct memory *m, const char *owner, const char *id,
                           struct memory_removed *ret, struct err *e) MUST_USE;

/*
 * Which conversation uses which blocks of the cache is written with each answer (memory_answer). Of
 * ids[n * HASH_BYTES], those that no conversation uses are moved to the front; returns how many. An
 * owner's blocks are only its own: their ids say so.
 */
int memory_blocks_unused(struct memory *m, uint8_t *ids, size_t n, size_t *ret_n,
                         struct err *e) MUST_USE;
/* A conversation's blocks, those it only pins too; is_only: which no other uses or pins.
 * *ret[*ret_n * HASH_BYTES], the caller frees it; NULL when there are none. */
int memory_blocks_of(struct memory *m, int64_t conversation, bool is_only, uint8_t **ret,
                     size_t *ret_n, struct err *e) MUST_USE;

/* The journal of removals. */
/* Of these blocks, those that no conversation uses or pins are written to the journal and given:
 * a turn's whose conversation was deleted meanwhile. */
int memory_blocks_gone(struct memory *m, const uint8_t *ids, size_t n, struct memory_removed *ret,
                       struct err *e) MUST_USE;
/* What is in it, as one batch; what is in use again has left it. */
int memory_gone_read(struct memory *m, struct memory_removed *ret, struct err *e) MUST_USE;
/* The cache has a batch's blocks no more. */
int memory_gone_done(struct memory *m, int64_t batch, struct err *e) MUST_USE;

/* Pins: blocks that the cache may not give up for a conversation's sake. */
struct memory_block_pin {
    const uint8_t *blocks; /* [n * HASH_BYTES], in the order of the chain */
    size_t n;
    const uint8_t *model; /* [HASH_BYTES] */
};
/* Instead of those it had. ret->unpinned: those that only this conversation had pinned. Durable. */
int memory_block_pin_set(struct memory *m, int64_t conversation,
                         const struct memory_block_pin *pin, struct memory_removed *ret,
                         struct err *e) MUST_USE;
/* Those it has, in order (the caller frees them), and whose model's. */
int memory_block_pin_get(struct memory *m, int64_t conversation, uint8_t **ret, size_t *ret_n,
                   uint8_t ret_model[HASH_BYTES], struct err *e) MUST_USE;
/* How many it has, under any model. */
int memory_block_pin_count(struct memory *m, int64_t conversation, int64_t *ret,
                           struct err *e) MUST_USE;
/* All pins, [*ret_n], chain by chain; the caller frees them. */
struct memory_block_pinned {
    uint8_t model[HASH_BYTES], block[HASH_BYTES];
};
int memory_block_pins(struct memory *m, struct memory_block_pinned **ret, size_t *ret_n,
                struct err *e) MUST_USE;

/* Blocks computed for a conversation ahead of a turn: the next deletion of a message takes
 * them along. One that was deleted meanwhile gets none. */
int memory_blocks_add(struct memory *m, int64_t conversation, const uint8_t *blocks, size_t n,
                      struct err *e) MUST_USE;

/*
 * Replies of stateless chats: hash chain over (role, text) up to and with an assistant message →
 * the ids it was generated with. Per owner, byte-budgeted (oldest use goes first).
 */
struct memory_reply_key {
    const uint8_t *chain, *render; /* [HASH_BYTES] each */
};
int memory_reply_put(struct memory *m, const char *owner, const struct memory_reply_key *key,
                     const int32_t *ids, size_t n, struct err *e) MUST_USE;
int memory_reply_get(struct memory *m, const char *owner, const struct memory_reply_key *key,
                     struct ids *ret, struct err *e) MUST_USE;
/* Whether the same text was generated by another model. */
bool memory_reply_is_of_other(struct memory *m, const char *owner,
                              const struct memory_reply_key *key);
int memory_reply_drop_all(struct memory *m, const char *owner, struct err *e) MUST_USE;
#define MEMORY_REPLY_BUDGET_BYTES (16u << 20)
/* chain' = H(chain ‖ role (u8) ‖ length (u64) ‖ bytes); start from all zero. */
void memory_chain(uint8_t chain[HASH_BYTES], enum memory_role role, const char *text, size_t n);

/* Sums for status and metrics. */
struct memory_totals {
    int64_t n_conversations, n_messages, file_bytes;
};
int memory_totals(struct memory *m, struct memory_totals *ret, struct err *e) MUST_USE;

#endif
