/* SPDX-License-Identifier: Apache-2.0 */

/* UTF-8 repair and cutting. What must hold for any bytes is checked by abort(). */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
    if (!holds)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *s = (const char *)data;
    size_t len = 0;
    size_t again_len = 0;
    bool is_valid = utf8_valid(s, size);
    cleanup_free char *repaired = utf8_repair(s, size, &len);
    cleanup_free char *again = utf8_repair(repaired, len, &again_len);

    check(utf8_valid(repaired, len) && repaired[len] == '\0' && len <= size * 3);
    check(again_len == len && memcmp(again, repaired, len) == 0);
    check(is_valid == (len == size && memcmp(repaired, s, size) == 0));

    size_t taken = 0;
    while (taken < size) {
        uint32_t code;
        size_t n = utf8_next(s + taken, size - taken, &code);
        check(n >= 1 && n <= 4 && n <= size - taken);
        check(code == UTF8_INVALID || code <= 0x10ffff);
        taken += n;
    }

    size_t floor = utf8_floor(s, size);
    check(floor <= size && size - floor <= 3);
    if (is_valid) {
        check(floor == size);
        for (size_t cut = 0; cut <= size && cut < 64; cut++)
            check(utf8_valid(s, utf8_floor(s, cut)));
    }
    return 0;
}
