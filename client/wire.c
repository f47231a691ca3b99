/*
 * libcurl, and the only file that knows it.
 *
 * The multi interface, so that one poll waits for the socket and for an eventfd that a signal
 * handler writes: Ctrl-C ends the answer at once, by closing the connection, which is what cancels
 * a turn in the daemon.
 */
#include "client/wire.h"

#include <curl/curl.h>
#include <errno.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/sse.h"

#define WIRE_IDLE_MS 100

struct wire {
    CURLM *multi;
    CURL *easy;
    char *base; /* "http://localhost" or the url without its last '/' */
    char *socket_path;
    char *auth; /* "Authorization: Bearer …" or NULL */
    int wake_fd;
};

/* The state of one request. */
struct exchange {
    struct wire *wire;
    const struct wire_request *request;
    struct wire_reply *reply;
    struct sse sse;
    bool is_stream, is_known, is_refused_by_callback;
};

static char *copy(const char *s)
{
    return s ? strdup(s) : NULL;
}

static int wire_fill(struct wire *w, const struct wire_options *o, struct err *e)
{
    w->socket_path = o->url ? NULL : copy(o->socket_path);
    w->base = copy(o->url ? o->url : "http://localhost");
    w->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    w->multi = curl_multi_init();
    w->easy = curl_easy_init();
    if (!w->base || (!o->url && !w->socket_path) || w->wake_fd < 0 || !w->multi || !w->easy)
        return err_set(e, ERR_NOMEM, "no memory for a connection");
    size_t n = strlen(w->base);
    if (n && w->base[n - 1] == '/')
        w->base[n - 1] = 0;
    if (o->api_key) {
        struct buf b;
        buf_init(&b, 4096);
        buf_printf(&b, "Authorization: Bearer %s", o->api_key);
        w->auth = buf_take(&b, NULL);
        if (!w->auth)
            return err_set(e, ERR_LIMIT, "the API key is longer than 4,000 bytes");
    }
    return 0;
}

int wire_open(const struct wire_options *o, struct wire **ret, struct err *e)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT))
        return err_set(e, ERR_NOMEM, "libcurl doesn't start");
    struct wire *w = calloc(1, sizeof *w);
    if (!w)
        return err_set(e, ERR_NOMEM, "no memory for a connection");
    w->wake_fd = -1;
    int r = wire_fill(w, o, e);
    if (r) {
        wire_close(w);
        return r;
    }
    *ret = w;
    return 0;
}

void wire_close(struct wire *w)
{
    if (!w)
        return;
    curl_easy_cleanup(w->easy);
    curl_multi_cleanup(w->multi);
    if (w->wake_fd >= 0)
        close(w->wake_fd);
    free(w->base);
    free(w->socket_path);
    free(w->auth);
    free(w);
}

void wire_interrupt(struct wire *w)
{
    uint64_t one = 1;
    ssize_t n = write(w->wake_fd, &one, sizeof one);
    (void)n; /* full means: already interrupted */
}

void wire_forget_interrupt(struct wire *w)
{
    uint64_t count;
    ssize_t n = read(w->wake_fd, &count, sizeof count);
    (void)n; /* nothing to read: nothing to forget */
}

int wire_pause(struct wire *w, int ms)
{
    int64_t until = clock_ms() + ms, left = ms;
    struct pollfd p = {.fd = w->wake_fd, .events = POLLIN};
    uint64_t count;
    do {
        if (poll(&p, 1, (int)left) > 0 && read(w->wake_fd, &count, sizeof count) == sizeof count)
            return ERR_CANCELED;
        left = until - clock_ms();
    } while (left > 0);
    return 0;
}

static void on_sse(void *ctx, const char *event, const char *data, size_t n)
{
    struct exchange *x = ctx;
    if (!x->is_refused_by_callback && x->request->on_event(x->request->ctx, event, data, n))
        x->is_refused_by_callback = true;
}

static void on_sse_comment(void *ctx, const char *text, size_t n)
{
    struct exchange *x = ctx;
    if (!x->is_refused_by_callback && x->request->on_comment)
        x->request->on_comment(x->request->ctx, text, n);
}

static size_t on_bytes(char *data, size_t size, size_t count, void *ctx)
{
    struct exchange *x = ctx;
    size_t n = size * count;
    if (!x->is_known) {
        const char *type = NULL;
        curl_easy_getinfo(x->wire->easy, CURLINFO_CONTENT_TYPE, &type);
        x->is_stream = x->request->on_event && type && !strncmp(type, "text/event-stream", 17);
        x->is_known = true;
    }
    if (!x->is_stream) {
        buf_add(&x->reply->body, data, n);
        return buf_error(&x->reply->body) ? 0 : n;
    }
    sse_push(&x->sse, data, n);
    return x->sse.is_broken || x->is_refused_by_callback ? 0 : n;
}

static struct curl_slist *headers(const struct wire *w, const struct wire_request *r)
{
    struct curl_slist *list = curl_slist_append(NULL, "Expect:");
    if (r->body)
        list = curl_slist_append(list, "Content-Type: application/json");
    if (w->auth)
        list = curl_slist_append(list, w->auth);
    return list;
}

static bool is_loopback(const char *url)
{
    static const char *const hosts[] = {"localhost", "127.", "[::1]"};
    const char *host = strstr(url, "://");
    for (size_t i = 0; host && i < sizeof hosts / sizeof *hosts; i++)
        if (!strncmp(host + 3, hosts[i], strlen(hosts[i])))
            return true;
    return false;
}

static void set_options(struct exchange *x, const char *url, struct curl_slist *list)
{
    CURL *c = x->wire->easy;
    const struct wire_request *r = x->request;
    curl_easy_reset(c); /* keeps the connection */
    curl_easy_setopt(c, CURLOPT_URL, url);
    if (x->wire->socket_path)
        curl_easy_setopt(c, CURLOPT_UNIX_SOCKET_PATH, x->wire->socket_path);
    /* A proxy of the environment has no business with what stays on this machine: neither the
     * words nor the key. */
    if (x->wire->socket_path || is_loopback(x->wire->base))
        curl_easy_setopt(c, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, r->method);
    /* On a kept connection that turns out to be closed curl sends again, and can't know whether the
     * first was read: what changes something goes on a connection of its own, once. */
    long is_once = strcmp(r->method, "GET") != 0;
    curl_easy_setopt(c, CURLOPT_FRESH_CONNECT, is_once);
    curl_easy_setopt(c, CURLOPT_FORBID_REUSE, is_once);
    if (r->body) {
        curl_easy_setopt(c, CURLOPT_POSTFIELDS, r->body);
        curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->n_body);
    }
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, list);
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, 10L);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, x);
}

/* Runs the transfer to its end: CURLE_OK and so on, or -1 when interrupted. */
static int drive(struct exchange *x)
{
    struct wire *w = x->wire;
    int running = 1;
    while (running) {
        if (curl_multi_perform(w->multi, &running))
            return CURLE_FAILED_INIT;
        if (!running)
            break;
        struct curl_waitfd wake = {.fd = w->wake_fd, .events = CURL_WAIT_POLLIN};
        int n = 0;
        if (curl_multi_poll(w->multi, &wake, 1, WIRE_IDLE_MS, &n))
            return CURLE_FAILED_INIT;
        uint64_t count;
        if (read(w->wake_fd, &count, sizeof count) == sizeof count)
            return -1;
        if (!n && x->request->on_idle)
            x->request->on_idle(x->request->ctx);
    }
    int left;
    const CURLMsg *m = curl_multi_info_read(w->multi, &left);
    return m ? (int)m->data.result : CURLE_FAILED_INIT;
}

/* Whose socket it is that we may not use. */
static int explain_denied(const char *path, struct err *e)
{
    struct stat st;
    if (stat(path, &st)) /* its folder is closed already */
        return err_set(e, ERR_UNSUPPORTED,
                       "%s belongs to another user, and this one may not use it", path);
    const struct passwd *owner = getpwuid(st.st_uid);
    const struct group *group = st.st_mode & S_IWGRP ? getgrgid(st.st_gid) : NULL;
    if (group)
        return err_set(e, ERR_UNSUPPORTED,
                       "%s is for the group %s, and this user isn't in it (adduser USER %s, then "
                       "log in again)",
                       path, group->gr_name, group->gr_name);
    return err_set(e, ERR_UNSUPPORTED,
                   "%s belongs to another user (%s), and this one may not use it", path,
                   owner ? owner->pw_name : "unknown");
}

static int explain_unconnected(struct wire *w, struct err *e)
{
    if (!w->socket_path)
        return err_set(e, ERR_NOTFOUND, "no daemon: nobody answers at %s", w->base);
    if (access(w->socket_path, W_OK) == 0)
        return err_set(e, ERR_NOTFOUND,
                       "no daemon: nobody answers at %s (left over by one that has ended)",
                       w->socket_path);
    if (errno == EACCES || errno == EPERM)
        return explain_denied(w->socket_path, e);
    return err_set(e, ERR_NOTFOUND, "no daemon: there is no socket %s", w->socket_path);
}

/* Turns curl's result into one of ours, with the sentence that helps. */
static int explain(struct exchange *x, int result, struct err *e)
{
    struct wire *w = x->wire;
    const char *where = w->socket_path ? w->socket_path : w->base;
    if (x->sse.is_broken)
        return err_set(e, ERR_LIMIT, "an event longer than %zu bytes", WIRE_BODY_MAX);
    if (result == CURLE_OK)
        return 0;
    if (result == -1 || x->is_refused_by_callback)
        return err_set(e, ERR_CANCELED, "interrupted");
    if (result == CURLE_COULDNT_CONNECT || result == CURLE_COULDNT_RESOLVE_HOST)
        return explain_unconnected(w, e);
    if (result == CURLE_WRITE_ERROR)
        return err_set(e, ERR_LIMIT, "a reply longer than %zu bytes", WIRE_BODY_MAX);
    return err_set(e, ERR_IO, "%s: the connection to %s broke: %s",
                   x->is_stream ? "the answer broke off" : "no answer", where,
                   curl_easy_strerror((CURLcode)result));
}

int wire_call(struct wire *w, const struct wire_request *r, struct wire_reply *ret, struct err *e)
{
    struct exchange x = {.wire = w, .request = r, .reply = ret};
    buf_init(&ret->body, WIRE_BODY_MAX);
    ret->status = 0;
    sse_init(&x.sse, WIRE_BODY_MAX, on_sse, &x);
    x.sse.on_comment = on_sse_comment;
    struct buf url;
    buf_init(&url, 8192);
    buf_printf(&url, "%s%s", w->base, r->path);
    struct curl_slist *list = headers(w, r);
    int result = CURLE_OUT_OF_MEMORY;
    if (!buf_error(&url) && list) {
        set_options(&x, url.data, list);
        if (!curl_multi_add_handle(w->multi, w->easy)) {
            result = drive(&x);
            long status = 0;
            curl_easy_getinfo(w->easy, CURLINFO_RESPONSE_CODE, &status);
            ret->status = (int)status;
            curl_multi_remove_handle(w->multi, w->easy);
        }
    }
    result = explain(&x, result, e);
    curl_slist_free_all(list);
    buf_done(&url);
    sse_done(&x.sse);
    return result;
}
