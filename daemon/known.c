/* See known.h. */
#include "daemon/known.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "base/paths.h"

#define FILE_BYTES ((size_t)256 << 10)
#define HEX_DIGITS ((size_t)2 * HASH_BYTES)

/* One line, NUL-terminated. */
static bool parse(const char *line, struct known_model *ret)
{
    char *end = NULL;
    *ret = (struct known_model){.block_bytes = 0};
    if (strlen(line) <= HEX_DIGITS + 1 || line[HEX_DIGITS] != ' ' ||
        !hex_parse(line, HEX_DIGITS, ret->fingerprint, HASH_BYTES))
        return false;
    ret->block_bytes = strtoull(line + HEX_DIGITS + 1, &end, 10);
    if (ret->block_bytes == 0 || *end != ' ' || !end[1])
        return false;
    snprintf(ret->id, sizeof ret->id, "%s", end + 1);
    return true;
}

static bool has(const struct known *k, const uint8_t fingerprint[HASH_BYTES])
{
    for (size_t i = 0; i < k->n; i++)
        if (memcmp(k->v[i].fingerprint, fingerprint, HASH_BYTES) == 0)
            return true;
    return false;
}

static void take_lines(char *text, struct known *ret)
{
    char *rest = text;
    for (char *line = strsep(&rest, "\n"); line && ret->n < KNOWN_MAX; line = strsep(&rest, "\n")) {
        struct known_model m;
        if (parse(line, &m) && !has(ret, m.fingerprint))
            ret->v[ret->n++] = m;
    }
}

void known_read(const char *dir, struct known *ret)
{
    struct buf b;
    char *path = dir ? path_join(dir, "models") : NULL;
    *ret = (struct known){.v = calloc(KNOWN_MAX + 1, sizeof *ret->v)};
    buf_init(&b, FILE_BYTES);
    if (path && ret->v && file_read(path, &b, NULL) == 0 && b.data)
        take_lines(b.data, ret);
    buf_done(&b);
    free(path);
}

static void write_line(const struct known_model *m, struct buf *b)
{
    char hex[HEX_DIGITS + 1];
    hex_write(m->fingerprint, HASH_BYTES, hex);
    buf_printf(b, "%s %llu ", hex, (unsigned long long)m->block_bytes);
    for (const char *p = m->id; *p; p++)
        buf_char(b, *p == '\n' ? '?' : *p);
    buf_char(b, '\n');
}

void known_add(const char *dir, const struct known_model *m)
{
    struct known all;
    struct buf b;
    struct err e;
    known_read(dir, &all);
    const bool is_first = all.n > 0 && !memcmp(all.v[0].fingerprint, m->fingerprint, HASH_BYTES) &&
                          all.v[0].block_bytes == m->block_bytes;
    buf_init(&b, FILE_BYTES);
    write_line(m, &b);
    for (size_t i = 0, n = 1; i < all.n && n < KNOWN_MAX; i++) {
        if (memcmp(all.v[i].fingerprint, m->fingerprint, HASH_BYTES) == 0)
            continue;
        write_line(&all.v[i], &b);
        n++;
    }
    char *path = dir ? path_join(dir, "models") : NULL;
    if (path && !is_first && (buf_error(&b) || file_write(path, b.data, b.len, &e)))
        log_warn("the list of models in %s can't be written: what %s leaves there isn't found by "
                 "hearth cache while it isn't loaded",
                 path, m->id);
    free(path);
    buf_done(&b);
    known_done(&all);
}

void known_done(struct known *k)
{
    free(k->v);
    *k = (struct known){.v = NULL};
}
