/*
 * The plan's promises on random windows, against a fool that knows the definitions and nothing of
 * how the plan is made. HEARTH_SEED repeats a run.
 */
#include "tests/memory/place.h"

#include <limits.h>
#include <time.h>

#include "memory/plan.h"

#define ITEMS_MAX 64
#define ROUNDS 400

static uint64_t random_state;

/* splitmix64 */
static int below(int n)
{
    uint64_t z = random_state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (int)((z ^ z >> 31) % (unsigned)n);
}

/* ---- a window ---- */

static struct plan_item items[ITEMS_MAX];
static struct plan_window window = {.v = items};
static int n_groups;
static int turns[ITEMS_MAX];       /* turn_of each item, and the other two, once a window */
static bool joined[ITEMS_MAX + 1]; /* is_joined each turn */
static bool in[ITEMS_MAX];         /* is_always_in each item */
static bool with_head;             /* a head, and groups across turns */

static void push(enum plan_kind kind, int group)
{
    if (window.n == ITEMS_MAX)
        return;
    items[window.n++] =
        (struct plan_item){.kind = kind,
                           .is_pinned = below(25) == 0,
                           .tokens = below(8) == 0 ? 1 + below(200) : !with_head + below(30),
                           .value = below(101),
                           .group = group};
}

static void push_turn(void)
{
    for (int i = below(6); i > 3; i--)
        push(PLAN_RECALLED, 0);
    if (below(20) == 0)
        push(below(2) ? PLAN_SYSTEM : PLAN_PIN, 0);
    push(PLAN_USER, 0);
    if (below(4) == 0) {
        int group = ++n_groups, n = 1 + below(3);
        for (int i = 0; i < n; i++)
            push(PLAN_CALL, group);
        for (int i = 0; i < n; i++)
            push(PLAN_RESULT, group);
    }
    if (below(10))
        push(PLAN_ASSISTANT, with_head && n_groups && below(20) == 0 ? n_groups : 0);
}

static void ask_fool(void);

static void make_window(void)
{
    window.n = 0;
    n_groups = 0;
    with_head = below(2);
    if (below(5))
        push(PLAN_SYSTEM, 0);
    for (int i = below(3); i > 0; i--)
        push(PLAN_PIN, 0);
    if (with_head)
        push(PLAN_HEAD, 0);
    if (below(4) == 0)
        push(PLAN_ASSISTANT, 0);
    for (int i = below(9); i > 0; i--)
        push_turn();
    ask_fool();
}

/* ---- the fool ---- */

static bool is_message(size_t i)
{
    return items[i].kind >= PLAN_USER && items[i].kind <= PLAN_RESULT;
}

/* By definition: how many user items stand after it; the recalled ones belong to the next user item
 * if nothing but recalled ones and what is in no turn is between. -1: in no turn. */
static int find_turn(size_t i)
{
    int n = 0;
    size_t next = i + 1;
    if (items[i].kind == PLAN_SYSTEM || items[i].kind == PLAN_PIN || items[i].kind == PLAN_HEAD)
        return -1;
    for (size_t k = i + 1; k < window.n; k++)
        n += items[k].kind == PLAN_USER;
    while (next < window.n && items[next].kind != PLAN_USER && !is_message(next))
        next++;
    if (items[i].kind == PLAN_RECALLED && next < window.n && items[next].kind == PLAN_USER)
        n--;
    return n;
}

static int turn_of(size_t i)
{
    return turns[i];
}

static bool share_group(size_t i, size_t k)
{
    return items[i].group > 0 && items[i].group == items[k].group;
}

/* Some group has an item on either side of the border between turn t and turn t + 1. */
static bool find_joined(int t)
{
    for (size_t i = 0; i < window.n; i++)
        for (size_t k = 0; k < window.n; k++)
            if (share_group(i, k) && turn_of(i) <= t && turn_of(k) > t)
                return true;
    return false;
}

static bool is_joined(int t)
{
    return joined[t];
}

/* The newest turn, and those that can't be parted from it. */
static int last_untouched(void)
{
    int t = 0;
    while (is_joined(t))
        t++;
    return t;
}

static bool find_always_in(size_t i)
{
    if (items[i].kind == PLAN_HEAD && !items[i].is_pinned)
        return false;
    if (items[i].kind == PLAN_SYSTEM || items[i].kind == PLAN_PIN || items[i].is_pinned)
        return true;
    for (size_t k = 0; k < window.n; k++)
        if (share_group(i, k) && items[k].is_pinned)
            return true;
    return turn_of(i) >= 0 && turn_of(i) <= last_untouched();
}

static bool is_always_in(size_t i)
{
    return in[i];
}

static void ask_fool(void)
{
    for (size_t i = 0; i < window.n; i++)
        turns[i] = find_turn(i);
    for (int t = 0; t < ITEMS_MAX; t++)
        joined[t] = find_joined(t);
    for (size_t i = 0; i < window.n; i++)
        in[i] = find_always_in(i);
}

static int sum_all(void)
{
    int n = 0;
    for (size_t i = 0; i < window.n; i++)
        n += items[i].tokens;
    return n;
}

static int sum_always_in(void)
{
    int n = 0;
    for (size_t i = 0; i < window.n; i++)
        n += is_always_in(i) ? items[i].tokens : 0;
    return n;
}

/* ---- a plan ---- */

struct planned {
    struct plan plan;
    bool stays[ITEMS_MAX];
    int rc;
};

static void make_plan(const struct plan_budget *b, enum plan_strategy s, struct planned *ret)
{
    struct arena a;
    arena_init(&a, 1u << 20);
    *ret = (struct planned){.rc = 0};
    ret->plan.stays = ret->stays;
    ret->rc = plan_cut(&window, b, s, &ret->plan, &a, &here.e);
    arena_done(&a);
}

static int sum_stays(const struct planned *p)
{
    int n = p->plan.head_tokens;
    for (size_t i = 0; i < window.n; i++)
        n += p->stays[i] ? items[i].tokens : 0;
    return n;
}

/* Whether turn t left: some message of it that could leave did. -1: it has none. */
static int has_left(const struct planned *p, int t)
{
    int left = -1;
    for (size_t i = 0; i < window.n; i++) {
        if (turn_of(i) != t || !is_message(i) || is_always_in(i))
            continue;
        assert_true(left < 0 || left == !p->stays[i]); /* whole turns */
        left = !p->stays[i];
    }
    return left;
}

static void assert_parts_stay(const struct planned *p)
{
    for (size_t i = 0; i < window.n; i++) {
        if (is_always_in(i))
            assert_true(p->stays[i]);
        for (size_t k = 0; k < window.n; k++)
            if (share_group(i, k))
                assert_int_equal(p->stays[i], p->stays[k]);
    }
    for (int t = 0; t < ITEMS_MAX; t++)
        if (has_left(p, t) >= 0 && is_joined(t) && has_left(p, t + 1) >= 0)
            assert_int_equal(has_left(p, t), has_left(p, t + 1));
}

static void assert_counts(const struct planned *p)
{
    size_t n_dropped = 0, n_recalled = 0;
    assert_int_equal(p->plan.before, sum_all());
    assert_int_equal(p->plan.after, sum_stays(p));
    for (size_t i = 0; i < window.n; i++) {
        n_dropped += !p->stays[i] && is_message(i);
        n_recalled += !p->stays[i] && items[i].kind == PLAN_RECALLED;
    }
    assert_int_equal(p->plan.n_dropped, n_dropped);
    assert_int_equal(p->plan.n_recalled_dropped, n_recalled);
}

/* What leaves goes in the order: recalled items, oldest first; then turns. */
static void assert_recalled_first(const struct planned *p, bool *ret_all_gone)
{
    bool is_one_kept = false;
    for (size_t i = 0; i < window.n; i++) {
        if (items[i].kind != PLAN_RECALLED || is_always_in(i) || has_left(p, turn_of(i)) == 1)
            continue;
        assert_false(is_one_kept && !p->stays[i]); /* a newer one left before an older one */
        is_one_kept = is_one_kept || p->stays[i];
    }
    *ret_all_gone = !is_one_kept;
}

/* With the last thing that left back in, the target would be exceeded; `tokens` is its size. */
static void assert_needed(const struct planned *p, const struct plan_budget *b, int tokens)
{
    assert_true(p->plan.after + tokens > plan_target(b));
}

static int tokens_of_turn(int t)
{
    int n = 0;
    for (size_t i = 0; i < window.n; i++)
        if (turn_of(i) == t && is_message(i) && !is_always_in(i))
            n += items[i].tokens;
    return n;
}

/* The newest turn that left and those that left with it; the fewest: it was needed. All before it
 * left, too. */
static void assert_fewest_oldest(const struct planned *p, const struct plan_budget *b)
{
    bool all_recalled_gone;
    int newest = -1, tokens = 0;
    assert_recalled_first(p, &all_recalled_gone);
    for (int t = ITEMS_MAX; t >= 0; t--)
        if (has_left(p, t) == 1)
            newest = t;
    if (newest < 0)
        return;
    assert_true(all_recalled_gone);
    for (int t = newest; t < ITEMS_MAX; t++)
        assert_int_not_equal(has_left(p, t), 0);
    tokens = tokens_of_turn(newest);
    for (int t = newest; is_joined(t); t++)
        tokens += tokens_of_turn(t + 1);
    assert_needed(p, b, tokens);
}

/* Key of the unit that holds turn t, from the definition in plan.h. */
static int key_of(int t)
{
    int64_t worth = 0, weight = 0;
    int from = t, to = t;
    while (from > 0 && is_joined(from - 1))
        from--;
    while (is_joined(to))
        to++;
    for (size_t i = 0; i < window.n; i++) {
        if (turn_of(i) < from || turn_of(i) > to || !is_message(i))
            continue;
        int w = items[i].tokens ? items[i].tokens : 1;
        weight += w;
        worth += (int64_t)w * (is_always_in(i) ? 100 : items[i].value);
    }
    int value = weight ? (int)(worth / weight) : 0;
    return value < PLAN_VALUE_LOW ? value : 1000;
}

/* No turn stays that should have left before one that did. */
static void assert_lowest_first(const struct planned *p)
{
    for (int kept = last_untouched() + 1; kept < ITEMS_MAX; kept++) {
        if (has_left(p, kept) != 0)
            continue;
        for (int gone = 0; gone < ITEMS_MAX; gone++) {
            if (has_left(p, gone) != 1)
                continue;
            assert_true(key_of(gone) <= key_of(kept));
            assert_true(key_of(gone) < key_of(kept) || gone > kept);
        }
    }
}

static void assert_plan(const struct plan_budget *b, enum plan_strategy s)
{
    struct planned p, again;
    make_plan(b, s, &p);
    make_plan(b, s, &again);
    assert_int_equal(p.rc, again.rc);
    assert_memory_equal(p.stays, again.stays, sizeof(p.stays));
    if (sum_all() <= plan_target(b)) {
        assert_int_equal(p.rc, 0);
        assert_false(p.plan.is_cut);
        assert_int_equal(sum_stays(&p), sum_all());
        return;
    }
    if (sum_always_in() > b->limit) {
        assert_int_equal(p.rc, ERR_LIMIT);
        assert_int_equal(p.plan.before, sum_all());
        assert_int_equal(p.plan.after, sum_always_in());
        return;
    }
    assert_int_equal(p.rc, 0);
    assert_true(p.plan.is_cut);
    assert_true(p.plan.after <= b->limit);
    assert_int_equal(p.plan.is_on_target, p.plan.after <= plan_target(b));
    assert_true(p.plan.head_tokens <= b->head_tokens);
    assert_counts(&p);
    assert_parts_stay(&p);
    if (s == PLAN_PRUNE || s == PLAN_AUTO)
        assert_lowest_first(&p);
    else
        assert_fewest_oldest(&p, b);
}

static struct plan_budget any_budget(void)
{
    struct plan_budget b = {.limit = 1 + below(sum_all() + 50)};
    b.reserve = below(3) ? 0 : below(100);
    b.target = below(3) ? 0 : 1 + below(b.limit);
    b.head_tokens = below(2) ? 0 : below(60);
    return b;
}

static void every_plan_keeps_the_promises(void **state)
{
    (void)state;
    int n_cuts = 0;
    for (int round = 0; round < ROUNDS; round++) {
        make_window();
        for (int k = 0; k < 3; k++) {
            const struct plan_budget b = any_budget();
            for (int s = PLAN_WINDOW; s <= PLAN_AUTO; s++)
                assert_plan(&b, (enum plan_strategy)s);
            struct planned p;
            make_plan(&b, PLAN_AUTO, &p);
            n_cuts += p.rc == 0 && p.plan.is_cut;
        }
    }
    assert_true(n_cuts > ROUNDS / 4);
    print_message("%d cuts\n", n_cuts);
}

/* Budgets that grow by one token: what stays only grows. */
static void a_larger_budget_keeps_a_superset(void **state)
{
    (void)state;
    for (int round = 0; round < ROUNDS / 8; round++) {
        make_window();
        struct plan_budget b = any_budget();
        const bool is_by_limit = below(2);
        const enum plan_strategy s = (enum plan_strategy)(PLAN_WINDOW + below(5));
        struct planned less = {.rc = ERR_LIMIT}, more;
        b.target = 0;
        for (b.limit = 1; b.limit < 2 * sum_all() + 10; b.limit++) {
            b.target = is_by_limit ? b.limit : 0;
            make_plan(&b, s, &more);
            assert_true(more.rc == 0 || less.rc == ERR_LIMIT);
            for (size_t i = 0; less.rc == 0 && i < window.n; i++)
                assert_true(!less.stays[i] || more.stays[i]);
            less = more;
        }
        assert_int_equal(less.rc, 0);
    }
}

/* One token less never takes more than one thing more: a recalled item or a turn. */
static void a_shrinking_budget_has_no_cliff(void **state)
{
    (void)state;
    for (int round = 0; round < ROUNDS / 8; round++) {
        do
            make_window();
        while (with_head);
        const enum plan_strategy s = (enum plan_strategy)(PLAN_WINDOW + below(5));
        struct planned more = {.rc = 0}, less;
        struct plan_budget b = {.limit = sum_all() + 1};
        const bool is_by_limit = below(2);
        bool is_first = true;
        for (; b.limit > 0; b.limit--, more = less, is_first = false) {
            b.target = is_by_limit ? b.limit : 0;
            make_plan(&b, s, &less);
            if (is_first || less.rc < 0 || (!is_by_limit && !more.plan.is_cut))
                continue;
            size_t n = less.plan.n_recalled_dropped - more.plan.n_recalled_dropped;
            int n_turns = 0; /* those with nothing that could leave go unseen */
            for (int t = 0; t < ITEMS_MAX; t++)
                n_turns += (has_left(&less, t) == 1) - (has_left(&more, t) == 1);
            assert_true(n_turns == 0 || n_turns == 1);
            assert_true(n <= 1 || n_turns == 1);
        }
    }
}

static void selection_stops_at_the_first_that_does_not_fit(void **state)
{
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        int tokens[20], n = below(21), before = 0;
        for (int i = 0; i < n; i++)
            tokens[i] = below(50);
        for (int budget = 0; budget < 600; budget++) {
            int used = -1, sum = 0;
            int taken = (int)plan_select(tokens, (size_t)n, budget, &used);
            for (int i = 0; i < taken; i++)
                sum += tokens[i];
            assert_int_equal(sum, used);
            assert_true(sum <= budget);
            assert_true(taken == n || sum + tokens[taken] > budget);
            assert_true(taken >= before);
            before = taken;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_plan_keeps_the_promises),
        cmocka_unit_test(a_larger_budget_keeps_a_superset),
        cmocka_unit_test(a_shrinking_budget_has_no_cliff),
        cmocka_unit_test(selection_stops_at_the_first_that_does_not_fit),
    };
    const char *given = getenv("HEARTH_SEED");
    random_state = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL) * 2654435761u;
    print_message("HEARTH_SEED=%llu\n", (unsigned long long)random_state);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
