/*
 * Runs every file of a corpus folder through a fuzz target, so that what once broke a parser is
 * tried in the plain suite too. Each input is a heap block of its exact size (a sanitizer sees one
 * byte too far), and short ones are also tried cut at every length.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

#define CUT_BYTES_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void try_input(const char *data, size_t n)
{
    uint8_t *exact = malloc(n ? n : 1);
    if (!exact)
        abort();
    memcpy(exact, data, n);
    LLVMFuzzerTestOneInput(exact, n);
    free(exact);
}

static int try_file(const char *dir, const char *name)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    struct buf b;
    struct err e;
    buf_init(&b, (size_t)16 << 20);
    if (file_read(path, &b, &e) < 0) {
        fprintf(stderr, "%s\n", e.text);
        buf_done(&b);
        return -1;
    }
    const char *data = b.data ? b.data : "";
    try_input(data, b.len);
    for (size_t n = 0; b.len <= CUT_BYTES_MAX && n < b.len; n++)
        try_input(data, n);
    buf_done(&b);
    return 0;
}

int main(int argc, char **argv)
{
    DIR *dir = argc == 2 ? opendir(argv[1]) : NULL;
    if (!dir) {
        fprintf(stderr, "usage: %s CORPUS_FOLDER\n", argv[0]);
        return 2;
    }
    int n = 0, rc = 0;
    for (const struct dirent *d; (d = readdir(dir));) {
        if (d->d_name[0] == '.')
            continue;
        rc |= try_file(argv[1], d->d_name);
        n++;
    }
    closedir(dir);
    printf("%d inputs\n", n);
    return n > 0 && rc == 0 ? 0 : 1;
}
