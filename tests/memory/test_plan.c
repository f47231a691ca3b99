/* The plan by examples: what a person would expect of a cut. */
#include "tests/memory/place.h"

#include <limits.h>

#include "memory/plan.h"

#define MOST 256

static struct plan_item items[MOST];
static struct plan_window window = {.v = items};
static bool stays[MOST];
static struct plan plan;

static int place_clear(void **state)
{
    (void)state;
    window.n = 0;
    memset(items, 0, sizeof(items));
    return 0;
}

static struct plan_item *push(enum plan_kind kind, int tokens)
{
    items[window.n] = (struct plan_item){.kind = kind, .tokens = tokens, .value = 50};
    return &items[window.n++];
}

static void push_turn(int tokens_user, int tokens_assistant)
{
    push(PLAN_USER, tokens_user);
    push(PLAN_ASSISTANT, tokens_assistant);
}

static int cut(struct plan_budget b, enum plan_strategy s)
{
    struct arena a;
    arena_init(&a, 1u << 20);
    plan = (struct plan){.stays = stays};
    memset(stays, 0x55, sizeof(stays));
    int rc = plan_cut(&window, &b, s, &plan, &a, &here.e);
    arena_done(&a);
    return rc;
}

/* "s u a | u": the letters of what stays; '.' for what leaves. */
static const char *kept(void)
{
    static char text[MOST + 1];
    static const char letters[] = " sphuacrq";
    for (size_t i = 0; i < window.n; i++)
        text[i] = stays[i] ? letters[items[i].kind] : '.';
    text[window.n] = '\0';
    return text;
}

static void a_window_under_its_target_is_left_alone(void **state)
{
    (void)state;
    push(PLAN_SYSTEM, 10);
    push(PLAN_HEAD, 5);
    push_turn(20, 25);
    assert_int_equal(cut((struct plan_budget){.limit = 100, .head_tokens = 30}, PLAN_AUTO), 0);
    assert_string_equal(kept(), "shua");
    assert_false(plan.is_cut);
    assert_int_equal(plan.before, 60);
    assert_int_equal(plan.after, 60);
    assert_int_equal(plan.first, 2);
    assert_int_equal(plan.head_tokens, 0);
}

static void the_oldest_turns_leave_and_no_more_than_needed(void **state)
{
    (void)state;
    push(PLAN_SYSTEM, 10);
    for (int i = 0; i < 5; i++)
        push_turn(10, 10);
    /* 110 tokens: to reach 60, three of the turns of 20 must go, and to reach 70 two. */
    assert_int_equal(cut((struct plan_budget){.limit = 100}, PLAN_WINDOW), 0);
    assert_string_equal(kept(), "s......uaua");
    assert_int_equal(plan.after, 50);
    assert_int_equal(plan.first, 7);
    assert_int_equal(plan.n_dropped, 6);
    assert_int_equal(plan.n_turns_dropped, 3);
    assert_int_equal(cut((struct plan_budget){.limit = 100, .target = 70}, PLAN_WINDOW), 0);
    assert_string_equal(kept(), "s....uauaua");
    assert_int_equal(plan.after, 70);
    assert_true(plan.is_on_target);
}

static void room_for_the_new_head_is_set_aside_and_the_old_one_leaves(void **state)
{
    (void)state;
    push(PLAN_SYSTEM, 10);
    push(PLAN_HEAD, 30);
    for (int i = 0; i < 4; i++)
        push_turn(10, 10);
    const struct plan_budget b = {.limit = 100, .target = 60, .head_tokens = 20};
    assert_int_equal(cut(b, PLAN_SUMMARISE), 0);
    assert_string_equal(kept(), "s.......ua");
    assert_int_equal(plan.after, 10 + 20 + 20);
    assert_int_equal(plan.head_tokens, 20);
}

static void a_head_that_would_not_fit_gets_less(void **state)
{
    (void)state;
    push(PLAN_SYSTEM, 50);
    push_turn(10, 10);
    push_turn(20, 20);
    const struct plan_budget b = {.limit = 100, .head_tokens = 50};
    assert_int_equal(cut(b, PLAN_SUMMARISE), 0);
    assert_string_equal(kept(), "s..ua");
    assert_int_equal(plan.head_tokens, 10);
    assert_int_equal(plan.after, 100);
    assert_false(plan.is_on_target);
}

static void recalled_text_leaves_before_any_turn_and_apart_from_its_message(void **state)
{
    (void)state;
    push(PLAN_SYSTEM, 10);
    push_turn(5, 5);
    push(PLAN_RECALLED, 30);
    push_turn(5, 5);
    push(PLAN_RECALLED, 30);
    push_turn(5, 5);
    push(PLAN_RECALLED, 20);
    push(PLAN_USER, 10);
    /* 130 tokens; 60 are left when both old ones have gone. */
    assert_int_equal(cut((struct plan_budget){.limit = 100, .target = 100}, PLAN_RETRIEVE), 0);
    assert_string_equal(kept(), "sua.uaquaqu");
    assert_int_equal(cut((struct plan_budget){.limit = 100, .target = 70}, PLAN_RETRIEVE), 0);
    assert_string_equal(kept(), "sua.ua.uaqu");
    assert_int_equal(plan.n_turns_dropped, 0);
    assert_int_equal(plan.n_recalled_dropped, 2);
    assert_int_equal(plan.first, 1);
    assert_int_equal(cut((struct plan_budget){.limit = 100, .target = 60}, PLAN_RETRIEVE), 0);
    assert_string_equal(kept(), "s...ua.uaqu");
    assert_int_equal(plan.first, 4);
}

static void pinned_messages_stay_when_their_turn_leaves(void **state)
{
    (void)state;
    push(PLAN_SYSTEM, 10);
    push(PLAN_PIN, 5);
    push_turn(10, 10);
    items[2].is_pinned = true;
    push_turn(10, 10);
    push_turn(10, 10);
    assert_int_equal(cut((struct plan_budget){.limit = 80, .target = 45}, PLAN_AUTO), 0);
    assert_string_equal(kept(), "spu...ua");
    assert_int_equal(plan.after, 45);
    assert_int_equal(plan.first, 6); /* the pinned one goes on in the head */
    assert_int_equal(plan.n_dropped, 3);
}

static void a_pinned_result_keeps_its_calls(void **state)
{
    (void)state;
    push(PLAN_USER, 10);
    push(PLAN_CALL, 10)->group = 7;
    push(PLAN_RESULT, 10)->group = 7;
    push(PLAN_RESULT, 10)->group = 7;
    items[3].is_pinned = true;
    push(PLAN_ASSISTANT, 10);
    push(PLAN_USER, 10);
    assert_int_equal(cut((struct plan_budget){.limit = 50}, PLAN_WINDOW), 0);
    assert_string_equal(kept(), ".crr.u");
}

static void a_result_that_came_after_the_next_message_ties_the_turns(void **state)
{
    (void)state;
    push(PLAN_USER, 10);
    push(PLAN_CALL, 10)->group = 1;
    push(PLAN_USER, 10);
    push(PLAN_RESULT, 10)->group = 1;
    push_turn(10, 10);
    push(PLAN_USER, 10);
    assert_int_equal(cut((struct plan_budget){.limit = 60, .target = 60}, PLAN_WINDOW), 0);
    assert_string_equal(kept(), "....uau");
    assert_int_equal(plan.n_turns_dropped, 2);
}

static void too_large_a_message_is_an_error_with_the_counts(void **state)
{
    (void)state;
    push(PLAN_SYSTEM, 30);
    push_turn(20, 20);
    push(PLAN_USER, 71);
    assert_int_equal(cut((struct plan_budget){.limit = 100}, PLAN_AUTO), ERR_LIMIT);
    assert_non_null(strstr(here.e.text, "101"));
    assert_non_null(strstr(here.e.text, "100"));
    assert_int_equal(plan.before, 141);
    assert_int_equal(plan.after, 101);
    assert_int_equal(((char *)stays)[0], 0x55);
    items[3].tokens = 70; /* the boundary: it fits exactly, alone */
    assert_int_equal(cut((struct plan_budget){.limit = 100}, PLAN_AUTO), 0);
    assert_string_equal(kept(), "s..u");
    assert_int_equal(plan.after, 100);
}

/* B14. [system, user, assistant with calls a and b, a's result, b's result, assistant, user]: a
 * legal request begins with a user's message after the system's, has each result after its call and
 * each call's results. */
static void assert_legal(void)
{
    int n_calls = 0, n_results = 0;
    bool is_begun = false;
    for (size_t i = 0; i < window.n; i++) {
        if (!stays[i] || items[i].kind == PLAN_SYSTEM)
            continue;
        assert_true(is_begun || items[i].kind == PLAN_USER);
        is_begun = true;
        n_calls += items[i].kind == PLAN_CALL ? 2 : 0;
        n_results += items[i].kind == PLAN_RESULT;
        assert_true(n_results <= n_calls);
        if (items[i].kind == PLAN_USER || items[i].kind == PLAN_ASSISTANT)
            assert_int_equal(n_calls, n_results);
    }
    assert_int_equal(n_calls, n_results);
}

static void every_budget_leaves_a_legal_request(void **state)
{
    (void)state;
    for (int s = PLAN_WINDOW; s <= PLAN_AUTO; s++) {
        place_clear(NULL);
        push(PLAN_SYSTEM, 7);
        push_turn(9, 8);
        push(PLAN_USER, 11);
        push(PLAN_CALL, 13)->group = 1;
        push(PLAN_RESULT, 17)->group = 1;
        push(PLAN_RESULT, 19)->group = 1;
        push(PLAN_ASSISTANT, 12);
        push(PLAN_USER, 10);
        int n_different = 0;
        size_t before = 0;
        for (int limit = 110; limit >= 17; limit--) {
            assert_int_equal(
                cut((struct plan_budget){.limit = limit, .target = limit}, (enum plan_strategy)s),
                0);
            assert_legal();
            assert_true(plan.after <= limit);
            n_different += plan.n_dropped != before;
            before = plan.n_dropped;
        }
        assert_int_equal(n_different, 2); /* nothing leaves, one turn, both */
        assert_int_equal(
            cut((struct plan_budget){.limit = 16, .target = 16}, (enum plan_strategy)s), ERR_LIMIT);
    }
}

static void chit_chat_and_bulk_leave_first(void **state)
{
    (void)state;
    push(PLAN_SYSTEM, 10);
    push_turn(20, 20);
    push_turn(5, 5); /* thanks, you're welcome */
    items[3].value = items[4].value = 5;
    push(PLAN_USER, 10);
    push(PLAN_CALL, 10)->group = 1;
    push(PLAN_RESULT, 300)->group = 1; /* a log */
    items[7].value = 10;
    push(PLAN_ASSISTANT, 20);
    push_turn(20, 20);
    push_turn(20, 20);
    /* 480 tokens. */
    assert_int_equal(cut((struct plan_budget){.limit = 500, .target = 479}, PLAN_AUTO), 0);
    assert_string_equal(kept(), "sua..ucrauaua");
    assert_int_equal(cut((struct plan_budget){.limit = 500, .target = 200}, PLAN_AUTO), 0);
    assert_string_equal(kept(), "sua......uaua");
    assert_int_equal(cut((struct plan_budget){.limit = 500, .target = 100}, PLAN_AUTO), 0);
    assert_string_equal(kept(), "s........uaua"); /* then as a window */
    assert_int_equal(plan.first, 9);
}

static void prune_and_auto_drop_small_talk_and_go_on_by_age(void **state)
{
    (void)state;
    static const int values[] = {80, 60, 10, 70, 90};
    for (int i = 0; i < 5; i++) {
        push_turn(10, 10);
        items[window.n - 1].value = items[window.n - 2].value = values[i];
    }
    static const enum plan_strategy both[] = {PLAN_PRUNE, PLAN_AUTO};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cut((struct plan_budget){.limit = 100, .target = 60}, both[i]), 0);
        assert_string_equal(kept(), "..ua..uaua");
        assert_int_equal(plan.first, 2);
    }
}

/* B15: forty short turns, cut ahead: three of four leave what was before them as it was. */
static void between_cuts_the_window_only_grows(void **state)
{
    (void)state;
    const struct plan_budget b = {.limit = 255, .reserve = 20};
    int n_cuts = 0;
    size_t from = 1; /* index of the first item after the system's that is in the window */
    push(PLAN_SYSTEM, 20);
    for (int turn = 0; turn < 40; turn++) {
        push_turn(8, 9);
        int used = 20;
        for (size_t i = from; i < window.n; i++)
            used += items[i].tokens;
        assert_true(used <= b.limit);
        if (!plan_needs_cut(&b, used, 8))
            continue;
        const struct plan_window whole = window;
        struct plan_item view[MOST] = {items[0]};
        memcpy(view + 1, items + from, (window.n - from) * sizeof(*view));
        window = (struct plan_window){.v = view, .n = window.n - from + 1};
        assert_int_equal(cut(b, PLAN_WINDOW), 0);
        window = whole;
        assert_true(plan.is_cut);
        from += plan.first - 1;
        n_cuts++;
    }
    assert_in_range(n_cuts, 3, 10);
}

static void the_reserve_steers_cuts_and_refuses_nothing(void **state)
{
    (void)state;
    struct plan_budget b = {.limit = 100, .reserve = 30};
    assert_int_equal(plan_room(&b), 70);
    assert_int_equal(plan_target(&b), 42);
    assert_false(plan_needs_cut(&b, 60, 10));
    assert_true(plan_needs_cut(&b, 60, 11));
    assert_false(plan_needs_cut(&b, 0, 0));
    assert_true(plan_needs_cut(&b, INT_MAX, INT_MAX));
    b.reserve = 1000; /* max_tokens as large as it likes */
    assert_int_equal(plan_room(&b), 50);
    b.target = 500;
    assert_int_equal(plan_target(&b), 100);
    push(PLAN_USER, 100);
    b.target = 0;
    assert_int_equal(plan_fit(&window, &b, NULL, &here.e), 0);
    assert_int_equal(cut(b, PLAN_WINDOW), 0);
}

static void what_must_fit_whole_is_told_by_one_token(void **state)
{
    (void)state;
    const struct plan_budget b = {.limit = 50};
    int used = 0;
    push_turn(20, 30);
    assert_int_equal(plan_fit(&window, &b, &used, &here.e), 0);
    assert_int_equal(used, 50);
    items[0].tokens++;
    assert_int_equal(plan_fit(&window, &b, &used, &here.e), ERR_LIMIT);
    assert_int_equal(used, 51);
    assert_non_null(strstr(here.e.text, "51"));
    assert_non_null(strstr(here.e.text, "50"));
}

static void odd_windows_are_planned_too(void **state)
{
    (void)state;
    const struct plan_budget b = {.limit = 10};
    assert_int_equal(cut(b, PLAN_WINDOW), 0); /* nothing */
    assert_int_equal(plan.first, 0);
    push(PLAN_HEAD, 9); /* no turn */
    assert_int_equal(cut(b, PLAN_WINDOW), 0);
    assert_string_equal(kept(), ".");
    place_clear(NULL);
    push(PLAN_ASSISTANT, 4); /* no user: one turn, the newest */
    push(PLAN_ASSISTANT, 5);
    assert_int_equal(cut(b, PLAN_WINDOW), 0);
    assert_string_equal(kept(), "aa");
    place_clear(NULL);
    push(PLAN_ASSISTANT, 4); /* a greeting before the first question is the oldest turn */
    push(PLAN_USER, 4);
    assert_int_equal(cut(b, PLAN_WINDOW), 0);
    assert_string_equal(kept(), ".u");
    place_clear(NULL);
    for (int i = 0; i < 6; i++) /* sums beyond an int */
        push(PLAN_USER, INT_MAX);
    items[5].tokens = 3;
    assert_int_equal(cut(b, PLAN_WINDOW), 0);
    assert_string_equal(kept(), ".....u");
    assert_int_equal(plan.before, INT_MAX);
    assert_int_equal(plan.after, 3);
}

static void what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    push(PLAN_USER, 1);
    assert_int_equal(cut((struct plan_budget){.limit = 0}, PLAN_WINDOW), ERR_INVAL);
    assert_int_equal(cut((struct plan_budget){.limit = 9, .reserve = -1}, PLAN_AUTO), ERR_INVAL);
    assert_int_equal(cut((struct plan_budget){.limit = 9}, PLAN_ERROR), ERR_INVAL);
    assert_int_equal(cut((struct plan_budget){.limit = 9}, PLAN_UNSET), ERR_INVAL);
    items[0].tokens = -1;
    assert_int_equal(cut((struct plan_budget){.limit = 9}, PLAN_WINDOW), ERR_INVAL);
    items[0] = (struct plan_item){.kind = PLAN_USER, .value = 101};
    assert_int_equal(cut((struct plan_budget){.limit = 9}, PLAN_WINDOW), ERR_INVAL);
}

static void the_typical_turn_is_the_ninetieth_percentile(void **state)
{
    (void)state;
    struct arena a;
    int turns[20], typical = -1;
    arena_init(&a, 1u << 16);
    for (int i = 0; i < 20; i++)
        turns[i] = (i * 7) % 20 + 1; /* 1 … 20 */
    assert_int_equal(plan_typical(turns, 0, &typical, &a, &here.e), 0);
    assert_int_equal(typical, 0);
    assert_int_equal(plan_typical(turns, 1, &typical, &a, &here.e), 0);
    assert_int_equal(typical, 1);
    assert_int_equal(plan_typical(turns, 20, &typical, &a, &here.e), 0);
    assert_int_equal(typical, 18);
    arena_done(&a);
}

static void strategies_have_names(void **state)
{
    (void)state;
    enum plan_strategy s = PLAN_UNSET;
    for (int i = PLAN_ERROR; i < PLAN_N_STRATEGIES; i++) {
        const char *name = plan_strategy_name((enum plan_strategy)i);
        assert_true(plan_strategy_parse(name, &s));
        assert_int_equal(s, i);
        assert_non_null(strstr(plan_strategy_names(), name));
    }
    assert_string_equal(plan_strategy_name(PLAN_UNSET), "");
    s = PLAN_ERROR;
    assert_false(plan_strategy_parse("", &s));
    assert_false(plan_strategy_parse("Auto", &s));
    assert_int_equal(s, PLAN_ERROR);
}

#define TEST(f) cmocka_unit_test_setup(f, place_clear)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_window_under_its_target_is_left_alone),
        TEST(the_oldest_turns_leave_and_no_more_than_needed),
        TEST(room_for_the_new_head_is_set_aside_and_the_old_one_leaves),
        TEST(a_head_that_would_not_fit_gets_less),
        TEST(recalled_text_leaves_before_any_turn_and_apart_from_its_message),
        TEST(pinned_messages_stay_when_their_turn_leaves),
        TEST(a_pinned_result_keeps_its_calls),
        TEST(a_result_that_came_after_the_next_message_ties_the_turns),
        TEST(too_large_a_message_is_an_error_with_the_counts),
        TEST(every_budget_leaves_a_legal_request),
        TEST(chit_chat_and_bulk_leave_first),
        TEST(prune_and_auto_drop_small_talk_and_go_on_by_age),
        TEST(between_cuts_the_window_only_grows),
        TEST(the_reserve_steers_cuts_and_refuses_nothing),
        TEST(what_must_fit_whole_is_told_by_one_token),
        TEST(odd_windows_are_planned_too),
        TEST(what_makes_no_sense_is_refused),
        TEST(the_typical_turn_is_the_ninetieth_percentile),
        TEST(strategies_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
