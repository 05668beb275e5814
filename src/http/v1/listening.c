/* SPDX-License-Identifier: Apache-2.0 */

/* See listening.h. */

#include "http/v1/listening.h"

#include "base/clock.h"
#include "http/routes.h"

#include <errno.h>
#include <poll.h>

enum { NAP_MS = 100, COMMENT_MS = 15000 };

static int greet(struct listening *l, struct http_request *req, struct buf *to)
{
    http_follow(req, -1);
    l->looked_ms = l->spoke_ms = clock_ms();
    if (buf_append_str(to, ": listening\n\n") < 0)
        return -ENOMEM;
    return l->tell(l, req, to) < 0 ? -ENOMEM : 1;
}

static int read_news(void *context, struct http_request *req, struct buf *to)
{
    struct listening *l = context;
    if (!l->looked_ms)
        return greet(l, req, to);
    for (;;) {
        uint64_t now = clock_ms();
        int r = 0;
        if (now - l->looked_ms >= l->every_ms) {
            l->looked_ms = now;
            r = l->tell(l, req, to);
        }
        if (r == 0 && now - l->spoke_ms >= COMMENT_MS)
            r = buf_append_str(to, ": still here\n\n") < 0 ? -ENOMEM : 1;
        if (r != 0) {
            l->spoke_ms = now;
            return r;
        }
        if (req->state->stopping)
            return 0;
        if (http_is_gone(req))
            return -EPIPE;
        (void)poll(NULL, 0, NAP_MS);
    }
}

static void end_reading(void *context)
{
    struct listening *l = context;
    l->end(l);
}

void listening_reply(struct http_reply *reply, struct listening *l)
{
    reply->status = 200;
    reply->content_type = "text/event-stream";
    reply->read = read_news;
    reply->done = end_reading;
    reply->context = l;
    reply_header(reply, "Cache-Control", "no-store");
    reply_header(reply, "X-Accel-Buffering", "no"); /* nginx then forwards events at once */
}
