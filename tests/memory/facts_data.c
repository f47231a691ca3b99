/* See facts_data.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "tests/memory/facts_data.h"

#include "base/buf.h"

static uint64_t random_state;

/* splitmix64 */
size_t below(size_t n)
{
    uint64_t z = random_state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (size_t)((z ^ z >> 31) % n);
}

/* ---- data ---- */

struct lines facts[2], filler[2], mended[2], fresh[2];

static size_t read_lines(const char *name, struct line *v)
{
    char path[512];
    const char *folder = getenv("HEARTH_TESTS");
    snprintf(path, sizeof path, "%s/memory/%s", folder ? folder : "tests", name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t n = 0;
    while (n < LINES_MAX && fgets(v[n].text, sizeof v[n].text, f)) {
        struct line *l = &v[n];
        l->text[strcspn(l->text, "\n")] = 0;
        if (l->text[0] == '#' || !l->text[0])
            continue;
        l->role = MEMORY_USER;
        l->wanted = strstr(l->text, " => ");
        if (l->wanted) {
            *l->wanted = 0;
            l->wanted += 4;
        } else {
            assert_true(l->text[1] == ':' && l->text[2] == ' ');
            l->role = l->text[0] == 'A' ? MEMORY_ASSISTANT : MEMORY_USER;
            memmove(l->text, l->text + 3, strlen(l->text + 3) + 1);
        }
        n++;
    }
    fclose(f);
    return n;
}

int read_data(void **state)
{
    (void)state;
    static const char *const languages[] = {"en", "zh"};
    for (int k = 0; k < 2; k++) {
        char name[64];
        snprintf(name, sizeof name, "facts_%s.txt", languages[k]);
        facts[k].n = read_lines(name, facts[k].v);
        snprintf(name, sizeof name, "filler_%s.txt", languages[k]);
        filler[k].n = read_lines(name, filler[k].v);
        snprintf(name, sizeof name, "facts_more_%s.txt", languages[k]);
        mended[k].n = read_lines(name, mended[k].v);
        snprintf(name, sizeof name, "facts_fresh_%s.txt", languages[k]);
        fresh[k].n = read_lines(name, fresh[k].v);
    }
    const char *seed = getenv("HEARTH_SEED");
    random_state = seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL);
    print_message("HEARTH_SEED=%llu\n", (unsigned long long)random_state);
    return 0;
}

struct said say(int64_t row, const char *text)
{
    return (struct said){row, MEMORY_USER, text, strlen(text)};
}

struct facts extract(struct arena *a, const struct said *v, size_t n)
{
    struct facts f;
    struct err e = {0};
    assert_int_equal(facts_extract(v, n, a, &f, &e), 0);
    return f;
}

struct facts merge(struct arena *a, const struct facts *old, const struct facts *newer,
                   size_t max_bytes)
{
    struct facts f;
    struct err e = {0};
    assert_int_equal(facts_merge(old, newer, max_bytes, a, &f, &e), 0);
    return f;
}

char *composed(const struct facts *f)
{
    struct buf b;
    buf_init(&b, SIZE_MAX);
    buf_str(&b, "");
    facts_compose(f, &b);
    return buf_take(&b, NULL);
}

char *written(const struct facts *f, size_t *ret_n)
{
    struct buf b;
    buf_init(&b, SIZE_MAX);
    buf_str(&b, "");
    facts_write(f, &b);
    return buf_take(&b, ret_n);
}

size_t found(const char *text, const char *wanted, size_t *ret_of)
{
    char copy[512];
    size_t n = 0;
    *ret_of = 0;
    snprintf(copy, sizeof copy, "%s", wanted);
    for (char *at = copy, *next; at; at = next) {
        next = strchr(at, '|');
        if (next)
            *next++ = 0;
        (*ret_of)++;
        n += strstr(text, at) != NULL;
    }
    return n;
}
