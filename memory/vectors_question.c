/*
 * What a question is compared by. People speak of themselves in the first person, and a question
 * names them: "What is Maria allergic to?" is nearer to each "Thanks, Maria!" than to what Maria
 * said. So the names of who talks become I and my before the question's vector is made:
 *
 *      "What is Maria's dog called?"  ─►  "What is my dog called?"
 *      小林对什么过敏？               ─►  我对什么过敏？
 *
 * Of tests/bench/recall's English questions by roles, vectors alone have 0.29 with the names and
 * 0.91 without.
 */
#include "memory/called.h"
#include "memory/query.h"
#include "memory/vectors.h"

#include <string.h>

#define TEXT_BYTES 2048 /* a longer text is no question about somebody */

struct renaming {
    const struct query *qu;
    const struct called *called;
    const char *text;
    size_t n, at; /* what is written ends here */
    bool is_named; /* and it ended with a name */
    struct buf *ret;
};

/* Bytes of a possessive 's. */
static size_t possessive(const char *text, size_t n)
{
    if (n >= 2 && memcmp(text, "'s", 2) == 0)
        return 2;
    return n >= 4 && memcmp(text, "’s", 4) == 0 ? 4 : 0;
}

static bool rename_one(void *user, const struct segment *t)
{
    struct renaming *r = user;
    const int term = query_find(r->qu, t->term, t->n);
    if (t->to <= r->at || term < 0 || !called_speaks(r->called, r->qu, term))
        return true;
    const bool is_wide = t->kind == SEGMENT_SINGLE || t->kind == SEGMENT_PAIR;
    /* A name of two words, or of overlapping pairs, is one. */
    const bool goes_on = r->is_named && t->from <= r->at + !is_wide;
    const size_t n_possessive = possessive(r->text + t->to, r->n - t->to);
    if (!goes_on) {
        buf_add(r->ret, r->text + r->at, t->from - r->at);
        buf_str(r->ret, is_wide ? "我" : n_possessive ? "my" : "I");
    }
    r->at = t->to + n_possessive;
    r->is_named = true;
    return true;
}

int memory_vectors_question(struct memory *m, const struct memory_query *q, struct buf *ret)
{
    struct memory_query asked = *q;
    struct query qu;
    struct called called = {.n = 0};
    struct arena a;
    struct err e;
    asked.weights = q->weights ? q->weights : &memory_weights_default;
    arena_init(&a, SIZE_MAX);
    int rc = ERR_NOTFOUND;
    if (q->n_text <= TEXT_BYTES && !m->index.is_damaged)
        rc = db_begin_read(m->db, &e);
    if (rc == 0) {
        rc = query_parse(m, &asked, &qu, &a, &e);
        if (rc == 0)
            rc = query_match(m, &asked, &qu, &a, &e);
        if (rc == 0)
            rc = called_gather(m, &asked, &qu, &called, &e);
        rc = db_end(m->db, rc, &e);
    }
    struct renaming r = {.qu = &qu, .called = &called, .text = q->text, .n = q->n_text, .ret = ret};
    if (rc == 0 && called.n > 0)
        segment_walk(m->index.segmenter, q->text, q->n_text, rename_one, &r);
    buf_add(ret, q->text + r.at, q->n_text - r.at);
    arena_done(&a);
    return buf_error(ret) ? ERR_NOMEM : 0;
}
