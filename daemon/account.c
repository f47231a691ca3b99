/* See account.h. */
#include "daemon/account.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "daemon/miss.h"
#include "daemon/prepare.h"
#include "engine/kv.h"

/* What may lack without being missed: the last, partial block, which only a turn's end or a rest
 * keeps, and what the template puts behind an answer, which nobody has computed yet. */
#define SLACK_TOKENS (KV_BLOCK + 4)

#define MARK_BYTES 8                /* of a message's hash */
#define BOOK_WINDOWS 256            /* known ones of stateless turns, all owners together */
#define BOOK_BYTES ((size_t)1 << 20)
#define OWNERS_MAX 1024             /* sums since the start: the others are only in SQLite */
#define TELLING_ANSWERS 8           /* how many answers are looked for in other windows */
#define TELLING_BYTES 24            /* so long, an answer alone says which window it is of */

/* A window that was read, with its answer: a mark for each message. */
struct known {
    uint64_t owner, used; /* used 0: free */
    const struct served *served; /* who read it */
    uint8_t *marks;       /* [n * MARK_BYTES], owned */
    size_t n;
};

struct owner_sum {
    char *owner;
    struct memory_savings sum;
};

/* History thread. */
struct account {
    struct known book[BOOK_WINDOWS];
    size_t n_bytes; /* of all marks */
    uint64_t n_uses;
    struct owner_sum *owners; /* [n_owners], by first turn */
    size_t n_owners;
};

/* ---- marks ---- */

static void mark(enum chat_role role, const char *text, size_t n, uint8_t ret[MARK_BYTES])
{
    uint8_t chain[HASH_BYTES] = {0};
    memory_chain(chain, prepare_role(role), text, n);
    memcpy(ret, chain, MARK_BYTES);
}

/* The window's messages and the answer. Without memory for them nothing is known of it. */
static void set_marks(struct turn *t)
{
    const struct turn_window *w = &t->window;
    uint8_t *marks = w->n > 0 ? arena_alloc(&t->arena, (w->n + 1) * MARK_BYTES) : NULL;
    if (!marks)
        return;
    for (size_t i = 0; i < w->n; i++)
        mark(w->v[i].role, w->v[i].text, w->v[i].n_text, marks + i * MARK_BYTES);
    t->marks = marks;
    t->n_marks = w->n;
    size_t n = t->text.len; /* as the next request has it */
    const char *text = t->store.is_on || n == 0 ? t->text.data : turn_answer(t, &n);
    if (n > 0)
        mark(CHAT_ASSISTANT, text, n, marks + t->n_marks++ * MARK_BYTES);
}

/* How many first messages are the same. */
static size_t common(const uint8_t *a, size_t n_a, const uint8_t *b, size_t n_b)
{
    size_t n = 0, max = n_a < n_b ? n_a : n_b;
    while (n < max && memcmp(a + n * MARK_BYTES, b + n * MARK_BYTES, MARK_BYTES) == 0)
        n++;
    return n;
}

/* ---- the book ---- */

static uint64_t owner_key(const char *owner)
{
    uint8_t hash[HASH_BYTES];
    uint64_t key;
    hash_of(owner, strlen(owner), hash);
    memcpy(&key, hash, sizeof key);
    return key;
}

/* Whether it is the owner's, read by the turn's model. */
static bool is_of(const struct known *k, uint64_t owner, const struct turn *t)
{
    return k->used && k->owner == owner && k->served == t->served;
}

static void known_drop(struct account *a, struct known *k)
{
    a->n_bytes -= k->n * MARK_BYTES;
    free(k->marks);
    *k = (struct known){0};
}

/* The entry that the window continues; else a free one; else the one that was longest not used. */
static struct known *book_place(struct account *a, uint64_t owner, const struct turn *t)
{
    struct known *place = &a->book[0];
    for (size_t i = 0; i < BOOK_WINDOWS; i++) {
        struct known *k = &a->book[i];
        if (is_of(k, owner, t) && k->n <= t->n_marks &&
            common(k->marks, k->n, t->marks, t->n_marks) == k->n)
            return k;
        if (k->used < place->used)
            place = k;
    }
    return place;
}

static void book_put(struct account *a, const struct turn *t)
{
    const size_t n_bytes = t->n_marks * MARK_BYTES;
    uint64_t owner = owner_key(t->owner);
    uint8_t *copy = n_bytes > 0 && n_bytes <= BOOK_BYTES / 2 ? malloc(n_bytes) : NULL;
    if (!copy)
        return;
    memcpy(copy, t->marks, n_bytes);
    struct known *k = book_place(a, owner, t);
    known_drop(a, k);
    *k = (struct known){.owner = owner,
                        .served = t->served,
                        .used = ++a->n_uses,
                        .marks = copy,
                        .n = t->n_marks};
    a->n_bytes += n_bytes;
    while (a->n_bytes > BOOK_BYTES) {
        struct known *oldest = k;
        for (size_t i = 0; i < BOOK_WINDOWS; i++)
            if (a->book[i].used && a->book[i].used < oldest->used)
                oldest = &a->book[i];
        known_drop(a, oldest);
    }
}

/* Whether k has the window's message i behind the same message as here (or behind any). */
static bool has_answer(const struct known *k, const struct turn *t, size_t i, bool any_before)
{
    const uint8_t *m = t->marks + i * MARK_BYTES;
    for (size_t j = 1; j < k->n; j++) {
        const uint8_t *other = k->marks + j * MARK_BYTES;
        if (memcmp(other, m, MARK_BYTES) == 0 &&
            (any_before || memcmp(other - MARK_BYTES, m - MARK_BYTES, MARK_BYTES) == 0))
            return true;
    }
    return false;
}

/* Of the owner's windows that share one of the last answers, with its question or (any_before)
 * alone, the one that begins most like this one. */
static const struct known *book_relative(const struct account *a, const struct turn *t,
                                         bool any_before)
{
    const struct turn_window *w = &t->window;
    uint64_t owner = owner_key(t->owner);
    int n_left = TELLING_ANSWERS;
    for (size_t i = w->n; i-- > 1 && n_left > 0;) {
        const struct known *best = NULL;
        size_t n_best = 0;
        if (w->v[i].role != CHAT_ASSISTANT || (any_before && w->v[i].n_text < TELLING_BYTES))
            continue;
        n_left--;
        for (const struct known *k = a->book; k < a->book + BOOK_WINDOWS; k++) {
            if (!is_of(k, owner, t) || !has_answer(k, t, i, any_before))
                continue;
            size_t n = common(k->marks, k->n, t->marks, w->n);
            if (!best || n > n_best || (n == n_best && k->used > best->used)) {
                best = k;
                n_best = n;
            }
        }
        if (best)
            return best;
    }
    return NULL;
}

/* ---- the reason ---- */

/* What is known of a window like this one: the first n_same messages were read before, in a row,
 * n_other by another model; is_relative: in a window that this one continues, but for message
 * `differs`. */
struct likeness {
    size_t n_same, n_other, differs;
    bool is_relative;
};

static void book_look(const struct account *a, const struct turn *t, struct likeness *ret)
{
    const struct turn_window *w = &t->window;
    uint64_t owner = owner_key(t->owner);
    bool goes_on = false; /* one that has the most in common has more behind it */
    for (size_t i = 0; i < BOOK_WINDOWS; i++) {
        const struct known *k = &a->book[i];
        size_t n = k->used && k->owner == owner ? common(k->marks, k->n, t->marks, w->n) : 0;
        if (k->used && k->served != t->served) {
            ret->n_other = n > ret->n_other ? n : ret->n_other;
            continue;
        }
        if (n > ret->n_same)
            goes_on = false;
        ret->n_same = n > ret->n_same ? n : ret->n_same;
        goes_on = goes_on || (n == ret->n_same && n < k->n);
    }
    ret->differs = ret->n_same;
    for (size_t i = 0; i < ret->n_same && goes_on; i++)
        ret->is_relative = ret->is_relative || w->v[i].role == CHAT_USER;
    if (ret->is_relative)
        return;
    const struct known *k = book_relative(a, t, false);
    if (!k)
        k = book_relative(a, t, true);
    if (!k)
        return;
    ret->is_relative = true;
    ret->differs = common(k->marks, k->n, t->marks, w->n);
}

static void look(struct history *h, struct turn *t, struct likeness *ret)
{
    struct err e;
    const uint8_t *last = NULL;
    size_t n_bytes = 0;
    *ret = (struct likeness){0};
    if (t->n_marks == 0)
        return;
    if (t->store.is_on &&
        memory_window_get(h->memory, t->store.conversation, &t->arena, &last, &n_bytes, &e))
        log_warn("what a conversation read last is not known: %s", e.text);
    if (n_bytes >= MARK_BYTES) {
        ret->n_same = common(last, n_bytes / MARK_BYTES, t->marks, t->window.n);
        ret->differs = ret->n_same;
        ret->is_relative = ret->n_same < n_bytes / MARK_BYTES;
    } else if (h->account) {
        book_look(h->account, t, ret);
    }
}

/* How many messages could be expected to be cached: up to the last answer, or those of the system
 * at the head. */
static size_t n_expected(const struct turn_window *w)
{
    size_t n = w->n, head = 0;
    while (n > 0 && w->v[n - 1].role != CHAT_ASSISTANT)
        n--;
    while (head < w->n && w->v[head].role == CHAT_SYSTEM)
        head++;
    return n > 0 ? n : head;
}

/* The message in which the cache ended; -1 without messages. */
static int message_at(const struct turn_window *w, size_t position)
{
    int i = 0;
    if (w->n == 0)
        return -1;
    while ((size_t)i + 1 < w->n && w->starts[i + 1] <= position)
        i++;
    return i;
}

/* Whether a stored conversation used the first block that lacks. */
static bool was_used(struct history *h, const struct turn *t)
{
    struct err e;
    uint8_t id[HASH_BYTES];
    size_t at = (size_t)t->stats.n_cached / KV_BLOCK, n_unused = 1;
    if (at >= t->n_blocks)
        return false;
    memcpy(id, t->blocks + at * HASH_BYTES, HASH_BYTES);
    return memory_blocks_unused(h->memory, id, 1, &n_unused, &e) == 0 && n_unused == 0;
}

/* Stateless: whether the text up to the last answer was generated here, by this model (its ids are
 * known), or by another. */
static bool is_of_other_model(struct history *h, const struct turn *t, size_t n)
{
    uint8_t chain[HASH_BYTES] = {0};
    const struct turn_window *w = &t->window;
    const struct memory_reply_key key = {.chain = chain,
                                         .render = engine_info(h->engine)->render_id};
    if (w->is_other_model || w->is_of_sibling)
        return true;
    if (!t->store.is_reply || n == 0 || w->v[n - 1].role != CHAT_ASSISTANT || w->v[n - 1].ids)
        return false;
    for (size_t i = 0; i < n; i++)
        memory_chain(chain, prepare_role(w->v[i].role), w->v[i].text, w->v[i].n_text);
    return memory_reply_is_of_other(h->memory, t->owner, &key);
}

static enum miss judge(struct history *h, struct turn *t, int *ret_at)
{
    const struct turn_window *w = &t->window;
    const size_t n_cached = (size_t)t->stats.n_cached, n = n_expected(w);
    struct likeness like;
    *ret_at = -1;
    if (!t->params.use_cache)
        return MISS_OFF;
    if (t->prompt.n <= 1)
        return MISS_NONE;
    if (n_cached > 0 && (w->n == 0 || n_cached + SLACK_TOKENS >= w->starts[n]))
        return MISS_NONE;
    *ret_at = message_at(w, n_cached);
    if (was_used(h, t))
        return MISS_EVICTED;
    if (is_of_other_model(h, t, n))
        return MISS_MODEL;
    if (t->receipt.is_live_cut || t->receipt.is_ahead_cut)
        return MISS_CUT;
    look(h, t, &like);
    const struct chat *chat = engine_chat(h->engine);
    if (chat && chat_mode(chat) == CHAT_RERENDER && w->n > 0 && like.n_same >= n)
        return MISS_TEMPLATE;
    size_t n_read = like.n_same > 0 ? w->starts[like.n_same] : 0;
    if (t->store.is_reply && n > 0 && w->v[n - 1].ids && w->starts[n - 1] > n_read)
        n_read = w->starts[n - 1]; /* it was written here, so what is before it was read */
    if (n_read > n_cached + SLACK_TOKENS)
        return MISS_EVICTED;
    if (like.n_other > like.n_same && w->starts[like.n_other] > n_cached + SLACK_TOKENS)
        return MISS_MODEL;
    if ((int)like.n_same > *ret_at && like.n_same < w->n)
        *ret_at = (int)like.n_same; /* what is before it was only not kept to its end */
    if (!like.is_relative || like.differs >= n || w->starts[like.differs + 1] <= n_cached)
        return MISS_NEW;
    *ret_at = (int)like.differs;
    return MISS_CHANGED;
}

/* Row and id of the window's message, when it is stored. */
static void name_message(struct history *h, struct turn *t)
{
    struct err e;
    struct turn_stats *s = &t->stats;
    struct memory_message m = {0};
    const size_t i = (size_t)s->miss_at_message, first = t->window.n - t->store.n_inputs;
    if (!t->store.is_on || s->miss_at_message < 0)
        return;
    s->miss_row = i >= first ? t->store.inputs[i - first].row : t->window.rows[i];
    if (s->miss_row && memory_message_by_row(h->memory, s->miss_row, &m, &t->arena, &e) == 0)
        memcpy(s->miss_message, m.id, sizeof s->miss_message);
    else
        s->miss_row = 0;
}

/* ---- sums ---- */

struct memory_turn account_statistics(const struct turn *t)
{
    const struct turn_stats *s = &t->stats;
    return (struct memory_turn){
        .conversation = t->store.conversation,
        .answer = t->store.answer.row,
        .prompt_tokens = (int)t->prompt.n,
        .completion_tokens = turn_n_completion(t),
        .cached_tokens = s->n_cached,
        .cached_ram = s->n_ram,
        .cached_disk = s->n_disk,
        .cached_shared = s->n_shared,
        .computed_tokens = s->n_computed,
        .queue_us = s->t_started ? s->t_started - s->t_arrived : 0,
        .restore_us = s->restore_us,
        .prefill_us = s->prefill_us,
        .ttft_us = s->t_first ? s->t_first - s->t_arrived : 0,
        .decode_us = s->decode_us,
        .saved_us = s->saved_us,
        .miss_reason = s->miss_reason,
        .finish = turn_finish_word(t),
        .miss_at = s->miss_at_message,
        .miss_message = s->miss_row,
        .cut = t->window.has_cut ? t->window.cut.row : 0,
    };
}

static void count(struct daemon *d, const struct memory_turn *m, enum miss miss)
{
    struct counters *n = &d->n;
    atomic_fetch_add(&n->prompt_tokens, (uint64_t)m->prompt_tokens);
    atomic_fetch_add(&n->cached_tokens, (uint64_t)m->cached_tokens);
    atomic_fetch_add(&n->cached_ram, (uint64_t)m->cached_ram);
    atomic_fetch_add(&n->cached_disk, (uint64_t)m->cached_disk);
    atomic_fetch_add(&n->cached_shared, (uint64_t)m->cached_shared);
    atomic_fetch_add(&n->computed_tokens, (uint64_t)m->computed_tokens);
    atomic_fetch_add(&n->prefill_us, (uint64_t)m->prefill_us);
    atomic_fetch_add(&n->decode_us, (uint64_t)m->decode_us);
    atomic_fetch_add(&n->saved_us, (uint64_t)m->saved_us);
    if (m->cached_tokens > 0)
        atomic_fetch_add(&n->cache_hits, 1);
    if (miss != MISS_NONE)
        atomic_fetch_add(&n->cache_misses[miss], 1);
}

static struct owner_sum *find_owner(const struct account *a, const char *owner)
{
    for (size_t i = 0; i < a->n_owners; i++)
        if (strcmp(a->owners[i].owner, owner) == 0)
            return &a->owners[i];
    return NULL;
}

static struct owner_sum *add_owner(struct account *a, const char *owner)
{
    struct owner_sum *all;
    if (a->n_owners >= OWNERS_MAX ||
        !(all = realloc(a->owners, (a->n_owners + 1) * sizeof *all)))
        return NULL;
    a->owners = all;
    char *name = strdup(owner);
    if (!name)
        return NULL;
    all[a->n_owners] = (struct owner_sum){.owner = name};
    return &all[a->n_owners++];
}

static void count_owner(struct account *a, const char *owner, const struct memory_turn *m)
{
    struct owner_sum *o = find_owner(a, owner);
    if (!o)
        o = add_owner(a, owner);
    if (o)
        memory_savings_count(&o->sum, m);
}

void account_turn(struct history *h, struct turn *t)
{
    struct turn_stats *s = &t->stats;
    enum miss miss = MISS_NONE;
    if (!h->account)
        h->account = calloc(1, sizeof *h->account); /* NULL: nothing is known of stateless ones */
    set_marks(t);
    if (s->n_cached + s->n_computed > 0)
        miss = judge(h, t, &s->miss_at_message);
    s->miss_reason = miss_name(miss);
    if (miss != MISS_NONE)
        name_message(h, t);
    const struct memory_turn m = account_statistics(t);
    count(h->d, &m, miss);
    if (!h->account)
        return;
    count_owner(h->account, t->owner, &m);
    if (s->t_first && t->params.use_cache)
        book_put(h->account, t);
}

const uint8_t *account_window(const struct turn *t, size_t *ret_n_bytes)
{
    const bool was_read = t->stats.t_first && t->params.use_cache && t->n_marks > 0;
    *ret_n_bytes = was_read ? t->n_marks * MARK_BYTES : 0;
    return was_read ? t->marks : NULL;
}

void account_stateless(struct history *h, const struct turn *t)
{
    struct err e;
    static struct log_limit limit = {.burst = 3};
    const struct memory_turn m = account_statistics(t);
    if (memory_savings_add(h->memory, t->owner, &m, &e) && log_allowed(&limit))
        log_warn("a turn is missing in the sums of %s: %s", t->owner, e.text);
}

void account_since_start(const struct history *h, const char *owner, struct memory_savings *ret)
{
    const struct owner_sum *o = h->account ? find_owner(h->account, owner) : NULL;
    *ret = o ? o->sum : (struct memory_savings){0};
}

void account_free(struct account *a)
{
    if (!a)
        return;
    for (size_t i = 0; i < BOOK_WINDOWS; i++)
        free(a->book[i].marks);
    for (size_t i = 0; i < a->n_owners; i++)
        free(a->owners[i].owner);
    free(a->owners);
    free(a);
}
