/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the engine of containers sends: heads of HTTP/1.1 answers, bodies in chunks, and the
 * frames of a program's output. Nothing here reads from a descriptor. All bytes may be a
 * stranger's. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { WIRE_HEAD_MAX = 16 << 10, WIRE_STREAM_OUT = 1, WIRE_STREAM_ERR = 2 };

struct wire_head {
    unsigned status;
    bool is_chunked;
    bool has_length;
    uint64_t length;
    bool is_podman; /* Podman names its own API, too */
    unsigned api;   /* N of the version 1.N of the API that it names; 0: none */
};

/* Reads a head. Returns its length, 0 when it is not whole yet, or -EPROTO. */
ssize_t wire_head_parse(const char *data, size_t len, struct wire_head *ret);

/* Takes a body in chunks apart, in place. */
struct wire_chunks {
    enum {
        CHUNK_SIZE,
        CHUNK_EXTENSION,
        CHUNK_DATA,
        CHUNK_DATA_END,
        CHUNK_TRAILER,
        CHUNK_DONE
    } state;
    uint64_t left;
    unsigned digits;
    unsigned line; /* bytes of the line of a trailer */
};
/* Returns how many bytes of the body are left in `data`, or -EPROTO. */
ssize_t wire_chunks_take(struct wire_chunks *c, char *data, size_t len);

/* Takes the frames of a program's output apart: 1 or 2, three zeros, a length, bytes. */
struct wire_frames {
    uint8_t head[8];
    size_t head_len;
    uint32_t left;
};
/* Moves the bytes of stdout to the beginning of `data` and returns how many there are, or
 * -EPROTO. Those of stderr go to `ret_err` (of the same size). */
ssize_t wire_frames_take(
    struct wire_frames *f, char *data, size_t len, char *ret_err, size_t *ret_err_len);
