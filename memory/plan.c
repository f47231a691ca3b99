/*
 * The plan of a cut.
 *
 *     items ─► turns ─► units ─► an order of what may leave ─► its shortest piece that is enough
 *
 * Turns are numbered from the newest (0) to the oldest. A unit is one turn, or several neighbours
 * that a group of calls and results spans; unit 0 holds the newest turn and never leaves. The order
 * is: recalled items, oldest first, then units by (key, oldest first), where the key is 0 for a
 * window, and for prune and auto the value of the low ones and one number for the rest.
 *
 * Because the order knows nothing of the budget, plans are nested: less budget, a longer piece.
 * Sums are 64 bits wide; what is told outside stops at INT_MAX.
 */
#include "memory/plan.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define NO_TURN SIZE_MAX
#define RESERVE_PERCENT_MAX 50
#define VALUE_MAX 100

static const char *const names[PLAN_N_STRATEGIES] = {
    [PLAN_UNSET] = "",
    [PLAN_ERROR] = "error",
    [PLAN_WINDOW] = "window",
    [PLAN_SUMMARISE] = "summarise",
    [PLAN_RETRIEVE] = "retrieve",
    [PLAN_PRUNE] = "prune",
    [PLAN_AUTO] = "auto",
};

const char *plan_strategy_name(enum plan_strategy s)
{
    return s > PLAN_UNSET && s < PLAN_N_STRATEGIES ? names[s] : "";
}

bool plan_strategy_parse(const char *name, enum plan_strategy *ret)
{
    for (int i = PLAN_UNSET + 1; i < PLAN_N_STRATEGIES; i++)
        if (strcmp(name, names[i]) == 0) {
            *ret = (enum plan_strategy)i;
            return true;
        }
    return false;
}

const char *plan_strategy_names(void)
{
    return "error, window, summarise, retrieve, prune, auto";
}

int plan_room(const struct plan_budget *b)
{
    int most = (int)((int64_t)b->limit * RESERVE_PERCENT_MAX / 100);
    return b->limit - (b->reserve < most ? b->reserve : most);
}

int plan_target(const struct plan_budget *b)
{
    if (b->target > 0)
        return b->target < b->limit ? b->target : b->limit;
    return (int)((int64_t)plan_room(b) * PLAN_TARGET_PERCENT / 100);
}

bool plan_needs_cut(const struct plan_budget *b, int used, int next_tokens)
{
    return (int64_t)used + next_tokens > plan_room(b);
}

static int by_number(const void *a, const void *b)
{
    const int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

int plan_typical(const int *turns, size_t n, int *ret, struct arena *a, struct err *e)
{
    if (n == 0) {
        *ret = 0;
        return 0;
    }
    int *sorted = arena_array(a, n, sizeof(*sorted));
    if (!sorted)
        return err_set(e, ERR_NOMEM, "plan: out of memory for %zu turns", n);
    memcpy(sorted, turns, n * sizeof(*sorted));
    qsort(sorted, n, sizeof(*sorted), by_number);
    *ret = sorted[n - 1 - n / 10]; /* rank ceil(0.9 n), from 1 */
    return 0;
}

size_t plan_select(const int *tokens, size_t n, int budget, int *ret_tokens)
{
    int64_t sum = 0;
    size_t taken = 0;
    while (taken < n && sum + tokens[taken] <= budget)
        sum += tokens[taken++];
    if (ret_tokens)
        *ret_tokens = (int)sum;
    return taken;
}

/* ---- the parts of a window ---- */

struct unit {
    int64_t tokens; /* freed when it leaves, recalled items not counted */
    int64_t worth, weight;
    size_t n_turns;
    bool is_gone;
};

/* Scratch, in the arena. */
struct parts {
    const struct plan_window *w;
    size_t *turn;   /* [n] of each item, from the newest; NO_TURN: it is in none */
    bool *is_fixed; /* [n] always in: system, pinned, the newest unit */
    size_t n_turns;
    size_t *unit_of; /* [n_turns] */
    struct unit *units;
    size_t n_units;
    int64_t before, fixed, loose; /* all; always in; what may leave. Head items are in `before`
                                   * alone. */
};

/* One item of a group. */
struct member {
    int group;
    size_t item;
};

static int no_memory(struct err *e)
{
    return err_set(e, ERR_NOMEM, "plan: out of memory");
}

static int told(int64_t tokens)
{
    return tokens < INT_MAX ? (int)tokens : INT_MAX;
}

static bool is_message(enum plan_kind kind)
{
    return kind == PLAN_USER || kind == PLAN_ASSISTANT || kind == PLAN_CALL || kind == PLAN_RESULT;
}

/* Never in a turn. */
static bool is_apart(enum plan_kind kind)
{
    return kind == PLAN_SYSTEM || kind == PLAN_PIN || kind == PLAN_HEAD;
}

/* From the end: a user item closes its turn, but for the recalled items right before it. */
static void find_turns(struct parts *p)
{
    const struct plan_window *w = p->w;
    bool is_closed = false;
    size_t turn = 0, n_in = 0;
    for (size_t i = w->n; i-- > 0;) {
        enum plan_kind kind = w->v[i].kind;
        p->turn[i] = NO_TURN;
        if (is_apart(kind))
            continue;
        if (is_closed && kind != PLAN_RECALLED) {
            is_closed = false;
            turn++;
        }
        is_closed = is_closed || kind == PLAN_USER;
        p->turn[i] = turn;
        n_in++;
    }
    p->n_turns = n_in > 0 ? turn + 1 : 0;
}

static int by_group(const void *a, const void *b)
{
    const struct member *x = a, *y = b;
    if (x->group != y->group)
        return x->group < y->group ? -1 : 1;
    return x->item < y->item ? -1 : x->item > y->item;
}

/* The members m[0, n) of one group: all stay if one is pinned; joins[t] counts how many groups span
 * from turn t to the one before, as differences. */
static void bind_group(struct parts *p, const struct member *m, size_t n, int64_t *joins)
{
    bool is_pinned = false;
    size_t newest = NO_TURN, oldest = 0;
    for (size_t i = 0; i < n; i++) {
        size_t turn = p->turn[m[i].item];
        is_pinned = is_pinned || p->w->v[m[i].item].is_pinned;
        newest = turn < newest ? turn : newest;
        oldest = turn > oldest ? turn : oldest;
    }
    for (size_t i = 0; is_pinned && i < n; i++)
        p->is_fixed[m[i].item] = true;
    joins[newest]++;
    joins[oldest]--;
}

static int bind_groups(struct parts *p, int64_t *joins, struct arena *a, struct err *e)
{
    struct member *members = arena_array(a, p->w->n, sizeof(*members));
    size_t n = 0;
    if (!members)
        return no_memory(e);
    for (size_t i = 0; i < p->w->n; i++)
        if (p->w->v[i].group > 0 && p->turn[i] != NO_TURN)
            members[n++] = (struct member){.group = p->w->v[i].group, .item = i};
    qsort(members, n, sizeof(*members), by_group);
    for (size_t from = 0, to; from < n; from = to) {
        for (to = from + 1; to < n && members[to].group == members[from].group;)
            to++;
        bind_group(p, members + from, to - from, joins);
    }
    return 0;
}

/* Turns → units. */
static int find_units(struct parts *p, struct arena *a, struct err *e)
{
    int64_t *joins = arena_array(a, p->n_turns, sizeof(*joins));
    if (!joins)
        return no_memory(e);
    int rc = bind_groups(p, joins, a, e);
    if (rc < 0)
        return rc;
    int64_t spans = 0;
    for (size_t t = 0; t < p->n_turns; t++) {
        p->unit_of[t] = p->n_units;
        p->units[p->n_units].n_turns++;
        spans += joins[t];
        if (spans == 0)
            p->n_units++;
    }
    return 0;
}

static void weigh(struct parts *p)
{
    for (size_t i = 0; i < p->w->n; i++) {
        const struct plan_item *item = &p->w->v[i];
        size_t unit = p->turn[i] == NO_TURN ? 0 : p->unit_of[p->turn[i]];
        p->before += item->tokens;
        if (item->kind == PLAN_HEAD && !item->is_pinned)
            continue;
        if (item->is_pinned || is_apart(item->kind) || unit == 0)
            p->is_fixed[i] = true;
        if (p->is_fixed[i])
            p->fixed += item->tokens;
        else
            p->loose += item->tokens;
        if (p->turn[i] == NO_TURN || !is_message(item->kind))
            continue;
        int64_t weight = item->tokens > 0 ? item->tokens : 1;
        p->units[unit].weight += weight;
        p->units[unit].worth += weight * (p->is_fixed[i] ? VALUE_MAX : item->value);
        p->units[unit].tokens += p->is_fixed[i] ? 0 : item->tokens;
    }
}

static int take_apart(const struct plan_window *w, struct parts *p, struct arena *a, struct err *e)
{
    *p = (struct parts){.w = w};
    p->turn = arena_array(a, w->n, sizeof(*p->turn));
    p->is_fixed = arena_array(a, w->n, sizeof(*p->is_fixed));
    if (!p->turn || !p->is_fixed)
        return no_memory(e);
    find_turns(p);
    p->unit_of = arena_array(a, p->n_turns, sizeof(*p->unit_of));
    p->units = arena_array(a, p->n_turns + 1, sizeof(*p->units)); /* unit 0 is always there */
    if (!p->unit_of || !p->units)
        return no_memory(e);
    int rc = find_units(p, a, e);
    if (rc == 0)
        weigh(p);
    return rc;
}

/* ---- what leaves ---- */

struct candidate {
    int key;
    size_t unit;
};

static int in_order(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->unit > y->unit ? -1 : x->unit < y->unit; /* higher numbers are older */
}

static int key_of(const struct unit *u, enum plan_strategy s)
{
    int value = u->weight > 0 ? (int)(u->worth / u->weight) : 0;
    if (s != PLAN_PRUNE && s != PLAN_AUTO)
        return 0;
    return value < PLAN_VALUE_LOW ? value : VALUE_MAX + 1;
}

/* The unit that an item would leave with: 0 when it stays whatever happens. */
static size_t leaves_with(const struct parts *p, size_t i)
{
    return p->is_fixed[i] || p->turn[i] == NO_TURN ? 0 : p->unit_of[p->turn[i]];
}

/* Marks what leaves, until `used` is at the target; returns what is used then. Recalled items that
 * leave are marked in stays, units in is_gone. */
static int64_t shed(struct parts *p, const struct candidate *order, int64_t used, int64_t target,
                    bool *stays)
{
    for (size_t i = 0; used > target && i < p->w->n; i++)
        if (p->w->v[i].kind == PLAN_RECALLED && leaves_with(p, i) != 0) {
            stays[i] = false;
            used -= p->w->v[i].tokens;
        }
    for (size_t i = 0; used > target && i + 1 < p->n_units; i++) {
        struct unit *u = &p->units[order[i].unit];
        u->is_gone = true;
        used -= u->tokens;
    }
    return used;
}

static void fill_in(const struct parts *p, bool *stays, struct plan *ret)
{
    ret->first = p->w->n;
    for (size_t i = 0; i < p->w->n; i++) {
        enum plan_kind kind = p->w->v[i].kind;
        const bool is_gone = p->units[leaves_with(p, i)].is_gone;
        if (is_gone || (kind == PLAN_HEAD && !p->is_fixed[i]))
            stays[i] = false;
        ret->n_dropped += !stays[i] && is_message(kind);
        ret->n_recalled_dropped += !stays[i] && kind == PLAN_RECALLED;
        const bool is_kept_turn =
            p->turn[i] != NO_TURN && is_message(kind) && !p->units[p->unit_of[p->turn[i]]].is_gone;
        if (is_kept_turn && ret->first == p->w->n)
            ret->first = i;
    }
    for (size_t u = 0; u < p->n_units; u++)
        ret->n_turns_dropped += p->units[u].is_gone ? p->units[u].n_turns : 0;
}

static int check(const struct plan_window *w, const struct plan_budget *b, struct err *e)
{
    if (b->limit < 1 || b->reserve < 0 || b->target < 0 || b->head_tokens < 0)
        return err_set(e, ERR_INVAL, "plan: limit %d, reserve %d, target %d, head %d", b->limit,
                       b->reserve, b->target, b->head_tokens);
    for (size_t i = 0; i < w->n; i++) {
        const struct plan_item *item = &w->v[i];
        if (item->tokens < 0 || item->value < 0 || item->value > VALUE_MAX)
            return err_set(e, ERR_INVAL, "plan: item %zu has %d tokens and value %d", i,
                           item->tokens, item->value);
        if (item->kind < PLAN_SYSTEM || item->kind > PLAN_RECALLED)
            return err_set(e, ERR_INVAL, "plan: item %zu is of kind %d", i, (int)item->kind);
    }
    return 0;
}

static size_t first_message(const struct parts *p)
{
    size_t i = 0;
    while (i < p->w->n && (p->turn[i] == NO_TURN || !is_message(p->w->v[i].kind)))
        i++;
    return i;
}

/* The parts are known and the target is exceeded. */
static int make_cut(struct parts *p, const struct plan_budget *b, enum plan_strategy s,
                    struct plan *ret, struct arena *a)
{
    bool *stays = arena_array(a, p->w->n, sizeof(*stays));
    struct candidate *order = arena_array(a, p->n_units, sizeof(*order));
    if (!stays || !order)
        return ERR_NOMEM;
    for (size_t i = 0; i < p->w->n; i++)
        stays[i] = true;
    for (size_t u = 1; u < p->n_units; u++)
        order[u - 1] = (struct candidate){.key = key_of(&p->units[u], s), .unit = u};
    if (p->n_units > 1)
        qsort(order, p->n_units - 1, sizeof(*order), in_order);
    const int64_t free_for_head = b->limit - p->fixed;
    const int64_t head = b->head_tokens < free_for_head ? b->head_tokens : free_for_head;
    const int64_t target = plan_target(b);
    const int64_t after = shed(p, order, p->fixed + head + p->loose, target, stays);
    ret->is_cut = true;
    ret->head_tokens = (int)head;
    ret->after = told(after);
    ret->is_on_target = after <= target;
    fill_in(p, stays, ret);
    memcpy(ret->stays, stays, p->w->n * sizeof(*stays));
    return 0;
}

int plan_cut(const struct plan_window *w, const struct plan_budget *b, enum plan_strategy s,
             struct plan *ret, struct arena *a, struct err *e)
{
    struct parts p = {.w = w};
    if (s < PLAN_WINDOW || s > PLAN_AUTO)
        return err_set(e, ERR_INVAL, "plan: strategy %d makes no cuts", (int)s);
    int rc = check(w, b, e);
    if (rc == 0)
        rc = take_apart(w, &p, a, e);
    if (rc < 0)
        return rc;
    struct plan out = {.stays = ret->stays, .n_turns = p.n_turns, .before = told(p.before)};
    if (p.before <= plan_target(b)) {
        out.after = out.before;
        out.is_on_target = true;
        out.first = first_message(&p);
        for (size_t i = 0; i < w->n; i++)
            out.stays[i] = true;
        *ret = out;
        return 0;
    }
    if (p.fixed > b->limit) {
        ret->before = out.before;
        ret->after = told(p.fixed);
        return err_set(e, ERR_LIMIT,
                       "system prompt, pins and the newest turn are %lld tokens, and the window "
                       "takes %d",
                       (long long)p.fixed, b->limit);
    }
    if (make_cut(&p, b, s, &out, a) < 0)
        return no_memory(e);
    assert(out.after <= b->limit);
    *ret = out;
    return 0;
}

int plan_fit(const struct plan_window *w, const struct plan_budget *b, int *ret_used, struct err *e)
{
    int64_t used = 0;
    int rc = check(w, b, e);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < w->n; i++)
        used += w->v[i].tokens;
    if (ret_used)
        *ret_used = told(used);
    if (used > b->limit)
        return err_set(e, ERR_LIMIT, "the window is %lld tokens, and at most %d fit",
                       (long long)used, b->limit);
    return 0;
}
