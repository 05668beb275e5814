/* SPDX-License-Identifier: Apache-2.0 */

/* See wire.h. Strict, because two readers that disagree are how requests are smuggled: one
 * length, no length beside chunks, no line that is continued. */

#include "backend/wire.h"

#include "base/str.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* "HTTP/1.1 204 No Content" */
static int parse_status(const char *line, size_t len, struct wire_head *ret)
{
    static const char start[] = "HTTP/1.";
    if (len < 12 || strncmp(line, start, strlen(start)) != 0 ||
        (line[7] != '0' && line[7] != '1') || line[8] != ' ' || !is_digit(line[9]) ||
        !is_digit(line[10]) || !is_digit(line[11]) || (len > 12 && line[12] != ' '))
        return -EPROTO;
    ret->status = (unsigned)((line[9] - '0') * 100 + (line[10] - '0') * 10 + (line[11] - '0'));
    return ret->status >= 100 && ret->status <= 599 ? 0 : -EPROTO;
}

static int parse_length(const char *value, struct wire_head *ret)
{
    if (ret->has_length || str_parse_u64(value, &ret->length) < 0)
        return -EPROTO;
    ret->has_length = true;
    return 0;
}

static int parse_field(const char *line, size_t len, struct wire_head *ret)
{
    char name[40], value[40];
    const char *colon = memchr(line, ':', len);
    if (!colon || colon == line || line[0] == ' ' || line[0] == '\t' || colon[-1] == ' ')
        return -EPROTO;
    size_t name_len = (size_t)(colon - line);
    const char *at = colon + 1, *end = line + len;
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    while (end > at && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    if (name_len >= sizeof(name))
        return 0; /* none that we know */
    (void)snprintf(name, sizeof(name), "%.*s", (int)name_len, line);
    bool fits = (size_t)(end - at) < sizeof(value);
    (void)snprintf(value, sizeof(value), "%.*s", fits ? (int)(end - at) : 0, at);
    if (strcasecmp(name, "Libpod-API-Version") == 0)
        ret->is_podman = true;
    uint32_t api;
    if (strcasecmp(name, "Api-Version") == 0 && str_has_prefix(value, "1.") &&
        str_parse_u32(value + 2, &api) == 0 && api < 1000)
        ret->api = api;
    if (strcasecmp(name, "Content-Length") == 0)
        return parse_length(value, ret);
    if (strcasecmp(name, "Transfer-Encoding") != 0)
        return 0;
    if (ret->is_chunked || strcasecmp(value, "chunked") != 0)
        return -EPROTO;
    ret->is_chunked = true;
    return 0;
}

ssize_t wire_head_parse(const char *data, size_t len, struct wire_head *ret)
{
    size_t at = 0;
    bool is_first = true;
    *ret = (struct wire_head){0};
    for (;;) {
        const char *end = memchr(data + at, '\n', len - at);
        if (!end)
            return len > WIRE_HEAD_MAX ? -EPROTO : 0;
        size_t line = (size_t)(end - data) - at;
        if (line == 0 || data[at + line - 1] != '\r' || memchr(data + at, '\0', line) ||
            at + line > WIRE_HEAD_MAX)
            return -EPROTO;
        line--;
        if (line == 0)
            break;
        int r =
            is_first ? parse_status(data + at, line, ret) : parse_field(data + at, line, ret);
        if (r < 0)
            return r;
        is_first = false;
        at += line + 2;
    }
    if (is_first || (ret->is_chunked && ret->has_length))
        return -EPROTO;
    return (ssize_t)at + 2;
}

static int hex_of(char c)
{
    return is_digit(c)            ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Takes one byte of the framing: a chunk's size, its extension or a line end. */
static int take_mark(struct wire_chunks *c, char byte)
{
    int digit = hex_of(byte);
    switch (c->state) {
    case CHUNK_SIZE:
        if (digit >= 0) {
            c->left = c->left * 16 + (unsigned)digit;
            return ++c->digits > 8 ? -EPROTO : 0;
        }
        if (!c->digits || (byte != '\r' && byte != '\n' && byte != ';'))
            return -EPROTO;
        c->state = CHUNK_EXTENSION;
        c->digits = 0;
        break;
    case CHUNK_EXTENSION:
        if (++c->digits > 256)
            return -EPROTO;
        break;
    case CHUNK_DATA_END:
        if (byte != '\r' && byte != '\n')
            return -EPROTO;
        if (byte == '\n') {
            c->state = CHUNK_SIZE;
            c->left = c->digits = 0;
        }
        return 0;
    case CHUNK_TRAILER:
        if (byte == '\n' && !c->line)
            c->state = CHUNK_DONE;
        c->line = byte == '\n' ? 0 : c->line + (byte != '\r');
        return c->line > 4096 ? -EPROTO : 0;
    default:
        return -EPROTO;
    }
    if (byte == '\n') {
        c->state = c->left ? CHUNK_DATA : CHUNK_TRAILER;
        c->line = 0;
    }
    return 0;
}

ssize_t wire_chunks_take(struct wire_chunks *c, char *data, size_t len)
{
    size_t kept = 0, at = 0;
    while (at < len) {
        if (c->state == CHUNK_DATA) {
            size_t n = c->left < len - at ? (size_t)c->left : len - at;
            memmove(data + kept, data + at, n);
            kept += n;
            at += n;
            c->left -= n;
            if (!c->left)
                c->state = CHUNK_DATA_END;
            continue;
        }
        int r = take_mark(c, data[at++]);
        if (r < 0)
            return r;
    }
    return (ssize_t)kept;
}

ssize_t wire_frames_take(
    struct wire_frames *f, char *data, size_t len, char *ret_err, size_t *ret_err_len)
{
    size_t kept = 0, at = 0;
    *ret_err_len = 0;
    while (at < len) {
        if (f->head_len < sizeof(f->head)) {
            f->head[f->head_len++] = (uint8_t)data[at++];
            if (f->head_len < sizeof(f->head))
                continue;
            const uint8_t *h = f->head;
            if (h[0] > WIRE_STREAM_ERR || h[1] || h[2] || h[3])
                return -EPROTO;
            f->left = (uint32_t)h[4] << 24 | (uint32_t)h[5] << 16 | (uint32_t)h[6] << 8 | h[7];
        } else {
            size_t n = f->left < len - at ? f->left : len - at;
            if (f->head[0] == WIRE_STREAM_ERR) {
                memcpy(ret_err + *ret_err_len, data + at, n);
                *ret_err_len += n;
            } else {
                memmove(data + kept, data + at, n);
                kept += n;
            }
            at += n;
            f->left -= (uint32_t)n;
        }
        if (!f->left && f->head_len == sizeof(f->head))
            f->head_len = 0;
    }
    return (ssize_t)kept;
}
