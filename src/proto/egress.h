/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The messages to hermes-egress over a SOCK_SEQPACKET socket, which it finds at EGRESS_FD. The
 * program that starts egress (the monitor, or `hermes run`) sends EGRESS_CEILING, then gives
 * the other end of the socket to the spawner: through the socket of SPAWN_EGRESS, on which a
 * new egress socket may arrive at any time. Then the spawner sends EGRESS_ADOPT for each of its
 * boxes with a network. Egress sends EGRESS_READY once, after it has confined itself; nothing
 * else. When its socket closes, it ends. */

#include <stdint.h>

enum { EGRESS_FD = 3 };

/* Each packet on the socket of SPAWN_EGRESS is this byte, with one descriptor: the socket of a
 * new egress. */
enum { EGRESS_SOCKET_MARK = 'e' };

/* The sockets that were opened in a box's network namespace, in the order in which they are
 * sent. */
enum kit_fd {
    KIT_REPORTS, /* netlink: SYN packets that were dropped and reported (NFLOG) */
    KIT_TCP4,    /* listeners that TPROXY hands every connection and datagram to */
    KIT_TCP6,
    KIT_UDP4,
    KIT_UDP6,
    KIT_RAW4, /* raw senders with the mark that passes the SYN gate */
    KIT_RAW6,
    KIT_COUNT,
};

/* Numbers that the rules of the kit and egress share. */
enum {
    KIT_MARK = 0x48,     /* of packets that the raw senders send */
    KIT_LOG_GROUP = 7,   /* NFLOG group of reported SYN packets */
    KIT_LOG_BYTES = 128, /* of each reported packet */
    KIT_PORT = 1,        /* of the listeners */
};
#define KIT_LISTEN_V4 "192.0.0.1" /* also the name server of every box */
#define KIT_BOX_V4 "192.0.0.2"
#define KIT_LISTEN_V6 "fd00:6865::1"
#define KIT_BOX_V6 "fd00:6865::2"

enum egress_kind {
    EGRESS_CEILING = 1, /* with a sealed memfd that holds a struct network_ceiling */
    EGRESS_ADOPT,       /* with EGRESS_ADOPT_FDS descriptors: the kit in order, the channel */
    EGRESS_DROP,        /* the box is gone: last record, close everything of it */
    EGRESS_READY,
};
/* The descriptors of IPv6 are missing in a kernel without it: then EGRESS_NO_V6 is set, and the
 * kit has the four others in order. */
enum { EGRESS_ADOPT_FDS = KIT_COUNT + 1, KIT_COUNT_V4 = 4, EGRESS_NO_V6 = 1 << 0 };

struct egress_message {
    uint32_t kind;
    uint32_t flags;
    uint64_t box; /* number of the box, never used again */
    uint32_t
        owner; /* SPAWN_BOX's owner: boxes of one key share struct network_limits key_max */
    uint32_t reserved;
};
