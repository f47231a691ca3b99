/*
 * Another program's bench in turn with ours. A shared machine is fast in one minute and slow in the
 * next; only what runs side by side compares. So each round runs the command once and our own works
 * once, and the report tells the ratio of each round rather than a ratio of two averages.
 */
#include "daemon/offline_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "base/buf.h"
#include "base/json.h"

#define OUTPUT_BYTES_MAX ((size_t)16 << 20)

static int run_command(const char *command, struct buf *out, struct err *e)
{
    char chunk[4096];
    size_t n;
    FILE *f = popen(command, "re");
    if (!f)
        return err_set(e, ERR_IO, "--against: the command could not be started");
    while ((n = fread(chunk, 1, sizeof chunk, f)) > 0)
        buf_add(out, chunk, n); /* beyond its limit it only notes the error */
    const int status = pclose(f);
    if (status == -1 || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return err_set(e, ERR_IO, "--against: the command failed (status %d)",
                       WIFEXITED(status) ? WEXITSTATUS(status) : status);
    const int r = buf_error(out);
    if (r < 0)
        return err_set(e, r, "--against: the command's output is longer than %zu bytes",
                       OUTPUT_BYTES_MAX);
    return 0;
}

/* A number of an entry, or 0 when it isn't there. */
static double number_of(const json *entry, const char *key)
{
    struct err ignored = {0};
    return json_double(json_get(entry, key, &ignored));
}

static bool is_same(const json *entry, const struct bench_work *w)
{
    const double batch = number_of(entry, "batch");
    return number_of(entry, "n_prompt") == (w->is_decode ? 0 : w->n_tokens) &&
           number_of(entry, "n_gen") == (w->is_decode ? w->n_tokens : 0) &&
           number_of(entry, "n_depth") == w->depth && (batch == 0 ? 1 : batch) == w->batch;
}

int bench_against(const char *command, struct bench_work *works, int n_works, int round,
                  struct err *e)
{
    struct buf out;
    json *root = NULL;
    int n_found = 0;
    buf_init(&out, OUTPUT_BYTES_MAX);
    int r = run_command(command, &out, e);
    if (r < 0)
        goto done;
    size_t n;
    char *text = buf_take(&out, &n);
    r = text ? json_parse(text, n, &root, e)
             : err_set(e, ERR_INVAL, "--against: the command printed nothing");
    free(text);
    if (r < 0)
        goto done;
    struct err ignored = {0};
    const json *list = json_type(root) == JSON_OBJECT ? json_get(root, "results", &ignored) : root;
    for (const json *it = json_first(list); it; it = json_next(it))
        for (int i = 0; i < n_works; i++)
            if (json_type(it) == JSON_OBJECT && is_same(it, &works[i]) &&
                number_of(it, "avg_ts") > 0) {
                works[i].theirs[round] = number_of(it, "avg_ts");
                n_found++;
            }
    if (n_found == 0)
        r = err_set(e, ERR_NOTFOUND,
                    "--against: no entry of the command's output has the n_prompt, n_gen, n_depth "
                    "and batch of any work here");
done:
    json_free(root);
    buf_done(&out);
    return r;
}
