/* SPDX-License-Identifier: Apache-2.0 */

/* Fills in the common forms of replies; request.c sends them. */

#include "http/http.h"

#include "base/alloc.h"
#include "json/body.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void reply_header(struct http_reply *reply, const char *name, const char *value)
{
    if (reply->header_count == HTTP_MAX_HEADERS)
        return;
    reply->headers[reply->header_count].name = name;
    (void)snprintf(reply->headers[reply->header_count].value, sizeof(reply->headers[0].value),
        "%s", value);
    reply->header_count++;
}

void reply_clear(struct http_reply *reply)
{
    free(reply->body);
    answer_release(reply->answer);
    reply->body = NULL;
    reply->answer = NULL;
    reply->body_len = 0;
}

void reply_answer(struct http_reply *reply, int status, struct answer *answer)
{
    reply_clear(reply);
    reply->status = status;
    reply->content_type = NULL;
    reply->answer = answer;
    reply->body_len = answer->len;
}

void reply_json(struct http_reply *reply, int status, char *text, size_t len)
{
    reply_clear(reply);
    reply->status = status;
    reply->content_type = NULL;
    reply->body = text;
    reply->body_len = len;
}

void reply_text(struct http_reply *reply, int status, const char *type, const char *text)
{
    reply_json(reply, status, xstrdup(text), strlen(text));
    reply->content_type = type;
}

void reply_events(struct http_reply *reply,
    int (*read)(void *context, struct http_request *req, struct buf *to),
    void (*done)(void *context), void *context)
{
    reply->status = 200;
    reply->content_type = "text/event-stream";
    reply->read = read;
    reply->done = done;
    reply->context = context;
    reply_header(reply, "Cache-Control", "no-store");
    reply_header(reply, "X-Accel-Buffering", "no"); /* nginx then forwards events at once */
}

void reply_error(struct http_reply *reply, const struct err *err)
{
    const struct err_info *info = &err_table[err->code == ERR_NONE ? ERR_INTERNAL : err->code];
    json_t *body = json_pack("{s:o}", "error", json_error(err));
    char *text = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    reply_json(reply, info->http_status, text, text ? strlen(text) : 0);
    if (err->code == ERR_UNAUTHORIZED)
        reply_header(reply, "WWW-Authenticate", "Bearer realm=\"hermes\"");
    if (err->code == ERR_BUSY || err->code == ERR_UNAVAILABLE)
        reply->retry_after_s = err->retry_s ? err->retry_s : 1;
}
