/* What json_parse accepts, it must be able to write, and its own text must parse to the same text
 * again. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static json *write_and_parse(const json *j, struct buf *b)
{
    json *again = NULL;
    json_write(j, b);
    if (buf_error(b) || json_parse(b->data, b->len, &again, NULL) < 0)
        abort();
    return again;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    json *j = NULL;
    struct err e = {0};
    if (json_parse((const char *)data, n, &j, &e) < 0) {
        if (j || e.text[0] == '\0')
            abort();
        return 0;
    }
    struct buf first, second;
    buf_init(&first, SIZE_MAX);
    buf_init(&second, SIZE_MAX);
    json *again = write_and_parse(j, &first);
    json_write(again, &second);
    if (buf_error(&second) || first.len != second.len ||
        memcmp(first.data, second.data, first.len) != 0)
        abort();
    json_free(j);
    json_free(again);
    buf_done(&first);
    buf_done(&second);
    return 0;
}
