/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The only reader of HTTP/1.1 requests. It takes bytes from `fill` and gives out one head after
 * the other, each with its body. It is strict: every request can be read in one way only, so
 * that no proxy in front can disagree with it about where a request ends. After an error
 * nothing that follows is read as a request. It does no I/O of its own and allocates nothing.
 */

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* In bytes, unless the comment says otherwise. */
enum wire_limit {
    WIRE_METHOD_MAX = 16,     /* the longest method of the route table has 7 */
    WIRE_TARGET_MAX = 8192,   /* a file's path is 4096 at most, and %XX triples some of it */
    WIRE_LINE_MAX = 8256,     /* request line: method, target, version, two spaces */
    WIRE_HEAD_MAX = 16 << 10, /* request line and headers; nginx and Node allow about as much */
    WIRE_HEADERS_MAX = 100,   /* header lines; browsers send about 20 */
    WIRE_CHUNK_LINE_MAX = 256,  /* a chunk's size with its extensions, which are ignored */
    WIRE_EXTENSIONS_MAX = 4096, /* extensions of one body: many small ones cost time as well */
    WIRE_TRAILERS_MAX = 4096,   /* trailer lines of one body, which are checked and dropped */
    WIRE_LENGTH_DIGITS = 18,    /* digits of Content-Length; 19 could exceed 64 bits */
    WIRE_CHUNK_DIGITS = 15,     /* hexadecimal digits of a chunk's size, for the same reason */
    WIRE_BUFFER = 32 << 10,     /* the head, and at least half of it for the body */
};

struct wire_header {
    const char *name;
    const char *value; /* without spaces around it */
};

/* Points into the buffer. Valid until the next wire_begin(). */
struct wire_head {
    const char *method;
    char *target;
    bool is_1_1; /* else HTTP/1.0 */
    struct wire_header headers[WIRE_HEADERS_MAX];
    unsigned count;
    /* Set by wire_frame(). */
    bool is_chunked;
    uint64_t length;      /* of the body, if it is not chunked */
    bool is_last;         /* the client wants the connection closed after the reply */
    bool awaits_continue; /* the client waits for "100 Continue" before it sends the body */
};

enum wire_state {
    WIRE_DONE,    /* the request was read to its end */
    WIRE_PLAIN,   /* within a body with a length */
    WIRE_CHUNK,   /* within a chunk */
    WIRE_SIZE,    /* before the line with the size of the first chunk */
    WIRE_SIZE_CR, /* before the CR LF that ends a chunk, and the next size */
    WIRE_BROKEN,  /* nothing more is read */
};

struct wire {
    /* Waits for bytes. Returns how many came, 0 at the end, or negative errno. */
    ssize_t (*fill)(void *context, char *to, size_t max);
    void *context;
    struct wire_head head;
    enum wire_state state;
    uint64_t left;               /* bytes of the body or chunk that were not read yet */
    size_t extensions, trailers; /* bytes so far */
    size_t kept;                 /* bytes of the head at the start of the buffer */
    size_t at, len;              /* unread bytes of the buffer */
    char bytes[WIRE_BUFFER];
};

void wire_init(struct wire *w, ssize_t (*fill)(void *, char *, size_t), void *context);

/* Waits for the first byte of the next request. Returns 1 when it is there, 0 when the client
 * has ended the connection, or negative errno. Needs wire_is_done(). */
int wire_begin(struct wire *w);

/* Reads and checks a head. Returns 0, or negative errno. With err the caller sends it as the
 * reply and closes the connection; without (err->code is ERR_NONE) the client is gone. */
int wire_read_head(struct wire *w, struct err *err);

/* Reads a piece of the body into *ret, which is valid until the next call. Returns its length,
 * 0 at the end of the body, or negative errno as wire_read_head(). */
ssize_t wire_read_body(struct wire *w, const char **ret, struct err *err);

/* Whether the request was read to its end, without an error. */
bool wire_is_done(const struct wire *w);

/* Whether bytes after the present piece have come already. */
bool wire_has_more(const struct wire *w);

/* wire_head.c: parse one line. `line` has `len` bytes and is followed by a byte that may be
 * overwritten. */
int wire_parse_request(struct wire_head *head, char *line, size_t len, struct err *err);
int wire_parse_header(struct wire_head *head, char *line, size_t len, struct err *err);

/* Decides from all headers how the body is framed and whether the connection goes on. */
int wire_frame(struct wire_head *head, struct err *err);

/* The first header of this name, or NULL. */
const char *wire_find(const struct wire_head *head, const char *name);

/* Checks a request target: "/path?query", printable, not too long. */
int wire_check_target(const char *target, struct err *err);
