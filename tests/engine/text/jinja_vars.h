/* A template's variables out of JSON, for the tests of the Jinja interpreter. */
#ifndef HEARTH_TESTS_ENGINE_TEXT_JINJA_VARS_H
#define HEARTH_TESTS_ENGINE_TEXT_JINJA_VARS_H

#include "base/json.h"
#include "engine/jinja.h"

/* Whole numbers are ints. Strings are borrowed from j, the rest is made in `a`; what has no memory
 * is none. */
struct jinja_value jinja_vars_of(struct arena *a, const json *j);

#endif
