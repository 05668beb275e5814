/* SPDX-License-Identifier: Apache-2.0 */

/* See body.h. */

#include "inject/body.h"

#include <errno.h>

enum chunk_state {
    CHUNK_SIZE,      /* hexadecimal digits */
    CHUNK_EXTENSION, /* the rest of the line after them */
    CHUNK_DATA,
    CHUNK_END,     /* the CR LF behind the data */
    CHUNK_TRAILER, /* lines behind the last chunk, up to an empty one */
};

enum { DIGITS_MAX = 15 }; /* of a chunk's size: 60 bits */

void body_init(struct body *b, enum body_framing framing, uint64_t length)
{
    bool is_empty = framing == BODY_NONE || (framing == BODY_LENGTH && length == 0);
    *b = (struct body){.framing = framing, .left = length, .is_done = is_empty};
    if (framing == BODY_CHUNKED)
        b->left = 0;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The line with a chunk's size is over. */
static void end_size(struct body *b)
{
    b->state = b->left ? CHUNK_DATA : CHUNK_TRAILER;
    b->line = 0;
    b->has_cr = b->has_digits = false;
}

/* A byte of a line. Control characters and a lone CR or LF have no place there. */
static bool is_text(char c)
{
    return (unsigned char)c >= 0x20 ? c != 0x7f : c == '\t';
}

static int take_size(struct body *b, char c)
{
    int digit = b->state == CHUNK_SIZE ? hex_value(c) : -1;
    b->line++;
    if (b->line > BODY_LINE_MAX)
        return -EBADMSG;
    if (b->has_cr) {
        if (c != '\n')
            return -EBADMSG;
        end_size(b);
        return 0;
    }
    if (digit >= 0 && b->line <= DIGITS_MAX) {
        b->left = b->left * 16 + (uint64_t)digit;
        b->has_digits = true;
        return 0;
    }
    if (!b->has_digits || digit >= 0)
        return -EBADMSG;
    b->has_cr = c == '\r';
    if (b->has_cr)
        return 0;
    if (b->state == CHUNK_SIZE && c != ';' && c != ' ' && c != '\t')
        return -EBADMSG;
    b->state = CHUNK_EXTENSION;
    return is_text(c) && ++b->extra <= BODY_TRAILERS_MAX ? 0 : -EBADMSG;
}

static int take_end(struct body *b, char c)
{
    if (c != (b->has_cr ? '\n' : '\r'))
        return -EBADMSG;
    if (b->has_cr) {
        b->state = CHUNK_SIZE;
        b->line = 0;
    }
    b->has_cr = !b->has_cr;
    return 0;
}

static int take_trailer(struct body *b, char c)
{
    if (++b->extra > BODY_TRAILERS_MAX)
        return -EBADMSG;
    if (b->has_cr) {
        if (c != '\n')
            return -EBADMSG;
        b->is_done = b->line == 0;
        b->line = 0;
        b->has_cr = false;
        return 0;
    }
    b->has_cr = c == '\r';
    if (b->has_cr)
        return 0;
    b->line++;
    return is_text(c) ? 0 : -EBADMSG;
}

static int take_byte(struct body *b, char c)
{
    switch (b->state) {
    case CHUNK_SIZE:
    case CHUNK_EXTENSION:
        return take_size(b, c);
    case CHUNK_END:
        return take_end(b, c);
    default:
        return take_trailer(b, c);
    }
}

/* Gives out bytes of the content, up to the end of the body or chunk. */
static long give(
    struct body *b, const char *data, size_t len, const char **ret_data, size_t *ret_len)
{
    *ret_data = data;
    *ret_len = b->framing != BODY_UNTIL_CLOSE && b->left < len ? (size_t)b->left : len;
    if (b->framing == BODY_UNTIL_CLOSE)
        return (long)*ret_len;
    b->left -= *ret_len;
    if (b->left == 0 && b->framing == BODY_LENGTH)
        b->is_done = true;
    else if (b->left == 0)
        b->state = CHUNK_END;
    return (long)*ret_len;
}

long body_feed(
    struct body *b, const char *data, size_t len, const char **ret_data, size_t *ret_len)
{
    size_t at = 0;
    *ret_data = data;
    *ret_len = 0;
    if (b->is_done)
        return 0;
    if (b->framing != BODY_CHUNKED)
        return give(b, data, len, ret_data, ret_len);
    while (at < len && !b->is_done && b->state != CHUNK_DATA) {
        if (take_byte(b, data[at++]) < 0)
            return -EBADMSG;
    }
    if (at < len && b->state == CHUNK_DATA)
        at += (size_t)give(b, data + at, len - at, ret_data, ret_len);
    return (long)at;
}

bool body_close(struct body *b)
{
    b->is_done = b->is_done || b->framing == BODY_UNTIL_CLOSE;
    return b->is_done;
}
