/*
 * hearthd probe --model FILE: the engine's parts by JSON lines, for golden tests by anyone. Each
 * line of stdin is answered by one line; an error is {"error": "…"}, and the next line is answered.
 *
 *   {"op":"tokenize","text":…,"special":bool}                        {"ids":[…]}
 *   {"op":"render","messages":[…],"add_generation_prompt":bool}      {"text":…,"ids":[…]}
 *   {"op":"logits","ids":[…],"top":20,"probe":[ids],                 {"top":[[id,logit],…],
 *     "chunk":N,"threads":N,"isa":"c","cached":N,"batch":N}            "probe":[[id,logit],…],
 *                                                                      "logsumexp","entropy",
 *                                                                      "mean","std","hash"}
 *   {"op":"dequantize","type":"Q4_1","hex":…}                        {"values":[…]}
 *   {"op":"sample","logits":[…null: −inf],"prompt_tokens":[…],       {"probs":[…],
 *     "output_tokens":[…],"draws":[u,…], "temperature":… or            "draws":[[u,id],…]}
 *     "params":{…}}
 *   {"op":"nll","ids":[…],"window":512,"each":bool}                  {"nats_per_token",
 *                                                                      "second_half",
 *                                                                      "nll":[…],"argmax":[…]}
 *
 * nll cuts ids into windows read from position 0, each alone (ids of less than one window are one;
 * a rest at the end is left out); nats_per_token is the mean over all tokens but each window's
 * first, second_half that of positions window/2 and up. `each` adds the lists behind it: the nll
 * of ids[i + 1] and the likeliest id, per position.
 */
#include "daemon/offline_probe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "daemon/offline.h"
#include "daemon/offline_memory.h"
#include "daemon/offline_pass.h"

#define OUTPUT_BYTES_MAX ((size_t)256 << 20)

/* ---- reading fields ---- */

int probe_take_ids(const json *o, const char *field, struct ids *ret, struct err *e)
{
    const json *a = json_get(o, field, e);
    int64_t v;
    if (json_type(a) != JSON_ARRAY)
        return err_set(e, ERR_INVAL, "%s must be an array of ids", field);
    for (const json *it = json_first(a); it; it = json_next(it)) {
        int rc = json_int(it, field, 0, INT32_MAX, &v, e);
        if (rc == 0 && (rc = ids_push(ret, (int32_t)v)) < 0)
            rc = err_set(e, rc, "no room for %s", field);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int probe_take_int(const json *o, const char *field, int64_t max, int *ret, struct err *e)
{
    int64_t v;
    const json *item = json_get(o, field, e);
    if (!item)
        return 0;
    int rc = json_int(item, field, 0, max, &v, e);
    if (rc == 0)
        *ret = (int)v;
    return rc;
}

int probe_take_bool(const json *o, const char *field, bool *ret, struct err *e)
{
    const json *item = json_get(o, field, e);
    if (item && json_type(item) != JSON_BOOL)
        return err_set(e, ERR_INVAL, "%s must be true or false, not %s", field,
                       json_type_name(json_type(item)));
    if (item)
        *ret = json_bool(item);
    return 0;
}

static void add_ids(json *o, const char *field, const struct ids *ids)
{
    json *a = json_array();
    for (size_t i = 0; i < ids->n; i++)
        json_add_int(a, ids->v[i]);
    json_set(o, field, a);
}

/* [id, number] */
void probe_add_pair(json *list, double first, double second)
{
    json *pair = json_array();
    json_add_num(pair, first);
    json_add_num(pair, second);
    json_add(list, pair);
}

/* ---- tokenize, render ---- */

static int op_tokenize(struct probe *p, const struct offline_line *l, json *answer, struct err *e)
{
    size_t n;
    bool special = false;
    int rc = probe_take_bool(l->root, "special", &special, e);
    if (rc < 0)
        return rc;
    char *text = offline_str(l, json_get(l->root, "text", e), &n);
    if (!text)
        return err_set(e, ERR_INVAL, "text must be a string");
    struct ids ids;
    ids_init(&ids);
    rc = tok_encode(engine_tok(p->engine), text, n, special, &ids, e);
    if (rc == 0)
        add_ids(answer, "ids", &ids);
    ids_done(&ids);
    free(text);
    return rc;
}

static int read_role(const json *m, enum chat_role *ret, struct err *e)
{
    const char *role = json_str(json_get(m, "role", NULL));
    if (role && (strcmp(role, "system") == 0 || strcmp(role, "developer") == 0))
        *ret = CHAT_SYSTEM;
    else if (role && strcmp(role, "user") == 0)
        *ret = CHAT_USER;
    else if (role && strcmp(role, "assistant") == 0)
        *ret = CHAT_ASSISTANT;
    else
        return err_set(e, ERR_INVAL, "role \"%s\" (system, developer, user, assistant)",
                       role ? role : "");
    return 0;
}

static int read_messages(const struct offline_line *l, struct chat_message *m, size_t n,
                         struct err *e)
{
    const json *it = json_first(json_get(l->root, "messages", NULL));
    for (size_t i = 0; i < n; i++, it = json_next(it)) {
        int rc = read_role(it, &m[i].role, e);
        if (rc < 0)
            return rc;
        m[i].text = offline_str(l, json_get(it, "content", NULL), &m[i].n_text);
        if (!m[i].text)
            return err_set(e, ERR_INVAL, "messages[%zu].content must be a string", i);
    }
    return 0;
}

static int op_render(struct probe *p, const struct offline_line *l, json *answer, struct err *e)
{
    const json *messages = json_get(l->root, "messages", e);
    size_t n = json_count(messages);
    if (!engine_chat(p->engine))
        return err_set(e, ERR_UNSUPPORTED, "the model has no chat template");
    if (json_type(messages) != JSON_ARRAY)
        return err_set(e, ERR_INVAL, "messages must be an array");
    if (json_get(l->root, "tools", NULL))
        return err_set(e, ERR_UNSUPPORTED, "tools are not supported");
    struct chat_message *m = calloc(n + 1, sizeof *m);
    if (!m)
        return err_set(e, ERR_NOMEM, "no memory for %zu messages", n);
    struct ids ids;
    struct buf text;
    ids_init(&ids);
    buf_init(&text, OUTPUT_BYTES_MAX);
    struct chat_rendering r = {.ids = &ids, .text = &text};
    bool add_prompt = false;
    int rc = probe_take_bool(l->root, "add_generation_prompt", &add_prompt, e);
    if (rc == 0)
        rc = read_messages(l, m, n, e);
    if (rc == 0)
        rc = chat_render(engine_chat(p->engine), m, n, add_prompt, &r, e);
    if (rc == 0) {
        json_set_strn(answer, "text", text.data ? text.data : "", text.len);
        add_ids(answer, "ids", &ids);
    }
    for (size_t i = 0; i < n; i++)
        free((char *)m[i].text);
    free(m);
    buf_done(&text);
    ids_done(&ids);
    return rc;
}

/* ---- dequantize ---- */

static int op_dequantize(struct probe *p, const struct offline_line *l, json *answer, struct err *e)
{
    (void)p;
    const char *type = json_str(json_get(l->root, "type", e));
    const char *hex = json_str(json_get(l->root, "hex", e));
    size_t n = hex ? strlen(hex) / 2 : 0, n_values = 8 * n + 8; /* 2 bits a value at least */
    if (!type || !hex)
        return err_set(e, ERR_INVAL, "type and hex must be strings");
    unsigned char *data = malloc(n + 1);
    float *values = malloc(n_values * sizeof *values);
    int rc = data && values ? 0 : err_set(e, ERR_NOMEM, "no memory for %zu bytes", n);
    if (rc == 0 && !hex_parse(hex, strlen(hex), data, n))
        rc = err_set(e, ERR_INVAL, "hex must be pairs of hex digits");
    if (rc == 0)
        rc = engine_dequantize(type, data, n, values, &n_values, e);
    if (rc == 0) {
        json *list = json_array();
        for (size_t i = 0; i < n_values; i++)
            json_add_num(list, values[i]);
        json_set(answer, "values", list);
    }
    free(data);
    free(values);
    return rc;
}

/* ---- lines ---- */

static int answer_line(struct probe *p, const struct offline_line *l, json *answer, struct err *e)
{
    static const struct {
        const char *name;
        int (*run)(struct probe *, const struct offline_line *, json *, struct err *);
    } ops[] = {{"tokenize", op_tokenize},   {"render", op_render},
               {"logits", probe_op_logits}, {"dequantize", op_dequantize},
               {"sample", probe_op_sample}, {"nll", probe_op_nll}};
    const char *op = json_str(json_get(l->root, "op", e));
    for (size_t i = 0; op && i < sizeof ops / sizeof *ops; i++)
        if (strcmp(op, ops[i].name) == 0)
            return ops[i].run(p, l, answer, e);
    return err_set(e, ERR_INVAL, "op \"%s\" (tokenize, render, logits, dequantize, sample, nll)",
                   op ? op : "");
}

static void write_answer(const json *answer)
{
    struct buf b;
    buf_init(&b, OUTPUT_BYTES_MAX);
    json_write(answer, &b);
    if (buf_error(&b) < 0)
        puts("{\"error\":\"no memory for the answer\"}");
    else
        fwrite(b.data, 1, b.len, stdout);
    if (buf_error(&b) == 0)
        putchar('\n');
    fflush(stdout);
    buf_done(&b);
}

static void run_line(struct probe *p, const char *line, size_t n)
{
    struct offline_line l;
    struct err e = {0};
    json *answer = json_object();
    int rc = offline_parse(line, n, &l, &e);
    if (rc == 0) {
        rc = answer_line(p, &l, answer, &e);
        offline_done(&l);
    }
    if (rc < 0) {
        json_free(answer);
        answer = json_object();
        json_set_str(answer, "error", e.text);
    }
    write_answer(answer);
    json_free(answer);
}

#define USAGE                                                                           \
    "usage: hearthd probe --model FILE [--chat-template FILE|NAME] [--threads N] "      \
    "[--isa NAME] [--kv-type f16|q8_0] [--tokenizer-nfc model|off] < lines.jsonl"

static int usage(void)
{
    log_error(USAGE);
    return 2;
}

static bool wants_help(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

static bool read_threads(const char *text, int *ret)
{
    char *end;
    long v = strtol(text, &end, 10);
    if (end == text || *end || v < 1 || v > PROBE_THREADS_MAX)
        return false;
    *ret = (int)v;
    return true;
}

static int read_args(int argc, char **argv, struct engine_options *o)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *flag = argv[i], *value = argv[i + 1];
        if (strcmp(flag, "--model") == 0)
            o->model_path = value;
        else if (strcmp(flag, "--chat-template") == 0)
            o->chat_template = value;
        else if (strcmp(flag, "--isa") == 0)
            o->isa = value;
        else if (strcmp(flag, "--tokenizer-nfc") == 0)
            o->skip_nfc = strcmp(value, "off") == 0;
        else if (strcmp(flag, "--kv-type") == 0 && kv_type_find(value, &o->kv_type))
            continue;
        else if (strcmp(flag, "--threads") != 0 || !read_threads(value, &o->n_threads))
            return usage();
    }
    return o->model_path && argc % 2 == 1 ? 0 : usage();
}

int offline_probe(int argc, char **argv)
{
    struct offline_memory memory = {0}; /* KV is looked at when a question is there */
    struct engine_options o = {
        .pass_rows = OFFLINE_CHUNK, .may_take = offline_may_take, .may_take_ctx = &memory};
    struct err e = {0};
    struct probe p = {0};
    char *line = NULL;
    size_t cap = 0;
    if (wants_help(argc, argv))
        return puts(USAGE) < 0 || fflush(stdout) != 0;
    int status = read_args(argc, argv, &o);
    if (status != 0)
        return status;
    if (hash_start(&e) < 0 || engine_open(&o, &p.engine, &e) < 0) {
        log_error("%s", e.text);
        return 1;
    }
    p.n_threads = engine_info(p.engine)->n_threads;
    p.isa = strdup(engine_info(p.engine)->isa);
    for (ssize_t n; (n = getline(&line, &cap, stdin)) >= 0;) {
        if (n > 0 && line[n - 1] == '\n')
            n--;
        run_line(&p, line, (size_t)n);
    }
    free(line);
    free(p.isa);
    engine_close(p.engine);
    return ferror(stdout) ? 1 : 0;
}
