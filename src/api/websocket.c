/* SPDX-License-Identifier: Apache-2.0 */

/* See websocket.h. */

#include "api/websocket.h"

#include "api/auth.h"
#include "base/str.h"

#include <errno.h>
#include <nettle/base64.h>
#include <nettle/sha1.h>
#include <string.h>
#include <strings.h>

enum { KEY_BYTES = 16, KEY_CHARS = 24 };

bool websocket_accept(const char *key, char ret[WEBSOCKET_ACCEPT])
{
    static const char magic[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    struct base64_decode_ctx decoder;
    struct sha1_ctx hash;
    uint8_t bytes[BASE64_DECODE_LENGTH(KEY_CHARS)];
    uint8_t digest[SHA1_DIGEST_SIZE];
    size_t len = sizeof(bytes);
    if (strlen(key) != KEY_CHARS)
        return false;
    base64_decode_init(&decoder);
    if (!base64_decode_update(&decoder, &len, bytes, KEY_CHARS, key) ||
        !base64_decode_final(&decoder) || len != KEY_BYTES)
        return false;
    sha1_init(&hash);
    sha1_update(&hash, KEY_CHARS, (const uint8_t *)key);
    sha1_update(&hash, sizeof(magic) - 1, (const uint8_t *)magic);
    sha1_digest(&hash, sizeof(digest), digest);
    base64_encode_raw(ret, sizeof(digest), digest);
    ret[WEBSOCKET_ACCEPT - 1] = '\0';
    return true;
}

bool websocket_has_word(const char *list, const char *word)
{
    size_t len = strlen(word);
    while (list && *list) {
        list += strspn(list, ", \t");
        size_t item = strcspn(list, ", \t");
        if (item == len && strncasecmp(list, word, len) == 0)
            return true;
        list += item;
    }
    return false;
}

int websocket_begin(struct http_request *req, struct http_reply *reply, struct err *err)
{
    const char *key = http_header(req, "Sec-WebSocket-Key");
    const char *version = http_header(req, "Sec-WebSocket-Version");
    char accept[WEBSOCKET_ACCEPT];
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
    if (req->declares_body || !key || !websocket_accept(key, accept))
        return err_set(err, ERR_INVALID, EINVAL,
            "a WebSocket is asked for without a body and with a Sec-WebSocket-Key, which is 16 "
            "bytes in base64");
    reply->status = 101;
    reply_header(reply, "Upgrade", "websocket");
    reply_header(reply, "Connection", "Upgrade");
    reply_header(reply, "Sec-WebSocket-Accept", accept);
    return 0;
}
