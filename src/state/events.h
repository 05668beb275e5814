/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The events of one run, kept as the text that readers get, so that further readers and a
 * resume cost only a copy. This module does not lock; history.c does. */

#include "base/buf.h"
#include "run/encode.h"
#include "run/engine.h"

struct event;

struct run_events {
    struct event *first, *last;
    uint64_t last_id;
    uint64_t dropped_id; /* the last event that is no longer kept */
    size_t bytes;        /* of the events that are kept */
    struct {
        char bytes[4]; /* the first bytes of an incomplete code point */
        size_t len;
    } partial[2];
};

/* Adds an event, whose data is a JSON object and gets the member "t": milliseconds since the
 * start of the run. Drops the oldest events when there are too many bytes. */
void run_events_add(
    struct run_events *events, const char *name, const char *data, uint64_t t_ms);

/* Adds "t" to a JSON object: the object is its first bytes, whose number is returned, and then
 * `tail`. "t" comes last, so that a member of the same name that a program chose does not
 * count. Other texts stay as they are. */
enum { EVENT_TAIL_MAX = 32 };
size_t run_events_time(const char *json, size_t len, uint64_t t_ms, char tail[EVENT_TAIL_MAX]);

/* Drops the oldest event; false when at most one is left. */
bool run_events_shed(struct run_events *events);

enum {
    EVENTS_MAX = 2 << 20,        /* bytes of one run's events; the oldest are dropped */
    EVENTS_READ_MAX = 256 << 10, /* bytes that a reader gets at once */
};

/* Drops all events. */
void run_events_drop(struct run_events *events);

/* Makes {"data": ...} of a piece of output; the caller frees. Pieces are cut between code
 * points: the rest of an incomplete one is put before the next piece. Returns NULL when the
 * piece completes no code point, or when memory is short. Only the thread that executes the run
 * may call it, without a lock: other threads do not use these members. */
char *run_events_output(struct run_events *events, enum result_encoding encoding,
    enum run_stream stream, const char *data, size_t len);

/* Copies events after *after_id, at most EVENTS_READ_MAX bytes. Returns 0 when no event is
 * left, 1 when there are more, or -EMSGSIZE. */
int run_events_copy(const struct run_events *events, uint64_t *after_id, struct buf *to);
