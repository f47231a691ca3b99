/*
 * Windowed layers keep what somebody may need: what was passed goes when it can be had back, or
 * when room is short; a fork anywhere is found, from RAM or disk; and nothing is ever wrong (the
 * stand-in for the engine looks at all that the next position sees).
 *
 *     test_window [seed]
 */
#include "tests/cache/tier.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"
#include "cache/record.h"

#define WINDOW 70                          /* of each, the layer with a window */
#define N_KEPT ((WINDOW + KV_BLOCK - 1) / KV_BLOCK + 1) /* blocks before an end, at most */
#define N_BLOCKS 20
#define N_IDS (N_BLOCKS * KV_BLOCK + 5)
#define SECTION_BYTES 1024u

static uint64_t the_seed;
static int32_t ids[N_IDS + 400];

static void open_world(struct tier *t, size_t n_blocks)
{
    fake_window = WINDOW;
    tier_init(t, n_blocks);
    tier_ids(ids, (int)(sizeof ids / sizeof *ids), 1);
}

static void close_world(struct tier *t)
{
    tier_done(t);
    fake_window = 0;
}

static void what_is_on_disk_keeps_its_end_in_ram(void **state)
{
    (void)state;
    struct tier t;
    open_world(&t, 100);
    tier_turn(&t, "a", 1, ids, N_IDS);
    tier_settle(&t);
    struct cache_stats s = tier_stats(&t);
    assert_int_equal(s.n_blocks, N_BLOCKS);
    assert_int_equal(s.n_tails, 1);
    assert_true(s.n_windows >= 3 && s.n_windows <= N_KEPT + 1);
    assert_int_equal(s.bytes_used, (N_BLOCKS + 1 + s.n_windows) * SECTION_BYTES);
    assert_int_equal(s.bytes_cached, s.bytes_used);
    assert_int_equal(s.n_evicted_blocks, 0);
    /* It goes on from RAM. */
    struct cache_found f = tier_turn(&t, "a", 1, ids, N_IDS + 50);
    assert_int_equal(f.n_tokens, N_IDS);
    assert_int_equal(f.n_disk, 0);
    close_world(&t);
}

static void a_fork_in_the_middle_is_read_back(void **state)
{
    (void)state;
    struct tier t;
    open_world(&t, 100);
    tier_turn(&t, "a", 1, ids, N_IDS);
    tier_settle(&t);
    for (int n = 1; n < N_BLOCKS; n += 3) {
        int32_t other[N_IDS];
        memcpy(other, ids, sizeof other);
        other[n * KV_BLOCK] = -n;
        const struct cache_found f = tier_turn(&t, "a", 1, other, N_IDS);
        assert_int_equal(f.n_tokens, n * KV_BLOCK);
        assert_true(f.n_disk > 0 || n <= 3 || n >= N_BLOCKS - 3);
        tier_settle(&t);
        /* And a second one there needs no disk: a fork is an end. */
        other[n * KV_BLOCK] = -1000 - n;
        assert_int_equal(tier_turn(&t, "a", 1, other, n * KV_BLOCK + 20).n_ram, n * KV_BLOCK);
        tier_settle(&t);
    }
    close_world(&t);
}

/* ---- restart ---- */

static size_t n_read;
static ssize_t counting_pread(int fd, void *p, size_t n, off_t off)
{
    const ssize_t got = pread(fd, p, n, off);
    n_read += thread_is(THREAD_DISK) && got > 0 ? (size_t)got : 0;
    return got;
}

static void a_restart_reads_what_the_end_sees_and_no_more(void **state)
{
    (void)state;
    struct tier t;
    open_world(&t, 100);
    tier_turn(&t, "a", 1, ids, N_IDS);
    tier_close(&t, 3000);
    tier_open(&t);
    sys.pread = counting_pread;
    n_read = 0;
    const struct cache_found f = tier_turn(&t, "a", 1, ids, N_IDS + 50);
    sys_reset();
    assert_int_equal(f.n_tokens, N_IDS);
    assert_int_equal(f.n_disk, N_IDS);
    const size_t n_windows = n_read / SECTION_BYTES - (N_BLOCKS + 1) -
                             (N_BLOCKS + 1) * RECORD_HEAD_BYTES / SECTION_BYTES;
    assert_true(n_windows >= 3 && n_windows <= N_KEPT);
    /* Further back: what the restart didn't read. */
    int32_t other[N_IDS];
    memcpy(other, ids, sizeof other);
    other[8 * KV_BLOCK + 3] = -1;
    const struct cache_found g = tier_turn(&t, "a", 1, other, N_IDS);
    assert_int_equal(g.n_tokens, 8 * KV_BLOCK);
    assert_true(g.n_disk > 0 && g.n_ram > 0);
    close_world(&t);
}

/* A file of those whose windowed section would be needed is gone, or not what it was: less is
 * found, and nothing wrong. */
static void a_lost_section_is_a_miss(void **state)
{
    (void)state;
    for (int n_lost = 1; n_lost <= N_BLOCKS; n_lost += 2) {
        for (int is_torn = 0; is_torn < 2; is_torn++) {
            struct tier t;
            char path[300];
            int32_t other[N_IDS];
            open_world(&t, 100);
            tier_turn(&t, "a", 1, ids, N_IDS);
            tier_settle(&t);
            tier_path(&t, "a", ids, n_lost * KV_BLOCK, path, sizeof path);
            assert_int_equal(is_torn ? truncate(path, 5000) : unlink(path), 0);
            memcpy(other, ids, sizeof other);
            other[10 * KV_BLOCK] = -1;
            const int n = tier_turn(&t, "a", 1, other, N_IDS).n_tokens;
            /* In RAM is what the end needs; of the rest, the window before position 320. */
            const bool is_needed = n_lost > 10 - N_KEPT && n_lost <= 10;
            assert_true(n == 10 * KV_BLOCK || (is_needed && n < n_lost * KV_BLOCK));
            tier_settle(&t);
            assert_int_equal(tier_turn(&t, "a", 1, other, N_IDS).n_tokens, N_IDS - 1);
            close_world(&t);
        }
    }
}

/* ---- without a disk ---- */

/* A turn in passes of a block each. Returns what was found. */
static int slow_turn(struct cache *c, const int32_t *prompt, int n)
{
    const struct cache_root root = fake_root("a");
    struct cache_found found;
    struct cache_lease *l = NULL;
    struct err e;
    assert_int_equal(cache_lease_open(c, &root, 1, &l, &e), 0);
    assert_int_equal(cache_find(l, prompt, n - 1, &found, &e), 0);
    struct kv_seq *s = cache_lease_seq(l);
    fake_verify(s, fake_salt("a"), prompt);
    assert_int_equal(cache_reserve_for_disk(l, n - s->n_tokens, 0, &e), 0);
    while (s->n_tokens < n) {
        const int k = n - s->n_tokens < KV_BLOCK ? n - s->n_tokens : KV_BLOCK;
        assert_int_equal(cache_reserve(l, k, &e), 0);
        fake_compute(s, fake_salt("a"), prompt, k);
        assert_int_equal(cache_publish(l, prompt, 0, &e), 0);
        fake_check(c);
    }
    cache_lease_close(l, prompt, true);
    fake_check(c);
    return found.n_tokens;
}

static void without_a_disk_only_a_lack_of_room_takes_anything(void **state)
{
    (void)state;
    fake_window = WINDOW;
    struct kv_pool *pool = fake_pool(2 * N_BLOCKS);
    struct cache *c = NULL;
    struct cache_stats s;
    struct err e;
    tier_ids(ids, N_IDS, 1);
    assert_int_equal(cache_new(pool, &c, &e), 0);
    fake_whole_turn(c, "a", 1, ids, N_IDS);
    cache_stats(c, &s);
    assert_int_equal(s.n_windows, N_BLOCKS + 1);
    /* Two more conversations fit where one would: nothing of the first goes but what it passed. */
    int32_t other[N_IDS];
    for (int k = 1; k <= 2; k++) {
        tier_ids(other, N_IDS, 10000 * k);
        slow_turn(c, other, N_IDS);
    }
    cache_stats(c, &s);
    assert_int_equal(s.n_evicted_blocks, 0);
    assert_int_equal(s.n_blocks, 3 * N_BLOCKS);
    assert_true(s.bytes_used <= s.bytes_max);
    assert_int_equal(slow_turn(c, ids, N_IDS), N_IDS - 1);
    /* Nobody can go on from the middle any more: it is read again, and found then. */
    memcpy(other, ids, sizeof other);
    other[10 * KV_BLOCK] = -1;
    const int n = slow_turn(c, other, 12 * KV_BLOCK);
    assert_true(n < 10 * KV_BLOCK);
    assert_int_equal(slow_turn(c, other, 12 * KV_BLOCK), 12 * KV_BLOCK - 1);
    cache_free(c);
    kv_pool_free(pool);
    fake_window = 0;
}

/* ---- proof ---- */

/* Each block is computed from those before it, whose sections come back with their own proofs. */
static void a_thin_chain_is_proven_from_its_beginning(void **state)
{
    (void)state;
    struct tier t;
    struct cache_found found;
    struct cache_lease *l = NULL;
    struct err e;
    const struct cache_root root = fake_root("a");
    open_world(&t, 100);
    tier_turn(&t, "a", 1, ids, N_IDS);
    tier_settle(&t);
    assert_int_equal(cache_lease_open(t.cache, &root, 1, &l, &e), 0);
    cache_lease_prove(l);
    assert_int_equal(cache_find(l, ids, N_BLOCKS * KV_BLOCK, &found, &e), 0);
    assert_int_equal(cache_lease_n_blocks(l), N_BLOCKS);
    assert_int_equal(cache_proof_from(l, 12), 0);
    assert_int_equal(cache_proof_from(l, N_BLOCKS), N_BLOCKS);
    for (int n = 0; n < N_BLOCKS; n++) {
        const struct cache_piece piece = {
            .n_block = n, .count = KV_BLOCK, .ids = ids + n * KV_BLOCK};
        struct cache_proof *p = NULL;
        struct cache_verdicts is;
        if (n + 5 < N_BLOCKS - N_KEPT) {
            const struct cache_piece later = {
                .n_block = n + 5, .count = KV_BLOCK, .ids = ids + (n + 5) * KV_BLOCK};
            assert_int_equal(cache_proof_open(l, &later, &p, &e), ERR_NOTFOUND);
        }
        assert_int_equal(cache_proof_open(l, &piece, &p, &e), 0);
        fake_compute(cache_proof_seq(p), fake_salt("a"), ids, KV_BLOCK);
        cache_proof_close(p, &is);
        assert_int_equal(is.ram, CACHE_SAME);
        fake_check(t.cache);
    }
    cache_lease_close(l, NULL, false);
    fake_check(t.cache);
    assert_true(tier_stats(&t).n_windows <= N_KEPT + 1); /* and go again */
    close_world(&t);
}

/* ---- at rest ---- */

/* The sections of an end that lies far behind move to the front; a turn in between, and a lease
 * that is open, see none of it. */
static void what_moves_together_at_rest_is_found_as_it_was(void **state)
{
    (void)state;
    struct tier t;
    struct err e;
    struct cache_lease *l = NULL;
    const struct cache_root root = fake_root("a");
    int32_t other[N_IDS];
    open_world(&t, 400);
    for (int i = 0; i < 6; i++) { /* without mail: nothing is written, nothing goes meanwhile */
        tier_ids(other, N_IDS, 1000 * (i + 2));
        tier_turn(&t, "a", 1, other, N_IDS);
    }
    tier_turn(&t, "a", 1, ids, N_IDS);
    assert_false(cache_has_slack(t.cache));
    tier_settle(&t);
    assert_true(cache_has_slack(t.cache));
    assert_int_equal(cache_lease_open(t.cache, &root, 1, &l, &e), 0);
    assert_false(cache_has_slack(t.cache));
    assert_int_equal(cache_slim(t.cache), 0);
    cache_lease_close(l, NULL, false);
    const struct cache_stats before = tier_stats(&t);
    while (cache_has_slack(t.cache)) {
        (void)cache_slim(t.cache); /* too small for huge pages: nothing goes, all moves */
    }
    fake_check(t.cache);
    assert_int_equal(tier_stats(&t).n_windows, before.n_windows);
    assert_int_equal(tier_stats(&t).bytes_used, before.bytes_used);
    for (int i = 0; i < 6; i++) {
        tier_ids(other, N_IDS, 1000 * (i + 2));
        const struct cache_found f = tier_turn(&t, "a", 1, other, N_IDS);
        assert_int_equal(f.n_tokens, N_IDS - 1);
        assert_int_equal(f.n_disk, 0);
    }
    assert_int_equal(tier_turn(&t, "a", 1, ids, N_IDS + 50).n_tokens, N_IDS);
    close_world(&t);
}

/* ---- at random ---- */

#define N_KNOWN 40

/* Turns that fork anywhere in what was said before, restarts and lost files; the world checks each
 * position and each rule. With room and a disk nothing that was said is computed twice, but for
 * what a block on the disk alone has in front of a fork inside it. */
static void walk(size_t n_blocks, int n_steps, int one_in_lost)
{
    static int32_t known[N_KNOWN][N_IDS];
    static int n_of[N_KNOWN];
    uint64_t rng = the_seed * 0x9e3779b97f4a7c15u + n_blocks;
    int n_known = 0, n_found = 0;
    struct tier t;
    open_world(&t, n_blocks);
    for (int i = 0; i < n_steps; i++) {
        const int at = n_known < N_KNOWN ? n_known++ : fake_below(&rng, N_KNOWN);
        const int from = fake_below(&rng, n_known), most = (int)n_blocks * KV_BLOCK - 40;
        int n_same = from == at ? 0 : fake_below(&rng, n_of[from] + 1);
        n_same = fake_below(&rng, 3) && from != at ? n_of[from] : n_same;
        memmove(known[at], known[from], (size_t)n_same * sizeof *ids);
        int n = n_same + 1 + fake_below(&rng, 200);
        n = n < N_IDS ? n : N_IDS;
        n = n < most ? n : most;
        n_same = n_same < n - 1 ? n_same : n - 1;
        for (int k = n_same; k < n; k++) {
            known[at][k] = fake_below(&rng, 1000000);
        }
        n_of[at] = n;
        const int n_got = tier_turn(&t, "a", (uint64_t)at, known[at], n).n_tokens;
        n_found += n_got;
        if (n_blocks > 2000 && !one_in_lost) {
            assert_true(n_got >= n_same / KV_BLOCK * KV_BLOCK);
        }
        if (!fake_below(&rng, 4)) {
            tier_settle(&t);
        }
        while (!fake_below(&rng, 2) && cache_has_slack(t.cache)) {
            (void)cache_slim(t.cache);
        }
        if (one_in_lost && !fake_below(&rng, one_in_lost)) {
            char path[300];
            tier_path(&t, "a", known[at], n / KV_BLOCK * KV_BLOCK, path, sizeof path);
            (void)!(n < KV_BLOCK ? 0 : fake_below(&rng, 2) ? unlink(path) : truncate(path, 5000));
        }
        if (!fake_below(&rng, 40)) {
            tier_close(&t, 3000);
            tier_open(&t);
        }
    }
    print_message("%zu blocks: %d positions found, %llu files bad\n", n_blocks, n_found,
                  (unsigned long long)tier_stats(&t).n_disk_bad);
    assert_true(n_found > 0);
    close_world(&t);
}

static void with_room_nothing_is_computed_twice(void **state)
{
    (void)state;
    walk(4000, 150, 0);
}

static void with_little_room_nothing_is_wrong(void **state)
{
    (void)state;
    walk(24, 200, 0);
    walk(40, 200, 0);
    walk(60, 150, 5);
    walk(4000, 100, 5);
}

int main(int argc, char **argv)
{
    log_init(LOG_LEVEL_ERROR);
    thread_set_role(THREAD_WORKER);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_on_disk_keeps_its_end_in_ram),
        cmocka_unit_test(a_fork_in_the_middle_is_read_back),
        cmocka_unit_test(a_restart_reads_what_the_end_sees_and_no_more),
        cmocka_unit_test(a_lost_section_is_a_miss),
        cmocka_unit_test(without_a_disk_only_a_lack_of_room_takes_anything),
        cmocka_unit_test(a_thin_chain_is_proven_from_its_beginning),
        cmocka_unit_test(what_moves_together_at_rest_is_found_as_it_was),
        cmocka_unit_test(with_room_nothing_is_computed_twice),
        cmocka_unit_test(with_little_room_nothing_is_wrong),
    };
    the_seed = argc > 1 ? strtoull(argv[1], NULL, 10) : random_u64() % 1000000007u;
    print_message("seed %llu\n", (unsigned long long)the_seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
