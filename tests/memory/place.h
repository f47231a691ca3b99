/*
 * What the tests of memory share: a directory of their own with an open history in it, short ways
 * to fill it, and a look at its files' bytes.
 */
#ifndef HEARTH_TESTS_MEMORY_PLACE_H
#define HEARTH_TESTS_MEMORY_PLACE_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "memory/memory.h"

#define OWNER "uid:1000"
#define OTHER "key:bob"

struct place {
    char dir[64], path[96];
    struct memory *m; /* or NULL */
    struct arena a;
    struct err e;
};

extern struct place here;

int place_make(void **state);       /* setup: a directory and an open history */
int place_remove(void **state);     /* teardown */
int place_make_empty(void **state); /* setup: the directory alone */

void place_open(void);
void place_close(void);
void place_reopen(void);
/* The expected error code of opening. */
void place_refused(int code);

struct memory_conversation add_conversation(void);
/* A user's message, or an answer that is complete, at the end of the conversation (parent -1) or
 * under a row. */
struct memory_message add_message(int64_t conversation, int64_t parent, enum memory_role role,
                                  const char *text);
/* An answer that is being written. */
struct memory_message begin_answer(int64_t conversation, int64_t parent, const char *model);
struct memory_conversation get_conversation(const char *id);
/* The path to tip, its texts joined by '|', in the arena. */
const char *path_text(int64_t tip);
/* The same for a page. */
const char *page_text(int64_t conversation, const char *after, int limit, bool is_ascending,
                      bool *ret_more);

/* Whether any of history.db, -wal, -shm holds the bytes. */
bool files_hold(const char *word);
/* A hash of history.db and -wal together, and which of them exist. */
void files_hash(uint8_t ret[HASH_BYTES]);
void file_put(const char *path, const void *data, size_t n);
size_t file_get(const char *path, char **ret); /* caller frees; 0 and NULL when absent */

#define ASSERT_OK(call)                                                                            \
    do {                                                                                           \
        here.e = (struct err){0};                                                                  \
        int rc_ = (call);                                                                          \
        if (rc_ != 0)                                                                              \
            fail_msg("%s: %d %s", #call, rc_, here.e.text);                                        \
    } while (0)
#define ASSERT_ERR(call, want)                                                                     \
    do {                                                                                           \
        here.e = (struct err){0};                                                                  \
        assert_int_equal((call), (want));                                                          \
        assert_int_equal(here.e.code, (want));                                                     \
        assert_true(here.e.text[0] != '\0');                                                       \
    } while (0)

#endif
