/*
 * The window of a conversation that nobody stored: its client sends all of it with each request.
 *
 * The window must be a function of the messages alone, and of a longer list it must begin as that
 * of the shorter one did, or the prefix cache would be of no use. So the list is folded as if it
 * had been lived turn by turn, from the first message to the last:
 *
 *     message ─► into the window ─► a user's: what left is searched for what fits it (quotes)
 *                                   ─► too long? a cut: plan.h; what leaves makes the new head
 *
 * fold(list) does what fold(list less its end) did, and goes on: between cuts first message, head
 * and quotes are the same, request after request. Nothing may be read but the list and the rules:
 * a rule that changes from request to request moves the cuts.
 *
 * A fold can go on where the one of a shorter list made its newest cut (struct fold_state), if both
 * begin with the same messages and have the same rules: what comes of it is the same.
 *
 * Costs: linear in the list; a cut is planned over the window alone. Tokens are the caller's, as
 * are the texts of heads and quotes (struct fold_hands): functions of what they are given.
 */
#ifndef HEARTH_MEMORY_FOLD_H
#define HEARTH_MEMORY_FOLD_H

#include "memory/bm25.h"
#include "memory/plan.h"
#include "memory/said.h"

#define FOLD_QUOTES_MAX 16 /* of one message */

struct fold_message {
    enum memory_role role;
    const char *text; /* borrowed; any bytes */
    size_t n_text;
    int tokens; /* of its segment, >= 0 */
};

/* What a cut puts behind the system messages. Texts may be NULL; they live in the arena given. */
struct fold_head {
    const char *text; /* as it is read */
    size_t n_text;
    int tokens;
    const char *summary, *facts; /* what the next head is made from */
    size_t n_summary, n_facts;
    const void *kept; /* the hands' own, in the arena given: NULL where a fold goes on */
};

/* What is quoted before a user's words. */
struct fold_quotes {
    const char *text; /* NULL: nothing */
    size_t n_text;
    int tokens;                /* of the text */
    size_t v[FOLD_QUOTES_MAX]; /* [n] messages that are quoted, in the order of the text */
    int each[FOLD_QUOTES_MAX]; /* [n] their tokens */
    size_t n;
};

/* A cut asks for a head: what leaves, and the head that it replaces (NULL: the first). */
struct fold_leaving {
    const struct said *v; /* [n], oldest first; row: index in the list, plus 1 */
    size_t n;
    const struct fold_head *old;
    int max_tokens;
};
/* A user's message asks for quotes: the hits, best first. */
struct fold_recall {
    size_t message;
    const struct bm25_hit *hits; /* [n] */
    size_t n;
    int max_tokens;
    const struct bm25 *index; /* of the list, by index */
};
/* *ret is zeroed; quotes that don't fit are left out. */
struct fold_hands {
    int (*head)(void *user, const struct fold_leaving *l, struct arena *a, struct fold_head *ret,
                struct err *e);
    int (*quote)(void *user, const struct fold_recall *r, struct arena *a, struct fold_quotes *ret,
                 struct err *e);
    void *user;
};

struct fold_rules {
    enum plan_strategy strategy; /* any that plan_cut takes */
    struct plan_budget budget;   /* head_tokens: what a head may take */
    int around;                  /* tokens of no message: BOS, generation prompt, … */
    int recall_turn, recall_all; /* tokens of quotes, for a message and in all; 0: none */
};
struct fold_input {
    const struct fold_message *v; /* [n] */
    size_t n;
    struct fold_rules rules;
    struct fold_hands hands;
};

struct fold_slot {
    size_t message;
    struct fold_quotes quotes;
};
struct fold_window {
    struct fold_slot *v; /* [n] what is read, in the order of the list */
    size_t n;
    bool has_cut; /* something left on the way here */
    struct fold_head head;
    int tokens; /* with `around` */
};
struct fold {
    struct fold_window now;
    /* The cut was made for the newest user's message (or what follows it): `before` is the window
     * that it would have had. */
    bool is_cut_now;
    struct fold_window before;
    size_t n_cuts;
};

/*
 * The window of the whole list; results live in a. System messages are always in it, and so is the
 * newest turn. ERR_LIMIT: these alone are more than the limit; the text has the counts. An earlier
 * message that was so long leaves as soon as a newer turn stands behind it. ERR_NOMEM; errors of
 * the hands as they are.
 */
int fold(const struct fold_input *in, struct arena *a, struct fold *ret, struct err *e) MUST_USE;

/* What stood when the newest cut had been made, with texts and index of its own. */
struct fold_state;
void fold_state_free(struct fold_state *s); /* NULL is fine */
/* The message at which that cut was made: the messages up to it, and the rules, are what the state
 * is of. */
size_t fold_state_at(const struct fold_state *s);
/* As fold. *state: NULL, or where to begin; it is taken. Becomes that of the newest cut, the
 * caller's; NULL without one, and after an error. */
int fold_on(const struct fold_input *in, struct fold_state **state, struct arena *a,
            struct fold *ret, struct err *e) MUST_USE;

#endif
