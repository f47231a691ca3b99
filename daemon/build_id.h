/* Which build this is. */
#ifndef HEARTH_DAEMON_BUILD_ID_H
#define HEARTH_DAEMON_BUILD_ID_H

/* The program's identity, 40 hex digits: another build has another one. "unknown" when the linker
 * left none. First call on the main thread. */
const char *build_id(void);

#endif
