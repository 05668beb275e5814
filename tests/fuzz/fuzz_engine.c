/* SPDX-License-Identifier: Apache-2.0 */

/* Bytes of an engine of containers: however they are split, the outcome is the same, and no
 * reader gives more than it was given. */

#include "backend/wire.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
    if (!holds)
        abort();
}

static void try_chunks(const uint8_t *data, size_t size)
{
    struct wire_chunks whole = {0}, split = {0};
    char *one = malloc(size + 1), *all = malloc(size + 1);
    memcpy(one, data, size);
    ssize_t n = wire_chunks_take(&whole, one, size), m = 0, r = 0;
    check(n <= (ssize_t)size);
    for (size_t at = 0; r >= 0 && at < size; at++) {
        all[m] = (char)data[at];
        r = wire_chunks_take(&split, all + m, 1);
        m += r > 0 ? r : 0;
    }
    check((n < 0) == (r < 0));
    check(n < 0 || (n == m && memcmp(one, all, (size_t)n) == 0 && whole.state == split.state));
    free(one);
    free(all);
}

static void try_frames(const uint8_t *data, size_t size)
{
    struct wire_frames whole = {0}, split = {0};
    char *one = malloc(size + 1), *said = malloc(size + 1), *all = malloc(size + 1),
         *err = malloc(size + 1);
    size_t said_len = 0, err_len = 0, err_all = 0;
    memcpy(one, data, size);
    ssize_t n = wire_frames_take(&whole, one, size, said, &said_len), m = 0, r = 0;
    check(n <= (ssize_t)size && said_len <= size);
    for (size_t at = 0; r >= 0 && at < size; at++) {
        all[m] = (char)data[at];
        r = wire_frames_take(&split, all + m, 1, err + err_all, &err_len);
        m += r > 0 ? r : 0;
        err_all += err_len;
    }
    check((n < 0) == (r < 0));
    check(n < 0 || (n == m && memcmp(one, all, (size_t)n) == 0 && err_all == said_len &&
                       memcmp(err, said, said_len) == 0));
    free(one);
    free(said);
    free(all);
    free(err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wire_head head;
    ssize_t n = wire_head_parse((const char *)data, size, &head);
    check(n <= (ssize_t)size);
    if (n > 0) {
        struct wire_head again;
        check(wire_head_parse((const char *)data, (size_t)n, &again) == n);
        check(
            head.status >= 100 && head.status <= 599 && !(head.is_chunked && head.has_length));
        check(wire_head_parse((const char *)data, (size_t)n - 1, &again) <= 0);
    }
    try_chunks(data, size);
    try_frames(data, size);
    return 0;
}
