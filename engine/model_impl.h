/* Between model.c (loading) and model_slots.c (what an architecture consists of). Nobody else
 * includes it. */
#ifndef HEARTH_ENGINE_MODEL_IMPL_H
#define HEARTH_ENGINE_MODEL_IMPL_H

#include "base/hash.h"
#include "engine/model.h"

#define SLOT_NAME_BYTES 48

/* Rows of a tensor that the model needs: a matrix [rows, cols] or, when mat is NULL, a vector of
 * cols floats. */
struct slot {
    char name[SLOT_NAME_BYTES];
    int64_t rows, cols;
    int64_t row0, all_rows; /* which of the tensor's rows they are */
    int64_t planes;         /* the tensor is written as so many matrices, one below the other */
    int64_t file_cols;      /* columns of the tensor's rows */
    bool is_turned;         /* heads whose pairs are put side by side (source_row) */
    int64_t head_rows, still; /* of a head, and those before what is rotated of it */
    /* MLA's up-projections in one tensor, head by head its keys' rows and its values': which of
     * them these are. Keys are put the other way round, since the query goes through them */
    enum { UP_NONE, UP_KEYS, UP_VALUES } up;
    struct mat *mat;
    float **vector;
    const struct gguf_tensor *tensor;
};

struct pool;

struct loader {
    const struct gguf *g;
    const struct engine_options *o;
    const struct model_watch *watch; /* may be NULL */
    struct model *m;
    struct slot *slots;
    size_t n_slots;
    float *freqs, *long_factors, *short_factors; /* of the file's rotation; NULL: absent */
    uint64_t done_bytes, all_bytes; /* of tensor data, for progress */
    bool is_hashed;                 /* the weights' hash is known already */
    struct hash_state hash;
    struct pool *pool; /* while matrices are taken in */
};

/* GGML's number of what a slot is packed from: its tensor's type, but for quantised rows that are
 * put the other way round: their blocks end, and F16 takes what they hold. */
uint32_t model_slot_type(const struct slot *s);
/* The slot's rows in its order: the tensor's own bytes, or a copy in *ret_copy, the caller's; NULL:
 * no memory for that. */
const void *model_slot_rows(const struct model_params *p, const struct slot *s, void **ret_copy);
/* Where the slot's row r lies in the tensor. */
int64_t model_source_row(const struct model_params *p, const struct slot *s, int64_t r);

/* Fills l->slots with what the architecture consists of, and makes the layers. ERR_NOMEM,
 * ERR_CORRUPT. */
int model_make_slots(struct loader *l, struct err *e) MUST_USE;

#endif
