/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Bytes on their way between a caller's descriptors and a box, moved only as far as they go
 * without waiting: whoever is slow at the other end holds up nobody's limits. */

#include "base/buf.h"

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

enum { PUMP_BUFFER = 65536 };

/* From a descriptor of the caller's (stdin) into the pipe of a box. */
struct pump_in {
    int source_fd; /* borrowed; -1 for none */
    int box_fd;    /* owned: closed when the source has ended or the box no longer reads */
    char *buffer;  /* PUMP_BUFFER bytes, borrowed */
    size_t at, len;
};

/* What poll() should wait for, and what to do with its answer. */
void pump_in_prepare(const struct pump_in *pump, struct pollfd *source, struct pollfd *box);
void pump_in_move(struct pump_in *pump, const struct pollfd *source, const struct pollfd *box);

/* From a buffer that grows (the output kept of a box) to a descriptor of the caller's. */
struct pump_out {
    int fd;    /* borrowed; -1 for none, and once writing failed */
    int error; /* negative errno of the write that failed, or 0 */
    size_t at;
};
void pump_out_prepare(const struct pump_out *pump, const struct buf *from, struct pollfd *to);
void pump_out_move(struct pump_out *pump, const struct buf *from, const struct pollfd *to);

/* Writes the rest, waiting as long as it takes. */
void pump_out_finish(struct pump_out *pump, const struct buf *from);
