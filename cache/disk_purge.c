/* See disk_purge.h. */
#include "cache/disk_purge.h"

#include <stdlib.h>
#include <string.h>

#include "base/sys.h"
#include "cache/disk_file.h"

static int compare(const void *a, const void *b)
{
    const struct purge_block *x = a, *y = b;
    return memcmp(x->id, y->id, HASH_BYTES);
}

int purge_init(struct purge *p, const struct disk_index *x, const struct record *bad,
               size_t block_bytes, struct err *e)
{
    char root[DISK_ROOT_CHARS + 1];
    struct purge_block *v = sys.malloc((x->n_entries + 1) * sizeof *v);
    if (!v) {
        return err_set(e, ERR_NOMEM, "out of memory for a list of %zu blocks", x->n_entries);
    }
    *p = (struct purge){.bad = *bad, .block_bytes = block_bytes, .v = v};
    hex_write(bad->root, DISK_ROOT_CHARS / 2, root);
    for (size_t i = 0; i < x->n_buckets; i++) {
        for (const struct disk_entry *n = x->buckets[i]; n; n = n->hash_next) {
            if (!n->is_bad && strcmp(n->root, root) == 0) {
                v[p->n] = (struct purge_block){.state = PURGE_UNREAD};
                memcpy(v[p->n++].id, n->id, HASH_BYTES);
            }
        }
    }
    qsort(v, p->n, sizeof *v, compare);
    return 0;
}

void purge_done(struct purge *p)
{
    free(p->v);
    *p = (struct purge){0};
}

static struct purge_block *find(const struct purge *p, const uint8_t id[HASH_BYTES])
{
    struct purge_block key;
    memcpy(key.id, id, HASH_BYTES);
    return p->n ? bsearch(&key, p->v, p->n, sizeof *p->v, compare) : NULL;
}

static void read_head(const struct purge *p, int dir, struct purge_block *b)
{
    char root[DISK_ROOT_CHARS + 1];
    struct record r;
    struct err ignored;
    int fd = -1;
    hex_write(p->bad.root, DISK_ROOT_CHARS / 2, root);
    const struct disk_place place = {.dir = dir, .root = root, .id = b->id};
    const struct record_name name = {
        .root = p->bad.root, .id = b->id, .block_bytes = p->block_bytes};
    b->state = PURGE_BAD;
    if (disk_file_open_head(&place, p->block_bytes, &fd, &ignored)) {
        return;
    }
    if (!disk_file_read_head(fd, &name, &r, &ignored)) {
        b->state = PURGE_UNKNOWN;
        b->first_id = r.ids[0];
        memcpy(b->parent, r.parent, HASH_BYTES);
    }
    sys.close(fd);
}

/* Upwards to one whose state is known, then the same way again to tell all of them. */
static void decide(const struct purge *p, struct purge_block *from, const uint8_t bad[HASH_BYTES])
{
    struct purge_block *b = from;
    int state = PURGE_UNKNOWN;
    while (b && state == PURGE_UNKNOWN) {
        if (b->state != PURGE_UNKNOWN) {
            state = b->state;
        } else if (memcmp(b->id, bad, HASH_BYTES) == 0 ||
                   (memcmp(b->parent, p->bad.parent, HASH_BYTES) == 0 &&
                    b->first_id == p->bad.ids[0])) {
            state = PURGE_BAD;
        } else if (memcmp(b->parent, p->bad.root, HASH_BYTES) == 0) {
            state = PURGE_SOUND;
        } else {
            b = find(p, b->parent);
        }
    }
    if (!b) {
        state = PURGE_BAD;
    }
    const struct purge_block *end = b;
    for (b = from; b && b->state == PURGE_UNKNOWN; b = b == end ? NULL : find(p, b->parent)) {
        b->state = state;
    }
}

bool purge_read(struct purge *p, int dir)
{
    uint8_t bad[HASH_BYTES];
    if (p->at < p->n) {
        read_head(p, dir, &p->v[p->at++]);
        return true;
    }
    record_id(&p->bad, bad);
    for (size_t i = 0; i < p->n; i++) {
        decide(p, &p->v[i], bad);
    }
    p->at = 0;
    return false;
}

const uint8_t *purge_next(struct purge *p)
{
    while (p->at < p->n) {
        const struct purge_block *b = &p->v[p->at++];
        if (b->state == PURGE_BAD) {
            return b->id;
        }
    }
    return NULL;
}
