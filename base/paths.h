/*
 * Where things are, by the same function in daemon and client (XDG base directories; systemd's
 * STATE_DIRECTORY, CACHE_DIRECTORY and RUNTIME_DIRECTORY come first). Results are strings that the
 * caller frees.
 */
#ifndef HEARTH_BASE_PATHS_H
#define HEARTH_BASE_PATHS_H

#include "base/err.h"

#define SOCKET_PATH_MAX 107 /* bytes of sun_path without its NUL */

/* $STATE_DIRECTORY | $XDG_STATE_HOME/hearth | ~/.local/state/hearth */
int path_state_dir(char **ret, struct err *e) MUST_USE;
/* $CACHE_DIRECTORY | $XDG_CACHE_HOME/hearth | ~/.cache/hearth */
int path_cache_dir(char **ret, struct err *e) MUST_USE;
/* $XDG_DATA_HOME/hearth/models | ~/.local/share/hearth/models; may not exist */
int path_models_dir(char **ret, struct err *e) MUST_USE;
/* $XDG_CONFIG_HOME/hearth/hearth.conf | ~/.config/hearth/hearth.conf, else /etc/hearth/hearth.conf;
 * may not exist */
int path_config_file(char **ret, struct err *e) MUST_USE;
/* $HEARTH_SOCKET is not read: one way only. $RUNTIME_DIRECTORY/hearth.sock |
 * $XDG_RUNTIME_DIR/hearth/hearth.sock | <state>/hearth.sock. `state_dir` may be NULL: then
 * path_state_dir's. ERR_LIMIT when longer than SOCKET_PATH_MAX. */
int path_socket(const char *state_dir, char **ret, struct err *e) MUST_USE;

/* a + "/" + b; NULL when out of memory. */
char *path_join(const char *a, const char *b);

#endif
