/* SPDX-License-Identifier: Apache-2.0 */

/* See request.h. The way of a request: request line (request_begin), headers (on_headers: gate,
 * route, key and size, all before the body), body, handler, reply. */

#include "http/request.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "http/auth.h"
#include "http/connection.h"
#include "http/gate.h"
#include "http/http.h"
#include "http/raw_reply.h"
#include "http/routes.h"
#include "http/stream.h"
#include "json/read.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* In bytes. SMALL_BODY is the limit for an ignored body, SMALL_REPLY needs no memory budget,
 * and SINK_STEP is what must arrive within request_timeout_s. */
enum { SMALL_BODY = 64 << 10, SMALL_REPLY = 64 << 10, SINK_STEP = 64 << 10 };

const char *http_header(const struct http_request *req, const char *name)
{
    return MHD_lookup_connection_value(req->mhd, MHD_HEADER_KIND, name);
}

const char *http_query(const struct http_request *req, const char *name)
{
    return MHD_lookup_connection_value(req->mhd, MHD_GET_ARGUMENT_KIND, name);
}

const char *http_query_bytes(const struct http_request *req, const char *name, size_t *ret_len)
{
    const char *value = NULL;
    *ret_len = 0;
    (void)MHD_lookup_connection_value_n(
        req->mhd, MHD_GET_ARGUMENT_KIND, name, strlen(name), &value, ret_len);
    return value;
}

bool http_accepts(const struct http_request *req, const char *type)
{
    const char *accept = http_header(req, "Accept");
    return accept && strcasestr(accept, type);
}

void http_follow(struct http_request *req, int fd)
{
    connection_follow(req->connection, fd);
}

void http_unfollow(struct http_request *req)
{
    connection_unfollow(req->connection);
}

bool http_is_gone(const struct http_request *req)
{
    return connection_is_gone(req->connection);
}

bool http_is_json(const char *type)
{
    size_t len = strcspn(type, "; \t");
    if (strncasecmp(type, "application/", 12) != 0)
        return false;
    return (len == 16 && strncasecmp(type + 12, "json", 4) == 0) ||
           (len > 17 && strncasecmp(type + len - 5, "+json", 5) == 0);
}

/* NULL for a unix socket. */
static const struct sockaddr *address_of(struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *addr = info ? info->client_addr : NULL;
    return addr && addr->sa_family != AF_UNIX ? addr : NULL;
}

/* From 127.0.0.0/8, ::1 or a unix socket. */
static bool is_local(const struct sockaddr *addr)
{
    if (!addr)
        return true;
    if (addr->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)addr;
        return ntohl(in->sin_addr.s_addr) >> 24 == 127;
    }
    const struct in6_addr *six = &((const struct sockaddr_in6 *)addr)->sin6_addr;
    return addr->sa_family == AF_INET6 &&
           (IN6_IS_ADDR_LOOPBACK(six) ||
               (IN6_IS_ADDR_V4MAPPED(six) && six->s6_addr[12] == 127));
}

static struct connection *connection_of(struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

void *request_begin(void *context, const char *uri, struct MHD_Connection *mhd)
{
    struct state *state = context;
    struct http_request *req = xcalloc(1, sizeof(*req));
    req->state = state;
    req->mhd = mhd;
    req->connection = connection_of(mhd);
    req->target = xstrdup(uri);
    req->path_len = strcspn(uri, "?");
    req->owner = -1;
    req->began_ns = clock_ns();
    purse_open(&req->purse, state->ledger, req->owner);
    buf_init(&req->body, state->config.max_body);
    req->body.purse = &req->purse.counts;
    if (req->connection)
        connection_phase(req->connection, PHASE_NEXT);
    return req;
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
        req->target);
    log_event(quiet ? LOG_DEBUG : LOG_INFO, "request", "method",
        req->method ? req->method : "?", "path", path, "status", number, "ms", ms, "key",
        state_owner_name(req->state, req->owner), "run", req->run_id, (char *)NULL);
}

static void release_answer(void *answer)
{
    answer_release(answer);
}

static struct MHD_Response *make_response(struct http_request *req, struct http_reply *reply)
{
    if (reply->answer)
        return MHD_create_response_from_buffer_with_free_callback_cls(
            reply->body_len, reply->answer->text, release_answer, reply->answer);
    return reply->read ? stream_response(req, reply)
                       : MHD_create_response_from_buffer(reply->body_len,
                             reply->body ? reply->body : (char *)"",
                             reply->body ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
}

static enum MHD_Result send_reply(struct http_request *req, struct http_reply *reply)
{
    char number[16];
    struct MHD_Response *response = make_response(req, reply);
    if (!response) {
        reply_clear(reply);
        return MHD_NO;
    }
    bool has_body = reply->body_len > 0 || reply->read;
    if (has_body)
        (void)MHD_add_response_header(response, "Content-Type",
            reply->content_type ? reply->content_type : "application/json");
    (void)MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (reply->retry_after_s) {
        (void)snprintf(number, sizeof(number), "%u", reply->retry_after_s);
        (void)MHD_add_response_header(response, "Retry-After", number);
    }
    for (size_t i = 0; i < reply->header_count; i++)
        (void)MHD_add_response_header(
            response, reply->headers[i].name, reply->headers[i].value);
    if (reply->close || req->state->stopping)
        (void)MHD_add_response_header(response, "Connection", "close");
    req->is_answered = true;
    metrics_count_request(&req->state->metrics, reply->status);
    log_request(req, reply->status);
    connection_phase(req->connection, PHASE_REPLY);
    enum MHD_Result r = MHD_queue_response(req->mhd, (unsigned)reply->status, response);
    MHD_destroy_response(response);
    return r;
}

/* Answers a request whose body is not read to its end. libmicrohttpd cannot do that in the
 * middle of a body, and before it would reset the connection too early. So this sends the reply
 * itself. */
static enum MHD_Result cut_off(struct http_request *req, struct http_reply *reply)
{
    metrics_count_request(&req->state->metrics, reply->status);
    log_request(req, reply->status);
    connection_phase(req->connection, PHASE_REPLY);
    raw_reply(connection_fd(req->connection), reply);
    reply_clear(reply);
    return MHD_NO;
}

/* Hands the connection over to another protocol. This thread belongs to the connection and may
 * stay in serve(); MHD_NO then closes it. libmicrohttpd could hand over the socket itself, but
 * keeps such connections in a list that must be empty before it can stop. */
static enum MHD_Result hand_over(struct http_request *req, struct http_reply *reply)
{
    int fd = connection_fd(req->connection);
    metrics_count_request(&req->state->metrics, reply->status);
    log_request(req, reply->status);
    connection_phase(req->connection, PHASE_TAKEN);
    raw_switch(fd, reply);
    reply->serve(reply->context, req, fd);
    reply->done(reply->context);
    return MHD_NO;
}

/* Sends a refusal. When there is an unread body, cut_off() sends it. */
static enum MHD_Result send_refusal(struct http_request *req, struct http_reply *reply)
{
    auth_cors(req, reply);
    return req->declares_body && !req->is_read ? cut_off(req, reply) : send_reply(req, reply);
}

static void fill_error(
    const struct route *route, struct http_reply *reply, const struct err *err)
{
    if (route && route->refuse)
        route->refuse(reply, err);
    else
        reply_error(reply, err);
}

static enum MHD_Result refuse(struct http_request *req, const struct err *err)
{
    struct http_reply reply = {0};
    fill_error(req->route, &reply, err);
    return send_refusal(req, &reply);
}

/* Whether a caller that has proven itself gets a place for its connection. */
static bool has_place(const struct http_request *req)
{
    bool is_proof = req->owner >= 0 || req->state->keys.count == 0;
    return !is_proof || connection_prove(req->connection, req->owner);
}

static enum MHD_Result refuse_full(struct http_request *req)
{
    struct http_reply reply = {.close = true};
    struct err err = {0};
    (void)err_set(&err, ERR_UNAVAILABLE, EMFILE, "there are too many connections");
    fill_error(req->route, &reply, &err);
    return send_refusal(req, &reply);
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

/* Finishes a request whose body goes to a sink. The body may already be there, or part of it.
 */
static int finish_sink(struct http_request *req, struct http_reply *reply, struct err *err)
{
    struct http_sink *sink = &req->sink;
    int r = 0;
    if (req->body.len)
        r = sink->write(sink->context, req->body.data, req->body.len, err);
    return r < 0 ? r : sink->finish(sink->context, reply, err);
}

/* A body exists again when it is parsed and again when a box gets it. Small JSON values take
 * far more memory than their text. */
static int count_body(struct http_request *req, struct err *err)
{
    size_t bytes = 0;
    purse_hand_to(&req->purse, req->owner);
    if (req->sink.done || !req->body.len)
        return 0;
    if (req->route->body == BODY_NONE) { /* nobody will read it */
        buf_done(&req->body);
        return 0;
    }
    struct err ignored = {0}; /* the handler says what is wrong, in its own form */
    (void)json_read_weigh(req->body.data, req->body.len, &bytes, &ignored);
    return purse_take(&req->purse, bytes + req->body.len) ? 0 : state_full(err);
}

static enum MHD_Result dispatch(struct http_request *req)
{
    struct http_reply reply = {0};
    struct err err = {0};
    if (!has_place(req))
        return refuse_full(req);
    connection_phase(req->connection, PHASE_HANDLING);
    int r = count_body(req, &err);
    if (r == 0 && !req->sink.done)
        r = req->route->handle(req, &reply, &err);
    if (r == 0 && req->sink.done)
        r = finish_sink(req, &reply, &err);
    if (r < 0)
        fill_error(req->route, &reply, &err);
    buf_done(&req->body);
    if (reply.serve)
        return hand_over(req, &reply);
    hold_reply(req, &reply);
    auth_cors(req, &reply);
    return send_reply(req, &reply);
}

static enum MHD_Result refuse_route(struct http_request *req, const char *allow)
{
    struct http_reply reply = {0};
    struct err err = {0};
    /* The route of an allowed method, for the form of its errors. */
    const struct route *other = NULL;
    if (allow[0]) {
        char method[16];
        char rest[64];
        (void)snprintf(method, sizeof(method), "%.*s", (int)strcspn(allow, ","), allow);
        other = route_find(
            method, req->target, req->path_len, req->params, &req->rest, rest, sizeof(rest));
        (void)err_set(&err, ERR_METHOD, EINVAL, "this path takes %s", allow);
        reply_header(&reply, "Allow", allow);
    } else {
        (void)err_set(&err, ERR_NOT_FOUND, ENOENT, "there is no such path");
    }
    fill_error(other, &reply, &err);
    return send_refusal(req, &reply);
}

/* Every OPTIONS request gets the same answer: the real request is checked anyway. */
static enum MHD_Result answer_preflight(struct http_request *req)
{
    struct http_reply reply = {.status = 200};
    reply_header(
        &reply, "Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, DELETE, OPTIONS");
    reply_header(&reply, "Access-Control-Allow-Headers",
        "Content-Type, Authorization, X-API-Key, Last-Event-ID");
    reply_header(&reply, "Access-Control-Max-Age", "600");
    reply_header(
        &reply, "Vary", "Access-Control-Request-Method, Access-Control-Request-Headers");
    return send_refusal(req, &reply);
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

/* Checks route, key and size: everything that can be refused without the body. When it returns
 * false, the request was answered and *ret is the result for libmicrohttpd. */
static bool is_welcome(struct http_request *req, enum MHD_Result *ret)
{
    struct err err = {0};
    char allow[64];
    if (str_eq(req->method, "OPTIONS")) {
        *ret = answer_preflight(req);
        return false;
    }
    req->route = route_find(
        req->method, req->target, req->path_len, req->params, &req->rest, allow, sizeof(allow));
    req->rest_len = req->rest ? (size_t)(req->target + req->path_len - req->rest) : 0;
    if (!req->route) {
        *ret = refuse_route(req, allow);
        return false;
    }
    if (auth_check(req, &err) < 0 || check_body(req, &err) < 0) {
        *ret = refuse(req, &err);
        return false;
    }
    if (req->owner >= 0 && !has_place(req)) {
        *ret = refuse_full(req);
        return false;
    }
    return true;
}

/* Begins a large body that its handler takes piece by piece. */
static enum MHD_Result begin_sink(struct http_request *req)
{
    struct http_reply reply = {0};
    struct err err = {0};
    connection_phase(req->connection, PHASE_HANDLING);
    if (req->route->handle(req, &reply, &err) < 0)
        return refuse(req, &err);
    if (!has_place(req))
        return refuse_full(req);
    connection_phase(req->connection, PHASE_BODY);
    return MHD_YES;
}

static enum MHD_Result on_headers(
    struct http_request *req, const char *method, const char *version)
{
    struct err err = {0};
    enum MHD_Result r = MHD_YES;
    req->is_begun = true;
    req->is_head = str_eq(method, "HEAD");
    req->method = req->is_head ? "GET" : method;
    req->is_unix = !address_of(req->mhd);
    req->is_local = is_local(address_of(req->mhd));
    if (gate_check(req, version, &err) < 0 || auth_check_page(req, &err) < 0) {
        req->state->metrics.gated++;
        return refuse(req, &err);
    }
    if (req->declares_body && !is_welcome(req, &r))
        return r;
    if (req->route && req->route->body == BODY_STREAM)
        return begin_sink(req);
    if (req->declares_body)
        connection_phase(req->connection, PHASE_BODY);
    return MHD_YES;
}

/* A client has request_timeout_s for each SINK_STEP bytes, not for the whole body. */
static enum MHD_Result on_sink(struct http_request *req, const char *data, size_t size)
{
    struct err err = {0};
    bool is_step = req->sunk / SINK_STEP != (req->sunk + size) / SINK_STEP;
    if (req->sink.write(req->sink.context, data, size, &err) < 0)
        return refuse(req, &err);
    req->sunk += size;
    if (is_step)
        connection_phase(req->connection, PHASE_BODY);
    return MHD_YES;
}

static enum MHD_Result on_body(struct http_request *req, const char *data, size_t size)
{
    struct err err = {0};
    if (req->sink.done)
        return on_sink(req, data, size);
    purse_hand_to(&req->purse, req->owner);
    int r = buf_append(&req->body, data, size);
    if (r == -EMSGSIZE) {
        (void)err_set(
            &err, ERR_TOO_LARGE, EFBIG, "the body is larger than %zu bytes", req->body.max);
        return refuse(req, &err);
    }
    if (r < 0) {
        (void)state_full(&err);
        return refuse(req, &err);
    }
    return MHD_YES;
}

enum MHD_Result request_go_on(void *context, struct MHD_Connection *mhd, const char *url,
    const char *method, const char *version, const char *data, size_t *data_size,
    void **request)
{
    struct http_request *req = *request;
    if (!req || !req->connection)
        return MHD_NO;
    if (!req->is_begun)
        return on_headers(req, method, version);
    if (req->is_answered) {
        *data_size = 0;
        return MHD_YES;
    }
    if (*data_size == 0) {
        enum MHD_Result r = MHD_YES;
        req->is_read = true;
        return req->route || is_welcome(req, &r) ? dispatch(req) : r;
    }
    size_t size = *data_size;
    *data_size = 0;
    return on_body(req, data, size);
}

void request_end(void *context, struct MHD_Connection *mhd, void **request,
    enum MHD_RequestTerminationCode how)
{
    struct http_request *req = *request;
    if (!req)
        return;
    if (req->connection)
        connection_phase(req->connection, PHASE_IDLE);
    buf_done(&req->body);
    if (req->sink.done)
        req->sink.done(req->sink.context);
    purse_close(&req->purse);
    free(req->target);
    free(req);
    *request = NULL;
}
