/* Options and checks that the engine shares with its double in the tests (engine/common.h). */
#include "engine/common.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/sys.h"
#include "engine/quant.h"

static char *copy_text(const char *s, size_t n)
{
    char *p = sys.malloc(n + 1);
    if (p) {
        memcpy(p, s, n);
        p[n] = '\0';
    }
    return p;
}

int common_template(const char *option, char **ret, struct err *e)
{
    struct buf b;
    int rc;
    if (!option) {
        *ret = NULL;
        return 0;
    }
    if (!strchr(option, '/') && access(option, F_OK)) {
        char *name = copy_text(option, strlen(option));
        if (!name) {
            return err_set(e, ERR_NOMEM, "out of memory");
        }
        *ret = name;
        return 0;
    }
    buf_init(&b, TEMPLATE_BYTES_MAX);
    rc = file_read(option, &b, e);
    if (!rc && memchr(b.data ? b.data : "", '\0', b.len)) {
        rc = err_set(e, ERR_INVAL, "the chat template %s holds a NUL byte", option);
    }
    if (!rc && b.len == 0) {
        rc = err_set(e, ERR_INVAL, "the chat template %s is empty", option);
    }
    if (!rc) {
        char *text = buf_take(&b, NULL);
        if (text) {
            *ret = text;
        } else {
            rc = err_set(e, ERR_NOMEM, "out of memory for the chat template");
        }
    }
    buf_done(&b);
    return rc;
}

char *common_stem(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path,
               *dot = strrchr(name, '.');
    return copy_text(name, dot && dot != name ? (size_t)(dot - name) : strlen(name));
}

/* One part by itself. */
static int check_part(const struct engine_part *p, int i, int n_vocab, int n_ctx, struct err *e)
{
    if (p->n_ids < 1 || p->n_logits < 0 || p->n_logits > p->n_ids || (p->n_logits && !p->logits)) {
        return err_set(e, ERR_INVAL, "part %d of the pass has %d ids and wants %d rows of logits",
                       i, p->n_ids, p->n_logits);
    }
    if (p->n_ids > n_ctx || p->seq->n_tokens > n_ctx - p->n_ids) {
        return err_set(e, ERR_LIMIT, "%d tokens after %d exceed the model's context of %d",
                       p->n_ids, p->seq->n_tokens, n_ctx);
    }
    if (p->seq->n_tokens + p->n_ids > kv_seq_capacity(p->seq)) {
        return err_set(e, ERR_INVAL,
                       "%d tokens after %d exceed the %d positions of the sequence's blocks",
                       p->n_ids, p->seq->n_tokens, kv_seq_capacity(p->seq));
    }
    for (int k = 0; k < p->n_ids; k++) {
        if (p->ids[k] < 0 || p->ids[k] >= n_vocab) {
            return err_set(e, ERR_INVAL, "token id %d, it must be 0 to %d", p->ids[k], n_vocab - 1);
        }
    }
    for (int b = p->seq->n_tokens / KV_BLOCK; b <= (p->seq->n_tokens + p->n_ids - 1) / KV_BLOCK;
         b++) {
        assert(p->seq->blocks[b]->n_refs == 1);
    }
    return 0;
}

int common_check_parts(const struct engine_part *parts, int n_parts, int n_vocab, int n_ctx,
                       struct err *e)
{
    if (n_parts < 1) {
        return err_set(e, ERR_INVAL, "a pass of %d parts", n_parts);
    }
    for (int i = 0; i < n_parts; i++) {
        const int rc = check_part(&parts[i], i, n_vocab, n_ctx, e);
        if (rc) {
            return rc;
        }
        for (int j = 0; j < i; j++) { /* a pass has a handful of parts */
            if (parts[j].seq == parts[i].seq) {
                return err_set(e, ERR_INVAL, "parts %d and %d of the pass are the same sequence", j,
                               i);
            }
        }
    }
    return 0;
}

int common_dequantize(const char *type, const void *data, size_t n, float *ret, size_t *n_values,
                      struct err *e)
{
    const struct quant_type *t = quant_type_by_name(type);
    if (!t) {
        return err_set(e, ERR_UNSUPPORTED, "tensor type \"%.32s\"; these are known: %s", type,
                       quant_names());
    }
    if (n % (size_t)t->block_bytes) {
        return err_set(e, ERR_INVAL, "%zu bytes are not whole blocks of %s (%d bytes each)", n,
                       t->name, t->block_bytes);
    }
    const size_t n_blocks = n / (size_t)t->block_bytes;
    if (n_blocks > *n_values / (size_t)t->block_values) {
        return err_set(e, ERR_INVAL, "%zu blocks of %s hold more than %zu values", n_blocks,
                       t->name, *n_values);
    }
    t->dequantize(data, ret, n_blocks * (size_t)t->block_values);
    *n_values = n_blocks * (size_t)t->block_values;
    return 0;
}
