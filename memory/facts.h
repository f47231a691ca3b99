/*
 * The fact list: exact values, copied word for word, that a summary would smooth away.
 *
 *     facts_extract   messages leaving the window → facts, each a clause of its message
 *     facts_merge     the list so far + new ones → a list within a budget
 *     facts_compose   → text for the head of the prompt
 *     facts_write     → text to store, that a person can edit; facts_parse reads it back
 *
 * A fact is a substring of its message, byte for byte: nothing is reworded, so nothing is invented.
 * It is one line (cut at clause and word boundaries around its values, at most FACT_BYTES_MAX
 * bytes). It may name several things, `is`: pairs of a key (what it is about, normalised: "port",
 * "me.allergic", "sister.name") and the value (a substring of the fact). The newest value of a key
 * wins: an older fact that holds nothing else leaves the list and the newer one is marked
 * "(earlier: 8080)"; one that holds more stays beside it.
 *
 * What is scarce is room, so facts have weights: what a person says of himself and wants
 * (preferences, prohibitions, decisions, health, names) and exact identifiers first, what the
 * assistant says and what is general knowledge (a year, a mountain's height) last; what is said of
 * a day (a late bus, a lunch) less than what holds. What opens the conversation weighs more, and
 * within one weight the oldest and the newest stay and the middle leaves: what sets the stage, and
 * what is going on.
 * A line that a person wrote (FACT_NOTE) outweighs all.
 *
 * English and Chinese by word lists (words.c, words_en.c: a new word is a line); of other languages
 * identifiers, numbers with their neighbours and capitalised names are found.
 *
 * Pure: no clock, no randomness, no locale. Time and bytes are linear in the input.
 */
#ifndef HEARTH_MEMORY_FACTS_H
#define HEARTH_MEMORY_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "memory/said.h"

#define FACT_BYTES_MAX 160
#define FACT_PAIRS_MAX 4    /* keys of one fact; a clause with more values keeps the text */
#define FACT_KEY_BYTES 48   /* with the NUL; a longer key is cut */
#define FACT_WAS_BYTES 48   /* an earlier value, likewise */
#define FACTS_MAX 512       /* of a list; extraction of a large input keeps the heaviest */
#define FACTS_LINE_MAX 4096 /* bytes of a line that a person wrote; what follows is ignored */

#define FACT_SPANS_MAX 16

#define FACT_NOTE_WEIGHT 1000

enum fact_kind {
    FACT_NOTE = 1,   /* a person's own line (`hearth summary edit`) */
    FACT_SELF,       /* what someone is, has, is called: "I'm allergic to peanuts" */
    FACT_PREFERENCE, /* "I prefer…", "I hate…", "我喜欢…" */
    FACT_RULE,       /* prohibitions, negations, always and never: "don't deploy on Fridays" */
    FACT_DECISION,   /* "we decided to…", "use X instead of Y" */
    FACT_IDENTIFIER, /* INC-4471, paths, hosts, addresses, versions */
    FACT_DATE,       /* dates and times */
    FACT_NUMBER,     /* amounts and counts with their noun */
    FACT_NAME,       /* capitalised names and titles of things */
};
/* "note", "self", …: as written by facts_write. */
const char *fact_kind_name(enum fact_kind k);

struct fact_pair {
    char key[FACT_KEY_BYTES];
    const char *value; /* n_value bytes within the fact's text */
    size_t n_value;
    char was[FACT_WAS_BYTES]; /* the value before this one, "": none known */
};

/* Where the exact values of a fact without pairs are, once they were looked for. */
struct fact_spans {
    uint8_t n; /* + 1; 0: not looked for yet */
    uint16_t at[FACT_SPANS_MAX], len[FACT_SPANS_MAX]; /* bytes of the text */
};

struct fact {
    enum fact_kind kind;
    enum memory_role role; /* who said it */
    int64_t row;           /* of its message; 0: a person's line */
    const char *text; /* in the arena, NUL-terminated; valid UTF-8 without control characters */
    size_t n_text;
    int weight; /* the heavier stay; 20 to about 130, a note's is FACT_NOTE_WEIGHT */
    int n_pairs;
    struct fact_pair pairs[FACT_PAIRS_MAX];
    struct fact_spans spans; /* facts_merge's own */
};

struct facts {
    struct fact *v; /* [n], in the order of time, in the arena */
    size_t n;
};

/* Facts of the messages (oldest first; the system's are skipped). Within them the newest value wins
 * already. No facts: n = 0. ERR_NOMEM. */
int facts_extract(const struct said *v, size_t n, struct arena *a, struct facts *ret,
                  struct err *e) MUST_USE;
/* The same, of a conversation whose opening the messages up to row `opening` are. What a person
 * says there, unless it is a paste, weighs more: it sets the stage for all that follows. */
int facts_extract_from(const struct said *v, size_t n, int64_t opening, struct arena *a,
                       struct facts *ret, struct err *e) MUST_USE;

/*
 * One list of both, whose composed text has at most max_bytes: the same texts (case, spaces and
 * punctuation aside) are one, superseded values leave, and then the lightest, until it fits.
 * Either may be NULL. Merging with nothing and the same budget changes nothing; a larger budget
 * keeps a superset. The texts are copied. A caller that has counted tokens and needs fewer merges
 * again with fewer bytes. ERR_NOMEM.
 */
int facts_merge(const struct facts *old, const struct facts *newer, size_t max_bytes,
                struct arena *a, struct facts *ret, struct err *e) MUST_USE;

/* A list that facts_merge has made, as facts_parse of facts_write would give it: kept from merge to
 * merge it saves writing and reading. */
void facts_settle(struct facts *f);

/* Of a list that facts_merge has made, what composes to at most max_bytes: what merging it with
 * nothing would keep, in less time. Borrows from `all`. ERR_NOMEM. */
int facts_shorten(const struct facts *all, size_t max_bytes, struct arena *a, struct facts *ret,
                  struct err *e) MUST_USE;

/*
 * Appends the list as the model reads it: the user's facts, then the assistant's, in the order of
 * time, under a line that names the speaker. Nothing for an empty list.
 *
 *     User:
 *     - I'm allergic to peanuts
 *     - the port is now 9090 (earlier: 8080)
 *     Assistant:
 *     - INC-4471 was opened on 3 March
 */
void facts_compose(const struct facts *f, struct buf *b);

/*
 * Appends the list as it is stored, a fact a line: the text, a space and a JSON object.
 *
 *     the port is now 9090 {"by":"user","row":12,"kind":"number","weight":62,
 *                           "is":{"port":"9090"},"was":{"port":"8080"}}     (in one line)
 *
 * facts_parse reads it back: facts_parse of facts_write gives the same list, and the same bytes
 * when written again. A line without such an object is a person's: FACT_NOTE by the user, row 0. An
 * object whose values are not in the text (the person changed it) loses those pairs. Empty lines
 * are skipped, "- " at the start of a line is taken off, bytes that aren't UTF-8 and control
 * characters are repaired. Never fails but with ERR_NOMEM.
 */
void facts_write(const struct facts *f, struct buf *b);
int facts_parse(const char *text, size_t n, struct arena *a, struct facts *ret,
                struct err *e) MUST_USE;

#endif
