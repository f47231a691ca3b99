/*
 * Vectors of messages: the table, what is still to be done, and the copy in RAM. vectors_search.c
 * searches in it. See vectors.h.
 *
 *      message_vector   message, place │ model (16 bytes) │ scale │ v: int8 [dim]
 *                       v is empty where a message has nothing to look for
 *
 * What is to be done: rows 1 … `todo`, looked through from above in pieces at every start (a look
 * at 2,000 rows that are done costs a millisecond), and `fresh` ones that have come since.
 */
#include "memory/vectors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"
#include "memory/vectors_impl.h"

#define LOOK_ROWS 2000 /* of messages, one call */
#define LOAD_ROWS 2000 /* of vectors, one piece */
#define TEXT_BYTES ((size_t)64 << 10) /* of a message; the model takes less */

static int out_of_memory(struct err *e)
{
    return memory_out(e);
}

/* ---- in RAM ---- */

static size_t rows_max(const struct vectors *v)
{
    const size_t row_bytes = sizeof(struct vector_row) + (size_t)v->model.dim;
    return (size_t)(v->model.bytes_max / row_bytes);
}

static int grow(struct vectors *v, struct err *e)
{
    size_t cap = v->cap ? v->cap + v->cap / 2 : 256;
    if (cap > rows_max(v))
        cap = rows_max(v);
    struct vector_row *rows = sys.realloc(v->rows, cap * sizeof *rows);
    if (rows)
        v->rows = rows;
    int8_t *data = rows ? sys.realloc(v->data, cap * (size_t)v->model.dim) : NULL;
    if (!data)
        return out_of_memory(e);
    v->data = data;
    v->cap = cap;
    return 0;
}

static void drop_at(struct vectors *v, size_t i)
{
    const size_t dim = (size_t)v->model.dim, last = --v->n;
    if (i == last)
        return;
    v->rows[i] = v->rows[last];
    memcpy(v->data + i * dim, v->data + last * dim, dim);
}

static int by_message(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* All of the room is taken: the oldest eighth goes, and no older ones come in any more. */
static int make_room(struct vectors *v, struct err *e)
{
    int64_t *messages = sys.malloc((v->n + 1) * sizeof *messages);
    if (!messages)
        return out_of_memory(e);
    for (size_t i = 0; i < v->n; i++)
        messages[i] = v->rows[i].message;
    qsort(messages, v->n, sizeof *messages, by_message);
    v->oldest = messages[v->n / 8] + 1;
    free(messages);
    v->is_cut = true;
    for (size_t i = v->n; i-- > 0;)
        if (v->rows[i].message < v->oldest)
            drop_at(v, i);
    return 0;
}

static int put(struct vectors *v, const struct vector_row *row, const void *data, struct err *e)
{
    int rc = 0;
    if (row->message < v->oldest)
        return 0;
    if (v->n == v->cap && v->cap < rows_max(v))
        rc = grow(v, e);
    else if (v->n == v->cap)
        rc = v->n < 8 ? ERR_LIMIT : make_room(v, e);
    if (rc == ERR_LIMIT) {
        v->is_cut = true;
        return 0;
    }
    if (rc || row->message < v->oldest)
        return rc;
    memcpy(v->data + v->n * (size_t)v->model.dim, data, (size_t)v->model.dim);
    v->rows[v->n++] = *row;
    return 0;
}

int vectors_load(struct memory *m, size_t max, struct err *e)
{
    struct vectors *v = m->vectors;
    struct stmt *s = db_stmt(m->db,
                             "SELECT v.message, v.scale, v.v, m.conversation, m.parent, c.owner"
                             " FROM message_vector v JOIN message m ON m.row = v.message"
                             " JOIN conversation c ON c.row = m.conversation"
                             " WHERE v.message <= ?1 AND v.model = ?2 AND v.v <> x''"
                             " ORDER BY v.message DESC, v.place LIMIT ?3",
                             e);
    int64_t last = 0;
    size_t n = 0;
    int rc;
    stmt_int(s, 1, v->to_load);
    stmt_blob(s, 2, v->model.id, sizeof v->model.id);
    stmt_int(s, 3, (int64_t)max + VECTORS_PARTS_MAX + 1);
    while ((rc = stmt_step(s, e)) == 1) {
        struct vector_row row = {.message = column_int(s, 0),
                                 .conversation = column_int(s, 3),
                                 .parent = column_int(s, 4),
                                 .owner = vectors_owner(column_text(s, 5, NULL))};
        if (n >= max && row.message != last)
            break;
        size_t n_data = 0;
        const void *data = column_blob(s, 2, &n_data);
        row.scale = (float)column_int(s, 1) / VECTOR_SCALE;
        rc = n_data == (size_t)v->model.dim ? put(v, &row, data, e) : 0;
        if (rc)
            break;
        last = row.message;
        n++;
    }
    stmt_end(s);
    if (rc < 0)
        return rc;
    v->to_load = rc == 1 ? last - 1 : 0; /* 1: there are more */
    return 0;
}

void vectors_forget_message(struct memory *m, int64_t row)
{
    struct vectors *v = m->vectors;
    for (size_t i = v ? v->n : 0; i-- > 0;)
        if (v->rows[i].message == row)
            drop_at(v, i);
}

void vectors_forget_conversation(struct memory *m, int64_t conversation)
{
    struct vectors *v = m->vectors;
    for (size_t i = v ? v->n : 0; i-- > 0;)
        if (v->rows[i].conversation == conversation)
            drop_at(v, i);
}

/* ---- the model ---- */

void vectors_close(struct memory *m)
{
    struct vectors *v = m->vectors;
    m->vectors = NULL;
    if (!v)
        return;
    free(v->rows);
    free(v->data);
    free(v);
}

int memory_vectors_use(struct memory *m, const struct vectors_model *model, struct err *e)
{
    int64_t newest = 0;
    vectors_close(m);
    if (!model)
        return 0;
    if (model->dim < 1 || model->dim > VECTORS_DIM_MAX)
        return err_set(e, ERR_INVAL, "vectors of %d dimensions; 1 to %d are allowed", model->dim,
                       VECTORS_DIM_MAX);
    int rc = db_get_int(m->db, "SELECT ifnull(max(row), 0) FROM message", &newest, e);
    if (rc < 0)
        return rc;
    struct vectors *v = sys.malloc(sizeof *v);
    if (!v)
        return out_of_memory(e);
    *v = (struct vectors){.model = *model, .todo = newest, .to_load = newest};
    m->vectors = v;
    return 0;
}

/* ---- what is to be done ---- */

bool memory_vectors_has_work(const struct memory *m)
{
    const struct vectors *v = m->vectors;
    return v && !v->is_resting && (v->todo > 0 || v->n_fresh > 0 || v->to_load > 0);
}

void vectors_note_message(struct memory *m, int64_t row)
{
    struct vectors *v = m->vectors;
    if (!v)
        return;
    v->is_resting = false;
    if (v->n_fresh < VECTORS_FRESH) {
        v->fresh[v->n_fresh++] = row;
    } else {
        v->n_fresh = 0;
        v->todo = row; /* all are looked through again */
    }
}

struct taking {
    struct memory *m;
    struct vectors_wanted wanted;
    struct vectors_text *ret;
    size_t n, n_bytes;
    struct arena *a;
};

static bool is_full(const struct taking *t)
{
    return t->n >= t->wanted.max || t->n_bytes >= t->wanted.n_bytes;
}

/* The statement's row: row, text. */
static int take_row(struct taking *t, struct stmt *s, struct err *e)
{
    size_t n = 0, rest = 0;
    const char *text = column_text(s, 1, &n);
    /* "Maria: " says nothing of what it is about, and questions go without it, too. */
    if (text && segment_speaker(text, n, &rest) > 0 && rest < n) {
        text += rest;
        n -= rest;
    }
    if (n > TEXT_BYTES)
        n = TEXT_BYTES; /* half a character at the end is left out by the tokenizer */
    const char *copy = arena_copy(t->a, text, n);
    if (!copy)
        return out_of_memory(e);
    t->ret[t->n++] = (struct vectors_text){column_int(s, 0), copy, n};
    t->n_bytes += n;
    return 0;
}

static int take_fresh(struct taking *t, struct err *e)
{
    struct vectors *v = t->m->vectors;
    int rc = 0;
    while (rc >= 0 && v->n_fresh > 0 && !is_full(t)) {
        struct stmt *s = db_stmt(t->m->db,
                                 "SELECT row, text FROM message WHERE row = ?1 AND status <> 1", e);
        stmt_int(s, 1, v->fresh[v->n_fresh - 1]);
        rc = stmt_step(s, e);
        if (rc == 1)
            rc = take_row(t, s, e);
        stmt_end(s);
        if (rc >= 0)
            v->n_fresh--;
    }
    return rc;
}

static int take_old(struct taking *t, struct err *e)
{
    struct vectors *v = t->m->vectors;
    int64_t low = v->todo - LOOK_ROWS;
    int rc = 0;
    if (v->todo <= 0 || is_full(t))
        return 0;
    struct stmt *s = db_stmt(t->m->db,
                             "SELECT m.row, m.text FROM message m WHERE m.row <= ?1 AND m.row > ?2"
                             " AND m.status <> 1 AND NOT EXISTS (SELECT 1 FROM message_vector v"
                             " WHERE v.message = m.row AND v.model = ?3) ORDER BY m.row DESC",
                             e);
    stmt_int(s, 1, v->todo);
    stmt_int(s, 2, low);
    stmt_blob(s, 3, v->model.id, sizeof v->model.id);
    while (!is_full(t) && (rc = stmt_step(s, e)) == 1 && (rc = take_row(t, s, e)) == 0)
        ;
    stmt_end(s);
    if (rc < 0)
        return rc;
    v->todo = is_full(t) ? t->ret[t->n - 1].row - 1 : low;
    return 0;
}

int memory_vectors_next(struct memory *m, struct vectors_wanted wanted, struct vectors_text *ret,
                        size_t *ret_n, struct arena *a)
{
    struct taking t = {.m = m, .wanted = wanted, .ret = ret, .a = a};
    struct err e;
    *ret_n = 0;
    if (!m->vectors)
        return 0;
    int rc = take_fresh(&t, &e);
    if (rc >= 0)
        rc = take_old(&t, &e);
    if (rc >= 0 && t.n == 0 && m->vectors->to_load > 0)
        rc = vectors_load(m, LOAD_ROWS, &e);
    if (rc < 0) {
        m->vectors->is_resting = true; /* until the next message */
        return rc;
    }
    *ret_n = t.n;
    return 0;
}

/* ---- adding ---- */

/* x [dim] to int8; returns the scale: x ≈ q × scale. */
static float quantise(const float *x, int dim, int8_t *ret)
{
    float max = 0;
    for (int i = 0; i < dim; i++)
        max = fabsf(x[i]) > max ? fabsf(x[i]) : max;
    const float scale = ceilf(max / 127 * VECTOR_SCALE) / VECTOR_SCALE; /* as it is stored */
    for (int i = 0; i < dim; i++)
        ret[i] = scale > 0 ? (int8_t)lrintf(x[i] / scale) : 0;
    return scale;
}

static int insert(struct memory *m, const struct vector_row *row, int place, const int8_t *data,
                  struct err *e)
{
    const struct vectors *v = m->vectors;
    struct stmt *s = db_stmt(m->db,
                             "INSERT INTO message_vector (message, place, model, scale, v)"
                             " VALUES (?1, ?2, ?3, ?4, ?5)",
                             e);
    stmt_int(s, 1, row->message);
    stmt_int(s, 2, place);
    stmt_blob(s, 3, v->model.id, sizeof v->model.id);
    stmt_int(s, 4, (int64_t)lrintf(row->scale * VECTOR_SCALE));
    stmt_blob(s, 5, data ? (const void *)data : "", data ? (size_t)v->model.dim : 0);
    return stmt_run(s, e);
}

/* 1: *ret is filled, 0: the message has gone. */
static int find_message(struct memory *m, int64_t message, struct vector_row *ret, struct err *e)
{
    struct stmt *s = db_stmt(m->db,
                             "SELECT m.conversation, m.parent, c.owner FROM message m"
                             " JOIN conversation c ON c.row = m.conversation WHERE m.row = ?1",
                             e);
    stmt_int(s, 1, message);
    int rc = stmt_step(s, e);
    if (rc == 1)
        *ret = (struct vector_row){.message = message,
                                   .conversation = column_int(s, 0),
                                   .parent = column_int(s, 1),
                                   .owner = vectors_owner(column_text(s, 2, NULL))};
    stmt_end(s);
    return rc;
}

static int add_message(struct memory *m, const struct vectors_made *made, struct err *e)
{
    struct vectors *v = m->vectors;
    const int dim = v->model.dim;
    struct vector_row row;
    int8_t data[VECTORS_DIM_MAX];
    int rc = find_message(m, made->row, &row, e);
    if (rc <= 0)
        return rc;
    struct stmt *s = db_stmt(m->db, "DELETE FROM message_vector WHERE message = ?1", e);
    stmt_int(s, 1, made->row);
    rc = stmt_run(s, e);
    if (rc < 0 || db_n_changed(m->db) > 0) /* RAM has none that the table has not */
        vectors_forget_message(m, made->row);
    if (rc == 0 && made->n_parts == 0)
        rc = insert(m, &row, 0, NULL, e);
    for (int i = 0; rc == 0 && i < made->n_parts && i < VECTORS_PARTS_MAX; i++) {
        row.scale = quantise(made->vectors + (size_t)i * (size_t)dim, dim, data);
        rc = insert(m, &row, i, data, e);
        if (rc == 0 && row.message > v->to_load) /* else it will be read with the others */
            rc = put(v, &row, data, e);
    }
    return rc;
}

int memory_vectors_add(struct memory *m, const struct vectors_made *v, size_t n, struct err *e)
{
    if (!m->vectors || n == 0)
        return 0;
    int rc = db_begin_now(m->db, e);
    if (rc == 0) {
        for (size_t i = 0; rc == 0 && i < n; i++)
            rc = add_message(m, &v[i], e);
        rc = db_end(m->db, rc, e);
    }
    if (rc < 0) {
        /* What RAM has and the table has not must go; it is looked for again with the next
         * message. */
        for (size_t i = 0; i < n; i++) {
            vectors_forget_message(m, v[i].row);
            if (v[i].row > m->vectors->todo)
                m->vectors->todo = v[i].row;
        }
        m->vectors->is_resting = true;
    }
    return rc;
}

void memory_vectors_state(const struct memory *m, struct vectors_state *ret)
{
    const struct vectors *v = m->vectors;
    *ret = (struct vectors_state){.n_vectors = 0};
    if (!v)
        return;
    ret->n_vectors = (int64_t)v->n;
    ret->n_bytes = v->cap * (sizeof(struct vector_row) + (size_t)v->model.dim);
    ret->is_waiting = v->todo > 0 || v->n_fresh > 0 || v->to_load > 0;
    ret->is_cut = v->is_cut;
}
