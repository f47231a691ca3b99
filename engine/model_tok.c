/*
 * From a GGUF's tokenizer.ggml.* keys to a tokenizer. The arrays are borrowed from the mapping and
 * copied by tok_new, so nothing here outlives the call. All lengths must agree with the number of
 * tokens, and every special id must be one of them.
 */
#include "engine/model.h"

#include <stdlib.h>
#include <string.h>

#include "base/sys.h"

#define NAME_MAX_BYTES 63
#define VOCAB_MAX 1048576

/* A short string of the file as a C string. */
static int read_name(const struct gguf *g, const char *key, char ret[NAME_MAX_BYTES + 1],
                     struct err *e)
{
    struct tok_str s;
    const int rc = gguf_str(g, key, &s, e);
    if (rc) {
        return rc;
    }
    if (s.n < 1 || s.n > NAME_MAX_BYTES || memchr(s.s, '\0', s.n)) {
        return err_set(e, ERR_CORRUPT,
                       "key \"%s\" has %zu bytes or holds a NUL; 1 to %d bytes are allowed", key,
                       s.n, NAME_MAX_BYTES);
    }
    memcpy(ret, s.s, s.n);
    ret[s.n] = '\0';
    return 0;
}

/* A token id of the vocabulary; *ret stays as it is when the file has none. */
static int read_id(const struct gguf *g, const char *key, size_t n_vocab, int32_t *ret,
                   struct err *e)
{
    int64_t id = *ret;
    const int rc = gguf_int(g, key, 0, (int64_t)n_vocab - 1, &id, e);
    if (rc && rc != ERR_NOTFOUND) {
        return rc;
    }
    *ret = (int32_t)id;
    return 0;
}

static int same_length(const char *key, size_t n, size_t n_vocab, struct err *e)
{
    return n == n_vocab
               ? 0
               : err_set(e, ERR_CORRUPT, "key \"%s\" has %zu items for a vocabulary of %zu tokens",
                         key, n, n_vocab);
}

/* What tok_new borrows; freed by done(). */
struct arrays {
    struct tok_str *pieces, *merges;
    int32_t *types;
    float *scores;
    int32_t eom;
    char model[NAME_MAX_BYTES + 1], pre[NAME_MAX_BYTES + 1];
};

static int read_types(const struct gguf *g, struct arrays *a, size_t n_vocab, struct err *e)
{
    size_t n = 0;
    int rc = gguf_int_array(g, "tokenizer.ggml.token_type", &a->types, &n, e);
    if (rc ==
        /* without it nothing would be a control token: a typed <|im_end|> couldn't be told from a
         * real one */
        ERR_NOTFOUND) {
        return err_set(
            e, ERR_UNSUPPORTED,
            "key \"tokenizer.ggml.token_type\" is missing; without it control tokens are unknown");
    }
    if (!rc) {
        rc = same_length("tokenizer.ggml.token_type", n, n_vocab, e);
    }
    for (size_t i = 0; !rc && i < n_vocab; i++) {
        if (a->types[i] < TOK_NORMAL || a->types[i] > TOK_BYTE) {
            rc = err_set(e, ERR_CORRUPT, "token %zu has type %d, it must be %d to %d", i,
                         a->types[i], TOK_NORMAL, TOK_BYTE);
        }
    }
    return rc;
}

static int read_arrays(const struct gguf *g, struct arrays *a, struct tok_spec *spec, struct err *e)
{
    int rc = read_name(g, "tokenizer.ggml.model", a->model, e);
    spec->model = a->model;
    if (!rc) {
        rc = gguf_str_array(g, "tokenizer.ggml.tokens", &a->pieces, &spec->n_vocab, e);
    }
    if (!rc && (spec->n_vocab < 1 || spec->n_vocab > VOCAB_MAX)) {
        rc = err_set(e, ERR_CORRUPT, "a vocabulary of %zu tokens, it must be 1 to %d",
                     spec->n_vocab, VOCAB_MAX);
    }
    if (!rc) {
        rc = read_types(g, a, spec->n_vocab, e);
    }
    if (!rc) {
        rc = read_name(g, "tokenizer.ggml.pre", a->pre, e);
        if (rc == ERR_NOTFOUND && !strcmp(a->model, "gpt2")) {
            return err_set(e, ERR_UNSUPPORTED,
                           "the file doesn't name its pre-tokenizer (key \"tokenizer.ggml.pre\"), "
                           "and a guess would change what the model reads");
        }
        rc = rc == ERR_NOTFOUND
                 ? 0
                 : rc; /* other tokenizers have none, and tok_new refuses them by name */
    }
    spec->pre = a->pre;
    if (!rc) {
        rc = gguf_str_array(g, "tokenizer.ggml.merges", &a->merges, &spec->n_merges, e);
        rc = rc == ERR_NOTFOUND && strcmp(a->model, "gpt2") != 0 ? 0 : rc;
    }
    spec->pieces = a->pieces;
    spec->types = a->types;
    spec->merges = a->merges;
    return rc;
}

static bool is_spm(const struct arrays *a)
{
    return strcmp(a->model, "llama") == 0;
}

/* Byte-level BPE has no use for scores; a wrong length still tells of a broken file. */
static int read_scores(const struct gguf *g, struct arrays *a, struct tok_spec *spec, struct err *e)
{
    size_t n = 0;
    int rc = gguf_array_length(g, "tokenizer.ggml.scores", &n, e);
    if (rc == ERR_NOTFOUND && !is_spm(a)) {
        return 0;
    }
    if (!rc) {
        rc = same_length("tokenizer.ggml.scores", n, spec->n_vocab, e);
    }
    if (!rc && is_spm(a)) {
        rc = gguf_float_array(g, "tokenizer.ggml.scores", &a->scores, &n, e);
        spec->scores = a->scores;
    }
    return rc;
}

static int read_flag(const struct gguf *g, const char *key, bool *inout, struct err *e)
{
    const int rc = gguf_bool(g, key, inout, e);
    return rc == ERR_NOTFOUND ? 0 : rc;
}

/* SentencePiece's own numbers, for files that don't name these tokens. */
static void default_ids(struct tok_spec *spec)
{
    spec->unk = spec->n_vocab > 0 ? 0 : -1;
    spec->bos = spec->n_vocab > 1 ? 1 : -1;
    spec->eos = spec->n_vocab > 2 ? 2 : -1;
}

/* The padding token isn't read: nothing is padded here, and many files have a wild one. */
static int read_ids(const struct gguf *g, struct arrays *a, struct tok_spec *spec, struct err *e)
{
    const struct {
        const char *key;
        int32_t *id;
    } ids[] = {
        {"tokenizer.ggml.bos_token_id", &spec->bos}, {"tokenizer.ggml.eos_token_id", &spec->eos},
        {"tokenizer.ggml.eot_token_id", &spec->eot}, {"tokenizer.ggml.eom_token_id", &a->eom},
    };
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        const int rc = read_id(g, ids[i].key, spec->n_vocab, ids[i].id, e);
        if (rc) {
            return rc;
        }
    }
    spec->ends = &a->eom;
    spec->n_ends = a->eom >= 0;
    return is_spm(a) ? read_id(g, "tokenizer.ggml.unknown_token_id", spec->n_vocab, &spec->unk, e)
                     : 0;
}

/* add_eos_token is read to see that it is a flag, no more: a prompt, of a chat or a completion, is
 * there to be continued, and a template says where turns end (Hugging Face tokenises its text
 * without special tokens; llama.cpp's completion program refuses such a file). Texts to embed are
 * marked by WordPiece's own rule. */
static int read_flags(const struct gguf *g, const struct arrays *a, struct tok_spec *spec,
                      struct err *e)
{
    bool add_eos = false;
    spec->add_space_prefix = is_spm(a);
    spec->add_bos = spec->bos >= 0 && (is_spm(a) || tok_pre_adds_bos(a->pre));
    int rc = read_flag(g, "tokenizer.ggml.add_bos_token", &spec->add_bos, e);
    if (!rc) {
        rc = read_flag(g, "tokenizer.ggml.add_eos_token", &add_eos, e);
    }
    if (!rc) {
        rc = read_flag(g, "tokenizer.ggml.add_space_prefix", &spec->add_space_prefix, e);
    }
    if (!rc && spec->add_bos && spec->bos < 0) {
        rc = err_set(
            e, ERR_CORRUPT,
            "key \"tokenizer.ggml.add_bos_token\" is true, but the file names no BOS token");
    }
    struct tok_str arch = {0};
    if (!rc && is_spm(a) && gguf_str(g, "general.architecture", &arch, NULL) == 0) {
        spec->strips_after_special = arch.n == 4 && !memcmp(arch.s, "phi3", 4);
    }
    return rc;
}

int model_tok_nfc(const struct gguf *g, bool skip_nfc, struct tok **ret, struct err *e)
{
    struct arrays a = {.eom = -1};
    struct tok_spec spec = {.bos = -1, .eos = -1, .eot = -1, .unk = -1, .skip_nfc = skip_nfc};
    int rc = read_arrays(g, &a, &spec, e);
    if (!rc) {
        rc = read_scores(g, &a, &spec, e);
    }
    if (!rc) {
        if (is_spm(&a)) {
            default_ids(&spec);
        }
        rc = read_ids(g, &a, &spec, e);
    }
    if (!rc) {
        rc = read_flags(g, &a, &spec, e);
    }
    if (!rc) {
        rc = tok_new(&spec, ret, e);
    }
    free(a.pieces);
    free(a.merges);
    free(a.types);
    free(a.scores);
    return model_required(rc, e);
}

int model_tok(const struct gguf *g, struct tok **ret, struct err *e)
{
    return model_tok_nfc(g, false, ret, e);
}

int model_template(const struct gguf *g, char **ret, struct err *e)
{
    struct tok_str s;
    int rc = gguf_str(g, "tokenizer.chat_template", &s, e);
    if (rc == ERR_NOTFOUND || (!rc && s.n == 0)) {
        *ret = NULL;
        return 0;
    }
    if (rc) {
        return rc;
    }
    if (memchr(s.s, '\0', s.n)) {
        return err_set(e, ERR_CORRUPT, "key \"tokenizer.chat_template\" holds a NUL byte");
    }
    char *text = sys.malloc(s.n + 1);
    if (!text) {
        return err_set(e, ERR_NOMEM, "out of memory for the chat template");
    }
    memcpy(text, s.s, s.n);
    text[s.n] = '\0';
    *ret = text;
    return 0;
}
