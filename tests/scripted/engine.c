/*
 * The scripted engine: a link-time double of engine/engine.h that says what a test wants to hear,
 * costs what a test wants to wait, and notices every block that isn't what it should be. Link it
 * before the engine's library: then engine.o is never pulled in, while the tokenizer, the chat
 * format and the KV blocks are the real ones.
 *
 *     hearthd-scripted --model SCRIPT.json
 *
 * or MODEL.gguf with the script beside it, MODEL.gguf.script: the file is then described as what it
 * is, and speaks the script.
 *
 *     {"ctx": 256,                      context (default 8192)
 *      "pace_us": 2000,                 what a pass costs, whoever takes part
 *      "prefill_us_per_token": 100,     and each row of a part beyond its first
 *      "load_ms": 500,                  how long engine_open takes, with progress
 *      "kv_layers": 1,                  2 KiB a block each (one KV head of 16 dimensions)
 *      "weights_bytes": 1048576,        what engine_info says, and --memory is checked against
 *      "weights": "any string",         another string is another model: another fingerprint
 *      "chat_template": "…",            "": none; absent: ChatML with the default system prompt
 *                                       "You follow a script."
 *      "vocab": ["piece", …],           tokens to have, whatever the rules say (vocab.h)
 *      "merges": ["6162 63", …],        bytes in hex that text encodes to as one, in this order
 *      "rules": [{…}, …],               the first whose words are in the last user message speaks
 *      "default": {…}}                  else this one; absent: an empty answer
 *
 *     a rule, here with all there is (the default has no "when"):
 *
 *     {"when": "weather",               bytes to occur in the message
 *      "pieces": ["It", " rains"],      the answer, one token each, made if need be
 *      "ids": [78, 79],                 or as ids
 *      "bytes": "f09fa699",             or as byte tokens
 *      "repeat": 3,                     the answer so many times over (default 1)
 *      "then": "eog",                   and <|im_end|> (default), or "forever": over and over
 *      "spread": true,                  sixteen letters are almost as likely: sampled answers
 *                                       differ by seed, the greedy one is the script's
 *      "nan_at": 2,                     at the answer's token 2 the logit of "bad_id" is NaN,
 *      "inf_at": 2,                     or +infinite,
 *      "bad_id": 0,
 *      "all_nan_at": 2,                 or all of them are NaN
 *      "error_at": 2,                   the pass fails with ERR_NOMEM
 *      "hang_at": 2}                    the pass never returns, not even by a cancel (watchdog)
 *
 * Nothing is remembered between passes but what the blocks hold. Each position keeps its id and a
 * rolling hash of all ids up to it, in its column of K and its row of V, so that copies that forget
 * one of them show:
 *
 *     V row of position p         id 4 | p + 1, 4 | hash 8 | zeros
 *     K column of p, row d        16 bits of the hash (d = 0 … 3) and of the id (4, 5)
 *
 * A pass first walks the whole prefix and recomputes the chain. If a position doesn't fit, the
 * answer is capital letters picked by the wrong hash (another text than the script's), a line goes
 * to the log and scripted_n_wrong counts. So is "warm equals cold" tested: the logits are a
 * function of the chain and the script alone.
 *
 * Which token comes next: after the last assistant header in the ids, the k-th of the answer, k
 * being the number of ids since. Without a header (raw completions) the rules look at the whole
 * text, k counts the ids after the first occurrence of the rule's words; the default's answer,
 * which has no such place, is taken modulo its length by position and never ends.
 *
 * An abandoned pass leaves rubbish in the positions it would have written, as engine.h allows:
 * whoever publishes uncommitted positions is found out.
 */
#include "engine/engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/ids.h"
#include "base/log.h"
#include "engine/common.h"
#include "engine/kernels.h"
#include "tests/scripted/script.h"
#include "tests/scripted/scripted.h"
#include "tests/scripted/vocab.h"

#define HEAD_DIM 16
#define SLICE_US 500 /* how often the model of compute time looks at the abort flag */
#define CHAIN_SEED 0x68656172746873ull

struct engine {
    struct engine_info info;
    struct script *script;
    struct vocab *vocab;
    struct tok *tok;
    struct chat *chat; /* NULL: the script has no template */
    struct ids header; /* of an assistant's turn */
    char *name;
    _Atomic uint64_t progress, n_wrong;
    _Atomic uint64_t *passed; /* of the options */
};

/* One position as a block keeps it. */
struct cell {
    int32_t id;
    uint32_t place; /* position + 1: an unwritten cell is no valid one */
    uint64_t hash;
};

/* splitmix64's finaliser. */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static uint64_t chain(uint64_t before, int32_t id)
{
    return mix(before ^ mix((uint64_t)(uint32_t)id));
}

/* Where byte i of a position's K is, and where its V begins (layouts: engine/kv.h). */
static size_t k_byte(const struct kv_shape *s, int pos, size_t i)
{
    const size_t element = s->type == KV_F16 ? 2 : 4, at = (size_t)(pos % KV_BLOCK);
    return kv_k_offset(s, 0, 0) + (i / element * KV_BLOCK + at) * element + i % element;
}

static size_t v_row(const struct kv_shape *s, int pos)
{
    return kv_v_offset(s, 0, 0) + (size_t)(pos % KV_BLOCK) * HEAD_DIM * (s->type == KV_F16 ? 2 : 1);
}

#define K_BYTES 12 /* the cell's hash and id, once more */

static void cell_write(struct kv_seq *s, int pos, struct cell c)
{
    const struct kv_shape *shape = kv_pool_shape(s->blocks[0]->pool);
    unsigned char *data = s->blocks[pos / KV_BLOCK]->data, *row = data + v_row(shape, pos);
    unsigned char k[K_BYTES];
    memcpy(row, &c.id, 4);
    memcpy(row + 4, &c.place, 4);
    memcpy(row + 8, &c.hash, 8);
    memcpy(k, &c.hash, 8);
    memcpy(k + 8, &c.id, 4);
    for (size_t i = 0; i < K_BYTES; i++) {
        data[k_byte(shape, pos, i)] = k[i];
    }
}

/* false: K and V don't agree, or the cell belongs elsewhere. */
static bool cell_read(const struct kv_seq *s, int pos, struct cell *ret)
{
    const struct kv_shape *shape = kv_pool_shape(s->blocks[0]->pool);
    const unsigned char *data = s->blocks[pos / KV_BLOCK]->data, *row = data + v_row(shape, pos);
    unsigned char k[K_BYTES];
    memcpy(&ret->id, row, 4);
    memcpy(&ret->place, row + 4, 4);
    memcpy(&ret->hash, row + 8, 8);
    for (size_t i = 0; i < K_BYTES; i++) {
        k[i] = data[k_byte(shape, pos, i)];
    }
    return ret->place == (uint32_t)pos + 1 && memcmp(k, &ret->hash, 8) == 0 &&
           memcmp(k + 8, &ret->id, 4) == 0;
}

/* ---- opening ---- */

static int load(const struct engine *en, const struct engine_options *o, struct err *e)
{
    const int64_t start = clock_ms(), ms = en->script->load_ms;
    for (int64_t now = 0; now <= ms; now = clock_ms() - start) {
        if (o->abort && atomic_load(o->abort)) {
            return err_set(e, ERR_CANCELED, "loading was canceled");
        }
        if (o->on_progress) {
            o->on_progress(o->progress_ctx, ms ? (double)now / (double)ms : 1.0);
        }
        if (now < ms) {
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        } else {
            break;
        }
    }
    if (o->on_progress) {
        o->on_progress(o->progress_ctx, 1.0);
    }
    return 0;
}

static int open_chat(struct engine *en, const struct engine_options *o, struct err *e)
{
    char *override = NULL;
    int rc = common_template(o->chat_template, &override, e);
    if (rc || (!override && !en->script->template_text)) {
        return rc;
    }
    rc = chat_new(en->tok, en->script->template_text, override, &en->chat, e);
    if (!rc) {
        rc = chat_generation_prompt(en->chat, &en->header, e);
    }
    free(override);
    return rc;
}

static void describe(struct engine *en, const struct engine_options *o, const char *isa)
{
    struct engine_info *i = &en->info;
    struct hash_state h;
    uint8_t tokenizer[HASH_BYTES];

    i->name = i->id = en->name;
    i->arch = "scripted";
    i->quant = "?";
    i->isa = isa;
    i->n_threads = o->n_threads > 0 ? o->n_threads : 1;
    i->n_vocab = vocab_size(en->vocab);
    i->n_layers = (int)en->script->n_layers;
    i->n_embd = HEAD_DIM;
    i->n_heads = i->n_kv_heads = 1;
    i->head_dim = HEAD_DIM;
    i->n_ctx_train = i->n_ctx = (int)en->script->ctx;
    i->n_params = 1;
    i->file_bytes = i->weights_bytes = (uint64_t)en->script->weights_bytes;
    i->sampling_temperature = i->sampling_top_p = i->sampling_min_p = i->sampling_repetition =
        (double)NAN;
    tok_fingerprint(en->tok, tokenizer);
    hash_init(&h);
    hash_add(&h, "scripted", 9);
    hash_add(&h, en->script->weights, strlen(en->script->weights) + 1);
    hash_add(&h, tokenizer, sizeof tokenizer);
    hash_end(&h, i->fingerprint);
    if (en->chat) {
        chat_render_id(en->chat, i->render_id);
    } else {
        memcpy(i->render_id, tokenizer, sizeof tokenizer);
    }
}

static int read_script(const char *model_path, struct engine *en, struct err *e)
{
    char beside[4096];
    snprintf(beside, sizeof beside, "%s.script", model_path);
    const bool is_beside = access(beside, R_OK) == 0;
    return script_read(is_beside ? beside : model_path, en->vocab, &en->script, e);
}

static int open_parts(struct engine *en, const struct engine_options *o, struct err *e)
{
    int rc = vocab_new(&en->vocab, e);
    if (!rc) {
        rc = read_script(o->model_path, en, e);
    }
    if (!rc && o->memory_bytes && o->memory_bytes < (uint64_t)en->script->weights_bytes) {
        rc = err_set(e, ERR_LIMIT, "%s: the weights need %lld bytes, the memory budget is %llu",
                     o->model_path, (long long)en->script->weights_bytes,
                     (unsigned long long)o->memory_bytes);
    }
    if (!rc) {
        rc = kv_shape_init(&en->info.kv, o->kv_type, (int)en->script->n_layers, 1, HEAD_DIM, e);
    }
    if (!rc) {
        rc = load(en, o, e);
    }
    if (!rc) {
        rc = vocab_tok(en->vocab, &en->tok, e);
    }
    if (!rc) {
        rc = open_chat(en, o, e);
    }
    return rc;
}

/* Whatever kernels are asked for, a script needs none; but what they are called, and what this CPU
 * lacks, is as with a model. */
static int find_isa(const char *isa, const char **ret, struct err *e)
{
    const struct kernels *k;
    const int rc = kernels_find(isa ? isa : "c", &k, e);
    if (!rc) {
        *ret = k->name;
    }
    return rc;
}

static int ask(const struct engine *en, const struct engine_options *o, struct err *e)
{
    const struct engine_info *i = &en->info;
    const struct engine_needs n = {.weights_bytes = i->weights_bytes,
                                   .pass_bytes = engine_pass_bytes(en, o->pass_rows),
                                   .kv = i->kv,
                                   .n_vocab = i->n_vocab,
                                   .n_ctx_train = i->n_ctx_train,
                                   .n_ctx = i->n_ctx};
    return o->may_take ? o->may_take(o->may_take_ctx, &n, e) : 0;
}

int engine_open(const struct engine_options *o, struct engine **ret, struct err *e)
{
    struct engine *en = NULL;
    const char *isa;
    int rc = hash_start(e);
    if (!rc) {
        rc = find_isa(o->isa, &isa, e);
    }
    if (rc) {
        return rc;
    }
    en = calloc(1, sizeof *en);
    if (!en) {
        return err_set(e, ERR_NOMEM, "out of memory for the engine");
    }
    ids_init(&en->header);
    en->passed = o->passed;
    en->name = common_stem(o->model_path);
    rc = en->name ? open_parts(en, o, e) : err_set(e, ERR_NOMEM, "out of memory for the engine");
    if (rc) {
        engine_close(en);
        return rc;
    }
    describe(en, o, isa);
    rc = ask(en, o, e);
    if (rc) {
        engine_close(en);
        return rc;
    }
    *ret = en;
    return 0;
}

void engine_close(struct engine *en)
{
    if (!en) {
        return;
    }
    ids_done(&en->header);
    chat_free(en->chat);
    tok_free(en->tok);
    script_free(en->script);
    vocab_free(en->vocab);
    free(en->name);
    free(en);
}

size_t engine_pass_bytes(const struct engine *en, int n_rows)
{
    return (size_t)n_rows * (size_t)en->info.n_vocab; /* no passes are made: any small number */
}

const struct engine_info *engine_info(const struct engine *en)
{
    return &en->info;
}

const struct tok *engine_tok(const struct engine *en)
{
    return en->tok;
}

const struct chat *engine_chat(const struct engine *en)
{
    return en->chat;
}

/* ---- the answer ---- */

/* Where the answer after the last assistant header begins, or −1. */
static int answer_start(const struct engine *en, const int32_t *ids, int n)
{
    const int n_header = (int)en->header.n;
    for (int at = n - n_header; n_header && at >= 0; at--) {
        if (!memcmp(ids + at, en->header.v, en->header.n * sizeof *ids)) {
            return at + n_header;
        }
    }
    return -1;
}

/* The bytes of ids[from, to). */
static int text_of(const struct engine *en, const int32_t *ids, int from, int to, struct buf *ret,
                   struct err *e)
{
    for (int i = from; i < to; i++) {
        size_t n;
        const char *piece = tok_piece(en->tok, ids[i], &n);
        buf_add(ret, piece ? piece : "", n);
    }
    return buf_error(ret) ? err_set(e, ERR_NOMEM, "out of memory for the last message") : 0;
}

/* The last user message before `end`: from after "<|im_start|>user\n" to its <|im_end|>. An empty
 * text when there is none. */
static int last_user_text(const struct engine *en, const int32_t *ids, int end, struct buf *ret,
                          struct err *e)
{
    static const char role[] = "user\n";
    int to = end;
    for (int at = end - 1; at >= 0; at--) {
        if (ids[at] == VOCAB_IM_END) {
            to = at;
        }
        if (ids[at] != VOCAB_IM_START) {
            continue;
        }
        buf_clear(ret);
        const int rc = text_of(en, ids, at + 1, to < at ? at : to, ret, e);
        if (rc) {
            return rc;
        }
        if (ret->len >= sizeof role - 1 && !memcmp(ret->data, role, sizeof role - 1)) {
            buf_consume(ret, sizeof role - 1);
            return 0;
        }
        to = at;
    }
    buf_clear(ret);
    return 0;
}

struct answer {
    const struct rule *rule;
    int64_t k;
    int32_t id;
};

static int find_answer(const struct engine *en, const int32_t *ids, int n, struct answer *ret,
                       struct err *e)
{
    const int start = answer_start(en, ids, n);
    struct buf text;
    size_t end = 0;
    int rc;
    buf_init(&text, (size_t)64 << 20);
    rc = start >= 0 ? last_user_text(en, ids, start - (int)en->header.n, &text, e)
                    : text_of(en, ids, 0, n, &text, e);
    if (!rc) {
        ret->rule = script_find(en->script, text.data, text.len, &end);
        ret->k = start >= 0 ? n - start : n;
        if (start < 0 && ret->rule->when) {
            size_t at = 0, n_piece;
            for (ret->k = 0; ret->k < n && at < end; ret->k++) {
                tok_piece(en->tok, ids[ret->k], &n_piece);
                at += n_piece;
            }
            ret->k = n - ret->k;
        } else if (start < 0 && ret->rule->n_ids) {
            ret->k %= ret->rule->n_ids;
        }
        ret->id = script_id(ret->rule, ret->k);
    }
    buf_done(&text);
    return rc;
}

static void write_logits(const struct engine *en, const struct answer *a, uint64_t hash,
                         bool is_wrong, float *ret)
{
    const int n = en->info.n_vocab;
    for (int i = 0; i < n; i++) {
        ret[i] = -20.0f + (float)(mix(hash ^ mix((uint64_t)i)) >> 40) * 0x1p-23f; /* −20 to −18 */
    }
    if (is_wrong) {
        ret['A' + (int)(hash % 26)] = 10.0f;
        return;
    }
    for (int i = 'a'; i < 'a' + 16 && a->rule->is_spread; i++) {
        ret[i] = (float)(mix(hash + (uint64_t)i) >> 40) * 0x1p-24f; /* 0 to 1 */
    }
    ret[a->id] = a->rule->is_spread ? 1.5f : 10.0f;
    for (int i = 0; i < n && a->k == a->rule->all_nan_at; i++) {
        ret[i] = NAN;
    }
    if (a->k == a->rule->nan_at || a->k == a->rule->inf_at) {
        ret[a->rule->bad_id < n ? a->rule->bad_id : n - 1] =
            a->k == a->rule->nan_at ? NAN : INFINITY;
    }
}

/* ---- the pass ---- */

/* What a part looks like before anything is written. */
struct work {
    struct ids ids; /* of the whole sequence, with the part's */
    uint64_t hash;  /* of the prefix */
    bool is_wrong;
};

/* Reads the prefix back out of the blocks, believing nothing. */
static int read_prefix(const struct engine_part *p, struct work *w, struct err *e)
{
    uint64_t h = CHAIN_SEED;
    int rc = 0;
    for (int i = 0; i < p->seq->n_tokens && !rc; i++) {
        struct cell c;
        const bool is_whole = cell_read(p->seq, i, &c);
        h = chain(h, c.id);
        if (!w->is_wrong && (!is_whole || c.hash != h)) {
            static struct log_limit limit = {.burst = 20};
            w->is_wrong = true;
            if (log_allowed(&limit)) {
                log_error("scripted engine: position %d of %d doesn't continue its prefix (%s)", i,
                          p->seq->n_tokens,
                          c.place == 0 ? "never written"
                          : is_whole   ? "another sequence's block"
                                       : "torn or another position's");
            }
        }
        if (w->is_wrong) {
            h = mix(h ^ c.hash ^ c.place);
        }
        rc = ids_push(&w->ids, c.id);
    }
    w->hash = h;
    if (!rc) {
        rc = ids_add(&w->ids, p->ids, (size_t)p->n_ids);
    }
    return rc ? err_set(e, rc, "out of memory for a sequence's ids") : 0;
}

/* Computes the rows that are asked for, in the order of the ids; writes only to the part's logits.
 */
static int answer_part(struct engine *en, const struct engine_part *p, const struct work *w,
                       struct err *e)
{
    const int n_before = p->seq->n_tokens, first = p->n_ids - p->n_logits;
    uint64_t h = w->hash;
    for (int i = 0; i < p->n_ids; i++) {
        struct answer a = {0};
        h = chain(h, p->ids[i]);
        if (i < first) {
            continue;
        }
        const int rc = find_answer(en, w->ids.v, n_before + i + 1, &a, e);
        if (rc) {
            return rc;
        }
        if (a.k == a.rule->error_at) {
            return err_set(e, ERR_NOMEM, "out of memory, as the script has it");
        }
        while (a.k == a.rule->hang_at) {
            pause();
        }
        write_logits(en, &a, h, w->is_wrong,
                     p->logits + (size_t)(i - first) * (size_t)en->info.n_vocab);
    }
    return 0;
}

/* The time that the pass takes, progress rising with it. */
static int spend(struct engine *en, const struct engine_part *parts, int n_parts,
                 const atomic_int *abort_flag, struct err *e)
{
    int64_t us = en->script->pace_us, rows = 0;
    for (int i = 0; i < n_parts; i++) {
        rows += parts[i].n_ids;
        us += en->script->prefill_us_per_token * (parts[i].n_ids - 1);
    }
    const int64_t start = clock_us();
    int64_t counted = 0;
    for (;;) {
        const int64_t spent = clock_us() - start, due = spent >= us ? rows : rows * spent / us;
        atomic_fetch_add(&en->progress, (uint64_t)(due - counted));
        if (en->passed) {
            atomic_fetch_add(en->passed, (uint64_t)(due - counted));
        }
        counted = due;
        if (abort_flag && atomic_load(abort_flag)) {
            return err_set(e, ERR_CANCELED, "the pass was canceled");
        }
        if (spent >= us) {
            return 0;
        }
        const int64_t slice = us - spent < SLICE_US ? us - spent : SLICE_US;
        nanosleep(&(struct timespec){.tv_nsec = slice * 1000}, NULL);
    }
}

static void write_part(struct engine_part *p, const struct work *w, bool is_abandoned)
{
    uint64_t h = w->hash;
    for (int i = 0; i < p->n_ids; i++) {
        const int pos = p->seq->n_tokens + i;
        h = chain(h, p->ids[i]);
        cell_write(p->seq, pos, (struct cell){p->ids[i], (uint32_t)pos + 1, is_abandoned ? ~h : h});
    }
}

int engine_pass(struct engine *en, struct engine_part *parts, int n_parts, const atomic_int *abort,
                struct err *e)
{
    int rc = common_check_parts(parts, n_parts, en->info.n_vocab, en->info.n_ctx_train, e);
    if (rc) {
        return rc;
    }
    struct work *work = calloc((size_t)n_parts, sizeof *work);
    if (!work) {
        return err_set(e, ERR_NOMEM, "out of memory for the pass");
    }
    for (int i = 0; i < n_parts && !rc; i++) {
        rc = read_prefix(&parts[i], &work[i], e);
        if (!rc && work[i].is_wrong) {
            atomic_fetch_add(&en->n_wrong, 1);
        }
        if (!rc) {
            rc = answer_part(en, &parts[i], &work[i], e);
        }
    }
    if (!rc) {
        rc = spend(en, parts, n_parts, abort, e);
        for (int i = 0; i < n_parts; i++) {
            write_part(&parts[i], &work[i], rc != 0);
        }
    }
    for (int i = 0; i < n_parts; i++) {
        parts[i].seq->n_tokens += rc ? 0 : parts[i].n_ids;
        ids_done(&work[i].ids);
    }
    free(work);
    return rc;
}

int engine_set_threads(struct engine *en, int n_threads, struct err *e)
{
    if (n_threads < 1) {
        return err_set(e, ERR_INVAL, "%d threads, there must be at least 1", n_threads);
    }
    en->info.n_threads = n_threads;
    return 0;
}

int engine_set_isa(struct engine *en, const char *isa, struct err *e)
{
    return find_isa(isa, &en->info.isa, e);
}

uint64_t engine_progress(const struct engine *en)
{
    return atomic_load(&en->progress);
}

uint64_t scripted_n_wrong(const struct engine *en)
{
    return atomic_load(&en->n_wrong);
}

int engine_dequantize(const char *type, const void *data, size_t n, float *ret, size_t *n_values,
                      struct err *e)
{
    return common_dequantize(type, data, n, ret, n_values, e);
}
