/* The system-call table with the real calls in it. */
#include "base/sys.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* openat is variadic in libc; a pointer to it may not be called with a fixed signature. */
static int real_openat(int dir, const char *path, int flags, mode_t mode)
{
    return openat(dir, path, flags, mode);
}

#define REAL_CALLS                                                                                 \
    {                                                                                              \
        .malloc = malloc, .realloc = realloc, .openat = real_openat, .pread = pread,               \
        .write = write, .pwrite = pwrite, .fsync = fsync, .close = close, .renameat = renameat,    \
        .unlinkat = unlinkat, .fstat = fstat, .fstatat = fstatat, .fstatvfs = fstatvfs,            \
        .mkdirat = mkdirat, .fadvise = posix_fadvise, .mmap = mmap                                 \
    }

struct sys_table sys = REAL_CALLS;

void sys_reset(void)
{
    sys = (struct sys_table)REAL_CALLS;
}
