/*
 * A list of messages folded into a window: that a longer list goes on as the shorter one did, and
 * what must be in it, on random lists; and against a fool that knows the strategy `window` alone.
 * HEARTH_SEED repeats a run.
 */
#include "tests/memory/place.h"

#include <time.h>

#include "memory/fold.h"

#define MESSAGES 80
#define ROUNDS 60
#define LIMIT 400

static uint64_t random_state;

/* splitmix64 */
static int below(int n)
{
    uint64_t z = random_state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (int)((z ^ z >> 31) % (unsigned)n);
}

/* ---- hands: a head that lists what left, quotes that list the hits ---- */

static int list_left(void *user, const struct fold_leaving *l, struct arena *a,
                     struct fold_head *ret, struct err *e)
{
    struct buf b;
    (void)user;
    (void)e;
    buf_init(&b, 1 << 16);
    if (l->old)
        buf_add(&b, l->old->summary, l->old->n_summary);
    for (size_t i = 0; i < l->n; i++) {
        assert_int_not_equal(l->v[i].role, MEMORY_SYSTEM);
        buf_printf(&b, "%d ", (int)l->v[i].row);
    }
    buf_printf(&b, "| ");
    ret->text = ret->summary = arena_copy(a, b.data, b.len);
    ret->n_text = ret->n_summary = b.len;
    ret->tokens = l->max_tokens < 20 ? l->max_tokens : 20;
    buf_done(&b);
    return 0;
}

#define QUOTE_TOKENS 10

static int list_hits(void *user, const struct fold_recall *r, struct arena *a,
                     struct fold_quotes *ret, struct err *e)
{
    struct buf b;
    (void)user;
    (void)e;
    buf_init(&b, 1 << 16);
    for (size_t i = 0; i < r->n && ret->tokens + QUOTE_TOKENS <= r->max_tokens; i++) {
        buf_printf(&b, "%zu ", r->hits[i].text);
        ret->v[ret->n] = r->hits[i].text;
        ret->each[ret->n++] = QUOTE_TOKENS;
        ret->tokens += QUOTE_TOKENS;
    }
    ret->text = ret->n > 0 ? arena_copy(a, b.data, b.len) : NULL;
    ret->n_text = ret->n > 0 ? b.len : 0;
    buf_done(&b);
    return 0;
}

/* ---- lists ---- */

static struct fold_message list[MESSAGES];
static char texts[MESSAGES][64];
static struct fold_input input = {.v = list, .hands = {.head = list_left, .quote = list_hits}};

static void make_list(void)
{
    static const char *const words[] = {"harbour", "copper", "violin",
                                        "meadow",  "anchor", "pepper"};
    const enum plan_strategy strategies[] = {PLAN_WINDOW, PLAN_SUMMARISE, PLAN_RETRIEVE, PLAN_PRUNE,
                                             PLAN_AUTO};
    enum memory_role role = below(3) ? MEMORY_SYSTEM : MEMORY_USER;
    for (int i = 0; i < MESSAGES; i++) {
        snprintf(texts[i], sizeof(texts[i]), "%s %s %d", words[below(6)], words[below(6)], i);
        list[i] = (struct fold_message){.role = role,
                                        .text = texts[i],
                                        .n_text = strlen(texts[i]),
                                        .tokens = role == MEMORY_SYSTEM ? 2 + below(5)
                                                  : below(60) == 0      ? 300 + below(200)
                                                                        : 1 + below(40)};
        role = role != MEMORY_USER ? MEMORY_USER : MEMORY_ASSISTANT;
        if (below(12) == 0)
            role = 1 + (enum memory_role)below(3);
    }
    input.rules = (struct fold_rules){
        .strategy = strategies[below(5)],
        .budget = {.limit = LIMIT, .reserve = below(120)},
        .around = below(10),
    };
    if (input.rules.strategy != PLAN_WINDOW && input.rules.strategy != PLAN_PRUNE)
        input.rules.budget.head_tokens = 60;
    if (input.rules.strategy == PLAN_RETRIEVE || input.rules.strategy == PLAN_AUTO) {
        input.rules.recall_turn = 30;
        input.rules.recall_all = 80;
    }
}

static int fold_first(size_t n, struct arena *a, struct fold *ret)
{
    struct err e;
    input.n = n;
    return fold(&input, a, ret, &e);
}

static struct fold_state *state_before; /* of the newest list */

/* The same, going on from the shorter list's state. */
static int fold_on_first(size_t n, struct arena *a, struct fold *ret)
{
    struct err e;
    input.n = n;
    if (state_before)
        assert_true(fold_state_at(state_before) < n);
    return fold_on(&input, &state_before, a, ret, &e);
}

/* ---- promises ---- */

static size_t newest_question(size_t n)
{
    while (n > 0 && list[n - 1].role != MEMORY_USER)
        n--;
    return n > 0 ? n - 1 : 0;
}

static bool has_message(const struct fold_window *w, size_t message)
{
    for (size_t i = 0; i < w->n; i++)
        if (w->v[i].message == message)
            return true;
    return false;
}

static void check_quotes(const struct fold_window *w, bool *is_quoted, size_t at)
{
    const struct fold_quotes *q = &w->v[at].quotes;
    assert_true(q->n == 0 || (q->text && list[w->v[at].message].role == MEMORY_USER));
    for (size_t i = 0; i < q->n; i++) {
        assert_false(is_quoted[q->v[i]]);
        assert_false(has_message(w, q->v[i]));
        assert_true(q->v[i] < w->v[at].message);
        is_quoted[q->v[i]] = true;
    }
}

static void check_window(const struct fold_window *w, size_t n)
{
    bool is_quoted[MESSAGES] = {false};
    int tokens = input.rules.around + w->head.tokens;
    for (size_t i = 0; i < w->n; i++) {
        assert_true(w->v[i].message < n && (i == 0 || w->v[i - 1].message < w->v[i].message));
        tokens += list[w->v[i].message].tokens + w->v[i].quotes.tokens;
        check_quotes(w, is_quoted, i);
    }
    assert_int_equal(tokens, w->tokens);
    assert_true(tokens <= LIMIT);
    for (size_t i = 0; i < n; i++)
        if (list[i].role == MEMORY_SYSTEM || i >= newest_question(n) || !w->has_cut)
            assert_true(has_message(w, i));
}

/* ---- a longer list goes on ---- */

/* `longer` begins with all that `shorter` is. */
static void check_begins(const struct fold_window *longer, const struct fold_window *shorter)
{
    assert_true(longer->n >= shorter->n);
    assert_int_equal(longer->head.n_text, shorter->head.n_text);
    if (shorter->head.n_text > 0)
        assert_memory_equal(longer->head.text, shorter->head.text, shorter->head.n_text);
    for (size_t i = 0; i < shorter->n; i++) {
        const struct fold_slot *x = &longer->v[i], *y = &shorter->v[i];
        assert_int_equal(x->message, y->message);
        assert_int_equal(x->quotes.n_text, y->quotes.n_text);
        if (y->quotes.n_text > 0)
            assert_memory_equal(x->quotes.text, y->quotes.text, y->quotes.n_text);
    }
}

static void random_lists_are_folded_as_they_were_lived(void **state)
{
    (void)state;
    int n_cuts = 0, n_quotes = 0, n_refused = 0;
    for (int round = 0; round < ROUNDS; round++) {
        struct arena a;
        struct fold last = {.n_cuts = 0}, f;
        make_list();
        arena_init(&a, 64u << 20);
        for (size_t n = 1; n <= MESSAGES; n++) {
            /* Requests end with a question; other lists are cut only when they must. */
            if (list[n - 1].role != MEMORY_USER)
                continue;
            if (fold_first(n, &a, &f)) {
                n_refused++;
                continue;
            }
            check_window(&f.now, n);
            assert_true(f.n_cuts >= last.n_cuts);
            if (f.n_cuts == last.n_cuts)
                check_begins(&f.now, &last.now);
            else if (f.n_cuts == last.n_cuts + 1 && f.is_cut_now)
                check_begins(&f.before, &last.now);
            n_cuts += f.is_cut_now;
            for (size_t i = 0; i < f.now.n; i++)
                n_quotes += (int)f.now.v[i].quotes.n;
            last = f;
        }
        arena_done(&a);
    }
    assert_true(n_cuts > 100 && n_quotes > 100 && n_refused > 0); /* there was something to see */
}

static void a_fold_that_goes_on_comes_to_the_same_as_one_from_the_beginning(void **test)
{
    (void)test;
    int n_resumed = 0;
    for (int round = 0; round < ROUNDS; round++) {
        struct arena a;
        struct fold f, other;
        make_list();
        arena_init(&a, 64u << 20);
        for (size_t n = 1; n <= MESSAGES; n += 1 + (size_t)below(3)) {
            n_resumed += state_before != NULL;
            const int rc = fold_on_first(n, &a, &f);
            assert_int_equal(rc, fold_first(n, &a, &other));
            if (rc)
                continue;
            assert_int_equal(f.n_cuts, other.n_cuts);
            assert_int_equal(f.is_cut_now, other.is_cut_now);
            assert_int_equal(f.now.tokens, other.now.tokens);
            assert_int_equal(f.now.n, other.now.n);
            check_begins(&f.now, &other.now);
            if (f.is_cut_now)
                check_begins(&f.before, &other.before);
            /* Another branch: the same up to the cut, and then what was never read. */
            for (size_t i = state_before ? fold_state_at(state_before) + 1 : n; i < n; i++)
                texts[i][0] ^= 1;
        }
        fold_state_free(state_before);
        state_before = NULL;
        arena_done(&a);
    }
    assert_true(n_resumed > 100);
}

static void a_list_that_ends_with_an_answer_still_fits(void **state)
{
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        struct arena a;
        struct fold f;
        make_list();
        arena_init(&a, 64u << 20);
        for (size_t n = 1; n <= MESSAGES; n++)
            if (fold_first(n, &a, &f) == 0)
                check_window(&f.now, n);
        arena_done(&a);
    }
}

/* ---- the fool: `window` without head and quotes ---- */

static bool is_in[MESSAGES];

static int fools_tokens(size_t n)
{
    int tokens = input.rules.around;
    for (size_t i = 0; i < n; i++)
        tokens += is_in[i] ? list[i].tokens : 0;
    return tokens;
}

/* The oldest turn of the window leaves, unless it is the newest. */
static bool drop_oldest(size_t n)
{
    size_t i = 0;
    while (i < n && (!is_in[i] || list[i].role == MEMORY_SYSTEM))
        i++;
    if (i >= newest_question(n))
        return false;
    do
        is_in[i] = is_in[i] && list[i].role == MEMORY_SYSTEM;
    while (++i < n && list[i].role != MEMORY_USER);
    return true;
}

static bool fool(size_t n)
{
    const int room = LIMIT - input.rules.budget.reserve;
    for (size_t i = 0; i < n; i++) {
        is_in[i] = true;
        if (list[i].role != MEMORY_USER || fools_tokens(i + 1) <= room)
            continue;
        int fixed = input.rules.around + list[i].tokens;
        for (size_t k = 0; k < i; k++)
            fixed += list[k].role == MEMORY_SYSTEM ? list[k].tokens : 0;
        if (fixed > LIMIT && i + 1 == n)
            return false;
        while (fixed <= LIMIT && fools_tokens(i + 1) > plan_target(&input.rules.budget) &&
               drop_oldest(i + 1))
            ;
    }
    return true;
}

static void the_strategy_window_drops_what_the_fool_drops(void **state)
{
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        struct arena a;
        struct fold f;
        make_list();
        input.rules.strategy = PLAN_WINDOW;
        input.rules.budget.head_tokens = input.rules.recall_turn = 0;
        arena_init(&a, 64u << 20);
        for (size_t n = 1; n <= MESSAGES; n++) {
            if (list[n - 1].role != MEMORY_USER)
                continue;
            const bool fits = fool(n);
            assert_int_equal(fold_first(n, &a, &f) == 0, fits);
            for (size_t i = 0; fits && i < n; i++)
                assert_int_equal(has_message(&f.now, i), is_in[i]);
        }
        arena_done(&a);
    }
}

static void too_long_a_message_is_refused_and_leaves_with_the_next_turn(void **state)
{
    (void)state;
    struct arena a;
    struct fold f;
    struct err e;
    make_list();
    arena_init(&a, 64u << 20);
    for (int i = 0; i < 5; i++)
        list[i] = (struct fold_message){
            .role = i % 2 ? MEMORY_ASSISTANT : MEMORY_USER, .text = "x", .n_text = 1, .tokens = 20};
    list[2].tokens = LIMIT + 1;
    input.rules.strategy = PLAN_WINDOW;
    input.rules.budget = (struct plan_budget){.limit = LIMIT};
    input.n = 3;
    assert_int_equal(fold(&input, &a, &f, &e), ERR_LIMIT);
    assert_non_null(strstr(e.text, "400"));
    assert_int_equal(fold_first(5, &a, &f), 0);
    assert_true(f.is_cut_now);
    assert_int_equal(f.now.n, 1);
    assert_int_equal(f.now.v[0].message, 4);
    arena_done(&a);
}

int main(void)
{
    const char *seed = getenv("HEARTH_SEED");
    random_state = seed ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL);
    print_message("HEARTH_SEED=%llu\n", (unsigned long long)random_state);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_lists_are_folded_as_they_were_lived),
        cmocka_unit_test(a_fold_that_goes_on_comes_to_the_same_as_one_from_the_beginning),
        cmocka_unit_test(a_list_that_ends_with_an_answer_still_fits),
        cmocka_unit_test(the_strategy_window_drops_what_the_fool_drops),
        cmocka_unit_test(too_long_a_message_is_refused_and_leaves_with_the_next_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
