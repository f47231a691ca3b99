/*
 * Stop strings and whole characters.
 *
 *      held  [ … decided … | could be the beginning of a stop string, or of a character ]
 *              released             kept for the next push
 *
 * Each stop string has the matcher of Knuth, Morris and Pratt: `state` is how many of its first
 * bytes the pushed bytes end with, so that each byte is looked at once however long the strings
 * are. What must be held is the longest such ending, or an incomplete character. Stop strings are
 * valid UTF-8, so one never begins inside a character: what lies before a held beginning is
 * decided.
 *
 * Of several stop strings the one that ends first counts; of those ending at one byte the longest.
 */
#include "engine/stop.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

#define HELD_BYTES_MAX ((size_t)256 << 20) /* one push; what stays is below STOP_BYTES_MAX */

struct matcher {
    char *text; /* [n] */
    size_t n;
    uint16_t *back; /* [n] length of the longest proper border of text[0, i] */
    size_t state;
};

struct stop {
    struct matcher m[STOP_STRINGS_MAX];
    size_t n;
    struct buf held;
    bool is_over;
};

static int matcher_init(struct matcher *m, const char *text, size_t n, struct err *e)
{
    m->text = malloc(n);
    m->back = calloc(n, sizeof *m->back);
    m->n = n;
    if (!m->text || !m->back)
        return err_set(e, ERR_NOMEM, "no memory for a stop string of %zu bytes", n);
    memcpy(m->text, text, n);
    for (size_t i = 1, k = 0; i < n; i++) {
        while (k > 0 && text[i] != text[k])
            k = m->back[k - 1];
        k += text[i] == text[k];
        m->back[i] = (uint16_t)k;
    }
    return 0;
}

static void matcher_step(struct matcher *m, char c)
{
    if (m->state == m->n)
        m->state = m->back[m->n - 1];
    while (m->state > 0 && m->text[m->state] != c)
        m->state = m->back[m->state - 1];
    m->state += m->text[m->state] == c;
}

int stop_new(const char *const *strings, const size_t *lengths, size_t n, struct stop **ret,
             struct err *e)
{
    if (n > STOP_STRINGS_MAX)
        return err_set(e, ERR_LIMIT, "%zu stop strings, the limit is %d", n, STOP_STRINGS_MAX);
    for (size_t i = 0; i < n; i++) {
        if (lengths[i] == 0)
            return err_set(e, ERR_INVAL, "stop string %zu is empty", i);
        if (lengths[i] > STOP_BYTES_MAX)
            return err_set(e, ERR_LIMIT, "stop string %zu has %zu bytes, the limit is %d", i,
                           lengths[i], STOP_BYTES_MAX);
        if (!utf8_valid(strings[i], lengths[i], NULL))
            return err_set(e, ERR_INVAL, "stop string %zu is not valid UTF-8", i);
    }
    struct stop *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_NOMEM, "no memory for stop strings");
    buf_init(&s->held, HELD_BYTES_MAX);
    for (; s->n < n; s->n++) {
        int rc = matcher_init(&s->m[s->n], strings[s->n], lengths[s->n], e);
        if (rc < 0) {
            s->n++;
            stop_free(s);
            return rc;
        }
    }
    *ret = s;
    return 0;
}

void stop_free(struct stop *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n; i++) {
        free(s->m[i].text);
        free(s->m[i].back);
    }
    buf_done(&s->held);
    free(s);
}

/* Steps all matchers. Length of the longest string that ends with c, or 0; *ret_partial: the
 * longest beginning at hand. */
static size_t step(struct stop *s, char c, size_t *ret_partial)
{
    size_t matched = 0, partial = 0;
    for (size_t i = 0; i < s->n; i++) {
        struct matcher *m = &s->m[i];
        matcher_step(m, c);
        if (m->state > partial)
            partial = m->state;
        if (m->state == m->n && m->n > matched)
            matched = m->n;
    }
    *ret_partial = partial;
    return matched;
}

static void release(struct stop *s, size_t n, struct buf *ret)
{
    utf8_repair(ret, s->held.data, n);
    buf_consume(&s->held, n);
}

bool stop_push(struct stop *s, const char *bytes, size_t n, struct buf *ret)
{
    size_t n_before = s->held.len, partial = 0;
    if (s->is_over || n == 0)
        return false;
    buf_add(&s->held, bytes, n);
    if (buf_error(&s->held) < 0) {
        ret->error = buf_error(&s->held);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        size_t matched = step(s, bytes[i], &partial);
        if (matched == 0)
            continue;
        release(s, n_before + i + 1 - matched, ret);
        buf_clear(&s->held);
        s->is_over = true;
        return true;
    }
    /* A partial match begins a character, so all before it is decided. */
    size_t decided = partial > 0 ? s->held.len - partial : utf8_complete(s->held.data, s->held.len);
    if (decided > 0)
        release(s, decided, ret);
    return false;
}

void stop_flush(struct stop *s, struct buf *ret)
{
    if (s->is_over)
        return;
    if (s->held.len > 0)
        release(s, utf8_complete(s->held.data, s->held.len), ret);
    buf_clear(&s->held);
    s->is_over = true;
}
