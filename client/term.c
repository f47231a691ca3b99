/*
 * What a person sees. Answers go to stdout, everything else to stderr, so that a pipe gets the
 * answer alone. A model's words never drive the terminal: escape sequences in them are shown, not
 * obeyed.
 */
#include "client/term.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static bool progress_is_shown;

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

void term_progress(const char *what, double done)
{
    static int phase;
    static const char *const dots[] = {"·  ", " · ", "  ·", " · "};
    if (!term_is_tty(STDERR_FILENO))
        return;
    if (done < 0)
        fprintf(stderr, "\r\033[2m%s %s\033[0m\033[K", what, dots[phase++ % 4]);
    else
        fprintf(stderr, "\r\033[2m%s %3.0f %%\033[0m\033[K", what, 100 * done);
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

/* C0 controls but tab and newline, DEL, and C1 controls (U+0080 … U+009F, two bytes in UTF-8).
 * Returns how many bytes to replace, or 0. */
static size_t control_at(const char *s, size_t n)
{
    unsigned char c = (unsigned char)s[0];
    if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f)
        return 1;
    if (c == 0xc2 && n > 1 && (unsigned char)s[1] >= 0x80 && (unsigned char)s[1] <= 0x9f)
        return 2;
    return 0;
}

void term_text(const char *text, size_t n)
{
    if (!term_is_tty(STDOUT_FILENO)) {
        fwrite(text, 1, n, stdout);
        return;
    }
    for (size_t i = 0; i < n;) {
        size_t bad = control_at(text + i, n - i);
        if (bad)
            fputs("\xef\xbf\xbd", stdout);
        else
            fputc(text[i], stdout);
        i += bad ? bad : 1;
    }
}

void term_note(const char *fmt, ...)
{
    if (!term_is_tty(STDERR_FILENO))
        return;
    va_list ap;
    va_start(ap, fmt);
    fputs("\033[2m", stderr);
    vfprintf(stderr, fmt, ap);
    fputs("\033[0m\n", stderr);
    va_end(ap);
}
