/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The format of one entry of the compile cache. */

#include "base/buf.h"
#include "run/run.h"

#include <stdint.h>

/* Bytes. CACHE_ENTRY_MAX bounds the memory that reading an entry takes. */
enum { CACHE_KEY_SIZE = 32, CACHE_SECRET_SIZE = 32, CACHE_ENTRY_MAX = 128 << 20 };

struct cache_key {
    uint8_t bytes[CACHE_KEY_SIZE];
};

/* Output and artefacts of a compiler. */
struct cache_entry {
    const char *out;
    size_t out_len;
    const char *err;
    size_t err_len;
    struct run_files files; /* artefacts; after a read, their bytes are in files.backing */
};
void cache_entry_done(struct cache_entry *entry);

/* Appends header, MAC and all parts; -EMSGSIZE when they do not fit into b. */
int cache_entry_write(const struct cache_entry *entry, const struct cache_key *key,
    const uint8_t secret[CACHE_SECRET_SIZE], struct buf *b);

/* Empties b in any case. -EBADMSG when the bytes were not written under this key and secret. */
int cache_entry_read(struct buf *b, const struct cache_key *key,
    const uint8_t secret[CACHE_SECRET_SIZE], struct cache_entry *ret);

/* The part of cache_entry_read() after the check of the MAC; for tests. */
int cache_entry_parse(struct buf *b, struct cache_entry *ret);
