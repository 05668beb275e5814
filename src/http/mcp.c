/* SPDX-License-Identifier: Apache-2.0 */

/* /mcp and /mcp/full: the Model Context Protocol over HTTP, both eras on one address. POST
 * carries a message; the answer is JSON, or a stream when messages come before it. GET opens
 * the standing stream of a session or resumes a stream, DELETE ends a session. The protocol is
 * in mcp/; this file knows headers, statuses and streams. */

#include "mcp/mcp.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "http/auth.h"
#include "http/call.h"
#include "http/routes.h"
#include "http/stream.h"
#include "mcp/peer.h"
#include "service/later.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    NAP_MS = 200,
    NO_SESSION_ID = -32000,
    BATCH_BYTES = 8 << 20, /* of responses: then the rest of a batch is refused */
};

/* --- replies */

/* Takes the message. */
static void reply_message(struct http_reply *reply, int status, json_t *message)
{
    char *text = json_dumps(message, JSON_COMPACT);
    json_decref(message);
    reply_json(reply, status, text, text ? strlen(text) : 0);
}

static int reply_rpc_error(struct http_reply *reply, json_t *id, struct mcp_error *error)
{
    reply_message(
        reply, error->http_code ? (int)error->http_code : 200, mcp_error_message(id, error));
    mcp_error_done(error);
    return 0;
}

/* A refusal of the transport: no message could be taken. */
static int refuse(struct http_reply *reply, int status, int code, const char *text)
{
    struct mcp_error error = {0};
    (void)mcp_fail_http(&error, (unsigned)status, code, "%s", text);
    return reply_rpc_error(reply, NULL, &error);
}

/* Errors from before the handler, as JSON-RPC. */
void refuse_mcp(struct http_reply *reply, const struct err *err)
{
    struct mcp_error error = {0};
    reply_error(reply, err);
    (void)mcp_fail(
        &error, err->code == ERR_INTERNAL ? MCP_INTERNAL : MCP_NO_SESSION, "%s", err->message);
    reply_message(reply, reply->status, mcp_error_message(NULL, &error));
}

/* --- streams */

struct reader {
    struct http_stream http;
    struct mcp_stream *stream;
    struct mcp_peer *peer; /* the session that this standing stream belongs to, or NULL */
    uint64_t after;
    int cancel_fd; /* of the call, which ends with the connection; or -1 */
};

static int next_messages(struct http_stream *http, struct http_request *req, struct buf *to)
{
    struct reader *reader = (struct reader *)http;
    int r = mcp_stream_read(reader->stream, &reader->after, NAP_MS, to);
    return r == -ETIMEDOUT && req->state->stopping && reader->peer ? 0 : r;
}

static void end_reading(void *context)
{
    struct reader *reader = context;
    uint64_t one = 1;
    if (reader->cancel_fd >= 0) {
        ssize_t n = write(reader->cancel_fd, &one, sizeof(one)); /* too late does no harm */
        (void)n;
        (void)close(reader->cancel_fd);
    }
    if (reader->peer)
        mcp_peer_sit(reader->peer);
    mcp_peer_unref(reader->peer);
    mcp_stream_unref(reader->stream);
    free(reader);
}

/* Takes the reference to the stream, the one to the peer and the descriptor. */
static void reply_stream(struct http_reply *reply, struct mcp_stream *stream, uint64_t after,
    struct mcp_peer *standing, int cancel_fd)
{
    struct reader *reader = xcalloc(1, sizeof(*reader));
    *reader = (struct reader){.http = {.next = next_messages, .done = end_reading},
        .stream = stream,
        .peer = standing,
        .after = after,
        .cancel_fd = cancel_fd};
    http_stream_reply(reply, &reader->http);
}

/* A call whose answer is a stream: it has a thread of its own, and goes on when a client of the
 * handshake wire loses its connection. */
struct streamed {
    struct later later;
    struct mcp_call call;
    json_t *body;
    struct mcp_stream *stream;
};

static void send_event(void *context, const json_t *message)
{
    mcp_stream_put(context, message);
}

static void hang_up(void *context, unsigned retry_ms)
{
    mcp_stream_hang_up(context, retry_ms);
}

static enum run_status work(struct later *later, struct answer **ret_answer)
{
    struct streamed *s = (struct streamed *)later;
    json_t *message = mcp_answer(&s->call);
    *ret_answer = NULL;
    if (message)
        mcp_stream_put(s->stream, message);
    json_decref(message);
    mcp_stream_end(s->stream);
    return RUN_OK;
}

static void free_streamed(struct later *later)
{
    struct streamed *s = (struct streamed *)later;
    if (s->call.peer)
        mcp_peer_finish(s->call.peer, &s->call);
    mcp_error_done(&s->call.error);
    (void)close(s->call.cancel_fd);
    mcp_stream_unref(s->stream);
    json_decref(s->body);
    free(s);
}

/* --- one message */

/* A POST on its way. */
struct post {
    struct http_request *req;
    struct http_reply *reply;
    struct mcp *mcp;
    const struct mcp_surface *surface;
    json_t *body;
};

static struct mcp_call call_of(
    const struct post *post, const struct mcp_message *m, struct mcp_peer *peer)
{
    return (struct mcp_call){.mcp = post->mcp,
        .surface = post->surface,
        .peer = peer,
        .owner = post->req->owner,
        .version = peer ? mcp_peer_version(peer) : MCP_2026_07_28,
        .capabilities = peer ? mcp_peer_capabilities(peer) : NULL,
        .message = *m,
        .cancel_fd = -1};
}

static int too_many(struct mcp_error *error)
{
    return mcp_fail(error, MCP_INTERNAL,
        "%d requests of this session, or %d of its key, are under way; wait for one of them",
        MCP_PEER_CALLS, MCP_CALLS_OF_KEY);
}

/* Opens the descriptor that cancels the call, and enters the call into its session. */
static int begin(struct mcp_call *call, struct err *err)
{
    call->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (call->cancel_fd < 0)
        return err_set(
            err, ERR_UNAVAILABLE, errno, "the server has no descriptor left; try again later");
    if (!call->peer || mcp_peer_begin(call->peer, call) == 0)
        return 0;
    close_fd(&call->cancel_fd);
    return too_many(&call->error);
}

/* Answers on this thread: the response, or NULL when the client cancelled the call. */
static json_t *answer_now(const struct post *post, struct mcp_call *call, struct err *err)
{
    json_t *message = NULL;
    int r = begin(call, err);
    if (r < 0)
        return call->error.code ? mcp_error_message(call->message.id, &call->error) : NULL;
    if (!call->peer)
        http_follow(post->req, call->cancel_fd);
    message = mcp_answer(call);
    if (call->peer)
        mcp_peer_finish(call->peer, call);
    else
        http_unfollow(post->req);
    close_fd(&call->cancel_fd);
    return message;
}

static int reply_now(struct post *post, struct mcp_call *call, struct err *err)
{
    json_t *message = answer_now(post, call, err);
    unsigned status = call->error.http_code;
    mcp_error_done(&call->error);
    if (!message && err->code)
        return -EAGAIN;
    if (message)
        reply_message(post->reply, status ? (int)status : 200, message);
    else
        post->reply->status = 202; /* cancelled: there is no response */
    return 0;
}

static int reply_later(struct post *post, const struct mcp_call *call, struct err *err)
{
    struct state *state = post->req->state;
    struct streamed *s = xcalloc(1, sizeof(*s));
    s->later = (struct later){
        .state = state, .owner = post->req->owner, .work = work, .free = free_streamed};
    s->call = *call;
    s->body = json_incref(post->body);
    s->stream = call->peer ? mcp_peer_stream(call->peer)
                           : mcp_stream_new(0, state->ledger, post->req->owner);
    s->call.send = send_event;
    s->call.hang_up = call->peer ? hang_up : NULL;
    s->call.context = s->stream;
    struct mcp_peer *peer = s->call.peer;
    s->call.peer = NULL; /* until it is entered */
    int r = later_count(&s->later, 2 * post->req->body.len, err);
    s->call.peer = peer;
    if (r == 0 && (r = begin(&s->call, err)) < 0 && s->call.error.code)
        (void)err_set(err, ERR_BUSY, EAGAIN, "%s", s->call.error.message);
    if (r < 0)
        s->call.peer = NULL;
    if (call->peer && call->version >= MCP_2025_11_25)
        mcp_stream_prime(s->stream);
    struct mcp_stream *stream = mcp_stream_ref(s->stream);
    int cancel_fd = r == 0 && !peer ? fcntl(s->call.cancel_fd, F_DUPFD_CLOEXEC, 3) : -1;
    if (r == 0)
        r = later_start(&s->later, NULL, err);
    if (r < 0) {
        later_free(&s->later);
        mcp_stream_unref(stream);
        if (cancel_fd >= 0)
            (void)close(cancel_fd);
        return r;
    }
    reply_stream(post->reply, stream, 0, NULL, cancel_fd);
    return 0;
}

static int reply_call(struct post *post, struct mcp_call *call, struct err *err)
{
    bool streams = mcp_streams(call) && http_accepts(post->req, "text/event-stream");
    if (!streams && str_eq(call->message.method, "subscriptions/listen"))
        return refuse(post->reply, 406, MCP_INVALID,
            "subscriptions/listen needs Accept: text/event-stream");
    return streams ? reply_later(post, call, err) : reply_now(post, call, err);
}

/* --- the stateless wire */

static const char *get_header(const void *context, const char *name)
{
    return http_header(context, name);
}

static int take_modern(struct post *post, const struct mcp_message *m, struct err *err)
{
    const struct http_request *req = post->req;
    const struct mcp_headers headers = {.version = http_header(req, "MCP-Protocol-Version"),
        .method = http_header(req, "Mcp-Method"),
        .name = http_header(req, "Mcp-Name"),
        .get = get_header,
        .context = req};
    struct mcp_call call = call_of(post, m, NULL);
    if (m->kind != MCP_REQUEST) {
        post->reply->status = 202;
        return 0;
    }
    if (mcp_check_modern(&call, &headers) < 0)
        return reply_rpc_error(post->reply, m->id, &call.error);
    return reply_call(post, &call, err);
}

/* --- the handshake wire */

/* The version header of a request with a session. */
static int check_version(const struct http_request *req, struct http_reply *reply)
{
    const char *version = http_header(req, "MCP-Protocol-Version");
    int found = version ? mcp_version_find(version) : MCP_2025_03_26;
    if (found >= 0)
        return 1;
    return refuse(reply, 400, NO_SESSION_ID,
        "this server does not speak the version of the header MCP-Protocol-Version");
}

/* The session of the request: 1, or 0 with a reply. */
static int find_session(const struct http_request *req, struct mcp *mcp,
    const struct mcp_surface *surface, struct http_reply *reply, struct mcp_peer **ret)
{
    const char *id = http_header(req, "Mcp-Session-Id");
    if (!id)
        return refuse(reply, 400, NO_SESSION_ID,
            "the header Mcp-Session-Id is missing; begin with initialize");
    *ret = mcp_peer_find(mcp, surface, req->owner, id);
    if (!*ret)
        return refuse(reply, 404, MCP_NO_SESSION,
            "there is no such session; it may have expired: begin with initialize");
    return 1;
}

static int take_initialize(struct post *post, const struct mcp_message *m, struct err *err)
{
    struct mcp_peer *peer = mcp_peer_new(post->mcp, post->surface, post->req->owner);
    struct mcp_call call = call_of(post, m, peer);
    int r = reply_now(post, &call, err);
    if (r == 0 && post->reply->status == 200) {
        reply_header(post->reply, "Mcp-Session-Id", mcp_peer_id(peer));
        mcp_peer_enlist(peer);
    }
    mcp_peer_unref(peer);
    return r;
}

static int take_legacy(struct post *post, const struct mcp_message *m, struct err *err)
{
    struct mcp_peer *peer = NULL;
    if (m->kind == MCP_REQUEST && str_eq(m->method, "initialize"))
        return take_initialize(post, m, err);
    int r = find_session(post->req, post->mcp, post->surface, post->reply, &peer);
    if (r == 1)
        r = check_version(post->req, post->reply);
    if (r == 1 && m->kind != MCP_REQUEST) {
        mcp_peer_take(peer, m);
        post->reply->status = 202;
        r = 0;
    } else if (r == 1) {
        struct mcp_call call = call_of(post, m, peer);
        r = reply_call(post, &call, err);
    }
    mcp_peer_unref(peer);
    return r;
}

/* The responses of a batch. */
struct batch {
    json_t *list;
    size_t bytes; /* as text */
};

/* Adds a response; takes it. One that the server has no memory for becomes an error. */
static void add_response(struct post *post, struct batch *batch, json_t *message)
{
    size_t size = json_dumpb(message, NULL, 0, JSON_COMPACT);
    if (size > BATCH_BYTES / MCP_BATCH_MAX && !purse_take(&post->req->purse, size)) {
        struct mcp_error error = {0};
        json_t *id = json_object_get(message, "id");
        (void)mcp_fail(&error, MCP_INTERNAL, "the server has no memory for this answer");
        json_t *refusal = mcp_error_message(id, &error);
        json_decref(message);
        message = refusal;
        size = 0;
    }
    batch->bytes += size;
    (void)json_array_append_new(batch->list, message);
}

/* One message of a batch: its response is added to the list. */
static void take_one(struct post *post, struct mcp_peer *peer, json_t *value,
    struct batch *batch, struct err *err)
{
    struct mcp_message m;
    struct mcp_error error = {0};
    json_t *message = NULL;
    if (mcp_message_read(value, &m, &error) < 0) {
        message = mcp_error_message(m.id, &error);
    } else if (m.kind != MCP_REQUEST) {
        mcp_peer_take(peer, &m);
    } else if (str_eq(m.method, "initialize")) {
        (void)mcp_fail(&error, MCP_INVALID, "initialize may not be part of a batch");
        message = mcp_error_message(m.id, &error);
    } else if (batch->bytes > BATCH_BYTES) {
        (void)mcp_fail(&error, MCP_INTERNAL,
            "the answers of this batch are too long together; this request was not begun");
        message = mcp_error_message(m.id, &error);
    } else {
        struct mcp_call call = call_of(post, &m, peer);
        message = answer_now(post, &call, err);
        mcp_error_done(&call.error);
    }
    mcp_error_done(&error);
    if (message)
        add_response(post, batch, message);
}

/* Batches exist in 2025-03-26 only. */
static int take_batch(struct post *post, struct err *err)
{
    struct mcp_peer *peer = NULL;
    size_t count = json_array_size(post->body);
    int r = find_session(post->req, post->mcp, post->surface, post->reply, &peer);
    if (r == 1 && (mcp_peer_version(peer) != MCP_2025_03_26 || !count || count > MCP_BATCH_MAX))
        r = refuse(post->reply, 400, MCP_INVALID,
            "a batch of 1 to 64 messages is allowed in version 2025-03-26 only; send one "
            "message");
    if (r == 1) {
        struct batch batch = {.list = json_array()};
        for (size_t i = 0; i < count; i++)
            take_one(post, peer, json_array_get(post->body, i), &batch, err);
        bool is_empty = json_array_size(batch.list) == 0;
        if (is_empty) {
            json_decref(batch.list);
            post->reply->status = 202;
        } else {
            reply_message(post->reply, 200, batch.list);
        }
        *err = (struct err){0};
        r = 0;
    }
    mcp_peer_unref(peer);
    return r;
}

/* --- handlers */

/* A page of another origin may not use a browser's way to this server, with a key or without.
 */
static bool is_foreign(const struct http_request *req, struct http_reply *reply)
{
    if (!auth_is_foreign(req))
        return false;
    (void)refuse(reply, 403, MCP_NO_SESSION,
        "pages of other origins may not call this server; see the setting `allowed_origin`");
    return true;
}

static int take_body(struct post *post, struct err *err)
{
    struct mcp_error error = {0};
    struct mcp_message m;
    const char *version = http_header(post->req, "MCP-Protocol-Version");
    if (json_is_array(post->body))
        return take_batch(post, err);
    if (mcp_message_read(post->body, &m, &error) < 0)
        return reply_rpc_error(post->reply, m.id, &error);
    return mcp_message_is_modern(&m, version) ? take_modern(post, &m, err)
                                              : take_legacy(post, &m, err);
}

int handle_mcp_post(struct http_request *req, struct http_reply *reply, struct err *err)
{
    struct post post = {.req = req,
        .reply = reply,
        .mcp = req->state->mcp,
        .surface = mcp_surface_at(req->target, req->path_len)};
    struct mcp_error error = {0};
    if (is_foreign(req, reply))
        return 0;
    int r = mcp_parse(req->body.data ? req->body.data : "", req->body.len, &post.body, &error);
    if (r < 0)
        return reply_rpc_error(reply, NULL, &error);
    r = take_body(&post, err);
    json_decref(post.body);
    return r;
}

/* GET and DELETE belong to the handshake wire. */
static bool is_modern(const struct http_request *req, struct http_reply *reply)
{
    const struct mcp_message none = {0};
    if (!mcp_message_is_modern(&none, http_header(req, "MCP-Protocol-Version")))
        return false;
    (void)refuse(reply, 405, MCP_NO_SESSION, "this version takes POST only");
    reply_header(reply, "Allow", "POST");
    return true;
}

int handle_mcp_get(struct http_request *req, struct http_reply *reply, struct err *err)
{
    const struct mcp_surface *surface = mcp_surface_at(req->target, req->path_len);
    const char *last = http_header(req, "Last-Event-ID");
    struct mcp_peer *peer = NULL;
    struct mcp_stream *stream = NULL;
    uint64_t after = 0;
    if (is_foreign(req, reply) || is_modern(req, reply))
        return 0;
    if (!http_accepts(req, "text/event-stream"))
        return refuse(reply, 406, NO_SESSION_ID, "GET needs Accept: text/event-stream");
    int r = find_session(req, req->state->mcp, surface, reply, &peer);
    if (r == 1)
        r = check_version(req, reply);
    if (r == 1 && last) {
        stream = mcp_peer_resume(peer, last, &after);
        if (stream)
            reply_stream(reply, stream, after, NULL, -1);
        else
            (void)refuse(reply, 404, MCP_NO_SESSION,
                "this stream is not kept any more; open one without Last-Event-ID");
        mcp_peer_unref(peer);
        return 0;
    }
    if (r == 1 && mcp_peer_stand(peer, &stream) < 0)
        r = refuse(reply, 409, MCP_NO_SESSION,
            "the standing stream of this session is open already; close it first");
    if (r == 1 && mcp_peer_version(peer) >= MCP_2025_11_25)
        mcp_stream_prime(stream);
    if (r == 1)
        reply_stream(reply, stream, 0, peer, -1);
    else
        mcp_peer_unref(peer);
    return 0;
}

int handle_mcp_delete(struct http_request *req, struct http_reply *reply, struct err *err)
{
    const struct mcp_surface *surface = mcp_surface_at(req->target, req->path_len);
    struct mcp_peer *peer = NULL;
    if (is_foreign(req, reply) || is_modern(req, reply))
        return 0;
    if (!http_header(req, "Mcp-Session-Id")) {
        reply->status = 204; /* there is nothing to end */
        return 0;
    }
    if (find_session(req, req->state->mcp, surface, reply, &peer) == 1) {
        mcp_peer_end(peer);
        reply->status = 204;
    }
    mcp_peer_unref(peer);
    return 0;
}
