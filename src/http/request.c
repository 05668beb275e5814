/* SPDX-License-Identifier: Apache-2.0 */

/* See request.h. The way of a request: head (wire.c), page, route, key and size, all before the
 * body; then body, handler, reply. */

#include "http/request.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "http/auth.h"
#include "http/http.h"
#include "http/routes.h"
#include "http/send.h"
#include "json/read.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* In bytes. SMALL_BODY is the limit for an ignored body, SMALL_REPLY needs no memory budget,
 * and SINK_STEP is what must arrive within request_timeout_s. */
enum { SMALL_BODY = 64 << 10, SMALL_REPLY = 64 << 10, SINK_STEP = 64 << 10 };

static void begin(struct http_request *req, struct client *client)
{
    struct state *state = client->state;
    *req = (struct http_request){.state = state,
        .client = client,
        .owner = -1,
        .is_unix = client->is_unix,
        .is_local = client->is_local,
        .began_ns = clock_ns()};
    purse_open(&req->purse, state->ledger, req->owner);
    buf_init(&req->body, state->config.max_body);
    req->body.purse = &req->purse.counts;
}

static void end(struct http_request *req)
{
    buf_done(&req->body);
    if (req->sink.done)
        req->sink.done(req->sink.context);
    purse_close(&req->purse);
}

static void log_request(const struct http_request *req, int status)
{
    bool quiet = req->route && req->route->is_quiet && status < 400;
    if (quiet && log_get_level() < LOG_DEBUG)
        return;
    char number[16];
    char ms[32];
    char path[160];
    (void)snprintf(number, sizeof(number), "%d", status);
    (void)snprintf(ms, sizeof(ms), "%.3f", (double)(clock_ns() - req->began_ns) / 1e6);
    (void)snprintf(path, sizeof(path), "%.*s", (int)(req->path_len < 150 ? req->path_len : 150),
        req->target ? req->target : "");
    log_event(quiet ? LOG_DEBUG : LOG_INFO, "request", "method",
        req->method ? req->method : "?", "path", path, "status", number, "ms", ms, "key",
        state_owner_name(req->state, req->owner), "run", req->run_id, (char *)NULL);
}

static void fill_error(
    const struct route *route, struct http_reply *reply, const struct err *err)
{
    if (route && route->refuse)
        route->refuse(reply, err);
    else
        reply_error(reply, err);
}

/* Whether a caller that has proven itself gets a place for its connection. */
static bool has_place(const struct http_request *req)
{
    bool is_proof = req->owner >= 0 || req->state->keys.count == 0;
    return !is_proof || connection_prove(req->client->connection, req->owner);
}

static int refuse_full(struct http_reply *reply, struct err *err)
{
    reply->close = true;
    return err_set(
        err, ERR_UNAVAILABLE, EMFILE, "there are too many connections; try again later");
}

/* Every OPTIONS request gets the same answer: the real request is checked anyway. */
static void answer_preflight(struct http_reply *reply)
{
    reply->status = 200;
    reply_header(
        reply, "Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
    reply_header(reply, "Access-Control-Allow-Headers",
        "Content-Type, Authorization, X-API-Key, Last-Event-ID, Mcp-Session-Id, "
        "MCP-Protocol-Version, Mcp-Method, Mcp-Name");
    reply_header(reply, "Access-Control-Max-Age", "600");
    reply_header(
        reply, "Vary", "Access-Control-Request-Method, Access-Control-Request-Headers");
}

static int check_body(struct http_request *req, struct err *err)
{
    const char *type = http_header(req, "Content-Type");
    const char *length = http_header(req, "Content-Length");
    uint64_t bytes = 0;
    bool is_json = type && http_is_json(type);
    bool needs_json = req->route->body == BODY_TYPED_JSON ||
                      (req->route->body == BODY_JSON && (type || req->declares_body));
    if (needs_json && !is_json)
        return err_set(err, ERR_MEDIA_TYPE, EINVAL, "the body must be application/json");
    if (req->route->body == BODY_NONE && req->body.max > SMALL_BODY)
        req->body.max = SMALL_BODY;
    if (length && req->route->body != BODY_STREAM &&
        (str_parse_u64(length, &bytes) < 0 || bytes > req->body.max))
        return err_set(
            err, ERR_TOO_LARGE, EFBIG, "the body is larger than %zu bytes", req->body.max);
    return 0;
}

/* Finds the route. Without one, req->route stays NULL or becomes the route of an allowed
 * method, for the form of its errors. */
static int find_route(struct http_request *req, struct http_reply *reply, struct err *err)
{
    char allow[64];
    char rest[64];
    char method[16];
    req->route = route_find(
        req->method, req->target, req->path_len, req->params, &req->rest, allow, sizeof(allow));
    req->rest_len = req->rest ? (size_t)(req->target + req->path_len - req->rest) : 0;
    if (req->route)
        return 0;
    if (!allow[0])
        return err_set(err, ERR_NOT_FOUND, ENOENT, "there is no such path");
    (void)snprintf(method, sizeof(method), "%.*s", (int)strcspn(allow, ","), allow);
    req->route = route_find(
        method, req->target, req->path_len, req->params, &req->rest, rest, sizeof(rest));
    reply_header(reply, "Allow", allow);
    return err_set(err, ERR_METHOD, EINVAL, "this path accepts only %s", allow);
}

static int read_head(struct http_request *req, struct err *err)
{
    struct wire *wire = &req->client->wire;
    int r = wire_read_head(wire, err);
    if (r == 0) {
        req->target = wire->head.target;
        req->is_head = str_eq(wire->head.method, "HEAD");
        req->method = req->is_head ? "GET" : wire->head.method;
        req->declares_body = !wire_is_done(wire);
        r = http_parse_query(req, err);
    }
    if (r == 0)
        r = auth_check_page(req, err);
    if (r < 0 && err->code != ERR_NONE)
        req->state->metrics.gated++;
    return r;
}

/* A client has request_timeout_s for each SINK_STEP bytes, not for the whole body. */
static int put_into_sink(
    struct http_request *req, const char *data, size_t size, struct err *err)
{
    bool is_step = req->sunk / SINK_STEP != (req->sunk + size) / SINK_STEP;
    int r = req->sink.write(req->sink.context, data, size, err);
    req->sunk += size;
    if (r == 0 && is_step)
        connection_phase(req->client->connection, PHASE_BODY);
    return r;
}

static int put_into_body(
    struct http_request *req, const char *data, size_t size, struct err *err)
{
    purse_hand_to(&req->purse, req->owner);
    int r = buf_append(&req->body, data, size);
    if (r == -EMSGSIZE)
        return err_set(
            err, ERR_TOO_LARGE, EFBIG, "the body is larger than %zu bytes", req->body.max);
    return r < 0 ? state_full(err) : 0;
}

static int read_body(struct http_request *req, struct err *err)
{
    struct client *c = req->client;
    connection_phase(c->connection, PHASE_BODY);
    if (c->wire.head.awaits_continue && !wire_has_more(&c->wire))
        send_continue(c->fd);
    for (;;) {
        const char *data;
        ssize_t n = wire_read_body(&c->wire, &data, err);
        if (n <= 0)
            return (int)n;
        int r = req->sink.done ? put_into_sink(req, data, (size_t)n, err)
                               : put_into_body(req, data, (size_t)n, err);
        if (r < 0)
            return r;
    }
}

/* Begins a large body that its handler takes piece by piece. */
static int begin_sink(struct http_request *req, struct http_reply *reply, struct err *err)
{
    connection_phase(req->client->connection, PHASE_HANDLING);
    int r = req->route->handle(req, reply, err);
    return r < 0 || has_place(req) ? r : refuse_full(reply, err);
}

/* Checks route, key and size, which needs no byte of the body, and reads the body. */
static int receive(struct http_request *req, struct http_reply *reply, struct err *err)
{
    int r = find_route(req, reply, err);
    if (r == 0)
        r = auth_check(req, err);
    if (r == 0)
        r = check_body(req, err);
    if (r == 0 && req->owner >= 0 && !has_place(req))
        r = refuse_full(reply, err);
    if (r == 0 && req->route->body == BODY_STREAM)
        r = begin_sink(req, reply, err);
    if (r == 0 && req->declares_body)
        r = read_body(req, err);
    if (r == 0 && !has_place(req))
        r = refuse_full(reply, err);
    return r;
}

/* A reply stays in memory until the client has read it. Answers are counted already; short
 * texts are part of the connection's budget (state/memory_plan.c). */
static void hold_reply(struct http_request *req, struct http_reply *reply)
{
    struct err err = {0};
    if (reply->answer || reply->body_len <= SMALL_REPLY ||
        purse_take(&req->purse, reply->body_len))
        return;
    (void)state_full(&err);
    fill_error(req->route, reply, &err);
}

/* Counts the memory that a body takes: its text, its parsed form and the copy for a box. The
 * parsed form of small JSON values is far larger than their text. */
static int count_body(struct http_request *req, struct err *err)
{
    size_t bytes = 0;
    purse_hand_to(&req->purse, req->owner);
    if (req->sink.done || !req->body.len)
        return 0;
    if (req->route->body == BODY_NONE) { /* the handler does not read it */
        buf_done(&req->body);
        return 0;
    }
    struct err ignored = {0}; /* the handler reports the error in its own form */
    (void)json_read_weigh(req->body.data, req->body.len, &bytes, &ignored);
    return purse_take_or_close(&req->purse, bytes + req->body.len, &req->purse)
               ? 0
               : state_full(err);
}

static int handle(struct http_request *req, struct http_reply *reply, struct err *err)
{
    connection_phase(req->client->connection, PHASE_HANDLING);
    int r = count_body(req, err);
    if (r == 0)
        r = req->sink.done ? req->sink.finish(req->sink.context, req, reply, err)
                           : req->route->handle(req, reply, err);
    buf_done(&req->body);
    return r;
}

/* Hands the connection over to another protocol, on this thread. What the client sent before
 * the reply and was read already is dropped: it could have been meant as another request. */
static bool hand_over(struct http_request *req, struct http_reply *reply)
{
    struct client *c = req->client;
    connection_phase(c->connection, PHASE_TAKEN);
    send_switch(c->fd, reply);
    reply->serve(reply->context, req, c->fd);
    reply->done(reply->context);
    return false;
}

/* Sends the reply. When part of the request was not read, or its end is not known, the
 * connection ends with it. */
static bool deliver(struct http_request *req, struct http_reply *reply)
{
    struct client *c = req->client;
    bool is_last =
        reply->close || req->state->stopping || !wire_is_done(&c->wire) || c->wire.head.is_last;
    if (!reply->serve) {
        hold_reply(req, reply);
        auth_cors(req, reply);
    }
    metrics_count_request(&req->state->metrics, reply->status);
    log_request(req, reply->status);
    if (reply->serve)
        return hand_over(req, reply);
    connection_phase(c->connection, PHASE_REPLY);
    bool goes_on = send_reply(req, reply, is_last);
    if (is_last)
        send_linger(c->fd);
    return goes_on;
}

static bool answer(struct http_request *req)
{
    struct http_reply reply = {0};
    struct err err = {0};
    int r = read_head(req, &err);
    bool is_preflight = r == 0 && str_eq(req->method, "OPTIONS");
    if (is_preflight)
        answer_preflight(&reply);
    else if (r == 0 && (r = receive(req, &reply, &err)) == 0)
        r = handle(req, &reply, &err);
    if (r < 0 && err.code == ERR_NONE && !wire_is_done(&req->client->wire))
        return false; /* the client is gone */
    if (r < 0)
        fill_error(req->route, &reply, &err);
    return deliver(req, &reply);
}

bool request_serve(struct client *client)
{
    struct http_request req;
    begin(&req, client);
    bool goes_on = answer(&req);
    end(&req);
    return goes_on;
}
