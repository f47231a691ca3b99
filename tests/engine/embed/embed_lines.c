/*
 * Vectors of texts, for embed.py: the texts stand on stdin, each ended by a NUL; for each a line of
 * its ids and one of its vector come out. All of them are one call of embed_run.
 *
 *     embed_lines MODEL.gguf [--bench]
 *
 * --bench: the time it took, on stderr.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "engine/embed.h"

#define TEXTS_MAX 4096

static int print(const struct embed *m, const struct embed_tokens *v, size_t n, const float *out)
{
    const int dim = embed_dim(m);
    for (size_t i = 0; i < n; i++) {
        for (int k = 0; k < v[i].n; k++)
            printf("%s%d", k ? " " : "", v[i].v[k]);
        printf("\n");
        for (int k = 0; k < dim; k++)
            printf("%s%.9g", k ? " " : "", (double)out[i * (size_t)dim + (size_t)k]);
        printf("\n");
    }
    return 0;
}

static int run(const struct embed *m, const struct buf *in, bool is_bench)
{
    static struct embed_tokens v[TEXTS_MAX];
    static struct ids ids[TEXTS_MAX];
    struct err e = {0};
    size_t n = 0, used;
    for (size_t at = 0; at < in->len && n < TEXTS_MAX; n++) {
        const size_t len = strnlen(in->data + at, in->len - at);
        if (embed_tokenize(m, (struct embed_text){in->data + at, len}, embed_n_ctx(m), &ids[n],
                           &used))
            return 1;
        v[n] = (struct embed_tokens){ids[n].v, (int)ids[n].n};
        at += len + 1;
    }
    float *out = malloc((n + 1) * (size_t)embed_dim(m) * sizeof *out);
    const int64_t begin = clock_us();
    if (!out || embed_run(m, v, n, NULL, out, &e)) {
        fprintf(stderr, "embed_lines: %s\n", e.text);
        return 1;
    }
    if (is_bench)
        fprintf(stderr, "%zu texts in %.1f ms\n", n, (double)(clock_us() - begin) / 1e3);
    print(m, v, n, out);
    for (size_t i = 0; i < n; i++)
        ids_done(&ids[i]);
    free(out);
    return 0;
}

int main(int argc, char **argv)
{
    struct embed *m = NULL;
    struct err e = {0};
    struct buf in;
    char chunk[65536];
    size_t n;
    if (argc < 2 || embed_open(argv[1], NULL, &m, &e)) {
        fprintf(stderr, "embed_lines: %s\n", argc < 2 ? "no model" : e.text);
        return 2;
    }
    buf_init(&in, 16 << 20);
    while ((n = fread(chunk, 1, sizeof chunk, stdin)) > 0)
        buf_add(&in, chunk, n);
    const int rc = run(m, &in, argc > 2 && strcmp(argv[2], "--bench") == 0);
    buf_done(&in);
    embed_close(m);
    return rc;
}
