/*
 * How models mark what they think aloud: which of the known pairs a template speaks of, and a
 * whole text in its two parts (daemon/thought.c does it while the text comes).
 *
 * Families and their marks, from their published templates: Qwen3, DeepSeek R1, SmolLM3, GLM, …
 * <think>; Magistral, Ministral [THINK]; Command A <|START_THINKING|>; Seed-OSS <seed:think>;
 * MiniMax M3 <mm:think>; gpt-oss and other Harmony models by channels; Gemma 4 by its channel;
 * Kimi-VL ◁think▷; Solar Open <|think|>; Apriel without an opening mark but a sentence in the
 * prompt.
 */
#include "engine/chat_think.h"

#include <string.h>

#include "engine/jinja.h"

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
