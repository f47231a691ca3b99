/*
 * Where things are. As the XDG base directory specification has it, an empty or relative value
 * counts as unset. systemd may give several directories separated by colons; the first is ours.
 */
#include "base/paths.h"

#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"

#define PATH_BYTES 4096

/* An absolute path from the environment, or NULL. */
static const char *absolute(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] == '/' ? value : NULL;
}

static int take(struct buf *b, const char *what, char **ret, struct err *e)
{
    int rc = buf_error(b);
    if (rc < 0) {
        buf_done(b);
        return rc == ERR_LIMIT
                   ? err_set(e, rc, "the path of the %s is longer than %d bytes", what, PATH_BYTES)
                   : err_set(e, rc, "the path of the %s: out of memory", what);
    }
    char *path = buf_take(b, NULL);
    if (!path)
        return err_set(e, ERR_NOMEM, "the path of the %s: out of memory", what);
    *ret = path;
    return 0;
}

/* Appends the home directory: $HOME, else the user's entry in the password database. */
static int add_home(struct buf *b, const char *what, struct err *e)
{
    const char *home = absolute("HOME");
    struct passwd entry, *found = NULL;
    char room[PATH_BYTES];
    if (!home && getpwuid_r(geteuid(), &entry, room, sizeof(room), &found) == 0 && found &&
        found->pw_dir && found->pw_dir[0] == '/')
        home = found->pw_dir;
    if (!home)
        return err_set(e, ERR_NOTFOUND,
                       "no place for the %s: HOME is not set and user %lu has no entry", what,
                       (unsigned long)geteuid());
    buf_str(b, home);
    return 0;
}

/* $systemd_name (first of a list) | $xdg_name/sub | ~/home_sub/sub. systemd_name may be NULL. */
struct place {
    const char *what, *systemd_name, *xdg_name, *home_sub, *sub;
};

static int place_find(const struct place *p, char **ret, struct err *e)
{
    struct buf b;
    buf_init(&b, PATH_BYTES);
    const char *given = p->systemd_name ? absolute(p->systemd_name) : NULL;
    const char *xdg = absolute(p->xdg_name);
    if (given) {
        buf_add(&b, given, strcspn(given, ":"));
    } else if (xdg) {
        buf_printf(&b, "%s/%s", xdg, p->sub);
    } else {
        int rc = add_home(&b, p->what, e);
        if (rc < 0) {
            buf_done(&b);
            return rc;
        }
        buf_printf(&b, "/%s/%s", p->home_sub, p->sub);
    }
    return take(&b, p->what, ret, e);
}

int path_state_dir(char **ret, struct err *e)
{
    static const struct place state = {"state directory", "STATE_DIRECTORY", "XDG_STATE_HOME",
                                       ".local/state", "hearth"};
    return place_find(&state, ret, e);
}

int path_cache_dir(char **ret, struct err *e)
{
    static const struct place cache = {"cache directory", "CACHE_DIRECTORY", "XDG_CACHE_HOME",
                                       ".cache", "hearth"};
    return place_find(&cache, ret, e);
}

int path_models_dir(char **ret, struct err *e)
{
    static const struct place models = {"models", NULL, "XDG_DATA_HOME", ".local/share",
                                        "hearth/models"};
    return place_find(&models, ret, e);
}

int path_config_file(char **ret, struct err *e)
{
    static const struct place config = {"configuration", NULL, "XDG_CONFIG_HOME", ".config",
                                        "hearth/hearth.conf"};
    char *own = NULL;
    struct err why;
    int rc = place_find(&config, &own, &why);
    if (rc == 0 && access(own, F_OK) == 0) {
        *ret = own;
        return 0;
    }
    free(own);
    if (rc < 0 && rc != ERR_NOTFOUND) /* a user without a home still has /etc */
        return err_set(e, rc, "%s", why.text);
    struct buf b;
    buf_init(&b, PATH_BYTES);
    buf_str(&b, "/etc/hearth/hearth.conf");
    return take(&b, config.what, ret, e);
}

/* What holds the socket, without "/hearth.sock". */
static int socket_dir(const char *state_dir, char **ret, struct err *e)
{
    static const struct place runtime = {"socket", "RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR", "",
                                         "hearth"};
    if (absolute(runtime.systemd_name) || absolute(runtime.xdg_name))
        return place_find(&runtime, ret, e);
    if (!state_dir)
        return path_state_dir(ret, e);
    struct buf b;
    buf_init(&b, PATH_BYTES);
    buf_str(&b, state_dir);
    return take(&b, runtime.what, ret, e);
}

int path_socket(const char *state_dir, char **ret, struct err *e)
{
    char *dir = NULL;
    int rc = socket_dir(state_dir, &dir, e);
    if (rc < 0)
        return rc;
    char *path = path_join(dir, "hearth.sock");
    free(dir);
    if (!path)
        return err_set(e, ERR_NOMEM, "the path of the socket: out of memory");
    size_t len = strlen(path);
    if (len > SOCKET_PATH_MAX) {
        rc = err_set(e, ERR_LIMIT,
                     "socket path %s has %zu bytes, more than the %d that a Unix socket's "
                     "name may have; --socket names another",
                     path, len, SOCKET_PATH_MAX);
        free(path);
        return rc;
    }
    *ret = path;
    return 0;
}

char *path_join(const char *a, const char *b)
{
    struct buf path;
    buf_init(&path, strlen(a) + strlen(b) + 1);
    buf_str(&path, a);
    buf_char(&path, '/');
    buf_str(&path, b);
    return buf_take(&path, NULL);
}
