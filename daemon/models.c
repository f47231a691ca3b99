/* Models by name (daemon/models.h). */
#include "daemon/models.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/paths.h"

#define SUFFIX ".gguf"
#define SYSTEM_DIR "/var/lib/hearth/models"
#define NAMED_MAX 8 /* files that an error names */

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool is_model(const char *name)
{
    const size_t n = strlen(name), n_suffix = strlen(SUFFIX);
    return name[0] != '.' && n > n_suffix && !strcasecmp(name + n - n_suffix, SUFFIX);
}

static bool has_name(const struct models_list *l, const char *name)
{
    for (size_t i = 0; i < l->n_paths; i++) {
        if (!strcmp(file_name(l->paths[i]), name))
            return true;
    }
    return false;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(file_name(*(char *const *)a), file_name(*(char *const *)b));
}

/* A directory that isn't there, or may not be read, has no models. */
static int add_files(struct models_list *l, const char *dir, struct err *e)
{
    const size_t first = l->n_paths;
    DIR *d = opendir(dir);
    int rc = 0;
    for (struct dirent *it; d && !rc && (it = readdir(d)) != NULL;) {
        if (!is_model(it->d_name) || has_name(l, it->d_name))
            continue;
        if (l->n_paths == MODELS_FILES_MAX) {
            l->n_left_out++;
            continue;
        }
        char *path = path_join(dir, it->d_name);
        struct stat st;
        if (!path)
            rc = err_set(e, ERR_NOMEM, "out of memory for the list of models");
        else if (stat(path, &st) < 0 || !S_ISREG(st.st_mode))
            free(path);
        else
            l->paths[l->n_paths++] = path;
    }
    if (d)
        closedir(d);
    qsort(l->paths + first, l->n_paths - first, sizeof *l->paths, by_name);
    return rc;
}

/* Takes dir over. */
static int add_dir(struct models_list *l, char *dir, struct err *e)
{
    if (!dir)
        return err_set(e, ERR_NOMEM, "out of memory for the list of models");
    for (size_t i = 0; i < l->n_dirs; i++) {
        if (!strcmp(l->dirs[i], dir)) {
            free(dir);
            return 0;
        }
    }
    l->dirs[l->n_dirs++] = dir;
    return add_files(l, dir, e);
}

static char *dir_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return strdup(".");
    return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

int models_list(const char *beside, struct models_list *ret, struct err *e)
{
    struct models_list l = {.n_dirs = 0};
    struct err none;
    char *own = NULL;
    int rc = 0;
    if (beside)
        rc = add_dir(&l, dir_of(beside), e);
    if (!rc && path_models_dir(&own, &none) == 0) /* a user without a home has none */
        rc = add_dir(&l, own, e);
    if (!rc)
        rc = add_dir(&l, strdup(SYSTEM_DIR), e);
    if (rc) {
        models_list_done(&l);
        return rc;
    }
    *ret = l;
    return 0;
}

void models_list_done(struct models_list *l)
{
    for (size_t i = 0; i < l->n_dirs; i++)
        free(l->dirs[i]);
    for (size_t i = 0; i < l->n_paths; i++)
        free(l->paths[i]);
    l->n_dirs = l->n_paths = 0;
}

/* "a, b and 3 more"; with `prefix`, of those whose names begin so. */
static void add_names(struct buf *b, const struct models_list *l, const char *prefix)
{
    size_t n = 0;
    for (size_t i = 0; i < l->n_paths; i++) {
        const char *name = file_name(l->paths[i]);
        if (strncasecmp(name, prefix, strlen(prefix)) != 0)
            continue;
        if (n < NAMED_MAX)
            buf_printf(b, "%s%s", n ? ", " : "", name);
        n++;
    }
    if (n > NAMED_MAX)
        buf_printf(b, " and %zu more", n - NAMED_MAX);
    if (n == 0)
        buf_str(b, "none");
}

static int not_found(const struct models_list *l, const char *name, struct err *e)
{
    struct buf b;
    buf_init(&b, 4096);
    for (size_t i = 0; i < l->n_dirs; i++)
        buf_printf(&b, "%s%s", i ? " and " : "", l->dirs[i]);
    buf_str(&b, "; there: ");
    add_names(&b, l, "");
    const int rc = err_set(e, ERR_NOTFOUND,
                           "model %s: no such file, and no model of that name in %s", name,
                           b.data ? b.data : "any directory");
    buf_done(&b);
    return rc;
}

/* The path whose name is NAME or NAME.gguf, else the only one that begins so; NULL with n_like. */
static const char *match(const struct models_list *l, const char *name, size_t *ret_like)
{
    const char *like = NULL;
    const size_t n = strlen(name);
    *ret_like = 0;
    for (size_t i = 0; i < l->n_paths; i++) {
        const char *file = file_name(l->paths[i]);
        if (!strcmp(file, name) || (!strncmp(file, name, n) && !strcasecmp(file + n, SUFFIX)))
            return l->paths[i];
        if (n && !strncasecmp(file, name, n)) {
            like = l->paths[i];
            ++*ret_like;
        }
    }
    return *ret_like == 1 ? like : NULL;
}

int models_find(const char *name, char **ret, struct err *e)
{
    struct models_list l;
    size_t n_like = 0;
    int rc = 0;
    char *path = NULL;
    if (strchr(name, '/') || access(name, F_OK) == 0) {
        path = strdup(name);
    } else {
        if ((rc = models_list(NULL, &l, e)))
            return rc;
        const char *found = match(&l, name, &n_like);
        if (found) {
            path = strdup(found);
        } else if (n_like > 1) {
            struct buf b;
            buf_init(&b, 4096);
            add_names(&b, &l, name);
            rc = err_set(e, ERR_INVAL, "model %s: %zu names begin so: %s", name, n_like,
                         b.data ? b.data : "");
            buf_done(&b);
        } else {
            rc = not_found(&l, name, e);
        }
        models_list_done(&l);
    }
    if (!rc && !path)
        rc = err_set(e, ERR_NOMEM, "out of memory for the model's path");
    if (!rc)
        *ret = path;
    return rc;
}
