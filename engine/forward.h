/* The forward pass and the threads it runs on. engine.c owns one. */
#ifndef HEARTH_ENGINE_FORWARD_H
#define HEARTH_ENGINE_FORWARD_H

#include "engine/engine.h"
#include "engine/model.h"

struct forward;

/* isa NULL: the best. ERR_INVAL when this CPU lacks it (naming what it has). */
int forward_new(const struct model *m, const struct kv_shape *kv, int n_threads, const char *isa,
                struct forward **ret, struct err *e) MUST_USE;
void forward_free(struct forward *f);
int forward_set_threads(struct forward *f, int n_threads, struct err *e) MUST_USE;
int forward_set_isa(struct forward *f, const char *isa, struct err *e) MUST_USE;
const char *forward_isa(const struct forward *f);
int forward_n_threads(const struct forward *f);
/* engine_pass, see engine.h. Ids have been checked. */
int forward_pass(struct forward *f, struct engine_part *parts, int n_parts, const atomic_int *abort,
                 struct err *e) MUST_USE;
/* engine_pass_bytes, see engine.h. */
size_t forward_pass_bytes(const struct forward *f, int n_rows);
/* The same of a model that is measured but not loaded. */
size_t forward_bytes_of(const struct model *m, const struct kv_shape *kv, int n_threads,
                        int n_rows);
uint64_t forward_progress(const struct forward *f);
/* Counts it there, too; borrowed. */
void forward_tell_progress(struct forward *f, _Atomic uint64_t *passed);
/* 1 ms of every kernel, exp, rope and a fixed pseudo-random input; hashes the output bits: any
 * drift of compiler or CPU becomes another fingerprint. */
void forward_numerics_probe(struct forward *f, uint8_t ret[32]);

#endif
