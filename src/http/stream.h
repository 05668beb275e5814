/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A reply that is a stream of events, for as long as its client is there. A comment after a
 * silence keeps proxies from closing the connection. */

#include "http/http.h"

/* The first member of the struct of each kind of stream. */
struct http_stream {
    /* Appends what is new and returns 1, 0 at the end of the stream, or negative errno.
     * -ETIMEDOUT: nothing came for a moment, it will be called again. */
    int (*next)(struct http_stream *stream, struct http_request *req, struct buf *to);
    void (*done)(void *stream); /* frees it */
    bool is_followed;
    uint64_t spoke_ms; /* when the last bytes were sent */
};

/* Takes the stream, of which next and done are set. */
void http_stream_reply(struct http_reply *reply, struct http_stream *stream);

/* For a `next` that has nothing and cannot wait for it: sleeps and returns -ETIMEDOUT, or 0
 * when the server stops. */
int http_stream_nap(const struct http_request *req, int ms);
