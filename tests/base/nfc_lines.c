/*
 * Normalization to form C under a driver (nfc.py): for each line of the input, one of the output
 * with what utf8_is_nfc says ("1" or "0"), a space, and the line in form C.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/utf8.h"

int main(void)
{
    char *line = NULL;
    size_t cap = 0;
    struct buf b;
    buf_init(&b, (size_t)1 << 30);
    for (ssize_t n; (n = getline(&line, &cap, stdin)) > 0; buf_clear(&b)) {
        n -= line[n - 1] == '\n';
        if (utf8_nfc(line, (size_t)n, &b) < 0)
            return 1;
        printf("%d ", utf8_is_nfc(line, (size_t)n));
        fwrite(b.data, 1, b.len, stdout);
        putchar('\n');
    }
    free(line);
    buf_done(&b);
    return ferror(stdin) || fflush(stdout) != 0;
}
