/*
 * Recorded answers as token ids (streams.txt), for tests and benches of look-up.
 */
#ifndef HEARTH_TESTS_DAEMON_STREAMS_H
#define HEARTH_TESTS_DAEMON_STREAMS_H

#include <stdint.h>

#define STREAMS_MAX 512
#define STREAM_IDS_MAX 4096

struct stream {
    char kind[16];
    double temperature;
    int n_prompt, n; /* the ids behind the prompt's are the answer */
    int32_t *ids;
};

struct streams {
    struct stream v[STREAMS_MAX];
    int n;
};

/* The file of that path. 0; −1: it can't be read, or a line isn't as it should be. */
int streams_read(struct streams *ret, const char *path);
void streams_done(struct streams *s);

#endif
