/*
 * Writes a GGUF of any architecture, shape and type with pseudo-random weights and a synthetic
 * vocabulary, for benchmarks and limits that the default model is too small to show.
 *
 *     mkgguf OUT.gguf [--arch llama] [--type Q4_0] [--embd-type Q8_0] [--output-type TYPE]
 *            [--vocab 32768] [--embd 2048] [--ff 5632] [--layers 22] [--heads 32] [--kv-heads 4]
 *            [--head-dim 64] [--ctx 8192] [--seed 1]
 *
 * The defaults are TinyLlama's shape, 1.1 G parameters. Without --output-type the output is tied to
 * the embedding.
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
    if (end == s || *end || v < 1 || v > 10000000) {
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

enum { OPT_ARCH = 100, OPT_TYPE = 1, OPT_EMBD_TYPE, OPT_OUTPUT_TYPE, OPT_FIRST_INT };

int main(int argc, char **argv)
{
    struct gguf_model m = {.n_vocab = 32768,
                           .n_embd = 2048,
                           .n_ff = 5632,
                           .n_layers = 22,
                           .n_heads = 32,
                           .n_kv_heads = 4,
                           .head_dim = 64,
                           .n_ctx = 8192,
                           .type = QUANT_Q4_0,
                           .embd_type = QUANT_Q8_0,
                           .output_type = -1};
    int seed = 1;
    int *const ints[] = {&m.n_vocab,    &m.n_embd,   &m.n_ff,  &m.n_layers, &m.n_heads,
                         &m.n_kv_heads, &m.head_dim, &m.n_ctx, &seed};
    static const struct option options[] = {
        {"arch", 1, NULL, OPT_ARCH},
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
        {NULL, 0, NULL, 0},
    };
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (o == OPT_ARCH) {
            m.arch = optarg;
        } else if (o == OPT_TYPE) {
            m.type = parse_type(optarg)->id;
        } else if (o == OPT_EMBD_TYPE) {
            m.embd_type = parse_type(optarg)->id;
        } else if (o == OPT_OUTPUT_TYPE) {
            m.output_type = parse_type(optarg)->id;
        } else if (o < OPT_FIRST_INT || !parse_int(optarg, ints[o - OPT_FIRST_INT])) {
            fprintf(stderr, "mkgguf: unknown option or bad number%s%s\n", o == '?' ? "" : ": ",
                    o == '?' ? "" : optarg);
            return 2;
        }
    }
    if (argc - optind != 1) {
        fprintf(stderr, "mkgguf: one output file, please\n");
        return 2;
    }
    m.seed = (uint64_t)seed;
    if (!gguf_model_save(&m, argv[optind])) {
        fprintf(stderr, "mkgguf: %s: %s\n", argv[optind], strerror(errno));
        return 1;
    }
    return 0;
}
