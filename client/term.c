/*
 * What a person sees. Answers go to stdout, everything else to stderr, so that a pipe gets the
 * answer alone. A model's words never drive the terminal: escape sequences in them are shown, not
 * obeyed.
 */
#include "client/term.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/utf8.h"
#include "client/client.h"

#define REPLACEMENT "\xef\xbf\xbd"
#define CLEAN_MAX ((size_t)1 << 30)
#define NOTE_MAX 4096
#define QUIET_MS 500

static bool progress_is_shown;
static int stdout_errno; /* of the first write that failed; UNKNOWN: printf's errno is gone */
#define UNKNOWN (-1)

bool term_is_tty(int fd)
{
    return isatty(fd) == 1;
}

int term_width(void)
{
    struct winsize w;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) || w.ws_col < 20)
        return 80;
    return w.ws_col;
}

bool term_can_move(void)
{
    const char *term = getenv("TERM");
    return term_is_tty(STDERR_FILENO) && term && *term && strcmp(term, "dumb");
}

/* NO_COLOR: no-color.org. */
bool term_has_style(FILE *f)
{
    const char *term = getenv("TERM"), *no = getenv("NO_COLOR");
    return term_is_tty(fileno(f)) && term && *term && strcmp(term, "dumb") && !(no && *no);
}

static bool has_style(void)
{
    return term_has_style(stderr);
}

void term_progress(const char *what, double done)
{
    static unsigned phase;
    static const char *const dots[] = {"·  ", " · ", "  ·", " · "};
    if (!term_can_move())
        return;
    const char *dim = has_style() ? "\033[2m" : "", *plain = *dim ? "\033[0m" : "";
    if (done < 0)
        fprintf(stderr, "\r%s%s %s%s\033[K", dim, what, dots[phase++ % 4], plain);
    else
        fprintf(stderr, "\r%s%s %3.0f %%%s\033[K", dim, what, 100 * done, plain);
    fflush(stderr);
    progress_is_shown = true;
}

void term_progress_end(void)
{
    if (!progress_is_shown)
        return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
    progress_is_shown = false;
}

void term_waiting(int64_t waited_ms, int64_t n_tokens)
{
    char what[80];
    if (waited_ms < QUIET_MS)
        return;
    if (n_tokens > 0)
        snprintf(what, sizeof what, "waiting, %lld s (%lld tokens to read)",
                 (long long)(waited_ms / 1000), (long long)n_tokens);
    else
        snprintf(what, sizeof what, "waiting, %lld s", (long long)(waited_ms / 1000));
    term_progress(what, -1);
}

/* C0 controls but tab and newline, DEL, and C1 controls (U+0080 … U+009F). */
static bool is_control(const char *s, size_t n)
{
    unsigned char c = (unsigned char)s[0];
    if (n == 1)
        return (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f;
    return n == 2 && c == 0xc2 && (unsigned char)s[1] <= 0x9f;
}

void term_clean(struct buf *b, const char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        bool ok;
        size_t step = utf8_step(text + i, n - i, &ok);
        if (!ok || (is_control(text + i, step) && text[i] != '\r'))
            buf_str(b, REPLACEMENT);
        else if (text[i] != '\r')
            buf_add(b, text + i, step);
        i += step;
    }
}

void term_write(FILE *f, const char *text, size_t n)
{
    if (n && fwrite(text, 1, n, f) < n && f == stdout && !stdout_errno)
        stdout_errno = errno;
}

void term_text(FILE *f, const char *text, size_t n)
{
    if (!term_is_tty(fileno(f))) {
        term_write(f, text, n);
        return;
    }
    struct buf b;
    buf_init(&b, CLEAN_MAX);
    term_clean(&b, text, n);
    term_write(f, b.data ? b.data : "", b.len);
    buf_done(&b);
}

/* How many bytes of valid UTF-8 fit in so many columns. */
static size_t fitting(const char *s, size_t n, size_t max_columns)
{
    size_t i = 0, columns = 0;
    while (i < n) {
        bool ok;
        size_t step = utf8_step(s + i, n - i, &ok);
        columns += utf8_width(s + i, step);
        if (columns > max_columns)
            return i;
        i += step;
    }
    return n;
}

static void write_line(FILE *f, const char *text, size_t max_columns, bool is_cut)
{
    struct buf b;
    buf_init(&b, CLEAN_MAX);
    term_clean(&b, text, strlen(text));
    for (size_t i = 0; i < b.len; i++)
        if (b.data[i] == '\n' || b.data[i] == '\t')
            b.data[i] = ' ';
    const char *s = b.data ? b.data : "";
    if (is_cut && utf8_width(s, b.len) > max_columns) {
        term_write(f, s, fitting(s, b.len, max_columns > 1 ? max_columns - 1 : 1));
        term_write(f, "…", strlen("…"));
    } else {
        term_write(f, s, b.len);
    }
    buf_done(&b);
}

void term_line(FILE *f, const char *text, size_t max_columns)
{
    write_line(f, text, max_columns, term_is_tty(fileno(f)));
}

void term_words(FILE *f, const char *text, size_t max_columns)
{
    write_line(f, text, max_columns, true);
}

static void say_dimly(const char *fmt, va_list ap)
{
    char text[NOTE_MAX];
    vsnprintf(text, sizeof text, fmt, ap);
    bool is_dim = has_style();
    fputs(is_dim ? "\033[2m" : "", stderr);
    term_text(stderr, text, strlen(text));
    fputs(is_dim ? "\033[0m\n" : "\n", stderr);
}

void term_note(const char *fmt, ...)
{
    va_list ap;
    if (!term_is_tty(STDERR_FILENO))
        return;
    va_start(ap, fmt);
    say_dimly(fmt, ap);
    va_end(ap);
}

static bool is_thinking;

void term_thought(const char *text, size_t n)
{
    const bool is_dim = has_style();
    if (!n || !term_is_tty(STDERR_FILENO))
        return;
    is_thinking = true;
    fputs(is_dim ? "\033[2m" : "", stderr);
    term_text(stderr, text, n);
    fputs(is_dim ? "\033[0m" : "", stderr);
    fflush(stderr);
}

void term_thought_end(void)
{
    if (is_thinking)
        fputs("\n\n", stderr);
    is_thinking = false;
}

void term_say(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say_dimly(fmt, ap);
    va_end(ap);
}

static bool has_no_reader(void)
{
    struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&p, 1, 0) == 1 && (p.revents & POLLERR);
}

bool term_flush(void)
{
    if (fflush(stdout) && !stdout_errno)
        stdout_errno = errno;
    if (ferror(stdout) && !stdout_errno)
        stdout_errno = has_no_reader() ? EPIPE : UNKNOWN;
    return !stdout_errno;
}

int term_end(void)
{
    term_progress_end();
    if (term_flush())
        return 0;
    if (stdout_errno == EPIPE)
        return EXIT_PIPE;
    fprintf(stderr, "hearth: stdout can't be written: %s\n",
            stdout_errno == UNKNOWN ? "unknown error" : strerror(stdout_errno));
    return EXIT_REFUSED;
}
