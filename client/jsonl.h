/* Files of JSON lines: what import and replay read. */
#ifndef HEARTH_CLIENT_JSONL_H
#define HEARTH_CLIENT_JSONL_H

#include <stdio.h>

#include "client/client.h"

#define JSONL_LINE_MAX_BYTES ((size_t)256 << 20)
#define EXPORT_VERSION 1 /* of the lines that export writes */

/*
 * on_line for each line that isn't blank, without its end and with its number from 1; a non-zero
 * result ends it. 0, on_line's result, or an exit code after having said why (a line that is too
 * long, a file that can't be read), with `name` and the line.
 */
struct jsonl_reader {
    struct client *client;
    const char *name; /* of the file, for people */
    int (*on_line)(void *ctx, const struct buf *line, int number);
    void *ctx;
};
int jsonl_read(const struct jsonl_reader *r, FILE *in);
/* The same of a path; "-" is stdin. */
int jsonl_read_path(struct jsonl_reader *r, const char *path);

#endif
