/* SPDX-License-Identifier: Apache-2.0 */

/* See events.h. The connection's thread waits in the history for the next event. */

#include "http/v1/events.h"

#include "base/alloc.h"
#include "base/str.h"
#include "http/routes.h"
#include "http/stream.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAP_MS = 200 };

struct reader {
    struct http_stream stream;
    struct history_run *run;
    struct history_cursor cursor;
};

static int next_events(struct http_stream *stream, struct http_request *req, struct buf *to)
{
    struct reader *reader = (struct reader *)stream;
    return history_read(reader->run, &reader->cursor, NAP_MS, to);
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
    *reader = (struct reader){.stream = {.next = next_events, .done = end_reading},
        .run = run,
        .cursor = {.after_id = after_id}};
    history_read_begin(run);
    http_stream_reply(reply, &reader->stream);
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
        return err_field(err, "Last-Event-ID", "Last-Event-ID must be the number of an event");
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
