/*
 * From messages to facts (facts.h).
 *
 *     message → sentences (code fences left out) → pieces at , ; : — ( ) and "and the"
 *             → pieces joined again where one is nothing without the other
 *             → clause → phrase of words.c?  exact values?  keys? → weight → fact
 *
 * Of a message longer than two halves of MESSAGE_HALF only its beginning and its end are read: a
 * paste is not said by anyone.
 */
#include "memory/facts.h"

#include <stdlib.h>
#include <string.h>

#include "memory/clause.h"
#include "memory/facts_list.h"
#include "memory/phrases.h"
#include "memory/words.h"

#define MESSAGE_HALF ((size_t)32 << 10)
#define PIECES_MAX 48
#define JOINED_BYTES_MAX 110
#define MARKED_SENTENCES 8 /* "please remember these:" counts for so many */
#define LEAD_INS_MAX 4
#define WEIGHT_MIN 20
#define WEIGHT_LABELLED 50 /* "Guest: Takumi Arden" */
/* What opens a conversation: at least so much, and so much more. A longer message is a paste. */
#define OPENING_LEAST 52
#define OPENING_MORE 26
#define OPENING_BYTES_MAX 1500
#define PASSING_LESS 14

struct piece {
    size_t at, n; /* of the sentence */
    bool is_new; /* begins like a clause of its own */
};

struct reader {
    const struct said *m;
    struct facts_list *list;
    int64_t opening; /* the last row of it */
    int marked_left;
    struct clause clause; /* scratch: 10 KiB */
};

/* ---- pieces ---- */

/* A space, or a dash before one: no text begins with it (facts_text.c takes it off). */
static bool is_bullet(const char *s, size_t n)
{
    return s[0] == ' ' || (s[0] == '-' && (n == 1 || s[1] == ' '));
}

/* Length of what separates pieces at s[i], 0: nothing. */
static size_t separator(const char *s, size_t n, size_t i)
{
    static const char *const marks[] = {"，", "；", "：", "（", "）", "——", "—",  "–",  " - ",
                                        ", ", "; ", ": ", " (", ")",  "。", "！", "？", NULL};
    const unsigned char c = (unsigned char)s[i];
    if (c > ';' && c != 0xE2 && c != 0xE3 && c != 0xEF) /* letters, Han */
        return 0;
    for (size_t k = 0; marks[k]; k++) {
        if (s[i] != marks[k][0])
            continue;
        size_t len = strlen(marks[k]);
        if (n - i >= len && memcmp(s + i, marks[k], len) == 0)
            return len;
    }
    return 0;
}

/* " and the …", " but I …": another clause with a subject of its own. */
static size_t conjunction(const char *s, size_t n, size_t i)
{
    static const char *const words[] = {" and ", " but ", " so ", " because ", NULL};
    for (size_t k = 0; words[k]; k++) {
        size_t len = strlen(words[k]), word = 0;
        if (n - i <= len || s[i + 1] != words[k][1] || memcmp(s + i, words[k], len) != 0)
            continue;
        while (i + len + word < n && s[i + len + word] != ' ')
            word++;
        if (word_flags(s + i + len, word) & (W_SHAPE | W_FIRST))
            return len;
    }
    return 0;
}

static bool begins_new(const char *s, size_t n)
{
    size_t word = 0;
    while (word < n && s[word] != ' ')
        word++;
    if (word_flags(s, word) & (W_SHAPE | W_FIRST))
        return true;
    size_t begin = n < 18 ? n : 18;
    return zh_flags(s, n < 6 ? n : 6) & Z_FIRST || zh_flags(s, begin) & Z_THING;
}

/* Values or a lead-in, and nothing that says whose. */
static bool is_bare(struct reader *r, const char *s, size_t n)
{
    clause_read_words(&r->clause, s, n);
    return clause_content(&r->clause) == 0;
}

static void piece_add(struct piece *v, size_t *n, const char *s, struct piece p)
{
    while (p.n && is_bullet(s + p.at, p.n)) {
        p.at++;
        p.n--;
    }
    while (p.n && (s[p.at + p.n - 1] == ' ' || s[p.at + p.n - 1] == '.'))
        p.n--;
    if (!p.n || *n == PIECES_MAX)
        return;
    p.is_new = begins_new(s + p.at, p.n);
    v[(*n)++] = p;
}

static size_t split(const char *s, size_t n, struct piece ret[PIECES_MAX])
{
    struct value values[64];
    size_t n_values = values_find(s, n, values, 64), count = 0, from = 0;
    const struct value *v = values, *end = values + n_values;
    for (size_t i = 0; i < n;) {
        while (v < end && i >= v->at + v->n)
            v++;
        bool is_in_value = v < end && i >= v->at;
        size_t len = is_in_value ? 0 : separator(s, n, i);
        size_t left = len;
        if (!len && s[i] == ' ' && i - from > 8)
            len = conjunction(s, n, i);
        if (!len) {
            i++;
            continue;
        }
        piece_add(ret, &count, s, (struct piece){from, i - from, false});
        from = i + (left ? len : 1); /* a conjunction stays with what it begins */
        i += len;
    }
    piece_add(ret, &count, s, (struct piece){from, n - from, false});
    return count;
}

/* Joins pieces of s that mean nothing apart, in place. */
static size_t join(struct reader *r, const char *s, struct piece *v, size_t n)
{
    size_t out = 0;
    for (size_t i = 0; i < n; i++) {
        struct piece *last = out ? &v[out - 1] : NULL;
        size_t whole = last ? v[i].at + v[i].n - last->at : 0;
        if (last && whole <= JOINED_BYTES_MAX &&
            (!v[i].is_new || is_bare(r, s + v[i].at, v[i].n)))
            last->n = whole;
        else
            v[out++] = v[i];
    }
    return out;
}

/* ---- a clause's worth ---- */

static const struct {
    enum fact_kind kind;
    int weight;
} of_value[] = {
    [VALUE_URL] = {FACT_IDENTIFIER, 64},   [VALUE_EMAIL] = {FACT_IDENTIFIER, 66},
    [VALUE_PATH] = {FACT_IDENTIFIER, 64},  [VALUE_HOST] = {FACT_IDENTIFIER, 64},
    [VALUE_IDENT] = {FACT_IDENTIFIER, 64}, [VALUE_VERSION] = {FACT_IDENTIFIER, 62},
    [VALUE_PHONE] = {FACT_IDENTIFIER, 66}, [VALUE_MONEY] = {FACT_NUMBER, 54},
    [VALUE_DATE] = {FACT_DATE, 50},        [VALUE_TIME] = {FACT_DATE, 46},
    [VALUE_NUMBER] = {FACT_NUMBER, 36},    [VALUE_YEAR] = {FACT_DATE, 26},
    [VALUE_QUOTE] = {FACT_NAME, 32},       [VALUE_NAME] = {FACT_NAME, 28},
};

static int penalty(const struct clause *c)
{
    return (c->is_question ? 24 : 0) + (c->is_supposed ? 16 : 0);
}

/* For exact values: kind and weight of the best, more for what has a key, is one's own and happens
 * again and again. */
static int value_weight(const struct clause *c, const struct fact *f, bool is_habit,
                        enum fact_kind *ret_kind)
{
    int best = 0, n = 0;
    for (size_t i = 0; i < c->n_values; i++) {
        int weight = of_value[c->values[i].kind].weight;
        n += weight >= 36;
        if (weight > best) {
            best = weight;
            *ret_kind = of_value[c->values[i].kind].kind;
        }
    }
    if (!best)
        return 0;
    bool has_thing = false;
    for (int i = 0; i < f->n_pairs; i++)
        has_thing = has_thing || key_is_thing(f->pairs[i].key);
    best += has_thing ? 14 : f->n_pairs ? 6 : 0;
    best = has_thing && best < 68 ? 68 : best;
    best += c->is_first_person ? 8 : 0;
    best += is_habit ? 10 : 0;
    best += n > 3 ? 6 : n > 1 ? 2 * (n - 1) : 0;
    return best - (c->is_ask ? 20 : 0);
}

/* Nothing exact, but a person speaks of himself: weak, and not of his thoughts. */
static int own_weight(const struct clause *c, bool is_thought)
{
    if (!c->is_first_person || c->is_question || c->is_ask || is_thought)
        return 0;
    size_t content = clause_content(c);
    if (content < 2) /* "I'm left-handed", but "I'm tired" too */
        return content && (memcmp(c->plain.s, " i'm ", 5) == 0 || !memcmp(c->plain.s, " i am ", 6))
                   ? 24
                   : 0;
    return c->flags & W_NOT || c->zh & Z_NOT ? 46 : 36;
}

static bool is_about_health(const struct clause *c)
{
    return c->flags & W_HEALTH || c->zh & Z_HEALTH;
}

/* "my", "our": somebody's own. */
static bool is_own(const struct clause *c)
{
    for (size_t i = 0; i < c->n_words; i++)
        if (c->words[i].flags & W_FIRST && c->words[i].flags & W_SHAPE)
            return true;
    return c->is_cjk && c->is_first_person;
}

/* "Tobias, but everyone calls me Tobi": up to the comma. */
static size_t first_part(const char *s, size_t n)
{
    static const char *const ends[] = {",", "，", "、", "。", "；", " and ", " but ", " (", NULL};
    size_t least = n;
    for (size_t k = 0; ends[k]; k++) {
        const char *at = memmem(s, n, ends[k], strlen(ends[k]));
        if (at && (size_t)(at - s) < least)
            least = (size_t)(at - s);
    }
    return least;
}

/* kind, weight and pairs of what a person says; weight 0: nothing. Whether it is said of a day. */
static bool weigh_user(const struct clause *c, struct fact *f)
{
    f->n_pairs = clause_keys(c, f->pairs);
    const struct spotted spotted = phrases_spot(c);
    const struct phrase *phrase = spotted.phrase;
    const size_t from = spotted.value[0], to = spotted.value[1];
    enum fact_kind kind = FACT_SELF;
    int weight = value_weight(c, f, spotted.is_habit, &kind);
    if (phrase && phrase->key[0] && to > from) {
        size_t n = first_part(c->s + from, to - from);
        if (n < FACT_WAS_BYTES)
            f->n_pairs = pair_add(f->pairs, 0, phrase->key, c->s + from, n);
    }
    if (phrase && phrase->weight > weight) {
        int extra = weight ? 3 : 0;
        weight = phrase->weight + extra - (c->is_ask ? 10 : 0);
        kind = phrase->kind;
    }
    if (f->n_pairs && weight < 68 && key_is_thing(f->pairs[0].key) && !c->is_ask)
        weight = 68;
    if (f->n_pairs && is_own(c) && weight < 70 && !c->is_ask) {
        kind = weight < 46 ? FACT_SELF : kind;
        weight = 70;
    }
    if (is_about_health(c) && (phrase || c->is_first_person) && !c->is_ask && weight < 91) {
        weight = 91;
        kind = FACT_SELF;
    }
    if (!weight) {
        weight = own_weight(c, spotted.is_thought);
        kind = FACT_SELF;
    }
    if (weight < WEIGHT_LABELLED && clause_label(c, f->pairs, &f->n_pairs))
        weight = WEIGHT_LABELLED;
    if (spotted.is_passing && weight < 90 && kind != FACT_RULE && kind != FACT_DECISION)
        weight -= weight > PASSING_LESS ? PASSING_LESS : 0;
    f->kind = kind;
    f->weight = weight ? weight + (c->is_marked ? 10 : 0) - penalty(c) : 0;
    return spotted.is_passing;
}

static void weigh_opening(const struct clause *c, struct fact *f)
{
    const bool is_exact = c->n_values > 0 || f->n_pairs > 0 || c->flags & W_NOT || c->zh & Z_NOT;
    if (f->weight < WEIGHT_MIN || c->is_ask || c->is_question)
        return;
    f->weight = is_exact && f->weight < OPENING_LEAST ? OPENING_LEAST : f->weight;
    f->weight += OPENING_MORE;
}

static void weigh_assistant(const struct clause *c, struct fact *f)
{
    if (!c->n_values) /* only exact ones count */
        return;
    f->n_pairs = clause_keys(c, f->pairs);
    f->weight = (value_weight(c, f, phrases_spot(c).is_habit, &f->kind) - penalty(c)) / 2;
    if (f->kind == FACT_NAME)
        f->weight = 0;
}

/* ---- the fact itself ---- */

/* [*at, *at + *n) of the clause: at most FACT_BYTES_MAX, around what matters at `anchor`. */
static void narrow(const struct clause *c, size_t anchor, size_t *at, size_t *n)
{
    if (*n <= FACT_BYTES_MAX)
        return;
    size_t from = *at, end = *at + *n;
    if (anchor > from + FACT_BYTES_MAX / 3) {
        from = anchor - FACT_BYTES_MAX / 3;
        while (from < anchor && c->s[from - 1] != ' ' && ((unsigned char)c->s[from] & 0xC0) == 0x80)
            from++;
        size_t word = from;
        while (word < anchor && c->s[word] != ' ')
            word++;
        from = word < anchor ? word + 1 : from;
    }
    if (end - from > FACT_BYTES_MAX) {
        end = from + FACT_BYTES_MAX;
        while (end > from && ((unsigned char)c->s[end] & 0xC0) == 0x80)
            end--;
        size_t word = end;
        while (word > anchor && c->s[word] != ' ')
            word--;
        end = word > anchor && word > from ? word : end;
    }
    *at = from;
    *n = end - from;
}

/* The first exact value that is worth most, else the beginning. */
static size_t anchor_of(const struct clause *c)
{
    size_t best = 0;
    int weight = 0;
    for (size_t i = 0; i < c->n_values; i++)
        if (of_value[c->values[i].kind].weight > weight &&
            c->values[i].n <= FACT_BYTES_MAX * 2 / 3) {
            weight = of_value[c->values[i].kind].weight;
            best = c->values[i].at;
        }
    return best;
}

/* An exact value that the ends cut would be another value: it leaves with its piece. */
static void leave_cut_values(const struct clause *c, size_t *at, size_t *n)
{
    for (size_t i = 0; i < c->n_values; i++) {
        size_t from = c->values[i].at, to = from + c->values[i].n;
        if (from < *at && to > *at) {
            size_t end = *at + *n;
            *at = to < end ? to : end;
            *n = end - *at;
        }
        if (from < *at + *n && to > *at + *n)
            *n = from > *at ? from - *at : 0;
    }
    while (*n && is_bullet(c->s + *at, *n)) {
        (*at)++;
        (*n)--;
    }
    while (*n && (c->s[*at + *n - 1] == ' ' || c->s[*at + *n - 1] == ','))
        (*n)--;
}

static int clause_add(struct reader *r, bool is_question, bool is_marked)
{
    struct clause *c = &r->clause;
    struct fact f = {.role = r->m->role, .row = r->m->row};
    c->is_question = c->is_question || is_question;
    c->is_marked = is_marked;
    const bool is_own = f.role == MEMORY_USER;
    const bool is_passing = is_own && weigh_user(c, &f);
    if (!is_own)
        weigh_assistant(c, &f);
    if (is_own && !is_passing && f.row <= r->opening && r->m->n_text <= OPENING_BYTES_MAX)
        weigh_opening(c, &f);
    if (f.weight < WEIGHT_MIN)
        return 0;
    size_t at = 0, n = c->n;
    narrow(c, anchor_of(c), &at, &n);
    leave_cut_values(c, &at, &n);
    if (n < 4)
        return 0;
    return facts_list_add(r->list, &f, c->s + at, n);
}

/* Bytes of s[0, n) that are a lead-in, 0: none. */
static size_t lead_in(struct reader *r, const char *s, size_t n, bool *ret_mark)
{
    size_t end;
    plain_begin(&r->clause.plain, s, n, LEAD_IN_PLAIN);
    const struct lead_in *found = lead_in_find(&r->clause.plain, &end);
    if (!found)
        return 0;
    *ret_mark = *ret_mark || found->is_mark;
    return end;
}

static int sentence_read(struct reader *r, const char *s, size_t n)
{
    struct piece pieces[PIECES_MAX];
    bool is_marked = false, is_asked = s[n - 1] == '?' || (n >= 3 && !memcmp(s + n - 3, "？", 3));
    for (int i = 0; i < LEAD_INS_MAX; i++) {
        size_t len = lead_in(r, s, n, &is_marked);
        s += len;
        n -= len;
    }
    if (is_marked)
        r->marked_left = MARKED_SENTENCES;
    size_t n_pieces = join(r, s, pieces, split(s, n, pieces));
    for (size_t i = 0; i < n_pieces; i++) {
        const char *from = s + pieces[i].at;
        size_t len = pieces[i].n, skip;
        for (int k = 0; k < LEAD_INS_MAX && (skip = lead_in(r, from, len, &is_marked)); k++) {
            from += skip;
            len -= skip;
        }
        if (!len)
            continue;
        clause_read(&r->clause, from, len);
        int error = clause_add(r, is_asked && i + 1 == n_pieces, is_marked || r->marked_left > 0);
        if (error)
            return error;
    }
    r->marked_left -= r->marked_left > 0;
    return 0;
}

static int part_read(struct reader *r, const char *s, size_t n)
{
    struct sentence_walk w;
    sentence_walk_init(&w, s, n);
    for (size_t at, len; sentence_next(&w, &at, &len);) {
        int error = sentence_read(r, s + at, len);
        if (error)
            return error;
    }
    return 0;
}

static bool is_between(char c)
{
    return c == ' ' || c == '\n' || (unsigned char)c >= 0xC0;
}

static int message_read(struct reader *r)
{
    const char *s = r->m->text;
    size_t n = r->m->n_text;
    r->marked_left = 0;
    if (n <= 2 * MESSAGE_HALF)
        return n ? part_read(r, s, n) : 0;
    /* Between lines, words or characters that aren't ASCII, so that no value is read by half. */
    size_t head = MESSAGE_HALF, tail = n - MESSAGE_HALF;
    while (head > 0 && !is_between(s[head]))
        head--;
    while (tail < n && !is_between(s[tail]))
        tail++;
    int error = part_read(r, s, head);
    return error ? error : part_read(r, s + tail, n - tail);
}

int facts_extract(const struct said *v, size_t n, struct arena *a, struct facts *ret, struct err *e)
{
    return facts_extract_from(v, n, 0, a, ret, e);
}

int facts_extract_from(const struct said *v, size_t n, int64_t opening, struct arena *a,
                       struct facts *ret, struct err *e)
{
    struct facts_list list;
    struct reader *r = calloc(1, sizeof *r);
    int error = r ? 0 : ERR_NOMEM;
    facts_list_init(&list);
    for (size_t i = 0; i < n && !error; i++) {
        r->m = &v[i];
        r->list = &list;
        r->opening = opening;
        if (v[i].role == MEMORY_USER || v[i].role == MEMORY_ASSISTANT)
            error = message_read(r);
    }
    free(r);
    if (!error)
        error = facts_list_take(&list, SIZE_MAX, a, ret);
    facts_list_done(&list);
    return error ? err_set(e, error, "no memory for the facts of %zu messages", n) : 0;
}
