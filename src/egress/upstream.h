/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A connection through the operator's HTTP proxy: the request CONNECT, and its answer. The
 * caller sends and receives. */

#include <stddef.h>
#include <stdint.h>

enum {
    UPSTREAM_REQUEST = 1280,   /* room for a request with its NUL */
    UPSTREAM_MAX_HEAD = 16384, /* longest answer */
};

/* Writes the request to connect to a name or an address (without brackets). `credentials` are
 * "user:password" or "". Returns its length, or 0 when the host cannot stand in a request or
 * the credentials are too long. */
size_t upstream_request(
    char ret[UPSTREAM_REQUEST], const char *host, uint16_t port, const char *credentials);

enum upstream_state { UPSTREAM_MORE, UPSTREAM_OPEN, UPSTREAM_FAILED };

/* Where the reading of the answer stands; zeroed at the start. */
struct upstream {
    uint16_t status; /* of HTTP, once it is known */
    uint16_t taken;
    uint8_t state;    /* enum upstream_state */
    uint8_t newlines; /* at the end of what was read, without '\r' between */
    uint8_t has_line; /* the status line is complete */
};

/* Reads the next bytes of the answer. *ret_taken says how many belong to it: with UPSTREAM_OPEN
 * the bytes after them come from the server. Ends after the head of an answer of 200 to 299,
 * and fails with any other. */
enum upstream_state upstream_feed(
    struct upstream *u, const char *data, size_t len, size_t *ret_taken);
