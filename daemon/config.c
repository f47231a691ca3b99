/*
 * Configuration. One table says everything about an option: its name on the command line and in the
 * file, where its value goes, what is allowed, and its line of help.
 */
#include "daemon/config.h"

#include <errno.h>
#include <getopt.h>
#include <ini.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/paths.h"
#include "daemon/budget.h"
#include "daemon/limits.h"
#include "daemon/models.h"
#include "daemon/listen.h"
#include "memory/plan.h"

#define FILE_BYTES (256 * 1024)
#define LINE_BYTES 8192

enum kind {
    K_TEXT,
    K_LISTEN,
    K_ORIGIN,
    K_CONTEXT,
    K_SUMMARY,
    K_ON_OFF,
    K_SERVE,
    K_UNKNOWN,
    K_TEMPLATE,
    K_INT,
    K_SIZE,
    K_MODE,
    K_KV,
    K_NFC,
    K_LOG,
    K_NO_CACHE,
    K_CONFIG
};

struct option_row {
    const char *name;
    enum kind kind;
    size_t offset; /* in struct config */
    int64_t min, max;
    const char *arg; /* for --help; NULL: takes no value */
    const char *help;
};

#define AT(field) offsetof(struct config, field)
static const struct option_row rows[] = {
    {"config", K_CONFIG, AT(config_path), 0, 0, "FILE",
     "configuration (default: ~/.config/hearth/hearth.conf, then /etc/hearth/hearth.conf)"},
    {"model", K_TEXT, AT(model), 0, 0, "FILE|NAME", "the GGUF model to run (required)"},
    {"socket", K_TEXT, AT(socket_path), 0, 0, "PATH",
     "Unix socket (default: in the runtime directory, else in the state directory)"},
    {"socket-mode", K_MODE, AT(socket_mode), 0, 0, "MODE",
     "0600: for your own user only (default); 0660: for its group too"},
    {"listen", K_LISTEN, AT(listen), 0, 0, "HOST:PORT",
     "also listen on TCP, on loopback; needs --api-key-file"},
    {"api-key-file", K_TEXT, AT(api_key_file), 0, 0, "FILE", "lines owner:key, file mode 0600"},
    {"cors-origin", K_ORIGIN, AT(cors_origin), 0, 0, "ORIGIN",
     "the web origin whose pages may call over TCP (default: none)"},
    {"state-dir", K_TEXT, AT(state_dir), 0, 0, "DIR",
     "history.db and the lock (default: ~/.local/state/hearth)"},
    {"cache-dir", K_TEXT, AT(cache_dir), 0, 0, "DIR",
     "what can be computed again (default: ~/.cache/hearth)"},
    {"ctx", K_INT, AT(ctx), BUDGET_CTX_MIN, 1 << 20, "N",
     "tokens a turn may have (default: the least of the model's, 8192, and what memory holds)"},
    {"parallel", K_INT, AT(parallel), 1, LIMIT_PARALLEL, "N", "turns that run at once (default 4)"},
    {"queue", K_INT, AT(queue), 0, LIMIT_QUEUE, "N",
     "turns that may wait; more get a 503 (default 32)"},
    {"threads", K_INT, AT(threads), 1, 256, "N", "compute threads (default: physical cores)"},
    {"isa", K_TEXT, AT(isa), 0, 0, "NAME",
     "kernels: c, avx2, avx512, amx (default: the best of this CPU; the bits are the same)"},
    {"memory", K_SIZE, AT(memory_bytes), 16 << 20, INT64_MAX, "SIZE",
     "for weights, KV and buffers, e.g. 4G (default: half of RAM or cgroup, at most 4G)"},
    {"disk", K_SIZE, AT(disk_bytes), 0, INT64_MAX, "SIZE",
     "for KV below --cache-dir, 0: none (default: a tenth of what is free, at most 16G)"},
    {"disk-reserve", K_SIZE, AT(disk_reserve_bytes), 0, INT64_MAX, "SIZE",
     "what stays free on that disk, for history (default 1G)"},
    {"verify-every", K_INT, AT(verify_every), 0, LIMIT_VERIFY_EVERY, "N",
     "of N blocks read from disk, compute one again when idle, 0: none (default 64)"},
    {"kv-type", K_KV, AT(kv_type), 0, 0, "f16|q8_0", "how keys and values are kept (default f16)"},
    {"context", K_CONTEXT, AT(context), 0, 0, "STRATEGY",
     "what a conversation does that outgrows the window: error, window, summarise, retrieve, prune "
     "or auto (default)"},
    {"answer-reserve", K_INT, AT(answer_reserve), 0, LIMIT_ANSWER_RESERVE, "PERCENT",
     "of the window that cuts keep free for the answer, unless max_tokens says (default 15)"},
    {"summary", K_SUMMARY, AT(summary), 0, 0, "HOW",
     "who sums up what leaves: model, extract, or auto (default: the model from 1 B parameters "
     "on)"},
    {"embedding-model", K_TEXT, AT(embedding_model), 0, 0, "FILE",
     "a GGUF of BERT's kind: search by meaning, and /v1/embeddings (default: none)"},
    {"chat-template", K_TEMPLATE, 0, 0, 0, "[MODEL=]FILE|NAME",
     "instead of --model's own, or MODEL's; may be given for each model"},
    {"tokenizer-nfc", K_NFC, AT(skip_nfc), 0, 0, "model|off",
     "normalise text as the model's own tokenizer does (default), or never, as llama.cpp"},
    {"serve", K_SERVE, AT(serves_all), 0, 0, "all|one",
     "all: requests may name any model of the models' directories, which is loaded on demand "
     "(default); one: --model alone"},
    {"resident", K_INT, AT(resident), 1, LIMIT_RESIDENT, "N",
     "models in memory at once, as far as --memory goes (default 4)"},
    {"idle-unload", K_INT, AT(idle_unload_s), 0, LIMIT_IDLE_UNLOAD_S, "SECONDS",
     "a model that was loaded on demand leaves memory after so long, 0: never (default 1800)"},
    {"load-wait", K_INT, AT(load_wait_s), 0, LIMIT_LOAD_WAIT_S, "SECONDS",
     "a request whose model has to be loaded first waits so long, then 503; streams wait on, and "
     "are told (default 300)"},
    {"unknown-model", K_UNKNOWN, AT(unknown_is_default), 0, 0, "refuse|default",
     "of several models, which answers when a request names none of them: none, by 404 (default), "
     "or --model's"},
    {"speculation", K_ON_OFF, AT(speculation), 0, 0, "on|off",
     "draft answers from what was said before; the bits are the same (default on)"},
    {"no-cache", K_NO_CACHE, AT(use_cache), 0, 0, NULL,
     "compute every prompt from its first token"},
    {"log-level", K_LOG, AT(log_level), 0, 0, "LEVEL", "error, warn, info (default) or debug"},
};
#define N_ROWS (sizeof(rows) / sizeof(rows[0]))

int config_size(const char *s, uint64_t *ret)
{
    if (s[0] < '0' || s[0] > '9')
        return ERR_INVAL;
    char *end = NULL;
    unsigned long long v = strtoull(s, &end, 10);
    static const char units[] = "kmgt";
    int shift = 0;
    if (*end) {
        const char *u = strchr(units, *end | 0x20);
        if (!u)
            return ERR_INVAL;
        shift = 10 * (int)(u - units + 1);
        end++;
        if (*end && strcasecmp(end, "b") != 0 && strcasecmp(end, "ib") != 0)
            return ERR_INVAL;
    }
    if (v > (uint64_t)INT64_MAX >> shift)
        return ERR_INVAL;
    *ret = v << shift;
    return 0;
}

static int set_text(char **to, const char *value, const char *where, struct err *e)
{
    if (!value[0])
        return err_set(e, ERR_INVAL, "%s is empty", where);
    char *copy = strdup(value);
    if (!copy)
        return err_set(e, ERR_NOMEM, "%s: out of memory", where);
    free(*to);
    *to = copy;
    return 0;
}

static int set_int(const struct option_row *o, int *to, const char *value, const char *where,
                   struct err *e)
{
    char *end = NULL;
    long long v = strtoll(value, &end, 10);
    if (end == value || *end || v < o->min || v > o->max)
        return err_set(e, ERR_INVAL, "%s is \"%s\"; a whole number from %lld to %lld is allowed",
                       where, value, (long long)o->min, (long long)o->max);
    *to = (int)v;
    return 0;
}

static int set_size(const struct option_row *o, uint64_t *to, const char *value, const char *where,
                    struct err *e)
{
    uint64_t v = 0;
    if (config_size(value, &v) < 0)
        return err_set(e, ERR_INVAL, "%s is \"%s\"; a size like 512M or 4G is wanted", where,
                       value);
    if (v < (uint64_t)o->min)
        return err_set(e, ERR_INVAL, "%s is \"%s\"; at least %lld MiB are needed", where, value,
                       (long long)(o->min >> 20));
    *to = v;
    return 0;
}

static int set_mode(int *to, const char *value, const char *where, struct err *e)
{
    char *end = NULL;
    long v = strtol(value, &end, 8);
    if (end == value || *end || (v & ~0666L) != 0 || (v & 0600) != 0600)
        return err_set(e, ERR_INVAL,
                       "%s is \"%s\"; 0600 (own user), 0660 (group) or 0666 is allowed", where,
                       value);
    *to = (int)v;
    return 0;
}

static int set_summary(char **to, const char *value, const char *where, struct err *e)
{
    if (strcmp(value, "auto") && strcmp(value, "model") && strcmp(value, "extract"))
        return err_set(e, ERR_INVAL, "%s is \"%s\"; auto, model or extract is expected", where,
                       value);
    return set_text(to, value, where, e);
}

static int set_context(char **to, const char *value, const char *where, struct err *e)
{
    enum plan_strategy strategy;
    if (!plan_strategy_parse(value, &strategy))
        return err_set(e, ERR_INVAL, "%s is \"%s\"; one of these is expected: %s", where, value,
                       plan_strategy_names());
    return set_text(to, value, where, e);
}

/* scheme://host[:port], as a browser sends it. */
static int set_origin(char **to, const char *value, const char *where, struct err *e)
{
    const char *sep = strstr(value, "://");
    bool ok = sep && sep > value && sep[3] && !strchr(sep + 3, '/');
    for (const char *p = value; *p && ok; p++)
        ok = *p > ' ' && *p < 0x7f && *p != '*';
    if (!ok)
        return err_set(e, ERR_INVAL, "%s is \"%s\"; one origin like https://chat.example is wanted",
                       where, value);
    return set_text(to, value, where, e);
}

static int set_bool(const char *value, bool *ret, const char *where, struct err *e)
{
    static const char *const yes[] = {"yes", "true", "on", "1"}, *const no[] = {"no", "false",
                                                                                "off", "0"};
    for (size_t i = 0; i < 4; i++) {
        if (strcasecmp(value, yes[i]) == 0 || strcasecmp(value, no[i]) == 0) {
            *ret = strcasecmp(value, yes[i]) == 0;
            return 0;
        }
    }
    return err_set(e, ERR_INVAL, "%s is \"%s\"; yes or no is wanted", where, value);
}

static int set_on_off(int *to, const char *value, const char *where, struct err *e)
{
    const bool is_on = strcmp(value, "on") == 0;
    if (!is_on && strcmp(value, "off") != 0)
        return err_set(e, ERR_INVAL, "%s is \"%s\"; on or off is allowed", where, value);
    *to = is_on;
    return 0;
}

static int set_serve(int *to, const char *value, const char *where, struct err *e)
{
    const bool is_all = strcmp(value, "all") == 0;
    if (!is_all && strcmp(value, "one") != 0)
        return err_set(e, ERR_INVAL, "%s is \"%s\"; all or one is allowed", where, value);
    *to = is_all;
    return 0;
}

static int set_unknown(int *to, const char *value, const char *where, struct err *e)
{
    const bool is_default = strcmp(value, "default") == 0;
    if (!is_default && strcmp(value, "refuse") != 0)
        return err_set(e, ERR_INVAL, "%s is \"%s\"; refuse or default is allowed", where, value);
    *to = is_default;
    return 0;
}

static int set_kv(enum kv_type *to, const char *value, const char *where, struct err *e)
{
    if (!kv_type_find(value, to))
        return err_set(e, ERR_INVAL, "%s is \"%s\"; f16 or q8_0 is allowed", where, value);
    return 0;
}

static int set_nfc(bool *ret_skip, const char *value, const char *where, struct err *e)
{
    if (strcmp(value, "model") != 0 && strcmp(value, "off") != 0)
        return err_set(e, ERR_INVAL, "%s is \"%s\"; model or off is allowed", where, value);
    *ret_skip = strcmp(value, "off") == 0;
    return 0;
}

/* `where` names the option: "--ctx", or "hearth.conf, line 3: ctx". value NULL: a flag that takes
 * none. */
static int set_value(const struct option_row *o, struct config *c, const char *value,
                     const char *where, struct err *e)
{
    void *to = (char *)c + o->offset;
    bool is_off = true;
    int rc;
    switch (o->kind) {
    case K_LISTEN:
        rc = listen_check(value, e);
        return rc < 0 ? err_prefix(e, "%s", where) : set_text(to, value, where, e);
    case K_ORIGIN:
        return set_origin(to, value, where, e);
    case K_CONTEXT:
        return set_context(to, value, where, e);
    case K_SUMMARY:
        return set_summary(to, value, where, e);
    case K_INT:
        return set_int(o, to, value, where, e);
    case K_SIZE:
        return set_size(o, to, value, where, e);
    case K_MODE:
        return set_mode(to, value, where, e);
    case K_KV:
        return set_kv(to, value, where, e);
    case K_NFC:
        return set_nfc(to, value, where, e);
    case K_ON_OFF:
        return set_on_off(to, value, where, e);
    case K_SERVE:
        return set_serve(to, value, where, e);
    case K_UNKNOWN:
        return set_unknown(to, value, where, e);
    case K_TEMPLATE:
        return config_template_set(c, value, where, e);
    case K_LOG:
        c->log_level = log_level_parse(value);
        return c->log_level >= 0
                   ? 0
                   : err_set(e, ERR_INVAL, "%s is \"%s\"; error, warn, info or debug is allowed",
                             where, value);
    case K_NO_CACHE:
        rc = value ? set_bool(value, &is_off, where, e) : 0;
        if (rc == 0)
            c->use_cache = !is_off;
        return rc;
    case K_TEXT:
    case K_CONFIG:
        break;
    }
    return set_text(to, value, where, e);
}

/* ---- the file ---- */

struct reading {
    struct config *config;
    struct err *e;
    const char *path;
    const char *text, *end;
    int n_line, rc;
    bool is_given[N_ROWS];
};

/* inih's idea of fgets; it is asked once a line, so the lines can be counted here. */
static char *read_line(char *to, int size, void *arg)
{
    struct reading *r = arg;
    if (r->text >= r->end || r->rc < 0)
        return NULL;
    const char *nl = memchr(r->text, '\n', (size_t)(r->end - r->text));
    size_t n = (size_t)((nl ? nl + 1 : r->end) - r->text);
    r->n_line++;
    if (n >= (size_t)size) {
        r->rc = err_set(r->e, ERR_LIMIT, "%s, line %d is longer than %d bytes", r->path, r->n_line,
                        size - 1);
        return NULL;
    }
    memcpy(to, r->text, n);
    to[n] = '\0';
    r->text += n;
    return to;
}

/* '_' may stand for '-' in the file. */
static const struct option_row *find_row(const char *name)
{
    for (size_t i = 0; i < N_ROWS; i++) {
        size_t k = 0;
        const char *own = rows[i].name;
        while (own[k] && (own[k] == name[k] || (own[k] == '-' && name[k] == '_')))
            k++;
        if (own[k] == '\0' && name[k] == '\0')
            return &rows[i];
    }
    return NULL;
}

static int on_entry(void *arg, const char *section, const char *name, const char *value)
{
    struct reading *r = arg;
    char where[512];
    snprintf(where, sizeof(where), "%s, line %d: %s", r->path, r->n_line, name);
    const struct option_row *o = find_row(name);
    if (section[0] && strcmp(section, "hearthd") != 0)
        r->rc =
            err_set(r->e, ERR_INVAL, "%s: [%s] is no section of this file; [hearthd] or none is",
                    where, section);
    else if (!o || o->kind == K_CONFIG)
        r->rc = err_set(r->e, ERR_INVAL, "%s is no option (hearthd --help lists them)", where);
    else if (r->is_given[o - rows] && o->kind != K_TEMPLATE)
        r->rc = err_set(r->e, ERR_INVAL, "%s is given twice", where);
    else
        r->rc = set_value(o, r->config, value, where, r->e);
    if (o)
        r->is_given[o - rows] = true;
    return r->rc == 0;
}

static int parse_text(const char *path, const struct buf *text, struct config *c, struct err *e)
{
    if (text->data && memchr(text->data, '\0', text->len))
        return err_set(e, ERR_INVAL, "%s holds a NUL: it is no text file", path);
    /* inih's settings are globals of the library; nobody else in the program uses it. */
    ini_use_stack = false;
    ini_allow_realloc = false;
    ini_max_line = ini_initial_alloc = LINE_BYTES;
    ini_allow_multiline =
        false; /* an indented line is an ordinary one, not more of the value before */
    ini_stop_on_first_error = true;
    struct reading r = {.config = c, .e = e, .path = path, .text = text->data ? text->data : ""};
    r.end = r.text + text->len;
    int line = ini_parse_stream(read_line, &r, on_entry, &r);
    if (r.rc < 0)
        return r.rc;
    if (line == -2)
        return err_set(e, ERR_NOMEM, "%s: out of memory", path);
    if (line != 0)
        return err_set(e, ERR_INVAL, "%s, line %d: name = value is wanted", path, line);
    return 0;
}

static int read_file(struct config *c, struct err *e)
{
    bool is_wanted = c->config_path != NULL;
    int rc = is_wanted ? 0 : path_config_file(&c->config_path, e);
    if (rc < 0)
        return rc;
    struct buf text;
    buf_init(&text, FILE_BYTES);
    rc = file_read(c->config_path, &text, e);
    if (rc == 0)
        rc = parse_text(c->config_path, &text, c, e);
    else if (rc == ERR_NOTFOUND && !is_wanted)
        rc = 0;
    buf_done(&text);
    return rc;
}

/* ---- flags ---- */

enum { FLAG_HELP = 1000, FLAG_VERSION };

struct flags {
    const char *values[N_ROWS]; /* borrowed from argv; "" for flags without value */
    const char **templates;     /* [n_templates] --chat-template's, owned */
    size_t n_templates;
};

static int take_flag(struct flags *f, size_t i, const char *value, struct err *e)
{
    if (rows[i].kind == K_TEMPLATE) {
        f->templates[f->n_templates++] = value;
        return 0;
    }
    if (f->values[i])
        return err_set(e, ERR_INVAL, "--%s is given twice", rows[i].name);
    f->values[i] = value ? value : "";
    return 0;
}

static int read_flags(int argc, char **argv, struct flags *ret, struct err *e)
{
    int rc;
    ret->templates = calloc((size_t)argc + 1, sizeof *ret->templates);
    if (!ret->templates)
        return err_set(e, ERR_NOMEM, "out of memory for the flags");
    struct option longs[N_ROWS + 3] = {0};
    for (size_t i = 0; i < N_ROWS; i++)
        longs[i] = (struct option){rows[i].name, rows[i].arg ? required_argument : no_argument,
                                   NULL, (int)i + 1};
    longs[N_ROWS] = (struct option){"help", no_argument, NULL, FLAG_HELP};
    longs[N_ROWS + 1] = (struct option){"version", no_argument, NULL, FLAG_VERSION};
    opterr = 0;
    optind = 0; /* GNU: start afresh, also when called again (tests) */
    for (;;) {
        int got = getopt_long(argc, argv, "+:h", longs, NULL);
        if (got == -1)
            break;
        if (got == 'h' || got == FLAG_HELP)
            return CONFIG_HELP;
        if (got == FLAG_VERSION)
            return CONFIG_VERSION;
        if (got == ':')
            return err_set(e, ERR_INVAL, "%s needs a value", argv[optind - 1]);
        if (got == '?')
            return err_set(e, ERR_INVAL, "%s is no flag of hearthd (hearthd --help lists them)",
                           argv[optind - 1]);
        if ((rc = take_flag(ret, (size_t)got - 1, optarg, e)))
            return rc;
    }
    if (optind < argc)
        return err_set(e, ERR_INVAL,
                       "\"%s\": hearthd takes flags, or bench or probe first", argv[optind]);
    return CONFIG_RUN;
}

static int apply_flags(const struct flags *f, bool only_config, struct config *c, struct err *e)
{
    for (size_t i = 0; i < f->n_templates && !only_config; i++) {
        int rc = config_template_set(c, f->templates[i], "--chat-template", e);
        if (rc < 0)
            return rc;
    }
    for (size_t i = 0; i < N_ROWS; i++) {
        if (!f->values[i] || (rows[i].kind == K_CONFIG) != only_config)
            continue;
        char where[64];
        snprintf(where, sizeof(where), "--%s", rows[i].name);
        int rc = set_value(&rows[i], c, rows[i].arg ? f->values[i] : NULL, where, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- together ---- */

int config_check_file(const char *what, const char *path, struct err *e)
{
    struct stat st;
    if (stat(path, &st) < 0) {
        err_sys(e, errno, "%s %s", what, path);
        /* systemd's ProtectHome= makes homes look empty; say so where it would puzzle. */
        if (strncmp(path, "/home/", 6) == 0 && getenv("INVOCATION_ID"))
            return err_set(
                e, ERR_NOTFOUND,
                "%s %s can't be seen; the system service has ProtectHome=yes: put it into "
                "/var/lib/hearth/models",
                what, path);
        return e ? e->code : ERR_IO;
    }
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_INVAL, "%s %s is no regular file", what, path);
    return access(path, R_OK) == 0 ? 0 : err_sys(e, errno, "%s %s", what, path);
}

static int check_models(struct config *c, struct err *e)
{
    char *path = NULL;
    if (!c->model)
        return err_set(e, ERR_INVAL, "no model: --model FILE, or \"model = FILE\" in %s",
                       c->config_path);
    int rc = models_find(c->model, &path, e);
    if (rc)
        return rc;
    free(c->model);
    c->model = path;
    rc = config_check_file("model", c->model, e);
    return rc || !c->embedding_model ? rc
                                     : config_check_file("embedding model", c->embedding_model, e);
}

static int complete(struct config *c, struct err *e)
{
    int rc = check_models(c, e);
    if (rc == 0)
        rc = config_templates_check(c, e);
    if (rc < 0)
        return rc;
    if (c->listen && !c->api_key_file)
        return err_set(e, ERR_INVAL,
                       "--listen needs --api-key-file: every local user and every web page can "
                       "reach loopback");
    if (!c->state_dir)
        rc = path_state_dir(&c->state_dir, e);
    if (rc == 0 && !c->cache_dir)
        rc = path_cache_dir(&c->cache_dir, e);
    if (rc == 0 && !c->socket_path)
        rc = path_socket(c->state_dir, &c->socket_path, e);
    if (rc == 0 && !c->context)
        rc = set_text(&c->context, "auto", "context", e);
    if (rc < 0)
        return rc;
    if (strlen(c->socket_path) > SOCKET_PATH_MAX)
        return err_set(
            e, ERR_LIMIT,
            "socket path %s has %zu bytes, more than the %d that a Unix socket's name may have",
            c->socket_path, strlen(c->socket_path), SOCKET_PATH_MAX);
    if (c->memory_bytes == 0)
        c->memory_bytes = budget_default();
    return budget_check(c->memory_bytes, budget_machine(), e);
}

int config_load(int argc, char **argv, struct config *ret, struct err *e)
{
    struct flags flags = {.n_templates = 0};
    int rc = read_flags(argc, argv, &flags, e);
    if (rc != CONFIG_RUN) {
        free(flags.templates);
        return rc;
    }
    struct config c = {.socket_mode = 0600,
                       .parallel = DEFAULT_PARALLEL,
                       .queue = DEFAULT_QUEUE,
                       .disk_bytes = CONFIG_DISK_AUTO,
                       .disk_reserve_bytes = DEFAULT_DISK_RESERVE,
                       .verify_every = DEFAULT_VERIFY_EVERY,
                       .kv_type = KV_F16,
                       .use_cache = 1,
                       .answer_reserve = DEFAULT_ANSWER_RESERVE,
                       .serves_all = 1,
                       .speculation = 1,
                       .resident = DEFAULT_RESIDENT,
                       .idle_unload_s = DEFAULT_IDLE_UNLOAD_S,
                       .load_wait_s = DEFAULT_LOAD_WAIT_S,
                       .log_level = LOG_LEVEL_INFO};
    rc = apply_flags(&flags, true, &c, e);
    if (rc == 0)
        rc = read_file(&c, e);
    if (rc == 0)
        rc = apply_flags(&flags, false, &c, e);
    free(flags.templates);
    if (rc == 0)
        rc = complete(&c, e);
    if (rc < 0) {
        config_done(&c);
        return rc;
    }
    *ret = c;
    return CONFIG_RUN;
}

void config_done(struct config *c)
{
    char **texts[] = {&c->config_path, &c->model,           &c->isa,
                      &c->socket_path, &c->state_dir,       &c->cache_dir,
                      &c->listen,      &c->api_key_file,    &c->cors_origin,
                      &c->context,     &c->embedding_model, &c->summary};
    config_templates_done(c);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        free(*texts[i]);
        *texts[i] = NULL;
    }
}

void config_help(struct buf *b)
{
    buf_str(b, "hearthd — a local chat daemon\n\n"
               "    hearthd --model FILE [flags]\n"
               "    hearthd bench | perplexity | probe …      offline, no socket\n\n"
               "Every flag has the same name in hearth.conf (name = value); flag before file "
               "before default.\n\n");
    for (size_t i = 0; i < N_ROWS; i++) {
        char left[64];
        snprintf(left, sizeof(left), "--%s%s%s", rows[i].name, rows[i].arg ? " " : "",
                 rows[i].arg ? rows[i].arg : "");
        buf_printf(b, "  %-28s %s\n", left, rows[i].help);
    }
    buf_str(b, "  --help                       this text\n"
               "  --version                    version and build\n\n"
               "Exit status: 0 stopped as asked, 78 a wrong configuration, 1 anything else. See "
               "hearthd(8).\n");
}
