/*
 * See context.h.
 */
#include "daemon/context.h"
