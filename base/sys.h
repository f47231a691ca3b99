/*
 * The system-call table: every call of ours that touches disk or memory in bulk goes through `sys`,
 * so that tests can make each one fail in turn (sqlite's test_syscall.c). In the programs the table
 * is never changed.
 */
#ifndef HEARTH_BASE_SYS_H
#define HEARTH_BASE_SYS_H

#include <stddef.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>

struct sys_table {
    void *(*malloc)(size_t n);
    void *(*realloc)(void *p, size_t n);
    int (*openat)(int dir, const char *path, int flags, mode_t mode);
    ssize_t (*pread)(int fd, void *p, size_t n, off_t off);
    ssize_t (*write)(int fd, const void *p, size_t n);
    ssize_t (*pwrite)(int fd, const void *p, size_t n, off_t off);
    int (*fsync)(int fd);
    int (*close)(int fd);
    int (*renameat)(int olddir, const char *oldpath, int newdir, const char *newpath);
    int (*unlinkat)(int dir, const char *path, int flags);
    int (*fstat)(int fd, struct stat *st);
    int (*fstatat)(int dir, const char *path, struct stat *st, int flags);
    int (*fstatvfs)(int fd, struct statvfs *st);
    int (*mkdirat)(int dir, const char *path, mode_t mode);
    int (*fadvise)(int fd, off_t off, off_t n, int advice); /* an errno, as posix_fadvise */
    void *(*mmap)(void *addr, size_t n, int prot, int flags, int fd, off_t off);
};

extern struct sys_table sys;

/* Puts the real calls back (tests). */
void sys_reset(void);

#endif
