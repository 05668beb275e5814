/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Files of a session, while user code may be running: what the server and a helper in the box
 * (files.c) say to each other over a unix stream socket. Box init forks the helper on
 * COMMAND_FILES; it has the payload's id, no capability, Landlock and the filter. It serves
 * requests until the socket ends. All integers are native.
 *
 * Each request is a struct files_request and its name: a path below /box, "" for /box itself.
 * The answer is a sequence of struct files_record, hostile to its reader, closed by one of kind
 * FILES_END:
 *
 *   FILES_GET     FILES_ENTRY, then FILES_DATA records of its size in all
 *   FILES_PUT     FILES_ENTRY when the file is open; then the server sends pieces, each a
 *                 uint32_t length and so many bytes, and a length of 0 to have it put in place
 *   FILES_DELETE  nothing
 *   FILES_LIST    FILES_ENTRY for each, with its path below the directory; with FILES_CONTENT
 *                 a regular one is followed by FILES_DATA records of at most its size in all
 */

#include <stdint.h>

enum files_op { FILES_GET = 1, FILES_PUT, FILES_DELETE, FILES_LIST };

enum {
    FILES_RECURSIVE = 1 << 0,  /* FILES_DELETE, FILES_LIST: what lies below, too */
    FILES_CONTENT = 1 << 1,    /* FILES_LIST */
    FILES_EXECUTABLE = 1 << 2, /* FILES_PUT */
    FILES_CHANGED = 1 << 3,    /* FILES_LIST: no directories, and only what changed since */
};

enum { FILES_NAME_MAX = 4096, FILES_PIECE_MAX = 64 << 10, FILES_ENTRIES_MAX = 100000 };

struct files_request {
    uint32_t op;
    uint32_t flags;
    uint32_t name_len;
    uint32_t max_entries; /* FILES_LIST: records sent */
    uint64_t size;        /* FILES_PUT: in all; UINT64_MAX when it is not known */
    uint64_t others;      /* FILES_PUT: bytes that other uploads will still write */
    int64_t since_ns;     /* FILES_CHANGED: by CLOCK_REALTIME_COARSE */
    uint32_t max_ms;      /* FILES_LIST: for the walk; 0 for no limit */
    uint32_t reserved;
};

enum files_kind { FILES_ENTRY = 1, FILES_DATA, FILES_END };

struct files_record {
    uint32_t kind;
    uint32_t name_len; /* FILES_ENTRY; the name follows, without NUL */
    int32_t error;     /* FILES_END: negative errno, or 0. -E2BIG when a bound cut it short */
    uint32_t mode;     /* FILES_ENTRY: as stat(2) gives it. FILES_END of FILES_PUT: 1 when there
                          was no such file */
    uint64_t size;     /* FILES_DATA: bytes that follow, at most FILES_PIECE_MAX */
    int64_t mtime_ns;  /* FILES_END of FILES_PUT and FILES_LIST: the newest change stamp */
};
