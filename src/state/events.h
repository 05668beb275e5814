/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Events of one run, as the text that readers get, so that several readers and a resume cost no
 * more than a copy. Nothing here locks: history.c does. */

#include "base/buf.h"
#include "run/encode.h"
#include "run/engine.h"

struct event;

struct run_events {
    struct event *first, *last;
    uint64_t last_id;
    uint64_t dropped_id; /* last event that is not kept any more */
    size_t bytes;        /* of those that are */
    struct {
        char bytes[4]; /* the beginning of a code point that is not whole yet */
        size_t len;
    } partial[2];
};

/* Adds one. The oldest go when there is too much. */
void run_events_add(struct run_events *events, const char *name, const char *data);

/* Drops the oldest; false when there is none but the last. */
bool run_events_shed(struct run_events *events);

enum { EVENTS_READ_MAX = 256 << 10 }; /* bytes a reader gets at once */

/* Drops them all. */
void run_events_drop(struct run_events *events);

/* {"data": ...} of a piece of output; the caller frees. NULL while there is no whole code
 * point: pieces are cut between those, what is left of the last one is put before the next
 * piece. Only the thread that executes the run may ask; it touches nothing that the others do.
 */
char *run_events_output(struct run_events *events, enum result_encoding encoding,
    enum run_stream stream, const char *data, size_t len);

/* Copies events after *after_id, as many as a reader gets at once: 0 when those were all, 1
 * when there are more, -EMSGSIZE. */
int run_events_copy(const struct run_events *events, uint64_t *after_id, struct buf *to);
