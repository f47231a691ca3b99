/*
 * What a turn of /v1/responses carries beyond struct turn: the request's fields that its reply
 * repeats. Hangs on turn.api, in the turn's arena.
 */
#ifndef HEARTH_DAEMON_RESPONSE_H
#define HEARTH_DAEMON_RESPONSE_H

#include "base/json.h"
#include "daemon/turn.h"

struct response {
    const char *conversation;      /* its id, or NULL */
    const char *previous;          /* previous_response_id, or NULL */
    const char *instructions;      /* or NULL */
    const char *metadata;          /* JSON text, or NULL */
    bool is_stored;                /* `store` */
    char item_id[MEMORY_ID_BYTES]; /* of the output message */
};

/* The response object as it stands; with `has_output` the message is in it, else output is [].
 * Caller owns; NULL: no memory. */
json *response_json(const struct turn *t, bool has_output);

#endif
