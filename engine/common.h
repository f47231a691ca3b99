/*
 * What the engine and its double in the tests (tests/scripted/) share: how options are read and
 * what a pass is checked for. The double links this object and never engine.o.
 */
#ifndef HEARTH_ENGINE_COMMON_H
#define HEARTH_ENGINE_COMMON_H

#include "base/err.h"
#include "engine/engine.h"

#define TEMPLATE_BYTES_MAX ((size_t)1 << 20) /* of a --chat-template file */

/*
 * --chat-template: NULL gives NULL; what names an existing file (or has a slash in it) gives the
 * file's text; anything else is a family's name and is copied. The caller frees *ret. ERR_NOTFOUND,
 * ERR_IO, ERR_LIMIT name the file.
 */
int common_template(const char *option, char **ret, struct err *e) MUST_USE;

/* "dir/Some-Model.Q4_1.gguf" → "Some-Model.Q4_1": the file's name without directory and last
 * extension. The caller frees; NULL: out of memory. */
char *common_stem(const char *path);

/*
 * What engine_pass promises to refuse: ids outside [0, n_vocab), counts that make no sense, a
 * sequence twice, more positions than its blocks hold (ERR_INVAL), or than n_ctx (ERR_LIMIT). That
 * the blocks to be written are private is asserted.
 */
int common_check_parts(const struct engine_part *parts, int n_parts, int n_vocab, int n_ctx,
                       struct err *e) MUST_USE;

/* engine_dequantize's body. */
int common_dequantize(const char *type, const void *data, size_t n, float *ret, size_t *n_values,
                      struct err *e) MUST_USE;

#endif
