/*
 * hearth replay: the command line, the files, and where the results go.
 *
 * Everything is read, and every file of results opened, before the first request: a malformed line
 * or a folder that isn't there must not cost an hour of playing. What was played is reported in any
 * case, after Ctrl-C and errors too.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/jsonl.h"
#include "client/options.h"
#include "client/replay.h"
#include "client/term.h"

#define INTERLEAVE_MAX 10000
#define TEXT_MAX_BYTES ((size_t)1 << 30) /* of all conversations together */
#define DEFAULT_MAX_TOKENS 64
#define DEFAULT_START_S 600
#define PAUSE_MAX_S 86400
#define ENOUGH (-1) /* --limit is reached: no exit code */

enum {
    OPT_INTERLEAVE = OPT_OWN,
    OPT_TEACHER,
    OPT_TOKENS,
    OPT_LIMIT,
    OPT_TURNS,
    OPT_NO_CACHE,
    OPT_DAEMON,
    OPT_RESTART,
    OPT_KILL,
    OPT_PAUSE,
    OPT_NAME,
    OPT_JSON_FILE,
    OPT_CSV_FILE,
};
const struct option_row replay_command_options[] = {
    {"interleave", "N", OPT_INTERLEAVE, "so many conversations take turns; 1 otherwise"},
    {"teacher", NULL, OPT_TEACHER, "go on from the recorded answers, not from the model's own"},
    {"max-tokens", "N", OPT_TOKENS, "of each answer; 64 otherwise"},
    {"limit", "N", OPT_LIMIT, "only the first N conversations"},
    {"turns", "N", OPT_TURNS, "only the first N turns of each"},
    {"no-cache", NULL, OPT_NO_CACHE, "ask hearthd to compute everything: the baseline"},
    {"context", "STRATEGY", OPT_CONTEXT, "ask hearthd to cut what outgrows the window"},
    {"daemon", "CMD", OPT_DAEMON, "start this daemon for the replay, and end it afterwards"},
    {"restart-every", "K", OPT_RESTART, "restart that daemon after every K turns"},
    {"kill", NULL, OPT_KILL, "restart by SIGKILL instead of SIGTERM"},
    {"pause", "SECONDS", OPT_PAUSE, "do nothing for so long before each restart"},
    {"model", "NAME", OPT_NAME, "which model should answer"},
    {"json", "FILE", OPT_JSON_FILE, "the results as JSON; - is stdout, instead of the table"},
    {"csv", "FILE", OPT_CSV_FILE, "a line for each turn; - is stdout, instead of the table"},
    {NULL, NULL, 0, NULL},
};

/* ---- the command line ---- */

struct number {
    int value;
    int64_t *to, min, max;
};

static const char *option_name(int value)
{
    const struct option_row *r = replay_command_options;
    while (r->value != value)
        r++;
    return r->name;
}

static int take_number(const struct number *n, const char *arg)
{
    if (parse_int(arg, n->min, n->max, n->to))
        return 0;
    return usage_error(command_find("replay"), "--%s %s: a whole number from %lld to %lld",
                       option_name(n->value), arg, (long long)n->min, (long long)n->max);
}

static int take(void *ctx, int value, const char *arg)
{
    struct replay_options *o = ctx;
    const struct number numbers[] = {
        {OPT_INTERLEAVE, &o->interleave, 1, INTERLEAVE_MAX},
        {OPT_TOKENS, &o->max_tokens, 1, INT32_MAX},
        {OPT_LIMIT, &o->limit, 1, INT32_MAX},
        {OPT_TURNS, &o->turns, 1, INT32_MAX},
        {OPT_RESTART, &o->restart_every, 1, INT32_MAX},
        {OPT_PAUSE, &o->pause_s, 0, PAUSE_MAX_S},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].value == value)
            return take_number(&numbers[i], arg);
    o->is_teacher = o->is_teacher || value == OPT_TEACHER;
    o->has_no_cache = o->has_no_cache || value == OPT_NO_CACHE;
    o->is_kill = o->is_kill || value == OPT_KILL;
    if (value == OPT_CONTEXT)
        o->context = arg;
    if (value == OPT_DAEMON)
        o->daemon = arg;
    if (value == OPT_NAME)
        o->model = arg;
    if (value == OPT_JSON_FILE)
        o->json_path = arg;
    if (value == OPT_CSV_FILE)
        o->csv_path = arg;
    return 0;
}

static bool is_stdout(const char *path)
{
    return path && !strcmp(path, "-");
}

/* What doesn't go together. */
static int check(struct client *c, struct replay_options *o, bool has_files)
{
    const struct command *self = command_find("replay");
    if (!has_files)
        return usage_error(self, "which FILE?");
    if (o->restart_every && !o->daemon)
        return usage_error(self, "--restart-every needs a --daemon that it can restart");
    if ((o->is_kill || o->pause_s) && !o->restart_every)
        return usage_error(self, "--%s goes with --restart-every", o->is_kill ? "kill" : "pause");
    if (c->is_json && !o->json_path)
        o->json_path = "-";
    if (is_stdout(o->json_path) && is_stdout(o->csv_path))
        return usage_error(self, "--json and --csv can't both be stdout");
    c->is_json = is_stdout(o->json_path);
    return 0;
}

/* ---- the files ---- */

struct loading {
    struct replay *replay;
    struct jsonl_reader reader;
    size_t n_bytes, cap;
};

static int grow(struct loading *l)
{
    struct replay *r = l->replay;
    if (r->n_entries < l->cap)
        return 0;
    size_t cap = l->cap ? 2 * l->cap : 64;
    struct replay_entry *more = reallocarray(r->entries, cap, sizeof *more);
    if (!more)
        return api_fail(r->client, EXIT_REFUSED, "nomem", "out of memory");
    r->entries = more;
    l->cap = cap;
    return 0;
}

static char *where_of(const char *name, int line)
{
    struct buf b;
    buf_init(&b, 1 << 16);
    buf_printf(&b, "%s:%d", name, line);
    return buf_take(&b, NULL);
}

/* jsonl_read's on_line. */
static int load_line(void *ctx, const struct buf *line, int number)
{
    struct loading *l = ctx;
    struct replay *r = l->replay;
    struct err e;
    int code = grow(l);
    if (code)
        return code;
    struct replay_entry *entry = &r->entries[r->n_entries];
    *entry = (struct replay_entry){0};
    if (replay_read_line(line->data, line->len, &entry->recorded, &e))
        return api_fail(r->client, EXIT_REFUSED, err_name(e.code), "%s:%d: %s", l->reader.name,
                        number, e.text);
    entry->where = where_of(l->reader.name, number);
    r->n_entries++;
    l->n_bytes += entry->recorded.n_bytes;
    if (!entry->where)
        return api_fail(r->client, EXIT_REFUSED, "nomem", "out of memory");
    if (l->n_bytes > TEXT_MAX_BYTES)
        return api_fail(r->client, EXIT_REFUSED, "limit",
                        "%s: more than %zu bytes of text; --limit plays the first conversations",
                        entry->where, TEXT_MAX_BYTES);
    return r->options.limit && r->n_entries >= (size_t)r->options.limit ? ENOUGH : 0;
}

static int load(struct replay *r, int n, char **paths)
{
    struct loading l = {.replay = r};
    l.reader = (struct jsonl_reader){r->client, NULL, load_line, &l};
    int code = 0;
    for (int i = 0; i < n && !code; i++)
        code = jsonl_read_path(&l.reader, paths[i]);
    if (code == ENOUGH)
        return 0;
    if (!code && !r->n_entries)
        code = api_fail(r->client, EXIT_REFUSED, "inval", "%s: no conversation in it", paths[0]);
    return code;
}

/* ---- the results ---- */

struct outputs {
    FILE *json, *csv; /* NULL: none, or stdout */
};

/* Whether nothing is lost when it is written over: results of before, nothing, or no file; not a
 * list of conversations that was meant to be played, say. */
static bool may_overwrite(const char *path)
{
    static const char *const begins[] = {REPLAY_JSON_BEGIN, REPLAY_CSV_BEGIN};
    char head[64] = "";
    struct stat st;
    FILE *f = stat(path, &st) || !S_ISREG(st.st_mode) ? NULL : fopen(path, "re");
    if (!f)
        return true; /* or it can't be written either */
    size_t n = fread(head, 1, sizeof head - 1, f);
    fclose(f);
    bool is_ours = !n;
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        is_ours = is_ours || !strncmp(head, begins[i], strlen(begins[i]));
    return is_ours;
}

/* Emptied when the results are there. */
static int open_output(struct client *c, const char *path, FILE **ret)
{
    if (!path || is_stdout(path))
        return 0;
    if (!may_overwrite(path))
        return api_fail(c, EXIT_REFUSED, "io",
                        "%s is there already, and holds no results; it isn't overwritten", path);
    *ret = fopen(path, "ae");
    if (*ret)
        return 0;
    return api_fail(c, EXIT_REFUSED, "io", "%s can't be written: %s", path, strerror(errno));
}

/* b to its file or stdout. */
static int write_output(struct client *c, const struct buf *b, FILE *out, const char *path)
{
    if (buf_error(b))
        return api_fail(c, EXIT_REFUSED, err_name(buf_error(b)), "the results of %s: %s", path,
                        err_name(buf_error(b)));
    if (!out) {
        term_write(stdout, b->data, b->len);
        return term_flush() ? 0 : EXIT_REFUSED; /* term_end says why */
    }
    (void)!ftruncate(fileno(out), 0); /* a pipe can't be, nor need it */
    if (fwrite(b->data, 1, b->len, out) < b->len || fflush(out))
        return api_fail(c, EXIT_REFUSED, "io", "%s can't be written: %s", path, strerror(errno));
    return 0;
}

static int report_json(const struct replay *r, bool is_whole, FILE *out)
{
    json *j = NULL;
    int code = replay_json(r, is_whole, &j);
    if (code)
        return code;
    struct buf b;
    buf_init(&b, TEXT_MAX_BYTES);
    json_write(j, &b);
    buf_char(&b, '\n');
    code = write_output(r->client, &b, out, r->options.json_path);
    buf_done(&b);
    json_free(j);
    return code;
}

static int report_csv(const struct replay *r, FILE *out)
{
    struct buf b;
    buf_init(&b, TEXT_MAX_BYTES);
    replay_csv(r, &b);
    int code = write_output(r->client, &b, out, r->options.csv_path);
    buf_done(&b);
    return code;
}

/* The first failure counts. */
static int report(const struct replay *r, const struct outputs *out, int code)
{
    bool has_table = !is_stdout(r->options.json_path) && !is_stdout(r->options.csv_path);
    int table = has_table ? replay_print_table(r) : 0;
    int csv = r->options.csv_path ? report_csv(r, out->csv) : 0;
    int result = r->options.json_path ? report_json(r, !code && !r->n_refused, out->json) : 0;
    if (!code)
        code = table ? table : csv ? csv : result;
    return !code && r->n_refused ? EXIT_REFUSED : code;
}

/* ---- the command ---- */

/* Somebody else's daemon is waited for; ours is started. */
static int get_ready(struct replay *r, char **words)
{
    struct client *c = r->client;
    if (!words)
        return api_wait_ready(c);
    return replay_daemon_start(c, words, c->wait_s ? c->wait_s : DEFAULT_START_S, &r->daemon);
}

static int play(struct replay *r, const struct outputs *out, char **words)
{
    api_catch_interrupt(r->client);
    int code = get_ready(r, words);
    if (code)
        return code;
    code = replay_play(r);
    int stopped = replay_daemon_stop(r->daemon);
    return report(r, out, code ? code : stopped);
}

static void done(struct replay *r)
{
    for (size_t i = 0; i < r->n_entries; i++) {
        replay_conversation_done(&r->entries[i].recorded);
        free(r->entries[i].where);
    }
    free(r->entries);
    free(r->turns);
}

static int split_command(const char *text, char ***ret)
{
    struct err e;
    if (!text || !replay_words(text, ret, &e))
        return 0;
    return usage_error(command_find("replay"), "--daemon %s: %s", text, e.text);
}

int cmd_replay(struct client *c, int argc, char **argv)
{
    struct replay r = {.client = c};
    struct options_reader reader = {c, command_find("replay"), take, &r.options};
    struct outputs out = {0};
    char **words = NULL;
    int first;
    r.options.interleave = 1;
    r.options.max_tokens = DEFAULT_MAX_TOKENS;
    int code = options_read(&reader, argc, argv, &first);
    if (!code)
        code = check(c, &r.options, first < argc);
    if (!code)
        code = split_command(r.options.daemon, &words);
    if (!code)
        code = load(&r, argc - first, argv + first);
    if (!code)
        code = open_output(c, r.options.json_path, &out.json);
    if (!code)
        code = open_output(c, r.options.csv_path, &out.csv);
    if (!code)
        code = play(&r, &out, words);
    if (out.json)
        fclose(out.json);
    if (out.csv)
        fclose(out.csv);
    replay_words_free(words);
    done(&r);
    return code;
}
