/* SPDX-License-Identifier: Apache-2.0 */

/* Entries of the compile cache behind the MAC: whatever the bytes are, the parser stays inside
 * them, and what it accepts is written back as the same bytes. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "run/cache/entry.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BEFORE_BODY = 8 + 32 }; /* magic and MAC */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct cache_key key;
    static const uint8_t secret[CACHE_SECRET_SIZE];
    cleanup_buf struct buf bytes;
    cleanup_buf struct buf again;
    struct cache_entry entry;

    buf_init(&bytes, size + 64);
    buf_init(&again, size + 64);
    /* With the magic in place the fuzzer need not find it. */
    if (size == 0 || buf_append(&bytes, "HCACHE1\n", 8) < 0 ||
        buf_append(&bytes, data, size) < 0 || cache_entry_parse(&bytes, &entry) < 0)
        return 0;
    if (cache_entry_write(&entry, &key, secret, &again) < 0 || again.len != size + 8 ||
        memcmp(again.data + BEFORE_BODY, data + BEFORE_BODY - 8, again.len - BEFORE_BODY) != 0)
        abort();
    cache_entry_done(&entry);
    return 0;
}
