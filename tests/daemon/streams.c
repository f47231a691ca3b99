/* See streams.h. */
#include "tests/daemon/streams.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int parse(struct stream *s, const char *line)
{
    static int32_t ids[STREAM_IDS_MAX];
    int at = 0, n = 0;
    if (sscanf(line, "%15s %lf %d%n", s->kind, &s->temperature, &s->n_prompt, &at) != 3)
        return -1;
    for (const char *p = line + at; *p && *p != '\n' && n < STREAM_IDS_MAX; n++) {
        char *end;
        ids[n] = (int32_t)strtol(p, &end, 10);
        if (end == p)
            return -1;
        p = end;
    }
    s->n = n;
    s->ids = malloc(((size_t)n + 1) * sizeof *s->ids);
    if (!s->ids || s->n_prompt < 1 || s->n_prompt >= n)
        return -1;
    memcpy(s->ids, ids, (size_t)n * sizeof *ids);
    return 0;
}

int streams_read(struct streams *ret, const char *path)
{
    static char line[16 * STREAM_IDS_MAX];
    FILE *f = fopen(path, "r");
    int rc = 0;
    *ret = (struct streams){0};
    if (!f)
        return -1;
    while (rc == 0 && fgets(line, sizeof line, f)) {
        if (line[0] == '#' || line[0] == '\n')
            continue;
        rc = ret->n < STREAMS_MAX ? parse(&ret->v[ret->n++], line) : -1;
    }
    fclose(f);
    return rc == 0 && ret->n > 0 ? 0 : -1;
}

void streams_done(struct streams *s)
{
    for (int i = 0; i < s->n; i++)
        free(s->v[i].ids);
    s->n = 0;
}
