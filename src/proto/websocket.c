/* SPDX-License-Identifier: Apache-2.0 */

/* See websocket.h. */

#include "proto/websocket.h"

#include <nettle/base64.h>
#include <nettle/sha1.h>
#include <stdint.h>
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
