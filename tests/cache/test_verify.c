/* Proof and quarantine: what a probe compares, and who still finds a block that was not right. */
#include "tests/cache/tier.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cache/record.h"

#define N_IDS 200 /* six whole blocks and a tail */

static const uint64_t other_salt = 12345; /* another model's bytes */

static struct cache_piece piece_of(const int32_t *ids, int n_ids, int n_block)
{
    const int left = n_ids - n_block * KV_BLOCK;
    return (struct cache_piece){.n_block = n_block,
                                .count = left < KV_BLOCK ? left : KV_BLOCK,
                                .ids = ids + n_block * KV_BLOCK,
                                .has_file = true};
}

/* Computes block n of ids[0, n_ids), in the lease, again. */
static struct cache_verdicts prove(struct tier *t, struct cache_lease *l, const int32_t *ids,
                                   int n_ids, int n, uint64_t salt)
{
    const struct cache_piece piece = piece_of(ids, n_ids, n);
    struct cache_proof *p = NULL;
    struct cache_verdicts ret;
    struct err e;
    assert_int_equal(cache_proof_open(l, &piece, &p, &e), 0);
    assert_int_equal(cache_proof_seq(p)->n_tokens, n * KV_BLOCK);
    fake_compute(cache_proof_seq(p), salt, ids, piece.count);
    while (cache_proof_is_reading(p)) { /* no checks: the probe has references of its own */
        mailbox_wait(&t->box, -1);
        for (struct mail *m = mailbox_take(&t->box), *next; m; m = next) {
            next = m->next;
            cache_take_mail(t->cache, m);
        }
    }
    cache_proof_close(p, &ret);
    return ret;
}

static void quarantine(struct cache_lease *l, const int32_t *ids, int n_block, size_t n_expected)
{
    const struct cache_piece piece = piece_of(ids, N_IDS, n_block);
    assert_int_equal(cache_quarantine(l, &piece), n_expected);
}

static void a_proof_tells_right_bytes_from_wrong_ones(void **state)
{
    (void)state;
    struct tier t;
    int32_t ids[N_IDS];
    tier_init(&t, 64);
    tier_ids(ids, N_IDS, 0);
    tier_turn(&t, "a", 1, ids, N_IDS);
    struct cache_lease *l = tier_begin(&t, "a", 1, ids, N_IDS - 8);
    assert_int_equal(cache_lease_n_blocks(l), 5);
    for (int n = 0; n < 5; n++) {
        assert_int_equal(prove(&t, l, ids, N_IDS, n, fake_salt("a")).ram, CACHE_SAME);
        assert_int_equal(prove(&t, l, ids, N_IDS, n, other_salt).ram, CACHE_DIFFERENT);
    }
    cache_lease_close(l, NULL, false);
    fake_check(t.cache);
    tier_done(&t);
}

static void a_proof_can_be_given_up(void **state)
{
    (void)state;
    struct tier t;
    struct cache_proof *p = NULL;
    struct err e;
    int32_t ids[N_IDS];
    tier_init(&t, 64);
    tier_ids(ids, N_IDS, 0);
    tier_turn(&t, "a", 1, ids, N_IDS);
    tier_settle(&t);
    struct cache_lease *l = tier_begin(&t, "a", 1, ids, N_IDS);
    const struct cache_piece piece = piece_of(ids, N_IDS, 1);
    assert_int_equal(cache_proof_open(l, &piece, &p, &e), 0);
    assert_true(cache_proof_is_reading(p));
    cache_proof_close(p, NULL); /* its pass was canceled, its file is on the way */
    cache_proof_close(NULL, NULL);
    cache_lease_close(l, NULL, false);
    tier_settle(&t);
    fake_check(t.cache);
    tier_done(&t);
}

static void quarantine_takes_all_that_follows_and_its_files(void **state)
{
    (void)state;
    struct tier t;
    static struct tier_files files;
    const struct cache_root root = fake_root("a");
    int32_t ids[N_IDS], branch[N_IDS];
    tier_init(&t, 64);
    tier_ids(ids, N_IDS, 0);
    tier_ids(branch, N_IDS, 0);
    branch[130] = 7777; /* parts in the fifth block */
    tier_turn(&t, "a", 1, ids, N_IDS);
    tier_turn(&t, "a", 2, branch, N_IDS);
    tier_settle(&t);
    struct cache_lease *l = tier_begin(&t, "a", 1, ids, N_IDS);
    quarantine(l, ids, 2, 2 + 2 + 2 + 2); /* and two tails */
    assert_int_equal(cache_peek(t.cache, &root, ids, N_IDS), 64);
    fake_check(t.cache);
    cache_lease_close(l, NULL, false);
    fake_check(t.cache);
    assert_int_equal(fake_in_tree(t.cache), 2);
    tier_sync(&t);
    tier_files(&t, &files);
    assert_int_equal(files.n, 2 + 1); /* tier_sync's own */
    assert_int_equal(tier_turn(&t, "a", 1, ids, N_IDS).n_tokens, 64); /* computed anew */
    tier_settle(&t);
    tier_restart(&t);
    assert_int_equal(tier_turn(&t, "a", 1, ids, N_IDS).n_disk, 192);
    tier_done(&t);
}

static void a_running_turn_keeps_its_blocks_and_spreads_nothing(void **state)
{
    (void)state;
    struct tier t;
    struct err e;
    const struct cache_root root = fake_root("a");
    int32_t ids[N_IDS];
    tier_init(&t, 64);
    tier_ids(ids, N_IDS, 0);
    tier_turn(&t, "a", 1, ids, 100);
    struct cache_lease *running = NULL, *sound = NULL, *l = NULL;
    assert_int_equal(fake_turn(t.cache, "a", 1, ids, 130, &running), 100);
    l = tier_begin(&t, "a", 1, ids, 100);
    quarantine(l, ids, 1, 3);
    cache_lease_close(l, NULL, false);
    fake_check(t.cache);
    fake_verify(cache_lease_seq(running), fake_salt("a"), ids);
    /* The one goes on, and publishes what nobody finds; another computes the same, which stays its
     * own while the bad one is held. */
    assert_int_equal(cache_reserve(running, 70, &e), 0);
    fake_compute(cache_lease_seq(running), fake_salt("a"), ids, 70);
    assert_int_equal(cache_publish(running, ids, 0, &e), 0);
    assert_int_equal(cache_peek(t.cache, &root, ids, N_IDS), 32);
    assert_int_equal(fake_turn(t.cache, "a", 2, ids, 150, &sound), 32);
    fake_check(t.cache);
    assert_int_equal(cache_peek(t.cache, &root, ids, N_IDS), 32);
    cache_lease_close(running, ids, true);
    fake_check(t.cache);
    cache_lease_close(sound, ids, true);
    fake_check(t.cache);
    assert_int_equal(cache_peek(t.cache, &root, ids, N_IDS), 150);
    tier_sync(&t);
    tier_done(&t);
}

static void restorable_counts_what_the_disk_has_behind_the_path(void **state)
{
    (void)state;
    struct tier t;
    struct err e;
    const struct cache_root root = fake_root("a");
    struct cache_lease *l = NULL;
    int32_t ids[N_IDS];
    tier_init(&t, 64);
    tier_ids(ids, N_IDS, 0);
    tier_turn(&t, "a", 1, ids, N_IDS);
    tier_settle(&t);
    tier_restart(&t);
    assert_int_equal(cache_lease_open(t.cache, &root, 1, &l, &e), 0);
    assert_int_equal(cache_restorable(l, ids, N_IDS), 192);
    assert_int_equal(cache_restorable(l, ids, 95), 64);
    assert_int_equal(cache_restorable(l, ids + 1, N_IDS - 1), 0);
    cache_lease_close(l, NULL, false);
    tier_done(&t);
}

/* ---- files ---- */

/* Changes a byte of a block's file, and its checksums. */
static void tamper(const struct tier *t, const int32_t *ids, int n_ids, size_t at)
{
    char path[200];
    unsigned char file[RECORD_HEAD_BYTES + 2048], *data = file + RECORD_HEAD_BYTES;
    struct record r = {0};
    uint8_t id[16 * HASH_BYTES];
    struct err e;
    const struct cache_root root = fake_root("a");
    const size_t n = cache_chain(&root, ids, (size_t)n_ids, id, 16);
    tier_path(t, "a", ids, n_ids, path, sizeof path);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fread(file, 1, sizeof file, f), sizeof file);
    const struct record_name name = {
        .root = root.id, .id = id + (n - 1) * HASH_BYTES, .block_bytes = 2048};
    const struct record_data d = {.full = data, .full_bytes = 2048};
    assert_int_equal(record_parse(&name, file, &d, &r, &e), 0);
    data[at] ^= 1;
    record_write(&r, &d, file);
    rewind(f);
    assert_int_equal(fwrite(file, 1, sizeof file, f), sizeof file);
    assert_int_equal(fclose(f), 0);
}

static bool has_file(const struct tier *t, const int32_t *ids, int n_ids)
{
    char path[200];
    tier_path(t, "a", ids, n_ids, path, sizeof path);
    FILE *f = fopen(path, "rb");
    if (f) {
        fclose(f);
    }
    return f != NULL;
}

static void tails_are_proven_in_ram_and_on_disk(void **state)
{
    (void)state;
    struct tier t;
    int32_t ids[N_IDS];
    tier_init(&t, 64);
    t.tail_idle_ms = 0;
    tier_restart(&t);
    tier_ids(ids, N_IDS, 0);
    tier_turn(&t, "a", 1, ids, N_IDS);
    tier_settle(&t);
    struct cache_lease *l = tier_begin(&t, "a", 1, ids, 193);
    assert_int_equal(cache_lease_n_blocks(l), 6);
    struct cache_verdicts v = prove(&t, l, ids, N_IDS, 6, fake_salt("a"));
    assert_int_equal(v.ram, CACHE_SAME);
    assert_int_equal(v.disk, CACHE_SAME);
    v = prove(&t, l, ids, N_IDS, 6, other_salt);
    assert_int_equal(v.ram, CACHE_DIFFERENT);
    assert_int_equal(v.disk, CACHE_DIFFERENT);
    tamper(&t, ids, N_IDS, 2047); /* past its eight positions */
    v = prove(&t, l, ids, N_IDS, 6, fake_salt("a"));
    assert_int_equal(v.ram, CACHE_SAME);
    assert_int_equal(v.disk, CACHE_DIFFERENT);
    v = prove(&t, l, ids, N_IDS - 1, 6, fake_salt("a")); /* no such tail */
    assert_int_equal(v.ram, CACHE_ABSENT);
    assert_int_equal(v.disk, CACHE_ABSENT);
    cache_lease_close(l, NULL, false);
    tier_done(&t);
}

static void a_tail_that_only_the_disk_has_is_proven_and_removed(void **state)
{
    (void)state;
    struct tier t;
    int32_t ids[N_IDS];
    tier_init(&t, 64);
    t.tail_idle_ms = 0;
    tier_restart(&t);
    tier_ids(ids, N_IDS, 0);
    tier_turn(&t, "a", 1, ids, N_IDS);
    tier_settle(&t);
    tier_restart(&t);
    tamper(&t, ids, N_IDS, 7);
    struct cache_lease *l = tier_begin(&t, "a", 1, ids, 193);
    tier_settle(&t);
    const struct cache_verdicts v = prove(&t, l, ids, N_IDS, 6, fake_salt("a"));
    assert_int_equal(v.ram, CACHE_ABSENT);
    assert_int_equal(v.disk, CACHE_DIFFERENT);
    quarantine(l, ids, 6, 0);
    cache_lease_close(l, NULL, false);
    tier_sync(&t);
    assert_false(has_file(&t, ids, N_IDS));
    assert_true(has_file(&t, ids, 192));
    tier_done(&t);
}

static void a_file_that_alone_is_wrong_is_written_again(void **state)
{
    (void)state;
    struct tier t;
    int32_t ids[N_IDS];
    tier_init(&t, 64);
    tier_ids(ids, N_IDS, 0);
    tier_turn(&t, "a", 1, ids, N_IDS);
    tier_settle(&t);
    struct cache_lease *l = tier_begin(&t, "a", 1, ids, N_IDS);
    tamper(&t, ids, 96, 7);
    struct cache_verdicts v = prove(&t, l, ids, N_IDS, 2, fake_salt("a"));
    assert_int_equal(v.ram, CACHE_SAME);
    assert_int_equal(v.disk, CACHE_DIFFERENT);
    const struct cache_piece piece = piece_of(ids, N_IDS, 2);
    cache_discard_file(l, &piece);
    tier_settle(&t);
    fake_check(t.cache);
    v = prove(&t, l, ids, N_IDS, 2, fake_salt("a"));
    assert_int_equal(v.ram, CACHE_SAME);
    assert_int_equal(v.disk, CACHE_SAME);
    cache_lease_close(l, NULL, false);
    tier_restart(&t);
    assert_int_equal(tier_turn(&t, "a", 1, ids, N_IDS).n_disk, 192);
    tier_done(&t);
}

static void memory_that_changed_under_us_is_found(void **state)
{
    (void)state;
    struct tier t;
    int32_t ids[N_IDS];
    tier_init(&t, 64);
    tier_ids(ids, N_IDS, 0);
    tier_turn(&t, "a", 1, ids, N_IDS);
    tier_settle(&t);
    struct cache_lease *l = tier_begin(&t, "a", 1, ids, N_IDS);
    cache_lease_seq(l)->blocks[1]->data[9] ^= 4;
    struct cache_verdicts v = prove(&t, l, ids, N_IDS, 1, fake_salt("a"));
    assert_int_equal(v.ram, CACHE_DIFFERENT);
    assert_int_equal(v.disk, CACHE_SAME);
    cache_lease_close(l, NULL, false);
    tier_done(&t);
}

/* ---- what quarantine must reach ---- */

static void branches_that_only_the_disk_has_go_too(void **state)
{
    (void)state;
    struct tier t;
    static struct tier_files files;
    int32_t ids[N_IDS], branch[N_IDS], other[N_IDS];
    tier_init(&t, 64);
    tier_ids(ids, N_IDS, 0);
    tier_ids(branch, N_IDS, 0);
    tier_ids(other, N_IDS, 0);
    branch[130] = 7777; /* parts in the fifth block, behind the bad one */
    other[64] = 8888;   /* begins otherwise than the bad one */
    tier_turn(&t, "a", 1, ids, 192);
    tier_turn(&t, "a", 2, branch, 192);
    tier_turn(&t, "a", 3, other, 192);
    tier_settle(&t);
    tier_restart(&t);
    struct cache_lease *l = tier_begin(&t, "a", 1, ids, 100); /* three blocks in RAM */
    tier_settle(&t);
    quarantine(l, ids, 2, 1);
    cache_lease_close(l, NULL, false);
    tier_sync(&t);
    tier_files(&t, &files);
    assert_int_equal(files.n, 2 + 4 + 1); /* before it, beside it, and tier_sync's own */
    assert_int_equal(tier_turn(&t, "a", 1, branch, N_IDS).n_tokens, 64);
    assert_int_equal(tier_turn(&t, "a", 1, other, N_IDS).n_tokens, 192);
    tier_done(&t);
}

static void reads_under_way_bring_nothing_back(void **state)
{
    (void)state;
    struct tier t;
    const struct cache_root root = fake_root("a");
    int32_t ids[N_IDS];
    tier_init(&t, 64);
    tier_ids(ids, N_IDS, 0);
    tier_turn(&t, "a", 1, ids, 192);
    tier_settle(&t);
    tier_restart(&t);
    struct cache_lease *a = tier_begin(&t, "a", 1, ids, 192);
    struct cache_lease *b = tier_begin(&t, "a", 2, ids, 192);
    struct mail *m = NULL, *next;
    while (cache_is_restoring(a)) { /* its five reads stand before those of b */
        m = m ? m : (mailbox_wait(&t.box, -1), mailbox_take(&t.box));
        next = m->next;
        cache_take_mail(t.cache, m);
        m = next;
    }
    quarantine(a, ids, 2, 3);
    cache_lease_close(a, NULL, false);
    fake_check(t.cache);
    for (; m; m = next) {
        next = m->next;
        cache_take_mail(t.cache, m);
    }
    tier_settle(&t);
    fake_check(t.cache);
    assert_false(cache_is_restoring(b));
    assert_int_equal(cache_lease_seq(b)->n_tokens, 64);
    assert_int_equal(cache_peek(t.cache, &root, ids, 192), 64);
    cache_lease_close(b, NULL, false);
    tier_sync(&t);
    assert_false(has_file(&t, ids, 96));
    tier_done(&t);
}

static void writes_under_way_are_never_found(void **state)
{
    (void)state;
    struct tier t;
    struct err e;
    const struct cache_root root = fake_root("a");
    int32_t ids[N_IDS];
    for (int round = 0; round < 20; round++) {
        struct cache_lease *l = NULL;
        tier_init(&t, 64);
        tier_ids(ids, N_IDS, 0);
        tier_turn(&t, "a", 1, ids, 192); /* its writes have been sent */
        l = tier_begin(&t, "a", 1, ids, 193);
        quarantine(l, ids, 2, 4);
        cache_lease_close(l, NULL, false);
        for (int i = 0; i < 50; i++) {
            assert_int_equal(cache_lease_open(t.cache, &root, 1, &l, &e), 0);
            assert_true(cache_restorable(l, ids, 192) <= 64);
            cache_lease_close(l, NULL, false);
        }
        tier_settle(&t);
        tier_sync(&t);
        assert_true(has_file(&t, ids, 64));
        assert_false(has_file(&t, ids, 96));
        assert_false(has_file(&t, ids, 192));
        tier_done(&t);
    }
}

static void copies_of_a_bad_block_are_not_shared(void **state)
{
    (void)state;
    struct tier t;
    struct err e;
    struct cache_found found;
    const struct cache_root root = fake_root("a");
    struct cache_lease *copy = NULL;
    int32_t ids[N_IDS], branch[N_IDS];
    tier_init(&t, 64);
    tier_ids(ids, N_IDS, 0);
    tier_ids(branch, N_IDS, 0);
    branch[40] = 7777;
    tier_turn(&t, "a", 1, ids, 100);
    assert_int_equal(cache_lease_open(t.cache, &root, 2, &copy, &e), 0);
    assert_int_equal(cache_find(copy, branch, 150, &found, &e), 0);
    assert_int_equal(found.n_tokens, 40); /* eight of them by copy */
    struct cache_lease *l = tier_begin(&t, "a", 1, ids, 100);
    quarantine(l, ids, 1, 3);
    cache_lease_close(l, NULL, false);
    assert_int_equal(cache_reserve(copy, 110, &e), 0);
    fake_compute(cache_lease_seq(copy), fake_salt("a"), branch + 40, 110);
    assert_int_equal(cache_publish(copy, branch, 0, &e), 0);
    cache_lease_close(copy, branch, true);
    fake_check(t.cache);
    assert_int_equal(cache_peek(t.cache, &root, branch, 150), 32);
    tier_done(&t);
}

int main(void)
{
    log_init(LOG_LEVEL_ERROR);
    thread_set_role(THREAD_WORKER);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_proof_tells_right_bytes_from_wrong_ones),
        cmocka_unit_test(a_proof_can_be_given_up),
        cmocka_unit_test(quarantine_takes_all_that_follows_and_its_files),
        cmocka_unit_test(a_running_turn_keeps_its_blocks_and_spreads_nothing),
        cmocka_unit_test(restorable_counts_what_the_disk_has_behind_the_path),
        cmocka_unit_test(tails_are_proven_in_ram_and_on_disk),
        cmocka_unit_test(a_tail_that_only_the_disk_has_is_proven_and_removed),
        cmocka_unit_test(a_file_that_alone_is_wrong_is_written_again),
        cmocka_unit_test(memory_that_changed_under_us_is_found),
        cmocka_unit_test(branches_that_only_the_disk_has_go_too),
        cmocka_unit_test(reads_under_way_bring_nothing_back),
        cmocka_unit_test(writes_under_way_are_never_found),
        cmocka_unit_test(copies_of_a_bad_block_are_not_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
