/*
 * Random trees, cuts and deletions against a fool that keeps arrays: which cut is in force, and
 * what is in the window. HEARTH_SEED repeats a run.
 */
#include "tests/memory/place.h"

#include <time.h>

#include "memory/window.h"

#define OPS 700
#define MOST 500

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
    int64_t row, parent;
    char id[MEMORY_ID_BYTES];
    enum memory_role role;
    bool is_gone;
    bool has_context;
    int64_t quotes; /* a row, when has_context */
};
struct fool_cut {
    int64_t row, anchor, first;
    int64_t dropped[4], system[64];
    size_t n_dropped, n_system;
    bool is_ready, is_gone;
};
static struct {
    struct memory_conversation c;
    struct fool_message m[MOST];
    struct fool_cut cut[MOST];
    int n_m, n_cut;
} fool;

static struct fool_message *find(int64_t row)
{
    for (int i = 0; i < fool.n_m; i++)
        if (fool.m[i].row == row)
            return &fool.m[i];
    return NULL;
}

static struct fool_message *any_message(void)
{
    for (int tries = 0; fool.n_m > 0 && tries < 50; tries++) {
        /* The newest are asked for more often: long paths. */
        int i = below(3) ? fool.n_m - 1 - below(fool.n_m < 8 ? fool.n_m : 8) : below(fool.n_m);
        if (!fool.m[i].is_gone)
            return &fool.m[i];
    }
    return NULL;
}

static bool is_on_path(int64_t row, int64_t tip)
{
    while (tip > row)
        tip = find(tip)->parent;
    return tip == row;
}

static bool holds(const int64_t *v, size_t n, int64_t row)
{
    for (size_t i = 0; i < n; i++)
        if (v[i] == row)
            return true;
    return false;
}

static void op_add(void)
{
    struct fool_message *parent = any_message();
    struct memory_message got;
    if (fool.n_m == MOST)
        return;
    struct fool_message m = {.parent = parent ? parent->row : 0};
    m.role = below(12) == 0 ? MEMORY_SYSTEM : below(2) ? MEMORY_USER : MEMORY_ASSISTANT;
    m.has_context = parent && m.role == MEMORY_USER && below(3) == 0;
    m.quotes = m.parent;
    const struct memory_source source = {MEMORY_RECALLED, m.quotes, 1};
    const struct memory_context c = {
        .text = "said", .n_text = 4, .sources = &source, .n_sources = 1};
    const struct memory_new_message new = {.conversation = fool.c.row,
                                           .parent = m.parent,
                                           .role = m.role,
                                           .text = "t",
                                           .n_text = 1,
                                           .context = m.has_context ? &c : NULL};
    ASSERT_OK(memory_message_add(here.m, &new, &got, &here.a, &here.e));
    m.row = got.row;
    memcpy(m.id, got.id, sizeof(m.id));
    fool.m[fool.n_m++] = m;
}

/* A cut at some tip from some row of its path on. */
static void op_cut(void)
{
    struct fool_message *tip = any_message();
    struct fool_cut cut = {.is_ready = below(4) > 0};
    if (!tip || fool.n_cut == MOST)
        return;
    cut.anchor = cut.first = tip->row;
    for (int up = below(12); up > 0 && find(cut.first)->parent; up--)
        cut.first = find(cut.first)->parent;
    for (int64_t row = cut.anchor; row > cut.first; row = find(row)->parent)
        if (below(6) == 0 && cut.n_dropped < 4)
            cut.dropped[cut.n_dropped++] = row;
    for (int64_t row = find(cut.first)->parent; row > 0; row = find(row)->parent)
        if (find(row)->role == MEMORY_SYSTEM && cut.n_system < 64)
            cut.system[cut.n_system++] = row;
    const struct memory_cut new = {.conversation = fool.c.row,
                                   .anchor = cut.anchor,
                                   .first = cut.first,
                                   .system = {.v = cut.system, .n = cut.n_system},
                                   .dropped = {.v = cut.dropped, .n = cut.n_dropped}};
    ASSERT_OK(memory_cut_add(here.m, &new, &cut.row, &here.e));
    if (cut.is_ready) {
        ASSERT_OK(memory_cut_ready(here.m, cut.row, &here.e));
        for (int i = 0; i < fool.n_cut; i++)
            fool.cut[i].is_gone |= !fool.cut[i].is_ready;
    }
    fool.cut[fool.n_cut++] = cut;
}

static void op_remove(void)
{
    struct fool_message *m = any_message();
    if (!m)
        return;
    ASSERT_OK(memory_message_remove(here.m, OWNER, m->id, NULL, &here.e));
    for (int i = 0; i < fool.n_cut; i++) {
        struct fool_cut *cut = &fool.cut[i];
        bool is_past = m->row < cut->first || holds(cut->dropped, cut->n_dropped, m->row);
        if (cut->is_gone || !is_on_path(m->row, cut->anchor))
            continue;
        if (holds(cut->system, cut->n_system, m->row))
            continue;
        if (is_past)
            cut->is_gone = true;
        else if (cut->anchor == m->row)
            cut->anchor = m->parent;
        if (cut->anchor < cut->first)
            cut->is_gone = true;
    }
    for (int i = 0; i < fool.n_m; i++) {
        if (fool.m[i].parent == m->row)
            fool.m[i].parent = m->parent;
        if (fool.m[i].quotes == m->row)
            fool.m[i].has_context = false;
    }
    m->is_gone = true;
}

static const struct fool_cut *in_force(int64_t tip)
{
    for (int i = fool.n_cut; i-- > 0;)
        if (!fool.cut[i].is_gone && fool.cut[i].is_ready && is_on_path(fool.cut[i].anchor, tip))
            return &fool.cut[i];
    return NULL;
}

static int by_row(const void *a, const void *b)
{
    return (*(const int64_t *)a > *(const int64_t *)b) -
           (*(const int64_t *)a < *(const int64_t *)b);
}

/* Rows of the window, ascending as a path is. */
static size_t window_rows(int64_t tip, const struct fool_cut *cut, int64_t rows[MOST])
{
    size_t n = 0;
    for (int64_t row = tip; row > 0; row = find(row)->parent)
        if (!cut || (row >= cut->first && !holds(cut->dropped, cut->n_dropped, row)))
            rows[n++] = row;
    for (size_t i = 0; cut && i < cut->n_system; i++)
        if (!find(cut->system[i])->is_gone)
            rows[n++] = cut->system[i];
    qsort(rows, n, sizeof(*rows), by_row);
    return n;
}

static void check_tip(const struct fool_message *tip)
{
    int64_t rows[MOST];
    struct memory_window w;
    struct memory_cut found;
    const struct fool_cut *cut = in_force(tip->row);
    const struct memory_window_want want = {.tip = tip->row, .max = MOST};
    size_t n = window_rows(tip->row, cut, rows);
    int rc = memory_cut_find(here.m, tip->row, &found, &here.a, &here.e);
    assert_int_equal(rc, cut ? 0 : ERR_NOTFOUND);
    ASSERT_OK(memory_window(here.m, &want, &w, &here.a, &here.e));
    assert_int_equal(w.has_cut, cut != NULL);
    if (cut)
        assert_int_equal(w.cut.row, cut->row);
    assert_int_equal(w.n, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(w.v[i].row, rows[i]);
        assert_int_equal(w.contexts[i].text != NULL, find(rows[i])->has_context);
    }
}

static void windows_are_what_a_fool_says(void **state)
{
    (void)state;
    int n_cut = 0;
    fool.c = add_conversation();
    for (int i = 0; i < OPS; i++) {
        int op = below(10);
        if (op < 6)
            op_add();
        else if (op < 8)
            op_cut();
        else if (op < 9)
            op_remove();
        if (below(200) == 0)
            place_reopen();
        const struct fool_message *tip = any_message();
        if (tip)
            check_tip(tip);
        n_cut += tip && in_force(tip->row);
        arena_done(&here.a);
        arena_init(&here.a, 1u << 30);
    }
    print_message("%d windows of %d under a cut\n", n_cut, OPS);
    assert_true(n_cut > OPS / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(windows_are_what_a_fool_says, place_make, place_remove),
    };
    const char *given = getenv("HEARTH_SEED");
    random_state = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL) * 2654435761u;
    print_message("HEARTH_SEED=%llu\n", (unsigned long long)random_state);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
