/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Files of a session. A helper in the box (proto/files.h) reads and writes them while code of
 * the session may be running. Names are paths below /box, checked with str_name_problem(). The
 * helper's answers are hostile: it may lie, hang or end at any time, and then the call fails.
 *
 * A transfer belongs to one thread. Uploads and downloads keep at most one piece in memory. */

#include "base/buf.h"
#include "session/session.h"

struct transfer;
struct session_archive;

struct session_file {
    unsigned mode; /* as stat(2) gives it */
    uint64_t size;
    int64_t mtime_ns;
};

/* Ends a transfer in any state. An upload that was not committed leaves nothing behind. Accepts
 * NULL. */
void transfer_done(struct transfer *t);

/* Opens a file for reading. */
int session_file_get(struct session *s, const char *name, struct transfer **ret,
    struct session_file *ret_file, struct err *err);

/* Appends the next piece: 1, 0 when the whole file was read, or negative errno. */
int transfer_read(struct transfer *t, struct buf *to);

/* Begins to write a file of `size` bytes, UINT64_MAX when the size is not known. Creates
 * missing parent directories. */
int session_file_put(struct session *s, const char *name, uint64_t size, bool executable,
    struct transfer **ret, struct err *err);
int transfer_write(struct transfer *t, const void *data, size_t len, struct err *err);

/* Gives the uploaded file its name, replacing an existing file. *ret_is_new says that there was
 * none. */
int transfer_commit(struct transfer *t, bool *ret_is_new, struct err *err);

/* Deletes a file, a link (not its target) or an empty directory; with `recursive`, also a
 * directory with its content. */
int session_file_delete(
    struct session *s, const char *name, bool recursive, int cancel_fd, struct err *err);

/* Returns {path, entries: [{name, type, size, executable, mode, mtime}], truncated}, sorted by
 * name. `dir` may be "" for /box. */
int session_file_list(
    struct session *s, const char *dir, bool recursive, json_t **ret, struct err *err);

enum archive_format { ARCHIVE_TAR, ARCHIVE_ZIP };

/* Everything below a directory as an archive. It contains regular files and directories only,
 * no links. */
int session_archive_open(struct session *s, const char *dir, enum archive_format format,
    struct session_archive **ret, struct err *err);

/* Appends the next piece: 1, 0 at the end, or negative errno. */
int session_archive_read(struct session_archive *a, struct buf *to);
void session_archive_done(struct session_archive *a);
