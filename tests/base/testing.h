/*
 * What the tests of base share: cmocka's includes in their order, a seeded generator, and the
 * fault: the system-call table with every call counted, the n-th of which fails.
 */
#ifndef HEARTH_TESTS_BASE_TESTING_H
#define HEARTH_TESTS_BASE_TESTING_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/sys.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

static uint64_t test_random_state;

/* HEARTH_SEED repeats a run. */
static inline void test_seed(void)
{
    const char *given = getenv("HEARTH_SEED");
    test_random_state = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    print_message("HEARTH_SEED=%llu\n", (unsigned long long)test_random_state);
}

/* splitmix64, below `n`. */
static inline uint32_t test_random(uint32_t n)
{
    uint64_t z = test_random_state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (uint32_t)((z ^ z >> 31) % n);
}

/* The call with this number (from 0) fails, -1: none. Counted over all calls of the table. */
static int fault_at = -1, fault_errno = EIO, fault_calls;

static inline bool fault_now(void)
{
    bool now = fault_calls++ == fault_at;
    if (now)
        errno = fault_errno;
    return now;
}

static inline void *fault_malloc(size_t n)
{
    return fault_now() ? NULL : malloc(n);
}

static inline void *fault_realloc(void *p, size_t n)
{
    return fault_now() ? NULL : realloc(p, n);
}

/* Memory only: the n-th allocation fails. */
static inline void fault_memory(int at)
{
    sys_reset();
    fault_at = at;
    fault_calls = 0;
    sys.malloc = fault_malloc;
    sys.realloc = fault_realloc;
}

/* true when the planned fault came; puts the real calls back. */
static inline bool fault_end(void)
{
    sys_reset();
    return fault_calls > fault_at;
}

#endif
