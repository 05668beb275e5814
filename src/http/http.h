/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a handler sees of HTTP. */

#include "base/buf.h"
#include "base/err.h"
#include "service/service.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct client;
struct route;
struct http_reply;
struct http_request;

/* Receives the body of a BODY_STREAM request piece by piece, so that it is not kept in memory.
 * `write` and `finish` return 0, or negative errno with err. `done` is called exactly once. */
struct http_sink {
    int (*write)(void *context, const char *data, size_t len, struct err *err);
    int (*finish)(
        void *context, struct http_request *req, struct http_reply *reply, struct err *err);
    void (*done)(void *context);
    void *context;
};

enum { HTTP_MAX_PARAMS = 2, HTTP_PARAM_MAX = 128, HTTP_MAX_HEADERS = 8, HTTP_MAX_QUERY = 16 };

struct http_request {
    struct state *state;
    const char *method; /* HEAD appears as GET */
    char *target;       /* the path as received, and NUL */
    size_t path_len;
    /* The arguments of the query, decoded. */
    struct {
        const char *name;
        const char *value;
        size_t len; /* of the value, which may contain a NUL */
    } query[HTTP_MAX_QUERY];
    size_t query_count;
    /* Values of {id} and the like in the route's pattern, in order. */
    char params[HTTP_MAX_PARAMS][HTTP_PARAM_MAX];
    /* What {path...} of the pattern matched, as received; points into target. */
    const char *rest;
    size_t rest_len;
    const struct route *route;
    int owner; /* index of the caller's key, -1 without one */
    struct buf body;
    struct http_sink sink;
    uint64_t sunk;       /* bytes that went to the sink */
    char run_id[ID_MAX]; /* set by handlers, for the log */
    bool is_local;       /* from loopback or a unix socket */
    bool is_unix;
    bool is_head;
    bool declares_body;
    uint64_t began_ns;
    struct purse purse; /* counts the memory of the request and its reply */
    struct client *client;
};

/* A header of the request, or NULL. */
const char *http_header(const struct http_request *req, const char *name);

/* Splits the query off req->target and decodes its arguments in place. */
int http_parse_query(struct http_request *req, struct err *err);

/* Decodes %XX in `len` bytes, and + as a space if `is_form`. `to` may be `from`. Returns the
 * length of the result, or -EINVAL for a % without two hexadecimal digits. */
ssize_t http_unescape(const char *from, size_t len, bool is_form, char *to);

/* An argument of the query, decoded, or NULL. */
const char *http_query(const struct http_request *req, const char *name);

/* The same with its length, for values that may contain a NUL. */
const char *http_query_bytes(const struct http_request *req, const char *name, size_t *ret_len);

/* An argument that is `true` or `false`; false when it is missing. */
int http_query_flag(
    const struct http_request *req, const char *name, bool *ret, struct err *err);

/* Whether a Content-Type is JSON: application/json or application/x+json, with or without
 * parameters. */
bool http_is_json(const char *type);

/* Whether the Accept header asks for this type. */
bool http_accepts(const struct http_request *req, const char *type);

struct http_reply {
    int status;
    const char *content_type; /* NULL: application/json */
    char *body;               /* owned; NULL: empty */
    size_t body_len;
    struct answer *answer;  /* instead of a body; the reply is a user of it */
    unsigned retry_after_s; /* with 429 and 503 */
    bool close;             /* close the connection after this reply */
    struct {
        const char *name;
        char value[160];
    } headers[HTTP_MAX_HEADERS];
    size_t header_count;

    /* A stream instead of a body. `read` appends to `to` and returns 1, 0 at the end, or
     * negative errno; it may block for a while. `done` is called exactly once. With `is_exact`
     * an error breaks the connection, so that the client does not mistake it for the end. With
     * `has_size` the stream has `size` bytes. */
    bool is_exact;
    bool has_size;
    uint64_t size;
    int (*read)(void *context, struct http_request *req, struct buf *to);
    void (*done)(void *context);
    void *context;

    /* Another protocol after this reply, which has status 101 and no body. `serve` owns the
     * socket until it returns; then the connection is closed and `done` is called. */
    void (*serve)(void *context, struct http_request *req, int fd);
};

/* Frees body and answer. */
void reply_clear(struct http_reply *reply);

/* Returns 0 with the reply filled in, or negative errno with err. err then becomes the reply.
 */
typedef int http_handler(struct http_request *req, struct http_reply *reply, struct err *err);

void reply_header(struct http_reply *reply, const char *name, const char *value);

/* Takes the caller's use of the answer. */
void reply_answer(struct http_reply *reply, int status, struct answer *answer);

/* Takes `text`. */
void reply_json(struct http_reply *reply, int status, char *text, size_t len);
void reply_text(struct http_reply *reply, int status, const char *type, const char *text);

/* Makes the reply a stream of events (text/event-stream). Takes the context, for `done`. */
void reply_events(struct http_reply *reply,
    int (*read)(void *context, struct http_request *req, struct buf *to),
    void (*done)(void *context), void *context);

/* Fills in {"error": {...}} with the status of the error. */
void reply_error(struct http_reply *reply, const struct err *err);

/* Writes to `fd` (a borrowed eventfd, or -1) when the client leaves, until http_unfollow(). */
void http_follow(struct http_request *req, int fd);
void http_unfollow(struct http_request *req);

/* Whether the client has left. Needs http_follow() before. */
bool http_is_gone(const struct http_request *req);
