/*
 * Segments that are kept give the ids that rendering gives: random windows that go on, are cut and
 * edited, against chat_render, also when most of what was kept has gone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "daemon/rendered.h"
#include "tests/scripted/vocab.h"

#define MESSAGES 24
#define TEXT_BYTES 400

static struct vocab *vocab;
static struct tok *tok;
static struct chat *chat;

static int make_chat(void **state)
{
    (void)state;
    struct err e;
    if (vocab_new(&vocab, &e) || vocab_tok(vocab, &tok, &e))
        return -1;
    return chat_new(tok, NULL, "chatml", &chat, &e);
}

static int drop_chat(void **state)
{
    (void)state;
    chat_free(chat);
    tok_free(tok);
    vocab_free(vocab);
    return 0;
}

static unsigned next(unsigned *seed)
{
    *seed = *seed * 1103515245u + 12345u;
    return *seed >> 16;
}

struct talk {
    struct chat_message v[MESSAGES];
    char texts[MESSAGES][TEXT_BYTES];
    int32_t ids[MESSAGES][8];
    size_t n;
};

/* Few texts, so that they meet again as other roles, elsewhere, with ids and without. */
static void say(struct talk *t, size_t i, unsigned *seed)
{
    const size_t n = next(seed) % 3 == 0 ? next(seed) % TEXT_BYTES : next(seed) % 5;
    const char c = (char)('a' + next(seed) % 3);
    memset(t->texts[i], c, n);
    t->v[i] = (struct chat_message){.role = CHAT_SYSTEM + next(seed) % 3,
                                    .text = t->texts[i],
                                    .n_text = n};
    if (t->v[i].role == CHAT_ASSISTANT && next(seed) % 2 && n >= 4) {
        for (int k = 0; k < 4; k++)
            t->ids[i][k] = c;
        t->v[i].ids = t->ids[i];
        t->v[i].n_ids = 1 + next(seed) % 4;
    }
}

static void check(struct rendered **kept, const struct talk *t)
{
    size_t starts[MESSAGES + 1], wanted_starts[MESSAGES + 1];
    struct ids ids, wanted;
    struct err e;
    ids_init(&ids);
    ids_init(&wanted);
    struct chat_rendering to = {.ids = &ids, .starts = starts};
    struct chat_rendering slow = {.ids = &wanted, .starts = wanted_starts};
    assert_int_equal(rendered_window(kept, chat, t->v, t->n, &to, &e), 0);
    assert_int_equal(chat_render(chat, t->v, t->n, true, &slow, &e), 0);
    assert_int_equal(ids.n, wanted.n);
    assert_memory_equal(ids.v, wanted.v, ids.n * sizeof *ids.v);
    assert_memory_equal(starts, wanted_starts, (t->n + 1) * sizeof *starts);
    ids_done(&ids);
    ids_done(&wanted);
}

static void what_is_kept_is_what_would_be_rendered(void **state)
{
    (void)state;
    struct rendered *kept = NULL;
    struct talk *t = calloc(1, sizeof *t);
    unsigned seed = (unsigned)time(NULL);
    assert_non_null(t);
    print_message("seed %u\n", seed);
    for (int round = 0; round < 3000; round++) {
        const size_t at = t->n > 0 ? next(&seed) % t->n : 0;
        if (t->n == 0 || (t->n < MESSAGES && next(&seed) % 4)) {
            say(t, t->n++, &seed);
        } else if (t->n == MESSAGES && next(&seed) % 2) {
            t->n = 1 + next(&seed) % 8;
        } else {
            say(t, at, &seed);
        }
        check(&kept, t);
    }
    rendered_free(kept);
    free(t);
}

/* More than both halves hold, and then from the beginning. */
static void what_has_gone_is_made_again(void **state)
{
    (void)state;
    struct rendered *kept = NULL;
    struct talk t = {.n = 2};
    const size_t n = RENDERED_IDS / 16;
    char *long_text = malloc(n);
    assert_non_null(long_text);
    memset(long_text, 'x', n);
    t.v[0] = (struct chat_message){.role = CHAT_USER, .text = "hello", .n_text = 5};
    for (int round = 0; round < 2; round++)
        for (unsigned i = 0; i < 40; i++) {
            memcpy(long_text, &i, sizeof i);
            for (size_t k = 0; k < sizeof i; k++)
                long_text[k] = (char)('a' + (i >> (8 * k)) % 26);
            t.v[1] = (struct chat_message){.role = CHAT_USER, .text = long_text, .n_text = n};
            check(&kept, &t);
        }
    rendered_free(kept);
    free(long_text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_kept_is_what_would_be_rendered),
        cmocka_unit_test(what_has_gone_is_made_again),
    };
    return cmocka_run_group_tests(tests, make_chat, drop_chat);
}
