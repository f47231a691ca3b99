/* A directory that stands for the root of the file system, made anew for each test. */
#include "tests/engine/load/fake_root.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"

#define PATH_BYTES 512

char root[64];

void put(const char *path, const char *text)
{
    char full[PATH_BYTES];
    struct err e;
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')) != NULL; p++) {
        *p = '\0';
        (void)mkdir(full, 0700);
        *p = '/';
    }
    assert_int_equal(file_write(full, text, strlen(text), &e), 0);
}

int new_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/hearth-root-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static void remove_tree(const char *path)
{
    char command[PATH_BYTES];
    snprintf(command, sizeof command, "%s", path);
    const pid_t pid = fork();
    if (pid == 0) {
        execlp("rm", "rm", "-rf", "--", command, (char *)NULL);
        _exit(127);
    }
    assert_true(pid > 0);
    while (waitpid(pid, NULL, 0) < 0) {
    }
}

int drop_root(void **state)
{
    (void)state;
    remove_tree(root);
    return 0;
}
