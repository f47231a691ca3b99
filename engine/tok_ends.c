/*
 * Which tokens end an answer. A file names some (eos, eot, eom); others are only known by their
 * names, which each family has its own of. Two sorts:
 *
 *   sure      <|im_end|> and its like: no text has them by chance. They are control tokens whatever
 *             type the file gives them (some converters forget), so that nobody can type one.
 *   unsure    </s> is also HTML: an end only where the file says that it is a control token.
 *
 * Whole families have files whose marks of turns aren't control tokens, but "user-defined" ones,
 * which are matched in anybody's text: Command R's <|START_OF_TURN_TOKEN|>, DeepSeek's <|User|>.
 * What is spelt like a mark is one (is_mark); today's converters have the same rule. So are the
 * tokens that the file names as its beginning or its ends, if they are spelt like tags at all.
 *
 * Names: the models' own configurations; llama.cpp's src/llama-vocab.cpp has collected them.
 */
#include "engine/tok_impl.h"

#include <string.h>

#define DEEPSEEK_END "<\xEF\xBD\x9C" "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"

static const char *const sure[] = {
    "<|im_end|>",       /* ChatML: Qwen, SmolLM, Yi, … */
    "<|endoftext|>",    /* GPT-2 and all that came from it; Phi */
    "<|eot_id|>",       /* Llama 3 */
    "<|eom_id|>",       /* Llama 3.1, before a tool answers */
    "<|end_of_text|>",  /* Llama 3, Granite */
    "<|end|>",          /* Phi 3, 4 */
    "<|eot|>",          /* Llama 4 */
    "<|eom|>",          /* Llama 4 */
    "<end_of_turn>",    /* Gemma 1 to 3 */
    "<turn|>",          /* Gemma 4 */
    "<|endofturn|>",    /* HyperCLOVA */
    "[|endofturn|]",    /* EXAONE */
    "<|end_of_role|>",  /* Granite's old files */
    "<end_of_utterance>",
    "<|return|>",       /* Harmony: gpt-oss */
    "<|call|>",         /* Harmony */
    "<|flush|>",        /* Solar */
    "<|calls|>",        /* Solar */
    "<|im_sep_end|>",
    "<|END_OF_TURN_TOKEN|>", /* Command R */
    "<|endofprompt|>",
    "<|fim_pad|>",      /* a model for code that has nothing left to fill in */
    "<|repo_name|>",
    "<|file_sep|>",
    "<|EOT|>",          /* DeepSeek Coder */
    DEEPSEEK_END,
};
static const char *const unsure[] = {
    "</s>", "<eos>", "[EOS]", "[EOT]", "<EOT>", "_<EOT>", "<_EOT>", "[e~[", "<|tool_response>",
};

static bool is_one_of(const char *const *names, size_t n_names, const struct tok_str *s)
{
    for (size_t i = 0; i < n_names; i++)
        if (strlen(names[i]) == s->n && memcmp(names[i], s->s, s->n) == 0)
            return true;
    return false;
}

static bool is_between(const struct tok_str *s, const char *open, const char *close)
{
    const size_t n_open = strlen(open), n_close = strlen(close);
    return s->n > n_open + n_close && memcmp(s->s, open, n_open) == 0 &&
           memcmp(s->s + s->n - n_close, close, n_close) == 0;
}

/* <|…|>, also with DeepSeek's U+FF5C. */
static bool is_mark(const struct tok_str *s)
{
    return is_between(s, "<|", "|>") || is_between(s, "<\xEF\xBD\x9C", "\xEF\xBD\x9C>");
}

static int32_t ends_type(const struct tok_str *piece, int32_t type)
{
    if (type == TOK_USER_DEFINED && is_mark(piece))
        return TOK_CONTROL;
    const bool is_candidate = (type == TOK_NORMAL || type == TOK_USER_DEFINED) && piece->n > 4 &&
                              (piece->s[0] == '<' || piece->s[0] == '[');
    return is_candidate && is_one_of(sure, sizeof sure / sizeof *sure, piece) ? TOK_CONTROL : type;
}

static void make_control(struct tok *t, const struct tok_spec *spec, int32_t id)
{
    if (id < 0 || (t->type[id] != TOK_NORMAL && t->type[id] != TOK_USER_DEFINED))
        return;
    const struct tok_str *s = &spec->pieces[id];
    if (s->n > 2 && (s->s[0] == '<' || s->s[0] == '['))
        t->type[id] = TOK_CONTROL;
}

void ends_types(struct tok *t, const struct tok_spec *spec)
{
    for (size_t i = 0; i < spec->n_vocab; i++)
        t->type[i] = (uint8_t)ends_type(&spec->pieces[i], spec->types[i]);
    make_control(t, spec, spec->bos);
    make_control(t, spec, spec->eos);
    make_control(t, spec, spec->eot);
    for (size_t i = 0; i < spec->n_ends; i++)
        make_control(t, spec, spec->ends[i]);
}

static int32_t find_control(const struct tok *t, const char *name)
{
    const int32_t id = tok_find(t, name, strlen(name));
    return tok_is_control(t, id) ? id : -1;
}

static void mark_names(struct tok *t, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const int32_t id = find_control(t, names[i]);
        if (id >= 0)
            t->is_eog[id] = true;
    }
}

/* Where the vocabulary has all of these, the first only ends a part of an answer. */
static void unmark(struct tok *t, const char *name, const char *with, const char *and_with)
{
    const int32_t id = find_control(t, name);
    if (id >= 0 && find_control(t, with) >= 0 && find_control(t, and_with) >= 0)
        t->is_eog[id] = false;
}

void ends_mark(struct tok *t, const struct tok_spec *spec)
{
    mark_names(t, sure, sizeof sure / sizeof *sure);
    mark_names(t, unsure, sizeof unsure / sizeof *unsure);
    unmark(t, "<|end|>", "<|return|>", "<|call|>");
    unmark(t, "<|end|>", "<|calls|>", "<|flush|>");
    unmark(t, "</s>", "<|tool_response>", "<turn|>");
    if (spec->eos >= 0)
        t->is_eog[spec->eos] = true;
    if (spec->eot >= 0)
        t->is_eog[spec->eot] = true;
    for (size_t i = 0; i < spec->n_ends; i++)
        t->is_eog[spec->ends[i]] = true;
}
