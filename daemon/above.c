/*
 * See above.h.
 */
#include "daemon/above.h"

#include "daemon/context.h"
#include "daemon/window.h"

static int failed(struct http_error *ret, const struct err *e)
{
    http_error_from(ret, e);
    return e->code;
}

static int out_of_memory(struct http_error *ret)
{
    http_error_set(ret, 500, "out_of_memory", NULL, "out of memory for a long conversation");
    return ERR_NOMEM;
}

/* The cut in force took it out, or it is a system message, which was loaded. */
static bool is_elsewhere(const struct turn_window *w, size_t n_system, int64_t row)
{
    for (size_t i = 0; i < n_system; i++)
        if (w->rows[i] == row)
            return true;
    return w->has_cut && (row < w->cut.first || memory_rows_hold(&w->cut.dropped, row));
}

/* Reads the newest of the rows, from the end. */
static int read_newest(struct history *h, struct turn *t, struct above *a, struct http_error *ret)
{
    size_t n_bytes = 0, n = 0;
    struct err e;
    a->said = arena_array(&t->arena, a->n + 1, sizeof *a->said);
    if (!a->said)
        return out_of_memory(ret);
    while (n < a->n && n_bytes < ABOVE_BYTES) {
        struct memory_message m;
        const int64_t row = a->rows[a->n - 1 - n];
        if (memory_message_by_row(h->memory, row, &m, &t->arena, &e))
            return failed(ret, &e);
        a->said[a->n - 1 - n] = (struct said){m.row, m.role, m.text, m.n_text};
        n_bytes += m.n_text;
        n++;
    }
    a->n_dropped = a->n - n;
    a->said += a->n_dropped;
    return 0;
}

int above_load(struct history *h, struct turn *t, int64_t tip, struct above *ret,
               struct http_error *ret_error)
{
    const struct turn_window *w = &t->window;
    struct above a = {.is_summed = ret->is_summed};
    const int64_t *path;
    size_t n_path, n_system = 0, i = 0;
    struct err e;
    *ret = a;
    if (w->n_above == 0)
        return 0;
    if (memory_path_rows(h->memory, tip, &path, &n_path, &e))
        return failed(ret_error, &e);
    a.rows = arena_array(&t->arena, n_path + 1, sizeof *a.rows);
    if (!a.rows)
        return out_of_memory(ret_error);
    while (n_system < w->n && w->v[n_system].role == CHAT_SYSTEM)
        n_system++;
    for (; i < n_path && path[i] < w->above_to; i++)
        if (!is_elsewhere(w, n_system, path[i]))
            a.rows[a.n++] = path[i];
    a.n_dropped = a.n;
    const int rc = a.is_summed ? read_newest(h, t, &a, ret_error) : 0;
    if (rc == 0)
        *ret = a;
    return rc;
}

/* Rows into the list, those between the first and the last TURN_CHANGES_END by number alone. */
static void tell(struct history *h, struct turn *to, struct turn_changes *list,
                 const int64_t *rows, size_t n)
{
    const bool is_long = n > 2 * TURN_CHANGES_END;
    struct err e;
    for (size_t i = 0; i < n; i++) {
        struct memory_message m;
        if (is_long && i == TURN_CHANGES_END) {
            list->n_untold += n - 2 * TURN_CHANGES_END;
            i = n - TURN_CHANGES_END;
        }
        if (memory_message_by_row(h->memory, rows[i], &m, &to->arena, &e))
            continue;
        const int tokens = window_count(h, m.text, m.n_text);
        receipt_add(to, list, m.id, tokens < 0 ? 0 : tokens);
    }
}

void above_tell(struct history *h, struct turn *to, const struct above *a)
{
    tell(h, to, &to->receipt.dropped, a->rows, a->n_dropped);
    if (a->n > a->n_dropped)
        tell(h, to, &to->receipt.summarised, a->rows + a->n_dropped, a->n - a->n_dropped);
}
