/*
 * A child in a process group of its own, so that the terminal's Ctrl-C goes to us alone and we end
 * it in order; PR_SET_PDEATHSIG ends it when we are killed. What it writes goes to a file without a
 * name, of which the end is shown when something goes wrong.
 *
 *      start ─► wait until ready ─► (turns) ─► SIGTERM or SIGKILL ─► wait until ended ─► start …
 *
 * A pidfd makes its end an event: nothing here sleeps, but looks at /health at intervals, as there
 * is no event for "ready" that every server has.
 */
#include "client/replay_daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/api.h"
#include "client/term.h"

#define WORDS_MAX 256
#define WORD_MAX_BYTES ((size_t)64 << 10)
#define LOOK_MS 20    /* between two looks whether it is ready */
#define STOP_MS 60000 /* SIGTERM to end */
#define LAST_WORDS_BYTES 2048
#define EXIT_CANT_RUN 127 /* the shell's */

struct replay_daemon {
    struct client *client;
    char **words; /* borrowed */
    int timeout_s;
    pid_t pid; /* 0: not running */
    int pidfd; /* -1 then */
    FILE *log;
};

/* ---- words ---- */

/* The next word at *s into b, *s moved behind it. ERR_INVAL: a quote that isn't closed. */
static int next_word(const char **s, struct buf *b, struct err *e)
{
    const char *p = *s;
    char quote = 0;
    buf_clear(b);
    buf_str(b, "");
    for (; *p && (quote || !strchr(" \t\r\n", *p)); p++) {
        if (quote ? *p == quote : (*p == '\'' || *p == '"')) {
            quote = quote ? 0 : *p;
            continue;
        }
        bool is_escape = *p == '\\' && quote != '\'' && p[1] && (!quote || strchr("\"\\$`", p[1]));
        if (is_escape)
            p++;
        buf_char(b, *p);
    }
    *s = p;
    if (quote)
        return err_set(e, ERR_INVAL, "a quote (%c) is not closed", quote);
    return buf_error(b) ? err_set(e, buf_error(b), "a word: %s", err_name(buf_error(b))) : 0;
}

static const char *skip_blanks(const char *s)
{
    return s + strspn(s, " \t\r\n");
}

int replay_words(const char *text, char ***ret, struct err *e)
{
    char **words = calloc(WORDS_MAX + 1, sizeof *words);
    struct buf b;
    buf_init(&b, WORD_MAX_BYTES);
    size_t n = 0;
    int r = words ? 0 : err_set(e, ERR_NOMEM, "no memory for words");
    for (const char *s = skip_blanks(text); !r && *s; s = skip_blanks(s)) {
        if (n == WORDS_MAX)
            r = err_set(e, ERR_LIMIT, "more than %d words", WORDS_MAX);
        else
            r = next_word(&s, &b, e);
        if (!r && !(words[n++] = strdup(b.data)))
            r = err_set(e, ERR_NOMEM, "no memory for words");
    }
    buf_done(&b);
    if (!r && (!n || !*words[0]))
        r = err_set(e, ERR_INVAL, "no command");
    if (r)
        replay_words_free(words);
    else
        *ret = words;
    return r;
}

void replay_words_free(char **words)
{
    for (char **w = words; w && *w; w++)
        free(*w);
    free(words);
}

/* ---- what it said ---- */

static void show_last_words(const struct replay_daemon *d)
{
    char text[LAST_WORDS_BYTES];
    int fd = fileno(d->log);
    off_t end = lseek(fd, 0, SEEK_END);
    off_t from = end > LAST_WORDS_BYTES ? end - LAST_WORDS_BYTES : 0;
    ssize_t n = pread(fd, text, sizeof text, from);
    if (n <= 0 || d->client->is_json)
        return;
    fputs("hearth: its last words:\n", stderr);
    term_text(stderr, text, (size_t)n);
    if (text[n - 1] != '\n')
        fputc('\n', stderr);
}

/* "exit code 1", "signal 9" */
static const char *how_it_ended(int status, char ret[32])
{
    if (WIFSIGNALED(status))
        snprintf(ret, 32, "signal %d", WTERMSIG(status));
    else
        snprintf(ret, 32, "exit code %d", WEXITSTATUS(status));
    return ret;
}

static int fail(const struct replay_daemon *d, const char *what)
{
    api_fail(d->client, 0, "daemon", "the daemon %s", what);
    show_last_words(d);
    return EXIT_REFUSED;
}

/* ---- starting ---- */

/* In the child, between fork and exec: only what is safe there. */
static void become(const struct replay_daemon *d, pid_t parent)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) /* it went before we said that */
        _exit(EXIT_CANT_RUN);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGINT, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    int nothing = open("/dev/null", O_RDONLY);
    if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 || dup2(fileno(d->log), STDOUT_FILENO) < 0 ||
        dup2(fileno(d->log), STDERR_FILENO) < 0)
        _exit(EXIT_CANT_RUN);
    execvp(d->words[0], d->words);
    const char *parts[] = {d->words[0], " can't be run: ", strerror(errno), "\n"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        (void)!write(STDERR_FILENO, parts[i], strlen(parts[i]));
    _exit(EXIT_CANT_RUN);
}

static int spawn(struct replay_daemon *d)
{
    int log = fileno(d->log);
    if (ftruncate(log, 0) || lseek(log, 0, SEEK_SET))
        return api_fail(d->client, EXIT_REFUSED, "io", "the daemon's log can't be emptied: %s",
                        strerror(errno));
    pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        become(d, parent);
    if (pid < 0)
        return api_fail(d->client, EXIT_REFUSED, "io", "%s can't be started: %s", d->words[0],
                        strerror(errno));
    setpgid(pid, pid); /* whoever of both comes first */
    d->pid = pid;
    d->pidfd = pidfd_open(pid, 0);
    if (d->pidfd >= 0)
        return 0;
    int why = errno;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    d->pid = 0;
    return api_fail(d->client, EXIT_REFUSED, "io", "pidfd_open: %s", strerror(why));
}

enum look { LOOK_READY, LOOK_NOT_YET, LOOK_BAD };

/* What a reply means that isn't 200: hearthd and llama-server say 503 while loading. */
static enum look understand(struct client *c, const struct wire_reply *reply)
{
    json *j = NULL;
    struct err e;
    const char *body = reply->body.data ? reply->body.data : "";
    bool has_failed = false;
    if (!json_parse(body, reply->body.len, &j, &e)) {
        const char *status = json_str(json_get(j, "status", NULL));
        has_failed = status && !strcmp(status, "failed");
    }
    json_free(j);
    if (has_failed)
        api_fail(c, 0, "model_failed", "the daemon could not load its model");
    if (reply->status == 401 || reply->status == 403) {
        api_explain_status(c, reply->status, body, reply->body.len);
        has_failed = true;
    }
    return has_failed ? LOOK_BAD : LOOK_NOT_YET;
}

/* One request. *ret_code: what to return when it is bad. */
static enum look look_at(struct client *c, const char *path, int *ret_status, int *ret_code)
{
    struct err e = {0};
    struct wire_request q = {.method = "GET", .path = path};
    struct wire_reply reply = {0};
    int r = wire_call(c->wire, &q, &reply, &e);
    enum look result = LOOK_NOT_YET;
    *ret_status = reply.status;
    *ret_code = EXIT_REFUSED;
    if (r == ERR_CANCELED) {
        *ret_code = EXIT_INTERRUPTED;
        result = LOOK_BAD;
    } else if (!r) {
        result = reply.status == 200 ? LOOK_READY : understand(c, &reply);
    }
    buf_done(&reply.body);
    return result;
}

/* /health, and where there is none what every such server has. */
static enum look look(struct client *c, int *ret_status, int *ret_code)
{
    enum look result = look_at(c, "/health", ret_status, ret_code);
    if (*ret_status == 404 || *ret_status == 405)
        result = look_at(c, "/v1/models", ret_status, ret_code);
    return result;
}

/* Waits for its end. *ret_status as of waitpid. False: it runs on after so long. */
static bool has_ended(struct replay_daemon *d, int64_t wait_ms, int *ret_status)
{
    int64_t until = clock_ms() + wait_ms;
    struct pollfd p = {.fd = d->pidfd, .events = POLLIN};
    int n;
    do {
        int64_t left = until - clock_ms();
        n = poll(&p, 1, left > 0 ? (int)left : 0);
    } while (n < 0 && errno == EINTR);
    if (n <= 0 || waitpid(d->pid, ret_status, 0) != d->pid)
        return false;
    close(d->pidfd);
    d->pidfd = -1;
    d->pid = 0;
    return true;
}

static int wait_ready(struct replay_daemon *d)
{
    int64_t until = clock_ms() + (int64_t)d->timeout_s * 1000;
    char how[32], what[80];
    for (;;) {
        int http, code, status;
        enum look result = look(d->client, &http, &code);
        /* First of all: whoever answers, is it ours? */
        if (has_ended(d, 0, &status)) {
            snprintf(what, sizeof what, "ended before it was ready, with %s",
                     how_it_ended(status, how));
            return fail(d, what);
        }
        if (result == LOOK_READY)
            return 0;
        if (result == LOOK_BAD)
            return code;
        if (clock_ms() >= until) {
            snprintf(what, sizeof what, "was not ready within %d s", d->timeout_s);
            return fail(d, what);
        }
        term_progress("starting the daemon", -1);
        struct pollfd p = {.fd = d->pidfd, .events = POLLIN};
        poll(&p, 1, LOOK_MS);
    }
}

static int start(struct replay_daemon *d)
{
    int code = spawn(d);
    return code ? code : wait_ready(d);
}

/* ---- ending ---- */

/* Ends it and waits for that. An end by our signal is as good as exit code 0. */
static int end(struct replay_daemon *d, int sig)
{
    int status = 0;
    char how[32], what[80];
    if (!d->pid)
        return 0;
    if (has_ended(d, 0, &status)) {
        snprintf(what, sizeof what, "had ended already, with %s", how_it_ended(status, how));
        return fail(d, what);
    }
    kill(-d->pid, sig);
    if (!has_ended(d, STOP_MS, &status)) {
        kill(-d->pid, SIGKILL);
        has_ended(d, STOP_MS, &status);
        snprintf(what, sizeof what, "did not end within %d s of SIGTERM", STOP_MS / 1000);
        return fail(d, what);
    }
    if (WIFSIGNALED(status) && WTERMSIG(status) == sig)
        return 0;
    if (WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 128 + sig))
        return 0;
    snprintf(what, sizeof what, "ended with %s", how_it_ended(status, how));
    return fail(d, what);
}

int replay_daemon_restart(struct replay_daemon *d, bool is_kill)
{
    int code = end(d, is_kill ? SIGKILL : SIGTERM);
    return code ? code : start(d);
}

int replay_daemon_stop(struct replay_daemon *d)
{
    if (!d)
        return 0;
    int code = end(d, SIGTERM);
    if (d->log)
        fclose(d->log);
    free(d);
    return code;
}

int replay_daemon_start(struct client *c, char **words, int timeout_s, struct replay_daemon **ret)
{
    int http = 0, code;
    enum look result = look(c, &http, &code);
    if (result == LOOK_BAD)
        return code;
    if (http)
        return api_fail(c, EXIT_REFUSED, "busy",
                        "somebody answers at %s already; --daemon starts its own there",
                        c->url ? c->url : c->socket_path);
    struct replay_daemon *d = calloc(1, sizeof *d);
    if (!d)
        return api_fail(c, EXIT_REFUSED, "nomem", "out of memory");
    *d = (struct replay_daemon){
        .client = c, .words = words, .timeout_s = timeout_s, .pidfd = -1, .log = tmpfile()};
    if (!d->log)
        code =
            api_fail(c, EXIT_REFUSED, "io", "the daemon's log can't be made: %s", strerror(errno));
    else
        code = start(d);
    term_progress_end();
    if (code)
        replay_daemon_stop(d);
    else
        *ret = d;
    return code;
}
