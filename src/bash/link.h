/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The stream between the far shell and Hermes. It is either fixed (stdin and stdout) or made of
 * connections to a socket, one after the other: both sides count their bytes, and after a cut
 * each sends again what the other has not received. Bytes that nobody has confirmed are kept.
 *
 * A connection begins with a line of the far shell, the number of bytes that it has received,
 * and a line of Hermes, the same. Then frames follow, in both directions. */

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct link {
    int in_fd, out_fd; /* -1 while nobody is connected */
    int listen_fd;     /* -1: the stream is fixed */
    bool is_greeted;   /* the other side's first line has come */
    struct buf hello;  /* that line, until it is whole */
    struct buf in;     /* received bytes that are not handled yet */
    uint64_t in_count; /* bytes received in all connections */
    uint64_t in_told;  /* the last number that was confirmed */
    struct buf out;    /* bytes that are not confirmed */
    uint64_t out_base; /* number of bytes before out.data[0] */
    size_t out_at;     /* index of the next byte to send to this connection */
    uint64_t alone_ms; /* when bytes came or the connection ended, by clock_ms() */
};

/* LINK_RING: from this many unconfirmed bytes on the programs wait. */
enum { LINK_RING = 1 << 20 };

void link_init(struct link *l);

/* Takes the descriptors (they may be the same) and sends the first line. */
void link_connect(struct link *l, int in_fd, int out_fd);

/* Accepts a connection, which replaces the one before. */
void link_accept(struct link *l);

/* Appends a frame. Sending may fail now or later; the stream keeps the bytes. */
void link_queue(struct link *l, const char *kind, const void *data, size_t len);
void link_queue_raw(struct link *l, const void *data, size_t len);

/* Sends what the connection takes now; reads once. Both may end the connection. */
void link_write(struct link *l);
void link_read(struct link *l);

/* Ends the connection; the stream keeps its bytes. */
void link_disconnect(struct link *l);

/* The other side confirms `count` bytes. A smaller number than before changes nothing: a
 * confirmation may come twice. -EPROTO when we have not sent so many. */
int link_confirm(struct link *l, uint64_t count);

bool link_has_more(const struct link *l); /* bytes to send now */
bool link_is_full(const struct link *l);
bool link_is_connected(const struct link *l);
