/* Test side: a tokenizer straight from a GGUF, without the rest of the engine; and golden files. */
#ifndef HEARTH_TESTS_VOCAB_H
#define HEARTH_TESTS_VOCAB_H

#include <stdbool.h>
#include <stddef.h>

#include "base/ids.h"
#include "base/json.h"
#include "daemon/offline_json.h"
#include "engine/tok.h"

/* The model's file: HEARTH_MODEL; NULL when it isn't there (the test then skips). */
const char *vocab_model_path(void);
/* A further model's file, beside that of HEARTH_MODEL; NULL when it isn't there. Caller frees. */
char *vocab_further_path(const char *name);
/* The GGUF that the build makes of tests/golden/vocab-qwen2.txt.xz: HEARTH_VOCAB_QWEN2. */
const char *vocab_qwen2_path(void);
/* A file of tests/golden; the buffer is static. */
const char *vocab_golden_path(const char *name);

struct vocab {
    struct tok *tok;
    char *chat_template; /* or NULL */
};
/* Ends the test program with a message when anything fails. */
struct vocab vocab_load(const char *gguf_path);
/* The same without normalisation to NFC. */
struct vocab vocab_load_plain(const char *gguf_path);
void vocab_done(struct vocab *v);

/* Calls fn for each line's object; returns how many. Lines end at 0x0A only. */
size_t golden_each(const char *name, void (*fn)(const struct offline_line *line, void *ctx),
                   void *ctx);
/* The whole file, caller frees. */
char *read_whole(const char *path, size_t *ret_n);
/* A JSON array of ids. */
struct ids ids_of_json(const json *array);
/* Prints both and fails the test unless equal; `what` names the case. */
void assert_ids_equal(const struct ids *got, const struct ids *want, const char *what);

/* xorshift; the seed is printed by the test. */
uint64_t random_next(uint64_t *state);
uint64_t random_seed(const char *test);

#endif
