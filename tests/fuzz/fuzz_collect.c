/* SPDX-License-Identifier: Apache-2.0 */

/* The collector's pipe as a hostile box could fill it, in pieces of any size. */

#include <stdint.h>
#include <stdlib.h>

#include "run/package.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { MAX_FILES = 8, MAX_BYTES = 4096 };
    struct collect_reader reader;
    size_t step = size ? data[0] % 64 + 1 : 1;
    collect_reader_init(&reader, MAX_FILES, MAX_BYTES);
    for (size_t at = 0; at < size; at += step) {
        size_t len = size - at < step ? size - at : step;
        if (collect_reader_feed(&reader, (const char *)data + at, len) < 0)
            break;
    }
    uint64_t bytes = 0;
    for (size_t i = 0; i < reader.files.count; i++)
        bytes += reader.files.items[i].size;
    if (reader.files.count > MAX_FILES || bytes > MAX_BYTES)
        abort();
    collect_reader_done(&reader);
    return 0;
}
