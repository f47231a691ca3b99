/*
 * How models mark what they think aloud: which of the known pairs a template speaks of, and a
 * whole text in its two parts (daemon/thought.c does it while the text comes).
 *
 * Families and their marks, from their published templates: Qwen3, DeepSeek R1, SmolLM3, GLM, …
 * <think>; Magistral, Ministral [THINK]; Command A <|START_THINKING|>; Seed-OSS <seed:think>;
 * MiniMax M3 <mm:think>; gpt-oss and other Harmony models by channels; Gemma 4 by its channel;
 * Kimi-VL ◁think▷; Solar Open <|think|>; Apriel without an opening mark but a sentence in the
 * prompt. A template that puts its marks together (Hy3, Kimi K3) is asked: it prints an answer with
 * a thought, and what stands around the two is theirs.
 */
#include "engine/chat_think.h"

#include <string.h>

#include <stdlib.h>

#include "engine/chat_impl.h"
#include "engine/template.h"

#define HARMONY_FINAL "<|channel|>final<|message|>"

/* The first whose marks a template spells is its own; <think> is also what others mention, and
 * some templates only spell its end. */
static const struct chat_think rows[] = {
    {.open = "[THINK]", .close = "[/THINK]"},
    {.open = "<|START_THINKING|>", .close = "<|END_THINKING|>"},
    {.open = "<seed:think>", .close = "</seed:think>"},
    {.open = "<mm:think>", .close = "</mm:think>"},
    {.open = "<|channel|>analysis<|message|>",
     .close = "<|end|>",
     .then = "<|start|>assistant" HARMONY_FINAL,
     .plain = HARMONY_FINAL},
    {.open = "<|channel>thought", .close = "<channel|>"},
    {.open = "\xE2\x97\x81think\xE2\x96\xB7", .close = "\xE2\x97\x81/think\xE2\x96\xB7"},
    {.open = "<|think|>",
     .close = "<|end|>",
     .then = "<|begin|>assistant<|content|>",
     .plain = "<|content|>"},
    {.open = "Here are my reasoning steps:", .close = "[BEGIN FINAL RESPONSE]"},
    {.open = "<think>", .close = "</think>"},
    {.open = "<|begin_of_thought|>", .close = "<|end_of_thought|>"},
    {.open = "<reasoning>", .close = "</reasoning>"},
    {.open = "<thought>", .close = "</thought>"},
    {.open = "<thinking>", .close = "</thinking>"},
};
#define N_ROWS (sizeof rows / sizeof *rows)

const struct chat_think *chat_think_row(size_t i)
{
    return i < N_ROWS ? &rows[i] : NULL;
}

bool chat_think_is_common(const struct chat_think *k)
{
    return strcmp(k->open, "<think>") == 0;
}

const struct chat_think *chat_think_of(const char *source)
{
    for (size_t i = 0; i < N_ROWS; i++) {
        const bool opens = strstr(source, rows[i].open), closes = strstr(source, rows[i].close);
        if ((opens && closes) || (chat_think_is_common(&rows[i]) && (opens || closes)))
            return &rows[i];
    }
    return NULL;
}

/* s without what it begins with, if it does. */
static bool take(struct jinja_str *s, const char *mark)
{
    const size_t n = mark ? strlen(mark) : 0;
    if (n == 0 || s->n < n || memcmp(s->s, mark, n) != 0)
        return false;
    s->s += n;
    s->n -= n;
    return true;
}

bool chat_think_opens(const struct chat_think *k, const char *text, size_t n)
{
    const struct jinja_str all = {.s = text, .n = n};
    struct jinja_str s = jinja_strip_space(&all, 1);
    return take(&s, k->open);
}

bool chat_think_split(const struct chat_think *k, const char *text, size_t n,
                      struct chat_split *ret)
{
    const struct jinja_str all = {.s = text, .n = n};
    struct jinja_str s = jinja_strip_space(&all, 1);
    *ret = (struct chat_split){.thought = "", .answer = text, .n_answer = n};
    const bool opens = take(&s, k->open);
    if (!opens && take(&s, k->plain)) {
        ret->answer = s.s;
        ret->n_answer = s.n;
        return true;
    }
    const char *hit = s.n > 0 ? memmem(s.s, s.n, k->close, strlen(k->close)) : NULL;
    if (!opens && !hit)
        return false;
    struct jinja_str thought = {.s = s.s, .n = hit ? (size_t)(hit - s.s) : s.n};
    struct jinja_str answer = {.s = s.s + thought.n, .n = s.n - thought.n};
    if (take(&answer, k->close))
        answer = jinja_strip_space(&answer, 1);
    if (!take(&answer, k->then))
        (void)take(&answer, k->plain);
    thought = jinja_strip_space(&thought, 3);
    *ret = (struct chat_split){.thought = thought.s,
                               .n_thought = thought.n,
                               .answer = answer.s,
                               .n_answer = answer.n};
    return true;
}

void chat_think_all(const char *text, size_t n, struct chat_split *ret)
{
    const struct jinja_str all = {.s = text, .n = n};
    const struct jinja_str thought = jinja_strip_space(&all, 3);
    *ret = (struct chat_split){
        .thought = thought.s, .n_thought = thought.n, .answer = text + n, .n_answer = 0};
}

/* ---- asking a template ---- */

#define MARK_BYTES_MAX 96
#define PROBE_BYTES ((size_t)1 << 20)

struct probe {
    struct buf text, marks;
    size_t thought, answer; /* where they are; (size_t)-1: nowhere */
};

static void probe_done(struct probe *p)
{
    buf_done(&p->text);
    buf_done(&p->marks);
}

static size_t mark_at(const struct probe *p, int mark)
{
    const char *hit = p->marks.len > 0 ? memchr(p->marks.data, mark, p->marks.len) : NULL;
    return hit ? (size_t)(hit - p->marks.data) : (size_t)-1;
}

/* A user's word and, unless it is a prompt, an answer with a thought or without. */
static int probe(const struct chat *c, const struct jinja *j, const char *thought,
                 struct probe *ret, struct err *e)
{
    static const char word[] = "word";
    const bool is_prompt = thought == NULL;
    uint8_t marks[] = {1, 1, 1, 1}, own[] = {255, 255, 255, 255};
    const size_t n = thought ? strlen(thought) : 0;
    const struct template_message m[] = {
        {.role = CHAT_USER, .content = {.s = "ask", .n = 3}},
        {.role = CHAT_ASSISTANT,
         .content = {.s = word, .n = 4, .marks = marks},
         .thought = {.s = thought, .n = n, .marks = own}}};
    const struct template_args a = {.messages = m,
                                    .n_messages = is_prompt ? 1 : 2,
                                    .add_generation_prompt = is_prompt,
                                    .bos = c->bos,
                                    .eos = c->eos,
                                    .now = c->now,
                                    .thinking = CHAT_THINKING_ON};
    struct arena arena;
    arena_init(&arena, PROBE_BYTES * 64);
    buf_init(&ret->text, PROBE_BYTES);
    buf_init(&ret->marks, PROBE_BYTES);
    int rc = template_run(j, &a, &arena, &ret->text, &ret->marks, e);
    arena_done(&arena);
    ret->thought = mark_at(ret, TEMPLATE_MARK_THOUGHT);
    ret->answer = mark_at(ret, 1);
    return rc;
}

static size_t common_prefix(const struct buf *a, const struct buf *b)
{
    size_t n = 0;
    while (n < a->len && n < b->len && a->data[n] == b->data[n])
        n++;
    return n;
}

/* text[from, to) less white space on its sides, as a string at *at, which moves behind it. */
static const char *put_mark(char **at, const struct buf *text, size_t from, size_t to)
{
    const struct jinja_str all = {.s = text->data + from, .n = to - from};
    const struct jinja_str s = jinja_strip_space(&all, 3);
    char *begin = *at;
    if (s.n == 0 || s.n > MARK_BYTES_MAX)
        return NULL;
    memcpy(begin, s.s, s.n);
    begin[s.n] = 0;
    *at += s.n + 1;
    return begin;
}

/* Where the opening mark begins: behind the prompt; one that the prompt has in it already, at the
 * beginning of its line. */
static size_t open_at(const struct probe *prompt, const struct probe *whole)
{
    size_t from = common_prefix(&prompt->text, &whole->text);
    const char *s = whole->text.data;
    while (from > 0 && from < whole->thought && (s[from] & 0xC0) == 0x80)
        from--;
    if (from < whole->thought)
        return from;
    for (from = whole->thought; from > 0 && s[from - 1] != '\n' &&
                                whole->thought - from < MARK_BYTES_MAX;)
        from--;
    while (from < whole->thought && (s[from] & 0xC0) == 0x80)
        from++;
    return from;
}

static void take_marks(struct chat *c, const struct probe *prompt, const struct probe *whole,
                       const struct probe *bare)
{
    char *at = c->own_text;
    const size_t end = whole->thought + 4, from = open_at(prompt, whole);
    c->own.open = put_mark(&at, &whole->text, from, whole->thought);
    c->own.close = put_mark(&at, &whole->text, end, whole->answer);
    const size_t n = common_prefix(&prompt->text, &bare->text);
    if (bare->answer != (size_t)-1 && n < bare->answer)
        c->own.plain = put_mark(&at, &bare->text, n, bare->answer);
    if (!c->own.open || !c->own.close)
        return;
    c->traits.thinks = true;
    c->traits.think = &c->own;
}

int chat_think_probe(struct chat *c, const struct jinja *j, struct err *e)
{
    struct probe prompt, whole, bare;
    struct err no;
    c->own_text = malloc((size_t)3 * (MARK_BYTES_MAX + 1));
    if (!c->own_text)
        return err_set(e, ERR_NOMEM, "no memory for the chat format");
    int rc = probe(c, j, NULL, &prompt, &no);
    const int rc_whole = probe(c, j, "hmmm", &whole, &no), rc_bare = probe(c, j, "", &bare, &no);
    if (rc == 0 && rc_whole == 0 && rc_bare == 0 && whole.thought != (size_t)-1 &&
        whole.answer != (size_t)-1 && whole.thought + 4 < whole.answer)
        take_marks(c, &prompt, &whole, &bare);
    probe_done(&prompt);
    probe_done(&whole);
    probe_done(&bare);
    return 0;
}
