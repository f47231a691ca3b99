/* The test side of GGUF vocabularies and golden files: what goes wrong here ends the program. */
#include "tests/engine/text/vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "engine/gguf.h"
#include "engine/model.h"

static _Noreturn void die(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

const char *vocab_model_path(void)
{
    const char *p = getenv("HEARTH_MODEL");
    return p && access(p, R_OK) == 0 ? p : NULL;
}

char *vocab_further_path(const char *name)
{
    const char *p = getenv("HEARTH_MODEL"), *slash = p ? strrchr(p, '/') : NULL;
    if (!slash)
        return NULL;
    const size_t n_dir = (size_t)(slash - p) + 1, size = n_dir + strlen(name) + 1;
    char *path = malloc(size);
    snprintf(path, size, "%.*s%s", (int)n_dir, p, name);
    if (access(path, R_OK) == 0)
        return path;
    printf("%s is not there (scripts/get-model fetches it)\n", path);
    free(path);
    return NULL;
}

const char *vocab_qwen2_path(void)
{
    const char *p = getenv("HEARTH_VOCAB_QWEN2");
    if (!p)
        die("HEARTH_VOCAB_QWEN2", "not set (run the tests by meson)");
    return p;
}

const char *vocab_golden_path(const char *name)
{
    static char path[4096];
    const char *dir = getenv("HEARTH_TESTS");
    snprintf(path, sizeof path, "%s/golden/%s", dir ? dir : "tests", name);
    return path;
}

static char *copy_str(struct tok_str s)
{
    char *p = malloc(s.n + 1);
    memcpy(p, s.s, s.n);
    p[s.n] = 0;
    return p;
}

static struct vocab load(const char *path, bool skip_nfc)
{
    struct err e = {0};
    struct gguf *g;
    struct tok_str template_text;
    struct vocab v = {0};
    if (hash_start(&e) < 0 || gguf_open(path, &g, &e) < 0 ||
        model_tok_nfc(g, skip_nfc, &v.tok, &e) < 0)
        die(path, e.text);
    if (gguf_str(g, "tokenizer.chat_template", &template_text, NULL) == 0)
        v.chat_template = copy_str(template_text);
    gguf_close(g);
    return v;
}

struct vocab vocab_load(const char *path)
{
    return load(path, false);
}

struct vocab vocab_load_plain(const char *path)
{
    return load(path, true);
}

void vocab_done(struct vocab *v)
{
    tok_free(v->tok);
    free(v->chat_template);
}

char *read_whole(const char *path, size_t *ret_n)
{
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END) != 0)
        die(path, "cannot be read");
    size_t n = (size_t)ftell(f);
    char *p = malloc(n + 1);
    rewind(f);
    if (fread(p, 1, n, f) != n)
        die(path, "short read");
    p[n] = 0;
    fclose(f);
    *ret_n = n;
    return p;
}

size_t golden_each(const char *name, void (*fn)(const struct offline_line *, void *), void *ctx)
{
    size_t n, count = 0;
    char *text = read_whole(vocab_golden_path(name), &n);
    for (char *line = text; line < text + n; count++) {
        char *end = memchr(line, '\n', (size_t)(text + n - line));
        struct offline_line l;
        struct err e;
        end = end ? end : text + n;
        if (offline_parse(line, (size_t)(end - line), &l, &e) < 0)
            die(name, e.text);
        fn(&l, ctx);
        offline_done(&l);
        line = end + 1;
    }
    free(text);
    return count;
}

struct ids ids_of_json(const json *array)
{
    struct ids ids;
    ids_init(&ids);
    for (const json *it = json_first(array); it; it = json_next(it))
        if (ids_push(&ids, (int32_t)json_double(it)) < 0)
            die("ids", "no memory");
    return ids;
}

static void print_ids(const char *label, const struct ids *ids)
{
    fprintf(stderr, "  %s (%zu):", label, ids->n);
    for (size_t i = 0; i < ids->n && i < 60; i++)
        fprintf(stderr, " %d", ids->v[i]);
    fprintf(stderr, "\n");
}

void assert_ids_equal(const struct ids *got, const struct ids *want, const char *what)
{
    if (got->n == want->n && (got->n == 0 || memcmp(got->v, want->v, got->n * sizeof *got->v) == 0))
        return;
    fprintf(stderr, "ids differ: %.200s\n", what);
    print_ids("got ", got);
    print_ids("want", want);
    abort();
}

uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state * 0x2545F4914F6CDD1Dull;
}

uint64_t random_seed(const char *test)
{
    const char *given = getenv("HEARTH_SEED");
    uint64_t seed =
        given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL) * 2654435761u + (uint64_t)getpid();
    seed |= 1;
    fprintf(stderr, "%s: HEARTH_SEED=%llu\n", test, (unsigned long long)seed);
    return seed;
}
