/* What tests may ask the scripted engine beyond engine.h. */
#ifndef HEARTH_TESTS_SCRIPTED_SCRIPTED_H
#define HEARTH_TESTS_SCRIPTED_SCRIPTED_H

#include <stdint.h>

#include "engine/engine.h"

/* Passes that met a prefix whose blocks don't continue each other: a wrong, stale, torn or
 * unwritten block. Any thread. */
uint64_t scripted_n_wrong(const struct engine *en);

#endif
