/*
 * Owners. SO_PEERCRED tells the uid at connect(); on TCP sockets the call succeeds too, with uid
 * −1, so it is only ever asked
 * on Unix listeners.
 *
 * Keys are kept as their BLAKE2b-256, and what a client sends is hashed and compared with every one
 * of them: neither a key's bytes nor its place in the file changes the time taken.
 */
#include "daemon/owner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/sys.h"

#define UID_OVERFLOW 65534 /* /proc/sys/kernel/overflowuid: a uid that isn't mapped here */

struct key {
    char owner[OWNER_NAME_MAX + 1];
    uint8_t hash[HASH_BYTES];
};

struct keys {
    struct key *v;
    size_t n;
};

int owner_of_uid(uid_t uid, uid_t own_uid, int socket_mode, char ret[OWNER_BYTES], struct err *e)
{
    if (uid == UID_OVERFLOW || uid == (uid_t)-1)
        return err_set(e, ERR_INVAL, "user %lu has no identity here (an unmapped user namespace?)",
                       (unsigned long)uid);
    if ((socket_mode & 077) == 0 && uid != own_uid)
        return err_set(e, ERR_INVAL,
                       "this daemon is user %lu's, and you are user %lu: start your own, or use "
                       "the system service",
                       (unsigned long)own_uid, (unsigned long)uid);
    snprintf(ret, OWNER_BYTES, "uid:%lu", (unsigned long)uid);
    return 0;
}

int owner_of_socket(int fd, int socket_mode, uid_t *ret_uid, char ret[OWNER_BYTES], struct err *e)
{
    struct ucred peer;
    socklen_t n = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) < 0)
        return err_sys(e, errno, "SO_PEERCRED");
    *ret_uid = peer.uid;
    return owner_of_uid(peer.uid, geteuid(), socket_mode, ret, e);
}

static bool is_name_char(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
           c == '_' || c == '-';
}

/* One line, trimmed, not empty: "owner:key". */
static int parse_line(const char *line, size_t n, struct key *ret, struct err *e)
{
    const char *colon = memchr(line, ':', n);
    if (!colon)
        return err_set(e, ERR_INVAL, "no colon: a line is owner:key");
    size_t n_name = (size_t)(colon - line), n_key = n - n_name - 1;
    if (n_name == 0 || n_name > OWNER_NAME_MAX)
        return err_set(e, ERR_INVAL, "the owner's name has %zu characters; 1 to %d are allowed",
                       n_name, OWNER_NAME_MAX);
    for (size_t i = 0; i < n_name; i++)
        if (!is_name_char(line[i]))
            return err_set(e, ERR_INVAL,
                           "the owner's name may hold letters, digits, '.', '_' and '-' only");
    if (n_key < OWNER_KEY_MIN || n_key > OWNER_KEY_MAX)
        return err_set(e, ERR_INVAL, "the key of %.*s has %zu characters; %d to %d are allowed",
                       (int)n_name, line, n_key, OWNER_KEY_MIN, OWNER_KEY_MAX);
    for (size_t i = 0; i < n_key; i++)
        if (colon[1 + i] <= ' ' || colon[1 + i] > '~')
            return err_set(e, ERR_INVAL, "the key of %.*s may hold visible ASCII characters only",
                           (int)n_name, line);
    memcpy(ret->owner, line, n_name);
    ret->owner[n_name] = '\0';
    hash_of(colon + 1, n_key, ret->hash);
    return 0;
}

static int add_line(struct keys *k, const char *line, size_t n, struct err *e)
{
    struct key key = {0};
    int rc = parse_line(line, n, &key, e);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < k->n; i++)
        if (bytes_equal(k->v[i].hash, key.hash, HASH_BYTES))
            return err_set(e, ERR_INVAL, "the key of %s is that of %s, too", key.owner,
                           k->v[i].owner);
    if (k->n == OWNER_KEYS_MAX)
        return err_set(e, ERR_LIMIT, "more than %d keys", OWNER_KEYS_MAX);
    k->v[k->n++] = key;
    return 0;
}

int keys_parse(const char *path, const char *text, size_t n, struct keys **ret, struct err *e)
{
    struct keys *k = sys.malloc(sizeof(*k));
    if (k)
        *k = (struct keys){.v = sys.malloc(OWNER_KEYS_MAX * sizeof(struct key))};
    if (!k || !k->v) {
        keys_free(k);
        return err_set(e, ERR_NOMEM, "%s: out of memory", path);
    }
    int rc = 0, n_line = 0;
    for (size_t at = 0; at < n && rc == 0;) {
        const char *line = text + at;
        const char *end = memchr(line, '\n', n - at);
        size_t len = end ? (size_t)(end - line) : n - at;
        at += len + 1;
        n_line++;
        while (len > 0 && (line[len - 1] == '\r' || line[len - 1] == ' ' || line[len - 1] == '\t'))
            len--;
        if (len > 0 && line[0] != '#')
            rc = add_line(k, line, len, e);
    }
    if (rc < 0)
        err_prefix(e, "%s, line %d", path, n_line);
    else if (k->n == 0)
        rc = err_set(e, ERR_INVAL, "%s holds no key: lines are owner:key", path);
    if (rc < 0) {
        keys_free(k);
        return rc;
    }
    *ret = k;
    return 0;
}

static int check_mode(const char *path, struct err *e)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return err_sys(e, errno, "%s", path);
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_INVAL, "%s is no regular file", path);
    if ((st.st_mode & 077) != 0)
        return err_set(e, ERR_INVAL,
                       "%s has mode %04o, but keys are for their owner only: chmod 0600 %s", path,
                       st.st_mode & 07777, path);
    if (st.st_uid != geteuid() && st.st_uid != 0)
        return err_set(e, ERR_INVAL, "%s belongs to user %lu; it must be ours or root's", path,
                       (unsigned long)st.st_uid);
    return 0;
}

int keys_read(const char *path, struct keys **ret, struct err *e)
{
    int rc = check_mode(path, e);
    if (rc < 0)
        return rc;
    struct buf text;
    buf_init(&text, OWNER_KEY_FILE_BYTES);
    rc = file_read(path, &text, e);
    if (rc == 0)
        rc = keys_parse(path, text.data ? text.data : "", text.len, ret, e);
    if (text.data)
        explicit_bzero(text.data, text.len);
    buf_done(&text);
    return rc;
}

void keys_free(struct keys *k)
{
    if (!k)
        return;
    free(k->v);
    free(k);
}

bool keys_find(const struct keys *k, const char *authorization, char ret[OWNER_BYTES])
{
    if (!authorization || strncasecmp(authorization, "Bearer ", 7) != 0)
        return false;
    const char *key = authorization + 7;
    key += strspn(key, " ");
    uint8_t hash[HASH_BYTES];
    hash_of(key, strlen(key), hash);
    const struct key *found = NULL;
    for (size_t i = 0; i < k->n; i++)
        if (bytes_equal(k->v[i].hash, hash, HASH_BYTES))
            found = &k->v[i];
    if (found)
        snprintf(ret, OWNER_BYTES, "key:%s", found->owner);
    return found != NULL;
}

/* 127.0.0.0/8, written as four numbers. */
static bool is_loopback_v4(const char *s, size_t n)
{
    int n_parts = 0;
    size_t i = 0;
    while (i < n && n_parts < 4) {
        int v = 0, n_digits = 0;
        while (i < n && s[i] >= '0' && s[i] <= '9' && n_digits < 3) {
            v = v * 10 + (s[i++] - '0');
            n_digits++;
        }
        if (n_digits == 0 || v > 255 || (n_parts == 0 && v != 127))
            return false;
        n_parts++;
        if (i < n && n_parts < 4 && s[i++] != '.')
            return false;
    }
    return n_parts == 4 && i == n;
}

bool owner_host_is_loopback(const char *host)
{
    size_t n = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
    if (n > strlen(host))
        return false;
    const char *port = host + n;
    if (*port == ':') {
        port++;
        port += strspn(port, "0123456789");
    }
    if (*port != '\0')
        return false;
    return (n == 9 && strncasecmp(host, "localhost", 9) == 0) ||
           (n == 5 && strncmp(host, "[::1]", 5) == 0) || is_loopback_v4(host, n);
}
