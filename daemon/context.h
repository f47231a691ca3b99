/*
 * Context: what of a stored conversation the model is to read, when it is more than the window
 * holds. History thread.
 *
 *     load the window in force ─ add this turn's messages ─ pins ─ recall ─ render ─ does it fit?
 *                ▲                                                               │ no
 *                ╰── the cut is stored ◄─ head: pins, facts, summary ◄─ plan ◄───╯
 *
 * Planning is memory's (plan.h), as are facts and summaries (facts.h, extract.h); tokens are
 * counted here, and texts are put together here. The strategy of a turn: the request's, else the
 * conversation's, else the daemon's.
 *
 * What is injected before a person's words — recalled quotes, notes, new pins — is stored beside
 * the message, never in it, so that every later turn reads the same tokens.
 */
#ifndef HEARTH_DAEMON_CONTEXT_H
#define HEARTH_DAEMON_CONTEXT_H

#include "daemon/history.h"
#include "daemon/turn.h"
#include "memory/plan.h"
#include "memory/window.h"

/* Shares of ctx, in percent. */
#define CONTEXT_RECALL_TURN_PERCENT 12 /* recalled for one turn … */
#define CONTEXT_RECALL_ALL_PERCENT 25  /* … and in the whole window (relevance_share) */
#define CONTEXT_PINS_PERCENT 25
#define CONTEXT_FACTS_PERCENT 26
#define CONTEXT_SUMMARY_PERCENT 6
#define CONTEXT_FACTS_TOKENS_MAX 1024
#define CONTEXT_SUMMARY_TOKENS_MAX 768
/* The first messages of a path, which set the stage: a system message and three turns. */
#define CONTEXT_OPENING_MESSAGES 7
/* The fact list that is stored; its head shows as much of it as fits. */
#define CONTEXT_FACTS_BYTES 16384

/* One turn's question to the context, and what came of it. */
struct context {
    struct history *h;
    struct turn *t;
    enum plan_strategy strategy; /* not PLAN_UNSET */
    int64_t conversation, tip;   /* rows; 0: a new one */
    const char *instructions;    /* before all else, for this turn alone; or NULL */
    const struct memory_new_message *inputs; /* [n_inputs] this turn's messages */
    size_t n_inputs;
    bool is_recall_off; /* nothing is quoted: there is no room */
    bool is_counting; /* nothing may be stored: no cut is made */
    /* Out: what is to be stored with the last user's message of the inputs. */
    struct memory_context injected;
};

/* Fills t->window, t->prompt, max_tokens and the receipt. Stores a cut when one is needed; nothing
 * else. 400 context_length_exceeded when even a cut doesn't make it fit. */
int context_prepare(struct context *c, struct http_error *ret_error) MUST_USE;

/* The strategy in force for a conversation (0: a new one), when the request has none. */
enum plan_strategy context_strategy(const struct history *h, int64_t conversation);
/* ctx - 1, and what is wished free beside the prompt. max_tokens: as asked, 0: not. */
struct plan_budget context_budget(const struct history *h, int max_tokens);
int context_share(const struct history *h, int percent, int tokens_max);
bool context_recalls(enum plan_strategy s);
bool context_summarises(enum plan_strategy s);
bool context_keeps_facts(enum plan_strategy s);

/* ---- context_inject.c: pins and recall ---- */

/* Pins that the window doesn't have yet, and what the conversation's past says to the newest
 * message: before the words of window message `at`. c->injected gets the whole. */
int context_inject(struct context *c, size_t at, struct http_error *ret_error) MUST_USE;

/* ---- context_quote.c ---- */

struct bm25;
struct memory_query;
struct memory_hits;
/* "User", "Assistant", "System" */
const char *context_speaker(enum memory_role role);
struct context_quoting {
    const struct history *h;
    const struct memory_query *q; /* the question: its text */
    const struct memory_hits *hits; /* created_at 0: quoted without a date */
    int budget; /* tokens */
    const struct bm25 *index; /* the hits are of it (struct relevance); or NULL */
};
struct context_quote {
    size_t hit; /* of hits */
    int tokens;
};
/* Appends the hits that are worth it, at most max, and says which. buf_error tells failures. */
size_t context_quote(const struct context_quoting *asked, struct buf *text,
                     struct context_quote *ret, size_t max);

/* ---- context_resent.c ---- */

/* The whole conversation came with the request and is in t->window, the first n_before of its
 * messages aside (instructions), which the request's count doesn't name; t->params.context is set.
 * Leaves the window in t->window and t->prompt, as context_prepare does; stores nothing. */
int context_resent(struct history *h, struct turn *t, size_t n_before,
                   struct http_error *ret_error) MUST_USE;

/* ---- context_cut.c ---- */

struct context_cut {
    struct history *h;
    struct turn *t; /* its window is loaded and rendered; this turn's own messages, if any, last */
    int64_t conversation, anchor; /* anchor: the newest stored message of the window */
    enum plan_strategy strategy;
    struct plan_budget budget;
    int head_less; /* tokens that the new head has to do without */
    /* By a model, for what leaves; NULL: sentences are picked. */
    const char *summary;
    size_t n_summary;
};
/*
 * Plans, and makes the cut that is to be stored; its texts live in t's arena. The receipt's lists
 * of what leaves are filled, and before and after as planned. ERR_NOTFOUND: nothing can leave.
 * ERR_LIMIT: what must stay doesn't fit; *ret_error has the counts.
 */
int context_cut_make(const struct context_cut *c, struct memory_cut *ret,
                     struct http_error *ret_error) MUST_USE;
/* What the head of a cut may take. Tokens. */
int context_wished_head(const struct history *h, enum plan_strategy s);

/* ---- context_head.c ---- */

struct said;
struct facts;
/* What a cut's head is made of. */
struct context_head {
    const struct said *left; /* [n_left] messages that leave, oldest first */
    size_t n_left;
    int64_t opening; /* row of the last message that opens the conversation */
    const struct memory_pins *pins; /* those that the head must name */
    const char *old_summary;
    size_t n_old_summary;
    bool is_edited; /* the old summary is a person's: it is taken over word for word */
    const char *old_facts;
    size_t n_old_facts;
    const struct facts *old_list; /* what old_facts reads, if it is at hand; or NULL */
    struct facts *ret_list;       /* gets what cut->facts reads, in the arena; or NULL */
    const char *summary; /* by a model, or NULL */
    size_t n_summary;
    enum plan_strategy strategy;
    int max_tokens; /* of facts and summary together */
};
/* A head's sections, for who shows them: "pins", "facts", "summary", with the line that names them.
 * Returns how many there are; they cover the head. */
#define CONTEXT_SECTIONS 3
struct context_section {
    const char *kind;
    const char *text;
    size_t n_text;
};
int context_head_sections(const char *head, size_t n, struct context_section *ret);
/*
 * Whether text[0, n) has these lines, whole: "tea" is not said by "steak". They begin a line behind
 * `prefix`, and end one.
 */
struct context_lines {
    const char *prefix;
    const char *text;
    size_t n_text;
};
bool context_has_lines(const char *text, size_t n, const struct context_lines *lines);
/* What stands before a pin in the head. */
struct memory_pin;
const char *context_pin_prefix(const struct memory_pin *pin);
/* Fills cut's head, summary and facts. */
int context_head_make(const struct history *h, struct arena *a, const struct context_head *in,
                      struct memory_cut *cut, struct err *e) MUST_USE;

/* ---- api_context.c ---- */

/* Of a request about the window of the path to `tip`. */
struct context_of {
    struct history *h;
    const struct request *r;
    int64_t tip;
    struct arena *arena;
};
/* *ret_cut (memory_window_want.cut): under which the newest answer was read; with `?next=1` one
 * that is prepared, else the one in force. */
int context_cut_of(const struct context_of *of, int64_t *ret_cut,
                   struct http_error *ret_error) MUST_USE;

/* ---- receipt.c ---- */

/* Adds to a list of t->receipt. Without memory the entry is left out. */
void receipt_add(struct turn *t, struct turn_changes *list, const char *id, int tokens);
/* Empties the lists of what left. */
void receipt_forget_left(struct turn *t);
/* Fills used, kept recalled text, pins; and, when the cut in force was made since the reply before
 * this one, what left by it. */
void receipt_fill(const struct context *c);

#endif
