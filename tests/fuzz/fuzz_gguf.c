/* A GGUF file of any bytes is refused with a text, or everything it says can be read without
 * leaving it. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/gguf.h"
#include "engine/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Touches both ends of what is claimed to be there. */
static void touch(const struct gguf *g, const unsigned char *p, uint64_t n)
{
    const unsigned char *file = gguf_file_data(g);
    if (p < file || n > gguf_file_bytes(g) || p > file + gguf_file_bytes(g) - n) {
        abort();
    }
    volatile unsigned char sum = 0;
    if (n) {
        sum = (unsigned char)(p[0] + p[n - 1]);
    }
    (void)sum;
}

static void look_up(const struct gguf *g)
{
    static const char *const keys[] = {"general.architecture",  "general.name",
                                       "llama.block_count",     "tokenizer.ggml.tokens",
                                       "tokenizer.ggml.scores", "a"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct tok_str s, *strings = NULL;
        int32_t *ints = NULL;
        int64_t v = 0;
        double d = 0;
        bool b = false;
        size_t k = 0;
        int n_found = gguf_int(g, keys[i], INT64_MIN, INT64_MAX, &v, NULL) == 0;
        n_found += gguf_float(g, keys[i], -1e300, 1e300, &d, NULL) == 0;
        n_found += gguf_bool(g, keys[i], &b, NULL) == 0;
        if (gguf_str(g, keys[i], &s, NULL) == 0) {
            n_found++;
            touch(g, (const unsigned char *)s.s, s.n);
        }
        if (gguf_str_array(g, keys[i], &strings, &k, NULL) == 0) {
            n_found++;
            for (size_t j = 0; j < k; j++) {
                touch(g, (const unsigned char *)strings[j].s, strings[j].n);
            }
        }
        n_found += gguf_int_array(g, keys[i], &ints, &k, NULL) == 0;
        if (n_found > 1) {
            abort(); /* a value has one type */
        }
        free(strings);
        free(ints);
    }
}

static void read_model(const struct gguf *g)
{
    struct model_params p;
    struct tok *t = NULL;
    char *text = NULL;
    struct err e = {0};
    if (model_read_params(g, &p, &e) && !e.text[0]) {
        abort();
    }
    if (model_tok(g, &t, &e) == 0) {
        tok_free(t);
    }
    if (model_template(g, &text, &e) == 0) {
        free(text);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char path[64];
    struct gguf *g = NULL;
    struct err e = {0};
    const int fd = memfd_create("gguf", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, n) != (ssize_t)n) {
        abort();
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (gguf_open(path, &g, &e) == 0) {
        for (size_t i = 0; i < gguf_n_tensors(g); i++) {
            const struct gguf_tensor *t = gguf_tensor_at(g, i);
            touch(g, t->data, t->n_bytes);
            if (gguf_tensor(g, t->name) != t) {
                abort();
            }
        }
        look_up(g);
        read_model(g);
    } else if (g || !e.text[0]) {
        abort();
    }
    gguf_close(g);
    close(fd);
    return 0;
}
