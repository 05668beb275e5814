/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Files of a session, read and written by a helper inside its box (proto/files.h) while its
 * code may be running. Names are paths below /box, checked with str_name_problem(). What the
 * helper says is a stranger's: it may lie, stop or end at any time, and then the call fails.
 *
 * A transfer belongs to one thread. Neither direction keeps more than a piece in memory. */

#include "base/buf.h"
#include "session/session.h"

struct transfer;
struct session_archive;

struct session_file {
    unsigned mode; /* as stat(2) gives it */
    uint64_t size;
    int64_t mtime_ns;
};

/* Ends a transfer, whatever became of it; an upload that was not committed leaves nothing.
 * Accepts NULL. */
void transfer_done(struct transfer *t);

/* Opens a file for reading. */
int session_file_get(struct session *s, const char *name, struct transfer **ret,
    struct session_file *ret_file, struct err *err);

/* Appends the next piece: 1, 0 when all of the file's size has come, or negative errno. */
int transfer_read(struct transfer *t, struct buf *to);

/* Begins to write a file of so many bytes, UINT64_MAX when that is not known. Directories on
 * the way are made. */
int session_file_put(struct session *s, const char *name, uint64_t size, bool executable,
    struct transfer **ret, struct err *err);
int transfer_write(struct transfer *t, const void *data, size_t len, struct err *err);

/* Puts the file in place of one that had its name, if any. */
int transfer_commit(struct transfer *t, bool *ret_is_new, struct err *err);

/* A file, a link itself, an empty directory; with `recursive` a full one. */
int session_file_delete(struct session *s, const char *name, bool recursive, struct err *err);

/* {path, entries: [{name, type, size, executable, mode, mtime}], truncated}, sorted by name.
 * `dir` may be "". */
int session_file_list(
    struct session *s, const char *dir, bool recursive, json_t **ret, struct err *err);

enum archive_format { ARCHIVE_TAR, ARCHIVE_ZIP };

/* All below a directory as an archive. Links are not in it, nor what is neither a file nor a
 * directory. */
int session_archive_open(struct session *s, const char *dir, enum archive_format format,
    struct session_archive **ret, struct err *err);

/* Appends the next piece: 1, 0 at the end, negative errno. */
int session_archive_read(struct session_archive *a, struct buf *to);
void session_archive_done(struct session_archive *a);
