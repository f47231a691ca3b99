/*
 * hearth context --dropped, /dropped: the messages that aren't in the window any more, the oldest
 * first, a line each. They come in pages and are printed as they come: there is no end to a
 * conversation.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/conversation.h"
#include "client/fields.h"
#include "client/term.h"
#include "client/window.h"

#define PAGE 100
#define PLAIN_COLUMNS 80  /* where there is no terminal */
#define NARROW_COLUMNS 50 /* below: no dates */
#define ROW_COLUMNS 37    /* before the text */
#define NARROW_ROW_COLUMNS 19
#define TEXT_COLUMNS_MIN 8
#define TAIL_BYTES 256

static int get_page(struct client *c, const char *id, bool is_next, const char *after, json **ret)
{
    char tail[TAIL_BYTES];
    snprintf(tail, sizeof tail, "/dropped?order=asc&limit=%d%s%s%s", PAGE, is_next ? "&next=1" : "",
             after ? "&after=" : "", after ? after : "");
    char *path = window_path(c, id, tail);
    const int code = path ? api_call(c, "GET", path, NULL, ret) : EXIT_REFUSED;
    free(path);
    return code;
}

static int columns(void)
{
    return term_is_tty(STDOUT_FILENO) ? term_width() : PLAIN_COLUMNS;
}

static void print_head(const json *page)
{
    const double total = number(page, "total");
    if (total == 0) {
        puts("every message is in the window");
        return;
    }
    printf("%.0f message%s not in the window:\n\ntokens  %srole       text\n", total,
           total == 1 ? " is" : "s are",
           columns() < NARROW_COLUMNS ? "" : "when              ");
}

static void print_row(const json *m)
{
    char when[20];
    const bool is_narrow = columns() < NARROW_COLUMNS;
    const int room = columns() - (is_narrow ? NARROW_ROW_COLUMNS : ROW_COLUMNS);
    printf("%6.0f  ", number(m, "tokens"));
    format_time(number(m, "created_at"), when);
    if (!is_narrow)
        printf("%-16.16s  ", when);
    printf("%-10.10s ", str_or(m, "role", ""));
    term_words(stdout, str_or(m, "text", ""),
               (size_t)(room > TEXT_COLUMNS_MIN ? room : TEXT_COLUMNS_MIN));
    putchar('\n');
}

static int print_page(struct client *c, const json *page, bool is_first)
{
    int code = 0;
    if (is_first && !c->is_json)
        print_head(page);
    for (const json *m = json_first(json_get(page, "data", NULL)); m && !code; m = json_next(m)) {
        if (c->is_json)
            code = api_print_json(c, m);
        else
            print_row(m);
    }
    return code;
}

int window_dropped(struct client *c, const char *id, bool is_next)
{
    char *after = NULL;
    bool is_first = true;
    int code;
    do {
        json *page = NULL;
        code = get_page(c, id, is_next, after, &page);
        if (!code)
            code = print_page(c, page, is_first);
        is_first = false;
        free(after);
        after = code ? NULL : page_next(page);
        json_free(page);
    } while (after);
    return code;
}
