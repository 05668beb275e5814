/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The descriptors that a server sends with a request for a place. hermes-places checks
 * each one before it uses it: reading another kind of file could block for ever, and another
 * kind of socket could hold the other end of the session's own, so that the session would
 * outlive its server. */

#include <stdbool.h>

struct buf;

enum place_end {
    PLACE_END_MESSAGES, /* a unix seqpacket socket */
    PLACE_END_STREAM,   /* a unix stream socket */
    PLACE_END_PIPE,     /* the end of a pipe for writing */
    PLACE_END_KINDS
};

bool place_end_is(enum place_end kind, int fd);

/* A sealed memfd with a struct place_head, in which the key and the id are names, and words,
 * the last one ended by a NUL. */
bool place_words_are(int fd);

/* Appends these bytes; -EPROTO when they are something else. It does not depend on the offset
 * of the descriptor, which the server can change. */
int place_words_take(int fd, struct buf *to);
