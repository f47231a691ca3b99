/* What is known of the models' files (daemon/api_catalog.c); the history thread's. */
#ifndef HEARTH_DAEMON_CATALOG_H
#define HEARTH_DAEMON_CATALOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/describe.h"

struct catalog;
struct history;

void catalog_free(struct catalog *c); /* NULL is fine */

/* A file in the models' directories, or --model's where it is a GGUF file. */
struct catalog_file {
    char id[256];    /* its name without ".gguf" */
    char path[4096];
    int64_t changed_s;
    bool runs;
    char why[512]; /* it doesn't */
    const struct engine_summary *summary; /* of one that runs; until the next question */
};

/* Visits them, in the order of the list, until visit returns false. What can't be listed isn't. */
void catalog_each(struct history *h, bool (*visit)(void *ctx, const struct catalog_file *f),
                  void *ctx);
/* The file of that name, with or without ".gguf". */
bool catalog_find(struct history *h, const char *name, struct catalog_file *ret);
/* What a model is called: its file's name without directory and ending. */
void catalog_id(const char *path, char *ret, size_t n_ret);

#endif
