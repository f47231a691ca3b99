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

/* The cut in force took it out, or it is a system message, which was loaded. */
static bool is_elsewhere(const struct turn_window *w, size_t n_system, int64_t row)
{
    for (size_t i = 0; i < n_system; i++)
        if (w->rows[i] == row)
            return true;
    return w->has_cut && (row < w->cut.first || memory_rows_hold(&w->cut.dropped, row));
}

/* The newest of the rows, up to ABOVE_BYTES. */
static int read_newest(struct history *h, struct turn *t, struct above *a, struct http_error *ret)
{
    const struct memory_rows_span span = {
        .rows = a->rows, .n = a->n, .max_bytes = ABOVE_BYTES, .from_end = true};
    struct memory_messages found = {.n = 0};
    struct err e;
    size_t n;
    int rc = a->is_told ? memory_rows_fit(h->memory, &span, &n, &e)
                        : memory_messages_of(h->memory, &span, &found, &t->arena, &e);
    if (rc)
        return failed(ret, &e);
    a->n_dropped = a->n - (a->is_told ? n : found.n);
    if (a->is_told)
        return 0;
    a->said = arena_array(&t->arena, found.n + 1, sizeof *a->said);
    if (!a->said)
        return http_out_of_memory(ret, "a long conversation");
    for (size_t i = 0; i < found.n; i++) {
        const struct memory_message *m = &found.v[i];
        a->said[i] = (struct said){m->row, m->role, m->text, m->n_text};
    }
    return 0;
}

int above_load(struct history *h, struct turn *t, int64_t tip, struct above *ret,
               struct http_error *ret_error)
{
    const struct turn_window *w = &t->window;
    struct above a = {.is_summed = ret->is_summed, .is_told = ret->is_told};
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
        return http_out_of_memory(ret_error, "a long conversation");
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

static void tell_all(struct history *h, struct turn *to, struct turn_changes *list,
                     const int64_t *rows, size_t n)
{
    const struct memory_rows_span span = {.rows = rows, .n = n, .max_bytes = SIZE_MAX};
    struct memory_messages found = {.n = 0};
    struct err e;
    if (memory_messages_of(h->memory, &span, &found, &to->arena, &e)) {
        list->n_untold += n; /* counted, at least */
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const int tokens = window_count(h, found.v[i].text, found.v[i].n_text);
        receipt_add(to, list, found.v[i].id, tokens < 0 ? 0 : tokens);
    }
}

/* Rows into the list, those between the first and the last TURN_CHANGES_END by number alone. */
static void tell(struct history *h, struct turn *to, struct turn_changes *list,
                 const int64_t *rows, size_t n)
{
    const size_t n_end = TURN_CHANGES_END;
    if (n > 2 * n_end) {
        tell_all(h, to, list, rows, n_end);
        list->n_untold += n - 2 * n_end;
        tell_all(h, to, list, rows + n - n_end, n_end);
    } else {
        tell_all(h, to, list, rows, n);
    }
}

void above_tell(struct history *h, struct turn *to, const struct above *a)
{
    tell(h, to, &to->receipt.dropped, a->rows, a->n_dropped);
    if (a->n > a->n_dropped)
        tell(h, to, &to->receipt.summarised, a->rows + a->n_dropped, a->n - a->n_dropped);
}
