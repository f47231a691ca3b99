/*
 * Writes a GGUF of any architecture, shape and type with pseudo-random weights and a synthetic
 * vocabulary, for benchmarks and limits that the default model is too small to show.
 *
 *     mkgguf OUT.gguf [--arch llama] [--type Q4_0] [--embd-type Q8_0] [--output-type TYPE]
 *            [--vocab 32768] [--embd 2048] [--ff 5632] [--layers 22] [--heads 32] [--kv-heads 4]
 *            [--head-dim 64] [--ctx 8192] [--seed 1] [--set KEY=VALUE …] [--factors NAME …]
 *            [--experts 0] [--used 2] [--ff-exp 0] [--shared 0] [--dense 0] [--router-bias]
 *            [--lite] [--unsplit]
 *
 * The defaults are TinyLlama's shape, 1.1 G parameters. Without --output-type the output is tied to
 * the embedding. --set adds or replaces a key behind "ARCH.": an integer, a number with a point,
 * text, true or false. --factors adds a vector of the rotation's factors: rope_freqs,
 * rope_factors_long, … --experts makes a mixture of that many, of which a token goes to --used and
 * to --shared more; the first --dense layers have none. --lite and --unsplit are deepseek2's:
 * queries without a rank, and keys' and values' up-projections in one tensor.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/quant.h"
#include "tests/engine/load/gguf_model.h"

static bool parse_int(const char *s, int *ret)
{
    char *end;
    const long v = strtol(s, &end, 10);
    if (end == s || *end || v < 0 || v > 10000000) {
        return false;
    }
    *ret = (int)v;
    return true;
}

static const struct quant_type *parse_type(const char *s)
{
    const struct quant_type *t = quant_type_by_name(s);
    if (!t) {
        fprintf(stderr, "mkgguf: type %s is none of %s\n", s, quant_names());
        exit(2);
    }
    return t;
}

enum { EXTRA_MAX = 32, FACTORS_MAX = 512 };

/* What --set and --factors ask for, in their order. */
struct extra {
    const char *text;
    bool is_factors;
};

static void put_extra(struct gguf_writer *w, const char *arch, const char *text)
{
    const char *value = strchr(text, '=');
    char key[128], *end;
    if (!value) {
        fprintf(stderr, "mkgguf: --set %s: KEY=VALUE, please\n", text);
        exit(2);
    }
    snprintf(key, sizeof key, "%s.%.*s", arch, (int)(value - text), text);
    gguf_remove(w, key);
    const double number = strtod(++value, &end);
    if (!strcmp(value, "true") || !strcmp(value, "false")) {
        gguf_put_int(w, key, GGUF_BOOL, *value == 't');
    } else if (*end || end == value) {
        gguf_put_str(w, key, value);
    } else if (strchr(value, '.')) {
        gguf_put_f32(w, key, (float)number);
    } else {
        gguf_put_u32(w, key, (uint32_t)number);
    }
}

/* From 1 upwards, so that each pair has its own. */
static void put_factors(struct gguf_writer *w, const char *name, int n)
{
    static float values[FACTORS_MAX];
    char tensor[64];
    for (int i = 0; i < n && i < FACTORS_MAX; i++) {
        values[i] = 1 + (float)i / 4;
    }
    snprintf(tensor, sizeof tensor, "%s.weight", name);
    gguf_put_tensor(w, tensor, QUANT_F32, 1, (uint64_t[]){(uint64_t)n})->values = values;
}

static bool save(const struct gguf_model *m, const struct extra *extras, int n, const char *path)
{
    const char *arch = m->arch ? m->arch : "llama";
    struct gguf_writer w;
    gguf_writer_init(&w);
    gguf_model_put(m, &w);
    for (int i = 0; i < n; i++) {
        if (extras[i].is_factors) {
            put_factors(&w, extras[i].text, gguf_model_n_rot(m) / 2);
        } else {
            put_extra(&w, arch, extras[i].text);
        }
    }
    const bool is_fine = gguf_writer_save(&w, path);
    gguf_writer_done(&w);
    return is_fine;
}

enum {
    OPT_ARCH = 100,
    OPT_SET,
    OPT_FACTORS,
    OPT_ROUTER_BIAS,
    OPT_LITE,
    OPT_UNSPLIT,
    OPT_TYPE = 1,
    OPT_EMBD_TYPE,
    OPT_OUTPUT_TYPE,
    OPT_FIRST_INT
};

/* What the command line asks for. */
struct job {
    struct gguf_model m;
    int seed;
    struct extra extras[EXTRA_MAX];
    int n_extras;
};

static bool take_int(struct job *j, int i, const char *arg)
{
    struct gguf_model *m = &j->m;
    int *const ints[] = {&m->n_vocab,    &m->n_embd,   &m->n_ff,   &m->n_layers,  &m->n_heads,
                         &m->n_kv_heads, &m->head_dim, &m->n_ctx,  &j->seed,      &m->n_experts,
                         &m->n_used,     &m->n_ff_exp, &m->n_shared, &m->n_dense};
    const int n_positive = 9; /* the others may be 0 */
    return i >= 0 && parse_int(arg, ints[i]) && (i >= n_positive || *ints[i] > 0);
}

static bool take_option(struct job *j, int o, const char *arg)
{
    switch (o) {
    case OPT_ARCH:
        j->m.arch = arg;
        return true;
    case OPT_SET:
    case OPT_FACTORS:
        if (j->n_extras == EXTRA_MAX) {
            return false;
        }
        j->extras[j->n_extras++] = (struct extra){arg, o == OPT_FACTORS};
        return true;
    case OPT_TYPE:
        j->m.type = parse_type(arg)->id;
        return true;
    case OPT_EMBD_TYPE:
        j->m.embd_type = parse_type(arg)->id;
        return true;
    case OPT_OUTPUT_TYPE:
        j->m.output_type = parse_type(arg)->id;
        return true;
    case OPT_ROUTER_BIAS:
        return j->m.has_router_bias = true;
    case OPT_LITE:
        return j->m.is_lite = true;
    case OPT_UNSPLIT:
        return j->m.is_unsplit = true;
    default:
        return o != '?' && take_int(j, o - OPT_FIRST_INT, arg);
    }
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"arch", 1, NULL, OPT_ARCH},
        {"set", 1, NULL, OPT_SET},
        {"factors", 1, NULL, OPT_FACTORS},
        {"type", 1, NULL, OPT_TYPE},
        {"embd-type", 1, NULL, OPT_EMBD_TYPE},
        {"output-type", 1, NULL, OPT_OUTPUT_TYPE},
        {"vocab", 1, NULL, OPT_FIRST_INT},
        {"embd", 1, NULL, OPT_FIRST_INT + 1},
        {"ff", 1, NULL, OPT_FIRST_INT + 2},
        {"layers", 1, NULL, OPT_FIRST_INT + 3},
        {"heads", 1, NULL, OPT_FIRST_INT + 4},
        {"kv-heads", 1, NULL, OPT_FIRST_INT + 5},
        {"head-dim", 1, NULL, OPT_FIRST_INT + 6},
        {"ctx", 1, NULL, OPT_FIRST_INT + 7},
        {"seed", 1, NULL, OPT_FIRST_INT + 8},
        {"experts", 1, NULL, OPT_FIRST_INT + 9},
        {"used", 1, NULL, OPT_FIRST_INT + 10},
        {"ff-exp", 1, NULL, OPT_FIRST_INT + 11},
        {"shared", 1, NULL, OPT_FIRST_INT + 12},
        {"dense", 1, NULL, OPT_FIRST_INT + 13},
        {"router-bias", 0, NULL, OPT_ROUTER_BIAS},
        {"lite", 0, NULL, OPT_LITE},
        {"unsplit", 0, NULL, OPT_UNSPLIT},
        {NULL, 0, NULL, 0},
    };
    struct job j = {.m = {.n_vocab = 32768,
                          .n_embd = 2048,
                          .n_ff = 5632,
                          .n_layers = 22,
                          .n_heads = 32,
                          .n_kv_heads = 4,
                          .head_dim = 64,
                          .n_ctx = 8192,
                          .n_used = 2,
                          .type = QUANT_Q4_0,
                          .embd_type = QUANT_Q8_0,
                          .output_type = -1},
                    .seed = 1};
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (!take_option(&j, o, optarg)) {
            fprintf(stderr, "mkgguf: unknown option or bad number%s%s\n", o == '?' ? "" : ": ",
                    o == '?' ? "" : optarg);
            return 2;
        }
    }
    if (argc - optind != 1) {
        fprintf(stderr, "mkgguf: one output file, please\n");
        return 2;
    }
    j.m.seed = (uint64_t)j.seed;
    if (!save(&j.m, j.extras, j.n_extras, argv[optind])) {
        fprintf(stderr, "mkgguf: %s: %s\n", argv[optind], strerror(errno));
        return 1;
    }
    return 0;
}
