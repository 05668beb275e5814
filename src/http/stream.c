/* SPDX-License-Identifier: Apache-2.0 */

/* See stream.h. The connection's thread wakes often enough to notice that its client has
 * left. */

#include "http/stream.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>

enum { COMMENT_MS = 15000 };

static int read_next(void *context, struct http_request *req, struct buf *to)
{
    struct http_stream *stream = context;
    if (!stream->is_followed)
        http_follow(req, -1);
    stream->is_followed = true;
    for (;;) {
        int r = stream->next(stream, req, to);
        uint64_t now = clock_ms();
        if (r == -ETIMEDOUT && http_is_gone(req))
            return -EPIPE;
        if (r == -ETIMEDOUT && now - stream->spoke_ms >= COMMENT_MS)
            r = buf_append_str(to, ": still here\n\n") < 0 ? -ENOMEM : 1;
        if (r != -ETIMEDOUT) {
            stream->spoke_ms = now;
            return r;
        }
    }
}

void http_stream_reply(struct http_reply *reply, struct http_stream *stream)
{
    stream->spoke_ms = clock_ms();
    reply_events(reply, read_next, stream->done, stream);
}

int http_stream_nap(const struct http_request *req, int ms)
{
    if (req->state->stopping)
        return 0;
    (void)poll(NULL, 0, ms);
    return -ETIMEDOUT;
}
