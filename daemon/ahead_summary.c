/*
 * See ahead_summary.h, ahead.h.
 *
 *     warm window + "Summarise …" ──fits──► one turn; all but the request is cached
 *              │ doesn't
 *              ▼
 *     the messages in pieces of half a window: summary so far + piece ─► the next summary so far
 *
 * What the model writes is taken when it has words, ended by itself, and is shorter than what it
 * stands for. Else once more, then never mind: sentences are picked.
 */
#include "daemon/ahead_summary.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "daemon/ahead.h"
#include "daemon/config.h"
#include "daemon/context.h"
#include "daemon/limits.h"
#include "daemon/prepare.h"
#include "daemon/window.h"

#define ASK                                                                                        \
    "Summarise our conversation so far for your own later use. Keep names, numbers, dates, "      \
    "preferences and decisions exactly as they were said. Write plain sentences, no more than "   \
    "%d words, in the language of the conversation, and nothing else."
#define ASK_AGAIN "Sum up what was said above in a few short sentences."
#define ASK_PIECE                                                                                  \
    "Below is what was summed up so far, and the next part of a conversation. Write one new "     \
    "summary of both. Keep names, numbers, dates, preferences and decisions exactly as they "     \
    "were said. Plain sentences, no more than %d words, and nothing else.\n\n"
#define WORDS_PERCENT 60 /* words for so many tokens */
#define REQUEST_BYTES (1u << 20)

bool ahead_is_by_model(const struct history *h, enum plan_strategy s)
{
    const char *how = h->d->config->summary;
    if (!context_summarises(s) || !engine_chat(h->engine))
        return false;
    if (how && strcmp(how, "model") == 0)
        return true;
    return (!how || strcmp(how, "auto") == 0) &&
           engine_info(h->engine)->n_params >= AHEAD_MODEL_PARAMS_MIN;
}

static int max_tokens_of(const struct history *h)
{
    return context_share(h, CONTEXT_SUMMARY_PERCENT, CONTEXT_SUMMARY_TOKENS_MAX);
}

/* Gives up on the model; what pieces gave so far is not the whole, and isn't used. */
static void give_up(struct history *h, struct ahead *a, const char *why)
{
    log_info("the model's summary isn't used (%s): sentences are picked instead", why);
    buf_clear(&a->summary);
    ahead_cut(h, a);
}

static bool is_only_space(const char *s, size_t n)
{
    return strspn(s, " \t\r\n") >= n;
}

static int ask(struct history *h, struct ahead *a);

static int summary_done(struct history *h, struct turn *t, struct err *e)
{
    struct ahead *a = t->api;
    (void)e;
    ahead_settle(h, a, t);
    const char *text = t->text.data ? t->text.data : "";
    if (t->finish == TURN_FAILED || t->finish == TURN_CANCELED) {
        ahead_cut(h, a); /* which ends the job when it was canceled */
        return 0;
    }
    /* What it stands for: the prompt less the request; of a small window that is little. */
    const bool is_good = t->finish != TURN_LENGTH && !is_only_space(text, t->text.len) &&
                         t->out.n < t->prompt.n / 2;
    if (!is_good && ++a->n_tries < AHEAD_SUMMARY_TRIES) {
        a->n_chunks -= a->n_chunks > 0; /* the same piece */
        if (ask(h, a))
            give_up(h, a, "it could not be asked again");
        return 0;
    }
    if (!is_good) {
        give_up(h, a, t->finish == TURN_LENGTH ? "it didn't end" : "it is empty or too long");
        return 0;
    }
    buf_clear(&a->summary);
    buf_add(&a->summary, text, t->text.len);
    a->n_tries = 0;
    if (buf_error(&a->summary) == 0 && a->n_chunks > 0 && a->n_chunks < AHEAD_CHUNKS_MAX) {
        int rc = ask(h, a);
        if (rc == 0)
            return 0;
        if (rc != ERR_NOTFOUND) {
            give_up(h, a, "a piece could not be asked about");
            return 0;
        }
    }
    ahead_cut(h, a);
    return 0;
}

static int submit(struct history *h, struct ahead *a, struct turn *t)
{
    t->max_tokens = max_tokens_of(h);
    t->who = (uint64_t)a->conversation;
    t->params.sample.temperature = a->n_tries == 0 ? 0 : 0.5f;
    t->api = a;
    t->on_end = summary_done;
    history_submit(h, t);
    return 0;
}

/* The window, and the request as the person's next message. */
static int ask_window(struct history *h, struct ahead *a, struct turn *t, struct http_error *error)
{
    char text[512];
    const int words = max_tokens_of(h) * WORDS_PERCENT / 100;
    int n = a->n_tries == 0 ? snprintf(text, sizeof text, ASK, words)
                            : snprintf(text, sizeof text, "%s", ASK_AGAIN);
    int rc = window_load(h, t, a->anchor, 0, error);
    if (rc == 0)
        rc = prepare_add(t, CHAT_USER, text, (size_t)n, error);
    return rc ? rc : prepare_render(h, t, error);
}

/* Text of the window's messages from a byte on; pieces end between messages where they can. */
static void write_all(const struct turn *t, struct buf *b)
{
    for (size_t i = 0; i < t->window.n; i++) {
        const struct turn_part *p = &t->window.parts[i];
        if (t->window.v[i].role == CHAT_SYSTEM)
            continue;
        buf_str(b, t->window.v[i].role == CHAT_USER ? "User: " : "Assistant: ");
        buf_add(b, p->text, p->n_text);
        buf_char(b, '\n');
    }
}

/* Whole characters: back to the start of one. */
static size_t char_floor(const char *s, size_t n)
{
    while (n > 0 && ((unsigned char)s[n] & 0xC0) == 0x80)
        n--;
    return n;
}

/* What the first pieces gave; before them, the summary that the window's head has. */
static void write_so_far(const struct ahead *a, const struct turn *t, struct buf *b)
{
    const struct turn_window *w = &t->window;
    const bool has_old = a->n_chunks == 0 && w->has_cut && w->cut.n_summary > 0;
    if (a->summary.len == 0 && !has_old)
        return;
    buf_str(b, "So far: ");
    if (has_old)
        buf_add(b, w->cut.summary, w->cut.n_summary);
    else
        buf_add(b, a->summary.data, a->summary.len);
    buf_str(b, "\n\n");
}

/* Piece n_chunks of the text; ERR_NOTFOUND: there are no more. */
static int ask_piece(struct history *h, struct ahead *a, struct turn *t, struct http_error *error)
{
    struct buf all, text;
    const size_t size = (size_t)h->ctx; /* bytes: a quarter to a half of the window's tokens */
    const int words = max_tokens_of(h) * WORDS_PERCENT / 100;
    int rc = window_load(h, t, a->anchor, 0, error);
    buf_init(&all, LIMIT_BODY_BYTES * 4u);
    buf_init(&text, REQUEST_BYTES);
    write_all(t, &all);
    const size_t begin = a->n_chunks * size;
    if (rc == 0 && (buf_error(&all) || begin >= all.len))
        rc = ERR_NOTFOUND;
    if (rc == 0) {
        const size_t from = char_floor(all.data, begin);
        const size_t end = begin + size < all.len ? char_floor(all.data, begin + size) : all.len;
        buf_printf(&text, ASK_PIECE, words);
        write_so_far(a, t, &text);
        buf_add(&text, all.data + from, end - from);
        const char *kept = buf_error(&text) ? NULL : arena_copy(&t->arena, text.data, text.len);
        window_clear(t);
        rc = kept ? prepare_add(t, CHAT_USER, kept, text.len, error) : ERR_NOMEM;
    }
    if (rc == 0)
        rc = prepare_render(h, t, error);
    if (rc == 0)
        a->n_chunks++;
    buf_done(&all);
    buf_done(&text);
    return rc;
}

static bool fits(const struct history *h, const struct turn *t)
{
    return (int)t->prompt.n + max_tokens_of(h) <= h->ctx;
}

static int ask(struct history *h, struct ahead *a)
{
    struct http_error error = {.status = 0};
    struct turn *t = turn_new_background(h, a->owner, a->cancel);
    if (!t)
        return ERR_NOMEM;
    int rc = a->n_chunks == 0 ? ask_window(h, a, t, &error) : ERR_LIMIT;
    if (rc == 0 && !fits(h, t))
        rc = ERR_LIMIT;
    if (rc == ERR_LIMIT) {
        window_clear(t);
        rc = ask_piece(h, a, t, &error);
        if (rc == 0 && !fits(h, t))
            rc = ERR_LIMIT;
    }
    if (rc == 0)
        return submit(h, a, t);
    turn_free(t);
    return rc;
}

void ahead_summarise(struct history *h, struct ahead *a)
{
    if (ask(h, a))
        give_up(h, a, "it could not be asked");
}
