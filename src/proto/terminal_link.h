/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A terminal of a session on a backend: what its two ends say to each other over a stream. One
 * end is in the place and has the terminal (bash/far_terminal.c). The other end is in
 * hermes-places and has a socket of the server (backend/terminal.c). Each end sends at most
 * TERMINAL_WINDOW bytes that the other one has not passed on, so a terminal that nobody reads
 * holds up nothing but itself.
 *
 * A message is its kind (one byte), the length of its payload (three bytes, big-endian) and the
 * payload. That of every kind but TERMINAL_BYTES is a number of four bytes, big-endian. */

#include <poll.h>
#include <stdint.h>

#include "base/buf.h"

enum {
    TERMINAL_WINDOW = 64 << 10,
    TERMINAL_BYTES = 'd',
    TERMINAL_TAKEN = 'a',  /* this many bytes were passed on */
    TERMINAL_SIZED = 's',  /* rows << 16 | columns; the first one starts the shell */
    TERMINAL_STATUS = 'e', /* the shell's wait status; nothing follows */
};

struct terminal_link {
    int talk_fd;        /* to the other end; non-blocking, as bytes_fd is */
    int bytes_fd;       /* the terminal or the server's socket; -1: none yet, or closed */
    struct buf in;      /* received, not handled */
    struct buf out;     /* to be sent */
    struct buf bytes;   /* for bytes_fd */
    size_t unconfirmed; /* bytes that the other end has not passed on */
};

void terminal_link_init(struct terminal_link *l, int talk_fd, int bytes_fd);

/* The events for poll(). */
short terminal_link_talk_events(const struct terminal_link *l);
short terminal_link_bytes_events(const struct terminal_link *l);

/* Queues a message with a number; one with bytes, within the window. */
void terminal_link_say(struct terminal_link *l, char kind, uint32_t value);
void terminal_link_send(struct terminal_link *l, const char *data, size_t len);

/* Reads once. -EPIPE at the end. */
int terminal_link_read_talk(struct terminal_link *l);
int terminal_link_read_bytes(struct terminal_link *l);

/* Handles messages up to the next one for the caller. Returns 1 with that message, 0 when there
 * is none, -EPROTO when the other end broke the rules. */
int terminal_link_next(struct terminal_link *l, char *ret_kind, uint32_t *ret_value);

/* Sends and passes on what the descriptors take now. */
void terminal_link_write(struct terminal_link *l);
