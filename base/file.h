/*
 * Files: whole reads with a ceiling, private directories, atomic writes, the lock file.
 */
#ifndef HEARTH_BASE_FILE_H
#define HEARTH_BASE_FILE_H

#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

/* Appends the whole file to `ret` (its ceiling decides: ERR_LIMIT). ERR_NOTFOUND, ERR_IO. */
int file_read(const char *path, struct buf *ret, struct err *e) MUST_USE;

/* Writes under a temporary name beside `path` (mode 0600), fsyncs, renames, fsyncs the directory.
 * After an error the file is the old one, or (when only the last step failed) the whole new one. */
int file_write(const char *path, const void *data, size_t n, struct err *e) MUST_USE;
/* The same without waiting for the disk, which takes a start tens of milliseconds: when the system
 * goes down the file may be empty or wrong afterwards. For caches with a checksum. */
int file_write_unsynced(const char *path, const void *data, size_t n, struct err *e) MUST_USE;

/* Makes `path` and its missing parents, mode 0700. An existing directory must be ours or root's and
 * not writable by others (ERR_INVAL with its mode otherwise). */
int dir_make_private(const char *path, struct err *e) MUST_USE;

/* flock(LOCK_EX | LOCK_NB) on `path`, created 0600 and never unlinked. 0 and the descriptor;
 * ERR_BUSY when another process has it. */
int lock_take(const char *path, int *ret_fd, struct err *e) MUST_USE;
void lock_release(int fd);

#endif
