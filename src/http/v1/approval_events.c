/* SPDX-License-Identifier: Apache-2.0 */

/* GET /v1/approvals/events. The listener's thread looks for news; the id of an event is the
 * number of the change, so a client that comes back with Last-Event-ID misses nothing. */

#include "approval/approval.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "http/routes.h"
#include "http/v1/listening.h"
#include "http/v1/sessions.h"

#include <errno.h>
#include <stdlib.h>

enum { LOOK_MS = 100 };

struct reader {
    struct listening listening; /* first */
    struct approval_listener listener;
    struct approvals *approvals;
};

static int tell_news(struct listening *l, struct http_request *req, struct buf *to)
{
    struct reader *reader = (struct reader *)l;
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

static void end_reading(struct listening *l)
{
    struct reader *reader = (struct reader *)l;
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
    reader->listening =
        (struct listening){.tell = tell_news, .end = end_reading, .every_ms = LOOK_MS};
    reader->approvals = req->state->approvals;
    reader->listener.viewer = state_viewer(req->state, req->owner);
    reader->listener.seen = seen;
    reader->listener.has_begun = last && last[0];
    int r = approvals_listen(reader->approvals, &reader->listener, err);
    if (r < 0) {
        free(reader);
        return r;
    }
    listening_reply(reply, &reader->listening);
    return 0;
}
