/* A directory that stands for the root of the file system: a test's set-up makes it, its teardown
 * removes it. */
#ifndef HEARTH_TESTS_FAKE_ROOT_H
#define HEARTH_TESTS_FAKE_ROOT_H

extern char root[64];
/* Writes root/path, making its folders. */
void put(const char *path, const char *text);
int new_root(void **state);
int drop_root(void **state);

#endif
