/* Shared by the files of the probe: offline_probe.c, offline_probe_logits.c,
 * offline_probe_sample.c. */
#ifndef HEARTH_DAEMON_OFFLINE_PROBE_H
#define HEARTH_DAEMON_OFFLINE_PROBE_H

#include "base/ids.h"
#include "daemon/offline_json.h"
#include "engine/engine.h"

#define PROBE_THREADS_MAX 1024

struct probe {
    struct engine *engine;
    int n_threads; /* as started */
    char *isa;
};

/* Fields of the question. An absent integer or bool leaves *ret as it is. Errors name the field. */
int probe_take_ids(const json *o, const char *field, struct ids *ret, struct err *e) MUST_USE;
int probe_take_int(const json *o, const char *field, int64_t max, int *ret, struct err *e) MUST_USE;
int probe_take_bool(const json *o, const char *field, bool *ret, struct err *e) MUST_USE;
/* A part of the answer: [first, second] at the end of a list. */
void probe_add_pair(json *list, double first, double second);

/* Operations: they fill the answer, or fail. */
int probe_op_logits(struct probe *p, const struct offline_line *l, json *answer,
                    struct err *e) MUST_USE;
int probe_op_nll(struct probe *p, const struct offline_line *l, json *answer,
                 struct err *e) MUST_USE;
int probe_op_sample(struct probe *p, const struct offline_line *l, json *answer,
                    struct err *e) MUST_USE;

#endif
