/*
 * Terms of a text.
 *
 * The text is walked once, a code point at a time; each is folded to a few others. Letters and
 * digits gather in a run of parts:
 *
 *     "foo-INC4471's"    bytes  f o o i n c 4 4 7 1 s      folded, without the joints
 *                        parts  foo | inc | 4471 | s       joint before: 0, '-', 0, '\''
 *
 * which ends at anything else, or at two joints in a row, and is then told: whole when it has
 * several parts, and part by part. A run has bounded room; what is longer is told in pieces.
 * Dense text (CJK) is told at once, character by character, remembering the one before.
 *
 * The only file that includes libstemmer.h.
 */
#include "memory/segment.h"

#include <assert.h>
#include <libstemmer.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"
#include "base/utf8.h"

#define PARTS_MAX 12
#define RUN_BYTES 192
#define STOP_WORD_MAX 10 /* bytes of the longest of them */
#define JOINT_CP 0xE000  /* private use: a token character to unicode61, and in no text (dropped) */
#define JOINT_UTF8 "\xEE\x80\x80"

#define STEMS 4096 /* a power of two */
#define STEM_WORD_MAX 15

/* A word and how much of its stem there is: most words come again and again, and stemming one takes
 * as long as reading a line. */
struct stem {
    char word[STEM_WORD_MAX], stem[STEM_WORD_MAX];
    uint8_t n_word, n_stem; /* n_word 0: free */
};

struct segmenter {
    struct sb_stemmer *english;
    struct stem stems[STEMS]; /* by a hash of the word: the newest */
};

struct part {
    size_t at, n; /* of run.bytes */
    size_t from, to;
    uint32_t joint; /* before it; 0: none */
    bool is_digits, is_ascii, is_capital;
};

struct walk {
    struct segmenter *s;
    bool (*each)(void *user, const struct segment *t);
    void *user;
    bool is_stopped;

    char bytes[RUN_BYTES];
    size_t n_bytes;
    struct part parts[PARTS_MAX];
    int n_parts;
    uint32_t joint; /* seen after the last part; 0: none */

    char dense[4]; /* the dense character before this one */
    size_t n_dense, dense_from;
};

/* Folded, apostrophes taken out; sorted. What questions and answers are made of, not what they are
 * about. */
static const char *const stop_words[] = {
    "a",          "about",    "after",    "again",    "all",     "also",    "am",        "an",
    "and",        "any",      "anyone",   "anything", "are",     "arent",   "as",        "at",
    "be",         "because",  "been",     "before",   "being",   "both",    "but",       "by",
    "can",        "cannot",   "cant",     "could",    "couldnt", "did",     "didnt",     "do",
    "does",       "doesnt",   "doing",    "done",     "dont",    "each",    "either",    "else",
    "etc",        "ever",     "for",      "from",     "get",     "gets",    "getting",   "go",
    "goes",       "going",    "got",      "had",      "hadnt",   "has",     "hasnt",     "have",
    "havent",     "having",   "he",       "her",      "here",    "hers",    "herself",   "him",
    "himself",    "his",      "how",      "i",        "if",      "in",      "into",      "is",
    "isnt",       "it",       "its",      "itself",   "just",    "many",    "may",       "maybe",
    "me",         "might",    "more",     "most",     "much",    "must",    "my",        "myself",
    "no",         "nor",      "not",      "now",      "of",      "off",     "oh",        "ok",
    "okay",       "on",       "once",     "one",      "only",    "or",      "other",     "our",
    "ours",       "out",      "over",     "own",      "please",  "really",  "s",         "same",
    "she",        "should",   "shouldnt", "so",       "some",    "someone", "something", "such",
    "t",          "tell",     "than",     "that",     "the",     "their",   "theirs",    "them",
    "themselves", "then",     "there",    "these",    "they",    "thing",   "things",    "this",
    "those",      "though",   "through",  "to",       "too",     "up",      "us",        "very",
    "was",        "wasnt",    "we",       "well",     "were",    "werent",  "what",      "when",
    "where",      "which",    "while",    "who",      "whom",    "whose",   "why",       "will",
    "with",       "wont",     "would",    "wouldnt",  "yeah",    "yes",     "you",       "your",
    "yours",      "yourself",
};

/* Characters of Chinese grammar; a pair of two of them is a stop word, too (什么, 我们, 是不). */
static const char stop_dense[] =
    "的了吗呢吧啊呀嘛哦嗯是我你您他她它们这那哪谁什么怎样为与和跟或在也都就"
    "不没很还又再才只但而且因所以如果被把让给从到对得地着过有会能要想说"
    "个些几多之其此时候请问呗哈";

/* Pairs that questions are made of, with a character that isn't one of them. */
static const char stop_pairs[] = "多少多久哪里哪儿这里那里如何为何何时知道觉得告诉一个一下一些"
                                 "有关关于打算曾经已经正在发生里面";

struct segmenter *segmenter_new(void)
{
    struct segmenter *s = sys.malloc(sizeof(*s));
    if (!s)
        return NULL;
    memset(s->stems, 0, sizeof(s->stems));
    s->english = sb_stemmer_new("english", "UTF_8");
    if (!s->english) {
        free(s);
        return NULL;
    }
    return s;
}

void segmenter_free(struct segmenter *s)
{
    if (!s)
        return;
    sb_stemmer_delete(s->english);
    free(s);
}

static int compare_word(const void *key, const void *item)
{
    return strcmp(key, *(const char *const *)item);
}

static bool is_stop_word(const char *word, size_t n)
{
    return n <= STOP_WORD_MAX &&
           bsearch(word, stop_words, sizeof(stop_words) / sizeof(stop_words[0]),
                   sizeof(stop_words[0]), compare_word) != NULL;
}

static bool is_stop_dense(const char *character, size_t n)
{
    for (size_t i = 0; i + n <= sizeof(stop_dense) - 1; i += 3)
        if (n == 3 && memcmp(stop_dense + i, character, 3) == 0)
            return true;
    return false;
}

static bool is_stop_pair(const char *pair, size_t n)
{
    for (size_t i = 0; i + n <= sizeof(stop_pairs) - 1; i += 6)
        if (n == 6 && memcmp(stop_pairs + i, pair, 6) == 0)
            return true;
    return false;
}

static void tell(struct walk *w, const struct segment *t)
{
    if (!w->is_stopped && t->n > 0)
        w->is_stopped = !w->each(w->user, t);
}

/* The stem instead of the word; NULL from the stemmer: no memory, the word then stands for it. */
static void make_stem(struct segmenter *s, char *term, size_t *n)
{
    const sb_symbol *stem = sb_stemmer_stem(s->english, (const sb_symbol *)term, (int)*n);
    const int n_stem = sb_stemmer_length(s->english);
    if (stem && n_stem > 0 && n_stem <= (int)*n) {
        *n = (size_t)n_stem;
        memcpy(term, stem, *n);
        term[*n] = '\0';
    }
}

static void stem_word(struct segmenter *s, char *term, size_t *n)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    const size_t n_word = *n;
    if (n_word > STEM_WORD_MAX) {
        make_stem(s, term, n);
        return;
    }
    for (size_t i = 0; i < n_word; i++)
        hash = (hash ^ (unsigned char)term[i]) * 16777619u;
    struct stem *known = &s->stems[(hash ^ hash >> 12) & (STEMS - 1)];
    if (known->n_word == n_word && memcmp(known->word, term, n_word) == 0) {
        *n = known->n_stem;
        memcpy(term, known->stem, *n);
        term[*n] = '\0';
        return;
    }
    memcpy(known->word, term, n_word);
    known->n_word = (uint8_t)n_word;
    make_stem(s, term, n);
    memcpy(known->stem, term, *n);
    known->n_stem = (uint8_t)*n;
}

/* A part by itself: words as stems. */
static void tell_part(struct walk *w, const struct part *p)
{
    char term[SEGMENT_TERM_MAX + 1];
    struct segment t = {
        .term = term, .n = p->n, .from = p->from, .to = p->to, .is_capital = p->is_capital};
    assert(p->n <= SEGMENT_TERM_MAX);
    memcpy(term, w->bytes + p->at, p->n);
    term[p->n] = '\0';
    if (!p->is_digits && p->is_ascii) {
        t.is_stop = is_stop_word(term, p->n);
        stem_word(w->s, term, &t.n);
    }
    tell(w, &t);
}

static void tell_whole(struct walk *w)
{
    char term[SEGMENT_TERM_MAX + 1];
    size_t n = 0;
    for (int i = 0; i < w->n_parts; i++) {
        const struct part *p = &w->parts[i];
        bool is_between_digits = i > 0 && p->is_digits && w->parts[i - 1].is_digits;
        if (n + p->n + (is_between_digits ? 3 : 0) > SEGMENT_TERM_MAX)
            return;
        if (is_between_digits) {
            memcpy(term + n, JOINT_UTF8, 3);
            n += 3;
        }
        memcpy(term + n, w->bytes + p->at, p->n);
        n += p->n;
    }
    term[n] = '\0';
    tell(w, &(struct segment){.term = term,
                              .n = n,
                              .kind = SEGMENT_WHOLE,
                              .from = w->parts[0].from,
                              .to = w->parts[w->n_parts - 1].to,
                              .is_capital = w->parts[0].is_capital});
}

static bool part_is(const struct walk *w, const struct part *p, const char *word)
{
    return p->n == strlen(word) && memcmp(w->bytes + p->at, word, p->n) == 0;
}

/* don't → dont; Maria's, I'm, you'll → maria, i, you; O'Brien stays two parts. */
static void join_contractions(struct walk *w)
{
    static const char *const tails[] = {"s", "m", "d", "re", "ve", "ll"};
    int n = w->n_parts > 0 ? 1 : 0;
    for (int i = 1; i < w->n_parts; i++) {
        struct part *p = &w->parts[i], *before = &w->parts[n - 1];
        bool is_tail = false, is_not = p->joint == '\'' && part_is(w, p, "t");
        for (size_t k = 0; k < sizeof(tails) / sizeof(tails[0]) && p->joint == '\''; k++)
            is_tail = is_tail || part_is(w, p, tails[k]);
        if (is_tail)
            continue;
        /* Contiguous: nothing was left out between them. */
        if (is_not && before->at + before->n == p->at && before->n + p->n <= SEGMENT_TERM_MAX) {
            before->n += p->n;
            before->to = p->to;
        } else {
            w->parts[n++] = *p;
        }
    }
    w->n_parts = n;
}

static void end_run(struct walk *w)
{
    join_contractions(w);
    if (w->n_parts > 1)
        tell_whole(w);
    for (int i = 0; i < w->n_parts; i++)
        tell_part(w, &w->parts[i]);
    w->n_parts = 0;
    w->n_bytes = 0;
    w->joint = 0;
}

struct character {
    uint32_t cp; /* folded */
    enum utf8_kind kind;
    size_t from, to;
    bool is_capital;
};

static void add_to_run(struct walk *w, const struct character *c)
{
    bool is_digits = c->kind == UTF8_DIGIT;
    char bytes[4];
    size_t n = (size_t)utf8_put(bytes, c->cp);
    struct part *p = w->n_parts > 0 ? &w->parts[w->n_parts - 1] : NULL;
    bool is_same = p && w->joint == 0 && p->is_digits == is_digits;
    if (c->kind == UTF8_MARK && !p)
        return;
    if (c->kind == UTF8_MARK)
        is_same = true;
    /* A comma joins figures only. */
    if (p && w->joint == ',' && !(p->is_digits && is_digits))
        end_run(w);
    if (w->n_bytes + n > RUN_BYTES || (is_same && p->n + n > SEGMENT_TERM_MAX) ||
        (!is_same && w->n_parts == PARTS_MAX))
        end_run(w);
    if (w->n_parts == 0)
        is_same = false;
    if (!is_same)
        w->parts[w->n_parts++] = (struct part){.at = w->n_bytes,
                                               .from = c->from,
                                               .joint = w->joint,
                                               .is_digits = is_digits,
                                               .is_ascii = true,
                                               .is_capital = c->is_capital};
    p = &w->parts[w->n_parts - 1];
    memcpy(w->bytes + w->n_bytes, bytes, n);
    w->n_bytes += n;
    p->n += n;
    p->to = c->to;
    p->is_ascii = p->is_ascii && n == 1;
    w->joint = 0;
}

static void add_dense(struct walk *w, const struct character *c)
{
    char both[9];
    end_run(w);
    size_t n = (size_t)utf8_put(both + w->n_dense, c->cp);
    memcpy(both, w->dense, w->n_dense);
    both[w->n_dense + n] = '\0';
    const char *this = both + w->n_dense;
    const bool is_stop = is_stop_dense(this, n);
    if (w->n_dense > 0)
        tell(w, &(struct segment){.term = both,
                                  .n = w->n_dense + n,
                                  .kind = SEGMENT_PAIR,
                                  .from = w->dense_from,
                                  .to = c->to,
                                  .is_stop = (is_stop && is_stop_dense(w->dense, w->n_dense)) ||
                                             is_stop_pair(both, w->n_dense + n)});
    tell(w, &(struct segment){.term = this,
                              .n = n,
                              .kind = SEGMENT_SINGLE,
                              .from = c->from,
                              .to = c->to,
                              .is_stop = is_stop});
    memcpy(w->dense, this, n);
    w->n_dense = n;
    w->dense_from = c->from;
}

/* The joint that cp is, or 0. Typographic forms of hyphen and apostrophe are the plain ones. */
static uint32_t joint_of(uint32_t cp)
{
    if (cp == 0x2019 || cp == 0x02BC)
        return '\'';
    if (cp == 0x2010 || cp == 0x2011)
        return '-';
    return cp < 0x80 && cp != 0 && strchr("-_./:@+#&',", (int)cp) ? cp : 0;
}

static void add(struct walk *w, const struct character *c)
{
    if (c->kind != UTF8_DENSE)
        w->n_dense = 0;
    if (c->kind == UTF8_DENSE) {
        add_dense(w, c);
    } else if (c->kind != UTF8_OTHER) {
        add_to_run(w, c);
    } else {
        uint32_t joint = joint_of(c->cp);
        if (joint == 0 || w->joint != 0)
            end_run(w);
        else if (w->n_parts > 0)
            w->joint = joint;
    }
}

/* What most texts are made of, as the long way below has it: folded to itself in lower case. */
static void add_ascii(struct walk *w, const char *text, size_t i)
{
    const uint32_t cp = (unsigned char)text[i];
    struct character c = {.cp = cp, .kind = UTF8_OTHER, .from = i, .to = i + 1};
    if ((cp | 0x20) >= 'a' && (cp | 0x20) <= 'z') {
        c.kind = UTF8_LETTER;
        c.is_capital = cp < 'a';
        c.cp = cp | 0x20;
    } else if (cp >= '0' && cp <= '9') {
        c.kind = UTF8_DIGIT;
    }
    add(w, &c);
}

void segment_walk(struct segmenter *s, const char *text, size_t n,
                  bool (*each)(void *user, const struct segment *t), void *user)
{
    struct walk w = {.s = s, .each = each, .user = user};
    for (size_t i = 0; i < n && !w.is_stopped;) {
        if ((unsigned char)text[i] < 0x80) {
            add_ascii(&w, text, i++);
            continue;
        }
        bool is_ok;
        size_t step = utf8_step(text + i, n - i, &is_ok);
        struct character c = {.kind = UTF8_OTHER, .from = i, .to = i + step};
        if (is_ok) {
            size_t at = i;
            uint32_t cp = utf8_next(text, n, &at), folded[UTF8_FOLD_MAX];
            uint32_t joint = joint_of(cp);
            int n_folded = joint ? 1 : utf8_fold(cp, folded);
            if (joint)
                folded[0] = joint;
            c.is_capital = utf8_is_upper(cp);
            for (int k = 0; k < n_folded; k++) {
                c.cp = folded[k];
                c.kind = utf8_kind(c.cp);
                add(&w, &c);
            }
        } else {
            add(&w, &c);
        }
        i += step;
    }
    end_run(&w);
}

static bool append(void *user, const struct segment *t)
{
    struct buf *b = user;
    if (b->len > 0)
        buf_char(b, ' ');
    buf_add(b, t->term, t->n);
    return b->error == 0;
}

void segment_text(struct segmenter *s, struct buf *ret, const char *text, size_t n)
{
    segment_walk(s, text, n < SEGMENT_TEXT_MAX ? n : SEGMENT_TEXT_MAX, append, ret);
}

#define SPEAKER_MAX_BYTES 40
#define SPEAKER_MAX_WORDS 3
#define SPEAKER_MAX_DENSE 8

/* Where the colon is, 0: none in reach; the text up to there is a name. */
static size_t name_length(const char *text, size_t n)
{
    int n_words = 0, n_dense = 0;
    bool is_inside = false;
    for (size_t i = 0; i < n && i <= SPEAKER_MAX_BYTES;) {
        bool is_ok;
        size_t at = i, step = utf8_step(text + i, n - i, &is_ok);
        if (!is_ok)
            return 0;
        uint32_t cp = utf8_next(text, n, &at);
        if (cp == ':' || cp == 0xFF1A)
            return n_words + n_dense > 0 ? i : 0;
        enum utf8_kind kind = utf8_kind(cp);
        bool is_word = kind == UTF8_LETTER || kind == UTF8_DIGIT || kind == UTF8_MARK;
        if (is_word && !is_inside && (++n_words > SPEAKER_MAX_WORDS || !utf8_is_upper(cp)))
            return 0;
        if (kind == UTF8_DENSE && ++n_dense > SPEAKER_MAX_DENSE)
            return 0;
        bool is_within = cp == '.' || cp == '-' || cp == '\'' || cp == 0x2019 || cp == 0xB7;
        if (kind == UTF8_OTHER && cp != ' ' && !is_within)
            return 0;
        is_inside = is_word || is_within;
        i += step;
    }
    return 0;
}

size_t segment_speaker(const char *text, size_t n, size_t *ret_rest)
{
    size_t name = name_length(text, n);
    *ret_rest = 0;
    if (name == 0)
        return 0;
    size_t rest = name + (text[name] == ':' ? 1 : 3);
    /* "Note:x" and "C:\" are no speakers: a plain colon is followed by space. */
    if (text[name] == ':' && rest < n && text[rest] != ' ' && text[rest] != '\n')
        return 0;
    while (rest < n && (text[rest] == ' ' || text[rest] == '\n'))
        rest++;
    while (name > 0 && text[name - 1] == ' ')
        name--;
    *ret_rest = rest;
    return name;
}
