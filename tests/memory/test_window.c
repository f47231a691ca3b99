/* Which window is in force: cuts, branches, deletions, a daemon that is killed. */
#include "tests/memory/place.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "memory/migrate.h"
#include "memory/schema.h"
#include "memory/window.h"

#define TURNS 6

/* A conversation "S q0 a0 q1 a1 …" and the rows of its messages. */
static struct {
    struct memory_conversation c;
    struct memory_message system, q[TURNS], a[TURNS];
} talk;

static int make_talk(void **state)
{
    if (place_make(state) < 0)
        return -1;
    char text[16];
    talk.c = add_conversation();
    talk.system = add_message(talk.c.row, -1, MEMORY_SYSTEM, "S");
    for (int i = 0; i < TURNS; i++) {
        snprintf(text, sizeof(text), "q%d", i);
        talk.q[i] = add_message(talk.c.row, -1, MEMORY_USER, text);
        text[0] = 'a';
        talk.a[i] = add_message(talk.c.row, -1, MEMORY_ASSISTANT, text);
    }
    return 0;
}

/* A cut after the answer of turn `after` that keeps turns from `from` on. */
static struct memory_cut cut_of(int after, int from, const char *head)
{
    return (struct memory_cut){.conversation = talk.c.row,
                               .anchor = talk.a[after].row,
                               .first = talk.q[from].row,
                               .system = {.v = &talk.system.row, .n = 1},
                               .head = head,
                               .n_head = strlen(head),
                               .strategy = PLAN_AUTO};
}

static int64_t add_cut(const struct memory_cut *cut, bool is_ready)
{
    int64_t row = 0;
    ASSERT_OK(memory_cut_add(here.m, cut, &row, &here.e));
    assert_true(row > 0);
    if (is_ready)
        ASSERT_OK(memory_cut_ready(here.m, row, &here.e));
    return row;
}

/* "head: S q2 a2" with the contexts in brackets before their messages. */
static const char *window_under(int64_t tip, int64_t cut)
{
    struct memory_window w;
    struct buf b;
    const struct memory_window_want want = {.tip = tip, .max = 1000, .cut = cut};
    ASSERT_OK(memory_window(here.m, &want, &w, &here.a, &here.e));
    buf_init(&b, 1u << 20);
    for (size_t i = 0; i < w.n; i++) {
        if (i == w.n_system && w.has_cut)
            buf_printf(&b, "<%s> ", w.cut.head);
        if (w.contexts[i].text)
            buf_printf(&b, "[%s]", w.contexts[i].text);
        buf_printf(&b, i + 1 < w.n ? "%s " : "%s", w.v[i].text);
    }
    const char *s = arena_copy(&here.a, b.len ? b.data : "", b.len);
    buf_done(&b);
    return s;
}

static const char *window_of(int64_t tip)
{
    return window_under(tip, 0);
}

static void without_a_cut_the_path_is_the_window(void **state)
{
    (void)state;
    struct memory_cut cut;
    assert_string_equal(window_of(talk.a[1].row), "S q0 a0 q1 a1");
    assert_string_equal(window_of(0), "");
    ASSERT_ERR(memory_cut_find(here.m, talk.a[1].row, &cut, &here.a, &here.e), ERR_NOTFOUND);
}

static void a_cut_is_in_force_when_it_is_ready(void **state)
{
    (void)state;
    struct memory_cut cut = cut_of(3, 2, "sum"), found;
    cut.summary = "they spoke";
    cut.n_summary = 10;
    cut.facts = "f\0f";
    cut.n_facts = 3;
    int64_t row = add_cut(&cut, false);
    assert_string_equal(window_of(talk.a[3].row), "S q0 a0 q1 a1 q2 a2 q3 a3");
    assert_string_equal(window_under(talk.a[3].row, row), "S <sum> q2 a2 q3 a3");
    ASSERT_OK(memory_cut_prepared(here.m, talk.a[3].row, &found, &here.a, &here.e));
    assert_int_equal(found.row, row);
    ASSERT_OK(memory_cut_ready(here.m, row, &here.e));
    assert_string_equal(window_of(talk.a[3].row), "S <sum> q2 a2 q3 a3");
    assert_string_equal(window_of(talk.q[4].row), "S <sum> q2 a2 q3 a3 q4");
    assert_string_equal(window_under(talk.q[2].row, MEMORY_WHOLE_PATH), "S q0 a0 q1 a1 q2");
    ASSERT_ERR(memory_cut_prepared(here.m, talk.a[3].row, &found, &here.a, &here.e), ERR_NOTFOUND);
    ASSERT_OK(memory_cut_find(here.m, talk.a[5].row, &found, &here.a, &here.e));
    assert_int_equal(found.row, row);
    assert_int_equal(found.anchor, talk.a[3].row);
    assert_int_equal(found.first, talk.q[2].row);
    assert_int_equal(found.state, MEMORY_CUT_READY);
    assert_int_equal(found.strategy, PLAN_AUTO);
    assert_string_equal(found.summary, "they spoke");
    assert_int_equal(found.n_facts, 3);
    assert_memory_equal(found.facts, "f\0f", 3);
    assert_int_equal(found.system.n, 1);
    assert_true(found.created_at > 0);
}

static void the_newest_ready_cut_on_the_path_counts(void **state)
{
    (void)state;
    struct memory_cut first = cut_of(2, 1, "one"), second = cut_of(4, 3, "two");
    struct memory_cut third = cut_of(4, 4, "three");
    add_cut(&first, true);
    add_cut(&second, true);
    int64_t row = add_cut(&third, false);
    assert_string_equal(window_of(talk.a[5].row), "S <two> q3 a3 q4 a4 q5 a5");
    assert_string_equal(window_of(talk.a[3].row), "S <one> q1 a1 q2 a2 q3 a3");
    assert_string_equal(window_of(talk.q[2].row), "S q0 a0 q1 a1 q2"); /* above both anchors */
    struct memory_window w;
    const struct memory_window_want elsewhere = {.tip = talk.a[3].row, .max = 99, .cut = row};
    ASSERT_ERR(memory_window(here.m, &elsewhere, &w, &here.a, &here.e), ERR_NOTFOUND);
    ASSERT_OK(memory_cut_remove(here.m, row, &here.e));
    ASSERT_ERR(memory_cut_remove(here.m, row, &here.e), ERR_NOTFOUND);
    ASSERT_ERR(memory_cut_ready(here.m, row, &here.e), ERR_NOTFOUND);
}

static void a_branch_has_the_cuts_of_its_own_path(void **state)
{
    (void)state;
    struct memory_cut cut = cut_of(3, 2, "sum");
    add_cut(&cut, true);
    struct memory_message edit = add_message(talk.c.row, talk.a[2].row, MEMORY_USER, "e");
    struct memory_message after = add_message(talk.c.row, talk.a[3].row, MEMORY_USER, "f");
    assert_string_equal(window_of(edit.row), "S q0 a0 q1 a1 q2 a2 e");
    assert_string_equal(window_of(after.row), "S <sum> q2 a2 q3 a3 f");
    struct memory_cut of_branch = cut_of(3, 1, "branch");
    of_branch.anchor = edit.row;
    add_cut(&of_branch, true); /* newer, and of the other branch */
    assert_string_equal(window_of(edit.row), "S <branch> q1 a1 q2 a2 e");
    assert_string_equal(window_of(talk.a[5].row), "S <sum> q2 a2 q3 a3 q4 a4 q5 a5");
}

static void a_window_can_be_read_from_its_end_as_far_as_it_matters(void **state)
{
    (void)state;
    struct memory_window w;
    struct memory_message late = add_message(talk.c.row, talk.a[0].row, MEMORY_SYSTEM, "T");
    struct memory_message q = add_message(talk.c.row, late.row, MEMORY_USER, "q");
    struct memory_message a = add_message(talk.c.row, q.row, MEMORY_ASSISTANT, "0123456789");
    struct memory_message q2 = add_message(talk.c.row, a.row, MEMORY_USER, "z");
    struct memory_window_want want = {.tip = q2.row, .max = 100, .max_bytes = 1};
    ASSERT_OK(memory_window(here.m, &want, &w, &here.a, &here.e)); /* S q0 a0 T q a z */
    assert_int_equal(w.n, 3);
    assert_int_equal(w.n_system, 2);
    assert_int_equal(w.n_above, 4);
    assert_string_equal(w.v[0].text, "S");
    assert_string_equal(w.v[1].text, "T");
    assert_string_equal(w.v[2].text, "z");
    want.tip = a.row; /* as far as a user's message, at least */
    ASSERT_OK(memory_window(here.m, &want, &w, &here.a, &here.e));
    assert_int_equal(w.n, 4);
    assert_string_equal(w.v[2].text, "q");
    assert_int_equal(w.n_above, 2);
    want.max_bytes = 14;
    ASSERT_OK(memory_window(here.m, &want, &w, &here.a, &here.e));
    assert_int_equal(w.n_above, 1); /* "a0", "T", "q", and ten bytes */
    assert_int_equal(w.n_system, 1);
    assert_string_equal(w.v[1].text, "a0");
    want.max_bytes = 1000;
    ASSERT_OK(memory_window(here.m, &want, &w, &here.a, &here.e));
    assert_int_equal(w.n, 6);
    assert_int_equal(w.n_above + w.n_system, 0);
}

static void pruned_messages_leave_from_the_middle(void **state)
{
    (void)state;
    struct memory_cut cut = cut_of(4, 1, "h");
    int64_t dropped[] = {talk.a[3].row, talk.q[2].row, talk.q[3].row,
                         talk.a[2].row}; /* any order */
    cut.dropped = (struct memory_rows){.v = dropped, .n = 4};
    add_cut(&cut, true);
    assert_string_equal(window_of(talk.a[5].row), "S <h> q1 a1 q4 a4 q5 a5");
    assert_string_equal(path_text(talk.a[5].row), "S|q0|a0|q1|a1|q2|a2|q3|a3|q4|a4|q5|a5");
}

static void injected_text_stays_beside_its_message(void **state)
{
    (void)state;
    struct memory_context got;
    const struct memory_source sources[] = {{MEMORY_RECALLED, talk.q[0].row, 7},
                                            {MEMORY_PINNED, talk.a[1].row, 9},
                                            {MEMORY_NOTE, 12, 3}};
    const struct memory_context born = {
        .text = "x said", .n_text = 6, .sources = sources, .n_sources = 3};
    const struct memory_new_message msg = {.conversation = talk.c.row,
                                           .parent = talk.a[5].row,
                                           .role = MEMORY_USER,
                                           .text = "q6",
                                           .n_text = 2,
                                           .context = &born};
    struct memory_message q6;
    ASSERT_OK(memory_message_add(here.m, &msg, &q6, &here.a, &here.e));
    assert_string_equal(q6.text, "q6");
    struct memory_message a6 = add_message(talk.c.row, q6.row, MEMORY_ASSISTANT, "a6");
    struct memory_message again = add_message(talk.c.row, q6.row, MEMORY_ASSISTANT, "a6'");
    struct memory_cut cut = cut_of(5, 5, "h");
    add_cut(&cut, true);
    assert_string_equal(window_of(a6.row), "S <h> q5 a5 [x said]q6 a6");
    assert_string_equal(window_of(again.row), "S <h> q5 a5 [x said]q6 a6'");
    place_reopen();
    ASSERT_OK(memory_context_get(here.m, q6.row, &got, &here.a, &here.e));
    assert_int_equal(got.n_sources, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(got.sources[i].kind, sources[i].kind);
        assert_int_equal(got.sources[i].row, sources[i].row);
        assert_int_equal(got.sources[i].tokens, sources[i].tokens);
    }
    struct memory_cut bare = cut_of(5, 5, "i");
    bare.anchor = a6.row;
    bare.bare = (struct memory_rows){.v = &q6.row, .n = 1};
    add_cut(&bare, true);
    assert_string_equal(window_of(a6.row), "S <i> q5 a5 q6 a6");
    assert_string_equal(window_of(again.row), "S <h> q5 a5 [x said]q6 a6'");
    ASSERT_OK(memory_context_set(here.m, q6.row, &(struct memory_context){.text = "y", .n_text = 1},
                                 &here.e));
    assert_string_equal(window_of(again.row), "S <h> q5 a5 [y]q6 a6'");
    ASSERT_OK(memory_context_set(here.m, q6.row, &(struct memory_context){0}, &here.e));
    ASSERT_OK(memory_context_get(here.m, q6.row, &got, &here.a, &here.e));
    assert_null(got.text);
}

static void a_context_names_messages_of_its_conversation(void **state)
{
    (void)state;
    struct memory_message other = add_message(add_conversation().row, -1, MEMORY_USER, "o");
    static struct memory_source many[MEMORY_SOURCES_MAX + 1];
    struct memory_source source = {.kind = MEMORY_RECALLED, .row = other.row};
    struct memory_context c = {.text = "t", .n_text = 1, .sources = &source, .n_sources = 1};
    ASSERT_ERR(memory_context_set(here.m, talk.q[1].row, &c, &here.e), ERR_NOTFOUND);
    source.row = 99999;
    ASSERT_ERR(memory_context_set(here.m, talk.q[1].row, &c, &here.e), ERR_NOTFOUND);
    source.row = talk.q[0].row;
    ASSERT_ERR(memory_context_set(here.m, 99999, &c, &here.e), ERR_NOTFOUND);
    for (int i = 0; i <= MEMORY_SOURCES_MAX; i++)
        many[i] = source;
    c.sources = many;
    c.n_sources = MEMORY_SOURCES_MAX + 1;
    ASSERT_ERR(memory_context_set(here.m, talk.q[1].row, &c, &here.e), ERR_LIMIT);
    c.n_sources = MEMORY_SOURCES_MAX;
    ASSERT_OK(memory_context_set(here.m, talk.q[1].row, &c, &here.e));
    struct memory_message m;
    const struct memory_new_message msg = {
        .conversation = talk.c.row,
        .role = MEMORY_USER,
        .context = &(struct memory_context){
            .sources = &(struct memory_source){.kind = MEMORY_RECALLED, .row = 99999},
            .n_sources = 1}};
    ASSERT_ERR(memory_message_add(here.m, &msg, &m, &here.a, &here.e), ERR_NOTFOUND);
    assert_int_equal(get_conversation(talk.c.id).n_messages, 2 * TURNS + 1); /* none or both */
}

/* Killed after the summary was written: the child's cut is PREPARED. */
static void a_daemon_killed_before_ready_leaves_the_old_window(void **state)
{
    (void)state;
    struct memory_cut old = cut_of(2, 1, "old"), cut = cut_of(4, 3, "new"), found;
    add_cut(&old, true);
    place_close();
    for (int is_ready = 0; is_ready < 2; is_ready++) {
        pid_t pid = fork();
        if (pid == 0) {
            place_open();
            add_cut(&cut, is_ready);
            raise(SIGKILL);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        place_open();
        assert_string_equal(window_of(talk.a[5].row), is_ready ? "S <new> q3 a3 q4 a4 q5 a5"
                                                               : "S <old> q1 a1 q2 a2 q3 a3 q4 a4"
                                                                 " q5 a5");
        int rc = memory_cut_prepared(here.m, talk.a[5].row, &found, &here.a, &here.e);
        assert_int_equal(rc, is_ready ? ERR_NOTFOUND : 0); /* the new one took the rest along */
        place_close();
    }
}

static void what_a_cut_can_not_name_is_refused(void **state)
{
    (void)state;
    int64_t row = 77;
    struct memory_cut cut = cut_of(1, 2, "h");
    ASSERT_ERR(memory_cut_add(here.m, &cut, &row, &here.e), ERR_INVAL); /* first below anchor */
    cut = cut_of(3, 2, "h");
    cut.dropped = (struct memory_rows){.v = &talk.q[1].row, .n = 1}; /* above first */
    ASSERT_ERR(memory_cut_add(here.m, &cut, &row, &here.e), ERR_INVAL);
    cut = cut_of(3, 2, "h");
    cut.system = (struct memory_rows){.v = &talk.q[3].row, .n = 1};
    ASSERT_ERR(memory_cut_add(here.m, &cut, &row, &here.e), ERR_INVAL);
    cut = cut_of(3, 2, "h");
    cut.anchor = 99999;
    ASSERT_ERR(memory_cut_add(here.m, &cut, &row, &here.e), ERR_NOTFOUND);
    cut = cut_of(3, 2, "h");
    cut.conversation = add_conversation().row;
    ASSERT_ERR(memory_cut_add(here.m, &cut, &row, &here.e), ERR_NOTFOUND);
    assert_int_equal(row, 77);
}

static void an_edit_changes_summary_and_facts_and_not_the_head(void **state)
{
    (void)state;
    struct memory_cut cut = cut_of(3, 2, "head"), found;
    cut.summary = "zq000001qz";
    cut.facts = "port: 8443";
    cut.n_summary = cut.n_facts = 10;
    int64_t row = add_cut(&cut, true);
    const struct memory_cut_edit edit = {.summary = "better", .n_summary = 6};
    ASSERT_OK(memory_cut_edit(here.m, row, &edit, &here.e));
    ASSERT_OK(memory_cut_by_row(here.m, row, &found, &here.a, &here.e));
    assert_string_equal(found.summary, "better");
    assert_string_equal(found.facts, "port: 8443");
    assert_string_equal(found.head, "head");
    assert_int_equal(found.state, MEMORY_CUT_READY);
    assert_false(files_hold("zq000001qz"));
    ASSERT_ERR(memory_cut_edit(here.m, row + 1, &edit, &here.e), ERR_NOTFOUND);
}

/* ---- deletions ---- */

static void remove_message(const struct memory_message *m)
{
    ASSERT_OK(memory_message_remove(here.m, OWNER, m->id, NULL, &here.e));
}

static void what_a_cut_keeps_can_be_deleted(void **state)
{
    (void)state;
    struct memory_cut cut = cut_of(3, 2, "h");
    add_cut(&cut, true);
    remove_message(&talk.q[2]); /* its first row */
    assert_string_equal(window_of(talk.a[5].row), "S <h> a2 q3 a3 q4 a4 q5 a5");
    remove_message(&talk.a[3]); /* its anchor */
    assert_string_equal(window_of(talk.a[5].row), "S <h> a2 q3 q4 a4 q5 a5");
    assert_string_equal(window_of(talk.q[3].row), "S <h> a2 q3");
    remove_message(&talk.system);
    assert_string_equal(window_of(talk.a[5].row), "<h> a2 q3 q4 a4 q5 a5");
    remove_message(&talk.q[3]); /* the anchor goes up */
    assert_string_equal(window_of(talk.q[4].row), "<h> a2 q4");
    remove_message(&talk.a[2]); /* nothing is left of what it kept */
    assert_string_equal(window_of(talk.q[4].row), "q0 a0 q1 a1 q4");
}

static void a_deleted_message_takes_along_the_cuts_that_may_hold_its_words(void **state)
{
    (void)state;
    struct memory_cut early = cut_of(1, 1, "early"), late = cut_of(4, 3, "zq000001qz");
    add_cut(&early, true);
    add_cut(&late, true);
    remove_message(&talk.q[2]); /* below the early cut's first row, above the late one's */
    assert_string_equal(window_of(talk.a[5].row), "S <early> q1 a1 a2 q3 a3 q4 a4 q5 a5");
    assert_false(files_hold("zq000001qz"));
    late = cut_of(4, 1, "zq000002qz");
    late.dropped = (struct memory_rows){.v = &talk.q[3].row, .n = 1};
    add_cut(&late, true);
    remove_message(&talk.q[3]); /* pruned by it */
    assert_string_equal(window_of(talk.a[5].row), "S <early> q1 a1 a2 a3 q4 a4 q5 a5");
    assert_false(files_hold("zq000002qz"));
}

static void a_message_of_another_branch_is_no_matter_of_a_cut(void **state)
{
    (void)state;
    struct memory_message edit = add_message(talk.c.row, talk.a[0].row, MEMORY_USER, "e");
    struct memory_message q = add_message(talk.c.row, talk.a[5].row, MEMORY_USER, "q6");
    struct memory_message a = add_message(talk.c.row, q.row, MEMORY_ASSISTANT, "a6");
    struct memory_cut cut = cut_of(5, 5, "h");
    cut.anchor = a.row;
    cut.first = q.row;
    add_cut(&cut, true);
    remove_message(&edit); /* its row is below the first, its words are in no summary */
    assert_string_equal(window_of(a.row), "S <h> q6 a6");
}

static void a_deleted_message_takes_along_the_quotes_of_it(void **state)
{
    (void)state;
    struct memory_context got;
    const struct memory_source of_q0 = {MEMORY_RECALLED, talk.q[0].row, 5};
    const struct memory_source of_note = {MEMORY_NOTE, talk.q[0].row, 5}; /* a pin's row */
    const struct memory_context quote = {
        .text = "zq000001qz", .n_text = 10, .sources = &of_q0, .n_sources = 1};
    const struct memory_context note = {
        .text = "a note", .n_text = 6, .sources = &of_note, .n_sources = 1};
    ASSERT_OK(memory_context_set(here.m, talk.q[4].row, &quote, &here.e));
    ASSERT_OK(memory_context_set(here.m, talk.q[5].row, &note, &here.e));
    remove_message(&talk.q[0]);
    assert_false(files_hold("zq000001qz"));
    ASSERT_OK(memory_context_get(here.m, talk.q[4].row, &got, &here.a, &here.e));
    assert_null(got.text);
    ASSERT_OK(memory_context_get(here.m, talk.q[5].row, &got, &here.a, &here.e));
    assert_string_equal(got.text, "a note");
}

static void a_deleted_conversation_leaves_no_word_of_its_windows(void **state)
{
    (void)state;
    struct memory_cut cut = cut_of(3, 2, "zq000001qz");
    struct memory_pin pin;
    cut.summary = "zq000002qz";
    cut.facts = "zq000003qz";
    cut.n_summary = cut.n_facts = 10;
    add_cut(&cut, true);
    cut.head = "zq000004qz";
    add_cut(&cut, false);
    const struct memory_context c = {.text = "zq000005qz", .n_text = 10};
    ASSERT_OK(memory_context_set(here.m, talk.q[4].row, &c, &here.e));
    const struct memory_new_pin note = {
        .conversation = talk.c.row, .text = "zq000006qz", .n_text = 10};
    ASSERT_OK(memory_pin_add(here.m, &note, &pin, &here.a, &here.e));
    for (int i = 1; i <= 6; i++) {
        char word[16];
        snprintf(word, sizeof(word), "zq%06dqz", i);
        assert_true(files_hold(word));
    }
    ASSERT_OK(memory_conversation_remove(here.m, OWNER, talk.c.id, NULL, &here.e));
    assert_false(files_hold("zq00000"));
    place_close();
    assert_false(files_hold("zq00000"));
    place_open();
    int64_t row;
    ASSERT_ERR(memory_cut_add(here.m, &cut, &row, &here.e), ERR_NOTFOUND); /* it came too late */
}

/* ---- size ---- */

#define MANY 10000
#define BATCH 500

static void a_long_conversation_is_opened_at_its_window(void **state)
{
    (void)state;
    static struct memory_new_message msgs[BATCH];
    static struct memory_message added[BATCH];
    static char text[400];
    struct memory_conversation c = add_conversation();
    int64_t parent = 0;
    memset(text, 't', sizeof(text) - 1);
    for (int i = 0; i < MANY / BATCH; i++) {
        for (int k = 0; k < BATCH; k++)
            msgs[k] = (struct memory_new_message){.conversation = c.row,
                                                  .parent = k ? 0 : parent,
                                                  .role = k % 2 ? MEMORY_ASSISTANT : MEMORY_USER,
                                                  .text = text,
                                                  .n_text = sizeof(text) - 1};
        ASSERT_OK(memory_message_add_all(here.m, msgs, BATCH, added, &here.a, &here.e));
        parent = added[BATCH - 1].row;
        const struct memory_cut cut = {.conversation = c.row,
                                       .anchor = parent,
                                       .first = added[BATCH - 40].row,
                                       .strategy = PLAN_WINDOW};
        add_cut(&cut, true);
    }
    place_reopen();
    struct memory_window w;
    struct memory_window_want want = {.tip = parent, .max = 100};
    size_t used = here.a.used;
    int64_t before = clock_us();
    ASSERT_OK(memory_window(here.m, &want, &w, &here.a, &here.e));
    print_message("window of 40 in 10,000: %.2f ms\n", (double)(clock_us() - before) / 1000);
    assert_int_equal(w.n, 40);
    assert_true(here.a.used - used < (size_t)100 * 1000); /* nothing else was read */
    want.max = 40;
    ASSERT_OK(memory_window(here.m, &want, &w, &here.a, &here.e));
    want.max = 39;
    ASSERT_ERR(memory_window(here.m, &want, &w, &here.a, &here.e), ERR_LIMIT);
    want = (struct memory_window_want){.tip = parent, .max = MANY, .cut = MEMORY_WHOLE_PATH};
    before = clock_us();
    ASSERT_OK(memory_window(here.m, &want, &w, &here.a, &here.e));
    print_message("the whole path: %.2f ms\n", (double)(clock_us() - before) / 1000);
    assert_int_equal(w.n, MANY);
    want.max_bytes = 100000;
    before = clock_us();
    ASSERT_OK(memory_window(here.m, &want, &w, &here.a, &here.e));
    print_message("its newest 100,000 bytes: %.2f ms\n", (double)(clock_us() - before) / 1000);
    assert_in_range(w.n, 200, 300);
}

/* What version 5 wrote is there, and takes what is new. */
static void a_history_of_version_5_goes_on(void **state)
{
    (void)state;
    const struct migrate_plan old = {.steps = schema_steps, .n_steps = 5};
    struct db *db;
    enum plan_strategy s;
    ASSERT_OK(migrate_open(here.path, &old, &db, &here.e));
    ASSERT_OK(db_exec(db,
                      "INSERT INTO conversation (id, owner, activity, created_at, updated_at)"
                      " VALUES ('conv_old', '" OWNER "', 1, 2, 3);"
                      "INSERT INTO message (id, conversation, parent, role, status, created_at,"
                      " text) VALUES ('msg_1', 1, 0, 2, 0, 2, 'q0'), ('msg_2', 1, 1, 3, 2, 2, "
                      "'a0'), ('msg_3', 1, 2, 2, 0, 2, 'q1')",
                      &here.e));
    db_close(db);
    place_open();
    struct memory_conversation c = get_conversation("conv_old");
    assert_string_equal(window_of(c.tip), "q0 a0 q1");
    ASSERT_OK(memory_strategy_get(here.m, c.row, &s, &here.e));
    assert_int_equal(s, PLAN_UNSET);
    ASSERT_OK(memory_strategy_set(here.m, c.row, PLAN_PRUNE, &here.e));
    const struct memory_cut cut = {
        .conversation = c.row, .anchor = 3, .first = 3, .head = "h", .n_head = 1};
    add_cut(&cut, true);
    place_reopen();
    assert_string_equal(window_of(c.tip), "<h> q1");
    ASSERT_OK(memory_strategy_get(here.m, c.row, &s, &here.e));
    assert_int_equal(s, PLAN_PRUNE);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_talk, place_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(without_a_cut_the_path_is_the_window),
        TEST(a_cut_is_in_force_when_it_is_ready),
        TEST(the_newest_ready_cut_on_the_path_counts),
        TEST(a_branch_has_the_cuts_of_its_own_path),
        TEST(a_window_can_be_read_from_its_end_as_far_as_it_matters),
        TEST(pruned_messages_leave_from_the_middle),
        TEST(injected_text_stays_beside_its_message),
        TEST(a_context_names_messages_of_its_conversation),
        TEST(a_daemon_killed_before_ready_leaves_the_old_window),
        TEST(what_a_cut_can_not_name_is_refused),
        TEST(an_edit_changes_summary_and_facts_and_not_the_head),
        TEST(what_a_cut_keeps_can_be_deleted),
        TEST(a_deleted_message_takes_along_the_cuts_that_may_hold_its_words),
        TEST(a_message_of_another_branch_is_no_matter_of_a_cut),
        TEST(a_deleted_message_takes_along_the_quotes_of_it),
        TEST(a_deleted_conversation_leaves_no_word_of_its_windows),
        TEST(a_long_conversation_is_opened_at_its_window),
        cmocka_unit_test_setup_teardown(a_history_of_version_5_goes_on, place_make_empty,
                                        place_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
