/* See fake.h. */
#include "tests/cache/fake.h"

#include <stdlib.h>
#include <string.h>

int fake_window, fake_period = 2;

struct kv_pool *fake_pool(size_t n_blocks)
{
    struct kv_shape shape;
    struct kv_pool *pool = NULL;
    struct err e;
    assert_int_equal(kv_shape_init(&shape, KV_F16, 2, 2, 4, &e), 0);
    kv_shape_set_window(&shape, fake_window, fake_period);
    assert_int_equal(kv_pool_new(&shape, n_blocks, &pool, &e), 0);
    return pool;
}

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
    return h ^ (h >> 29);
}

/* The place of element `dim` of a position in K (is_v false) or V. */
static uint16_t *element(const struct kv_shape *s, struct kv_block *b, int lh, bool is_v, int pos,
                         int dim)
{
    const int layer = lh / s->n_kv_heads, head = lh % s->n_kv_heads;
    const size_t at =
        is_v ? kv_v_offset(s, layer, head) + ((size_t)pos * (size_t)s->head_dim + (size_t)dim) * 2
             : kv_k_offset(s, layer, head) + ((size_t)dim * KV_BLOCK + (size_t)pos) * 2;
    unsigned char *section = kv_section(s, b, layer);
    return section ? (uint16_t *)(void *)(section + at) : NULL;
}

enum { WRITE, VERIFY };

static void position(struct kv_block *b, int pos, uint64_t h, int what)
{
    const struct kv_shape *s = kv_pool_shape(b->pool);
    for (int i = 0; i < s->n_layers * s->n_kv_heads * 2 * s->head_dim; i++) {
        const int dim = i % s->head_dim, lh = i / (2 * s->head_dim);
        const bool is_v = i / s->head_dim % 2;
        const uint16_t right = (uint16_t)(mix(h, (uint64_t)i) >> 16);
        uint16_t *place = element(s, b, lh, is_v, pos, dim);
        if (what == WRITE) {
            assert_non_null(place);
            *place = right;
        } else if (place && *place != right) {
            fail_msg("position %d of a block, element %d: %u instead of %u", pos, i, *place, right);
        }
    }
}

static uint64_t hash_ids(uint64_t salt, const int32_t *ids, int n)
{
    uint64_t h = mix(1, salt);
    for (int i = 0; i < n; i++) {
        h = mix(h, (uint64_t)ids[i] + 1);
    }
    return h;
}

/* What the next position sees is there. */
static void verify_window(const struct kv_seq *seq)
{
    const struct kv_shape *s = kv_pool_shape(seq->blocks[0]->pool);
    for (int i = kv_window_from(s, seq->n_tokens); i * KV_BLOCK < seq->n_tokens; i++) {
        assert_true(kv_block_is_whole(seq->blocks[i], s));
        assert_false(seq->blocks[i]->is_raw || seq->blocks[i]->is_window_raw);
    }
}

void fake_compute(struct kv_seq *seq, uint64_t salt, const int32_t *ids, int n)
{
    const int end = seq->n_tokens + n;
    uint64_t h = hash_ids(salt, ids, seq->n_tokens);
    assert_true(end <= kv_seq_capacity(seq));
    if (n > 0) {
        verify_window(seq);
    }
    for (int i = seq->n_tokens; i < end; i++) {
        struct kv_block *b = seq->blocks[i / KV_BLOCK];
        assert_int_equal(b->n_refs, 1); /* only a private block may be written */
        h = mix(h, (uint64_t)ids[i] + 1);
        position(b, i % KV_BLOCK, h, WRITE);
    }
    seq->n_tokens = end;
}

void fake_scribble(struct kv_seq *seq)
{
    for (int i = seq->n_tokens; i < kv_seq_capacity(seq); i++) {
        assert_int_equal(seq->blocks[i / KV_BLOCK]->n_refs, 1);
        position(seq->blocks[i / KV_BLOCK], i % KV_BLOCK, 0xdead, WRITE);
    }
}

void fake_verify(const struct kv_seq *seq, uint64_t salt, const int32_t *ids)
{
    uint64_t h = hash_ids(salt, ids, 0);
    for (int i = 0; i < seq->n_tokens; i++) {
        h = mix(h, (uint64_t)ids[i] + 1);
        position(seq->blocks[i / KV_BLOCK], i % KV_BLOCK, h, VERIFY);
    }
}

void fake_verify_rest(const struct kv_seq *seq)
{
    const int used = seq->n_tokens % KV_BLOCK;
    if (!used) {
        return;
    }
    struct kv_block *b = seq->blocks[seq->n_tokens / KV_BLOCK];
    const struct kv_shape *s = kv_pool_shape(b->pool);
    for (int pos = used; pos < KV_BLOCK; pos++) {
        for (int i = 0; i < s->n_layers * s->n_kv_heads * s->head_dim; i++) {
            const int lh = i / s->head_dim, dim = i % s->head_dim;
            assert_int_equal(*element(s, b, lh, false, pos, dim), 0);
            assert_int_equal(*element(s, b, lh, true, pos, dim), 0);
        }
    }
}

void fake_verify_blank(const struct kv_seq *seq, int n)
{
    fake_verify_rest(seq);
    for (int i = (seq->n_tokens + KV_BLOCK - 1) / KV_BLOCK; i * KV_BLOCK < n; i++) {
        const struct kv_block *b = seq->blocks[i];
        assert_false(b->is_raw);
        const struct kv_shape *s = kv_pool_shape(b->pool);
        assert_true(kv_block_is_whole(b, s) && !b->is_window_raw);
        for (size_t k = 0; k < s->full_bytes; k++) {
            assert_int_equal(b->data[k], 0);
        }
        for (size_t k = 0; k < s->window_bytes; k++) {
            assert_int_equal(b->window[k], 0);
        }
    }
}

void fake_spoil(struct kv_pool *pool)
{
    const struct kv_shape *s = kv_pool_shape(pool);
    struct kv_block **taken = malloc(kv_pool_n_blocks(pool) * sizeof *taken);
    size_t n = 0;
    assert_non_null(taken);
    for (struct kv_block *b; (b = kv_take_raw(pool));) {
        memset(b->data, 0xEE, s->full_bytes);
        if (b->window) {
            memset(b->window, 0xEE, s->window_bytes);
        }
        taken[n++] = b;
    }
    while (n > 0) {
        kv_unref(taken[--n]);
    }
    free(taken);
}

uint64_t fake_salt(const char *owner)
{
    uint64_t h = 1;
    for (size_t i = 0; owner[i]; i++) {
        h = mix(h, (uint64_t)owner[i]);
    }
    return h;
}

struct cache_root fake_root(const char *owner)
{
    static const uint8_t model[HASH_BYTES] = {7};
    struct cache_root root;
    cache_root_of(model, owner, &root);
    return root;
}

uint64_t fake_random(uint64_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return *s;
}

int fake_below(uint64_t *state, int n)
{
    return (int)(fake_random(state) % (uint64_t)n);
}

void fake_check(const struct cache *c)
{
    struct err e;
    if (cache_check(c, &e)) {
        fail_msg("%s", e.text);
    }
}

size_t fake_in_tree(const struct cache *c)
{
    struct cache_stats st;
    cache_stats(c, &st);
    return st.n_blocks + st.n_tails;
}

int fake_turn(struct cache *c, const char *owner, uint64_t who, const int32_t *ids, int n,
              struct cache_lease **ret)
{
    const struct cache_root root = fake_root(owner);
    struct cache_found found;
    struct cache_lease *l = NULL;
    struct err e;
    assert_int_equal(cache_lease_open(c, &root, who, &l, &e), 0);
    assert_int_equal(cache_find(l, ids, n - 1, &found, &e), 0);
    struct kv_seq *seq = cache_lease_seq(l);
    assert_int_equal(seq->n_tokens, found.n_tokens);
    fake_verify(seq, fake_salt(owner), ids);
    fake_verify_rest(seq);
    assert_int_equal(cache_reserve(l, n - seq->n_tokens, &e), 0);
    fake_compute(seq, fake_salt(owner), ids, n - seq->n_tokens);
    assert_int_equal(cache_publish(l, ids, 0, &e), 0);
    fake_verify(seq, fake_salt(owner), ids);
    fake_check(c);
    *ret = l;
    return found.n_tokens;
}

int fake_whole_turn(struct cache *c, const char *owner, uint64_t who, const int32_t *ids, int n)
{
    struct cache_lease *l = NULL;
    const int n_found = fake_turn(c, owner, who, ids, n, &l);
    cache_lease_close(l, ids, true);
    fake_check(c);
    return n_found;
}
