/*
 * Rotary positions (RoFormer, arXiv 2104.09864, section 3.2): the frequencies by which a model
 * turns the pairs of a head, and the tables of cos and sin.
 *
 *     frequency i = base^(−2 i / n_rot), then
 *       the file's own factors   ÷ rope_freqs[i]                       Llama 3.1 and later
 *       linear                   ÷ factor
 *       YaRN                     between ÷ factor and as it is, by turns over the original context
 *                                (arXiv 2309.00071, section 3.2)
 *       long                     ÷ the file's long or short factors, by the context that the engine
 *                                is opened with (LongRoPE, arXiv 2402.13753)
 *
 * All of it is fixed when the model is loaded: a frequency that followed the length of a prompt
 * would make a token's KV depend on what comes after it. cos and sin are computed in double and
 * rounded once, so that no libm's last bit gets in.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "engine/model.h"
#include "engine/pool.h"

#define HALF_MAX 512 /* n_rot <= 1024, checked with the parameters */

static int scaling_of(const struct tok_str *type, struct model_rope *r, struct err *e)
{
    static const struct {
        const char *name;
        int scaling;
    } kinds[] = {{"none", ROPE_PLAIN},
                 {"linear", ROPE_LINEAR},
                 {"yarn", ROPE_YARN},
                 {"longrope", ROPE_LONG}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (type->n == strlen(kinds[i].name) && !memcmp(type->s, kinds[i].name, type->n)) {
            r->scaling = kinds[i].scaling;
            return 0;
        }
    }
    return err_set(e, ERR_UNSUPPORTED,
                   "rope scaling \"%.*s\" isn't supported; none, linear, yarn and longrope are",
                   type->n < 80 ? (int)type->n : 80, type->s);
}

int model_read_rope(const struct gguf *g, struct model_params *p, struct err *e)
{
    struct model_rope *r = &p->rope;
    struct tok_str type = {"linear", 6}; /* what a factor alone means */
    char key[MODEL_KEY_BYTES];
    *r = (struct model_rope){.base = 10000, .factor = 1, .attn_factor = 1, .beta_fast = 32,
                             .beta_slow = 1};
    const struct {
        const char *key;
        double min, max, *value;
    } keys[] = {
        {"rope.freq_base", 1.0, 1e12, &r->base},
        {"rope.scale_linear", 1e-3, 1e6, &r->factor}, /* the older name of the next */
        {"rope.scaling.factor", 0.0, 1e6, &r->factor},
        {"rope.scaling.attn_factor", 0.0, 1e3, &r->attn_factor},
        {"rope.scaling.yarn_beta_fast", 1e-3, 1e6, &r->beta_fast},
        {"rope.scaling.yarn_beta_slow", 1e-3, 1e6, &r->beta_slow},
        {"rope.freq_base_swa", 1.0, 1e12, &r->window_base},
    };
    r->window_base = p->arch->window_base;
    int rc = gguf_str(g, model_key(p->arch, "rope.scaling.type", key), &type, e);
    if (!rc || rc == ERR_NOTFOUND) {
        rc = scaling_of(&type, r, e);
    }
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !rc; i++) {
        rc = model_float(g, model_key(p->arch, keys[i].key, key), keys[i].min, keys[i].max,
                         keys[i].value, e);
    }
    if (!rc) {
        rc = model_int(g, model_key(p->arch, "rope.scaling.original_context_length", key),
                       INT32_MAX, p->n_ctx_train, &r->n_ctx_orig, e);
    }
    if (rc) {
        return rc;
    }
    /* Files write 0 for none. */
    r->attn_factor = r->attn_factor > 0 ? r->attn_factor : 1;
    /* Where a key says so, MLA's scores have YaRN's factor in their scale (latent_scale of
     * model_params.c), not in cos and sin: DeepSeek divides one by the other. */
    double in_scores = 0;
    rc = model_float(g, model_key(p->arch, "rope.scaling.yarn_log_multiplier", key), 0, 1e3,
                     &in_scores, e);
    if (rc) {
        return rc;
    }
    if (p->arch->is_latent && in_scores > 0 && r->scaling == ROPE_YARN && r->factor > 1) {
        r->attn_factor /= 1 + 0.1 * log(r->factor);
    }
    if (r->scaling == ROPE_PLAIN || r->scaling == ROPE_LONG || r->factor <= 0) {
        r->factor = 1;
    }
    return 0;
}

/* The pair that makes `turns` turns over the original context. */
static double yarn_pair(const struct model_params *p, double turns)
{
    const double pi = 3.14159265358979323846;
    return p->n_rot * log(p->rope.n_ctx_orig / (turns * 2 * pi)) / (2 * log(p->rope.base));
}

/* How much of pair i stays as it is: 1 for the quick ones, 0 for the slow, a ramp between. */
static double yarn_share(const struct model_params *p, int i)
{
    const double from = fmax(0, floor(yarn_pair(p, p->rope.beta_fast))),
                 to = fmin(p->n_rot - 1, ceil(yarn_pair(p, p->rope.beta_slow)));
    return 1 - fmin(1, fmax(0, (i - from) / fmax(0.001, to - from)));
}

/* Frequencies [n_rot / 2]; returns what cos and sin are multiplied by. */
static double frequencies(const struct model *m, bool is_window, double *ret)
{
    const struct model_params *p = &m->params;
    const struct model_rope *r = &p->rope;
    const bool is_own = is_window && r->window_base > 0;
    const double base = is_own ? r->window_base : r->base, factor = is_own ? 1 : r->factor;
    for (int i = 0; i < p->n_rot / 2; i++) {
        double f = pow(base, -2.0 * i / p->n_rot);
        if (m->rope_factors && !is_own) {
            f /= (double)m->rope_factors[i];
        }
        if (r->scaling == ROPE_YARN && !is_own) {
            const double share = yarn_share(p, i);
            f = f * share + f / factor * (1 - share);
        } else {
            f /= factor;
        }
        ret[i] = f;
    }
    return r->attn_factor * (r->scaling == ROPE_YARN && !is_own ? 1 + 0.1 * log(factor) : 1);
}

static void fill_row(const double *frequency, int half, double by, int pos, float *ret)
{
    for (int i = 0; i < half; i++) {
        ret[2 * i] = (float)(by * cos(pos * frequency[i]));
        ret[2 * i + 1] = (float)(by * sin(pos * frequency[i]));
    }
}

void model_rope_row(const struct model *m, bool is_window, int pos, float *ret)
{
    double frequency[HALF_MAX];
    assert(m->params.n_rot / 2 <= HALF_MAX);
    const double by = frequencies(m, is_window, frequency);
    fill_row(frequency, m->params.n_rot / 2, by, pos, ret);
}

static bool has_window_table(const struct model_params *p)
{
    return p->window > 0 && p->rope.window_base > 0;
}

size_t model_rope_floats(const struct model_params *p)
{
    return (size_t)p->n_ctx * (size_t)p->n_rot * (has_window_table(p) ? 2 : 1);
}

/* A table on its way, by items of ITEM_ROWS positions: threads share them, since one alone takes
 * longer for long heads than it takes to pack a small model. */
struct filling {
    const struct model_params *p;
    double frequency[HALF_MAX], by;
    float *table;
    const atomic_int *abort;
};
#define ITEM_ROWS 256

static bool is_aborted(const atomic_int *abort)
{
    return abort && atomic_load(abort);
}

static void fill_item(void *ctx, int item, int thread)
{
    const struct filling *f = ctx;
    const int n_rot = f->p->n_rot, first = item * ITEM_ROWS, left = f->p->n_ctx - first;
    (void)thread;
    for (int i = 0; i < (left < ITEM_ROWS ? left : ITEM_ROWS) && !is_aborted(f->abort); i++) {
        fill_row(f->frequency, n_rot / 2, f->by, first + i,
                 f->table + (size_t)(first + i) * (size_t)n_rot);
    }
}

static int fill_table(const struct model *m, bool is_window, float *table, const struct rope_by *by,
                      struct err *e)
{
    struct filling f = {.p = &m->params, .table = table, .abort = by->abort};
    assert(f.p->n_rot / 2 <= HALF_MAX);
    f.by = frequencies(m, is_window, f.frequency);
    const int n_items = (f.p->n_ctx + ITEM_ROWS - 1) / ITEM_ROWS;
    if (by->pool) {
        pool_run(by->pool, fill_item, &f, n_items);
    }
    for (int i = 0; !by->pool && i < n_items; i++) {
        fill_item(&f, i, 0);
    }
    return is_aborted(by->abort) ? err_set(e, ERR_CANCELED, "loading was canceled") : 0;
}

/* Whether layer i is one of every n-th. */
static bool is_nth(int i, int period)
{
    return period > 0 && (i + 1) % period == 0;
}

int model_make_rope(struct model *m, float *tables, const struct rope_by *by, struct err *e)
{
    const struct model_params *p = &m->params;
    m->rope = tables;
    m->window_rope = NULL;
    int rc = fill_table(m, false, m->rope, by, e);
    if (!rc && has_window_table(p)) {
        m->window_rope = tables + (size_t)p->n_ctx * (size_t)p->n_rot;
        rc = fill_table(m, true, m->window_rope, by, e);
    }
    for (int i = 0; i < p->n_layers; i++) {
        struct model_layer *l = &m->layers[i];
        l->window = is_nth(i, p->window_period) ? 0 : p->window;
        l->rope = is_nth(i, p->arch->unrotated_period)       ? NULL
                  : l->window && m->window_rope ? m->window_rope
                                                : m->rope;
    }
    return rc;
}
