/*
 * hearth summary: what stands in the window for the turns that left it, to be read and edited. What
 * was said is never touched.
 *
 *      hearth summary [show] [ID]
 *      hearth summary edit [ID]                          in $VISUAL, $EDITOR or vi
 *      hearth summary edit [ID] --summary - <FILE        by a script; --facts likewise
 *
 * The editor gets one file that nobody else can read, with a line before each of the two texts:
 *
 *      #### SUMMARY: … ####
 *      …
 *      #### FACTS: … ####
 *      …
 *
 * The lines tell the parts from each other when it comes back; they must not be in the texts. What
 * the daemon knows of a fact stays with its line (fact_lines.c). What couldn't be saved is kept,
 * and where is said.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/utf8.h"
#include "client/conversation.h"
#include "client/fields.h"
#include "client/options.h"
#include "client/term.h"
#include "client/window.h"

#define TEXT_MAX ((size_t)1 << 20)
#define SUMMARY_LINE "#### SUMMARY: what is below stands for what left. Empty: none ####\n"
#define FACTS_LINE "#### FACTS: one a line, newest last ####\n"
#define FILE_PATTERN "/hearth-summary-XXXXXX.txt"
#define FILE_SUFFIX_BYTES 4

enum { OPT_SUMMARY = OPT_OWN, OPT_FACTS };
const struct option_row summary_command_options[] = {
    {"summary", "FILE", OPT_SUMMARY, "edit: the summary is this file's text; -: stdin's"},
    {"facts", "FILE", OPT_FACTS, "edit: the list of facts likewise"},
    {NULL, NULL, 0, NULL},
};

/* What is to be saved; NULL: as it was. */
struct texts {
    char *summary, *facts;
};

static void texts_done(struct texts *t)
{
    free(t->summary);
    free(t->facts);
    *t = (struct texts){0};
}

static int fetch(struct client *c, const char *id, json **ret)
{
    char *path = window_path(c, id, "/summary");
    int code = path ? api_call(c, "GET", path, NULL, ret) : EXIT_REFUSED;
    free(path);
    return code;
}

/* ---- show ---- */

static void print_text(const char *title, const char *text, size_t n)
{
    printf("── %s\n", title);
    term_text(stdout, n ? text : "(empty)", n ? n : strlen("(empty)"));
    puts(n && text[n - 1] == '\n' ? "" : "\n");
}

static void print_summary(const json *j)
{
    char when[20];
    struct buf facts;
    buf_init(&facts, TEXT_MAX);
    fact_lines_bare(str_or(j, "facts", ""), &facts);
    format_time(json_double(json_get(j, "created_at", NULL)), when);
    printf("%s, cut %s\n\n", str_or(j, "conversation", ""), when);
    print_text("summary", str_or(j, "summary", ""), strlen(str_or(j, "summary", "")));
    print_text("facts", facts.data ? facts.data : "", facts.len);
    buf_done(&facts);
}

int summary_show(struct client *c, const char *id)
{
    json *j = NULL;
    int code = fetch(c, id, &j);
    if (!code && c->is_json)
        code = api_print_json(c, j);
    else if (!code)
        print_summary(j);
    json_free(j);
    return code;
}

/* ---- saving ---- */

static int save(struct client *c, const char *id, const struct texts *t)
{
    json *body = json_object(), *j = NULL;
    if (t->summary)
        json_set_str(body, "summary", t->summary);
    if (t->facts)
        json_set_str(body, "facts", t->facts);
    char *path = window_path(c, id, "/summary");
    if (!path) {
        json_free(body);
        return EXIT_REFUSED;
    }
    int code = api_call(c, "POST", path, body, &j);
    if (!code && c->is_json) {
        code = api_print_json(c, j);
    } else if (!code) {
        const json *tokens = json_get(j, "tokens", NULL);
        fputs("saved", stdout);
        if (tokens)
            printf(": %.0f tokens of summary, %.0f of facts",
                   json_double(json_get(tokens, "summary", NULL)),
                   json_double(json_get(tokens, "facts", NULL)));
        printf("; %s\n", str_or(j, "note", ""));
    }
    json_free(j);
    free(path);
    return code;
}

/* The text of n bytes, without the newlines at its end, allocated; NULL after having said why. */
static char *checked(struct client *c, const char *name, const char *text, size_t n)
{
    size_t bad;
    while (n && (text[n - 1] == '\n' || text[n - 1] == '\r'))
        n--;
    if (!utf8_valid(text, n, &bad)) {
        api_fail(c, EXIT_USAGE, "inval", "%s is no UTF-8 text (byte %zu)", name, bad + 1);
        return NULL;
    }
    if (n && memchr(text, 0, n)) {
        api_fail(c, EXIT_USAGE, "inval", "%s holds a NUL", name);
        return NULL;
    }
    char *copy = strndup(n ? text : "", n);
    if (!copy)
        api_fail(c, EXIT_REFUSED, "nomem", "out of memory");
    return copy;
}

/* ---- from files ---- */

static int read_stdin(struct buf *b, struct err *e)
{
    char chunk[65536];
    ssize_t n;
    while ((n = read(STDIN_FILENO, chunk, sizeof chunk)) > 0)
        buf_add(b, chunk, (size_t)n);
    if (n < 0)
        return err_set(e, ERR_IO, "stdin can't be read: %s", strerror(errno));
    return buf_error(b) ? err_set(e, buf_error(b), "stdin: %s", err_name(buf_error(b))) : 0;
}

static int read_text(struct client *c, const char *path, char **ret)
{
    struct buf b;
    struct err e;
    const bool is_stdin = !strcmp(path, "-");
    buf_init(&b, TEXT_MAX);
    int code = 0;
    if (is_stdin ? read_stdin(&b, &e) : file_read(path, &b, &e))
        code = api_fail(c, EXIT_REFUSED, err_name(e.code), "%s", e.text);
    else if (!(*ret = checked(c, is_stdin ? "stdin" : path, b.data ? b.data : "", b.len)))
        code = EXIT_USAGE;
    buf_done(&b);
    return code;
}

/* ---- in an editor ---- */

static const char *editor(void)
{
    const char *visual = getenv("VISUAL"), *plain = getenv("EDITOR");
    if (visual && *visual)
        return visual;
    if (plain && *plain)
        return plain;
    return term_is_tty(STDIN_FILENO) ? "vi" : NULL;
}

/* The variable may hold arguments, so that a shell reads it. Only the editor gets Ctrl-C. */
static int run_editor(struct client *c, const char *name, const char *path)
{
    struct buf command;
    struct sigaction old, ignore = {.sa_handler = SIG_IGN};
    int status = -1;
    buf_init(&command, TEXT_MAX);
    buf_printf(&command, "%s \"$1\"", name);
    if (buf_error(&command)) {
        buf_done(&command);
        return api_fail(c, EXIT_REFUSED, "nomem", "out of memory");
    }
    fflush(stdout);
    sigaction(SIGINT, &ignore, &old);
    const pid_t pid = fork();
    if (pid == 0) {
        signal(SIGINT, SIG_DFL);
        signal(SIGPIPE, SIG_DFL);
        execl("/bin/sh", "sh", "-c", command.data, "sh", path, (char *)NULL);
        _exit(127);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    sigaction(SIGINT, &old, NULL);
    buf_done(&command);
    if (pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    return api_fail(c, EXIT_REFUSED, "editor", "the editor failed (%s): nothing was changed", name);
}

static bool write_all(int fd, const char *text, size_t n)
{
    while (n) {
        const ssize_t done = write(fd, text, n);
        if (done < 0 && errno != EINTR)
            return false;
        text += done > 0 ? done : 0;
        n -= done > 0 ? (size_t)done : 0;
    }
    return true;
}

/* A new file, 0600, with the text; *ret_path is allocated. */
static int make_file(struct client *c, const struct buf *text, char **ret_path)
{
    const char *dir = getenv("TMPDIR");
    char *path = NULL;
    dir = dir && *dir ? dir : "/tmp";
    const size_t n = strlen(dir) + sizeof FILE_PATTERN;
    if (!(path = malloc(n)))
        return api_fail(c, EXIT_REFUSED, "nomem", "out of memory");
    snprintf(path, n, "%s%s", dir, FILE_PATTERN);
    const int fd = mkostemps(path, FILE_SUFFIX_BYTES, O_CLOEXEC);
    const bool is_written = fd >= 0 && write_all(fd, text->data, text->len);
    const int why = errno;
    if (fd >= 0 && close(fd) == 0 && is_written) {
        *ret_path = path;
        return 0;
    }
    if (fd >= 0)
        unlink(path);
    int code = api_fail(c, EXIT_REFUSED, "io", "no file to edit can be made in %s: %s", dir,
                        strerror(why));
    free(path);
    return code;
}

/* *facts as it is to be stored. */
static int rejoin(struct client *c, char **facts, const char *old)
{
    struct buf b;
    buf_init(&b, TEXT_MAX);
    buf_str(&b, "");
    fact_lines_rejoin(*facts, old, &b);
    free(*facts);
    *facts = buf_take(&b, NULL);
    return *facts ? 0 : api_fail(c, EXIT_REFUSED, "limit", "the list of facts is too long");
}

/* Takes the parts out of what came back. */
static int parse(struct client *c, const struct buf *b, const json *old, struct texts *ret)
{
    const char *text = b->data ? b->data : "";
    const char *summary = memmem(text, b->len, SUMMARY_LINE, strlen(SUMMARY_LINE));
    const size_t skipped = summary ? (size_t)(summary - text) : 0;
    const char *facts = memmem(text + skipped, b->len - skipped, FACTS_LINE, strlen(FACTS_LINE));
    if (!summary || !facts)
        return api_fail(c, EXIT_REFUSED, "inval",
                        "the lines that begin with #### are not as they were: nothing was changed");
    summary += strlen(SUMMARY_LINE);
    ret->summary = checked(c, "the summary", summary, (size_t)(facts - summary));
    facts += strlen(FACTS_LINE);
    ret->facts = checked(c, "the list of facts", facts, b->len - (size_t)(facts - text));
    return ret->summary && ret->facts ? rejoin(c, &ret->facts, str_or(old, "facts", ""))
                                      : EXIT_USAGE;
}

/* Equal but for the newlines at the end. */
static bool is_same(const char *edited, const char *old)
{
    size_t n = strlen(old);
    while (n && (old[n - 1] == '\n' || old[n - 1] == '\r'))
        n--;
    return strlen(edited) == n && !memcmp(edited, old, n);
}

static int take_back(struct client *c, const char *path, const json *old, struct texts *ret)
{
    struct buf b;
    struct err e;
    buf_init(&b, TEXT_MAX);
    int code = 0;
    if (file_read(path, &b, &e))
        code = api_fail(c, EXIT_REFUSED, err_name(e.code), "%s", e.text);
    else
        code = parse(c, &b, old, ret);
    buf_done(&b);
    if (!code && is_same(ret->summary, str_or(old, "summary", ""))) {
        free(ret->summary);
        ret->summary = NULL;
    }
    if (!code && is_same(ret->facts, str_or(old, "facts", ""))) {
        free(ret->facts);
        ret->facts = NULL;
    }
    return code;
}

static int write_parts(struct client *c, const json *old, struct buf *b)
{
    const char *summary = str_or(old, "summary", ""), *facts = str_or(old, "facts", "");
    if (strstr(summary, "####") || strstr(facts, "####"))
        return api_fail(c, EXIT_REFUSED, "inval",
                        "the texts hold \"####\", which parts them for the editor: use --summary "
                        "and --facts");
    buf_printf(b, "%s%s%s%s", SUMMARY_LINE, summary, *summary ? "\n\n" : "\n", FACTS_LINE);
    fact_lines_bare(facts, b);
    buf_char(b, '\n');
    return buf_error(b) ? api_fail(c, EXIT_REFUSED, "limit", "the texts are too long to edit") : 0;
}

/* From the file that exists on: it goes once its text is saved. */
static int edit_file(struct client *c, const char *id, const char *path, const json *old)
{
    struct texts t = {0};
    int code = run_editor(c, editor(), path);
    if (code) {
        unlink(path);
        return code;
    }
    code = take_back(c, path, old, &t);
    if (!code && !t.summary && !t.facts)
        code = c->is_json ? api_print_json(c, old) : puts("nothing was changed") == EOF;
    else if (!code)
        code = save(c, id, &t);
    if (code && !c->is_json)
        fprintf(stderr, "hearth: what you wrote is in %s\n", path);
    else
        unlink(path);
    texts_done(&t);
    return code;
}

int summary_edit(struct client *c, const char *id)
{
    struct buf b;
    json *old = NULL;
    char *path = NULL;
    if (!editor())
        return api_fail(c, EXIT_USAGE, "inval",
                        "there is no terminal, and neither VISUAL nor EDITOR is set: give "
                        "--summary or --facts");
    buf_init(&b, TEXT_MAX);
    int code = fetch(c, id, &old);
    if (!code)
        code = write_parts(c, old, &b);
    if (!code)
        code = make_file(c, &b, &path);
    if (!code)
        code = edit_file(c, id, path, old);
    free(path);
    json_free(old);
    buf_done(&b);
    return code;
}

/* ---- the command ---- */

struct summary_arguments {
    const char *summary, *facts; /* paths */
};

static int take(void *ctx, int value, const char *arg)
{
    struct summary_arguments *a = ctx;
    if (value == OPT_SUMMARY)
        a->summary = arg;
    else
        a->facts = arg;
    return 0;
}

static int edit_by_files(struct client *c, const char *id, const struct summary_arguments *a)
{
    struct texts t = {0};
    json *old = NULL;
    int code = a->summary ? read_text(c, a->summary, &t.summary) : 0;
    if (!code && a->facts)
        code = read_text(c, a->facts, &t.facts);
    if (!code && a->facts)
        code = fetch(c, id, &old);
    if (!code && a->facts)
        code = rejoin(c, &t.facts, str_or(old, "facts", ""));
    if (!code)
        code = save(c, id, &t);
    json_free(old);
    texts_done(&t);
    return code;
}

int cmd_summary(struct client *c, int argc, char **argv)
{
    const struct command *self = command_find("summary");
    struct summary_arguments a = {NULL, NULL};
    struct options_reader reader = {c, self, take, &a};
    char *id = NULL;
    int first;
    int code = options_read(&reader, argc, argv, &first);
    if (code)
        return code;
    const char *what = first < argc ? argv[first] : "show";
    const bool is_edit = !strcmp(what, "edit");
    if (is_edit || !strcmp(what, "show"))
        first++;
    if (argc - first > 1)
        return usage_error(self, "one conversation at most");
    if (!is_edit && (a.summary || a.facts))
        return usage_error(self, "--summary and --facts are edit's");
    if (a.summary && a.facts && !strcmp(a.summary, "-") && !strcmp(a.facts, "-"))
        return usage_error(self, "stdin can't be both texts");
    code = conversation_choose(c, first < argc ? argv[first] : NULL, &id);
    if (!code && (a.summary || a.facts))
        code = edit_by_files(c, id, &a);
    else if (!code)
        code = is_edit ? summary_edit(c, id) : summary_show(c, id);
    free(id);
    return code;
}
