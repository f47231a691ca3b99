/*
 * POST /v1/embeddings: vectors of texts, in OpenAI's format.
 *
 *      {"input": "…" | ["…", …] [, "model", "encoding_format": "float" | "base64", "dimensions",
 *       "truncate": bool]}
 *   →  {"object": "list", "data": [{"object": "embedding", "index", "embedding"}, …], "model",
 *       "usage": {"prompt_tokens", "total_tokens"}}
 *
 * base64 is of little-endian float32, which OpenAI's own client asks for. A text that is too long
 * is refused, unless "truncate" (as Ollama has it) says otherwise; the reply's "hearth.truncated"
 * then lists which ones were. Token ids as input are refused: they would be another vocabulary's.
 */
#include <string.h>

#include "daemon/body.h"
#include "daemon/embedder.h"
#include "daemon/embeds.h"
#include "daemon/history.h"
#include "daemon/limits.h"

/* ---- the request ---- */

static int add_text(struct embed_job *job, const json *item, size_t at, struct http_error *ret)
{
    const char *s = json_str(item);
    const enum json_type type = json_type(item);
    if (!s && (type == JSON_NUMBER || type == JSON_ARRAY))
        return body_refused(ret, "unsupported_parameter", "input",
                            "input %zu is token ids; texts are expected", at);
    if (!s)
        return body_refused(ret, "invalid_type", "input", "input %zu is %s; a string is expected",
                            at, json_type_name(type));
    if (!s[0])
        return body_refused(ret, "invalid_value", "input", "input %zu is an empty string", at);
    job->texts[job->n_texts++] = (struct embed_source){.s = s, .n = strlen(s)};
    return 0;
}

static int read_input(struct embed_job *job, struct http_error *ret)
{
    const json *input = json_get(job->body, "input", NULL);
    const bool is_array = json_type(input) == JSON_ARRAY;
    const size_t n = is_array ? json_count(input) : 1;
    int rc = 0;
    if (!input)
        return body_refused(ret, "missing_required_parameter", "input",
                            "input is expected: a string, or an array of strings");
    if (n < 1 || n > LIMIT_EMBED_INPUTS)
        return body_refused(ret, "invalid_value", "input",
                            "input has %zu items; 1 to %d are allowed", n, LIMIT_EMBED_INPUTS);
    job->texts = arena_array(&job->arena, n, sizeof *job->texts);
    if (!job->texts)
        return http_out_of_memory(ret, "the input");
    if (!is_array)
        return add_text(job, input, 0, ret);
    for (const json *it = json_first(input); it && rc == 0; it = json_next(it))
        rc = add_text(job, it, job->n_texts, ret);
    return rc;
}

static int read_body(struct embed_job *job, const struct request *r, int64_t *ret_dim,
                     struct http_error *ret)
{
    const char *format = "float", *model = NULL;
    int rc;
    if ((rc = body_parse(r, &job->body, ret)) ||
        (rc = body_str(job->body, "model", "model", &model, ret)) ||
        (rc = body_str(job->body, "encoding_format", "encoding_format", &format, ret)) ||
        (rc = body_bool(job->body, "truncate", "truncate", &job->can_truncate, ret)) ||
        (rc = body_int(job->body, "dimensions", (struct body_range){1, EMBED_DIM_MAX}, ret_dim,
                       ret)))
        return rc;
    job->is_base64 = strcmp(format, "base64") == 0;
    if (!job->is_base64 && strcmp(format, "float") != 0)
        return body_refused(ret, "invalid_value", "encoding_format",
                            "encoding_format is \"%.32s\"; float or base64 is expected", format);
    return read_input(job, ret);
}

int api_embeddings(struct history *h, struct request *r, const struct route_args *args,
                   struct http_error *ret)
{
    int64_t dim = 0;
    (void)args;
    struct embed_job *job = embed_job_new(EMBED_JOB_REQUEST);
    if (!job)
        return http_out_of_memory(ret, "embeddings");
    int rc = read_body(job, r, &dim, ret);
    job->n_dim = (int)dim;
    job->r = r;
    if (rc == 0 && embedder_submit(h, job, ret))
        return PARKED;
    job->r = NULL; /* the router's */
    embed_job_free(job);
    return rc ? rc : ERR_UNSUPPORTED;
}

/* ---- the reply ---- */

static void write_base64(struct buf *b, const float *v, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *p = (const unsigned char *)v; /* this machine is little-endian: kv.h */
    const size_t n_bytes = n * sizeof *v;
    buf_char(b, '"');
    for (size_t i = 0; i < n_bytes; i += 3) {
        const size_t left = n_bytes - i;
        const uint32_t x = (uint32_t)p[i] << 16 | (left > 1 ? (uint32_t)p[i + 1] << 8 : 0) |
                           (left > 2 ? p[i + 2] : 0);
        buf_char(b, digits[x >> 18]);
        buf_char(b, digits[x >> 12 & 63]);
        buf_char(b, left > 1 ? digits[x >> 6 & 63] : '=');
        buf_char(b, left > 2 ? digits[x & 63] : '=');
    }
    buf_char(b, '"');
}

static void write_floats(struct buf *b, const float *v, size_t n)
{
    buf_char(b, '[');
    for (size_t i = 0; i < n; i++)
        buf_printf(b, i ? ",%.9g" : "%.9g", (double)v[i]);
    buf_char(b, ']');
}

static void write_truncated(const struct embed_job *job, struct buf *b)
{
    const char *comma = "";
    buf_str(b, ",\"hearth\":{\"truncated\":[");
    for (size_t i = 0; i < job->n_texts; i++) {
        if (job->is_truncated[i]) {
            buf_printf(b, "%s%zu", comma, i);
            comma = ",";
        }
    }
    buf_str(b, "]}");
}

void embeds_reply(struct history *h, const struct embed_job *job)
{
    const struct embed *m = embedder_model();
    const size_t dim = (size_t)embed_dim(m);
    struct buf b;
    buf_init(&b, EMBED_REPLY_BYTES);
    buf_str(&b, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < job->n_texts; i++) {
        buf_printf(&b, "%s{\"object\":\"embedding\",\"index\":%zu,\"embedding\":", i ? "," : "", i);
        if (job->is_base64)
            write_base64(&b, job->vectors + i * dim, dim);
        else
            write_floats(&b, job->vectors + i * dim, dim);
        buf_char(&b, '}');
    }
    buf_str(&b, "],\"model\":");
    json_write_str(&b, embed_name(m), strlen(embed_name(m)));
    buf_printf(&b, ",\"usage\":{\"prompt_tokens\":%zu,\"total_tokens\":%zu}", job->n_tokens,
               job->n_tokens);
    write_truncated(job, &b);
    buf_char(&b, '}');
    history_reply(h, job->r, 200, &b);
}
