/* Any text as a chat template, over a chat with tools: it ends within its limits, each byte printed
 * has its mark, and a failure says why. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "engine/jinja.h"
#include "tests/engine/text/jinja_vars.h"

#define ARENA_BYTES ((size_t)32 << 20)
#define TEXT_BYTES ((size_t)1 << 18)

static const char vars_text[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"Be \\u00e9.\"},{\"role\":\"user\","
    "\"content\":\" Hi <there>\\n\"},{\"role\":\"assistant\",\"content\":\"<think>a</think>b\","
    "\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"x\":1.5,\"y\":[1,null]}}}]},"
    "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"\\u4e16\"}]}],\"tools\":[{"
    "\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"b\":2,\"a\":1}}}],"
    "\"add_generation_prompt\":true,\"bos_token\":\"<s>\",\"s\":\"  Hello, World!  \",\"n\":7,"
    "\"f\":2.5,\"xs\":[3,1,2],\"d\":{\"b\":2,\"a\":1},\"people\":[{\"name\":\"Bo\",\"age\":30},"
    "{\"name\":\"al\",\"age\":25}],\"nil\":null,\"e\":\"\"}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void render(const struct jinja *j)
{
    struct arena a;
    struct buf text, marks;
    struct err e = {0};
    struct jinja_output out = {.text = &text, .marks = &marks};
    json *parsed = NULL;
    if (json_parse(vars_text, sizeof vars_text - 1, &parsed, &e) < 0)
        abort();
    arena_init(&a, ARENA_BYTES);
    buf_init(&text, TEXT_BYTES);
    buf_init(&marks, TEXT_BYTES);
    struct jinja_value vars = jinja_vars_of(&a, parsed), user;
    if (jinja_marked(&a, "words", 5, 7, &user) < 0 ||
        jinja_dict_set(&a, &vars, "user", &user) < 0)
        abort();
    int rc = jinja_render(j, &a, &vars, 1753012800, &out, &e);
    if (rc < 0 ? e.text[0] == '\0' : text.len != marks.len)
        abort();
    buf_done(&text);
    buf_done(&marks);
    arena_done(&a);
    json_free(parsed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct jinja *j = NULL;
    struct err e = {0};
    struct jinja_str literal;
    if (jinja_new((const char *)data, n, &j, &e) < 0) {
        if (j || e.text[0] == '\0')
            abort();
        return 0;
    }
    for (size_t i = 0; jinja_literal(j, i, &literal); i++)
        if (literal.n > n)
            abort();
    render(j);
    jinja_free(j);
    return 0;
}
