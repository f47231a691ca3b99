/*
 * Configuration: defaults, then hearth.conf (INI: name = value, the names of the flags; # and ;
 * begin comments), then flags. Each value is checked where it is read, and an error names the flag
 * or the line, the value and what is allowed. All of them end the program with EXIT_CONFIG, which
 * systemd doesn't restart after.
 */
#ifndef HEARTH_DAEMON_CONFIG_H
#define HEARTH_DAEMON_CONFIG_H

#include <stdint.h>

#include "base/buf.h"
#include "daemon/daemon.h"

#define EXIT_CONFIG 78 /* EX_CONFIG of sysexits.h */
#define CONFIG_DISK_AUTO UINT64_MAX /* of disk_bytes: not given */

enum config_result { CONFIG_RUN = 0, CONFIG_HELP, CONFIG_VERSION };

/* One of enum config_result, or ERR_INVAL, ERR_NOTFOUND (model, file), ERR_UNSUPPORTED, ERR_LIMIT …
 * Reads the environment only for the default places (base/paths.h). */
int config_load(int argc, char **argv, struct config *ret, struct err *e) MUST_USE;
void config_done(struct config *c);

/* ---- within (config_template.c) ---- */

/* One --chat-template. `where` names it, as errors do. */
int config_template_set(struct config *c, const char *text, const char *where,
                        struct err *e) MUST_USE;
/* That those that are files can be read. */
int config_templates_check(const struct config *c, struct err *e) MUST_USE;
void config_templates_done(struct config *c);
/* what: "model", "chat template" … */
int config_check_file(const char *what, const char *path, struct err *e) MUST_USE;

/* ---- for all ---- */

/* What replaces the template of the model of that id; borrowed, NULL: nothing. */
const char *config_template_of(const struct config *c, const char *id, bool is_default);
/* The text of --help. */
void config_help(struct buf *b);
/* "4G", "512M", "100k", "1024": binary multiples. ERR_INVAL. */
int config_size(const char *s, uint64_t *ret) MUST_USE;

#endif
