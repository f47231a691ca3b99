/*
 * A KV block's file, as pure bytes. No file is opened here.
 *
 *        0   "HEARTHKV"                    magic
 *        8   u32 version                   RECORD_VERSION
 *       12   u32 head bytes                4096
 *       16   root[32]                      decides model, numerics and owner
 *       48   parent[32]                    the block before, or the root
 *       80   u32 count                     1 … 32 positions
 *       84   u32 n_sections                1, or 2: of a model with windowed layers
 *       88   u64 block bytes               of all sections
 *       96   i32 ids[32]                   zero past count
 *      224   section { u32 kind 0 (full), u32 0, u64 offset, u64 bytes, u64 XXH3-64 of its bytes }
 *      256   u64 who, u64 cost_us          for accounts and for the order of victims
 *      272   section { u32 kind 1 (windowed), … }, of 2
 *      304   zeros (of 1 section: from 272)
 *     4088   u64 XXH3-64 of bytes 0 … 4087
 *     4096   the sections one after the other, as they are in memory (a page boundary)
 *
 * Little-endian. Every byte of a file is under one of the checksums. They prove that the file is
 * whole, not who wrote it: for that there are the owner's uid and mode 0600. Each section can be
 * read and proven without the other.
 *
 * The name of a file is the id of its block; the id is computed again from parent and ids, so that
 * a file under another's name is found out. A third kind of section (state) comes with the models
 * that need it: the table has room for 118 more.
 */
#ifndef HEARTH_CACHE_RECORD_H
#define HEARTH_CACHE_RECORD_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"
#include "engine/kv.h"

#define RECORD_VERSION 1u
#define RECORD_HEAD_BYTES 4096u

struct record {
    uint8_t root[HASH_BYTES], parent[HASH_BYTES];
    int32_t ids[KV_BLOCK]; /* [count] */
    int count;             /* 1 … 32 */
    uint64_t who;          /* who computed it first */
    uint64_t cost_us;      /* to compute these positions again */
};

/* Where a block's sections are, or are to be. */
struct record_data {
    unsigned char *full, *window;    /* NULL: not wanted (when reading) */
    size_t full_bytes, window_bytes; /* window_bytes 0: there is one section */
};
static inline size_t record_block_bytes(const struct record_data *d)
{
    return d->full_bytes + d->window_bytes;
}

/* Bytes of a file with a block of block_bytes. */
static inline size_t record_bytes(size_t block_bytes)
{
    return RECORD_HEAD_BYTES + block_bytes;
}

/* The id that this block has, which is its file's name. */
void record_id(const struct record *r, uint8_t ret[HASH_BYTES]);

/* The head of the file: what stands before the sections, both of which are there. */
void record_write(const struct record *r, const struct record_data *data,
                  unsigned char ret_head[RECORD_HEAD_BYTES]);

/* What a file is expected to be. */
struct record_name {
    const uint8_t *root, *id; /* [HASH_BYTES] */
    size_t block_bytes;
};
/* Head and what was read of a file's sections, which must be of these sizes. ERR_CORRUPT with the
 * first thing that is wrong; then *ret is untouched. */
int record_parse(const struct record_name *name, const unsigned char head[RECORD_HEAD_BYTES],
                 const struct record_data *data, struct record *ret, struct err *e) MUST_USE;
/* The same of the head alone, which proves itself: parent and ids give the id. However the block's
 * bytes are in sections. */
int record_parse_head(const struct record_name *name, const unsigned char head[RECORD_HEAD_BYTES],
                      struct record *ret, struct err *e) MUST_USE;

#endif
