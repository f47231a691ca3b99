/* The remembered hashes of weights (engine/fingerprint.h). */
#include "engine/fingerprint.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"

#define FILE_BYTES_MAX ((size_t)64 << 10)
#define ENTRIES_MAX 32
#define KEY_BYTES 256
#define CHECK_DIGITS 16
#define SETTLED_S 2

/* The kinds of hash: known files keep theirs. The last is what is written. */
#define KIND_BYTES 17
static const char kinds[][KIND_BYTES + 1] = {"hearth-weights-1 ", "hearth-weights-2 ",
                                             "hearth-weights-3 "};
#define N_KINDS (sizeof kinds / sizeof *kinds)

/* "DEVICE INODE SIZE MTIME CTIME ", what stands behind the kind. */
static void key_of(const struct stat *st, char ret[KEY_BYTES])
{
    snprintf(ret, KEY_BYTES, "%ju %ju %jd %jd.%09ld %jd.%09ld ",
             (uintmax_t)st->st_dev, (uintmax_t)st->st_ino, (intmax_t)st->st_size,
             (intmax_t)st->st_mtim.tv_sec, st->st_mtim.tv_nsec, (intmax_t)st->st_ctim.tv_sec,
             st->st_ctim.tv_nsec);
}

static void check_of(const char *line, size_t n, char ret[CHECK_DIGITS + 1])
{
    uint8_t hash[HASH_BYTES];
    hash_of(line, n, hash);
    hex_write(hash, CHECK_DIGITS / 2, ret);
}

/* The line begins with a kind that is known. */
static bool is_ours(const char *line, size_t n)
{
    size_t i = 0;
    while (i < N_KINDS && (n < KIND_BYTES || memcmp(line, kinds[i], KIND_BYTES) != 0)) {
        i++;
    }
    return i < N_KINDS;
}

/* One line, without its newline. */
static bool parse(const char *line, size_t n, const char *key, uint8_t ret[32])
{
    const size_t n_key = KIND_BYTES + strlen(key),
                 n_all = n_key + 2 * HASH_BYTES + 1 + CHECK_DIGITS;
    char check[CHECK_DIGITS + 1];
    if (n != n_all || !is_ours(line, n) || memcmp(line + KIND_BYTES, key, n_key - KIND_BYTES) ||
        line[n_all - CHECK_DIGITS - 1] != ' ') {
        return false;
    }
    check_of(line, n_all - CHECK_DIGITS - 1, check);
    return !memcmp(check, line + n_all - CHECK_DIGITS, CHECK_DIGITS) &&
           hex_parse(line + n_key, (size_t)2 * HASH_BYTES, ret, HASH_BYTES);
}

bool fingerprint_recall(const char *path, const struct stat *st, uint8_t ret[32])
{
    char key[KEY_BYTES];
    struct buf b;
    bool is_found = false;
    if (!path) {
        return false;
    }
    key_of(st, key);
    buf_init(&b, FILE_BYTES_MAX);
    if (!file_read(path, &b, NULL) && b.len) {
        const char *line = b.data, *end;
        for (; !is_found && (end = memchr(line, '\n', (size_t)(b.data + b.len - line))) != NULL;
             line = end + 1) {
            is_found = parse(line, (size_t)(end - line), key, ret);
        }
    }
    buf_done(&b);
    return is_found;
}

/* The old lines after the new one, without older ones of the same inode and without what isn't
 * ours. */
static void keep_others(const struct buf *old, const struct stat *st, struct buf *ret)
{
    char inode[KEY_BYTES];
    const char *line = old->data, *end;
    snprintf(inode, sizeof inode, "%ju %ju ", (uintmax_t)st->st_dev, (uintmax_t)st->st_ino);
    for (int n = 1; old->len && n < ENTRIES_MAX &&
                    (end = memchr(line, '\n', (size_t)(old->data + old->len - line))) != NULL;
         line = end + 1) {
        const size_t len = (size_t)(end - line);
        if (len > KIND_BYTES + strlen(inode) && len < KEY_BYTES * 2 && is_ours(line, len) &&
            memcmp(line + KIND_BYTES, inode, strlen(inode)) != 0) {
            buf_add(ret, line, len + 1);
            n++;
        }
    }
}

void fingerprint_remember(const char *path, const struct stat *st, const uint8_t hash[32])
{
    char key[KEY_BYTES], hex[2 * HASH_BYTES + 1], check[CHECK_DIGITS + 1];
    struct buf old, b;
    if (!path || clock_wall_s() - (int64_t)st->st_ctim.tv_sec < SETTLED_S) {
        return;
    }
    buf_init(&old, FILE_BYTES_MAX);
    buf_init(&b, FILE_BYTES_MAX);
    key_of(st, key);
    hex_write(hash, HASH_BYTES, hex);
    buf_printf(&b, "%s%s%s", kinds[N_KINDS - 1], key, hex);
    if (!buf_error(&b)) {
        check_of(b.data, b.len, check);
        buf_printf(&b, " %s\n", check);
        if (!file_read(path, &old, NULL)) {
            keep_others(&old, st, &b);
        }
        if (!buf_error(&b) && file_write_unsynced(path, b.data, b.len, NULL)) {
            (void)0; /* a read-only directory: hashed again next time */
        }
    }
    buf_done(&old);
    buf_done(&b);
}
