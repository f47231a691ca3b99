/*
 * Random operations against a fool who tells the truth: arrays that scan. HEARTH_SEED repeats a
 * run.
 */
#include "tests/memory/place.h"

#include <time.h>

#define OPS 3000
#define MOST 600

static uint64_t random_state;

/* splitmix64 */
static int below(int n)
{
    uint64_t z = random_state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (int)((z ^ z >> 31) % (unsigned)n);
}

struct fool_message {
    struct memory_message m; /* m.text owned by the arena */
    int conversation;        /* index */
    bool is_gone;
};

static struct {
    struct memory_conversation c[64];
    bool is_gone[64];
    int n_c;
    struct fool_message m[MOST];
    int n_m;
} fool;

/* Of living ones; -1: none. */
static int any_conversation(void)
{
    for (int tries = 0; fool.n_c > 0 && tries < 20; tries++) {
        int i = below(fool.n_c);
        if (!fool.is_gone[i])
            return i;
    }
    return -1;
}

static int any_message(int conversation)
{
    for (int tries = 0; fool.n_m > 0 && tries < 50; tries++) {
        int i = below(fool.n_m);
        if (!fool.m[i].is_gone && (conversation < 0 || fool.m[i].conversation == conversation))
            return i;
    }
    return -1;
}

static int by_row(int64_t row)
{
    for (int i = 0; i < fool.n_m; i++)
        if (!fool.m[i].is_gone && fool.m[i].m.row == row)
            return i;
    return -1;
}

static int64_t tip_of(int conversation)
{
    int64_t tip = 0;
    for (int i = 0; i < fool.n_m; i++)
        if (!fool.m[i].is_gone && fool.m[i].conversation == conversation && fool.m[i].m.row > tip)
            tip = fool.m[i].m.row;
    return tip;
}

static void do_add_conversation(void)
{
    if (fool.n_c == 64)
        return;
    fool.c[fool.n_c] = add_conversation();
    fool.is_gone[fool.n_c++] = false;
}

static void do_add_message(void)
{
    int c = any_conversation();
    if (c < 0 || fool.n_m == MOST)
        return;
    int p = below(3) == 0 ? any_message(c) : -1;
    int64_t parent = p >= 0 ? fool.m[p].m.row : below(10) == 0 ? 0 : tip_of(c);
    char text[300];
    int n = below(sizeof(text));
    for (int i = 0; i < n; i++)
        text[i] = (char)below(256);
    const struct memory_new_message msg = {.conversation = fool.c[c].row,
                                           .parent = parent,
                                           .role = (enum memory_role)(1 + below(3)),
                                           .text = text,
                                           .n_text = (size_t)n};
    struct fool_message *f = &fool.m[fool.n_m];
    ASSERT_OK(memory_message_add(here.m, &msg, &f->m, &here.a, &here.e));
    f->conversation = c;
    f->is_gone = false;
    fool.n_m++;
}

static void do_remove_message(void)
{
    int i = any_message(-1);
    if (i < 0)
        return;
    struct fool_message *f = &fool.m[i];
    ASSERT_OK(memory_message_remove(here.m, OWNER, f->m.id, NULL, &here.e));
    f->is_gone = true;
    for (int k = 0; k < fool.n_m; k++)
        if (fool.m[k].m.parent == f->m.row)
            fool.m[k].m.parent = f->m.parent;
}

static void do_remove_conversation(void)
{
    int c = any_conversation();
    int64_t wanted = 0;
    struct memory_removed n;
    if (c < 0)
        return;
    for (int i = 0; i < fool.n_m; i++)
        if (!fool.m[i].is_gone && fool.m[i].conversation == c) {
            fool.m[i].is_gone = true;
            wanted++;
        }
    ASSERT_OK(memory_conversation_remove(here.m, OWNER, fool.c[c].id, &n, &here.e));
    assert_int_equal(n.n_messages, wanted);
    fool.is_gone[c] = true;
}

static void check_message(const struct memory_message *got)
{
    int i = by_row(got->row);
    assert_true(i >= 0);
    const struct memory_message *want = &fool.m[i].m;
    assert_string_equal(got->id, want->id);
    assert_int_equal(got->parent, want->parent);
    assert_int_equal(got->role, want->role);
    assert_int_equal(got->n_text, want->n_text);
    assert_memory_equal(got->text, want->text, want->n_text);
}

/* The path to a random message, or a conversation's, by pages of a random size in a
 * random order. */
static void do_check_path(void)
{
    int i = any_message(-1);
    struct memory_messages list;
    if (i < 0)
        return;
    ASSERT_OK(memory_path(here.m, fool.m[i].m.row, MOST, &list, &here.a, &here.e));
    int64_t row = fool.m[i].m.row;
    for (size_t k = list.n; k-- > 0;) {
        assert_int_equal(list.v[k].row, row);
        check_message(&list.v[k]);
        row = list.v[k].parent;
    }
    assert_int_equal(row, 0);
}

static void do_check_pages(void)
{
    int c = any_conversation();
    if (c < 0)
        return;
    int64_t want[MOST];
    size_t n_want = 0, seen = 0;
    for (int64_t row = tip_of(c); row; row = fool.m[by_row(row)].m.parent)
        want[n_want++] = row;
    struct memory_page page = {.limit = 1 + below(20), .is_ascending = below(2)};
    bool more = true;
    while (more) {
        struct memory_messages list;
        ASSERT_OK(memory_message_list(here.m, fool.c[c].row, &page, &list, &here.a, &here.e));
        for (size_t k = 0; k < list.n; k++, seen++) {
            check_message(&list.v[k]);
            assert_int_equal(list.v[k].row, want[page.is_ascending ? n_want - 1 - seen : seen]);
            page.after = list.v[k].id;
        }
        more = list.has_more;
        assert_true(list.n > 0 || !more);
    }
    assert_int_equal(seen, n_want);
    struct memory_conversation got = get_conversation(fool.c[c].id);
    assert_int_equal(got.tip, n_want ? want[0] : 0);
}

static void random_operations_agree_with_the_fool(void **state)
{
    (void)state;
    const char *given = getenv("HEARTH_SEED");
    random_state = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    print_message("HEARTH_SEED=%llu\n", (unsigned long long)random_state);
    memset(&fool, 0, sizeof(fool));
    for (int i = 0; i < OPS; i++) {
        int op = below(100);
        if (op < 4)
            do_add_conversation();
        else if (op < 50)
            do_add_message();
        else if (op < 58)
            do_remove_message();
        else if (op < 59)
            do_remove_conversation();
        else if (op < 80)
            do_check_path();
        else if (op < 99)
            do_check_pages();
        else
            place_reopen();
    }
    ASSERT_OK(memory_check(here.m, &here.e));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(random_operations_agree_with_the_fool, place_make,
                                        place_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
