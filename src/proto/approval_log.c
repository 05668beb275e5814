/* SPDX-License-Identifier: Apache-2.0 */

/* See approval_log.h. */

#include "proto/approval_log.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"

#include <nettle/sha2.h>
#include <stdio.h>
#include <string.h>

void log_row_hash(const struct log_row *row, char out[LOG_HASH])
{
    cleanup_free char *text = xasprintf("%s\n%lld\n%lld\n%s\n%s\n%s\n%s\n%s", row->prev_hash,
        (long long)row->seq, (long long)row->time_ms, row->owner, row->place, row->approval,
        row->event, row->data);
    uint8_t hash[SHA256_DIGEST_SIZE];
    struct sha256_ctx ctx;
    sha256_init(&ctx);
    sha256_update(&ctx, strlen(text), (const uint8_t *)text);
    sha256_digest(&ctx, sizeof(hash), hash);
    str_hex(hash, sizeof(hash), out);
}
