/* A KV block's file, as pure bytes. See record.h. */
#include "cache/record.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "base/sum.h"
#include "cache/tree.h"

enum {
    AT_VERSION = 8,
    AT_HEAD = 12,
    AT_ROOT = 16,
    AT_PARENT = 48,
    AT_COUNT = 80,
    AT_SECTIONS = 84,
    AT_BLOCK = 88,
    AT_IDS = 96,
    AT_SECTION = 224,
    AT_WHO = 256,
    AT_COST = 264,
    AT_WINDOW = 272,
    AT_SUM = 4088,
    SECTION_BYTES = 32,
};
#define SECTION_FULL 0u
#define SECTION_WINDOW 1u

static const char magic[8] = {'H', 'E', 'A', 'R', 'T', 'H', 'K', 'V'};

static void put(unsigned char *p, uint64_t v, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++) {
        p[i] = (unsigned char)(v >> (8 * i));
    }
}

static uint64_t get(const unsigned char *p, int n_bytes)
{
    uint64_t v = 0;
    for (int i = n_bytes; i-- > 0;) {
        v = v << 8 | p[i];
    }
    return v;
}

void record_id(const struct record *r, uint8_t ret[HASH_BYTES])
{
    tree_id(r->parent, r->ids, r->count, ret);
}

struct section {
    uint32_t kind;
    uint64_t offset, n_bytes, sum;
};

static void put_section(unsigned char *p, const struct section *s)
{
    put(p, s->kind, 4);
    put(p + 8, s->offset, 8);
    put(p + 16, s->n_bytes, 8);
    put(p + 24, s->sum, 8);
}

static bool has_section(const unsigned char *p, const struct section *s)
{
    return get(p, 4) == s->kind && get(p + 4, 4) == 0 && get(p + 8, 8) == s->offset &&
           get(p + 16, 8) == s->n_bytes;
}

void record_write(const struct record *r, const struct record_data *d,
                  unsigned char h[RECORD_HEAD_BYTES])
{
    const struct section full = {.kind = SECTION_FULL,
                                 .offset = RECORD_HEAD_BYTES,
                                 .n_bytes = d->full_bytes,
                                 .sum = sum_of(d->full, d->full_bytes)};
    assert(r->count >= 1 && r->count <= KV_BLOCK);
    memset(h, 0, RECORD_HEAD_BYTES);
    memcpy(h, magic, sizeof magic);
    put(h + AT_VERSION, RECORD_VERSION, 4);
    put(h + AT_HEAD, RECORD_HEAD_BYTES, 4);
    memcpy(h + AT_ROOT, r->root, HASH_BYTES);
    memcpy(h + AT_PARENT, r->parent, HASH_BYTES);
    put(h + AT_COUNT, (uint64_t)r->count, 4);
    put(h + AT_SECTIONS, d->window_bytes > 0 ? 2 : 1, 4);
    put(h + AT_BLOCK, record_block_bytes(d), 8);
    for (int i = 0; i < r->count; i++) {
        put(h + AT_IDS + 4 * i, (uint32_t)r->ids[i], 4);
    }
    put_section(h + AT_SECTION, &full);
    if (d->window_bytes > 0) {
        put_section(h + AT_WINDOW,
                    &(struct section){.kind = SECTION_WINDOW,
                                      .offset = RECORD_HEAD_BYTES + d->full_bytes,
                                      .n_bytes = d->window_bytes,
                                      .sum = sum_of(d->window, d->window_bytes)});
    }
    put(h + AT_WHO, r->who, 8);
    put(h + AT_COST, r->cost_us, 8);
    put(h + AT_SUM, sum_of(h, AT_SUM), 8);
}

/* One section of all bytes, or two in a row. */
static bool check_sections(const unsigned char *h, size_t block_bytes)
{
    const uint64_t n = get(h + AT_SECTIONS, 4), n_full = get(h + AT_SECTION + 16, 8);
    struct section s = {
        .kind = SECTION_FULL, .offset = RECORD_HEAD_BYTES, .n_bytes = n_full};
    if ((n != 1 && n != 2) || get(h + AT_BLOCK, 8) != block_bytes ||
        !has_section(h + AT_SECTION, &s) || n_full > block_bytes) {
        return false;
    }
    if (n == 1) {
        return n_full == block_bytes;
    }
    s = (struct section){.kind = SECTION_WINDOW,
                         .offset = RECORD_HEAD_BYTES + n_full,
                         .n_bytes = block_bytes - n_full};
    return s.n_bytes > 0 && has_section(h + AT_WINDOW, &s);
}

/* Whether the numbers of the head are those of this version and this model. */
static int check_shape(const unsigned char *h, size_t block_bytes, struct err *e)
{
    if (memcmp(h, magic, sizeof magic) != 0) {
        return err_set(e, ERR_CORRUPT, "it doesn't begin as a KV block's file");
    }
    if (get(h + AT_SUM, 8) != sum_of(h, AT_SUM)) {
        return err_set(e, ERR_CORRUPT, "the checksum of its head is wrong");
    }
    if (get(h + AT_VERSION, 4) != RECORD_VERSION || get(h + AT_HEAD, 4) != RECORD_HEAD_BYTES) {
        return err_set(e, ERR_CORRUPT, "its version is %u, this program's is %u",
                       (unsigned)get(h + AT_VERSION, 4), RECORD_VERSION);
    }
    if (!check_sections(h, block_bytes)) {
        return err_set(e, ERR_CORRUPT, "its block has %llu bytes in %u sections, this model's %zu",
                       (unsigned long long)get(h + AT_BLOCK, 8), (unsigned)get(h + AT_SECTIONS, 4),
                       block_bytes);
    }
    const uint64_t count = get(h + AT_COUNT, 4);
    if (count < 1 || count > KV_BLOCK) {
        return err_set(e, ERR_CORRUPT, "it counts %u positions", (unsigned)count);
    }
    for (const unsigned char *p = h + AT_IDS + 4 * count; p < h + AT_SECTION; p++) {
        if (*p) {
            return err_set(e, ERR_CORRUPT, "it has ids past its %u positions", (unsigned)count);
        }
    }
    const unsigned char *rest =
        h + AT_WINDOW + (get(h + AT_SECTIONS, 4) == 2 ? SECTION_BYTES : 0);
    for (const unsigned char *p = rest; p < h + AT_SUM; p++) {
        if (*p) {
            return err_set(e, ERR_CORRUPT, "the rest of its head isn't empty");
        }
    }
    return 0;
}

int record_parse_head(const struct record_name *name, const unsigned char h[RECORD_HEAD_BYTES],
                      struct record *ret, struct err *e)
{
    uint8_t id[HASH_BYTES];
    struct record r = {0};
    const int rc = check_shape(h, name->block_bytes, e);
    if (rc) {
        return rc;
    }
    memcpy(r.root, h + AT_ROOT, HASH_BYTES);
    memcpy(r.parent, h + AT_PARENT, HASH_BYTES);
    r.count = (int)get(h + AT_COUNT, 4);
    for (int i = 0; i < r.count; i++) {
        r.ids[i] = (int32_t)(uint32_t)get(h + AT_IDS + 4 * i, 4);
    }
    r.who = get(h + AT_WHO, 8);
    r.cost_us = get(h + AT_COST, 8);
    record_id(&r, id);
    if (memcmp(id, name->id, HASH_BYTES) != 0) {
        return err_set(e, ERR_CORRUPT, "it holds another block than its name says");
    }
    if (memcmp(r.root, name->root, HASH_BYTES) != 0) {
        return err_set(e, ERR_CORRUPT, "it is of another model or owner");
    }
    *ret = r;
    return 0;
}

/* Of a section that was read. */
static bool is_intact(const unsigned char *section, const unsigned char *data, size_t n_bytes)
{
    return !data || get(section + 24, 8) == sum_of(data, n_bytes);
}

int record_parse(const struct record_name *name, const unsigned char h[RECORD_HEAD_BYTES],
                 const struct record_data *d, struct record *ret, struct err *e)
{
    struct record r;
    const int rc = record_parse_head(name, h, &r, e);
    if (rc) {
        return rc;
    }
    if (get(h + AT_SECTION + 16, 8) != d->full_bytes) {
        return err_set(e, ERR_CORRUPT, "its full layers have %llu bytes, this model's %zu",
                       (unsigned long long)get(h + AT_SECTION + 16, 8), d->full_bytes);
    }
    if (!is_intact(h + AT_SECTION, d->full, d->full_bytes) ||
        (d->window_bytes > 0 && !is_intact(h + AT_WINDOW, d->window, d->window_bytes))) {
        return err_set(e, ERR_CORRUPT, "the checksum of its block is wrong");
    }
    *ret = r;
    return 0;
}
