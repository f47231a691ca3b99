/* A model's file in a few lines (engine/describe.h). */
#include "engine/describe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/common.h"
#include "engine/gguf.h"
#include "engine/model.h"

const char *engine_file_type(int64_t type)
{
    static const char *const names[] = {
        [0] = "F32",     [1] = "F16",     [2] = "Q4_0",    [3] = "Q4_1",    [7] = "Q8_0",
        [8] = "Q5_0",    [9] = "Q5_1",    [10] = "Q2_K",   [11] = "Q3_K_S", [12] = "Q3_K_M",
        [13] = "Q3_K_L", [14] = "Q4_K_S", [15] = "Q4_K_M", [16] = "Q5_K_S", [17] = "Q5_K_M",
        [18] = "Q6_K",   [25] = "IQ4_NL", [32] = "BF16",
    };
    return type >= 0 && type < (int64_t)(sizeof names / sizeof *names) && names[type] ? names[type]
                                                                                      : "?";
}

/* Bytes of text that a line of a list can hold; control characters become spaces. */
static void copy_text(const struct tok_str *s, char *ret, size_t room)
{
    const size_t n = s->n < room - 1 ? s->n : room - 1;
    for (size_t i = 0; i < n; i++) {
        ret[i] = (unsigned char)s->s[i] < ' ' || s->s[i] == 127 ? ' ' : s->s[i];
    }
    ret[n] = '\0';
}

/* What any GGUF says of itself. What is missing or of the wrong type is left as it is: loading
 * says it better. */
static void read_head(const struct gguf *g, struct engine_summary *ret)
{
    char key[128];
    struct tok_str s = {"", 0};
    int64_t type = -1, n_ctx = 0;
    if (!gguf_str(g, "general.architecture", &s, NULL)) {
        copy_text(&s, ret->arch, sizeof ret->arch);
    }
    if (!gguf_str(g, "general.name", &s, NULL)) {
        copy_text(&s, ret->name, sizeof ret->name);
    }
    if (gguf_int(g, "general.file_type", 0, INT32_MAX, &type, NULL)) {
        type = -1;
    }
    snprintf(key, sizeof key, "%s.context_length", ret->arch);
    if (gguf_int(g, key, 1, INT32_MAX, &n_ctx, NULL)) {
        n_ctx = 0;
    }
    ret->quant = engine_file_type(type);
    ret->n_ctx_train = (int)n_ctx;
    ret->file_bytes = gguf_file_bytes(g);
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        ret->n_params += t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
    }
    ret->is_embedding = !strcmp(ret->arch, "bert");
}

static int check_text(const struct gguf *g, const struct engine_intent *as,
                      struct engine_summary *ret, struct err *e)
{
    struct tok *tok = NULL;
    struct chat *chat = NULL;
    char *source = NULL, *override = NULL;
    int rc = model_tok(g, &tok, e);
    if (!rc) {
        rc = common_template(as->chat_template, &override, e);
    }
    if (!rc) {
        rc = model_template(g, &source, e);
    }
    if (!rc && (source || override)) {
        rc = chat_new(tok, source, override, &chat, e);
    }
    ret->has_template = source || override;
    chat_free(chat);
    tok_free(tok);
    free(source);
    free(override);
    return rc;
}

/* The order of engine_open's refusals. */
static int check_model(const struct gguf *g, const struct engine_intent *as,
                       struct engine_summary *ret, struct err *e)
{
    struct model_params p;
    struct kv_shape kv;
    uint64_t weights = 0;
    int rc = model_check_arch(g, e);
    if (!rc) {
        rc = check_text(g, as, ret, e);
    }
    if (!rc) {
        rc = model_read_params(g, &p, e);
    }
    if (!rc) {
        rc = model_kv_shape(&p, as->kv_type, &kv, e);
    }
    if (!rc) {
        rc = model_measure(g, as->n_ctx, &weights, e);
    }
    if (!rc) {
        ret->weights_bytes = weights;
        ret->kv_bytes = kv.block_bytes / KV_BLOCK;
        ret->window = kv.window;
        ret->kv_old_bytes = kv.full_bytes / KV_BLOCK;
    }
    return rc;
}

int engine_describe(const char *path, const struct engine_intent *as, struct engine_summary *ret,
                    struct err *e)
{
    struct gguf *g = NULL;
    const int rc = gguf_open(path, &g, e);
    if (rc) {
        return rc;
    }
    *ret = (struct engine_summary){0};
    read_head(g, ret);
    ret->runs = check_model(g, as, ret, &ret->why) == 0;
    gguf_close(g);
    return 0;
}
