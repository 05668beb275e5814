/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The log of approvals, as the server writes it and `hermes approvals verify` checks it. `hash`
 * of a row is the SHA-256, in hexadecimal, of
 *
 *   prev_hash LF seq LF time_ms LF owner LF place LF approval LF event LF data
 *
 * and prev_hash is the hash of the row before, LOG_FIRST for the first one. */

#include <stdint.h>

enum { LOG_HASH = 65 };
#define LOG_FIRST "0000000000000000000000000000000000000000000000000000000000000000"

struct log_row {
    int64_t seq; /* from 1 */
    int64_t time_ms;
    const char *owner;
    const char *place; /* id of the session, run or execution, or "" */
    const char *approval;
    const char *event; /* "asked", "approved", ... */
    const char *data;  /* JSON */
    char prev_hash[LOG_HASH];
    char hash[LOG_HASH];
};

/* The hash that a row must have, from its other members. */
void log_row_hash(const struct log_row *row, char out[LOG_HASH]);
