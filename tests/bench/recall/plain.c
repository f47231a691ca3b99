/* See plain.h. */
#include "tests/bench/recall/plain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "memory/db.h"
#include "memory/segment.h"

struct plain {
    struct db *db;
    struct segmenter *segmenter;
    enum plain_how how;
    char path[128];
};

struct words {
    const char *text;
    struct buf *out;
    enum plain_how how;
};

static void add_term(struct buf *out, const char *term, size_t n)
{
    buf_str(out, out->len > 0 ? " OR \"" : "\"");
    buf_add(out, term, n);
    buf_char(out, '"');
}

static bool add_word(void *user, const struct segment *t)
{
    struct words *w = user;
    if (t->kind == SEGMENT_WORD && !(w->how == PLAIN_STEMS && t->is_stop))
        add_term(w->out, w->text + t->from, t->to - t->from);
    return true;
}

static void add_pair(struct buf *out, bool is_query, const char *term, size_t n)
{
    if (is_query) {
        add_term(out, term, n);
        return;
    }
    buf_char(out, ' ');
    buf_add(out, term, n);
}

/* Every two letters that stand side by side. */
static void pairs(const char *text, bool is_query, struct buf *out)
{
    size_t n = strlen(text), i = 0, before = 0;
    bool is_after = false;
    while (i < n) {
        size_t from = i;
        bool is_letter = utf8_kind(utf8_next(text, n, &i)) != UTF8_OTHER;
        if (is_letter && is_after)
            add_pair(out, is_query, text + before, i - before);
        is_after = is_letter;
        before = from;
    }
}

struct plain *plain_new(const struct talks *t, enum plain_how how, int talk, const char *path)
{
    struct err e = {0};
    struct plain *p = calloc(1, sizeof(*p));
    struct buf text;
    FILE *f = fopen(path, "w");
    if (!p || !f)
        exit(1);
    fclose(f);
    p->how = how;
    p->segmenter = segmenter_new();
    snprintf(p->path, sizeof(p->path), "%s", path);
    check(db_open(path, &p->db, &e), &e);
    check(db_begin(p->db, DB_NORMAL, &e), &e);
    check(db_exec(p->db,
                  how == PLAIN_STEMS
                      ? "CREATE VIRTUAL TABLE f USING fts5 (t, tokenize = 'porter unicode61')"
                      : "CREATE VIRTUAL TABLE f USING fts5 (t)",
                  &e),
          &e);
    buf_init(&text, SIZE_MAX);
    for (int i = 0; i < t->n; i++)
        for (int k = 0; (talk < 0 || i == talk) && k < t->v[i].n_turns; k++) {
            const char *turn = talks_text(t, &t->v[i].turns[k]);
            buf_clear(&text);
            if (how == PLAIN_PAIRS)
                pairs(turn, false, &text);
            else
                buf_str(&text, turn);
            struct stmt *s = db_stmt(p->db, "INSERT INTO f (rowid, t) VALUES (?1, ?2)", &e);
            stmt_int(s, 1, t->v[i].rows[k]);
            stmt_text(s, 2, text.data ? text.data : "", text.len);
            check(stmt_run(s, &e), &e);
        }
    check(db_end(p->db, 0, &e), &e);
    buf_done(&text);
    return p;
}

int plain_ask(struct plain *p, const char *text, int64_t *ret, int max)
{
    struct err e = {0};
    struct buf query;
    struct words w = {.text = text, .out = &query, .how = p->how};
    int n = 0, rc;
    buf_init(&query, SIZE_MAX);
    if (p->how == PLAIN_PAIRS)
        pairs(text, true, &query);
    else
        segment_walk(p->segmenter, text, strlen(text), add_word, &w);
    struct stmt *s = db_stmt(
        p->db, "SELECT rowid FROM f WHERE f MATCH ?1 ORDER BY rank, rowid LIMIT ?2", &e);
    stmt_text(s, 1, query.data ? query.data : "\"\"", query.data ? query.len : 2);
    stmt_int(s, 2, max);
    while ((rc = stmt_step(s, &e)) == 1 && n < max)
        ret[n++] = column_int(s, 0);
    check(rc, &e);
    stmt_end(s);
    buf_done(&query);
    return n;
}

void plain_free(struct plain *p)
{
    segmenter_free(p->segmenter);
    db_close(p->db);
    unlink(p->path);
    free(p);
}
