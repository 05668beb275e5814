/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Packets between a box and egress: the SYN packets that the kernel reports (NFLOG), and the
 * packets that egress puts into the box through the raw senders of the kit. Nothing here keeps
 * state. Every byte of a report is the box's.
 *
 * Built packets begin with their IP header. The sender gives the kernel the destination address
 * of the packet once more, in sendto() or sendmsg(), with port 0. */

#include "base/address.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* PACKET_SYN: the longest SYN, IPv6 header and TCP header with all options.
 * PACKET_SMALL: room for every packet but a datagram. PACKET_UDP_HEAD: room for the headers of
 * one. */
enum { PACKET_SYN = 100, PACKET_SMALL = 100, PACKET_UDP_HEAD = 48 };

/* The two ends of a connection or flow as the box sees them: it is the source. Both addresses
 * are of one family. */
struct packet_ends {
    struct address source;
    struct address destination;
    uint16_t source_port;
    uint16_t destination_port;
};

/* A connection attempt. */
struct packet_syn {
    struct packet_ends ends;
    uint32_t sequence; /* equal for repeats of one attempt, different for another attempt */
    uint16_t len;
    uint8_t bytes[PACKET_SYN]; /* the packet to send again: own IP header, the TCP header as it
                                  came, no data, checksums complete */
};

bool packet_ends_equal(const struct packet_ends *a, const struct packet_ends *b);

/* Takes the next reported packet out of what one recv() from the report socket returned. *at
 * and *left describe the bytes that remain; set them to all bytes before the first call.
 * Returns false when there is none left. The packet is borrowed from the bytes. */
bool packet_next_report(
    const uint8_t **at, size_t *left, const uint8_t **ret_packet, size_t *ret_len);

/* Reads a reported packet: IPv4 without options or IPv6 without extension headers, not a
 * fragment, TCP with SYN and neither ACK, RST nor FIN. Data behind the TCP header is ignored.
 * An IPv6 packet from or to an IPv4-mapped address is refused, so that an address has one
 * spelling. Returns 0 or -EINVAL. */
int packet_parse_syn(struct packet_syn *ret, const uint8_t *packet, size_t len);

/* The answer "connection refused" to an attempt. Returns the length. */
size_t packet_build_reset(uint8_t ret[PACKET_SMALL], const struct packet_syn *syn);

enum packet_unreachable {
    PACKET_PROHIBITED,       /* EHOSTUNREACH in the box; over IPv6 EACCES */
    PACKET_HOST_UNREACHABLE, /* EHOSTUNREACH */
    PACKET_PORT_UNREACHABLE, /* ECONNREFUSED; for datagrams */
};

/* The ICMP or ICMPv6 message about an attempt, or about a datagram of `len` bytes without its
 * headers. It comes from the destination. Returns the length. */
size_t packet_build_unreachable_syn(
    uint8_t ret[PACKET_SMALL], const struct packet_syn *syn, enum packet_unreachable why);
size_t packet_build_unreachable_udp(uint8_t ret[PACKET_SMALL], const struct packet_ends *ends,
    size_t len, enum packet_unreachable why);

/* The headers of a datagram from the destination of `ends` to its source: an answer. The caller
 * sends them and the data in one sendmsg(). Returns their length, or 0 when the data is too
 * long for one packet. */
size_t packet_build_udp_head(
    uint8_t ret[PACKET_UDP_HEAD], const struct packet_ends *ends, const void *data, size_t len);
