/* SPDX-License-Identifier: Apache-2.0 */

/* Files of sessions: /v1/sessions/{id}/files and /archive. Bytes pass in pieces through the
 * connection's thread. Refusals come before the body is read. */

#include "session/files/files.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "http/routes.h"
#include "http/v1/sessions.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A byte of a path can take three characters of a URL. */
enum { PATH_MAX_BYTES = 4096, PATH_MAX_ESCAPED = 3 * PATH_MAX_BYTES };

static int bad_path(struct err *err, const char *why)
{
    return err_field(err, "path", "the path is not allowed: %s", why);
}

static int check_path(const char *path, size_t len, struct err *err)
{
    const char *problem = len > PATH_MAX_BYTES ? "it is too long" : str_name_problem(path, len);
    return problem ? bad_path(err, problem) : 0;
}

/* The path after /files/, percent-decoded once and checked. */
static int path_of(
    const struct http_request *req, char path[PATH_MAX_BYTES + 1], struct err *err)
{
    if (req->rest_len > PATH_MAX_ESCAPED)
        return bad_path(err, "it is too long");
    char decoded[PATH_MAX_ESCAPED];
    ssize_t len = http_unescape(req->rest, req->rest_len, false, decoded);
    if (len < 0)
        return bad_path(err, "it has a % without two hexadecimal digits");
    if (len > PATH_MAX_BYTES)
        return bad_path(err, "it is too long");
    memcpy(path, decoded, (size_t)len);
    path[len] = '\0';
    return check_path(path, (size_t)len, err);
}

/* The directory of ?path=, or "". */
static int dir_of(const struct http_request *req, const char **ret, struct err *err)
{
    size_t len;
    const char *path = http_query_bytes(req, "path", &len);
    *ret = path ? path : "";
    return path && len ? check_path(path, len, err) : 0;
}

static int read_file(void *context, struct http_request *req, struct buf *to)
{
    return transfer_read(context, to);
}

static void end_transfer(void *context)
{
    transfer_done(context);
}

static void describe(struct http_reply *reply, const struct session_file *file)
{
    char text[64];
    struct tm tm;
    time_t when = (time_t)(file->mtime_ns / 1000000000);
    (void)snprintf(text, sizeof(text), "%04o", file->mode & 07777);
    reply_header(reply, "X-Hermes-Mode", text);
    if (gmtime_r(&when, &tm) && strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &tm))
        reply_header(reply, "Last-Modified", text);
    /* A browser must not show a file from a box as a page of this server. */
    reply_header(reply, "Content-Disposition", "attachment");
}

int handle_file_get(struct http_request *req, struct http_reply *reply, struct err *err)
{
    char path[PATH_MAX_BYTES + 1];
    struct session_file file = {0};
    struct transfer *transfer = NULL;
    struct session *s = find_session(req, err);
    if (!s)
        return -ENOENT;
    int r = path_of(req, path, err);
    if (r == 0)
        r = session_file_get(s, path, &transfer, &file, err);
    session_unref(s);
    if (r < 0)
        return r;
    reply->status = 200;
    reply->content_type = "application/octet-stream";
    reply->is_exact = true;
    reply->has_size = true;
    reply->size = file.size;
    reply->read = read_file;
    reply->done = end_transfer;
    reply->context = transfer;
    describe(reply, &file);
    return 0;
}

static int write_file(void *context, const char *data, size_t len, struct err *err)
{
    return transfer_write(context, data, len, err);
}

static int finish_file(
    void *context, struct http_request *req, struct http_reply *reply, struct err *err)
{
    bool is_new;
    int r = transfer_commit(context, &is_new, err);
    if (r == 0)
        reply->status = is_new ? 201 : 204;
    return r;
}

int handle_file_put(struct http_request *req, struct http_reply *reply, struct err *err)
{
    char path[PATH_MAX_BYTES + 1];
    const char *length = http_header(req, "Content-Length");
    uint64_t size = req->declares_body ? UINT64_MAX : 0;
    bool executable;
    struct transfer *transfer = NULL;
    struct session *s = find_session(req, err);
    if (!s)
        return -ENOENT;
    int r = path_of(req, path, err);
    if (r == 0 && length && str_parse_u64(length, &size) < 0)
        r = err_set(err, ERR_TOO_LARGE, EFBIG, "the body is too large");
    if (r == 0)
        r = http_query_flag(req, "executable", &executable, err);
    if (r == 0)
        r = session_file_put(s, path, size, executable, &transfer, err);
    session_unref(s);
    if (r == 0)
        req->sink = (struct http_sink){write_file, finish_file, end_transfer, transfer};
    return r;
}

int handle_file_delete(struct http_request *req, struct http_reply *reply, struct err *err)
{
    char path[PATH_MAX_BYTES + 1];
    bool recursive = false;
    struct session *s = find_session(req, err);
    if (!s)
        return -ENOENT;
    int r = path_of(req, path, err);
    if (r == 0)
        r = http_query_flag(req, "recursive", &recursive, err);
    int cancel_fd = r == 0 ? follow_begin(req, err) : r;
    if (cancel_fd >= 0) {
        r = session_file_delete(s, path, recursive, cancel_fd, err);
        follow_end(req, cancel_fd);
    } else {
        r = cancel_fd;
    }
    if (r == 0)
        reply->status = 204;
    session_unref(s);
    return r;
}

int handle_file_list(struct http_request *req, struct http_reply *reply, struct err *err)
{
    const char *dir;
    bool recursive;
    json_t *listing = NULL;
    struct session *s = find_session(req, err);
    if (!s)
        return -ENOENT;
    int r = dir_of(req, &dir, err);
    if (r == 0)
        r = http_query_flag(req, "recursive", &recursive, err);
    if (r == 0)
        r = session_file_list(s, dir, recursive, &listing, err);
    if (r == 0)
        reply_value(reply, 200, listing);
    session_unref(s);
    return r;
}

static int read_archive(void *context, struct http_request *req, struct buf *to)
{
    return session_archive_read(context, to);
}

static void end_archive(void *context)
{
    session_archive_done(context);
}

int handle_file_archive(struct http_request *req, struct http_reply *reply, struct err *err)
{
    size_t len;
    const char *dir;
    const char *format = http_query_bytes(req, "format", &len);
    bool is_zip = str_eq(format, "zip");
    struct session_archive *archive = NULL;
    struct session *s = find_session(req, err);
    if (!s)
        return -ENOENT;
    int r = dir_of(req, &dir, err);
    if (r == 0 && format && !is_zip && !str_eq(format, "tar"))
        r = err_field(err, "format", "format must be tar or zip");
    if (r == 0)
        r = session_archive_open(s, dir, is_zip ? ARCHIVE_ZIP : ARCHIVE_TAR, &archive, err);
    session_unref(s);
    if (r < 0)
        return r;
    reply->status = 200;
    reply->content_type = is_zip ? "application/zip" : "application/x-tar";
    reply->is_exact = true;
    reply->read = read_archive;
    reply->done = end_archive;
    reply->context = archive;
    reply_header(reply, "Content-Disposition",
        is_zip ? "attachment; filename=\"box.zip\"" : "attachment; filename=\"box.tar\"");
    return 0;
}
