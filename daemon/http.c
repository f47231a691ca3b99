/*
 * HTTP requests over http-parser 2.9.4. The parser is paused when the head is complete and when the
 * message is, so that the connection can decide between; its callbacks gather the few headers that
 * we use, everything else is dropped as it comes.
 *
 * Folded headers can't be told from split ones in the callbacks, so the raw bytes of the head are
 * watched for a line that begins with white space (find_fold); bytes from there on are never given
 * to the parser.
 */
#include "daemon/http.h"

#include <http_parser.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/sys.h"
#include "base/utf8.h"

#define FIELD_BYTES 32 /* the longest name that we know is shorter */

enum field {
    FIELD_OTHER,
    FIELD_HOST,
    FIELD_ORIGIN,
    FIELD_AUTHORIZATION,
    FIELD_EXPECT,
    FIELD_TRANSFER_ENCODING,
    N_FIELDS
};

static const char *const field_names[N_FIELDS] = {
    [FIELD_HOST] = "host",
    [FIELD_ORIGIN] = "origin",
    [FIELD_AUTHORIZATION] = "authorization",
    [FIELD_EXPECT] = "expect",
    [FIELD_TRANSFER_ENCODING] = "transfer-encoding",
};

struct http {
    http_parser parser;
    struct http_limits limits;

    /* The head so far. */
    size_t n_head; /* bytes of it */
    bool is_head_done, is_body_done, has_lines;
    bool is_line_start; /* the next byte begins a line after the request line */
    struct buf target;
    char name[FIELD_BYTES];
    size_t n_name; /* may exceed FIELD_BYTES: then it is none of ours */
    bool in_value;
    enum field field; /* whose value is being read */
    struct buf values[N_FIELDS];
    int n_seen[N_FIELDS];

    struct http_head head;
    char *path;

    struct buf body;
    size_t n_body, n_trailer;
    bool skip;
    bool in_trailer;       /* the last chunk has come */
    const char *objection; /* to a header; said when the head is complete */

    struct http_error *bad; /* during a push: where an error goes */
    bool is_bad;
};

/* The first refusal counts. Returns what a callback returns to stop the parser. */
static int refuse(struct http *h, int status, const char *code, const char *message)
{
    if (!h->is_bad)
        http_error_set(h->bad, status, code, NULL, "%s", message);
    h->is_bad = true;
    return -1;
}

static int refuse_long_body(struct http *h)
{
    if (!h->is_bad)
        http_error_set(h->bad, 413, "body_too_large", NULL,
                       "the body is longer than the %zu bytes that a request may have",
                       h->limits.body_bytes);
    h->is_bad = true;
    return -1;
}

static int refuse_long_head(struct http *h)
{
    if (!h->is_bad)
        http_error_set(
            h->bad, 431, "header_too_large", NULL,
            "request line and headers (or the trailers) are longer than the %zu bytes that "
            "they may have",
            h->limits.header_bytes);
    h->is_bad = true;
    return -1;
}

static int refuse_buf(struct http *h, const struct buf *b)
{
    if (buf_error(b) == ERR_LIMIT)
        return refuse_long_head(h);
    return refuse(h, 503, "out_of_memory", "out of memory");
}

/*
 * An objection of a callback in the middle of the head. The parser calls back at the end of what it
 * was given, and may have found an error of its own by then: so that any split gives the same
 * answer, its errors come first, and ours when the head is complete.
 */
static void object(struct http *h, const char *message)
{
    if (!h->objection)
        h->objection = message;
}

static struct http *of(http_parser *p)
{
    return p->data;
}

static int on_url(http_parser *p, const char *at, size_t n)
{
    struct http *h = of(p);
    buf_add(&h->target, at, n);
    return buf_error(&h->target) ? refuse_buf(h, &h->target) : 0;
}

/* RFC 9110, 5.6.2. A space is let through by the parser, in names and before the colon. */
static bool is_token_char(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c != '\0' && strchr("!#$%&'*+-.^_`|~", c));
}

static int on_header_field(http_parser *p, const char *at, size_t n)
{
    struct http *h = of(p);
    if (h->is_head_done)
        return 0; /* a trailer */
    if (h->in_value) {
        h->in_value = false;
        h->n_name = 0;
    }
    for (size_t i = 0; i < n; i++) {
        if (!is_token_char(at[i]))
            object(h, "a header's name holds a character that it may not hold");
        if (h->n_name < FIELD_BYTES)
            h->name[h->n_name] = at[i];
        h->n_name++;
    }
    return 0;
}

static enum field find_field(const struct http *h)
{
    for (enum field f = FIELD_HOST; f < N_FIELDS; f++)
        if (strlen(field_names[f]) == h->n_name &&
            strncasecmp(field_names[f], h->name, h->n_name) == 0)
            return f;
    return FIELD_OTHER;
}

static void begin_value(struct http *h)
{
    h->in_value = true;
    h->field = find_field(h);
    if (h->field == FIELD_OTHER || h->n_seen[h->field]++ == 0)
        return;
    static const char *const twice[N_FIELDS] = {
        [FIELD_HOST] = "Host is given twice",
        [FIELD_ORIGIN] = "Origin is given twice",
        [FIELD_AUTHORIZATION] = "Authorization is given twice",
        [FIELD_EXPECT] = "Expect is given twice",
        [FIELD_TRANSFER_ENCODING] = "Transfer-Encoding is given twice",
    };
    object(h, twice[h->field]);
}

static int on_header_value(http_parser *p, const char *at, size_t n)
{
    struct http *h = of(p);
    if (h->is_head_done)
        return 0; /* a trailer */
    if (!h->in_value)
        begin_value(h);
    if (h->field == FIELD_OTHER)
        return 0;
    struct buf *value = &h->values[h->field];
    buf_add(value, at, n);
    return buf_error(value) ? refuse_buf(h, value) : 0;
}

/* The value without the white space around it, or NULL if the header is absent. */
static const char *value_of(struct http *h, enum field f)
{
    struct buf *v = &h->values[f];
    if (h->n_seen[f] == 0)
        return NULL;
    while (v->len > 0 && (v->data[v->len - 1] == ' ' || v->data[v->len - 1] == '\t'))
        v->data[--v->len] = '\0';
    return v->data ? v->data : "";
}

/* Origin form "/path?query", absolute form "http://host/path?query", or "*" for OPTIONS. A fragment
 * is dropped. */
static int read_target(struct http *h)
{
    const char *t = h->target.data;
    size_t n = h->target.len;
    if (n > 7 && strncasecmp(t, "http://", 7) == 0) {
        size_t host = strcspn(t + 7, "/?#");
        t += 7 + host;
        n -= 7 + host;
    }
    size_t n_path = strcspn(n > 0 ? t : "", "?#");
    const char *rest = t + n_path;
    bool has_query = n > n_path && *rest == '?';
    size_t n_query = has_query ? strcspn(rest + 1, "#") : 0;
    bool is_star = n == 1 && t[0] == '*' && h->parser.method == HTTP_OPTIONS;
    if (n_path > 0 && t[0] != '/' && !is_star)
        return refuse(h, 400, "bad_request", "the request's target is no path");

    int rc = n_path > 0 ? http_unescape(t, n_path, false, &h->path)
                        : http_unescape("/", 1, false, &h->path);
    if (rc == ERR_NOMEM)
        return refuse(h, 503, "out_of_memory", "out of memory");
    if (rc < 0)
        return refuse(
            h, 400, "bad_request",
            "the request's path holds a bad percent-escape, a NUL, or text that isn't UTF-8");
    h->head.path = h->path;
    /* The query stands in `target`; the NUL goes where its fragment or its end is. */
    h->head.query = "";
    if (has_query) {
        size_t at = (size_t)(rest + 1 - h->target.data);
        h->target.data[at + n_query] = '\0';
        h->head.query = h->target.data + at;
    }
    return 0;
}

static int check_framing(struct http *h)
{
    const http_parser *p = &h->parser;
    if (h->objection)
        return refuse(h, 400, "bad_request", h->objection);
    if (p->http_major != 1 || p->http_minor > 1)
        return refuse(h, 505, "bad_request", "HTTP/1.1 and HTTP/1.0 are spoken here");
    if (p->http_minor == 1 && h->n_seen[FIELD_HOST] == 0)
        return refuse(h, 400, "bad_request", "Host is missing");
    const char *coding = value_of(h, FIELD_TRANSFER_ENCODING);
    if (coding && strcasecmp(coding, "chunked") != 0)
        return refuse(h, 501, "bad_request", "of the transfer codings only chunked is supported");
    if (coding && p->http_minor == 0)
        return refuse(h, 400, "bad_request", "HTTP/1.0 has no chunked bodies");
    const char *expect = value_of(h, FIELD_EXPECT);
    if (expect && strcasecmp(expect, "100-continue") != 0)
        return refuse(h, 417, "bad_request", "of the expectations only 100-continue is supported");
    return 0;
}

static int on_headers_complete(http_parser *p)
{
    struct http *h = of(p);
    if (check_framing(h) < 0 || read_target(h) < 0)
        return -1;
    bool is_chunked = h->n_seen[FIELD_TRANSFER_ENCODING] > 0;
    bool has_length = (p->flags & F_CONTENTLENGTH) != 0;
    h->head.content_length = is_chunked ? HTTP_LENGTH_CHUNKED : has_length ? p->content_length : 0;
    if (!is_chunked && h->head.content_length > h->limits.body_bytes)
        return refuse_long_body(h);
    h->head.method = http_method_str(p->method);
    h->head.host = value_of(h, FIELD_HOST);
    h->head.origin = value_of(h, FIELD_ORIGIN);
    h->head.authorization = value_of(h, FIELD_AUTHORIZATION);
    h->head.minor = p->http_minor;
    h->head.keep_alive = http_should_keep_alive(p) != 0;
    h->head.expects_continue =
        h->n_seen[FIELD_EXPECT] > 0 && p->http_minor == 1 && h->head.content_length > 0;
    /* "Upgrade: h2c" (curl --http2) is an offer that may be ignored; left set, the parser would
     * take the rest as another protocol. */
    p->upgrade = 0;
    h->is_head_done = true;
    http_parser_pause(p, 1);
    return 0;
}

static int on_body(http_parser *p, const char *at, size_t n)
{
    struct http *h = of(p);
    h->n_body += n;
    if (h->skip)
        return 0;
    if (h->n_body > h->limits.body_bytes)
        return refuse_long_body(h);
    buf_add(&h->body, at, n);
    if (buf_error(&h->body))
        return refuse(h, 503, "out_of_memory", "out of memory");
    return 0;
}

/* After the last chunk come trailers, whose length is counted byte by byte (push_body). */
static int on_chunk_header(http_parser *p)
{
    if (p->content_length == 0) {
        of(p)->in_trailer = true;
        http_parser_pause(p, 1);
    }
    return 0;
}

static int on_message_complete(http_parser *p)
{
    of(p)->is_body_done = true;
    http_parser_pause(p, 1);
    return 0;
}

static const http_parser_settings settings = {
    .on_url = on_url,
    .on_header_field = on_header_field,
    .on_header_value = on_header_value,
    .on_headers_complete = on_headers_complete,
    .on_body = on_body,
    .on_chunk_header = on_chunk_header,
    .on_message_complete = on_message_complete,
};

static void reset(struct http *h)
{
    http_parser_init(&h->parser, HTTP_REQUEST);
    h->parser.data = h;
    h->n_head = h->n_name = h->n_body = h->n_trailer = 0;
    h->is_head_done = h->is_body_done = h->has_lines = h->is_line_start = false;
    h->in_value = h->skip = h->is_bad = h->in_trailer = false;
    h->objection = NULL;
    h->field = FIELD_OTHER;
    memset(h->n_seen, 0, sizeof(h->n_seen));
    h->head = (struct http_head){0};
    free(h->path);
    h->path = NULL;
}

struct http *http_new(const struct http_limits *limits)
{
    struct http *h = sys.malloc(sizeof(*h));
    if (!h)
        return NULL;
    *h = (struct http){.limits = *limits};
    buf_init(&h->target, limits->header_bytes);
    for (int i = 0; i < N_FIELDS; i++)
        buf_init(&h->values[i], limits->header_bytes);
    buf_init(&h->body, limits->body_bytes);
    reset(h);
    return h;
}

void http_free(struct http *h)
{
    if (!h)
        return;
    buf_done(&h->target);
    for (int i = 0; i < N_FIELDS; i++)
        buf_done(&h->values[i]);
    buf_done(&h->body);
    free(h->path);
    free(h);
}

void http_next(struct http *h)
{
    buf_clear(&h->target);
    for (int i = 0; i < N_FIELDS; i++)
        buf_clear(&h->values[i]);
    /* A keep-alive connection doesn't hold on to the largest body it ever had. */
    buf_done(&h->body);
    reset(h);
}

/*
 * How many of data[0, n) may go to the parser before a line that begins with white space. Empty
 * lines before the request line don't count as lines.
 */
static size_t find_fold(struct http *h, const char *data, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (h->is_line_start && (data[i] == ' ' || data[i] == '\t'))
            return i;
        if (data[i] != '\r' && data[i] != '\n')
            h->has_lines = true;
        h->is_line_start = data[i] == '\n' && h->has_lines;
    }
    return n;
}

static void refuse_parser(struct http *h)
{
    enum http_errno code = HTTP_PARSER_ERRNO(&h->parser);
    switch (code) {
    case HPE_HEADER_OVERFLOW:
        refuse_long_head(h);
        break;
    case HPE_INVALID_VERSION:
        refuse(h, 505, "bad_request", "HTTP/1.1 and HTTP/1.0 are spoken here");
        break;
    default:
        if (!h->is_bad)
            http_error_set(h->bad, 400, "bad_request", NULL, "this is no valid HTTP request: %s",
                           http_errno_description(code));
        h->is_bad = true;
    }
}

/* Runs the parser over data[0, n); returns the bytes used. Errors are in h->bad. */
static size_t execute(struct http *h, const char *data, size_t n)
{
    size_t used = http_parser_execute(&h->parser, &settings, data, n);
    enum http_errno code = HTTP_PARSER_ERRNO(&h->parser);
    if (code == HPE_PAUSED && !h->is_bad)
        http_parser_pause(&h->parser, 0);
    else if (code != HPE_OK)
        refuse_parser(h);
    return used;
}

static size_t push_head(struct http *h, const char *data, size_t n)
{
    size_t room = h->limits.header_bytes - h->n_head;
    size_t part = n < room ? n : room;
    size_t clean = find_fold(h, data, part);
    size_t used = clean > 0 ? execute(h, data, clean) : 0;
    h->n_head += used;
    if (h->is_bad || h->is_head_done)
        return used;
    if (clean < part)
        refuse(h, 400, "bad_request",
               "a header is folded over two lines, which HTTP/1.1 has abolished");
    else if (h->n_head == h->limits.header_bytes)
        refuse_long_head(h);
    return used;
}

/* Everything after the head. Trailers go one byte at a time, so that where their limit is reached
 * doesn't depend on the pieces. */
static size_t push_body(struct http *h, const char *data, size_t n)
{
    size_t used = 0;
    while (used < n && !h->is_bad && !h->is_body_done) {
        bool was_in_trailer = h->in_trailer;
        used += execute(h, data + used, was_in_trailer ? 1 : n - used);
        if (was_in_trailer && ++h->n_trailer > h->limits.header_bytes && !h->is_body_done)
            refuse_long_head(h);
    }
    return used;
}

enum http_step http_push(struct http *h, const char *data, size_t n, size_t *ret_used,
                         struct http_error *bad)
{
    h->bad = bad;
    bool was_head_done = h->is_head_done;
    *ret_used = was_head_done ? push_body(h, data, n) : push_head(h, data, n);
    h->bad = NULL;
    if (h->is_bad)
        return HTTP_STEP_BAD;
    if (!was_head_done && h->is_head_done)
        return HTTP_STEP_HEAD;
    return h->is_body_done ? HTTP_STEP_DONE : HTTP_STEP_MORE;
}

const struct http_head *http_head(const struct http *h)
{
    return &h->head;
}

bool http_has_begun(const struct http *h)
{
    return h->n_head > 0;
}

void http_skip_body(struct http *h)
{
    h->skip = true;
    buf_done(&h->body);
}

size_t http_body_bytes(const struct http *h)
{
    return h->n_body;
}

char *http_take_body(struct http *h, size_t *ret_len)
{
    buf_add(&h->body, "", 0);
    return buf_take(&h->body, ret_len);
}

int http_unescape(const char *s, size_t n, bool is_form, char **ret)
{
    char *out = sys.malloc(n + 1);
    if (!out)
        return ERR_NOMEM;
    size_t len = 0;
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++) {
        char c = s[i];
        if (c == '%') {
            int high = i + 1 < n ? hex_digit(s[i + 1]) : -1;
            int low = i + 2 < n ? hex_digit(s[i + 2]) : -1;
            ok = high >= 0 && low >= 0;
            c = ok ? (char)(high * 16 + low) : '\0';
            i += 2;
        } else if (c == '+' && is_form) {
            c = ' ';
        }
        ok = ok && c != '\0';
        out[len++] = c;
    }
    out[len] = '\0';
    if (!ok || !utf8_valid(out, len, NULL)) {
        free(out);
        return ERR_INVAL;
    }
    *ret = out;
    return 0;
}

const char *http_reason(int status)
{
    const char *reason = http_status_str((enum http_status)status);
    return strcmp(reason, "<unknown>") == 0 ? "Unknown" : reason;
}
