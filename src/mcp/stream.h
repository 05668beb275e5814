/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The messages of one server-sent event stream. The thread of a call writes, the thread of a
 * connection reads; with a number, a client can come back and read again from an event on. */

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct buf;
struct ledger;
struct mcp_stream;

enum {
    MCP_STREAM_EVENTS = 4096,
    MCP_STREAM_BYTES = 32 << 20, /* kept of one stream; then the oldest events go */
};

/* number 0: events have no ids, and are kept until they were read once. The memory of events
 * counts for this owner; a stream that gets no memory ends. */
struct mcp_stream *mcp_stream_new(uint64_t number, struct ledger *ledger, int owner);
struct mcp_stream *mcp_stream_ref(struct mcp_stream *stream);
void mcp_stream_unref(struct mcp_stream *stream); /* accepts NULL */
uint64_t mcp_stream_number(const struct mcp_stream *stream);

void mcp_stream_put(struct mcp_stream *stream, const json_t *message);

/* Adds an event with an id and without data, from which a client can resume. */
void mcp_stream_prime(struct mcp_stream *stream);

/* Ends the connection of the reader after the events that are there, and tells the client to
 * come back after retry_ms. */
void mcp_stream_hang_up(struct mcp_stream *stream, unsigned retry_ms);

/* Nothing more will come. */
void mcp_stream_end(struct mcp_stream *stream);

/* Appends the events after *after, and moves it: 1; 0 at the end; -ETIMEDOUT. */
int mcp_stream_read(struct mcp_stream *stream, uint64_t *after, int timeout_ms, struct buf *to);
