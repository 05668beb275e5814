/* SPDX-License-Identifier: Apache-2.0 */

/* See hello.h. The hello must stand in one record, as all clients in use send it; a client
 * could hide the name with a hello in pieces. It could also hide it with a record before the
 * hello, because some servers ignore warnings there. */

#include "egress/hello.h"

#include <string.h>

enum {
    RECORD_FIRST = 20, /* types of records: 20 to 24 */
    RECORD_HANDSHAKE = 22,
    RECORD_LAST = 24,
    VERSION_MAJOR = 3,
    RECORD_HEAD = 5,
    HANDSHAKE_HELLO = 1,
    HANDSHAKE_HEAD = 4,
    VERSION_AND_RANDOM = 2 + 32,
    EXTENSION_SERVER_NAME = 0,
    EXTENSION_ENCRYPTED_HELLO = 0xfe0d,
    NAME_TYPE_HOST = 0,
};

/* The bytes that are not read yet. A read beyond the end gets zeros and sets is_broken, so that
 * one check at the end is enough. */
struct rest {
    const uint8_t *data;
    size_t len;
    bool is_broken;
};

static const uint8_t *take(struct rest *r, size_t len)
{
    if (r->is_broken || len > r->len) {
        r->is_broken = true;
        r->len = 0;
        return NULL;
    }
    const uint8_t *taken = r->data;
    r->data += len;
    r->len -= len;
    return taken;
}

/* A number of one to three bytes. */
static size_t take_number(struct rest *r, size_t bytes)
{
    const uint8_t *p = take(r, bytes);
    size_t value = 0;
    for (size_t i = 0; p && i < bytes; i++)
        value = value << 8 | p[i];
    return value;
}

/* Takes a field that begins with its length, a number of `bytes` bytes. */
static struct rest take_field(struct rest *r, size_t bytes)
{
    struct rest field = {.len = take_number(r, bytes)};
    field.data = take(r, field.len);
    if (r->is_broken)
        field = (struct rest){.is_broken = true};
    return field;
}

/* Reads the list of server names, which holds exactly one. */
static bool read_name(char name[NETWORK_NAME], struct rest extension)
{
    struct rest list = take_field(&extension, 2);
    bool is_host = take_number(&list, 1) == NAME_TYPE_HOST;
    struct rest host = take_field(&list, 2);
    if (extension.is_broken || extension.len || list.is_broken || list.len || !is_host ||
        host.len == 0 || host.len >= NETWORK_NAME)
        return false;
    for (size_t i = 0; i < host.len; i++) {
        uint8_t c = host.data[i];
        if (c >= 'A' && c <= 'Z')
            c = (uint8_t)(c - 'A' + 'a');
        bool is_allowed = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
                          c == '_' || c == '.';
        if (!is_allowed)
            return false;
        name[i] = (char)c;
    }
    name[host.len] = '\0';
    return true;
}

static enum hello_state read_extensions(struct hello *ret, struct rest all)
{
    bool is_named = false;
    while (all.len > 0) {
        size_t type = take_number(&all, 2);
        struct rest extension = take_field(&all, 2);
        if (all.is_broken)
            return HELLO_UNREADABLE;
        if (type == EXTENSION_ENCRYPTED_HELLO)
            ret->is_encrypted = true;
        if (type != EXTENSION_SERVER_NAME)
            continue;
        if (is_named || !read_name(ret->name, extension))
            return HELLO_UNREADABLE;
        is_named = true;
    }
    return is_named ? HELLO_NAMED : HELLO_NAMELESS;
}

/* Reads a whole record. */
static enum hello_state read_record(struct hello *ret, struct rest r)
{
    size_t type = take_number(&r, 1);
    struct rest body = take_field(&r, 3);
    if (r.is_broken || r.len > 0 || type != HANDSHAKE_HELLO)
        return HELLO_UNREADABLE;
    (void)take(&body, VERSION_AND_RANDOM);
    (void)take_field(&body, 1); /* session */
    (void)take_field(&body, 2); /* cipher suites */
    (void)take_field(&body, 1); /* compression */
    if (body.is_broken)
        return HELLO_UNREADABLE;
    if (body.len == 0)
        return HELLO_NAMELESS;
    struct rest extensions = take_field(&body, 2);
    if (body.is_broken || body.len > 0)
        return HELLO_UNREADABLE;
    return read_extensions(ret, extensions);
}

enum hello_state hello_read(struct hello *ret, const uint8_t *data, size_t len)
{
    *ret = (struct hello){.need = RECORD_HEAD};
    if (len > 0 && (data[0] < RECORD_FIRST || data[0] > RECORD_LAST))
        return HELLO_NOT_TLS;
    if (len > 1 && data[0] != RECORD_HANDSHAKE)
        return data[1] == VERSION_MAJOR ? HELLO_UNREADABLE : HELLO_NOT_TLS;
    if (len > 1 && data[1] != VERSION_MAJOR)
        return HELLO_UNREADABLE;
    if (len < RECORD_HEAD)
        return HELLO_MORE;
    size_t content = (size_t)data[3] << 8 | data[4];
    if (content < HANDSHAKE_HEAD || content > HELLO_MAX - RECORD_HEAD)
        return HELLO_UNREADABLE;
    ret->need = RECORD_HEAD + content;
    if (len < ret->need)
        return HELLO_MORE;
    enum hello_state state =
        read_record(ret, (struct rest){.data = data + RECORD_HEAD, .len = content});
    if (state != HELLO_NAMED)
        memset(ret->name, 0, sizeof(ret->name));
    return state;
}
