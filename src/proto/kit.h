/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How hermes-spawn uses hermes-network, the program that makes network namespaces, inspects
 * used ones and installs kits in them (egress.h). It is executed with no argument, an empty
 * environment and a SOCK_SEQPACKET socket as descriptor 3. It takes orders one after the other
 * and answers each with one struct kit_answer. It ends when the socket closes. */

#include "proto/egress.h"

#include <stdint.h>

/* KIT_MAX_FDS: of an answer, a namespace and a kit. */
enum { KIT_SOCKET_FD = 3, KIT_MAX_FDS = 1 + KIT_COUNT };

enum kit_order_kind {
    KIT_MAKE, /* a namespace that has nothing but loopback, which is up; the answer has its
                 descriptor */
    KIT_MAKE_READY, /* the same with a kit in it; then comes the kit */
    KIT_LOOK,       /* with the descriptor of a used namespace that never had a kit: is_fresh */
    KIT_FORGET,  /* with the descriptor of a namespace that nobody uses any more: hermes-network
                    closes its files of it. is_fresh is 0 */
    KIT_INSTALL, /* with the descriptor of a namespace, or a pidfd of a process in it: puts a
                    kit into it. The answer has the kit */
    KIT_PROBE,   /* tries the kit in a namespace of its own: `missing` */
};

struct kit_order {
    uint32_t kind;
    uint32_t reserved;
};

/* The parts of a kit. When a part is missing, its name tells the operator which kernel module
 * to load or which right to grant. */
#define KIT_PARTS(X)                                                                           \
    X(PART_NAMESPACE, "a network namespace")                                                   \
    X(PART_LOOPBACK, "the loopback device")                                                    \
    X(PART_ROUTES, "addresses and routes")                                                     \
    X(PART_IPV6, "IPv6")                                                                       \
    X(PART_RULES, "nf_tables")                                                                 \
    X(PART_LIMIT, "nft_limit")                                                                 \
    X(PART_LOG, "nft_log")                                                                     \
    X(PART_TPROXY, "nft_tproxy")                                                               \
    X(PART_REPORTS, "nfnetlink_log")                                                           \
    X(PART_LISTENERS, "transparent sockets")                                                   \
    X(PART_RAW, "raw sockets")

enum kit_part {
#define PART_ENUM(name, text) name,
    KIT_PARTS(PART_ENUM)
#undef PART_ENUM
        PART_COUNT
};

/* The kit comes in the order of enum kit_fd. Without IPv6 (has_v6 is 0) the descriptors of IPv6
 * are left out. */
struct kit_answer {
    uint32_t kind; /* of the order */
    int32_t error; /* negative errno, or 0. An answer with an error has no descriptors, and the
                      namespace, which may have half a kit, cannot be used */
    uint32_t part; /* enum kit_part that failed */
    uint32_t has_v6;
    uint32_t is_fresh; /* KIT_LOOK: looks like a new one */
    uint32_t missing;  /* KIT_PROBE: bit per enum kit_part. PART_IPV6 alone is not an error */
};
