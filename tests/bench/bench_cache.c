/*
 * What the prefix cache costs beside a pass of the model, at 10,000 blocks. Not in the suite: it
 * prints, and asserts nothing on speed.
 *
 *     ninja tests/bench/bench_cache && tests/bench/bench_cache [blocks]
 *
 * Blocks are as small as a shape allows, so that the copying of positions (memcpy of what the model
 * makes them) stays out of the figures.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "cache/cache.h"

#define CONVERSATION 1600 /* positions: 50 blocks */
#define SYSTEM 320        /* of these, shared by all */

static void die(const struct err *e)
{
    fprintf(stderr, "bench_cache: %s\n", e->text);
    exit(1);
}

static void make_ids(int32_t *ids, int conversation)
{
    for (int i = 0; i < CONVERSATION; i++) {
        ids[i] = i < SYSTEM ? i : i + conversation * 100000;
    }
}

/* One turn over all ids, its pass the commit of a number. Adds to the times spent in each call. */
static void turn(struct cache *c, const struct cache_root *root, const int32_t *ids, int64_t us[4])
{
    struct cache_lease *l = NULL;
    struct cache_found found;
    struct err e;
    int64_t t[5];

    if (cache_lease_open(c, root, 1, &l, &e)) {
        die(&e);
    }
    struct kv_seq *s = cache_lease_seq(l);
    t[0] = clock_us();
    if (cache_find(l, ids, CONVERSATION - 1, &found, &e)) {
        die(&e);
    }
    t[1] = clock_us();
    if (cache_reserve(l, CONVERSATION - s->n_tokens, &e)) {
        die(&e);
    }
    t[2] = clock_us();
    s->n_tokens = CONVERSATION;
    if (cache_publish(l, ids, 100, &e)) {
        die(&e);
    }
    t[3] = clock_us();
    cache_lease_close(l, ids, true);
    t[4] = clock_us();
    for (int i = 0; i < 4; i++) {
        us[i] += t[i + 1] - t[i];
    }
}

static void round_of(struct cache *c, const char *name, int first, int n)
{
    static const uint8_t model[HASH_BYTES];
    static int32_t ids[CONVERSATION];
    struct cache_root root;
    struct cache_stats st;
    int64_t us[4] = {0};

    cache_root_of(model, "uid:0", &root);
    for (int i = 0; i < n; i++) {
        make_ids(ids, first + i);
        turn(c, &root, ids, us);
    }
    cache_stats(c, &st);
    printf("%-28s %6zu blocks, a turn of %d positions: find %.1f us, reserve %.1f, publish %.1f, "
           "close %.1f\n",
           name, st.n_blocks, CONVERSATION, (double)us[0] / n, (double)us[1] / n, (double)us[2] / n,
           (double)us[3] / n);
}

int main(int argc, char **argv)
{
    const size_t n_blocks = argc > 1 ? strtoull(argv[1], NULL, 10) : 10000;
    const int n = (int)(n_blocks / (CONVERSATION / KV_BLOCK));
    struct kv_shape shape;
    struct kv_pool *pool = NULL;
    struct cache *c = NULL;
    struct err e;

    if (kv_shape_init(&shape, KV_F16, 1, 1, 1, &e) || kv_pool_new(&shape, n_blocks, &pool, &e) ||
        cache_new(pool, &c, &e)) {
        die(&e);
    }
    round_of(c, "cold, filling up", 0, n);
    round_of(c, "warm: the same again", 0, n);
    round_of(c, "cold, evicting as it goes", n, 4 * n);
    cache_free(c);
    kv_pool_free(pool);
    return 0;
}
