/*
 * Commands that work without a socket: hearthd probe | bench | perplexity. Each has its file, which
 * may print. argv[0] is the command's name; the exit status is returned.
 */
#ifndef HEARTH_DAEMON_OFFLINE_H
#define HEARTH_DAEMON_OFFLINE_H

int offline_probe(int argc, char **argv); /* JSON lines in, JSON lines out: golden tests */
int offline_bench(int argc, char **argv); /* speed of kernels and passes */
int offline_perplexity(int argc, char **argv); /* how well a text is predicted */

#endif
