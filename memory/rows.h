/* Lists of message rows, as a blob and on the way up a path. Of this room alone. */
#ifndef HEARTH_MEMORY_ROWS_H
#define HEARTH_MEMORY_ROWS_H

#include "memory/internal.h"
#include "memory/window.h"

#define ROWS_MAX 65536 /* of one blob */

/* As a blob: int64 each, little-endian, ascending. A sorted copy in the arena; ERR_LIMIT. */
int rows_sort(const struct memory_rows *rows, struct memory_rows *ret, struct arena *a,
              struct err *e) MUST_USE;
void rows_bind(struct stmt *s, int i, const struct memory_rows *sorted);
int rows_read(struct stmt *s, int column, struct memory_rows *ret, struct arena *a,
              struct err *e) MUST_USE;
/* In an ascending list. */
bool rows_hold(const struct memory_rows *sorted, int64_t row);

/*
 * A path that is walked as far as anybody asks: rows[0] is the tip, parents follow, so that rows
 * fall. `next` is the row that would be walked next; 0: the root was reached.
 */
struct path {
    int64_t *rows; /* [n], in the arena */
    size_t n, cap;
    int64_t next;
};
/* Walks on while rows are >= `first`; ERR_LIMIT once there are more than max. */
int path_walk(struct memory *m, struct path *p, int64_t first, size_t max, struct arena *a,
              struct err *e) MUST_USE;
/* 1: the row lies on the path; 0: it doesn't. */
int path_holds(struct memory *m, struct path *p, int64_t row, struct arena *a,
               struct err *e) MUST_USE;

#endif
