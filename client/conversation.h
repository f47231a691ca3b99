/*
 * Conversations as the API shows them: what chat, list, show, export and import share.
 */
#ifndef HEARTH_CLIENT_CONVERSATION_H
#define HEARTH_CLIENT_CONVERSATION_H

#include "client/api.h"

/* A conversation object's title: its own, else "(untitled)". Borrowed from j. */
const char *conversation_title(const json *j);
/* The text of an item (message), its content parts joined, appended to b. */
void item_text(const json *item, struct buf *b);

/* All items in order, asked for page by page: on_item for each; a non-zero result ends it. 0 or an
 * exit code. */
int conversation_items(struct client *c, const char *id,
                       int (*on_item)(void *ctx, const json *item), void *ctx);

/*
 * The id that people mean: a whole id, or a unique beginning of one ("conv_3f"), or a number of the
 * list (1 is the newest). *ret is allocated. 0, or an exit code after having said why.
 */
int conversation_resolve(struct client *c, const char *what, char **ret);

/* A page of conversations, newest first: a list object. after may be NULL. 0 or an exit code. */
int conversation_page(struct client *c, int limit, const char *after, json **ret);

/* Local time "2026-01-31 14:05" into ret[20]. */
void format_time(double seconds, char ret[20]);

#endif
