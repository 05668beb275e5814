/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The files of a session, served while user code may be running: the messages between the
 * server and a helper in the box (box/files.c) over a unix stream socket. Box init forks the
 * helper on COMMAND_FILES. The helper has the payload's id, no capability, Landlock and the
 * filter, and serves requests until the socket closes. All integers are native.
 *
 * Each request is a struct files_request and its name: a path below /box, "" for /box itself.
 * The answer is a sequence of struct files_record, closed by one of kind FILES_END. The reader
 * must not trust it.
 *
 *   FILES_GET     FILES_ENTRY, then FILES_DATA records, of the file's size in total
 *   FILES_PUT     FILES_ENTRY once the file is open; then the server sends pieces, each a
 *                 uint32_t length and that many bytes; length 0 puts the file in place
 *   FILES_DELETE  nothing
 *   FILES_LIST    FILES_ENTRY for each entry, with its path below the directory; with
 *                 FILES_CONTENT a regular file is followed by FILES_DATA records, at most its
 *                 size in total */

#include <stdint.h>

enum files_op { FILES_GET = 1, FILES_PUT, FILES_DELETE, FILES_LIST };

enum {
    FILES_RECURSIVE = 1 << 0,  /* FILES_DELETE, FILES_LIST: also what subdirectories contain */
    FILES_CONTENT = 1 << 1,    /* FILES_LIST: send the bytes of regular files */
    FILES_EXECUTABLE = 1 << 2, /* FILES_PUT: the new file can be executed */
    FILES_CHANGED = 1 << 3,    /* FILES_LIST: no directories; only changes since since_ns */
};

enum { FILES_NAME_MAX = 4096, FILES_PIECE_MAX = 64 << 10, FILES_ENTRIES_MAX = 100000 };

struct files_request {
    uint32_t op;
    uint32_t flags;
    uint32_t name_len;
    uint32_t max_entries; /* FILES_LIST: most records to send */
    /* FILES_PUT: bytes in total; UINT64_MAX when not known */
    uint64_t size;
    /* FILES_PUT: bytes that uploads running at the same time will still write */
    uint64_t others;
    int64_t since_ns; /* FILES_CHANGED: a CLOCK_REALTIME_COARSE time */
    uint32_t max_ms;  /* FILES_LIST: time for the walk; 0 for no limit */
    uint32_t reserved;
};

enum files_kind { FILES_ENTRY = 1, FILES_DATA, FILES_END };

struct files_record {
    uint32_t kind;
    uint32_t name_len; /* FILES_ENTRY; the name follows, without NUL */
    int32_t error; /* FILES_END: negative errno, or 0. -E2BIG when a bound cut the walk short */
    uint32_t mode; /* FILES_ENTRY: st_mode. FILES_END of FILES_PUT: 1 when the file is new */
    /* FILES_ENTRY: st_size. FILES_DATA: bytes that follow, at most FILES_PIECE_MAX */
    uint64_t size;
    int64_t mtime_ns; /* FILES_ENTRY: modification time. FILES_END of FILES_PUT and FILES_LIST:
                         the newest change time */
};
