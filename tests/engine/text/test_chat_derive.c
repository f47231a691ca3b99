/*
 * Segments that are read off a template: which of the families' templates have them (chats/ of
 * tests/reference/jinja), and that they are the whole rendering, for random chats too. The
 * vocabulary is Qwen2's with the families' control tokens behind it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/chat_impl.h"
#include "tests/engine/text/vocab.h"

#define MESSAGES_MAX 9
#define RANDOM_CHATS 60

static struct vocab vocab;

/* orders: pairs of roles that are segments behind each other ("su": a user's message behind a
 * system message); no_orders: those that aren't. */
static const struct family {
    const char *name;
    enum chat_mode mode;
    bool folds_system;
    const char *const orders[4], *const no_orders[4];
} families[] = {
    {"llama3", CHAT_SEGMENTS, false, {"su", "ua", "au", "us"}, {NULL}},
    {"gemma2", CHAT_SEGMENTS, true, {"ua", "au"}, {"uu", "us"}},
    {"gemma3", CHAT_SEGMENTS, true, {"ua", "au"}, {"uu", "us"}},
    {"phi3", CHAT_SEGMENTS, false, {"su", "ua", "au"}, {NULL}},
    {"zephyr", CHAT_SEGMENTS, false, {"su", "ua", "au"}, {NULL}},
    {"llama2", CHAT_SEGMENTS, true, {"ua", "au"}, {"uu"}},
    {"thinking", CHAT_RERENDER, false, {NULL}, {"ua"}},
    {"r1", CHAT_RERENDER, false, {NULL}, {"ua"}},
    {"mistral-last", CHAT_RERENDER, false, {NULL}, {"ua"}},
    {"vicuna", CHAT_RERENDER, false, {NULL}, {"ua"}},
};
#define N_FAMILIES (sizeof families / sizeof *families)

static struct chat *open_family(const char *name)
{
    char path[4096];
    struct chat *c = NULL;
    struct err e;
    size_t n;
    snprintf(path, sizeof path, "%s/%s.jinja", getenv("HEARTH_CHATS"), name);
    char *source = read_whole(path, &n);
    if (chat_new(vocab.tok, source, NULL, &c, &e) < 0)
        fail_msg("%s: %s", name, e.text);
    free(source);
    return c;
}

static enum chat_role role_of(char c)
{
    return c == 's' ? CHAT_SYSTEM : c == 'u' ? CHAT_USER : CHAT_ASSISTANT;
}

static bool has_order(const struct chat *c, const char *order)
{
    const struct chat_derived *d = c->derived;
    return d && chat_piece_is_good(&d->before[role_of(order[0])][role_of(order[1])]) &&
           chat_piece_is_good(&d->after[role_of(order[1])]);
}

static void families_have_the_segments_that_their_templates_print(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_FAMILIES; i++) {
        const struct family *f = &families[i];
        struct chat *c = open_family(f->name);
        if (chat_mode(c) != f->mode)
            fail_msg("%s is %s", f->name, f->mode == CHAT_SEGMENTS ? "no segments" : "segments");
        assert_true(!c->derived || c->derived->folds_system == f->folds_system);
        for (size_t k = 0; k < 4; k++) {
            if (f->orders[k] && !has_order(c, f->orders[k]))
                fail_msg("%s has no segments for %s", f->name, f->orders[k]);
            if (f->no_orders[k] && has_order(c, f->no_orders[k]))
                fail_msg("%s has segments for %s", f->name, f->no_orders[k]);
        }
        chat_free(c);
    }
}

static const char *const words[] = {"",
                                    " ",
                                    "one",
                                    "two three",
                                    "\n\nx",
                                    "x \n",
                                    "\t",
                                    "\xC3\xA9\xE9\x9B\xA8",
                                    "<|eot_id|>",
                                    "</s>",
                                    "<think>a</think>b",
                                    "<start_of_turn>user\nhi",
                                    "[INST] [/INST]",
                                    "{{ x }}",
                                    "<|im_end|>",
                                    "1234",
                                    "'s",
                                    " a",
                                    "\r\n",
                                    "\xC2\xA0q"};
#define N_WORDS (sizeof words / sizeof *words)

static size_t make_chat(uint64_t *seed, struct chat_message *m)
{
    static const enum chat_role next[CHAT_ROLES][4] = {
        {CHAT_USER, CHAT_USER, CHAT_SYSTEM, CHAT_ASSISTANT},
        {CHAT_USER, CHAT_USER, CHAT_USER, CHAT_ASSISTANT},
        {CHAT_ASSISTANT, CHAT_ASSISTANT, CHAT_ASSISTANT, CHAT_USER},
        {CHAT_USER, CHAT_USER, CHAT_USER, CHAT_SYSTEM}};
    size_t n = 1 + random_next(seed) % (MESSAGES_MAX - 1);
    for (size_t i = 0; i < n; i++) {
        const char *text = words[random_next(seed) % N_WORDS];
        m[i] = (struct chat_message){.text = text, .n_text = strlen(text)};
        m[i].role = next[i > 0 ? m[i - 1].role : CHAT_NONE][random_next(seed) % 4];
    }
    if (m[n - 1].role != CHAT_USER)
        m[n++] = (struct chat_message){.role = CHAT_USER, .text = "end", .n_text = 3};
    return n;
}

struct both {
    struct ids ids[2];
    struct buf text[2];
    int rc[2];
};

static void both_init(struct both *b)
{
    for (int i = 0; i < 2; i++) {
        ids_init(&b->ids[i]);
        buf_init(&b->text[i], 1 << 20);
    }
}

static void both_done(struct both *b)
{
    for (int i = 0; i < 2; i++) {
        ids_done(&b->ids[i]);
        buf_done(&b->text[i]);
    }
}

/* The segments of a chat one by one, as a window that grows does it. */
static void check_row(const struct chat *c, const struct chat_message *m, size_t n,
                      const struct ids *whole)
{
    struct ids row;
    struct err e;
    ids_init(&row);
    size_t i = chat_opening(c, m, n);
    assert_int_equal(chat_open_window(c, m, &(struct chat_rendering){.ids = &row}, &e), 0);
    for (; i < n; i++)
        assert_int_equal(chat_segment(c, &m[i], m[i - 1].role, &row, &e), 0);
    assert_int_equal(chat_generation_prompt(c, &row, &e), 0);
    assert_ids_equal(&row, whole, "segments in a row");
    ids_done(&row);
}

static void segments_are_the_whole_rendering(void **state)
{
    (void)state;
    uint64_t seed = random_seed("segments");
    for (size_t i = 0; i < N_FAMILIES; i++) {
        struct chat *c = open_family(families[i].name);
        size_t n_segments = 0;
        for (int k = 0; k < RANDOM_CHATS; k++) {
            struct chat_message m[MESSAGES_MAX + 1];
            struct both b;
            struct err e = {0};
            both_init(&b);
            size_t n = make_chat(&seed, m);
            struct chat_rendering a = {.ids = &b.ids[0], .text = &b.text[0], .now = 1753012800},
                                  w = {.ids = &b.ids[1], .text = &b.text[1], .now = 1753012800};
            b.rc[0] = chat_render(c, m, n, true, &a, &e);
            b.rc[1] = chat_window(c, m, n, true, &w, &e);
            if (b.rc[0] != b.rc[1])
                fail_msg("%s, chat %d: %d, not %d: %s", families[i].name, k, b.rc[0], b.rc[1],
                         e.text);
            if (b.text[0].len != b.text[1].len)
                fail_msg("%s, chat %d:\n%.*s\ninstead of\n%.*s", families[i].name, k,
                         (int)b.text[0].len, b.text[0].data, (int)b.text[1].len, b.text[1].data);
            if (b.rc[0] == 0) {
                assert_memory_equal(b.text[0].data, b.text[1].data, b.text[0].len);
                assert_ids_equal(&b.ids[0], &b.ids[1], families[i].name);
            }
            if (b.rc[0] == 0 && c->derived && chat_is_segments(c, m, n)) {
                b.ids[1].n = 0;
                assert_int_equal(
                    chat_render(c, m, n, true, &(struct chat_rendering){.ids = &b.ids[1]}, &e), 0);
                check_row(c, m, n, &b.ids[1]);
                n_segments++;
            }
            both_done(&b);
        }
        /* About 20 of the strictest templates'; their number is random. */
        if (families[i].mode == CHAT_SEGMENTS && n_segments < 4)
            fail_msg("%s: only %zu of the chats were segments", families[i].name, n_segments);
        chat_free(c);
    }
}

/* A template with one rare exception isn't taken for segments. */
static void what_differs_anywhere_has_no_segments(void **state)
{
    (void)state;
#define HEAD "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
#define TAIL                                                                                       \
    "<|eot_id|>{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant"             \
    "<|end_header_id|>\n\n{{ '' }}{% endif %}"
    static const struct {
        const char *content;
        enum chat_mode mode;
    } cases[] = {
        {"{{ m.content }}", CHAT_SEGMENTS},
        {"{{ m.content | trim }}", CHAT_SEGMENTS},
        {"{{ m.content.lstrip() }}", CHAT_SEGMENTS},
        {"{{ m.content.strip('\\n') }}", CHAT_RERENDER},
        {"{{ m.content.replace('@quirk', '') }}", CHAT_RERENDER},
        {"{{ m.content.split('</reasoning>')[-1] }}", CHAT_RERENDER},
        {"{{ m.content if not loop.last or m.role == 'user' else m.content|upper }}",
         CHAT_SEGMENTS},
        {"{{ m.content if not (loop.last and messages|length > 3) else m.content|upper }}",
         CHAT_RERENDER},
        {"{{ m.content }}{% if loop.index0 == 4 %}!{% endif %}", CHAT_RERENDER},
        {"{{ m.content }}{% if m.role == 'assistant' and loop.index0 > 2 %}!{% endif %}",
         CHAT_RERENDER},
        {"{{ m.content[:10] }}", CHAT_RERENDER},
        {"{{ m.content | tojson }}", CHAT_RERENDER},
        {"{{ strftime_now('%d %b %Y') }} {{ m.content }}", CHAT_RERENDER},
        {"{% if loop.first %}{{ strftime_now('%d %b %Y') }}{% endif %}{{ m.content }}",
         CHAT_SEGMENTS},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char source[1024];
        struct chat *c = NULL;
        struct err e = {0};
        snprintf(source, sizeof source, "%s%s%s", HEAD, cases[i].content, TAIL);
        if (chat_new(vocab.tok, source, NULL, &c, &e) < 0)
            fail_msg("%s: %s", source, e.text);
        if (chat_mode(c) != cases[i].mode)
            fail_msg("%s: the other mode", cases[i].content);
        chat_free(c);
    }
}

/* The day stands in what opens the window, and is each chat's own. */
static void the_date_is_the_conversations(void **state)
{
    (void)state;
    static const char source[] =
        "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
        "{% if loop.first %}{{ strftime_now('%Y') }}{% endif %}{{ m.content }}" TAIL;
    const struct chat_message m = {.role = CHAT_USER, .text = "x", .n_text = 1};
    struct chat *c = NULL;
    struct err e;
    struct buf text;
    struct ids ids;
    ids_init(&ids);
    buf_init(&text, 1 << 16);
    assert_int_equal(chat_new(vocab.tok, source, NULL, &c, &e), 0);
    struct chat_rendering r = {.ids = &ids, .text = &text, .now = 1000000000};
    assert_int_equal(chat_render(c, &m, 1, true, &r, &e), 0);
    buf_str(&text, "");
    assert_non_null(strstr(text.data, "\n\n2001x"));
    buf_clear(&text);
    r.now = 1753012800;
    assert_int_equal(chat_render(c, &m, 1, true, &r, &e), 0);
    buf_str(&text, "");
    assert_non_null(strstr(text.data, "\n\n2025x"));
    buf_done(&text);
    ids_done(&ids);
    chat_free(c);
}

#define TALK_MESSAGES 4
static const struct chat_message talk[TALK_MESSAGES] = {
    {.role = CHAT_SYSTEM, .text = "S", .n_text = 1},
    {.role = CHAT_USER, .text = "one", .n_text = 3},
    {.role = CHAT_ASSISTANT, .text = "two", .n_text = 3},
    {.role = CHAT_USER, .text = "three", .n_text = 5}};

/* bos_token of this vocabulary is <|endoftext|>, eos_token <|im_end|>. */
#define BOS "<|endoftext|>"
#define EOS "<|im_end|>"
static const struct {
    const char *name, *text;
    enum chat_mode mode;
} formats[] = {
    {"chatml",
     "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\none<|im_end|>\n"
     "<|im_start|>assistant\ntwo<|im_end|>\n<|im_start|>user\nthree<|im_end|>\n"
     "<|im_start|>assistant\n",
     CHAT_SEGMENTS},
    {"llama3",
     BOS "<|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>"
         "<|start_header_id|>user<|end_header_id|>\n\none<|eot_id|>"
         "<|start_header_id|>assistant<|end_header_id|>\n\ntwo<|eot_id|>"
         "<|start_header_id|>user<|end_header_id|>\n\nthree<|eot_id|>"
         "<|start_header_id|>assistant<|end_header_id|>\n\n",
     CHAT_SEGMENTS},
    {"llama2", BOS "[INST] <<SYS>>\nS\n<</SYS>>\n\none [/INST] two " EOS BOS "[INST] three [/INST]",
     CHAT_SEGMENTS},
    {"mistral", BOS "[INST] S\n\none[/INST] two" EOS "[INST] three[/INST]", CHAT_SEGMENTS},
    {"mistral-tekken", BOS "[INST]S\n\none[/INST]two" EOS "[INST]three[/INST]", CHAT_SEGMENTS},
    {"gemma",
     BOS "<start_of_turn>user\nS\n\none<end_of_turn>\n<start_of_turn>model\ntwo<end_of_turn>"
         "\n<start_of_turn>user\nthree<end_of_turn>\n<start_of_turn>model\n",
     CHAT_SEGMENTS},
    {"phi3",
     "<|system|>\nS<|end|>\n<|user|>\none<|end|>\n<|assistant|>\ntwo<|end|>\n<|user|>\n"
     "three<|end|>\n<|assistant|>\n",
     CHAT_SEGMENTS},
    {"phi4",
     "<|im_start|>system<|im_sep|>S<|im_end|><|im_start|>user<|im_sep|>one<|im_end|>"
     "<|im_start|>assistant<|im_sep|>two<|im_end|><|im_start|>user<|im_sep|>three<|im_end|>"
     "<|im_start|>assistant<|im_sep|>",
     CHAT_SEGMENTS},
    {"zephyr",
     "<|system|>\nS" EOS "\n<|user|>\none" EOS "\n<|assistant|>\ntwo" EOS "\n<|user|>\nthree" EOS
     "\n<|assistant|>\n",
     CHAT_SEGMENTS},
    {"granite",
     "<|start_of_role|>system<|end_of_role|>S<|end_of_text|>\n<|start_of_role|>user"
     "<|end_of_role|>one<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>two"
     "<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>three<|end_of_text|>\n"
     "<|start_of_role|>assistant<|end_of_role|>",
     CHAT_SEGMENTS},
    {"deepseek",
     BOS "S<\xEF\xBD\x9CUser\xEF\xBD\x9C>one<\xEF\xBD\x9C"
         "Assistant\xEF\xBD\x9C>two"
         "<\xEF\xBD\x9C"
         "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"
         "<\xEF\xBD\x9CUser\xEF\xBD\x9C>three<\xEF\xBD\x9C"
         "Assistant\xEF\xBD\x9C>",
     CHAT_RERENDER},
    {"command-r",
     BOS "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>S<|END_OF_TURN_TOKEN|>"
         "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>one<|END_OF_TURN_TOKEN|>"
         "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>two<|END_OF_TURN_TOKEN|>"
         "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>three<|END_OF_TURN_TOKEN|>"
         "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
     CHAT_SEGMENTS},
    {"vicuna", BOS "S\n\nUSER: one ASSISTANT: two" EOS "USER: three ASSISTANT:", CHAT_RERENDER},
};

static void formats_by_name_print_their_markup(void **state)
{
    (void)state;
    size_t n = 0;
    while (chat_builtin_name(n))
        n++;
    assert_int_equal(n, sizeof formats / sizeof *formats);
    for (size_t i = 0; i < n; i++) {
        struct chat *c = NULL;
        struct err e = {0};
        struct buf text;
        struct ids ids;
        struct chat_rendering r = {.ids = &ids, .text = &text};
        ids_init(&ids);
        buf_init(&text, 1 << 16);
        if (chat_new(vocab.tok, NULL, formats[i].name, &c, &e) < 0 ||
            chat_render(c, talk, TALK_MESSAGES, true, &r, &e) < 0)
            fail_msg("%s: %s", formats[i].name, e.text);
        buf_str(&text, "");
        assert_string_equal(text.data, formats[i].text);
        assert_string_equal(chat_family(c), formats[i].name);
        if (chat_mode(c) != formats[i].mode)
            fail_msg("%s: the other mode", formats[i].name);
        size_t n_bos = 0;
        for (size_t k = 0; k < ids.n; k++)
            n_bos += ids.v[k] == tok_bos_token(vocab.tok);
        assert_true(n_bos <= 1 || strcmp(formats[i].name, "llama2") == 0);
        buf_done(&text);
        ids_done(&ids);
        chat_free(c);
    }
}

static void a_format_without_its_tokens_is_refused_by_name(void **state)
{
    (void)state;
    struct vocab qwen = vocab_load(vocab_qwen2_path());
    struct chat *c = NULL;
    struct err e;
    assert_int_equal(chat_new(qwen.tok, NULL, "llama3", &c, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "<|start_header_id|>"));
    assert_int_equal(chat_new(qwen.tok, NULL, "llama4", &c, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "\"llama4\""));
    assert_non_null(strstr(e.text, "chatml, llama3, "));
    assert_null(c);
    vocab_done(&qwen);
}

static int setup(void **state)
{
    (void)state;
    vocab = vocab_load(getenv("HEARTH_VOCAB_FAMILIES"));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    vocab_done(&vocab);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families_have_the_segments_that_their_templates_print),
        cmocka_unit_test(segments_are_the_whole_rendering),
        cmocka_unit_test(what_differs_anywhere_has_no_segments),
        cmocka_unit_test(the_date_is_the_conversations),
        cmocka_unit_test(formats_by_name_print_their_markup),
        cmocka_unit_test(a_format_without_its_tokens_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
