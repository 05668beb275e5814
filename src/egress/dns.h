/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Questions that a box asks a name server, and the answers that egress gives. Nothing here
 * keeps state. A message of the box and an answer of a name server are both a stranger's. */

#include "base/address.h"
#include "proto/network.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    DNS_MAX_MESSAGE = 4096, /* longest message that is read or written, over TCP too */
    DNS_MAX_ADDRESSES = 32, /* in an answer; further ones are left out */
    DNS_MAX_TTL = 60,       /* seconds that the box may keep an answer */
    DNS_PLAIN_UDP = 512,    /* longest answer over UDP unless the box says more */
    DNS_MAX_UDP = 1232,     /* ... and the most that it may say */
    DNS_QUESTION = 259,     /* a name in wire form, type and class */
};

enum dns_type { DNS_A = 1, DNS_PTR = 12, DNS_AAAA = 28, DNS_SVCB = 64, DNS_HTTPS = 65 };

enum dns_code {
    DNS_NO_ERROR = 0,
    DNS_BAD_FORMAT = 1,
    DNS_SERVER_FAILED = 2,
    DNS_NO_NAME = 3,
    DNS_REFUSED = 5,
};

struct dns_query {
    uint16_t id;
    uint16_t type;
    uint16_t udp_room; /* longest answer over UDP */
    bool has_edns;
    bool wants_recursion;
    uint16_t question_len;
    uint8_t question[DNS_QUESTION]; /* as it came: answers repeat upper and lower case */
    char name[NETWORK_NAME];        /* lower case, without trailing dot */
};

/* Reads a query: one question of class IN, whose labels hold letters, digits, '-' and '_'.
 * Returns 0; -EBADMSG when the query can only be answered with an error code (then question_len
 * is 0 and name empty); -EINVAL when it is not to be answered at all. */
int dns_parse(struct dns_query *ret, const uint8_t *data, size_t len);

/* Whether a type is answered with nothing, even for allowed names: SVCB and HTTPS carry
 * addresses and keys past the pins; ANY and the other types of 128 to 255 are not records. */
bool dns_type_is_empty(uint16_t type);

/* Whether a name stands for an address (1.2.0.192.in-addr.arpa). *ret gets the address. */
bool dns_reverse(struct address *ret, const char *name);

/* Writes an answer. With DNS_NO_ERROR it holds the addresses of the family that was asked for,
 * perhaps none. If it does not fit into UDP, it says "truncated" instead, and the box asks
 * again over TCP. Returns the length. */
struct dns_answer {
    enum dns_code code;
    uint32_t ttl_s; /* at most DNS_MAX_TTL is given */
    size_t count;
    const struct address *addresses; /* borrowed */
};
size_t dns_build(uint8_t ret[DNS_MAX_MESSAGE], const struct dns_query *query,
    const struct dns_answer *answer, bool is_tcp);

/* Writes the answer of a name server to a query of another type than A and AAAA: only its code
 * and its answer section, under the id and the question of the box, with TTLs of at most
 * DNS_MAX_TTL. Returns the length, or -EBADMSG when the bytes are not an answer to this
 * question or carry records of types A, AAAA, SVCB or HTTPS. */
ssize_t dns_copy(uint8_t ret[DNS_MAX_MESSAGE], const struct dns_query *query,
    const uint8_t *answer, size_t len, bool is_tcp);
