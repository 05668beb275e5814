/* SPDX-License-Identifier: Apache-2.0 */

/* Files of sessions, as tools and as resources hermes://session/ID/file/PATH. Outputs and
 * charts that executions kept are resources hermes://execution/ID/NAME. */

#include "mcp/full.h"

#include "base/alloc.h"
#include "base/base64.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "base/utf8.h"
#include "mcp/execution/execution.h"
#include "session/files/files.h"
#include "state/state.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MAX_BYTES = 4 << 20, SHOWN_MAX = 30000, LISTED_MAX = 2000, SESSIONS_MAX = 64 };

#define SESSION_URI "hermes://session/"
#define EXECUTION_URI "hermes://execution/"

static const struct {
    const char *suffix;
    const char *type;
} types[] = {{".png", "image/png"}, {".jpg", "image/jpeg"}, {".jpeg", "image/jpeg"},
    {".gif", "image/gif"}, {".webp", "image/webp"}, {".svg", "image/svg+xml"},
    {".json", "application/json"}, {".csv", "text/csv"}, {".html", "text/html"},
    {".md", "text/markdown"}, {".txt", "text/plain"}, {".py", "text/x-python"},
    {".pdf", "application/pdf"}};

static const char *type_of(const char *name)
{
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (str_has_suffix(name, types[i].suffix))
            return types[i].type;
    }
    return NULL;
}

/* "/box/a" and "a" are the same file. */
static const char *below_box(const char *path)
{
    if (str_has_prefix(path, "/box/"))
        path += strlen("/box/");
    return str_eq(path, "/box") ? "" : path;
}

static int check_path(const char *path, struct err *err)
{
    const char *problem = str_name_problem(path, strlen(path));
    return problem ? err_field(err, "path", "the path is not allowed: %s; it lies below /box",
                         problem)
                   : 0;
}

/* Reads a whole file, up to FILE_MAX_BYTES. */
static int read_all(struct session *s, const char *path, struct buf *to, struct err *err)
{
    struct transfer *transfer = NULL;
    struct session_file file;
    int r = check_path(path, err);
    if (r == 0)
        r = session_file_get(s, path, &transfer, &file, err);
    if (r == 0 && file.size > FILE_MAX_BYTES)
        r = err_set(err, ERR_TOO_LARGE, EFBIG,
            "the file has %llu bytes; %d can be read at once: read parts of it with shell",
            (unsigned long long)file.size, FILE_MAX_BYTES);
    while (r >= 0 && transfer && (r = transfer_read(transfer, to)) == 1)
        ;
    if (r < 0 && !err->code)
        (void)err_set(err, ERR_UNAVAILABLE, -r, "the file could not be read: %s", strerror(-r));
    transfer_done(transfer);
    return r;
}

static json_t *file_content(const char *uri, const char *path, const struct buf *bytes)
{
    const char *data = bytes->data ? bytes->data : "";
    const char *type = type_of(path);
    bool is_text = utf8_valid(data, bytes->len) && !memchr(data, '\0', bytes->len);
    json_t *content = json_pack("{s:s}", "uri", uri);
    if (!type)
        type = is_text ? "text/plain" : "application/octet-stream";
    (void)json_object_set_new(content, "mimeType", json_string(type));
    if (is_text) {
        (void)json_object_set_new(content, "text", json_stringn(data, bytes->len));
    } else {
        cleanup_free char *encoded = base64_text(data, bytes->len);
        (void)json_object_set_new(content, "blob", json_string(encoded));
    }
    return content;
}

char *full_uri(const char *session, const char *path)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~/";
    struct buf to;
    buf_init(&to, 16384);
    (void)buf_printf(&to, SESSION_URI "%s/file/", session);
    for (; *path; path++) {
        if (strchr(plain, *path))
            (void)buf_append(&to, path, 1);
        else
            (void)buf_printf(&to, "%%%02X", (unsigned char)*path);
    }
    return buf_take(&to, &(size_t){0});
}

int full_read_file(struct mcp_call *call, const json_t *arguments, json_t **ret)
{
    cleanup_buf struct buf bytes;
    struct err err = {0};
    const char *path = below_box(json_string_value(json_object_get(arguments, "path")));
    struct session *s = full_find_session(call, arguments, ret);
    buf_init(&bytes, FILE_MAX_BYTES + 1);
    if (!s)
        return 0;
    int r = read_all(s, path, &bytes, &err);
    cleanup_free char *uri = full_uri(session_id(s), path);
    session_unref(s);
    if (r < 0) {
        *ret = mcp_tool_error(&err);
        return 0;
    }
    json_t *content = file_content(uri, path, &bytes);
    const char *type = json_string_value(json_object_get(content, "mimeType"));
    json_t *text = json_object_get(content, "text");
    if (text && json_string_length(text) <= SHOWN_MAX) {
        *ret = mcp_text_result(json_string_value(text), json_string_length(text), NULL, false);
        json_decref(content);
    } else if (text) {
        size_t shown = utf8_floor(json_string_value(text), SHOWN_MAX);
        *ret = mcp_text_result(json_string_value(text), shown, NULL, false);
        json_t *list = json_object_get(*ret, "content");
        (void)json_array_append_new(
            list, json_pack("{s:s, s:s, s:s, s:s, s:I}", "type", "resource_link", "uri", uri,
                      "name", path, "mimeType", type, "size", (json_int_t)bytes.len));
        json_decref(content);
    } else if (str_has_prefix(type, "image/")) {
        *ret = json_pack("{s:[{s:s, s:O, s:s}]}", "content", "type", "image", "data",
            json_object_get(content, "blob"), "mimeType", type);
        json_decref(content);
    } else {
        *ret =
            json_pack("{s:[{s:s, s:o}]}", "content", "type", "resource", "resource", content);
    }
    return 0;
}

static int write_all(struct session *s, const char *path, const char *data, size_t len,
    bool *ret_new, struct err *err)
{
    struct transfer *transfer = NULL;
    int r = check_path(path, err);
    if (r == 0)
        r = session_file_put(s, path, len, false, &transfer, err);
    if (r == 0)
        r = transfer_write(transfer, data, len, err);
    if (r == 0)
        r = transfer_commit(transfer, ret_new, err);
    transfer_done(transfer);
    return r;
}

int full_write_file(struct mcp_call *call, const json_t *arguments, json_t **ret)
{
    const char *path = below_box(json_string_value(json_object_get(arguments, "path")));
    const json_t *content = json_object_get(arguments, "content");
    const char *encoding = mcp_text(arguments, "encoding", 16);
    size_t len = json_string_length(content);
    cleanup_free char *decoded = NULL;
    const char *data = json_string_value(content);
    struct err err = {0};
    bool is_new = false;
    struct session *s = full_find_session(call, arguments, ret);
    if (!s)
        return 0;
    int r = 0;
    if (str_eq(encoding, "base64")) {
        r = base64_decode(data, len, &decoded, &len);
        data = decoded;
        if (r < 0)
            (void)err_field(&err, "content", "content is not valid base64");
    }
    if (r == 0)
        r = write_all(s, path, data, len, &is_new, &err);
    if (r < 0) {
        *ret = mcp_tool_error(&err);
    } else {
        cleanup_free char *text = xasprintf(
            "Wrote %zu bytes to /box/%s%s.", len, path, is_new ? "" : ", which existed");
        cleanup_free char *uri = full_uri(session_id(s), path);
        *ret = mcp_text_result(text, strlen(text), NULL, false);
        mcp_changed(call->mcp, call->surface, call->owner, NULL, uri);
        if (is_new)
            mcp_changed(call->mcp, call->surface, call->owner, "resources", NULL);
    }
    session_unref(s);
    return 0;
}

int full_list_files(struct mcp_call *call, const json_t *arguments, json_t **ret)
{
    const char *given = json_string_value(json_object_get(arguments, "path"));
    const char *path = given ? below_box(given) : "";
    bool recursive = json_is_true(json_object_get(arguments, "recursive"));
    json_t *listing = NULL;
    struct err err = {0};
    struct session *s = full_find_session(call, arguments, ret);
    if (!s)
        return 0;
    int r = *path && !str_eq(path, ".") ? check_path(path, &err) : 0;
    if (r == 0)
        r = session_file_list(s, str_eq(path, ".") ? "" : path, recursive, &listing, &err);
    *ret = r < 0 ? mcp_tool_error(&err) : full_object(listing);
    session_unref(s);
    return 0;
}

/* --- resources */

/* Adds the files of one session. */
static void list_session(struct session *s, json_t *list)
{
    json_t *listing = NULL;
    struct err ignored = {0};
    if (session_file_list(s, "", true, &listing, &ignored) < 0)
        return; /* the session has just ended, or is too busy: its files are not listed */
    const json_t *entries = json_object_get(listing, "entries");
    for (size_t i = 0; i < json_array_size(entries) && json_array_size(list) < LISTED_MAX;
         i++) {
        const json_t *entry = json_array_get(entries, i);
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (!str_eq(json_string_value(json_object_get(entry, "type")), "file") || !name)
            continue;
        cleanup_free char *uri = full_uri(session_id(s), name);
        json_t *row = json_pack("{s:s, s:s, s:O}", "uri", uri, "name", name, "size",
            json_object_get(entry, "size"));
        if (type_of(name))
            (void)json_object_set_new(row, "mimeType", json_string(type_of(name)));
        (void)json_array_append_new(list, row);
    }
    json_decref(listing);
}

static bool is_alive(const json_t *session)
{
    const char *state = json_string_value(json_object_get(session, "state"));
    return str_eq(state, "idle") || str_eq(state, "busy");
}

int full_list_resources(
    struct mcp_call *call, size_t first, size_t most, json_t **ret, bool *ret_more)
{
    struct err err = {0};
    struct state *state = mcp_state(call->mcp);
    if (mcp_need_engine(call->mcp, &err) < 0)
        return mcp_fail(&call->error, MCP_INTERNAL, "%s", err.message);
    json_t *all = json_array();
    json_t *sessions = sessions_json(state->sessions, call->owner);
    const json_t *rows = json_object_get(sessions, "sessions");
    executions_list(mcp_executions(call->mcp), call->owner, all);
    for (size_t i = 0; i < json_array_size(rows) && i < SESSIONS_MAX; i++) {
        const json_t *row = json_array_get(rows, i);
        const char *id = json_string_value(json_object_get(row, "id"));
        struct session *s =
            is_alive(row) ? session_find(state->sessions, id, call->owner) : NULL;
        if (s)
            list_session(s, all);
        session_unref(s);
    }
    *ret = json_array();
    for (size_t i = first; i < json_array_size(all) && i < first + most; i++)
        (void)json_array_append(*ret, json_array_get(all, i));
    *ret_more = first + most < json_array_size(all);
    json_decref(sessions);
    json_decref(all);
    return 0;
}

/* Decodes %XX in place. */
static bool unescape(char *text)
{
    char *to = text;
    for (; *text; text++) {
        if (*text != '%') {
            *to++ = *text;
            continue;
        }
        char digits[3] = {text[1], text[1] ? text[2] : '\0', '\0'};
        if (!isxdigit((unsigned char)digits[0]) || !isxdigit((unsigned char)digits[1]))
            return false;
        *to = (char)strtoul(digits, NULL, 16);
        if (!*to++)
            return false;
        text += 2;
    }
    *to = '\0';
    return true;
}

static int read_session_file(struct mcp_call *call, const char *uri, json_t **ret)
{
    static const char middle[] = "/file/";
    cleanup_free char *rest = xstrdup(uri + strlen(SESSION_URI));
    char *path = strstr(rest, middle);
    cleanup_buf struct buf bytes;
    struct err err = {0};
    buf_init(&bytes, FILE_MAX_BYTES + 1);
    if (!path)
        return -ENOENT;
    *path = '\0';
    path += strlen(middle);
    struct session *s = session_find(mcp_state(call->mcp)->sessions, rest, call->owner);
    if (!s || !unescape(path)) {
        session_unref(s);
        return -ENOENT;
    }
    int r = read_all(s, path, &bytes, &err);
    session_unref(s);
    if (r < 0 && (err.code == ERR_NOT_FOUND || err.code == ERR_INVALID))
        return -ENOENT;
    if (r < 0)
        return mcp_fail(&call->error, MCP_INTERNAL, "%s", err.message);
    *ret = json_pack("[o]", file_content(uri, path, &bytes));
    return 0;
}

static int read_kept(struct mcp_call *call, const char *uri, json_t **ret)
{
    cleanup_free char *id = xstrdup(uri + strlen(EXECUTION_URI));
    char *name = strchr(id, '/');
    unsigned pause;
    if (!name)
        return -ENOENT;
    *name++ = '\0';
    struct execution *e = execution_find(mcp_executions(call->mcp), call->owner, id, &pause);
    json_t *content = e ? execution_kept(e, name) : NULL;
    execution_unref(e);
    if (!content)
        return -ENOENT;
    (void)json_object_set_new(content, "uri", json_string(uri));
    *ret = json_pack("[o]", content);
    return 0;
}

int full_read_resource(struct mcp_call *call, const char *uri, json_t **ret)
{
    struct err err = {0};
    if (mcp_need_engine(call->mcp, &err) < 0)
        return mcp_fail(&call->error, MCP_INTERNAL, "%s", err.message);
    if (str_has_prefix(uri, SESSION_URI))
        return read_session_file(call, uri, ret);
    if (str_has_prefix(uri, EXECUTION_URI))
        return read_kept(call, uri, ret);
    return -ENOENT;
}

/* Completes the id of a session in a template. */
int full_complete(struct mcp_call *call, const char *ref, const char *argument,
    const char *value, json_t **ret)
{
    struct err err = {0};
    *ret = json_array();
    if (!str_has_prefix(ref, SESSION_URI) || !str_eq(argument, "id") ||
        mcp_need_engine(call->mcp, &err) < 0)
        return 0;
    json_t *sessions = sessions_json(mcp_state(call->mcp)->sessions, call->owner);
    const json_t *rows = json_object_get(sessions, "sessions");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const char *id = json_string_value(json_object_get(row, "id"));
        if (is_alive(row) && str_has_prefix(id, value))
            (void)json_array_append_new(*ret, json_string(id));
    }
    json_decref(sessions);
    return 0;
}
