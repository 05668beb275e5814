/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a handler sees of HTTP: nothing of the library below. */

#include "base/buf.h"
#include "base/err.h"
#include "service/service.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct MHD_Connection;
struct connection;
struct route;
struct http_reply;

/* Where the body of a request goes that is not kept in memory (BODY_STREAM). `write` and
 * `finish` return 0 or negative errno with err; `done` is called once, whatever happens. */
struct http_sink {
    int (*write)(void *context, const char *data, size_t len, struct err *err);
    int (*finish)(void *context, struct http_reply *reply, struct err *err);
    void (*done)(void *context);
    void *context;
};

enum { HTTP_MAX_PARAMS = 2, HTTP_PARAM_MAX = 128, HTTP_MAX_HEADERS = 8 };

struct http_request {
    struct state *state;
    const char *method; /* HEAD is shown as GET */
    char *target;       /* as it came: path and query */
    size_t path_len;
    char params[HTTP_MAX_PARAMS][HTTP_PARAM_MAX]; /* {id} of the route's pattern, in order */
    const char *rest; /* what {path...} of the pattern took, as it came; in target */
    size_t rest_len;
    const struct route *route;
    int owner; /* index of the caller's key, -1 without one */
    struct buf body;
    struct http_sink sink;
    uint64_t sunk;       /* bytes that went there */
    char run_id[ID_MAX]; /* set by handlers, for the log */
    bool is_local;       /* loopback or unix socket */
    bool is_unix;
    bool is_head;
    bool declares_body;
    bool is_answered;
    bool is_begun; /* the headers were looked at */
    bool is_read;  /* so was the whole body */
    uint64_t began_ns;
    struct purse purse; /* counts what is held of it, and of its reply */
    struct connection *connection;
    struct MHD_Connection *mhd;
};

/* A header of the request, or NULL. */
const char *http_header(const struct http_request *req, const char *name);

/* An argument of the query, decoded, or NULL. */
const char *http_query(const struct http_request *req, const char *name);

/* The same with its length, for what may have a NUL in it. */
const char *http_query_bytes(const struct http_request *req, const char *name, size_t *ret_len);

/* Whether a Content-Type is JSON: application/json or application/x+json, with or without
 * parameters. */
bool http_is_json(const char *type);

/* Whether the Accept header asks for this type. */
bool http_accepts(const struct http_request *req, const char *type);

struct http_reply {
    int status;
    const char *content_type; /* NULL: application/json */
    char *body;               /* owned by the reply; NULL: empty */
    size_t body_len;
    struct answer *answer;  /* instead of a body; the reply is its user */
    unsigned retry_after_s; /* with 429 and 503 */
    bool close;             /* the connection ends with this reply */
    struct {
        const char *name;
        char value[160];
    } headers[HTTP_MAX_HEADERS];
    size_t header_count;

    /* A stream instead of a body: `read` fills in to and returns 1, 0 at the end or a negative
     * errno; it may block for a while. `done` is called once, whatever happens. With `is_exact`
     * an error breaks the connection, so that the client does not take it for the end;
     * has_size: the stream has so many bytes. */
    bool is_exact;
    bool has_size;
    uint64_t size;
    int (*read)(void *context, struct http_request *req, struct buf *to);
    void (*done)(void *context);
    void *context;

    /* Another protocol after this reply, whose status is 101 and which has no body: `serve` has
     * the connection's socket until it returns, which ends the connection. `done` follows. */
    void (*serve)(void *context, struct http_request *req, int fd);
};

/* Gives back body and answer. */
void reply_clear(struct http_reply *reply);

/* Returns 0 with the reply filled in, or negative errno with err, which becomes the reply; a
 * retry_after_s that was set before is kept then. */
typedef int http_handler(struct http_request *req, struct http_reply *reply, struct err *err);

void reply_header(struct http_reply *reply, const char *name, const char *value);

/* Takes the caller's use of the answer. */
void reply_answer(struct http_reply *reply, int status, struct answer *answer);

/* Takes text. */
void reply_json(struct http_reply *reply, int status, char *text, size_t len);
void reply_text(struct http_reply *reply, int status, const char *type, const char *text);

/* {"error": {...}} with the matching status. */
void reply_error(struct http_reply *reply, const struct err *err);

/* From now on fd (an eventfd, borrowed) is written to when the client leaves, until
 * http_unfollow(). */
void http_follow(struct http_request *req, int fd);
void http_unfollow(struct http_request *req);

/* Whether the client has left; for streams. */
bool http_is_gone(const struct http_request *req);
