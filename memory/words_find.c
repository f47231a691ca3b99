/*
 * Finding words of the tables (words.h): one step a word, one pass a text, however long the tables
 * grow.
 *
 *     words    hash of all letters ──► slot of 2,048, open addressing
 *     strings  hash of the first character ──► chain of those that begin with it
 *
 * Both are made from the data once, by whoever asks first, and only read from then on.
 */
#include <assert.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "memory/words.h"

#define WORD_BYTES_MAX 24
#define SLOTS 2048u /* at least twice the words */
#define STRINGS_MAX 512
#define HEADS 256u

struct string {
    const char *text;
    unsigned flag;
    uint16_t n, next; /* next: index + 1 of the chain's next, 0: the last */
};

static struct {
    uint16_t words[SLOTS]; /* index + 1; 0: free */
    uint8_t n_word[SLOTS];
    struct string strings[STRINGS_MAX];
    size_t n_strings;
    uint16_t heads[HEADS];
} tables;
static pthread_once_t made = PTHREAD_ONCE_INIT;

static uint32_t mix(uint32_t h, char c)
{
    return (h ^ (unsigned char)c) * 0x01000193u;
}

static uint32_t spread(uint32_t h)
{
    return h ^ h >> 15;
}

/* An ASCII character, or the three bytes of another: all that the lists hold are so long. */
static uint32_t head_of(const char *s)
{
    uint32_t h = mix(0x811C9DC5u, s[0]);
    if ((unsigned char)s[0] >= 0x80)
        h = mix(mix(h, s[1]), s[2]);
    return spread(h) % HEADS;
}

static void add_word(size_t i)
{
    const char *s = words_en[i].text;
    uint32_t h = 0x811C9DC5u;
    size_t n = 0;
    while (s[n])
        h = mix(h, s[n++]);
    uint32_t slot = spread(h) % SLOTS;
    while (tables.words[slot])
        slot = (slot + 1) % SLOTS;
    tables.words[slot] = (uint16_t)(i + 1);
    tables.n_word[slot] = (uint8_t)n;
}

static void add_string(const char *s, unsigned flag)
{
    assert(tables.n_strings < STRINGS_MAX);
    uint32_t head = head_of(s);
    tables.strings[tables.n_strings] =
        (struct string){s, flag, (uint16_t)strlen(s), tables.heads[head]};
    tables.heads[head] = (uint16_t)++tables.n_strings;
}

static void make_tables(void)
{
    assert(n_words_en * 2 <= SLOTS);
    for (size_t i = 0; i < n_words_en; i++)
        add_word(i);
    for (size_t k = 0; k < n_zh_lists; k++)
        for (const char *const *s = zh_lists[k].strings; *s; s++)
            add_string(*s, zh_lists[k].flag);
}

/* ASCII lower case, ’ as '; 0: too long to be in the table. *ret_hash: of the result. */
static size_t fold_word(const char *s, size_t n, char ret[WORD_BYTES_MAX], uint32_t *ret_hash)
{
    size_t len = 0;
    uint32_t h = 0x811C9DC5u;
    for (size_t i = 0; i < n; i++) {
        char c = s[i] >= 'A' && s[i] <= 'Z' ? (char)(s[i] + 32) : s[i];
        if (len == WORD_BYTES_MAX - 1)
            return 0;
        if (c == '\xE2' && n - i >= 3 && memcmp(s + i, "\xE2\x80\x99", 3) == 0) {
            c = '\'';
            i += 2;
        }
        h = mix(h, c);
        ret[len++] = c;
    }
    *ret_hash = h;
    return len;
}

unsigned word_flags(const char *s, size_t n)
{
    char word[WORD_BYTES_MAX];
    uint32_t h = 0;
    size_t len = fold_word(s, n, word, &h);
    if (!len)
        return 0;
    pthread_once(&made, make_tables);
    for (uint32_t slot = spread(h) % SLOTS; tables.words[slot]; slot = (slot + 1) % SLOTS) {
        const struct word *w = &words_en[tables.words[slot] - 1];
        if (tables.n_word[slot] == len && memcmp(w->text, word, len) == 0)
            return w->flags;
    }
    return 0;
}

static bool is_ascii(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] >= 0x80)
            return false;
    return true;
}

unsigned zh_flags(const char *s, size_t n)
{
    unsigned flags = 0;
    if (is_ascii(s, n))
        return 0;
    pthread_once(&made, make_tables);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        bool is_begin = c < 0x80 || (c >= 0xE0 && n - i >= 3);
        for (uint16_t k = is_begin ? tables.heads[head_of(s + i)] : 0; k;) {
            const struct string *x = &tables.strings[k - 1];
            if (n - i >= x->n && memcmp(s + i, x->text, x->n) == 0)
                flags |= x->flag;
            k = x->next;
        }
    }
    return flags;
}
