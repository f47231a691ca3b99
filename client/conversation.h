/*
 * Conversations as the API shows them: what chat, list, show, delete, export and import share.
 */
#ifndef HEARTH_CLIENT_CONVERSATION_H
#define HEARTH_CLIENT_CONVERSATION_H

#include "client/api.h"

/* A conversation object's title: metadata.title, else the daemon's, else "(untitled)". Borrowed. */
const char *conversation_title(const json *j);
/* The text of an item (message), its content parts joined, appended to b; without the thought that
 * an answer may begin with. */
void item_text(const json *item, struct buf *b);
/* That thought; NULL: there is none. Borrowed. */
const char *item_thought(const json *item);
/* An item's text as it is stored: with the thought, and the marks around it. */
void item_whole_text(const json *item, struct buf *b);
/* An item's role; "?" when it has none. Borrowed. */
const char *item_role(const json *item);
/* Why an answer is not whole, for people: "interrupted", "failed", "cut at its token limit"; NULL:
 * it is whole. */
const char *item_flaw(const json *item);

/* A list's `last_id`, if more follows it; else NULL. Allocated. */
char *page_next(const json *page);

/* All items in order, asked for page by page: on_item for each; a non-zero result ends it. 0 or an
 * exit code. */
int conversation_items(struct client *c, const char *id,
                       int (*on_item)(void *ctx, const json *item), void *ctx);

/*
 * The id that people mean: a whole id, or a unique beginning of one ("conv_3f2a", "3f2a"; at least
 * CONVERSATION_PREFIX_MIN digits), or a number of the list (1 is the newest). *ret is allocated. 0,
 * or an exit code after having said why.
 */
#define CONVERSATION_PREFIX_MIN 4
int conversation_resolve(struct client *c, const char *what, char **ret);
/* The same; NULL: the one used last. */
int conversation_choose(struct client *c, const char *what, char **ret);
/* How `what` is to be read: */
enum conversation_name { NAME_BAD, NAME_WHOLE, NAME_PREFIX, NAME_NUMBER };
enum conversation_name conversation_name(const char *what, int64_t *ret_number);
/* Whether a NAME_PREFIX begins this id. */
bool conversation_is_meant(const char *id, const char *what);

/* A page of conversations, last used first (order "desc") or last ("asc"): a list object. after may
 * be NULL. 0 or an exit code. */
int conversation_page(struct client *c, const char *order, int limit, const char *after,
                      json **ret);

/* Local time "2026-01-31 14:05" into ret[20]. */
void format_time(double seconds, char ret[20]);

#endif
