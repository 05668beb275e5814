/* SPDX-License-Identifier: Apache-2.0 */

/* See stream.h. While the server waits for the next piece the phase is PHASE_HANDLING, while
 * the client reads one it is PHASE_REPLY. The phase decides which deadline applies. */

#include "http/stream.h"

#include "base/alloc.h"
#include "http/connection.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>

/* In bytes. The purse bounds `pending` much earlier than PENDING_MAX. */
enum { BLOCK = 64 << 10, PENDING_MAX = 512 << 20 };

/* A stream in progress: the reader, and data that the library has not taken yet. */
struct stream {
    struct state *state;
    struct http_request *req;
    struct buf pending;
    struct purse purse; /* counts `pending` */
    bool is_exact;
    size_t at;
    int (*read)(void *context, struct http_request *req, struct buf *to);
    void (*done)(void *context);
    void *context;
};

/* A client that does not read keeps one piece in memory. When there is no memory for it, the
 * stream breaks off; the client can resume it. */
static ssize_t stream_read(void *context, uint64_t position, char *out, size_t max)
{
    struct stream *s = context;
    connection_phase(s->req->connection, PHASE_HANDLING);
    while (s->at == s->pending.len) {
        buf_clear(&s->pending);
        s->at = 0;
        int r = s->read ? s->read(s->context, s->req, &s->pending) : 0;
        if (r < 0 && r != -EAGAIN && s->is_exact)
            return MHD_CONTENT_READER_END_WITH_ERROR;
        if (r <= 0 && r != -EAGAIN)
            s->read = NULL;
        if (s->pending.is_starved)
            return MHD_CONTENT_READER_END_WITH_ERROR;
        if (!s->read && s->pending.len == 0)
            return MHD_CONTENT_READER_END_OF_STREAM;
    }
    size_t n = s->pending.len - s->at < max ? s->pending.len - s->at : max;
    memcpy(out, s->pending.data + s->at, n);
    s->at += n;
    connection_phase(s->req->connection, PHASE_REPLY);
    return (ssize_t)n;
}

static void stream_done(void *context)
{
    struct stream *s = context;
    s->done(s->context);
    buf_done(&s->pending);
    purse_close(&s->purse);
    free(s);
}

struct MHD_Response *stream_response(struct http_request *req, const struct http_reply *reply)
{
    struct stream *s = xcalloc(1, sizeof(*s));
    *s = (struct stream){.state = req->state,
        .req = req,
        .is_exact = reply->is_exact,
        .read = reply->read,
        .done = reply->done,
        .context = reply->context};
    purse_open(&s->purse, req->state->ledger, req->owner);
    buf_init(&s->pending, PENDING_MAX);
    s->pending.purse = &s->purse.counts;
    return MHD_create_response_from_callback(
        reply->has_size ? reply->size : MHD_SIZE_UNKNOWN, BLOCK, stream_read, s, stream_done);
}
