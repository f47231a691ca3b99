/* Stop strings and whole characters: cases B16, B17, B18, B20, and random pieces against a naive
 * oracle on the whole text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/utf8.h"
#include "engine/stop.h"
#include "tests/engine/text/vocab.h"

struct piece {
    const char *s;
    size_t n;
};
#define PIECE(t)                                                                                   \
    {                                                                                              \
        t, sizeof(t) - 1                                                                           \
    }

static struct stop *make(const struct piece *stops, size_t n)
{
    const char *strings[STOP_STRINGS_MAX] = {0};
    size_t lengths[STOP_STRINGS_MAX] = {0};
    struct stop *s = NULL;
    struct err e;
    for (size_t i = 0; i < n; i++) {
        strings[i] = stops[i].s;
        lengths[i] = stops[i].n;
    }
    if (stop_new(strings, lengths, n, &s, &e) < 0)
        fail_msg("%s", e.text);
    return s;
}

/* Everything that was sent; each part must be valid UTF-8 by itself. */
static bool run(const struct piece *stops, size_t n_stops, const struct piece *pieces,
                size_t n_pieces, struct buf *sent)
{
    struct stop *s = make(stops, n_stops);
    bool has_matched = false;
    struct buf part;
    buf_init(&part, 1 << 24);
    for (size_t i = 0; i < n_pieces && !has_matched; i++) {
        buf_clear(&part);
        has_matched = stop_push(s, pieces[i].s, pieces[i].n, &part);
        assert_true(utf8_valid(part.data ? part.data : "", part.len, NULL));
        buf_add(sent, part.data, part.len);
    }
    buf_clear(&part);
    if (!has_matched)
        stop_flush(s, &part);
    assert_true(utf8_valid(part.data ? part.data : "", part.len, NULL));
    buf_add(sent, part.data, part.len);
    buf_clear(&part);
    assert_false(stop_push(s, "more", 4, &part)); /* nothing comes after the end */
    stop_flush(s, &part);
    assert_int_equal(part.len, 0);
    buf_done(&part);
    stop_free(s);
    return has_matched;
}

static void expect(const struct piece *stops, size_t n_stops, const struct piece *pieces,
                   size_t n_pieces, const char *text, bool has_matched)
{
    struct buf sent;
    buf_init(&sent, 1 << 24);
    buf_str(&sent, "");
    assert_int_equal(run(stops, n_stops, pieces, n_pieces, &sent), has_matched);
    assert_string_equal(sent.data, text);
    buf_done(&sent);
}

static void a_character_is_sent_whole(void **state)
{
    (void)state;
    static const struct piece bytes[] = {PIECE("\xF0"), PIECE("\x9F"), PIECE("\xA6"), PIECE("\x99"),
                                         PIECE("\xE4"), PIECE("\xBD"), PIECE("\xA0")};
    expect(NULL, 0, bytes, 7, "\xF0\x9F\xA6\x99\xE4\xBD\xA0", false);
    struct stop *s = make(NULL, 0);
    struct buf sent;
    buf_init(&sent, 100);
    for (int i = 0; i < 3; i++)
        stop_push(s, bytes[i].s, 1, &sent);
    assert_int_equal(sent.len, 0);
    stop_push(s, bytes[3].s, 1, &sent);
    assert_int_equal(sent.len, 4); /* and no later */
    buf_done(&sent);
    stop_free(s);
}

static void an_incomplete_character_at_the_end_is_dropped(void **state)
{
    (void)state;
    static const struct piece pieces[] = {PIECE("ok"), PIECE("\xF0\x9F")};
    expect(NULL, 0, pieces, 2, "ok", false);
}

static void an_ill_formed_byte_in_the_middle_is_replaced(void **state)
{
    (void)state;
    static const struct piece lone[] = {PIECE("a"), PIECE("\x99"), PIECE("b")};
    expect(NULL, 0, lone, 3,
           "a\xEF\xBF\xBD"
           "b",
           false);
    static const struct piece cut[] = {PIECE("\xF0\x9F"), PIECE("\nx")};
    static const struct piece stop[] = {PIECE("\n")};
    expect(stop, 1, cut, 2, "\xEF\xBF\xBD", true);
}

static void no_part_of_a_stop_string_is_sent(void **state)
{
    (void)state;
    static const struct piece stop[] = {PIECE("qrstuvw")};
    static const struct piece pieces[] = {PIECE("nop"), PIECE("qrs"), PIECE("t"),
                                          PIECE("uv"),  PIECE("w"),   PIECE("x")};
    expect(stop, 1, pieces, 6, "nop", true);
}

static void stops_that_share_a_prefix(void **state)
{
    (void)state;
    static const struct piece stops[] = {PIECE("\n"), PIECE("\nUser:")};
    static const struct piece pieces[] = {PIECE("hi"), PIECE("\nUs"), PIECE("er:")};
    expect(stops, 2, pieces, 3, "hi", true);
    static const struct piece longer[] = {PIECE("abcd"), PIECE("bc")};
    static const struct piece text[] = {PIECE("xab"), PIECE("cd")};
    expect(longer, 2, text, 2, "xa", true); /* the one that ends first */
    static const struct piece both[] = {PIECE("cd"), PIECE("abcd")};
    expect(both, 2, text, 2, "x", true); /* ending together: the longest */
}

static void held_text_is_sent_once_after_a_false_start(void **state)
{
    (void)state;
    static const struct piece stops[] = {PIECE("\n"), PIECE("Note:")};
    static const struct piece pieces[] = {PIECE(" Note"), PIECE("?")};
    expect(stops, 2, pieces, 2, " Note?", false);
    static const struct piece ends[] = {PIECE(" Note")};
    expect(stops, 2, ends, 1, " Note", false);
}

static void a_stop_string_longer_than_300_bytes_matches_byte_by_byte(void **state)
{
    (void)state;
    char text[700];
    struct piece pieces[700];
    for (size_t i = 0; i < sizeof text; i++) {
        text[i] = i < 300 ? 'a' : i == 699 ? 'b' : 'a';
        pieces[i] = (struct piece){&text[i], 1};
    }
    struct piece stop = {text + 300, 400}; /* 399 × a, b */
    char want[301];
    memset(want, 'a', 300);
    want[300] = 0;
    expect(&stop, 1, pieces, 700, want, true);
}

static void a_stop_string_of_characters_split_inside_them(void **state)
{
    (void)state;
    static const struct piece stop[] = {PIECE("\xE4\xBD\xA0\xE5\xA5\xBD")};
    static const struct piece pieces[] = {PIECE("x\xE4"), PIECE("\xBD\xA0\xE5"), PIECE("\xA5"),
                                          PIECE("\xBD!")};
    expect(stop, 1, pieces, 4, "x", true);
    static const struct piece other[] = {PIECE("x\xE4"), PIECE("\xBD\xA1")};
    expect(stop, 1, other, 2, "x\xE4\xBD\xA1", false);
}

static void a_nul_is_a_byte_like_any_other(void **state)
{
    (void)state;
    static const struct piece stop[] = {PIECE("\0z")};
    struct stop *s = make(stop, 1);
    struct buf sent;
    buf_init(&sent, 100);
    assert_false(stop_push(s, "a\0b\0", 4, &sent));
    assert_memory_equal(sent.data, "a\0b", 3);
    assert_int_equal(sent.len, 3);
    assert_true(stop_push(s, "z", 1, &sent));
    assert_int_equal(sent.len, 3);
    buf_done(&sent);
    stop_free(s);
}

static void bad_stop_strings_are_refused(void **state)
{
    (void)state;
    struct stop *s = NULL;
    struct err e;
    static char big[STOP_BYTES_MAX + 1];
    memset(big, 'x', sizeof big);
    const char *strings[STOP_STRINGS_MAX + 1];
    size_t lengths[STOP_STRINGS_MAX + 1];
    for (int i = 0; i <= STOP_STRINGS_MAX; i++) {
        strings[i] = big;
        lengths[i] = 1;
    }
    assert_int_equal(stop_new(strings, lengths, STOP_STRINGS_MAX + 1, &s, &e), ERR_LIMIT);
    lengths[0] = sizeof big;
    assert_int_equal(stop_new(strings, lengths, 1, &s, &e), ERR_LIMIT);
    lengths[0] = 0;
    assert_int_equal(stop_new(strings, lengths, 1, &s, &e), ERR_INVAL);
    strings[0] = "\xE4\xBD";
    lengths[0] = 2;
    assert_int_equal(stop_new(strings, lengths, 1, &s, &e), ERR_INVAL);
    assert_null(s);
}

/* The whole text at once: the earliest end of any stop, the longest of those; then repair. */
static bool oracle(const char *text, size_t n, const struct piece *stops, size_t n_stops,
                   struct buf *ret)
{
    for (size_t end = 1; end <= n; end++) {
        size_t longest = 0;
        for (size_t k = 0; k < n_stops; k++)
            if (stops[k].n <= end && stops[k].n > longest &&
                memcmp(text + end - stops[k].n, stops[k].s, stops[k].n) == 0)
                longest = stops[k].n;
        if (longest > 0) {
            utf8_repair(ret, text, end - longest);
            return true;
        }
    }
    utf8_repair(ret, text, utf8_complete(text, n));
    return false;
}

static size_t random_text(uint64_t *r, char *to, size_t max_parts, bool valid_only)
{
    static const struct piece alphabet[] = {PIECE("a"),
                                            PIECE("b"),
                                            PIECE("ab"),
                                            PIECE("\n"),
                                            PIECE("\xC3\xA9"),
                                            PIECE("\xE4\xBD\xA0"),
                                            PIECE("\xF0\x9F\xA6\x99"),
                                            PIECE("\xE4"),
                                            PIECE("\x99"),
                                            PIECE("\xF0\x9F")};
    size_t n = 0, parts = 1 + random_next(r) % max_parts;
    for (size_t i = 0; i < parts; i++) {
        const struct piece *p = &alphabet[random_next(r) % (valid_only ? 7 : 10)];
        memcpy(to + n, p->s, p->n);
        n += p->n;
    }
    return n;
}

static void random_pieces_equal_the_oracle(void **state)
{
    (void)state;
    uint64_t r = random_seed("stop");
    for (int round = 0; round < 20000; round++) {
        char text[256], stop_text[STOP_STRINGS_MAX][32];
        struct piece stops[STOP_STRINGS_MAX], pieces[256];
        size_t n = random_text(&r, text, 30, false), n_stops = random_next(&r) % 4, n_pieces = 0;
        for (size_t k = 0; k < n_stops; k++)
            stops[k] = (struct piece){stop_text[k], random_text(&r, stop_text[k], 5, true)};
        for (size_t at = 0; at < n; n_pieces++) {
            size_t len = 1 + random_next(&r) % 4;
            len = len < n - at ? len : n - at;
            pieces[n_pieces] = (struct piece){text + at, len};
            at += len;
        }
        struct buf got, want;
        buf_init(&got, 4096);
        buf_init(&want, 4096);
        bool has_matched = oracle(text, n, stops, n_stops, &want);
        assert_int_equal(run(stops, n_stops, pieces, n_pieces, &got), has_matched);
        assert_int_equal(got.len, want.len);
        if (want.len > 0)
            assert_memory_equal(got.data, want.data, want.len);
        buf_done(&got);
        buf_done(&want);
    }
}

static void every_split_of_a_text_gives_the_same(void **state)
{
    (void)state;
    static const char text[] = "ab\xE4\xBD\xA0"
                               "aab\xF0\x9F\xA6\x99"
                               "c";
    static const struct piece stops[] = {PIECE("ab\xF0\x9F\xA6\x99"), PIECE("bb")};
    size_t n = sizeof text - 1;
    for (unsigned cut = 0; cut < 1u << (n - 1); cut++) {
        struct piece pieces[32];
        size_t n_pieces = 0, from = 0;
        for (size_t i = 0; i < n; i++)
            if (i == n - 1 || (cut >> i & 1)) {
                pieces[n_pieces++] = (struct piece){text + from, i + 1 - from};
                from = i + 1;
            }
        expect(stops, 2, pieces, n_pieces,
               "ab\xE4\xBD\xA0"
               "a",
               true);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_character_is_sent_whole),
        cmocka_unit_test(an_incomplete_character_at_the_end_is_dropped),
        cmocka_unit_test(an_ill_formed_byte_in_the_middle_is_replaced),
        cmocka_unit_test(no_part_of_a_stop_string_is_sent),
        cmocka_unit_test(stops_that_share_a_prefix),
        cmocka_unit_test(held_text_is_sent_once_after_a_false_start),
        cmocka_unit_test(a_stop_string_longer_than_300_bytes_matches_byte_by_byte),
        cmocka_unit_test(a_stop_string_of_characters_split_inside_them),
        cmocka_unit_test(a_nul_is_a_byte_like_any_other),
        cmocka_unit_test(bad_stop_strings_are_refused),
        cmocka_unit_test(random_pieces_equal_the_oracle),
        cmocka_unit_test(every_split_of_a_text_gives_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
