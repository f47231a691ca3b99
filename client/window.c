/*
 * hearth context and hearth cut, what they print: the window as one bar, and the list behind it.
 *
 *      conv_3f2a…
 *      window     700 of 1024 tokens; 170 of the rest are kept for the answer
 *      strategy   auto; cut 2026-01-31 14:05 (auto)
 *      next       cut 2026-01-31 14:20 (auto), 310 tokens (--next shows it)
 *
 *      SSSPPFFFFFMMMMMMRRRTTTTTTTTTTTTTTTTTTTTTTTT...............
 *      S system 31  P pins 20  F facts 60  M summary 90  R recalled 40  T turns 459  . free 324
 *
 *      tokens  kind      role       text
 *          31  system    system     You are …
 *
 * On a terminal with colours the bar is coloured cells; the letters name the colours below it.
 */
#include "client/fields.h"
#include "client/window.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/conversation.h"
#include "client/term.h"

#define PLAIN_COLUMNS 80  /* where there is no terminal */
#define NARROW_COLUMNS 50 /* below: letters instead of kind and role */
#define ROW_COLUMNS 29    /* before the text */
#define NARROW_ROW_COLUMNS 9
#define CUT_ROW_COLUMNS 19
#define TEXT_COLUMNS_MIN 8

static int columns(void)
{
    return term_is_tty(STDOUT_FILENO) ? term_width() : PLAIN_COLUMNS;
}

char *window_path(struct client *c, const char *id, const char *tail)
{
    char *path = api_path("/v1/hearth/conversations/", id, tail);
    if (!path)
        api_fail(c, EXIT_REFUSED, "nomem", "out of memory");
    return path;
}

/* path is window_path's, and taken. */
static int call(struct client *c, const char *method, char *path, json *body, json **ret)
{
    int code = EXIT_REFUSED;
    if (path)
        code = api_call(c, method, path, body, ret);
    else
        json_free(body);
    free(path);
    return code;
}

/* ---- the bar ---- */

/* SGR backgrounds, in the order of enum bar_kind; free cells have none. */
static const char *const colours[BAR_KINDS] = {"44", "45", "46", "42", "43", "47", ""};

static void sum_up(const json *j, int64_t *tokens)
{
    memset(tokens, 0, BAR_KINDS * sizeof *tokens);
    for (const json *it = json_first(json_get(j, "items", NULL)); it; it = json_next(it))
        tokens[bar_kind_of(json_str(json_get(it, "kind", NULL)))] += (int64_t)number(it, "tokens");
    const int64_t rest = (int64_t)(number(j, "limit") - number(j, "used"));
    tokens[BAR_FREE] = rest > 0 ? rest : 0;
}

static void print_bar(const int64_t *tokens, bool has_style)
{
    int cells[BAR_KINDS];
    bar_columns(tokens, columns(), cells);
    for (int i = 0; i < BAR_KINDS; i++) {
        const bool is_coloured = has_style && *colours[i];
        if (cells[i] && is_coloured)
            printf("\033[%sm", colours[i]);
        for (int k = 0; k < cells[i]; k++)
            putchar(is_coloured ? ' ' : bar_letter((enum bar_kind)i));
        if (cells[i] && is_coloured)
            fputs("\033[0m", stdout);
    }
    putchar('\n');
}

/* Its legend, in as many lines as it takes. */
static void print_legend(const int64_t *tokens, bool has_style)
{
    const size_t width = (size_t)columns();
    size_t at = 0;
    for (int i = 0; i < BAR_KINDS; i++) {
        char entry[64];
        if (!tokens[i] && i != BAR_FREE)
            continue;
        snprintf(entry, sizeof entry, " %s %lld", bar_name((enum bar_kind)i), (long long)tokens[i]);
        const size_t n = 1 + strlen(entry);
        if (at && at + 2 + n > width) {
            putchar('\n');
            at = 0;
        }
        if (at)
            fputs("  ", stdout);
        at += n + (at ? 2 : 0);
        if (has_style && *colours[i])
            printf("\033[%sm%c\033[0m%s", colours[i], bar_letter((enum bar_kind)i), entry);
        else
            printf("%c%s", bar_letter((enum bar_kind)i), entry);
    }
    putchar('\n');
}

/* ---- the list ---- */

static void print_item(const json *it)
{
    const int width = columns();
    const bool is_narrow = width < NARROW_COLUMNS;
    const char *kind = str_or(it, "kind", "?");
    int room = width - (is_narrow ? NARROW_ROW_COLUMNS : ROW_COLUMNS);
    printf("%6.0f ", number(it, "tokens"));
    if (is_narrow)
        printf("%c ", bar_letter(bar_kind_of(kind)));
    else
        printf(" %-9.9s %-10.10s ", kind, str_or(it, "role", ""));
    term_words(stdout, str_or(it, "text", ""),
               (size_t)(room > TEXT_COLUMNS_MIN ? room : TEXT_COLUMNS_MIN));
    putchar('\n');
}

static void print_list(const json *items)
{
    if (!json_first(items)) {
        puts("\nnothing was said yet");
        return;
    }
    if (columns() >= NARROW_COLUMNS)
        puts("\ntokens  kind      role       text");
    else
        putchar('\n');
    for (const json *it = json_first(items); it; it = json_next(it))
        print_item(it);
}

/* A cut has no name of its own: where, when and how it was made. */
static bool is_same_cut(const json *a, const json *b)
{
    return !strcmp(str_or(a, "at_message", ""), str_or(b, "at_message", "")) &&
           !strcmp(str_or(a, "strategy", ""), str_or(b, "strategy", "")) &&
           number(a, "created_at") == number(b, "created_at");
}

static void print_cut_of(const json *j)
{
    char when[20];
    const json *cut = json_get(j, "cut", NULL);
    if (!cut) {
        fputs("never cut", stdout);
        return;
    }
    format_time(number(cut, "created_at"), when);
    printf("cut %s (%s)", when, str_or(cut, "strategy", "?"));
}

/* now: the newest answer was read with it; next: the next turn finds it. shown is one of them. */
static void print_state(const json *shown, const json *now, const json *next)
{
    const double reserve = number(shown, "reserve");
    printf("%s\n", str_or(shown, "conversation", "?"));
    printf("window     %.0f of %.0f tokens", number(shown, "used"), number(shown, "limit"));
    if (number(shown, "above") > 0)
        printf(", and %.0f messages above them: the next turn cuts", number(shown, "above"));
    if (reserve > 0)
        printf("; %.0f are kept for the answer", reserve);
    printf("\nstrategy   %s; ", str_or(shown, "strategy", "?"));
    print_cut_of(shown);
    putchar('\n');
    if (is_same_cut(json_get(now, "cut", NULL), json_get(next, "cut", NULL))) {
        if (shown == next)
            puts("next       the next turn goes on with this window");
    } else if (shown == now) {
        fputs("next       ", stdout);
        print_cut_of(next);
        printf(", %.0f tokens (--next shows it)\n", number(next, "used"));
    }
    putchar('\n');
}

static void draw(const json *shown, const json *now, const json *next)
{
    const bool has_style = term_has_style(stdout);
    int64_t tokens[BAR_KINDS];
    sum_up(shown, tokens);
    print_state(shown, now, next);
    print_bar(tokens, has_style);
    print_legend(tokens, has_style);
    print_list(json_get(shown, "items", NULL));
}

int window_show(struct client *c, const char *id, bool is_next)
{
    json *now = NULL, *next = NULL;
    int code = 0;
    if (!is_next || !c->is_json)
        code = call(c, "GET", window_path(c, id, "/context"), NULL, &now);
    if (!code && (is_next || !c->is_json))
        code = call(c, "GET", window_path(c, id, "/context?next=1"), NULL, &next);
    if (!code && c->is_json)
        code = api_print_json(c, is_next ? next : now);
    else if (!code)
        draw(is_next ? next : now, now, next);
    json_free(next);
    json_free(now);
    return code;
}

/* ---- strategy ---- */

int window_set_quietly(struct client *c, const char *id, const char *strategy, json **ret)
{
    json *body = json_object();
    if (strcmp(strategy, "default"))
        json_set_str(body, "strategy", strategy);
    else
        json_set_null(body, "strategy");
    return call(c, "POST", window_path(c, id, "/context"), body, ret);
}

int window_set(struct client *c, const char *id, const char *strategy)
{
    json *j = NULL;
    int code = window_set_quietly(c, id, strategy, &j);
    if (!code && c->is_json)
        code = api_print_json(c, j);
    else if (!code)
        printf("strategy   %s%s\n", str_or(j, "strategy", "?"),
               json_bool(json_get(j, "is_own", NULL)) ? "" : ", the daemon's");
    json_free(j);
    return code;
}

/* ---- cut ---- */

/* The window's item that is this message, or NULL. */
static const json *find_item(const json *window, const char *id)
{
    for (const json *it = json_first(json_get(window, "items", NULL)); it; it = json_next(it))
        if (!strcmp(str_or(it, "message", ""), id) && !strcmp(str_or(it, "kind", ""), "message"))
            return it;
    return NULL;
}

/* before: the window as it was. */
static void print_left(const json *list, const char *what, const json *before)
{
    const int room = columns() - CUT_ROW_COLUMNS;
    int64_t n = 0, tokens = 0;
    for (const json *it = json_first(list); it; it = json_next(it), n++)
        tokens += (int64_t)number(it, "tokens");
    if (!n)
        return;
    printf("%s, %lld message%s (%lld tokens):\n", what, (long long)n, n == 1 ? "" : "s",
           (long long)tokens);
    for (const json *it = json_first(list); it; it = json_next(it)) {
        const json *item = find_item(before, str_or(it, "id", "?"));
        printf("%6.0f  %-10.10s ", number(it, "tokens"), str_or(item, "role", "?"));
        term_words(stdout, str_or(item, "text", str_or(it, "id", "?")),
                   (size_t)(room > TEXT_COLUMNS_MIN ? room : TEXT_COLUMNS_MIN));
        putchar('\n');
    }
}

static void print_cut(const json *j, const json *before)
{
    if (!json_bool(json_get(j, "cut", NULL))) {
        printf("nothing was cut: %.0f tokens, and no whole turn has to leave or may\n",
               number(j, "before"));
        return;
    }
    printf("window     %.0f tokens before, %.0f after\n", number(j, "before"), number(j, "after"));
    const json *dropped = json_get(j, "dropped", NULL), *summed = json_get(j, "summarised", NULL);
    print_left(dropped, "left", before);
    print_left(summed, "left, summed up", before);
    if (!json_first(dropped) && !json_first(summed))
        puts("no message left; what stands for earlier ones takes less room");
}

int window_cut(struct client *c, const char *id, int64_t target, const char *strategy)
{
    json *body = json_object(), *before = NULL, *j = NULL;
    if (target > 0)
        json_set_int(body, "target", target);
    if (strategy)
        json_set_str(body, "strategy", strategy);
    int code = 0;
    if (!c->is_json) /* the words of what leaves */
        code = call(c, "GET", window_path(c, id, "/context?next=1"), NULL, &before);
    if (code)
        json_free(body);
    else
        code = call(c, "POST", window_path(c, id, "/cut"), body, &j);
    if (!code && c->is_json)
        code = api_print_json(c, j);
    else if (!code)
        print_cut(j, before);
    json_free(before);
    json_free(j);
    return code;
}
