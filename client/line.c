/*
 * libedit, and the only file that knows it.
 */
#include "client/line.h"

#include <errno.h>
#include <histedit.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

#include "base/buf.h"
#include "client/term.h"

#define LINE_HISTORY 1000
#define PASTE_ON "\033[?2004h" /* xterm's bracketed paste: the terminal marks what is pasted */
#define PASTE_OFF "\033[?2004l"
#define ESC '\033'
#define ESCAPE_MS 20        /* within which the rest of a key's sequence comes */
#define PASTE_START "[200~" /* after ESC */
#define PASTE_END "\033[201~"
#define CTRL_V "\026" /* emacs: the next character as it is */

struct line {
    EditLine *el; /* NULL: not a terminal */
    History *history;
    char *path;
    const char *prompt;
    sigset_t open_mask; /* without SIGINT, which is blocked but while we wait: none is lost */
    char ahead[8];      /* bytes read to see what an ESC begins */
    size_t n_ahead;
};

static volatile sig_atomic_t was_interrupted;

static void note_interrupt(int sig)
{
    (void)sig;
    was_interrupted = 1;
}

static struct line *line_of(EditLine *el)
{
    void *data = NULL;
    el_get(el, EL_CLIENTDATA, &data);
    return data;
}

/* 1, 0 at the end, -1 after Ctrl-C or an error. */
static int next_byte(struct line *l, char *ret)
{
    if (l->n_ahead) {
        *ret = l->ahead[0];
        memmove(l->ahead, l->ahead + 1, --l->n_ahead);
        return 1;
    }
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    while (ppoll(&p, 1, NULL, &l->open_mask) < 0) {
        if (errno != EINTR || was_interrupted)
            return -1;
        el_set(l->el, EL_REFRESH); /* another size, or back from the background */
    }
    return (int)read(STDIN_FILENO, ret, 1);
}

/* After an ESC: whether the rest of PASTE_START follows; it is taken then. What was read to find
 * out stays in `ahead`. An ESC that a person types has nothing right behind it. */
static bool is_paste(struct line *l)
{
    static const char rest[] = PASTE_START;
    const size_t n_rest = sizeof rest - 1;
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    for (size_t i = 0; i < n_rest; i++) {
        if (i == l->n_ahead) {
            if (poll(&p, 1, ESCAPE_MS) != 1 || read(STDIN_FILENO, &l->ahead[i], 1) != 1)
                return false;
            l->n_ahead++;
        }
        if (l->ahead[i] != rest[i])
            return false;
    }
    l->n_ahead -= n_rest;
    memmove(l->ahead, l->ahead + n_rest, l->n_ahead);
    return true;
}

/* Text up to PASTE_END, whatever is in it, goes into the line: several lines are one message. */
static void take_paste(struct line *l)
{
    struct buf b;
    size_t n_end = strlen(PASTE_END);
    bool is_whole = false, is_lost = false;
    char byte;
    buf_init(&b, LINE_MAX_BYTES);
    while (!is_whole && next_byte(l, &byte) == 1) {
        if (byte)
            buf_char(&b, byte == '\r' ? '\n' : byte);
        if (buf_error(&b)) { /* too long for a message: none of it, but its end is waited for */
            is_lost = true;
            buf_clear(&b);
        }
        is_whole = b.len >= n_end && !memcmp(b.data + b.len - n_end, PASTE_END, n_end);
    }
    if (is_whole && !is_lost && b.len > n_end) {
        b.data[b.len - n_end] = 0;
        el_insertstr(l->el, b.data);
        el_set(l->el, EL_REFRESH);
    }
    if (is_lost)
        el_beep(l->el);
    buf_done(&b);
}

/* One character. libedit's own reader goes on after an interrupted read; this one comes back from
 * Ctrl-C, and knows a paste from keys (a function of EL_ADDFN would, too, but is never freed). */
static int read_character(EditLine *el, wchar_t *ret)
{
    struct line *l = line_of(el);
    mbstate_t state = {0};
    for (;;) {
        char byte;
        int n = next_byte(l, &byte);
        if (n != 1)
            return n;
        if (byte == ESC && is_paste(l)) {
            take_paste(l);
            continue;
        }
        size_t len = mbrtowc(ret, &byte, 1, &state);
        if (len == 0 || len == 1)
            return 1; /* 0: a NUL */
        if (len == (size_t)-1)
            state = (mbstate_t){0}; /* no character: dropped */
    }
}

static const char *prompt_of(EditLine *el)
{
    return line_of(el)->prompt;
}

static void open_editor(struct line *l)
{
    HistEvent ev;
    l->history = history_init();
    l->el = el_init("hearth", stdin, stdout, stderr);
    if (!l->el || !l->history)
        return;
    history(l->history, &ev, H_SETSIZE, LINE_HISTORY);
    history(l->history, &ev, H_SETUNIQUE, 1);
    if (l->path)
        history(l->history, &ev, H_LOAD, l->path);
    el_set(l->el, EL_CLIENTDATA, l);
    el_set(l->el, EL_PROMPT, prompt_of);
    el_set(l->el, EL_GETCFN, read_character);
    el_set(l->el, EL_EDITOR, "emacs");
    el_set(l->el, EL_HIST, history, l->history);
    el_set(l->el, EL_SIGNAL, 1); /* the terminal is put right before a signal ends or stops us */
    el_set(l->el, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_source(l->el, NULL);
}

struct line *line_open(const char *history_path)
{
    struct line *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    l->path = history_path ? strdup(history_path) : NULL;
    if (term_is_tty(STDIN_FILENO) && term_is_tty(STDOUT_FILENO))
        open_editor(l);
    return l;
}

void line_close(struct line *l)
{
    if (!l)
        return;
    if (l->history) {
        HistEvent ev;
        mode_t old = umask(077);
        if (l->path)
            history(l->history, &ev, H_SAVE, l->path);
        umask(old);
        history_end(l->history);
    }
    if (l->el)
        el_end(l->el);
    free(l->path);
    free(l);
}

/* Types text into the line that is about to be read; its control characters are text, too. */
static void type_in(struct line *l, const char *text)
{
    struct buf b;
    buf_init(&b, 2 * LINE_MAX_BYTES);
    for (const char *p = text; *p; p++) {
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            buf_str(&b, CTRL_V);
        buf_char(&b, *p);
    }
    if (!buf_error(&b) && b.len)
        el_push(l->el, b.data);
    buf_done(&b);
}

/* One physical line, borrowed until the next call; NULL at the end of input or after Ctrl-C. */
static const char *physical(struct line *l, const char *initial, char **plain, size_t *plain_cap,
                            size_t *ret_n)
{
    if (!l->el) {
        ssize_t n = getline(plain, plain_cap, stdin);
        *ret_n = n > 0 ? (size_t)n : 0;
        return n > 0 ? *plain : NULL;
    }
    /* Blocked but while next_byte waits, where it is seen: between two looks none is lost. */
    struct sigaction sa = {.sa_handler = note_interrupt}, old;
    sigset_t interrupt;
    sigaction(SIGINT, &sa, &old);
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    sigprocmask(SIG_BLOCK, &interrupt, &l->open_mask);
    if (initial)
        type_in(l, initial);
    int n = 0;
    bool can_mark = term_can_move();
    if (can_mark)
        fputs(PASTE_ON, stdout);
    const char *s = el_gets(l->el, &n);
    if (can_mark)
        fputs(PASTE_OFF, stdout);
    fflush(stdout);
    sigprocmask(SIG_SETMASK, &l->open_mask, NULL); /* one that waits comes now, to our handler */
    sigaction(SIGINT, &old, NULL);
    *ret_n = s && n > 0 ? (size_t)n : 0;
    if (was_interrupted) {
        el_reset(l->el);
        return NULL;
    }
    return s && n > 0 ? s : NULL;
}

static void remember(struct line *l, const char *text)
{
    HistEvent ev;
    if (l->history && *text)
        history(l->history, &ev, H_ENTER, text);
}

/* Lines up to one that doesn't end in a backslash. */
static enum line_result gather(struct line *l, const char *initial, struct buf *b)
{
    char *plain = NULL;
    size_t cap = 0, n;
    enum line_result result = LINE_END;
    bool goes_on = true;
    while (goes_on) {
        const char *s = physical(l, initial, &plain, &cap, &n);
        if (!s)
            break;
        result = LINE_TEXT;
        initial = NULL;
        if (n && s[n - 1] == '\n')
            n--;
        goes_on = n && s[n - 1] == '\\';
        buf_add(b, s, goes_on ? n - 1 : n);
        if (goes_on)
            buf_char(b, '\n');
        l->prompt = "… ";
    }
    buf_str(b, "");
    free(plain);
    if (was_interrupted)
        return LINE_INTERRUPTED;
    return buf_error(b) ? LINE_TOO_LONG : result;
}

enum line_result line_read(struct line *l, const char *prompt, const char *initial, char **ret,
                           size_t *ret_n)
{
    struct buf b;
    buf_init(&b, LINE_MAX_BYTES);
    was_interrupted = 0;
    l->prompt = prompt;
    enum line_result result = gather(l, initial, &b);
    if (l->el && result != LINE_TEXT)
        fputc('\n', stdout);
    if (result == LINE_TEXT) {
        remember(l, b.data);
        *ret = buf_take(&b, ret_n);
    }
    buf_done(&b);
    return result;
}
