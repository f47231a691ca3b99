/*
 * What is stored about windows: cuts, text injected into messages, pins, the strategy.
 *
 * The window in force for a path (root … tip) is a function of stored rows alone, so that between
 * cuts each turn's prompt is a prefix of the next:
 *
 *     root … … … … … first ─ … ─ pruned ─ … ─ anchor ─ … ─ tip
 *      │                ╰──────────── kept ────────────────╯
 *      ╰ system rows, then the cut's head
 *
 *   - A cut belongs to its anchor, the tip at which it was made. In force is the newest READY cut
 *     whose anchor lies on the path; without one, the whole path is the window.
 *   - Messages are never touched by a cut.
 *   - The context of a message is text put before the person's words when the message is rendered
 *     (recalled quotes, notes, new pins). It is kept apart from the message, and is the same for
 *     every regeneration and branch.
 *
 * Nothing here counts tokens; rows are messages' rows unless said otherwise. Only an owner's own
 * rows must be passed in (look them up with memory_conversation_find, memory_message_find). Results
 * live in the caller's arena.
 *
 * Deletion. A conversation takes all of this along. A deleted message takes along its own context
 * and pin, each context that quotes it, and each cut that may hold its words (it stood above the
 * cut's first row, or was pruned by it); what a cut keeps can be deleted freely, and a cut whose
 * anchor is deleted goes on at the message before it.
 */
#ifndef HEARTH_MEMORY_WINDOW_H
#define HEARTH_MEMORY_WINDOW_H

#include "memory/memory.h"
#include "memory/plan.h"

struct memory_rows {
    int64_t *v; /* [n] */
    size_t n;
};

/* Whether an ascending list holds the row. */
bool memory_rows_hold(const struct memory_rows *sorted, int64_t row);

/* ---- Cuts ---- */

enum memory_cut_state {
    MEMORY_CUT_PREPARED = 0, /* its prefix is being computed: not in force */
    MEMORY_CUT_READY = 1,
};
struct memory_cut {
    int64_t row; /* out */
    int64_t conversation;
    int64_t anchor;             /* the tip at which it was made */
    int64_t first;              /* first message kept, of the turns; <= anchor */
    struct memory_rows system;  /* system messages above `first`, in order: they stay */
    struct memory_rows dropped; /* messages between first and anchor that leave (prune) */
    struct memory_rows bare;    /* messages that stay and whose context leaves */
    const char *head; /* what is added to the system segment: pins, facts, summary, as composed */
    size_t n_head;
    const char *summary; /* input of the next summary; may be edited. n_: may hold NULs */
    size_t n_summary;
    const char *facts; /* the fact list in its own format (memory/facts.h) */
    size_t n_facts;
    bool is_edited; /* the summary is a person's, and the head doesn't have it yet */
    enum plan_strategy strategy; /* it was made with */
    enum memory_cut_state state; /* out */
    int64_t created_at;          /* out; seconds since 1970 */
};
/* NULL texts are empty. Rows marked "out" are not read; row lists may be in any order. Stored as
 * PREPARED. ERR_INVAL: first is above the anchor, or a list names messages outside of its range;
 * ERR_LIMIT: a list is too long; ERR_NOTFOUND: anchor or first isn't a message of the conversation
 * (deleted meanwhile). */
int memory_cut_add(struct memory *m, const struct memory_cut *cut, int64_t *ret_row,
                   struct err *e) MUST_USE;
/* In force from now on. Older cuts of the conversation that are still PREPARED are removed: they
 * can't come into force any more. ERR_NOTFOUND: removed meanwhile. */
int memory_cut_ready(struct memory *m, int64_t row, struct err *e) MUST_USE;
/* The cut in force for the path that ends at `tip`; ERR_NOTFOUND: none. */
int memory_cut_find(struct memory *m, int64_t tip, struct memory_cut *ret, struct arena *a,
                    struct err *e) MUST_USE;
/* The newest PREPARED one on the path that is newer than the one in force; ERR_NOTFOUND: none. */
int memory_cut_prepared(struct memory *m, int64_t tip, struct memory_cut *ret, struct arena *a,
                        struct err *e) MUST_USE;
int memory_cut_by_row(struct memory *m, int64_t row, struct memory_cut *ret, struct arena *a,
                      struct err *e) MUST_USE;
/* A person's edit of summary and facts (NULL leaves one as it is): the head stays as it was until
 * the next cut. Durable; the old text is gone from the files. ERR_NOTFOUND. */
struct memory_cut_edit {
    const char *summary;
    size_t n_summary;
    const char *facts;
    size_t n_facts;
};
int memory_cut_edit(struct memory *m, int64_t row, const struct memory_cut_edit *edit,
                    struct err *e) MUST_USE;
/* The cut before it (or the whole path) is in force again. ERR_NOTFOUND. */
int memory_cut_remove(struct memory *m, int64_t row, struct err *e) MUST_USE;

/* ---- Injected text ---- */

enum memory_source_kind { MEMORY_RECALLED = 1, MEMORY_PINNED = 2, MEMORY_NOTE = 3 };
struct memory_source {
    enum memory_source_kind kind;
    int64_t row; /* RECALLED, PINNED: of the message; NOTE: of the pin (0: a summary's edit) */
    int tokens;  /* it took when it was injected */
};
struct memory_context {
    const char *text; /* as it is rendered, before the person's words; NULL: none */
    size_t n_text;
    const struct memory_source *sources; /* [n_sources], in the order of the text */
    size_t n_sources;
};
#define MEMORY_SOURCES_MAX 256
/* Sets or replaces; an empty text without sources removes. Durable. ERR_NOTFOUND: the message, or
 * the message of a source, was deleted; ERR_LIMIT: more than MEMORY_SOURCES_MAX. A message can be
 * born with it: memory_new_message.context. */
int memory_context_set(struct memory *m, int64_t message, const struct memory_context *c,
                       struct err *e) MUST_USE;
/* text NULL when the message has none. */
int memory_context_get(struct memory *m, int64_t message, struct memory_context *ret,
                       struct arena *a, struct err *e) MUST_USE;

/* ---- Windows ---- */

struct memory_window {
    struct memory_message *v;        /* [n]: the cut's system messages, then those kept, in order */
    struct memory_context *contexts; /* [n], beside v: what is rendered with each (the cut's `bare`
                                      * ones have none) */
    size_t n;
    size_t n_system; /* system messages at the beginning of v that stand above the rest; the cut's
                      * head follows them. 0 when nothing was left out */
    size_t n_above;  /* messages of the window that were not read (want.max_bytes). They stand
                      * between the first n_system of v and the others */
    bool has_cut;
    struct memory_cut cut; /* when has_cut */
};
struct memory_window_want {
    int64_t tip;
    size_t max;       /* messages; ERR_LIMIT beyond. Counts what is read, not the path */
    size_t max_bytes; /* 0: all. Else the newest messages are read until they are this many bytes
                       * (or `max`) and one of them is a user's, and all system ones: for a long
                       * path without a cut. If they are more than the model takes, no strategy
                       * could have kept what stands above and these too */
    int64_t cut;      /* 0: the one in force; MEMORY_WHOLE_PATH; or the row of a cut, as if it were
                       * in force (ERR_NOTFOUND when gone or not on the path) */
};
#define MEMORY_WHOLE_PATH (-1)
/* Reads only what the window needs: with a cut, the messages from its first row on, whatever lies
 * above. tip 0 gives an empty window. */
int memory_window(struct memory *m, const struct memory_window_want *want,
                  struct memory_window *ret, struct arena *a, struct err *e) MUST_USE;

/* ---- Pins: of messages and notes (memory.h has those of the cache.s blocks) ---- */

#define MEMORY_PINS_MAX 256
#define MEMORY_NOTE_BYTES_MAX 65536
struct memory_pin {
    int64_t row;
    char id[MEMORY_ID_BYTES]; /* "pin_…" */
    int64_t conversation;
    int64_t message;                  /* row, or 0: a note */
    char message_id[MEMORY_ID_BYTES]; /* or "" */
    enum memory_role role;            /* of the message; MEMORY_USER for a note */
    const char *text;                 /* the note, or the message's text as it is now */
    size_t n_text;
    int64_t created_at;
};
struct memory_pins {
    struct memory_pin *v; /* [n], oldest first */
    size_t n;
};
/* message 0: a note, with its text. What is pinned already is found again (same message, same
 * note). */
struct memory_new_pin {
    int64_t conversation, message;
    const char *text;
    size_t n_text;
};
/* Durable. ERR_NOTFOUND: the message isn't in the conversation; ERR_LIMIT: MEMORY_PINS_MAX,
 * MEMORY_NOTE_BYTES_MAX; ERR_INVAL: an empty note. The budget in tokens is the caller's. */
int memory_pin_add(struct memory *m, const struct memory_new_pin *pin, struct memory_pin *ret,
                   struct arena *a, struct err *e) MUST_USE;
int memory_pin_list(struct memory *m, int64_t conversation, struct memory_pins *ret,
                    struct arena *a, struct err *e) MUST_USE;
/* By the pin's id or its message's. Durable; a note's text is gone from the files but for contexts
 * and heads that hold it until they leave. ERR_NOTFOUND. */
int memory_pin_remove(struct memory *m, int64_t conversation, const char *id,
                      struct err *e) MUST_USE;

/* ---- Strategy ---- */

/* PLAN_UNSET: the daemon's. A name that this program doesn't know reads as PLAN_UNSET. */
int memory_strategy_set(struct memory *m, int64_t conversation, enum plan_strategy s,
                        struct err *e) MUST_USE;
int memory_strategy_get(struct memory *m, int64_t conversation, enum plan_strategy *ret,
                        struct err *e) MUST_USE;

#endif
