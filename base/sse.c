/*
 * Server-sent events. The parser gathers a line, whatever pieces it comes in, and acts at its end:
 *
 *     ":…"            comment, to on_comment         "event: NAME"   names the event
 *     "data: …"       a line of data                 ""              reports the event, if any
 *     other fields (id, retry, unknown)              dropped
 *
 * One space after the colon belongs to the syntax; a byte order mark at the very start is dropped.
 */
#include "base/sse.h"

#include <string.h>

void sse_write(struct buf *b, const char *event, const char *data, size_t n)
{
    if (event) {
        buf_str(b, "event: ");
        buf_str(b, event);
        buf_char(b, '\n');
    }
    buf_str(b, "data: ");
    buf_add(b, data, n);
    buf_str(b, "\n\n");
}

void sse_init(struct sse *s, size_t max_bytes,
              void (*on_event)(void *, const char *, const char *, size_t), void *ctx)
{
    *s = (struct sse){.on_event = on_event, .ctx = ctx};
    buf_init(&s->line, max_bytes);
    buf_init(&s->event, max_bytes);
    buf_init(&s->data, max_bytes);
}

void sse_done(struct sse *s)
{
    if (!s)
        return;
    buf_done(&s->line);
    buf_done(&s->event);
    buf_done(&s->data);
}

static void field(struct sse *s, const char *name, size_t n_name, const char *value, size_t n)
{
    if (n_name == 4 && memcmp(name, "data", 4) == 0) {
        if (s->has_data)
            buf_char(&s->data, '\n');
        buf_add(&s->data, value, n);
        s->has_data = true;
    } else if (n_name == 5 && memcmp(name, "event", 5) == 0) {
        buf_clear(&s->event);
        buf_add(&s->event, value, n);
    }
}

static void event_end(struct sse *s)
{
    if (s->has_data)
        s->on_event(s->ctx, s->event.len > 0 ? s->event.data : "message", s->data.data,
                    s->data.len);
    buf_clear(&s->event);
    buf_clear(&s->data);
    s->has_data = false;
}

static void line_end(struct sse *s)
{
    if (!s->has_begun) {
        s->has_begun = true;
        if (s->line.len >= 3 && memcmp(s->line.data, "\xEF\xBB\xBF", 3) == 0)
            buf_consume(&s->line, 3);
    }
    if (s->line.len == 0) {
        event_end(s);
    } else if (s->line.data[0] == ':') {
        if (s->on_comment)
            s->on_comment(s->ctx, s->line.data + 1, s->line.len - 1);
    } else {
        const char *line = s->line.data;
        const char *colon = memchr(line, ':', s->line.len);
        size_t n_name = colon ? (size_t)(colon - line) : s->line.len;
        size_t value = colon ? n_name + 1 : s->line.len;
        if (value < s->line.len && line[value] == ' ')
            value++;
        field(s, line, n_name, line + value, s->line.len - value);
    }
    buf_clear(&s->line);
}

void sse_push(struct sse *s, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n && !s->is_broken;) {
        if (s->skip_lf && bytes[i] == '\n')
            i++; /* the LF of a CRLF, perhaps in two pieces */
        s->skip_lf = false;
        size_t end = i;
        while (end < n && bytes[end] != '\n' && bytes[end] != '\r')
            end++;
        buf_add(&s->line, bytes + i, end - i);
        s->is_broken = buf_error(&s->line) != 0;
        if (end < n && !s->is_broken) {
            s->skip_lf = bytes[end] == '\r';
            line_end(s);
            s->is_broken = buf_error(&s->event) || buf_error(&s->data);
        }
        i = end + 1;
    }
}
