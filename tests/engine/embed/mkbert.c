/*
 * Writes a small embedding model with pseudo-random weights.
 *
 *     mkbert OUT.gguf [--embd 32] [--ff 64] [--layers 2] [--heads 4] [--ctx 64] [--type F32]
 *            [--pooling 1] [--seed 1] [--marks-pieces 1] [--words FILE]
 *
 * --words: more pieces of the vocabulary, one a line.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "engine/quant.h"
#include "tests/engine/embed/bert_model.h"

int main(int argc, char **argv)
{
    struct bert_model m = bert_model_default;
    struct gguf_writer w;
    struct buf words;
    int seed = 1, marks = 0;
    int *const ints[] = {&m.n_embd, &m.n_ff,    &m.n_layers, &m.n_heads,
                         &m.n_ctx,  &m.pooling, &seed,       &marks};
    static const struct option options[] = {
        {"embd", 1, NULL, 0},    {"ff", 1, NULL, 1},    {"layers", 1, NULL, 2},
        {"heads", 1, NULL, 3},   {"ctx", 1, NULL, 4},   {"pooling", 1, NULL, 5},
        {"seed", 1, NULL, 6},    {"marks-pieces", 1, NULL, 7}, {"type", 1, NULL, 8},
        {"words", 1, NULL, 9},   {NULL, 0, NULL, 0}};
    buf_init(&words, 1 << 20);
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (o >= 0 && o < 8) {
            *ints[o] = (int)strtol(optarg, NULL, 10);
        } else if (o == 8 && quant_type_by_name(optarg)) {
            m.type = quant_type_by_name(optarg)->id;
        } else if (o != 9 || file_read(optarg, &words, NULL) < 0) {
            fprintf(stderr, "mkbert: a bad option\n");
            return 2;
        }
    }
    if (argc - optind != 1) {
        fprintf(stderr, "mkbert: one output file, please\n");
        return 2;
    }
    m.seed = (uint64_t)seed;
    m.marks_pieces = marks != 0;
    m.words = words.len > 0 ? words.data : NULL;
    gguf_writer_init(&w);
    bert_model_put(&m, &w);
    const bool ok = gguf_writer_save(&w, argv[optind]);
    gguf_writer_done(&w);
    buf_done(&words);
    if (!ok)
        perror("mkbert");
    return ok ? 0 : 1;
}
