/* SPDX-License-Identifier: Apache-2.0 */

/* See frame.h. */

#include "bash/frame.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/os/fs.h"
#include "base/utf8.h"

int frame_parse(const struct buf *b, struct frame *ret_frame)
{
    enum { HEADER_MAX = FRAME_KIND_MAX + 10 }; /* a space, 8 digits and the newline */
    size_t look = b->len < HEADER_MAX ? b->len : HEADER_MAX;
    const char *end = look ? memchr(b->data, '\n', look) : NULL;
    if (!end)
        return look == HEADER_MAX ? -EPROTO : 0;

    struct frame frame = {0};
    size_t kind_len = strcspn(b->data, " \n");
    if (kind_len == 0 || kind_len > FRAME_KIND_MAX || b->data[kind_len] != ' ')
        return -EPROTO;
    memcpy(frame.kind, b->data, kind_len);
    const char *digit = b->data + kind_len + 1;
    if (digit == end || (*digit == '0' && digit + 1 != end))
        return -EPROTO;
    for (; digit < end; digit++) {
        if (*digit < '0' || *digit > '9')
            return -EPROTO;
        frame.len = frame.len * 10 + (size_t)(*digit - '0');
    }
    if (frame.len > FRAME_MAX)
        return -EPROTO;
    frame.payload = end + 1;
    frame.whole = (size_t)(end + 1 - b->data) + frame.len;
    if (b->len < frame.whole)
        return 0;
    *ret_frame = frame;
    return 1;
}

void frame_drop(struct buf *b, const struct frame *frame)
{
    b->len -= frame->whole;
    memmove(b->data, b->data + frame->whole, b->len);
    b->data[b->len] = '\0';
}

int frame_send(int fd, const char *kind, const struct buf *payload)
{
    char header[FRAME_KIND_MAX + 24];
    int n = snprintf(header, sizeof(header), "%s %zu\n", kind, payload->len);
    int r = fs_write_all(fd, header, (size_t)n);
    return r < 0 ? r : fs_write_all(fd, payload->data ? payload->data : "", payload->len);
}

int json_append(struct buf *b, const char *text, size_t len)
{
    int r = buf_append(b, "\"", 1);
    while (len > 0 && r == 0) {
        uint32_t code;
        size_t n = utf8_next(text, len, &code);
        text += n;
        len -= n;
        if (code == UTF8_INVALID)
            code = 0xfffd;
        if (code >= 0x10000)
            r = buf_printf(b, "\\u%04x\\u%04x", 0xd7c0 + (code >> 10), 0xdc00 + (code & 0x3ff));
        else if (code < 0x20 || code > 0x7e)
            r = buf_printf(b, "\\u%04x", code);
        else if (code == '"' || code == '\\')
            r = buf_printf(b, "\\%c", (int)code);
        else
            r = buf_printf(b, "%c", (int)code);
    }
    return r ? r : buf_append(b, "\"", 1);
}
