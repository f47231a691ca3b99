/*
 * The plan: what of a window stays, and what leaves it, when it has become too long. A pure
 * function of kinds, counts and scores: no SQL, no clock, no tokenizer, no text (but for
 * plan_value).
 *
 * A window is a list of items in the order of the prompt:
 *
 *     system  pin  head │ user call result assistant │ user assistant │ recalled user assistant
 *     ── always in ─── ▲ ───────── a turn ─────────── ──── a turn ──── ──── the newest turn ─────
 *          replaced by ╯ the next one
 *
 *   - System items and pinned ones (kind PLAN_PIN, or any other with is_pinned) are always in,
 *     wherever they stand: one that stood in a turn that leaves goes on in the head.
 *   - Head items are the summary and the facts of the cut in force. A cut makes new ones, so they
 *     leave with every cut, and `head_tokens` is set aside for what comes.
 *   - A turn is a user item and all up to the next one; recalled items stand before the user item
 *     that they ride on and are counted apart from it. What stands before the first user item is a
 *     turn of its own, the oldest.
 *   - A call and its results have a `group` in common and stay together: turns that a group spans
 *     leave together, and if one item of a group is pinned all of them stay.
 *   - The newest turn is never touched.
 *
 * Cuts take things away in one fixed order, and stop with the first that reaches the target; the
 * order doesn't depend on the budget, so a larger budget always keeps a superset:
 *
 *     window        recalled items, oldest first; then whole turns, oldest first
 *     prune, auto   recalled items, oldest first; turns of a value below PLAN_VALUE_LOW, lowest
 *                   value first, of equals the oldest; then the rest as window has it
 *
 * What isn't chit-chat leaves by age even under prune: values tell small talk from the rest, but
 * not which of two full turns is needed, and by value alone the turn before the newest could leave.
 */
#ifndef HEARTH_MEMORY_PLAN_H
#define HEARTH_MEMORY_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

/* How a conversation is kept within its window. The names are those of the configuration and of
 * the database. */
enum plan_strategy {
    PLAN_UNSET = 0, /* as the daemon's configuration (or the conversation) has it */
    PLAN_ERROR,     /* refuse what doesn't fit */
    PLAN_WINDOW,    /* the oldest turns leave */
    PLAN_SUMMARISE, /* … and are summed up in the head, with a list of facts */
    PLAN_RETRIEVE,  /* … and are searched for what fits the new message */
    PLAN_PRUNE,     /* chit-chat and bulky tool output leave first */
    PLAN_AUTO,      /* prune, then summarise and retrieve */
    PLAN_N_STRATEGIES
};
/* "error", "window", … ; "" for PLAN_UNSET. */
const char *plan_strategy_name(enum plan_strategy s);
/* false: no such name (the empty one included); *ret untouched. */
bool plan_strategy_parse(const char *name, enum plan_strategy *ret);
/* "error, window, …": for messages about a wrong one. */
const char *plan_strategy_names(void);

enum plan_kind {
    PLAN_SYSTEM = 1,
    PLAN_PIN,  /* in the head or riding on a user's message */
    PLAN_HEAD, /* summary or facts */
    PLAN_USER,
    PLAN_ASSISTANT,
    PLAN_CALL,
    PLAN_RESULT,
    PLAN_RECALLED
};

struct plan_item {
    enum plan_kind kind;
    bool is_pinned;
    int tokens; /* >= 0, with what the template puts around it */
    int value;  /* 0 … 100 (plan_value); what isn't user, assistant, call or result has none */
    int group;  /* a call and its results: one number > 0; else 0 */
};
struct plan_window {
    const struct plan_item *v; /* [n] */
    size_t n;
};

struct plan_budget {
    int limit;       /* tokens a prompt may have: ctx - 1. > 0 */
    int reserve;     /* wished free for the answer; steers cuts, refuses nothing. At most half of
                      * limit counts. */
    int target;      /* tokens that a cut goes down to; 0: PLAN_TARGET_PERCENT of limit - reserve */
    int head_tokens; /* what the new summary and facts may take (0: there are none) */
};
#define PLAN_TARGET_PERCENT 60
/* target if it is set (at most limit), else what 0 stands for. */
int plan_target(const struct plan_budget *b);
/* limit less the reserve that counts. */
int plan_room(const struct plan_budget *b);

/* Turns of a lower value are chit-chat or bulky output. */
#define PLAN_VALUE_LOW 25
/* A turn's value: the mean of its items' by tokens, of those that have one; pinned ones are 100. */

struct plan {
    bool *stays;  /* [n] of the window, the caller's; a head item that doesn't stay is replaced */
    size_t first; /* index of the first item of the oldest turn that stays. What stands above it and
                   * stays is system or pinned. */
    size_t n_dropped; /* messages that leave: user, assistant, call, result */
    size_t n_turns, n_turns_dropped;
    size_t n_recalled_dropped;
    int before, after; /* tokens; after counts head_tokens in place of the head that leaves */
    int head_tokens;   /* what the new head may take: as wished, or less when only less fits; 0 when
                        * is_cut is false */
    bool is_cut;       /* something leaves; false: the window is under its target as it is */
    bool is_on_target; /* after <= target */
};

/*
 * Plans a cut with strategy PLAN_WINDOW, PLAN_SUMMARISE or PLAN_RETRIEVE (all three as "window"
 * above), PLAN_PRUNE or PLAN_AUTO. After 0, `after <= limit` holds; ret->stays[0, n) are written.
 * A window at or under its target is left as it is. When the target can't be reached, all but the
 * newest turn leaves.
 *
 * ERR_LIMIT: what is always in and the newest turn are more than the limit; the text has the
 * counts, ret->before and ret->after (what they need) are set, stays is untouched. ERR_INVAL: a
 * count below 0, a limit below 1, another strategy. ERR_NOMEM (scratch comes from the arena).
 */
int plan_cut(const struct plan_window *w, const struct plan_budget *b, enum plan_strategy s,
             struct plan *ret, struct arena *a, struct err *e) MUST_USE;

/*
 * For a window that isn't cut but must fit as it is (PLAN_ERROR, and before any plan): 0, or
 * ERR_LIMIT with the counts. *ret_used (may be NULL) is set in both cases.
 */
int plan_fit(const struct plan_window *w, const struct plan_budget *b, int *ret_used,
             struct err *e) MUST_USE;

/* Whether to cut ahead: with `used` tokens in the window (the newest answer included), a next turn
 * of `next_tokens` and the reserve would not fit. */
bool plan_needs_cut(const struct plan_budget *b, int used, int next_tokens);
/* The typical turn: the 90th percentile (nearest rank) of what the turns of this conversation added
 * each, question and injected text. 0 when n is 0. ERR_NOMEM. */
int plan_typical(const int *turns, size_t n, int *ret, struct arena *a, struct err *e) MUST_USE;

/* How many of tokens[n], in rank order, fit into `budget` together: those before the first that
 * doesn't (nothing is skipped, so a larger budget takes a superset). *ret_tokens (may be NULL):
 * their sum. */
size_t plan_select(const int *tokens, size_t n, int budget, int *ret_tokens);

/*
 * What a message is worth keeping verbatim, 0 … 90, from its text alone (English and Chinese); how
 * is told in memory/plan_value.c. In short:
 *
 *      5  greetings, thanks, goodbyes, "ok", laughter, emoji and nothing else
 *     15  the same with a word or two
 *     20  very short, with no sign of a fact
 *     10  bulky: a tool's output, log or table of at least PLAN_BULKY_TOKENS, PLAN_FAR turns back
 *     35  the same, mostly a code block
 *     50  anything else; 8 more for each kind of sign: numbers, names, addresses and identifiers,
 *         dates, wishes and negations
 */
#define PLAN_BULKY_TOKENS 200
#define PLAN_FAR 3
struct plan_text {
    enum plan_kind kind;
    bool is_reply;    /* a person's, and the message before it asks: plan_asks */
    const char *text; /* [n_text], UTF-8; may hold NULs */
    size_t n_text;
    int tokens;
    int age; /* turns between it and the newest: 0, it is in the newest */
};
int plan_value(const struct plan_text *t);
/* Whether a text ends with a question mark (ASCII, CJK or Arabic), but for white space, quotes,
 * brackets and the marks of Markdown behind it. */
bool plan_asks(const char *text, size_t n_text);

#endif
