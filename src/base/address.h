/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Internet addresses and the ranges that boxes do not reach. Every address is kept as IPv6, an
 * IPv4 address as ::ffff:a.b.c.d, so each has one spelling and one comparison. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct address {
    uint8_t bytes[16];
};

/* A range: the first `bits` bits of `base` count, 0 to 128. An IPv4 range has at least 96. */
struct address_range {
    struct address base;
    uint8_t bits;
};

/* ADDRESS_TEXT: room for the text of a range, with its NUL. */
enum { ADDRESS_TEXT = 52, ADDRESS_V4_BITS = 96 };

/* Why an address is closed; ADDRESS_PUBLIC when it is not. address_class_name() returns the
 * word that answers use. */
enum address_class {
    ADDRESS_PUBLIC,
    ADDRESS_THIS_NETWORK,
    ADDRESS_PRIVATE,
    ADDRESS_SHARED,
    ADDRESS_LOOPBACK,
    ADDRESS_LINK_LOCAL,
    ADDRESS_METADATA,
    ADDRESS_PROTOCOL,
    ADDRESS_6TO4,
    ADDRESS_BENCHMARKING,
    ADDRESS_DOCUMENTATION,
    ADDRESS_MULTICAST,
    ADDRESS_RESERVED,
    ADDRESS_NOT_GLOBAL, /* IPv6 outside 2000::/3 that is none of the others */
    ADDRESS_CLASS_COUNT,
};

struct address address_v4(const uint8_t bytes[4]);
bool address_is_v4(const struct address *a);

/* Parses "192.0.2.1" or "2001:db8::1", without brackets, port or zone. IPv4 takes exactly four
 * decimal numbers without leading zeros. Returns 0 or -EINVAL. */
int address_parse(struct address *ret, const char *text);

/* Parses an address, or an address and a length: "192.0.2.0/24", "2001:db8::/32". Bits of the
 * base behind the length must be zero. Returns 0 or -EINVAL. */
int address_range_parse(struct address_range *ret, const char *text);

void address_print(const struct address *a, char text[ADDRESS_TEXT]);
void address_range_print(const struct address_range *range, char text[ADDRESS_TEXT]);

bool address_in_range(const struct address *a, const struct address_range *range);

/* Whether every address of `inner` is in `outer`. */
bool address_range_covers(const struct address_range *outer, const struct address_range *inner);

/* The class of an address. A range has the class of the first closed range that it overlaps;
 * it is ADDRESS_PUBLIC only if all its addresses are. */
enum address_class address_classify(const struct address *a);
enum address_class address_range_classify(const struct address_range *range);
const char *address_class_name(enum address_class c);

/* Whether a socket with this address reaches this host only: 127.0.0.0/8, also as IPv6, ::1, or
 * a unix socket. */
struct sockaddr;
bool address_is_loopback(const struct sockaddr *socket);
