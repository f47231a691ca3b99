/*
 * The files of the disk tier: their names, and one read, one write, one removal at a time. The disk
 * thread only.
 *
 *     kv/<16 hex of the root>/<2 hex of the id>/<64 hex of the id>.kv
 *
 * Written under a temporary name (.tmp) and renamed, without fsync: what a power cut leaves is
 * found out when it is read. Never written again. Read with suspicion: no link is followed, a FIFO
 * can't block, it must be a regular file of our own and of the exact size; the bytes go into memory
 * by pread, since a mapped file that somebody truncates kills the reader.
 */
#ifndef HEARTH_CACHE_DISK_FILE_H
#define HEARTH_CACHE_DISK_FILE_H

#include "cache/disk_index.h"
#include "cache/record.h"

#define DISK_NAME_BYTES 96 /* of a path below kv/ */

/* A file's place: the directory kv/, and the block. */
struct disk_place {
    int dir;
    const char *root; /* DISK_ROOT_CHARS hex digits */
    const uint8_t *id;
};

void disk_file_name(const struct disk_place *p, const char *ending, char ret[DISK_NAME_BYTES]);

/* A descriptor whose reading ahead has begun, of what is wanted. ERR_NOTFOUND, ERR_CORRUPT (it
 * isn't a file of ours), ERR_BUSY (the system couldn't just now). */
int disk_file_open(const struct disk_place *p, const struct record_data *data, int *ret_fd,
                   struct err *e) MUST_USE;
/* The same without reading ahead. */
int disk_file_open_head(const struct disk_place *p, size_t block_bytes, int *ret_fd,
                        struct err *e) MUST_USE;
/* Reads what is wanted of what was opened, and checks all of that. Doesn't close. ERR_CORRUPT,
 * ERR_BUSY; data then holds rubbish. */
int disk_file_read(int fd, const struct record_name *name, const struct record_data *data,
                   struct record *ret, struct err *e) MUST_USE;
/* Its bytes leave the page cache: they are in our budget now, and once is enough. Takes as long as
 * the read did, so not while somebody waits for the next. */
void disk_file_forget(const struct disk_place *p);
/* The head alone, as record_parse_head. */
int disk_file_read_head(int fd, const struct record_name *name, struct record *ret,
                        struct err *e) MUST_USE;

/* *ret_bytes: what it takes on the disk. ERR_IO: nothing is left of it. ERR_CORRUPT: something that
 * can't be replaced stands under the name. */
int disk_file_write(const struct disk_place *p, const struct record *r,
                    const struct record_data *data, uint64_t *ret_bytes, struct err *e) MUST_USE;

/* ERR_IO: it is still there (a directory, a read-only file system). Not being there is fine. */
int disk_file_remove(const struct disk_place *p, struct err *e) MUST_USE;

/* Small whole files of the tier, below kv/: no fsync either. ERR_IO. */
int disk_file_put(int dir, const char *name, const void *data, size_t n, struct err *e) MUST_USE;

/* Fills the index by the names below kv/, with what each takes and when it was written; removes
 * temporaries, and directories that are empty. Foreign names are left alone. */
int disk_file_scan(int dir, struct disk_index *x, struct err *e) MUST_USE;

#endif
