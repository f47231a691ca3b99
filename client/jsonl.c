/* Line by line, so that a file may be larger than memory; only a line has a ceiling. */
#include "client/jsonl.h"

#include <errno.h>
#include <string.h>

#include "client/api.h"

/* One line without its end; false at the end of the file, or when b is full. */
static bool read_line(FILE *in, struct buf *b)
{
    int ch;
    buf_clear(b);
    while (!buf_error(b) && (ch = getc_unlocked(in)) != EOF && ch != '\n')
        buf_char(b, (char)ch);
    return !buf_error(b) && (b->len || !feof(in)) && !ferror(in);
}

static bool is_blank(const struct buf *b)
{
    return !b->len || strspn(b->data, " \t\r") == b->len;
}

int jsonl_read(const struct jsonl_reader *r, FILE *in)
{
    struct buf line;
    buf_init(&line, JSONL_LINE_MAX_BYTES);
    int code = 0, number = 0;
    while (!code && read_line(in, &line)) {
        number++;
        if (!is_blank(&line))
            code = r->on_line(r->ctx, &line, number);
    }
    if (!code && buf_error(&line))
        code = api_fail(r->client, EXIT_REFUSED, "limit", "%s line %d is longer than %zu bytes",
                        r->name, number + 1, JSONL_LINE_MAX_BYTES);
    if (!code && ferror(in))
        code = api_fail(r->client, EXIT_REFUSED, "io", "%s can't be read: %s", r->name,
                        strerror(errno));
    buf_done(&line);
    return code;
}

int jsonl_read_path(struct jsonl_reader *r, const char *path)
{
    r->name = strcmp(path, "-") ? path : "stdin";
    if (r->name != path)
        return jsonl_read(r, stdin);
    FILE *in = fopen(path, "re");
    if (!in)
        return api_fail(r->client, EXIT_REFUSED, "io", "%s can't be read: %s", path,
                        strerror(errno));
    int code = jsonl_read(r, in);
    fclose(in);
    return code;
}
