/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The body of a message of HTTP/1.1, as it comes in pieces. Strict as http/wire.h is: a body
 * can be read in one way only. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum body_framing { BODY_NONE, BODY_LENGTH, BODY_CHUNKED, BODY_UNTIL_CLOSE };

enum {
    BODY_LINE_MAX = 256,     /* a chunk's size with its extensions */
    BODY_TRAILERS_MAX = 8192 /* trailers, which are dropped, and extensions of one body */
};

struct body {
    enum body_framing framing;
    uint64_t left; /* of the body with a length, or of the chunk */
    uint8_t state; /* of a chunked body */
    bool is_done;
    bool has_cr;     /* the line so far ends with CR */
    bool has_digits; /* the chunk's size has begun */
    uint32_t line;   /* bytes of the line so far */
    uint32_t extra;  /* bytes of extensions and trailers so far */
};

void body_init(struct body *b, enum body_framing framing, uint64_t length);

/* Reads a piece. *ret_data and *ret_len are the next bytes of the content, perhaps none.
 * Returns how many bytes were taken, fewer than `len` when there is more to read or the body is
 * done; -EBADMSG when it is malformed. */
long body_feed(
    struct body *b, const char *data, size_t len, const char **ret_data, size_t *ret_len);

/* The sender has closed. Returns whether the body is whole. */
bool body_close(struct body *b);
