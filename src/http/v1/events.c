/* SPDX-License-Identifier: Apache-2.0 */

/* See events.h. The connection's thread waits in the history for the next event. It wakes often
 * enough to notice that its client has left, and sends a comment after a silence so that
 * proxies keep the connection open. */

#include "http/v1/events.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/str.h"
#include "http/routes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAP_MS = 200, COMMENT_MS = 15000 };

struct reader {
    struct history_run *run;
    struct history_cursor cursor;
    uint64_t spoke_ms; /* when the last bytes were sent */
    bool is_followed;
};

static int read_events(void *context, struct http_request *req, struct buf *to)
{
    struct reader *reader = context;
    if (!reader->is_followed) {
        http_follow(req, -1);
        reader->is_followed = true;
    }
    for (;;) {
        int r = history_read(reader->run, &reader->cursor, NAP_MS, to);
        if (r != -ETIMEDOUT) {
            reader->spoke_ms = clock_ms();
            return r;
        }
        if (http_is_gone(req))
            return -EPIPE;
        if (clock_ms() - reader->spoke_ms >= COMMENT_MS) {
            reader->spoke_ms = clock_ms();
            return buf_append_str(to, ": still here\n\n") < 0 ? -ENOMEM : 1;
        }
    }
}

static void end_reading(void *context)
{
    struct reader *reader = context;
    history_read_end(reader->run);
    history_unref(reader->run);
    free(reader);
}

void events_reply(struct http_request *req, struct history_run *run, uint64_t after_id,
    struct http_reply *reply)
{
    struct reader *reader = xcalloc(1, sizeof(*reader));
    *reader =
        (struct reader){.run = run, .cursor = {.after_id = after_id}, .spoke_ms = clock_ms()};
    history_read_begin(run);
    reply->status = 200;
    reply->content_type = "text/event-stream";
    reply->read = read_events;
    reply->done = end_reading;
    reply->context = reader;
    reply_header(reply, "Cache-Control", "no-store");
    reply_header(reply, "X-Accel-Buffering", "no"); /* nginx then forwards events at once */
    reply_header(reply, "X-Run-Id", history_id(run));
}

static void reply_accepted(
    const struct http_request *req, const char *path, struct http_reply *reply)
{
    char location[ID_MAX + 16];
    char *text = xasprintf("{\"id\":\"%s\",\"status\":\"queued\"}", req->run_id);
    (void)snprintf(location, sizeof(location), "%s%s", path, req->run_id);
    reply_header(reply, "Location", location);
    reply_json(reply, 202, text, strlen(text));
}

enum run_mode events_mode(const struct http_request *req, bool is_async)
{
    if (is_async)
        return RUN_ASYNC;
    return http_accepts(req, "text/event-stream") ? RUN_STREAMED : RUN_SYNC;
}

int events_later(struct http_request *req, const struct history_entry *entry, const char *path,
    events_start *start, void *context, struct http_reply *reply, struct err *err)
{
    struct history_run *record;
    int r = call_record(req, entry, &record, err);
    if (r < 0)
        return r;
    struct history_run *mine = history_ref(record);
    r = start(req, context, record, err);
    if (r < 0) {
        history_forget(record);
        history_unref(record);
    } else if (entry->mode == RUN_STREAMED) {
        events_reply(req, history_ref(mine), 0, reply);
    } else {
        reply_accepted(req, path, reply);
    }
    history_unref(mine);
    return r;
}

int handle_run_events(struct http_request *req, struct http_reply *reply, struct err *err)
{
    const char *last = http_header(req, "Last-Event-ID");
    uint64_t after_id = 0;
    if (last && last[0] && str_parse_u64(last, &after_id) < 0)
        return err_field(err, "Last-Event-ID", "Last-Event-ID is the number of an event");
    struct history_run *run;
    int r = find_run(req, &run, err);
    if (r < 0)
        return r;
    if (history_is_read(run, after_id)) {
        reply->status = 204; /* a browser does not reconnect after 204 */
        history_unref(run);
        return 0;
    }
    events_reply(req, run, after_id, reply);
    return 0;
}
