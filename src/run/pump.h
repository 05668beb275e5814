/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Moves bytes between a caller's descriptors and a box, only as far as possible without
 * waiting. So a slow peer does not delay the enforcement of limits. */

#include "base/buf.h"

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

/* Bytes; the capacity of a pipe. */
enum { PUMP_BUFFER = 65536 };

/* From a descriptor of the caller (stdin) into the pipe of a box. */
struct pump_in {
    int source_fd; /* borrowed; -1 for none */
    int box_fd;    /* owned; closed when the source has ended or the box no longer reads */
    char *buffer;  /* PUMP_BUFFER bytes, borrowed */
    size_t at, len;
};

/* pump_in_prepare() fills in what poll() waits for; pump_in_move() acts on the result. */
void pump_in_prepare(const struct pump_in *pump, struct pollfd *source, struct pollfd *box);
void pump_in_move(struct pump_in *pump, const struct pollfd *source, const struct pollfd *box);

/* From a growing buffer (the kept output of a box) to a descriptor of the caller. */
struct pump_out {
    int fd;    /* borrowed; -1 for none, and after a write failed */
    int error; /* negative errno of the write that failed, or 0 */
    size_t at;
};
void pump_out_prepare(const struct pump_out *pump, const struct buf *from, struct pollfd *to);
void pump_out_move(struct pump_out *pump, const struct buf *from, const struct pollfd *to);

/* Writes the rest and waits as long as necessary. */
void pump_out_finish(struct pump_out *pump, const struct buf *from);
