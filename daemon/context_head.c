/*
 * The head that a cut puts behind the system prompt: pins, then facts, then the summary — what
 * changes least first. See context.h.
 *
 * The fact list is stored whole (up to CONTEXT_FACTS_BYTES), and the head shows the heaviest that
 * fit: a cut that has less room loses nothing for the next one.
 */
#include "daemon/context.h"

#include <string.h>

#include "daemon/window.h"
#include "memory/extract.h"
#include "memory/facts.h"

#define HEAD_BYTES_MAX (1u << 20)
#define BYTES_A_TOKEN 4 /* a first guess, of English */
#define TRIES 8
#define FACT_TOKENS_MIN 6 /* "- " and a value: hardly any is shorter */

#define PINS_HEAD "To keep in mind:\n"
#define FACTS_HEAD "Facts from earlier in this conversation, word for word:\n"
#define SUMMARY_HEAD "Summary of what was said earlier:\n"

struct head {
    const struct history *h;
    struct arena *a;
    const struct context_head *in;
    struct memory_cut *cut;
    struct buf text;
};

static void gap(struct head *d)
{
    if (d->text.len > 0)
        buf_char(&d->text, '\n');
}

const char *context_pin_prefix(const struct memory_pin *pin)
{
    return pin->message == 0                 ? "- "
           : pin->role == MEMORY_ASSISTANT ? "- Assistant: "
                                           : "- User: ";
}

static void add_pins(struct head *d)
{
    const struct memory_pins *pins = d->in->pins;
    if (pins->n == 0)
        return;
    gap(d);
    buf_str(&d->text, PINS_HEAD);
    for (size_t i = 0; i < pins->n; i++) {
        const struct memory_pin *p = &pins->v[i];
        buf_str(&d->text, context_pin_prefix(p));
        buf_add(&d->text, p->text, p->n_text);
        buf_char(&d->text, '\n');
    }
}

/* Tokens of b from `from` on; < 0: an error. */
static int count(const struct head *d, const struct buf *b)
{
    return buf_error(b) ? buf_error(b) : window_count(d->h, b->data ? b->data : "", b->len);
}

/* ---- facts ---- */

static int stored_facts(struct head *d, struct facts *ret, struct err *e)
{
    const struct context_head *in = d->in;
    struct facts old = {.n = 0}, newer = {.n = 0};
    struct buf text;
    int rc = in->old_list ? 0 : facts_parse(in->old_facts, in->n_old_facts, d->a, &old, e);
    if (in->old_list)
        old = *in->old_list;
    if (rc == 0)
        rc = facts_extract_from(in->left, in->n_left, in->opening, d->a, &newer, e);
    if (rc == 0)
        rc = facts_merge(&old, &newer, CONTEXT_FACTS_BYTES, d->a, ret, e);
    if (rc)
        return rc;
    facts_settle(ret);
    if (in->ret_list)
        *in->ret_list = *ret;
    buf_init(&text, HEAD_BYTES_MAX);
    facts_write(ret, &text);
    d->cut->facts =
        buf_error(&text) ? NULL : arena_copy(d->a, text.data ? text.data : "", text.len);
    d->cut->n_facts = text.len;
    buf_done(&text);
    return d->cut->facts ? 0 : err_set(e, ERR_NOMEM, "out of memory for the fact list");
}

/* The heaviest facts that compose to at most n_bytes, under their heading; returns how many, or an
 * error. */
static int write_facts(const struct head *d, const struct facts *all, size_t n_bytes,
                       struct buf *text, struct err *e)
{
    struct facts some;
    buf_clear(text);
    const int rc = facts_shorten(all, n_bytes, d->a, &some, e);
    if (rc || some.n == 0)
        return rc;
    buf_str(text, FACTS_HEAD);
    facts_compose(&some, text);
    return buf_error(text) ? buf_error(text) : (int)some.n;
}

/* Where the most that fits lies, in bytes of facts. */
struct search {
    size_t fits, too_many; /* known; SIZE_MAX: nothing is too many yet */
    size_t next;           /* to be tried */
};

/* As if what is left had as many bytes a token as what was counted. */
static void step(struct search *s, size_t written, int n, int max_tokens)
{
    if (n > max_tokens)
        s->too_many = written;
    else
        s->fits = s->next;
    s->next = n > 0 ? written * (size_t)max_tokens / (size_t)n : 2 * s->next;
    if (s->next <= s->fits || s->next >= s->too_many)
        s->next = s->too_many == SIZE_MAX ? 2 * s->fits : s->fits + (s->too_many - s->fits) / 2;
}

/* The heaviest facts that take at most max_tokens; *ret_tokens is what they take. How many bytes a
 * token has differs from fact to fact, so the most that fits is sought from both sides, until no
 * fact is as short as what is left. */
static int add_facts(struct head *d, int max_tokens, int *ret_tokens, struct err *e)
{
    struct facts all;
    struct buf text, best;
    struct search s = {.too_many = SIZE_MAX, .next = (size_t)max_tokens * BYTES_A_TOKEN};
    int n = 0, n_facts;
    int rc = stored_facts(d, &all, e);
    *ret_tokens = 0;
    if (rc || all.n == 0)
        return rc;
    buf_init(&text, HEAD_BYTES_MAX);
    buf_init(&best, HEAD_BYTES_MAX);
    for (int i = 0; i < TRIES && s.next > s.fits && s.next < s.too_many; i++) {
        n = n_facts = write_facts(d, &all, s.next, &text, e);
        if (n < 0 || (n > 0 && text.len == best.len)) /* more room, and no more facts */
            break;
        n = n > 0 ? count(d, &text) : 0;
        if (n < 0)
            break;
        if (n > 0 && n <= max_tokens) {
            buf_clear(&best);
            buf_add(&best, text.data, text.len);
            *ret_tokens = n;
            if ((size_t)n_facts == all.n || max_tokens - n < FACT_TOKENS_MIN)
                break;
        }
        step(&s, text.len > 0 ? text.len - strlen(FACTS_HEAD) : 0, n, max_tokens);
    }
    if (n >= 0 && best.len > 0) {
        gap(d);
        buf_add(&d->text, best.data, best.len);
    }
    buf_done(&text);
    buf_done(&best);
    return n < 0 ? n : 0;
}

/* ---- summary ---- */

static void keep_summary(struct head *d, const char *text, size_t n)
{
    d->cut->summary = arena_copy(d->a, text, n);
    d->cut->n_summary = d->cut->summary ? n : 0;
    if (!d->cut->summary)
        return;
    gap(d);
    buf_str(&d->text, SUMMARY_HEAD);
    buf_add(&d->text, text, n);
    if (n > 0 && text[n - 1] != '\n')
        buf_char(&d->text, '\n');
}

/* A person's own text stays as it is; what has left since competes for the rest. */
static int extract(struct head *d, int max_tokens, struct err *e)
{
    const struct context_head *in = d->in;
    const int n_own = in->is_edited ? window_count(d->h, in->old_summary, in->n_old_summary) : -1;
    const bool has_own = n_own > 0 && n_own <= max_tokens;
    const struct extract_input input = {.v = in->left,
                                        .n = in->n_left,
                                        .old = has_own ? NULL : in->old_summary,
                                        .n_old = has_own ? 0 : in->n_old_summary};
    struct extract_ranked ranked;
    struct buf text;
    size_t bytes = (size_t)(max_tokens - (has_own ? n_own : 0)) * BYTES_A_TOKEN;
    int rc = extract_rank(&input, 0, d->a, &ranked, e);
    if (rc)
        return rc;
    buf_init(&text, HEAD_BYTES_MAX);
    for (int i = 0; i < TRIES; i++) {
        const size_t n_take = extract_fit(&ranked, bytes);
        buf_clear(&text);
        if (has_own) {
            buf_add(&text, in->old_summary, in->n_old_summary);
            buf_char(&text, '\n');
        }
        extract_compose(&ranked, n_take, &text);
        const int n = count(d, &text);
        if (n < 0 || (n_take == 0 && !has_own))
            break;
        if (n <= max_tokens) {
            keep_summary(d, text.data, text.len);
            break;
        }
        bytes = (bytes < text.len ? bytes : text.len) * (size_t)max_tokens / (size_t)n * 97 / 100;
        if (n_take == 0)
            break;
    }
    buf_done(&text);
    return 0;
}

static int add_summary(struct head *d, int max_tokens, struct err *e)
{
    const struct context_head *in = d->in;
    if (max_tokens <= 0)
        return 0;
    const int n = in->summary ? window_count(d->h, in->summary, in->n_summary) : -1;
    if (n > 0 && n <= max_tokens) {
        keep_summary(d, in->summary, in->n_summary);
        return 0;
    }
    return extract(d, max_tokens, e);
}

/* Tokens for the facts: not those of a summary that is there already, a person's or the model's. */
static int facts_share(const struct head *d, int heading)
{
    const struct context_head *in = d->in;
    if (!context_summarises(in->strategy))
        return in->max_tokens;
    const int share = in->max_tokens * CONTEXT_FACTS_PERCENT /
                      (CONTEXT_FACTS_PERCENT + CONTEXT_SUMMARY_PERCENT);
    const int n_own = in->summary     ? window_count(d->h, in->summary, in->n_summary)
                      : in->is_edited ? window_count(d->h, in->old_summary, in->n_old_summary)
                                      : 0;
    const int left = in->max_tokens - heading - n_own - 1;
    return n_own > 0 && left > 0 && left < share ? left : share;
}

int context_head_make(const struct history *h, struct arena *a, const struct context_head *in,
                      struct memory_cut *cut, struct err *e)
{
    struct head d = {.h = h, .a = a, .in = in, .cut = cut};
    int rc = 0, n_facts = 0;
    const int heading = window_count(h, "\n" SUMMARY_HEAD, sizeof SUMMARY_HEAD);
    /* Without facts or summary of its own a cut hands on the old ones, for a change of mind. */
    cut->facts = in->old_facts;
    cut->n_facts = in->n_old_facts;
    cut->summary = in->old_summary;
    cut->n_summary = in->n_old_summary;
    buf_init(&d.text, HEAD_BYTES_MAX);
    add_pins(&d);
    if (context_keeps_facts(in->strategy)) {
        rc = add_facts(&d, facts_share(&d, heading), &n_facts, e);
    }
    if (rc == 0 && context_summarises(in->strategy))
        rc = add_summary(&d, in->max_tokens - n_facts - heading, e);
    if (rc == 0) {
        cut->head = buf_error(&d.text) ? NULL
                                       : arena_copy(a, d.text.data ? d.text.data : "", d.text.len);
        cut->n_head = d.text.len;
        if (!cut->head)
            rc = err_set(e, ERR_NOMEM, "out of memory for the head of a window");
    }
    buf_done(&d.text);
    return rc;
}

bool context_has_lines(const char *text, size_t n, const struct context_lines *lines)
{
    const size_t n_prefix = strlen(lines->prefix), n_text = lines->n_text;
    const bool ends_itself = n_text > 0 && lines->text[n_text - 1] == '\n';
    for (size_t from = n_prefix; n_text > 0 && from + n_text <= n;) {
        const char *found = memmem(text + from, n - from, lines->text, n_text);
        if (!found)
            return false;
        const size_t at = (size_t)(found - text), begin = at - n_prefix, end = at + n_text;
        if (memcmp(text + begin, lines->prefix, n_prefix) == 0 &&
            (begin == 0 || text[begin - 1] == '\n') &&
            (end == n || text[end] == '\n' || ends_itself))
            return true;
        from = at + 1;
    }
    return false;
}

int context_head_sections(const char *head, size_t n, struct context_section *ret)
{
    static const struct {
        const char *kind, *line;
    } known[CONTEXT_SECTIONS] = {
        {"pins", PINS_HEAD}, {"facts", FACTS_HEAD}, {"summary", SUMMARY_HEAD}};
    int n_found = 0;
    size_t from = 0;
    for (int i = 0; i < CONTEXT_SECTIONS; i++) {
        const char *at = from < n ? memmem(head + from, n - from, known[i].line,
                                           strlen(known[i].line))
                                  : NULL;
        /* Within a section the line is somebody's words: it begins one behind a blank line only. */
        if (!at || (at > head && (at < head + 2 || memcmp(at - 2, "\n\n", 2) != 0)))
            continue;
        if (n_found > 0)
            ret[n_found - 1].n_text = (size_t)(at - ret[n_found - 1].text);
        ret[n_found++] = (struct context_section){
            .kind = known[i].kind, .text = at, .n_text = n - (size_t)(at - head)};
        from = (size_t)(at - head) + strlen(known[i].line);
    }
    return n_found;
}
