/* SPDX-License-Identifier: Apache-2.0 */

/* GET /v1/approvals/events. The listener's thread looks for news; the id of an event is the
 * number of the change, so a client that comes back with Last-Event-ID misses nothing. */

#include "approval/approval.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "http/routes.h"
#include "http/stream.h"
#include "http/v1/sessions.h"

#include <errno.h>
#include <stdlib.h>

enum { NAP_MS = 100 };

struct reader {
    struct http_stream stream;
    struct approval_listener listener;
    struct approvals *approvals;
    bool has_greeted;
};

/* Appends new events. 1 when there were some. */
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

static int next_news(struct http_stream *stream, struct http_request *req, struct buf *to)
{
    struct reader *reader = (struct reader *)stream;
    bool is_first = !reader->has_greeted;
    reader->has_greeted = true;
    if (is_first && buf_append_str(to, ": listening\n\n") < 0)
        return -ENOMEM;
    int r = tell_news(reader, to);
    if (r == 0 && is_first)
        r = 1;
    return r ? r : http_stream_nap(req, NAP_MS);
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
        return err_field(err, "Last-Event-ID", "Last-Event-ID must be the number of an event");
    struct reader *reader = xcalloc(1, sizeof(*reader));
    reader->stream = (struct http_stream){.next = next_news, .done = end_reading};
    reader->approvals = req->state->approvals;
    reader->listener.viewer = state_viewer(req->state, req->owner);
    reader->listener.seen = seen;
    reader->listener.has_begun = last && last[0];
    int r = approvals_listen(reader->approvals, &reader->listener, err);
    if (r < 0) {
        free(reader);
        return r;
    }
    http_stream_reply(reply, &reader->stream);
    return 0;
}
