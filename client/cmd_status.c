/*
 * hearth status and hearth models: what the daemon is and does, for people; --json prints the
 * daemon's own objects.
 */
#include <stdio.h>
#include <string.h>

#include "client/api.h"
#include "client/fields.h"
#include "client/options.h"
#include "client/term.h"

#define WORD_COLUMNS 60

static void print_word(const json *j, const char *key)
{
    const char *s = json_str(json_get(j, key, NULL));
    term_line(stdout, s ? s : "?", WORD_COLUMNS);
}

/* "98.0 MiB" */
static void print_bytes(double n)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    size_t u = 0;
    for (; n >= 1024 && u + 1 < sizeof units / sizeof *units; u++)
        n /= 1024;
    printf(u ? "%.1f %s" : "%.0f %s", n, units[u]);
}

static void print_seconds(double s)
{
    if (s >= 86400)
        printf("%.0f days", s / 86400);
    else if (s >= 3600)
        printf("%.1f hours", s / 3600);
    else if (s >= 60)
        printf("%.0f minutes", s / 60);
    else
        printf("%.0f s", s);
}

/* "134.5 M", "8.0 G" */
static void print_count(double n)
{
    if (n >= 1e9)
        printf("%.1f G", n / 1e9);
    else if (n >= 1e6)
        printf("%.1f M", n / 1e6);
    else
        printf("%.0f", n);
}

/* ---- status ---- */

static void print_daemon(const json *j)
{
    fputs("hearthd    ", stdout);
    print_word(j, "version");
    fputs(", ", stdout);
    print_word(j, "state");
    fputs(", up ", stdout);
    print_seconds(number(j, "uptime_s"));
    printf(", process %.0f\n", number(j, "pid"));
}

static void print_model(const json *j)
{
    const json *model = json_get(j, "model", NULL);
    fputs("model      ", stdout);
    if (!model) {
        puts(json_first(json_get(j, "models", NULL)) ? "the default is not loaded" : "not loaded");
        return;
    }
    print_word(model, "id");
    fputs("\n           ", stdout);
    print_word(model, "arch");
    fputs(", ", stdout);
    print_count(number(model, "parameters"));
    fputs(" parameters, ", stdout);
    print_word(model, "quant");
    printf("; window %.0f tokens of %.0f; %.0f thread%s, ", number(j, "ctx"),
           number(model, "ctx_train"), number(model, "threads"),
           number(model, "threads") == 1 ? "" : "s");
    print_word(model, "isa");
    if (json_get(model, "kv_type", NULL)) { /* a daemon of before doesn't say */
        fputs(", KV ", stdout);
        print_word(model, "kv_type");
    }
    putchar('\n');
}

/* "NAME (default): loaded, idle for 5 minutes; weights 98.0 MiB, KV 3.1 MiB of 512.0 MiB" */
static void print_served(const json *m)
{
    const char *state = json_str(json_get(m, "state", NULL));
    const bool is_in = state && !strcmp(state, "in");
    print_word(m, "id");
    printf("%s: ", json_bool(json_get(m, "is_default", NULL)) ? " (default)" : "");
    if (state && !strcmp(state, "loading")) {
        printf("loading, %.0f %%\n", 100 * number(m, "progress"));
        return;
    }
    fputs(is_in ? "loaded, " : "leaving, ", stdout);
    if (number(m, "turns_out") > 0) {
        printf("%.0f turn%s", number(m, "turns_out"), number(m, "turns_out") == 1 ? "" : "s");
    } else {
        fputs("idle for ", stdout);
        print_seconds(number(m, "idle_s"));
    }
    fputs("; weights ", stdout);
    print_bytes(number(m, "weights_bytes"));
    fputs(", KV ", stdout);
    print_bytes(number(m, "kv_bytes"));
    fputs(" of ", stdout);
    print_bytes(number(m, "kv_bytes_max"));
    putchar('\n');
}

/* Where there is more to say than that --model's is there. */
static void print_all_served(const json *j)
{
    const json *first = json_first(json_get(j, "models", NULL));
    const bool is_plain = first && !json_next(first) &&
                          json_bool(json_get(first, "is_default", NULL)) &&
                          json_get(j, "model", NULL);
    const char *head = "models     ";
    for (const json *it = is_plain ? NULL : first; it; it = json_next(it)) {
        fputs(head, stdout);
        print_served(it);
        head = "           ";
    }
}

static void print_work(const json *j)
{
    const json *turns = json_get(j, "turns", NULL), *tokens = json_get(j, "tokens", NULL);
    /* Its "refused" stays in --json: it counts each look at a daemon that is loading, too. */
    printf("turns      %.0f of %.0f running, %.0f of %.0f waiting; %.0f done (%.0f canceled)\n",
           number(turns, "running"), number(turns, "parallel"), number(turns, "queued"),
           number(turns, "queue"), number(turns, "done"), number(turns, "canceled"));
    double prompt = number(tokens, "prompt"), cached = number(tokens, "cached");
    printf("tokens     %.0f in prompts, %.0f of them from the cache (%.0f %%, saved ", prompt,
           cached, prompt > 0 ? 100 * cached / prompt : 0);
    print_seconds(number(tokens, "saved_s"));
    printf("); %.0f written\n", number(tokens, "generated"));
}

/* A daemon of before has no such part. */
static void print_disk(const json *disk)
{
    const char *paused = "; writing rests after an error";
    if (!disk)
        return;
    if (number(disk, "limit_bytes") <= 0) {
        puts("disk       no cache there");
        return;
    }
    fputs("disk       cache ", stdout);
    print_bytes(number(disk, "bytes"));
    fputs(" of ", stdout);
    print_bytes(number(disk, "limit_bytes"));
    /* The reserve begins before the limit. */
    if (json_get(disk, "effective_bytes", NULL) &&
        number(disk, "effective_bytes") < number(disk, "limit_bytes")) {
        fputs(", now ", stdout);
        print_bytes(number(disk, "effective_bytes"));
    }
    printf(" in %.0f blocks (%.0f read, %.0f written)%s\n           ", number(disk, "blocks"),
           number(disk, "read"), number(disk, "written"),
           json_bool(json_get(disk, "paused", NULL)) ? paused : "");
    print_bytes(number(disk, "free_bytes"));
    fputs(" are free there, ", stdout);
    print_bytes(number(disk, "reserve_bytes"));
    puts(" of them kept for the history");
}

/* A daemon of before has no account. */
static void print_account(const json *memory)
{
    if (!json_get(memory, "buffers_bytes", NULL))
        return;
    fputs("memory     ", stdout);
    print_bytes(number(memory, "limit_bytes"));
    fputs(": weights ", stdout);
    print_bytes(number(memory, "weights_bytes"));
    fputs(", vectors ", stdout);
    print_bytes(number(memory, "vectors_bytes"));
    fputs(", buffers ", stdout);
    print_bytes(number(memory, "buffers_bytes"));
    fputs(", KV ", stdout);
    print_bytes(number(memory, "kv_bytes_max"));
    putchar('\n');
}

static void print_kv(const json *memory)
{
    const json *pressure = json_get(memory, "pressure", NULL);
    double allowed = number(memory, "kv_allowed_bytes");
    fputs("KV         live ", stdout);
    print_bytes(number(memory, "kv_live_bytes"));
    fputs(", cached ", stdout);
    print_bytes(number(memory, "kv_cached_bytes"));
    printf(", in %.0f blocks (%.0f evicted)\n", number(memory, "kv_blocks"),
           number(memory, "kv_evicted"));
    if (allowed > 0 && allowed < number(memory, "kv_bytes_max")) {
        printf("           memory is short (%.0f %% of the last 10 s): no more than ",
               number(pressure, "some_avg10"));
        print_bytes(allowed);
        putchar('\n');
    }
}

static void print_store(const json *j)
{
    const json *memory = json_get(j, "memory", NULL), *history = json_get(j, "history", NULL);
    print_account(memory);
    print_kv(memory);
    print_disk(json_get(j, "disk", NULL));
    if (!history)
        return;
    printf("history    %.0f conversations, %.0f messages, ", number(history, "conversations"),
           number(history, "messages"));
    print_bytes(number(history, "file_bytes"));
    fputs(" in ", stdout);
    print_word(j, "state_dir");
    putchar('\n');
}

static void print_status(const json *j)
{
    print_daemon(j);
    print_model(j);
    print_all_served(j);
    print_work(j);
    print_store(j);
}

/* ---- models ---- */

static bool is_set(const json *j, const char *key)
{
    return json_bool(json_get(j, key, NULL));
}

/* What it takes, or why it doesn't run. */
static void print_model_state(const json *m)
{
    const char *state = json_str(json_get(m, "state", NULL));
    if (is_set(m, "loaded"))
        printf("loaded");
    else if (state && !strcmp(state, "loading"))
        printf("loading, %.0f %%", 100 * number(m, "progress"));
    else if (is_set(m, "runs") && is_set(m, "fits"))
        printf("runs, %.0f tokens", number(m, "ctx"));
    else
        print_word(m, "why");
}

static void print_model_line(const json *m)
{
    print_word(m, "id");
    printf("\n    ");
    print_bytes(number(m, "file_bytes"));
    if (json_get(m, "arch", NULL)) {
        printf(", ");
        print_word(m, "arch");
        printf(" ");
        print_word(m, "quant");
        printf(", ");
        print_count(number(m, "parameters"));
        printf(" parameters, made for %.0f tokens", number(m, "ctx_train"));
    }
    if (is_set(m, "runs")) {
        printf("\n    weights ");
        print_bytes(number(m, "weights_bytes"));
        printf(", KV ");
        print_bytes(number(m, "kv_bytes_per_token"));
        printf(" a token");
        if (number(m, "kv_window") > 0) {
            printf(" (");
            print_bytes(number(m, "kv_bytes_per_old_token"));
            printf(" of one more than %.0f back)", number(m, "kv_window"));
        }
        printf("%s", is_set(m, "has_template") ? "" : ", no chat template");
    }
    printf("\n    ");
    print_model_state(m);
    putchar('\n');
}

static void print_models(const json *j)
{
    const json *data = json_get(j, "data", NULL);
    for (const json *it = json_first(data); it; it = json_next(it))
        print_model_line(it);
    if (!json_first(data))
        printf("no models in");
    else
        printf("in");
    for (const json *it = json_first(json_get(j, "dirs", NULL)); it; it = json_next(it)) {
        putchar(' ');
        term_line(stdout, json_str(it), WORD_COLUMNS);
    }
    if (number(j, "left_out") > 0)
        printf("; %.0f more are left out", number(j, "left_out"));
    putchar('\n');
}

/* ---- both ---- */

static int print_answer(struct client *c, const char *path, void (*print)(const json *))
{
    json *j = NULL;
    int code = api_call(c, "GET", path, NULL, &j);
    if (code)
        return code;
    if (c->is_json)
        code = api_print_json(c, j);
    else
        print(j);
    json_free(j);
    return code;
}

static int read_none(struct client *c, int argc, char **argv)
{
    const struct command *self = command_find(argv[0]);
    struct options_reader reader = {c, self, NULL, NULL};
    int first;
    int code = options_read(&reader, argc, argv, &first);
    if (code || first == argc)
        return code;
    return usage_error(self, "%s takes no arguments", self->name);
}

int cmd_status(struct client *c, int argc, char **argv)
{
    int code = read_none(c, argc, argv);
    if (!code)
        code = api_wait_ready(c);
    return code ? code : print_answer(c, "/v1/hearth/status", print_status);
}

int cmd_models(struct client *c, int argc, char **argv)
{
    int code = read_none(c, argc, argv);
    return code ? code : print_answer(c, "/v1/hearth/models", print_models);
}
