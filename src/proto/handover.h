/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The messages between monitor and server over a SOCK_SEQPACKET pair: a kind and
 * descriptors. */

#include "base/buf.h"
#include "base/err.h"
#include "base/fdpass.h"

#include <stddef.h>
#include <stdint.h>

enum { HANDOVER_FD = 3, HANDOVER_MAX_TEXT = 64 << 20 };

enum handover_kind {
    HANDOVER_HELLO = 1, /* to the server, with descriptors in the order of HELLO_*: settings,
                           keys, engine table, control socket, then the listening sockets */
    HANDOVER_SPAWNER,   /* to the server: control socket of a new spawner */
    HANDOVER_READY,     /* from the server: it accepts requests */
};
enum { HELLO_SETTINGS, HELLO_KEYS, HELLO_TABLE, HELLO_CONTROL, HELLO_LISTEN };

/* The caller keeps the descriptors. */
int handover_send(int socket, enum handover_kind kind, const int *fds, unsigned fd_count);

/* Waits for a message. The caller owns the received descriptors. Returns 1 with a message, 0 at
 * the end of the socket, or negative errno. */
int handover_receive(
    int socket, enum handover_kind *ret_kind, int fds[FDPASS_MAX], unsigned *ret_count);

/* Writes text to a sealed memfd and returns its descriptor, or negative errno. Reading closes
 * the memfd. */
int handover_write_text(const char *name, const struct buf *text);
int handover_read_text(int fd, struct buf *to);
