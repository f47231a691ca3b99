/* What http.c makes of some bytes, as text, to be compared: one line a step. */
#ifndef HEARTH_TESTS_DAEMON_HTTP_RECORD_H
#define HEARTH_TESTS_DAEMON_HTTP_RECORD_H

#include <stddef.h>

#include "base/buf.h"
#include "daemon/http.h"

/* Pushes data in pieces: cut(ctx) says how long the next one is (at least 1). NULL: in one piece.
 * Bodies are skipped after heads whose path is "/skip". */
void http_record(const struct http_limits *limits, const char *data, size_t n,
                 size_t (*cut)(void *ctx), void *ctx, struct buf *ret);

#endif
