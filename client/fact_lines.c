/*
 * The list of facts as a person reads and edits it. The daemon keeps an object behind each line,
 * with what it knows of the fact:
 *
 *      the port is now 9090 {"by":"user","row":12,…}
 *
 * People see the words alone. A line that comes back as it was gets its object again; without one
 * it is the person's own, which the daemon holds above what it found itself.
 */
#include <string.h>

#include "client/window.h"

#define OBJECT " {\"by\":"

size_t fact_line_words(const char *line, size_t n)
{
    const size_t n_object = strlen(OBJECT);
    if (n == 0 || line[n - 1] != '}')
        return n;
    for (size_t i = n - 1; i-- > 0;)
        if (n - i > n_object && !memcmp(line + i, OBJECT, n_object))
            return i;
    return n;
}

static size_t line_length(const char *s)
{
    return strcspn(s, "\n");
}

void fact_lines_bare(const char *facts, struct buf *b)
{
    while (*facts) {
        const size_t n = line_length(facts);
        buf_add(b, facts, fact_line_words(facts, n));
        facts += n;
        if (*facts) {
            buf_char(b, '\n');
            facts++;
        }
    }
}

/* The whole line of `old` with such words, or NULL. */
static const char *find_line(const char *old, const char *words, size_t n_words, size_t *ret_n)
{
    while (*old) {
        const size_t n = line_length(old);
        if (fact_line_words(old, n) == n_words && !memcmp(old, words, n_words)) {
            *ret_n = n;
            return old;
        }
        old += n + (old[n] == '\n');
    }
    return NULL;
}

void fact_lines_rejoin(const char *edited, const char *old, struct buf *b)
{
    while (*edited) {
        const size_t n = line_length(edited);
        size_t n_line = n;
        const char *line = n ? find_line(old, edited, n, &n_line) : NULL;
        buf_add(b, line ? line : edited, n_line);
        edited += n;
        if (*edited) {
            buf_char(b, '\n');
            edited++;
        }
    }
}
