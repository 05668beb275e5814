/* SPDX-License-Identifier: Apache-2.0 */

/* GET /v1/approvals/events. The listener's thread looks for news; the id of an event is the
 * number of the change, so a client that comes back with Last-Event-ID misses nothing. */

#include "approval/approval.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "http/routes.h"
#include "http/v1/sessions.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>

enum { NAP_MS = 100, COMMENT_MS = 15000 };

struct reader {
    struct approval_listener listener;
    struct approvals *approvals;
    uint64_t spoke_ms; /* when the last bytes were sent, 0 for never */
};

/* Appends what is new. 1 when there was something. */
static int tell_news(struct reader *reader, struct buf *to)
{
    json_t *news = approvals_news(reader->approvals, &reader->listener);
    int r = news ? 1 : 0;
    for (size_t i = 0; r > 0 && i < json_array_size(news); i++) {
        const json_t *one = json_array_get(news, i);
        cleanup_free char *text = json_dumps(one, JSON_COMPACT | RESULT_JSON_FLAGS);
        json_int_t change = json_integer_value(json_object_get(one, "change"));
        if (!text || buf_printf(to, "id: %lld\nevent: approval\ndata: %s\n\n",
                         (long long)change, text) < 0)
            r = -ENOMEM;
    }
    json_decref(news);
    return r;
}

static int read_news(void *context, struct http_request *req, struct buf *to)
{
    struct reader *reader = context;
    if (!reader->spoke_ms) {
        http_follow(req, -1);
        reader->spoke_ms = clock_ms();
        if (buf_append_str(to, ": listening\n\n") < 0)
            return -ENOMEM;
        return tell_news(reader, to) < 0 ? -ENOMEM : 1;
    }
    for (;;) {
        int r = tell_news(reader, to);
        uint64_t now = clock_ms();
        if (r == 0 && now - reader->spoke_ms >= COMMENT_MS)
            r = buf_append_str(to, ": still here\n\n") < 0 ? -ENOMEM : 1;
        if (r != 0) {
            reader->spoke_ms = now;
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
    struct reader *reader = context;
    approvals_unlisten(reader->approvals, &reader->listener);
    free(reader);
}

int handle_approval_events(struct http_request *req, struct http_reply *reply, struct err *err)
{
    const char *last = http_header(req, "Last-Event-ID");
    uint64_t seen = 0;
    if (last && last[0] && str_parse_u64(last, &seen) < 0)
        return err_field(err, "Last-Event-ID", "Last-Event-ID is the number of an event");
    struct reader *reader = xcalloc(1, sizeof(*reader));
    reader->approvals = req->state->approvals;
    reader->listener.viewer = state_viewer(req->state, req->owner);
    reader->listener.seen = seen;
    reader->listener.has_begun = last && last[0];
    int r = approvals_listen(reader->approvals, &reader->listener, err);
    if (r < 0) {
        free(reader);
        return r;
    }
    reply->status = 200;
    reply->content_type = "text/event-stream";
    reply->read = read_news;
    reply->done = end_reading;
    reply->context = reader;
    reply_header(reply, "Cache-Control", "no-store");
    reply_header(reply, "X-Accel-Buffering", "no"); /* nginx then forwards events at once */
    return 0;
}
