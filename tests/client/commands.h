/* What main.c gives the client library, for unit tests: usage errors are kept, not printed. */
#ifndef HEARTH_TESTS_CLIENT_COMMANDS_H
#define HEARTH_TESTS_CLIENT_COMMANDS_H

#include "client/client.h"

extern char usage_text[512]; /* of the last usage_error */

#endif
