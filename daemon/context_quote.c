/*
 * Quotes: of ranked hits, those that are put before a person's words, and how they look. See
 * context.h.
 *
 * Taken, in order, are those that have to do with the question: a quote that doesn't help costs the
 * room of a turn. The first that is too long is cut to what is left, and ends them.
 */
#include "daemon/context.h"

#include <time.h>

#include "daemon/window.h"
#include "memory/relevance.h"
#include "memory/search.h"

#define QUOTE_BYTES_MAX 600 /* of one message; a longer one is shown around the words that match */
#define QUOTE_BYTES_MIN 80  /* a shorter piece says nothing */
#define NEIGHBOUR_SCORE 0.3 /* of the best hit's: a message that is one by those around it alone */
#define LINE_BYTES_MAX (256u << 10)

const char *context_speaker(enum memory_role role)
{
    return role == MEMORY_ASSISTANT ? "Assistant" : role == MEMORY_SYSTEM ? "System" : "User";
}

struct quoting {
    const struct history *h;
    const struct memory_query *q;
    struct relevance relevance;
    bool is_best_relevant; /* the hit of the highest score */
    double best;
    struct buf line;
    int tokens; /* of it; < 0: out of memory */
    bool is_cut; /* shorter than wished: the budget was small */
};

/* One quote, a line, with at most n_max bytes of the message. */
static void write_line(struct quoting *k, const struct memory_hit *hit, size_t n_max)
{
    char date[32];
    const time_t when = (time_t)hit->created_at;
    struct tm tm;
    struct buf *line = &k->line;
    buf_clear(line);
    buf_printf(line, "- %s", context_speaker(hit->role));
    if (when && gmtime_r(&when, &tm) && strftime(date, sizeof date, "%Y-%m-%d", &tm))
        buf_printf(line, ", %s", date);
    buf_str(line, ": \"");
    if (hit->n_text <= n_max)
        buf_add(line, hit->text, hit->n_text);
    else
        memory_snippet(k->h->memory, k->q, hit, n_max, line);
    buf_str(line, "\"\n");
    k->tokens = buf_error(line) ? -1 : window_count(k->h, line->data, line->len);
}

/* The quote, or as much of it as the budget takes; false: nothing. */
static bool write_quote(struct quoting *k, const struct memory_hit *hit, int budget)
{
    size_t n = hit->n_text < QUOTE_BYTES_MAX ? hit->n_text : QUOTE_BYTES_MAX;
    write_line(k, hit, n);
    k->is_cut = k->tokens > budget;
    while (k->tokens > budget && n > QUOTE_BYTES_MIN) {
        const size_t fewer = n * (size_t)(budget > 0 ? budget : 0) / (size_t)k->tokens * 9 / 10;
        n = fewer < QUOTE_BYTES_MIN ? QUOTE_BYTES_MIN : fewer;
        write_line(k, hit, n);
    }
    return k->tokens >= 0 && k->tokens <= budget;
}

static bool is_worth(struct quoting *k, const struct memory_hit *hit)
{
    if (hit->why & MEMORY_WHY_MEANING || relevance_of(&k->relevance, hit))
        return true;
    const struct plan_text text = {
        .kind = hit->role == MEMORY_USER ? PLAN_USER : PLAN_ASSISTANT,
        .text = hit->text,
        .n_text = hit->n_text,
    };
    return !(hit->why & MEMORY_WHY_TERMS) && k->is_best_relevant &&
           hit->score >= NEIGHBOUR_SCORE * k->best && plan_value(&text) >= PLAN_VALUE_LOW;
}

#define QUOTES_HEAD "[From earlier in this conversation]\n"

size_t context_quote(const struct context_quoting *asked, struct buf *text,
                     struct context_quote *ret, size_t max)
{
    const struct memory_hits *hits = asked->hits;
    struct quoting k = {.h = asked->h, .q = asked->q};
    int budget = asked->budget;
    size_t n = 0;
    if (hits->n == 0)
        return 0;
    buf_init(&k.line, LINE_BYTES_MAX);
    relevance_init(&k.relevance, k.h->memory, k.q->text, k.q->n_text);
    relevance_index(&k.relevance, asked->index);
    relevance_weigh(&k.relevance, hits);
    k.best = hits->v[0].score;
    k.is_best_relevant = relevance_of(&k.relevance, &hits->v[0]);
    budget -= window_count(k.h, QUOTES_HEAD "\n", sizeof QUOTES_HEAD);
    for (size_t i = 0; i < hits->n && !k.is_cut && n < max; i++) {
        const struct memory_hit *hit = &hits->v[i];
        if (!is_worth(&k, hit))
            continue;
        if (!write_quote(&k, hit, budget))
            break;
        budget -= k.tokens;
        if (n == 0)
            buf_str(text, QUOTES_HEAD);
        buf_add(text, k.line.data, k.line.len);
        ret[n++] = (struct context_quote){.hit = i, .tokens = k.tokens};
    }
    if (n > 0)
        buf_char(text, '\n');
    buf_done(&k.line);
    return n;
}
