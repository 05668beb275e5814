/* SPDX-License-Identifier: Apache-2.0 */

/* GET /v1/status, GET /v1/events and GET /v1/keys. A listener's thread makes the document once
 * a second and sends it when it has changed. */

#include "service/status.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "http/http.h"
#include "http/routes.h"
#include "http/v1/listening.h"
#include "http/v1/sessions.h"
#include "version.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { EVENT_MS = 1000 };

static void complete(const struct state *state, json_t *status)
{
    (void)json_object_set_new(status, "version", json_string(HERMES_VERSION));
    (void)json_object_set_new(status, "uptime_s",
        json_integer((json_int_t)((clock_ms() - state->started_ms) / 1000)));
}

int handle_status(struct http_request *req, struct http_reply *reply, struct err *err)
{
    json_t *status = status_json(req->state, req->owner);
    complete(req->state, status);
    reply_value(reply, 200, status);
    return 0;
}

int handle_keys(struct http_request *req, struct http_reply *reply, struct err *err)
{
    reply_value(reply, 200, status_keys_json(req->state));
    return 0;
}

struct listener {
    struct listening listening; /* first */
    struct board_listener counted;
    struct board *board;
    unsigned long long count; /* events sent */
    uint64_t sent;            /* hash of the last document that was sent */
};

/* FNV-1a: enough to see that a text has changed. */
static uint64_t hash_text(const char *text)
{
    uint64_t hash = 14695981039346656037u;
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    return hash;
}

/* Appends the document if it is not the one that was sent last. 1 when it was. */
static int tell_news(struct listening *listening, struct http_request *req, struct buf *to)
{
    struct listener *l = (struct listener *)listening;
    struct state *state = req->state;
    json_t *status = status_json(state, l->counted.owner);
    char *text = json_dumps(status, JSON_COMPACT | RESULT_JSON_FLAGS);
    uint64_t hash = text ? hash_text(text) : l->sent;
    int r = 0;
    if (hash != l->sent) {
        l->sent = hash;
        free(text);
        complete(state, status);
        text = json_dumps(status, JSON_COMPACT | RESULT_JSON_FLAGS);
        r = text && buf_printf(to, "id: %llu\nevent: status\ndata: %s\n\n", ++l->count, text) ==
                        0
                ? 1
                : -ENOMEM;
    }
    free(text);
    json_decref(status);
    return r;
}

static void end_listening(struct listening *listening)
{
    struct listener *l = (struct listener *)listening;
    board_unlisten(l->board, &l->counted);
    free(l);
}

int handle_events(struct http_request *req, struct http_reply *reply, struct err *err)
{
    struct listener *l = xcalloc(1, sizeof(*l));
    *l = (struct listener){
        .listening = {.tell = tell_news, .end = end_listening, .every_ms = EVENT_MS},
        .counted = {.owner = req->owner},
        .board = &req->state->board};
    int r = board_listen(l->board, &l->counted, err);
    if (r < 0) {
        free(l);
        return r;
    }
    listening_reply(reply, &l->listening);
    return 0;
}
