/*
 * reseal FILE OFFSET: changes one byte of a KV block's file and makes its checksums right again, as
 * neither a disk nor an accident does it, for tests of what only computing can find.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "cache/record.h"

static int fail(const char *what)
{
    fprintf(stderr, "reseal: %s\n", what);
    return 1;
}

static int reseal(FILE *f, unsigned char *file, size_t n, size_t at)
{
    unsigned char *head = file, *data = file + RECORD_HEAD_BYTES;
    unsigned char new_head[RECORD_HEAD_BYTES];
    struct record r = {0};
    uint32_t count;
    uint64_t n_full;
    memcpy(r.root, head + 16, HASH_BYTES);
    memcpy(r.parent, head + 48, HASH_BYTES);
    memcpy(&count, head + 80, sizeof count);
    memcpy(r.ids, head + 96, sizeof r.ids);
    memcpy(&r.who, head + 256, sizeof r.who);
    memcpy(&r.cost_us, head + 264, sizeof r.cost_us);
    memcpy(&n_full, head + 240, sizeof n_full); /* of the first section; the other has the rest */
    if (n_full == 0 || n_full > n - RECORD_HEAD_BYTES)
        return fail("no block's file");
    r.count = (int)count;
    data[at] ^= 1;
    const struct record_data d = {.full = data,
                                  .window = data + n_full,
                                  .full_bytes = (size_t)n_full,
                                  .window_bytes = n - RECORD_HEAD_BYTES - (size_t)n_full};
    record_write(&r, &d, new_head);
    memcpy(head, new_head, sizeof new_head);
    return fseek(f, 0, SEEK_SET) || fwrite(file, 1, n, f) != n ? fail("can't write") : 0;
}

int main(int argc, char **argv)
{
    struct err e;
    if (argc != 3)
        return fail("FILE OFFSET");
    FILE *f = fopen(argv[1], "r+b");
    if (!f || hash_start(&e))
        return fail("can't open the file");
    fseek(f, 0, SEEK_END);
    const long n = ftell(f);
    const long at = strtol(argv[2], NULL, 10);
    unsigned char *file = n > (long)RECORD_HEAD_BYTES ? malloc((size_t)n) : NULL;
    rewind(f);
    int rc = 1;
    if (!file || at < 0 || at >= n - (long)RECORD_HEAD_BYTES ||
        fread(file, 1, (size_t)n, f) != (size_t)n)
        fail("no block's file");
    else
        rc = reseal(f, file, (size_t)n, (size_t)at);
    free(file);
    if (fclose(f))
        rc = fail("can't write");
    return rc;
}
