/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The messages to hermes-inject over a SOCK_SEQPACKET socket, which it finds at INJECT_FD. The
 * monitor sends INJECT_SECRETS, then gives the other end to hermes-egress: over the link that
 * egress got with the ceiling (egress.h), on which a new socket may arrive at any time. Egress
 * sends INJECT_CONNECTION for each connection of a box to the host of a secret that the box
 * asked for. Inject answers nothing. When its socket closes, it ends. */

#include "proto/network.h"

#include <stdint.h>

enum { INJECT_FD = 3, INJECT_HEADER = 64, INJECT_TABLE_MAX = 16 << 20 };

/* Each packet on the link is this byte, with one descriptor: the socket of a new inject. */
enum { INJECT_SOCKET_MARK = 'i' };

enum inject_kind {
    INJECT_SECRETS = 1, /* with a sealed memfd: struct inject_table, and behind it the texts */
    INJECT_CONNECTION,  /* with INJECT_CONNECTION_FDS descriptors */
};
/* First the stream to the box, then a TCP connection to the server: egress has decided about it
 * and connected it. */
enum { INJECT_CONNECTION_FDS = 2 };

struct inject_message {
    uint32_t kind;
    uint32_t secrets; /* INJECT_CONNECTION: bits, as in struct network_policy. All are for one
                         host and port */
};

/* A text in the memfd, without NUL. */
struct inject_text {
    uint32_t at;
    uint32_t len;
};

struct inject_secret {
    char host[NETWORK_NAME];
    uint16_t port;
    char header[INJECT_HEADER];
    struct inject_text line;        /* the header's content, "Bearer ..." */
    struct inject_text value;       /* the value itself, a part of the line */
    struct inject_text certificate; /* PEM, shown to the box */
    struct inject_text key;         /* PEM */
    struct inject_text trust; /* PEM: authorities that may sign the certificate of the server */
};

struct inject_table {
    uint32_t count;
    uint32_t reserved;
    struct inject_secret secrets[NETWORK_MAX_SECRETS];
};
