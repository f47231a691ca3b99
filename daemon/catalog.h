/* What is known of the models' files (daemon/api_catalog.c); the history thread's. */
#ifndef HEARTH_DAEMON_CATALOG_H
#define HEARTH_DAEMON_CATALOG_H

struct catalog;

void catalog_free(struct catalog *c); /* NULL is fine */

#endif
