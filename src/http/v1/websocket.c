/* SPDX-License-Identifier: Apache-2.0 */

/* See websocket.h. */

#include "http/v1/websocket.h"

#include "base/str.h"
#include "http/auth.h"

#include <errno.h>

int websocket_check(const struct http_request *req, struct http_reply *reply,
    char ret_accept[WEBSOCKET_ACCEPT], struct err *err)
{
    const char *key = http_header(req, "Sec-WebSocket-Key");
    const char *version = http_header(req, "Sec-WebSocket-Version");
    if (auth_is_foreign(req))
        return err_set(err, ERR_FORBIDDEN, EACCES,
            "pages of this origin may not open a WebSocket here; add it to allowed_origin");
    if (req->is_head || !websocket_has_word(http_header(req, "Upgrade"), "websocket") ||
        !websocket_has_word(http_header(req, "Connection"), "upgrade") || !version ||
        !str_eq(version, "13")) {
        reply_header(reply, "Upgrade", "websocket");
        reply_header(reply, "Sec-WebSocket-Version", "13");
        return err_set(err, ERR_UPGRADE, EPROTO,
            "this path is a WebSocket: ask with GET, Upgrade: websocket, Connection: Upgrade "
            "and Sec-WebSocket-Version: 13 (a proxy in front has to pass them on)");
    }
    if (req->declares_body || !key || !websocket_accept(key, ret_accept))
        return err_set(err, ERR_INVALID, EINVAL,
            "the request for a WebSocket must have no body, and a Sec-WebSocket-Key of 16 "
            "bytes in base64");
    return 0;
}

void websocket_answer(struct http_reply *reply, const char *accept)
{
    reply->status = 101;
    reply_header(reply, "Upgrade", "websocket");
    reply_header(reply, "Connection", "Upgrade");
    reply_header(reply, "Sec-WebSocket-Accept", accept);
}
