/* The pass over the bytes that json_parse makes before cJSON sees them; pure, and fuzzed. */
#ifndef HEARTH_BASE_JSON_SCAN_H
#define HEARTH_BASE_JSON_SCAN_H

#include <stddef.h>

#include "base/err.h"

#define JSON_NUMBER_BYTES_MAX 63 /* cJSON cuts longer ones without a word */

/* 0 when text[0, n) is one JSON value within the rules of json.h, white space around it. ERR_INVAL
 * with text "offset N: why"; ERR_LIMIT (likewise) for depth, count and length of a number. */
int json_scan(const char *text, size_t n, struct err *e) MUST_USE;

#endif
