/*
 * Where models are: the directories that a name is looked for in, and what lies there.
 *
 *     $XDG_DATA_HOME/hearth/models | ~/.local/share/hearth/models, then /var/lib/hearth/models,
 *     and the directory of the model that runs
 */
#ifndef HEARTH_DAEMON_MODELS_H
#define HEARTH_DAEMON_MODELS_H

#include <stddef.h>

#include "base/err.h"

#define MODELS_FILES_MAX 512 /* of a list; more are left out, and the list says so */
#define MODELS_DIRS_MAX 3

struct models_list {
    char *dirs[MODELS_DIRS_MAX]; /* looked into; one that doesn't exist is among them */
    size_t n_dirs;
    char *paths[MODELS_FILES_MAX]; /* *.gguf, by directory and name; the second and later files
                                    * of one name are left out, as they are when one is asked for */
    size_t n_paths;
    size_t n_left_out;
};

/* `beside`: a model's path, whose directory is looked into too; NULL: none. ERR_NOMEM. */
int models_list(const char *beside, struct models_list *ret, struct err *e) MUST_USE;
void models_list_done(struct models_list *l);

/*
 * --model's value as a path, the caller's. What names an existing file, or has a slash in it, is
 * taken as it is. A name is the file NAME or NAME.gguf, or the one file whose name begins with it,
 * in any case. ERR_NOTFOUND lists what there is and where; ERR_INVAL: several begin so.
 */
int models_find(const char *name, char **ret, struct err *e) MUST_USE;

#endif
