/*
 * Byte-level BPE: a piece starts as one symbol a byte, and of all neighbours the pair with the
 * lowest rank (the leftmost among equals) is joined until no pair has a rank. (Sennrich et al.
 * 2016; Radford et al. 2019 for bytes.)
 *
 *   short piece (≤ 32 bytes, nearly all): an array, the lowest rank found by looking at all pairs
 *   long piece: a doubly linked list inside arrays, and a queue of (rank, position). An entry is
 *   stale when its position no longer holds the pair of its rank; a rank names one pair, so that is
 *   the whole check. A join queues at most two entries: O(n log n).
 *
 *        symbol  [ 't' 'h' 'e' ' ' ...     next [1 2 3 ...     prev [- 0 1 ...
 *        join at 0:  symbol[0] = "th", next[0] = 2, prev[2] = 0, symbol[1] = dead
 *
 * The queue is a heap of runs. Positions of one rank mostly come in rising order and form a run, a
 * linked list of which only the first is in the heap; one that comes out of order is in the heap by
 * itself. So a million equal letters keep a heap of a few entries, and stay in the CPU's caches.
 */
#include "engine/tok_impl.h"

#include <stdlib.h>
#include <string.h>

#include "engine/tok_heap.h"

#define SHORT_PIECE 32
#define DEAD UINT32_MAX
#define END UINT32_MAX

static uint64_t pair_key(uint32_t left, uint32_t right)
{
    return (uint64_t)left << 44 | (uint64_t)right << 24;
}

static uint32_t pair_hash(uint64_t key)
{
    return (uint32_t)((key * 0x9E3779B97F4A7C15ull) >> 32);
}

int bpe_init(struct bpe *b, size_t n_merges, struct err *e)
{
    memset(b, 0, sizeof *b);
    if (n_merges > BPE_MERGES_MAX)
        return err_set(e, ERR_LIMIT, "%zu merges, the limit is %zu", n_merges, BPE_MERGES_MAX);
    size_t n_slots = 64;
    while (n_slots * 2 < n_merges * 3)
        n_slots *= 2;
    b->mask = (uint32_t)(n_slots - 1);
    b->slots = calloc(n_slots, sizeof *b->slots);
    b->left = malloc((n_merges + 1) * sizeof *b->left);
    b->right = malloc((n_merges + 1) * sizeof *b->right);
    b->result = malloc((n_merges + 1) * sizeof *b->result);
    if (b->slots && b->left && b->right && b->result)
        return 0;
    bpe_done(b);
    return err_set(e, ERR_NOMEM, "no memory for %zu merges", n_merges);
}

void bpe_done(struct bpe *b)
{
    free(b->slots);
    free(b->left);
    free(b->right);
    free(b->result);
    memset(b, 0, sizeof *b);
}

void bpe_add(struct bpe *b, uint32_t left, uint32_t right, uint32_t result)
{
    uint32_t rank = b->n_merges++;
    b->left[rank] = left;
    b->right[rank] = right;
    b->result[rank] = result;
    if (result == BPE_NO_RANK)
        return;
    uint64_t key = pair_key(left, right);
    uint32_t i = pair_hash(key) & b->mask;
    for (; b->slots[i]; i = (i + 1) & b->mask)
        if (((b->slots[i] ^ key) >> 24) == 0)
            return;
    b->slots[i] = key | (rank + 1);
}

void bpe_touch(const struct bpe *b, uint32_t left, uint32_t right)
{
    (void)*(const volatile uint64_t *)&b->slots[pair_hash(pair_key(left, right)) & b->mask];
}

static uint32_t pair_rank(const struct bpe *b, uint32_t left, uint32_t right)
{
    uint64_t key = pair_key(left, right);
    for (uint32_t i = pair_hash(key) & b->mask; b->slots[i]; i = (i + 1) & b->mask)
        if (((b->slots[i] ^ key) >> 24) == 0)
            return (uint32_t)(b->slots[i] & 0xFFFFFF) - 1;
    return BPE_NO_RANK;
}

static int emit(const struct bpe_job *job, uint32_t symbol, struct err *e)
{
    if (symbol < job->bpe->n_vocab)
        return ids_push(job->ret, (int32_t)symbol) < 0
                   ? err_set(e, ERR_NOMEM, "no memory for token ids")
                   : 0;
    size_t n;
    const char *bytes = job->spell(job->spell_ctx, symbol, &n);
    for (size_t i = 0; i < n; i++) {
        uint32_t id = job->bpe->byte_symbol[(unsigned char)bytes[i]];
        if (id < job->bpe->n_vocab && ids_push(job->ret, (int32_t)id) < 0)
            return err_set(e, ERR_NOMEM, "no memory for token ids");
    }
    return 0;
}

static int encode_short(const struct bpe_job *job, const char *piece, size_t n, struct err *e)
{
    const struct bpe *b = job->bpe;
    uint32_t symbol[SHORT_PIECE], rank[SHORT_PIECE];
    for (size_t i = 0; i < n; i++)
        symbol[i] = b->byte_symbol[(unsigned char)piece[i]];
    for (size_t i = 0; i + 1 < n; i++)
        rank[i] = pair_rank(b, symbol[i], symbol[i + 1]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best])
                best = i;
        if (rank[best] == BPE_NO_RANK)
            break;
        symbol[best] = b->result[rank[best]];
        memmove(symbol + best + 1, symbol + best + 2, (n - best - 2) * sizeof *symbol);
        memmove(rank + best, rank + best + 1, (n - best - 2) * sizeof *rank);
        n--;
        if (best > 0)
            rank[best - 1] = pair_rank(b, symbol[best - 1], symbol[best]);
        if (best + 1 < n)
            rank[best] = pair_rank(b, symbol[best], symbol[best + 1]);
    }
    for (size_t i = 0; i < n; i++) {
        int rc = emit(job, symbol[i], e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

void bpe_scratch_done(struct bpe_scratch *s)
{
    free(s->symbol);
    free(s->next);
    free(s->prev);
    free(s->heap);
    free(s->entries);
    free(s->runs);
    memset(s, 0, sizeof *s);
}

/* Grows *array to `n` items of `size` bytes; the old one stays when memory is out. */
static bool grow(void *array, size_t n, size_t size)
{
    void **at = array;
    void *p = n > SIZE_MAX / size ? NULL : realloc(*at, n * size);
    if (p)
        *at = p;
    return p != NULL;
}

static bool reserve(const struct bpe *b, struct bpe_scratch *s, size_t n)
{
    if (!s->runs && !(s->runs = calloc(b->n_merges + 1, sizeof *s->runs)))
        return false;
    if (n <= s->cap)
        return true;
    if (!grow(&s->symbol, n, sizeof *s->symbol) || !grow(&s->next, n, sizeof *s->next) ||
        !grow(&s->prev, n, sizeof *s->prev))
        return false;
    s->cap = n;
    return true;
}

static bool heap_push(struct bpe_scratch *s, uint64_t v)
{
    s->n_steps++;
    if (s->n_heap == s->cap_heap) {
        size_t cap = s->cap_heap * 2 + 256;
        if (!grow(&s->heap, cap, sizeof *s->heap))
            return false;
        s->cap_heap = cap;
    }
    tok_heap_up(s->heap, s->n_heap++, v);
    return true;
}

/* Entry 0 is never used: 0 ends a run and the free list. */
static uint32_t take_entry(struct bpe_scratch *s)
{
    uint32_t i = s->free_entry;
    if (i != 0) {
        s->free_entry = s->entries[i].next;
        return i;
    }
    if (s->n_entries + 1 >= s->cap_entries) {
        size_t cap = s->cap_entries * 2 + 1024;
        if (cap > END || !grow(&s->entries, cap, sizeof *s->entries))
            return 0;
        s->cap_entries = cap;
    }
    return (uint32_t)++s->n_entries;
}

static bool queue_push(struct bpe_scratch *s, uint32_t rank, uint32_t at)
{
    struct bpe_run *run = &s->runs[rank];
    if (run->head != 0 && s->entries[run->tail].at >= at)
        return heap_push(s, (uint64_t)rank << 32 | at);
    uint32_t entry = take_entry(s);
    if (entry == 0)
        return false;
    s->entries[entry] = (struct bpe_entry){.at = at, .next = 0};
    if (run->head == 0) {
        run->head = run->tail = entry;
        return heap_push(s, (uint64_t)rank << 32 | at);
    }
    s->entries[run->tail].next = entry;
    run->tail = entry;
    return true;
}

/* The lowest rank << 32 | position. A run's first entry makes room for its second. */
static uint64_t queue_pop(struct bpe_scratch *s)
{
    uint64_t top = s->heap[0];
    s->n_steps++;
    struct bpe_run *run = &s->runs[top >> 32];
    uint32_t entry = run->head;
    bool is_run = entry != 0 && s->entries[entry].at == (uint32_t)top;
    if (is_run) {
        run->head = s->entries[entry].next;
        s->entries[entry].next = s->free_entry;
        s->free_entry = entry;
    }
    if (is_run && run->head != 0)
        s->heap[0] = (top >> 32 << 32) | s->entries[run->head].at;
    else
        s->heap[0] = s->heap[--s->n_heap];
    if (s->n_heap > 0)
        tok_heap_down(s->heap, s->n_heap, 0);
    return top;
}

/* The pair that begins at `at`, if it has a rank, is queued. */
static bool push_pair(const struct bpe *b, struct bpe_scratch *s, uint32_t at)
{
    if (at == END || s->next[at] == END)
        return true;
    uint32_t rank = pair_rank(b, s->symbol[at], s->symbol[s->next[at]]);
    return rank == BPE_NO_RANK || queue_push(s, rank, at);
}

static bool start_long(const struct bpe *b, struct bpe_scratch *s, const char *piece, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        s->symbol[i] = b->byte_symbol[(unsigned char)piece[i]];
        s->next[i] = i + 1 < n ? (uint32_t)(i + 1) : END;
        s->prev[i] = i > 0 ? (uint32_t)(i - 1) : END;
    }
    bool is_queued = true;
    for (size_t i = 0; i + 1 < n && is_queued; i++)
        is_queued = push_pair(b, s, (uint32_t)i);
    return is_queued;
}

static bool join(const struct bpe *b, struct bpe_scratch *s, uint32_t at, uint32_t rank)
{
    uint32_t gone = s->next[at];
    if (s->symbol[at] != b->left[rank] || gone == END || s->symbol[gone] != b->right[rank])
        return true; /* stale */
    s->symbol[at] = b->result[rank];
    s->symbol[gone] = DEAD;
    s->next[at] = s->next[gone];
    if (s->next[at] != END)
        s->prev[s->next[at]] = at;
    return push_pair(b, s, s->prev[at]) && push_pair(b, s, at);
}

static int encode_long(const struct bpe_job *job, const char *piece, size_t n, struct err *e)
{
    struct bpe_scratch *s = job->scratch;
    if (n >= END)
        return err_set(e, ERR_LIMIT, "a piece of %zu bytes, the limit is %u", n, END - 1);
    bool is_ok = reserve(job->bpe, s, n) && start_long(job->bpe, s, piece, n);
    while (is_ok && s->n_heap > 0) {
        uint64_t top = queue_pop(s);
        is_ok = join(job->bpe, s, (uint32_t)top, (uint32_t)(top >> 32));
    }
    if (!is_ok)
        return err_set(e, ERR_NOMEM, "no memory to merge a piece of %zu bytes", n);
    for (uint32_t i = 0; i != END; i = s->next[i]) {
        int rc = emit(job, s->symbol[i], e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int bpe_encode(const struct bpe_job *job, const char *piece, size_t n, struct err *e)
{
    if (n == 0)
        return 0;
    return n <= SHORT_PIECE ? encode_short(job, piece, n, e) : encode_long(job, piece, n, e);
}
