/* Who is called what: names that one role of a conversation calls the other by. */
#ifndef HEARTH_MEMORY_CALLED_H
#define HEARTH_MEMORY_CALLED_H

#include "memory/query.h"

#define CALLED_MAX 16

struct called_votes {
    int64_t conversation;
    int term;  /* of the query: the name */
    int by[2]; /* how often the user, the assistant, calls somebody so */
    int speaks; /* how often a text begins with it: "Maria: …" */
    int mentions; /* texts that hold it otherwise, after the first call */
    bool is_pair; /* of Chinese characters */
};

struct called {
    struct called_votes v[CALLED_MAX];
    int n;
};

/*
 * Looks through some of the messages that hold the query's names ("Hey Maria, …", "Thanks,
 * Maria!"). Where the talk's texts begin with "Name: ", that tells who speaks.
 */
int called_gather(struct memory *m, const struct memory_query *q, const struct query *qu,
                  struct called *ret, struct err *e) MUST_USE;
/* Whether the term (of qu->terms) is such a name, or a character of one: messages that hold it are
 * said to whom it names. */
bool called_is_name(const struct called *c, const struct query *qu, int term);
/* Whether the term is the name, or a part of the name, of one who talks: called so by the other, or
 * told by "Name: " at texts' beginnings. */
bool called_speaks(const struct called *c, const struct query *qu, int term);
/* Whether the query names who speaks in that role there. */
bool called_names(const struct called *c, int64_t conversation, enum memory_role role);

#endif
