/*
 * Who asks. The listener decides: on a Unix socket the peer's uid, on TCP the name beside the API
 * key; never a field of the request.
 */
#ifndef HEARTH_DAEMON_OWNER_H
#define HEARTH_DAEMON_OWNER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

#define OWNER_BYTES 80 /* "key:" + a name, with its NUL */
#define OWNER_NAME_MAX 64
#define OWNER_KEY_MIN 16 /* bytes of a key: shorter ones can be guessed */
#define OWNER_KEY_MAX 512
#define OWNER_KEYS_MAX 1024
#define OWNER_KEY_FILE_BYTES (1u << 20)

/*
 * The owner "uid:N" of a connected Unix socket. A socket for one owner (mode without group and
 * others) is only the daemon's own uid's. ERR_INVAL with a sentence for the client when the peer is
 * refused: another uid, or one that has no identity here (65534 and −1: an unmapped user
 * namespace).
 */
int owner_of_socket(int fd, int socket_mode, uid_t *ret_uid, char ret[OWNER_BYTES],
                    struct err *e) MUST_USE;
/* The rule by itself. */
int owner_of_uid(uid_t uid, uid_t own_uid, int socket_mode, char ret[OWNER_BYTES],
                 struct err *e) MUST_USE;

/* The key file: lines "owner:key"; empty lines and lines that begin with # are skipped. */
struct keys;
/* ERR_INVAL names file, line and what is wrong; a file that others may read is refused. */
int keys_read(const char *path, struct keys **ret, struct err *e) MUST_USE;
int keys_parse(const char *path, const char *text, size_t n, struct keys **ret,
               struct err *e) MUST_USE;
void keys_free(struct keys *k); /* NULL is fine */
/* "key:NAME" by the value of an Authorization header ("Bearer KEY"); false when there is none.
 * Takes the same time for every key. */
bool keys_find(const struct keys *k, const char *authorization, char ret[OWNER_BYTES]);

/* Whether a Host header names loopback (localhost, 127.x.x.x, [::1]), with or without a port:
 * anything else is a name that was pointed here (DNS rebinding). */
bool owner_host_is_loopback(const char *host);

#endif
