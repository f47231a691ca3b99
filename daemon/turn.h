/*
 * One turn: a question on its way to an answer. It is made by the history thread from a request,
 * run by the worker, and ended by the history thread; at each moment one thread owns it, and mails
 * carry it over.
 *
 *   request ─► turn_new ─ body_* ─ prepare_* ─ history_submit
 *                                                   │ MAIL_TURN
 *                                                   ▼
 *                        worker: find, prefill, decode, emit ──MAIL_TURN_FLUSH──► history
 *                                                   │ MAIL_TURN_DONE
 *                                                   ▼
 *   last reply ◄── wire->end | whole | fail ◄── on_end ◄── store
 *
 * The fields stand in the order in which they come to be. Everything a turn points to lives in its
 * arena, in the buffers below, or is const; turn_free ends all of it. What a format needs beyond
 * this (a response's echo of its request, say) hangs on `api`.
 */
#ifndef HEARTH_DAEMON_TURN_H
#define HEARTH_DAEMON_TURN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/hash.h"
#include "base/ids.h"
#include "daemon/request.h"
#include "daemon/thought.h"
#include "engine/chat.h"
#include "engine/sample.h"
#include "memory/memory.h"
#include "memory/window.h"

struct history;
struct wire;
struct run;

#define TURN_ARENA_BYTES (64u << 20) /* of what one request can make, beyond its body */
#define TURN_TEXT_BYTES (16u << 20)  /* of an answer: ctx tokens of any piece stay far below */

/* What the request asks for (daemon/body.h fills it). */
struct turn_params {
    struct sample_params sample;
    int max_tokens;     /* 0: what the window leaves */
    const char **stops; /* [n_stops] */
    size_t *stop_lengths;
    size_t n_stops;
    bool is_stream;
    bool include_usage;  /* stream_options.include_usage */
    bool use_cache;      /* hearth.cache; false: nothing found, nothing published */
    bool shows_window;   /* hearth.window: the reply tells what the model has read */
    enum chat_thinking thinking; /* what the request says of it */
    enum plan_strategy context; /* PLAN_UNSET until it is decided whose counts */
};

/* A message's pieces: the words are its own, the context before them was injected. */
struct turn_part {
    char id[MEMORY_ID_BYTES]; /* of its message, or "" */
    const char *text;         /* the words; of the one that carries the head, without it */
    size_t n_text;
    struct memory_context context;
};

/* What the model is to read, as messages: filled by prepare_add and prepare_path, or empty when the
 * prompt comes as text or ids (/v1/completions). */
struct turn_window {
    struct chat_message *v; /* [n] */
    size_t *starts;         /* [n + 1] where in the prompt each begins; set by prepare_prompt */
    int64_t *rows;          /* [n] its message in memory, 0: not stored */
    struct turn_part *parts; /* [n] what v[i].text is made of */
    size_t n, cap;
    /* Messages of the path that were not loaded, as they and those below are more than the model
     * takes (daemon/above.h): they stand above the row above_to. Such a window can't be read, only
     * cut. */
    size_t n_above;
    int64_t above_to;
    bool has_cut;           /* of a stored conversation: `cut` is in force */
    struct memory_cut cut;
    int head_at; /* the message that carries the cut's head, -1: none does */
    bool is_other_model; /* ids of a stored answer were of another model: its text was read */
    bool is_of_sibling;  /* the newest answer is of a model with the same tokenizer and template */
};

struct turn_change {
    char id[MEMORY_ID_BYTES]; /* a message's or a note's; "#3": the request's message 3 */
    int tokens;
};
/* A reply tells of each list the first and the last so many. */
#define TURN_CHANGES_END 100
struct turn_changes {
    struct turn_change *v; /* [n], in the turn's arena */
    size_t n, cap;
    size_t n_untold; /* more, behind the first TURN_CHANGES_END and before the last ones */
};

/* The receipt: what became of the window. Tokens. */
struct turn_receipt {
    int limit, used, reserved;
    int before, after; /* of the window: with this turn's messages, before and after a cut */
    size_t n_above; /* messages that aren't in `before`: turn_window.n_above */
    /* Of what the previous turn had in the window, answer included. */
    int prefix_kept, prefix_lost;
    /* What left since the reply before; what is quoted; what is pinned. */
    struct turn_changes dropped, summarised, recalled_new, recalled_kept, pinned;
    bool is_live_cut, is_ahead_cut; /* who made the cut that this reply tells of */
    bool is_recall_partial;         /* not all that was said could be searched */
    int edits_unread; /* tokens of a person's summary and facts that this window has no room for */
};

/* Where the answer is kept. Owned by the history thread throughout, also while the worker has the
 * turn. */
struct turn_store {
    bool is_on; /* user's message and answer are stored */
    /* row; a claimed conversation (history_claim) is freed when the turn ends */
    int64_t conversation;
    bool is_claimed;
    struct memory_message *inputs; /* [n_inputs] this turn's messages as stored */
    size_t n_inputs;
    /* begun by prepare_store: its id is known from the first event on */
    struct memory_message answer;
    bool is_answered;          /* the answer is stored */
    bool has_failed;           /* the answer could not be stored: the reply says "stored": false */
    bool is_uncounted;         /* nor its turn, then */
    bool is_reply;             /* stateless: keep the ids by chain */
    uint8_t chain[HASH_BYTES]; /* over the window (memory_chain), up to and without the answer */
};

enum turn_finish {
    TURN_RUNNING,
    TURN_EOG,      /* an end-of-generation token: finish_reason "stop" */
    TURN_LENGTH,   /* max_tokens, or the window is full: "length" */
    TURN_STOPPED,  /* a stop string: "stop" */
    TURN_CANCELED, /* the client has gone: nobody reads the reply */
    TURN_FAILED,   /* `error` says why; also when the daemon stops */
};

/* Where time and tokens went. Times of clock_us; tokens are positions of the prompt unless said
 * otherwise. */
struct turn_stats {
    int64_t t_arrived, t_submitted, t_started, t_first, t_ended;
    /* prefill: t_started … t_first, decode: t_first … t_ended */
    int64_t restore_us, prefill_us, decode_us, saved_us;
    int64_t plan_us; /* the history thread's, from the messages to the prompt; within the queue's */
    int n_cached, n_ram, n_disk, n_shared, n_computed;
    int n_yields;            /* times it gave its blocks back and resumed */
    int n_drafted, n_accepted; /* ids of the answer by look-up */
    /* The history thread's, by daemon/account.h. */
    const char *miss_reason; /* NULL: none; else miss_name's */
    int miss_at_message;     /* index into the window, -1: none */
    int64_t miss_row;        /* of that message when it is stored, else 0 */
    char miss_message[MEMORY_ID_BYTES]; /* its id, "" without one */
};

struct turn {
    struct mail mail; /* MAIL_TURN to the worker, MAIL_TURN_DONE back */
    struct arena arena;

    /* Who asks, and in which format. */
    uint64_t conn;
    bool has_waited_room;  /* daemon/room.h: its answer found the disk full once */
    bool is_admitted;      /* its last reply frees a place (request.is_turn) */
    /* The daemon's own: no client, no reply; on_end takes what came of it. It runs while no other
     * turn does, and gives way to each that comes. max_tokens 0: the prompt is only read, so that
     * what begins with it finds it warm. */
    bool is_background;
    const char *owner;     /* arena */
    struct cancel *cancel; /* one reference */
    const struct wire *wire;
    void *api;          /* arena: the format's own */
    char id[64];        /* "chatcmpl-…", "resp_…" */
    const char *model;  /* arena: the one that runs */
    struct served *served; /* the same */
    int64_t created_at; /* seconds since 1970 */
    int64_t began_at;   /* its stored conversation's first message; 0: this turn is the first, or it
                         * isn't stored */
    struct turn_params params;

    /* What is read. */
    struct turn_window window;
    struct ids prompt;
    /* whose blocks these are, for the account of sharing: a conversation; 0: nobody's */
    uint64_t who;
    int max_tokens; /* clamped: 1 … ctx − prompt */
    struct turn_receipt receipt;
    struct turn_store store;
    /* History thread, after the answer is stored and before the last bytes are made; may be NULL.
     * An error is logged and sets store.has_failed. */
    int (*on_end)(struct history *h, struct turn *t, struct err *e);

    /* What is written (the worker's until MAIL_TURN_DONE). */
    struct run *run; /* the worker's own state */
    struct ids out;  /* every sampled id, the final end-of-generation token too */
    struct buf text; /* what may be sent of it: whole characters, no stop string */
    struct thought thought; /* text, told apart */
    enum turn_finish finish;
    struct http_error error; /* finish == TURN_FAILED */
    struct turn_stats stats;
    /* Stored turns: the cache's blocks up to the answer's end; owned, [n_blocks * HASH_BYTES]. */
    uint8_t *blocks;
    size_t n_blocks;
    uint8_t *marks; /* arena: what was read, in hashes (daemon/account.c) */
    size_t n_marks;

    int wire_stage; /* of events that come in order; touched only by `wire` */
    int wire_seq; /* sequence_number of the next event; touched only by `wire` */
};

/* A copy of the text so far, on its way to the database. `turn` is valid: it is freed by the
 * history thread, which sees this mail first; only turn->store may be touched. */
struct turn_flush {
    struct mail mail; /* MAIL_TURN_FLUSH */
    struct turn *turn;
    char *text; /* owned */
    size_t n_text;
};
void turn_flush_free(struct turn_flush *f);

/* From a request, for the model that history works with: takes a reference on its cancel flag,
 * copies owner and times. NULL: no memory. id_prefix: "chatcmpl-". */
struct turn *turn_new(const struct history *h, const struct request *r, const struct wire *wire,
                      const char *id_prefix);
/* A background turn. `cancel` ends it early; a reference is taken. NULL: no memory. */
struct turn *turn_new_background(const struct history *h, const char *owner,
                                 struct cancel *cancel);
void turn_free(struct turn *t); /* NULL is fine */

bool turn_is_canceled(const struct turn *t);
/* Whether it ends when its prompt has been read. */
bool turn_is_warming(const struct turn *t);
/* finish = TURN_FAILED with a status and a code. */
void turn_fail(struct turn *t, int status, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* OpenAI's finish_reason: "stop" or "length"; NULL for canceled and failed turns. */
const char *turn_finish_reason(const struct turn *t);
/* memory's word for it: "stop", "length", "canceled", "error". */
const char *turn_finish_word(const struct turn *t);
/* Generated tokens as `usage` counts them: all that were sampled, the final one too. */
int turn_n_completion(const struct turn *t);
/* The answer without what was thought before it; borrowed, NUL-terminated. */
const char *turn_answer(const struct turn *t, size_t *ret_n);
/* How many of t->out are to be stored with t->text: the longest prefix of ordinary tokens whose
 * bytes are all in the text. */
size_t turn_n_stored_ids(const struct turn *t, const struct tok *tok);

#endif
