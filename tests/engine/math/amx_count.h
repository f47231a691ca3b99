/* What the model of AMX counts, for the tests. */
#ifndef HEARTH_TESTS_AMX_COUNT_H
#define HEARTH_TESTS_AMX_COUNT_H

/* Configurations that were loaded, products of tiles. */
extern int amx_model_jobs, amx_model_products;
/* Whether this thread has tiles now. */
int amx_model_has_tiles(void);

#endif
