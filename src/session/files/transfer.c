/* SPDX-License-Identifier: Apache-2.0 */

/* See transfer.h and files.h. */

#include "session/files/transfer.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/fdpass.h"
#include "session/host.h"
#include "state/state.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    STALL_MS = 15000,          /* without progress, before the helper is given up */
    NAP_MS = 200,              /* bounds how late the end of the session is noticed */
    TRANSFERS_MAX = 16,        /* per session, at one time */
    ERRNO_MAX = 4095,          /* of Linux */
    TRANSFER_COST = 128 << 10, /* bytes of memory counted per transfer: a piece on its way */
};

int transfer_connect(struct transfer *t)
{
    const struct spawn_command command = {.kind = COMMAND_FILES};
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    (void)fcntl(pair[0], F_SETFL, O_NONBLOCK);
    int r = fdpass_send(t->s->box.socket, &command, sizeof(command), &pair[1], 1);
    (void)close(pair[1]);
    if (r < 0) {
        (void)close(pair[0]);
        return -EPIPE;
    }
    t->fd = pair[0];
    return 0;
}

int transfer_open(struct session *s, struct transfer **ret, struct err *err)
{
    struct transfer *t = xcalloc(1, sizeof(*t));
    t->s = session_ref(s);
    t->fd = -1;
    t->stall_ms = STALL_MS;
    purse_open(&t->purse, s->all->state->ledger, s->owner_index);
    (void)pthread_mutex_lock(&s->lock);
    int r = session_reach(s, true, err);
    if (r == 0 && !purse_take(&t->purse, TRANSFER_COST))
        r = state_full(err);
    if (r == 0 && s->transfers >= TRANSFERS_MAX)
        r = err_set(err, ERR_BUSY, EAGAIN,
            "this session has %d file transfers in progress and can have no more; try again "
            "later",
            TRANSFERS_MAX);
    if (r == 0 && (r = transfer_connect(t)) < 0)
        (void)err_set(err, ERR_UNAVAILABLE, -r,
            "the box of the session cannot be reached; try again, or reset the session");
    if (r == 0) {
        s->used_ms = clock_ms();
        s->transfers++;
        t->is_counted = true;
    }
    (void)pthread_mutex_unlock(&s->lock);
    if (r < 0) {
        transfer_done(t);
        return r;
    }
    *ret = t;
    return 0;
}

void transfer_done(struct transfer *t)
{
    if (!t)
        return;
    struct session *s = t->s;
    close_fd(&t->fd);
    (void)pthread_mutex_lock(&s->lock);
    s->uploading -= t->pending;
    if (t->is_counted) {
        s->transfers--;
        s->used_ms = clock_ms();
    }
    (void)pthread_mutex_unlock(&s->lock);
    purse_close(&t->purse);
    session_unref(s);
    free(t);
}

/* Waits until the socket is ready, for NAP_MS at most. */
static int wait_for(struct transfer *t, short events, uint64_t until_ms)
{
    struct pollfd ready = {.fd = t->fd, .events = events};
    int n = poll(&ready, 1, NAP_MS);
    if (n > 0)
        return 0;
    if (session_must_end(t->s))
        return -EPIPE;
    return clock_ms() < until_ms ? 0 : -ETIMEDOUT;
}

int transfer_receive(struct transfer *t, void *to, size_t len)
{
    uint64_t until_ms = clock_ms() + t->stall_ms;
    for (size_t done = 0; done < len;) {
        ssize_t n = recv(t->fd, (char *)to + done, len - done, 0);
        /* When the helper ended before it had read everything, Linux first reports ECONNRESET
         * and then delivers what the helper had sent. */
        if (n < 0 && errno == ECONNRESET)
            n = recv(t->fd, (char *)to + done, len - done, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return -EPIPE;
        if (n > 0) {
            done += (size_t)n;
            until_ms = clock_ms() + t->stall_ms;
            continue;
        }
        int r = wait_for(t, POLLIN, until_ms);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Sends, unless the helper has sent something. During a request that can only be its error:
 * then -EPIPE, and the error can be read. */
static int send_all(struct transfer *t, const void *data, size_t len)
{
    uint64_t until_ms = clock_ms() + t->stall_ms;
    for (size_t done = 0; done < len;) {
        struct pollfd word = {.fd = t->fd, .events = POLLIN};
        if (poll(&word, 1, 0) == 1)
            return -EPIPE;
        ssize_t n = send(t->fd, (const char *)data + done, len - done, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return -EPIPE;
        if (n > 0) {
            done += (size_t)n;
            until_ms = clock_ms() + t->stall_ms;
            continue;
        }
        int r = wait_for(t, POLLIN | POLLOUT, until_ms);
        if (r < 0)
            return r;
    }
    return 0;
}

int transfer_ask(struct transfer *t, struct files_request request, const char *name)
{
    size_t len = strlen(name);
    if (len > FILES_NAME_MAX)
        return -ENAMETOOLONG;
    memcpy(t->name, name, len + 1);
    request.name_len = (uint32_t)len;
    int r = send_all(t, &request, sizeof(request));
    return r < 0 ? r : send_all(t, name, len);
}

int transfer_peek(struct transfer *t, struct files_record *ret)
{
    int r = t->has_peeked ? 0 : transfer_receive(t, &t->peeked, sizeof(t->peeked));
    t->has_peeked = r == 0;
    *ret = t->peeked;
    return r;
}

/* Whether a name of the other side stays below the directory that was asked for. A name that
 * leaves it would harm a client that unpacks an archive of these files. */
static bool is_below(const char *name)
{
    const char *part = name;
    bool is_good = name[0] != '/';
    while (is_good && *part) {
        size_t len = strcspn(part, "/");
        is_good = len != 2 || memcmp(part, "..", 2) != 0;
        part += len + (part[len] == '/');
    }
    return is_good;
}

int transfer_next(struct transfer *t, struct files_record *ret, char name[FILES_NAME_MAX + 1])
{
    int r = transfer_peek(t, ret);
    if (r < 0)
        return r;
    t->has_peeked = false;
    bool is_entry = ret->kind == FILES_ENTRY;
    if (ret->kind < FILES_ENTRY || ret->kind > FILES_END || ret->size > INT64_MAX ||
        ret->name_len > (is_entry ? FILES_NAME_MAX : 0) ||
        (ret->kind == FILES_DATA && (ret->size == 0 || ret->size > FILES_PIECE_MAX)) ||
        ret->error < -ERRNO_MAX)
        return -EBADMSG;
    if (is_entry && (r = transfer_receive(t, name, ret->name_len)) == 0) {
        name[ret->name_len] = '\0';
        if (strlen(name) != ret->name_len || !is_below(name))
            r = -EBADMSG;
    }
    return r;
}

static const struct {
    int error;
    enum err_code code;
    const char *text;
} errors[] = {
    {ENOENT, ERR_NOT_FOUND, "there is no such file"},
    {ENOTDIR, ERR_CONFLICT, "the path, or a part of it, is not a directory"},
    {EISDIR, ERR_CONFLICT, "it is a directory; GET .../files?path= lists it"},
    {ELOOP, ERR_CONFLICT, "it is a link or lies behind one, and links are not followed"},
    {EINVAL, ERR_CONFLICT, "it is not a regular file"},
    {EXDEV, ERR_CONFLICT, "it lies on another file system"},
    {ENOTEMPTY, ERR_CONFLICT,
        "the directory is not empty, or new entries keep appearing; add ?recursive=true"},
    {E2BIG, ERR_CONFLICT, "it has too many entries, or directories that lie too deep"},
    {EACCES, ERR_CONFLICT, "its permissions, set by the session's code, do not allow it"},
    {EPERM, ERR_CONFLICT, "its permissions, set by the session's code, do not allow it"},
    {EAGAIN, ERR_CONFLICT, "the session's code has locked it"},
    {EUSERS, ERR_CONFLICT,
        "the box has no process to spare for it: its limit of processes is used up"},
    {EMFILE, ERR_CONFLICT, "the box's limit of open files is used up"},
    {ENOSPC, ERR_NO_SPACE,
        "the box has no room for it: disk_mb or memory_mb is used up; delete files or make a "
        "session with higher limits"},
    {ENOMEM, ERR_NO_SPACE, "the box has no memory for it"},
    {ENAMETOOLONG, ERR_INVALID, "the name is too long"},
    {ENODATA, ERR_CONFLICT, "the file became shorter while it was read"},
    {ETIMEDOUT, ERR_UNAVAILABLE,
        "the box did not answer in time; its code may keep it busy: try again, interrupt it or "
        "reset the session"},
    {EPIPE, ERR_CONFLICT,
        "the process that serves the files of the box ended: the box was ended or reset, has "
        "no memory or process to spare, or its code killed the process"},
    {EBADMSG, ERR_CONFLICT, "the file helper of the box sent an invalid record"},
};

int transfer_error(const struct transfer *t, int error, struct err *err)
{
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        if (errors[i].error == -error)
            return err_set(err, errors[i].code, -error, "%.128s: %s", t->name, errors[i].text);
    }
    return err_set(
        err, ERR_CONFLICT, EIO, "%.128s: the box refused: %s", t->name, strerror(-error));
}

/* Takes the record that ends an answer. Any other record is -EBADMSG. */
static int take_end(struct transfer *t, struct files_record *ret)
{
    char name[FILES_NAME_MAX + 1];
    int r = transfer_next(t, ret, name);
    if (r == 0 && ret->kind != FILES_END)
        r = -EBADMSG;
    return r < 0 ? r : ret->error < 0 ? ret->error : 0;
}

/* Takes the entry that begins an answer, or the end record with an error. */
static int take_entry(struct transfer *t, struct files_record *ret)
{
    char name[FILES_NAME_MAX + 1];
    int r = transfer_next(t, ret, name);
    if (r < 0 || ret->kind == FILES_ENTRY)
        return r;
    return ret->kind == FILES_END && ret->error < 0 ? ret->error : -EBADMSG;
}

/* Opens a transfer, sends the request, and takes the first record with `answer`. */
static int begin(struct session *s, struct files_request request, const char *name,
    int (*answer)(struct transfer *t, struct files_record *ret), struct files_record *ret,
    struct transfer **ret_transfer, struct err *err)
{
    struct transfer *t;
    int r = transfer_open(s, &t, err);
    if (r < 0)
        return r;
    if (request.op == FILES_PUT) {
        (void)pthread_mutex_lock(&s->lock);
        request.others = s->uploading;
        t->pending = request.size == UINT64_MAX ? 0 : request.size;
        s->uploading += t->pending;
        (void)pthread_mutex_unlock(&s->lock);
    }
    r = transfer_ask(t, request, name);
    if (r == 0 || r == -EPIPE)
        r = answer(t, ret);
    if (r < 0) {
        r = transfer_error(t, r, err);
        transfer_done(t);
        return r;
    }
    *ret_transfer = t;
    return 0;
}

int session_file_get(struct session *s, const char *name, struct transfer **ret,
    struct session_file *ret_file, struct err *err)
{
    struct files_record entry = {0};
    int r =
        begin(s, (struct files_request){.op = FILES_GET}, name, take_entry, &entry, ret, err);
    if (r < 0)
        return r;
    (*ret)->left = entry.size;
    *ret_file = (struct session_file){entry.mode, entry.size, entry.mtime_ns};
    return 0;
}

int transfer_read(struct transfer *t, struct buf *to)
{
    char bytes[FILES_PIECE_MAX];
    char name[FILES_NAME_MAX + 1];
    struct files_record record;
    if (t->left == 0)
        return 0;
    int r = transfer_next(t, &record, name);
    if (r < 0)
        return r;
    if (record.kind == FILES_END && record.error < 0)
        return record.error;
    if (record.kind != FILES_DATA || record.size > t->left)
        return -EBADMSG;
    r = transfer_receive(t, bytes, (size_t)record.size);
    if (r < 0)
        return r;
    t->left -= record.size;
    session_touch(t->s);
    r = buf_append(to, bytes, (size_t)record.size);
    return r < 0 ? r : 1;
}

int session_file_put(struct session *s, const char *name, uint64_t size, bool executable,
    struct transfer **ret, struct err *err)
{
    struct files_record entry = {0};
    struct files_request request = {
        .op = FILES_PUT, .flags = executable ? FILES_EXECUTABLE : 0, .size = size};
    int r = host_approve_access(s, HOST_FILE, name, -1, err);
    return r < 0 ? r : begin(s, request, name, take_entry, &entry, ret, err);
}

/* When the helper has given up, its end record says why. */
static int upload_error(struct transfer *t, int error, struct err *err)
{
    struct files_record end = {0};
    int r = error == -EPIPE ? take_end(t, &end) : error;
    return transfer_error(t, r < 0 ? r : -EBADMSG, err);
}

int transfer_write(struct transfer *t, const void *data, size_t len, struct err *err)
{
    const char *at = data;
    int r = 0;
    while (r == 0 && len > 0) {
        uint32_t piece = len < FILES_PIECE_MAX ? (uint32_t)len : FILES_PIECE_MAX;
        r = send_all(t, &piece, sizeof(piece));
        if (r == 0)
            r = send_all(t, at, piece);
        at += piece;
        len -= piece;
        uint64_t sent = piece < t->pending ? piece : t->pending;
        (void)pthread_mutex_lock(&t->s->lock);
        t->pending -= sent;
        t->s->uploading -= sent;
        t->s->used_ms = clock_ms();
        (void)pthread_mutex_unlock(&t->s->lock);
    }
    return r < 0 ? upload_error(t, r, err) : 0;
}

int transfer_commit(struct transfer *t, bool *ret_is_new, struct err *err)
{
    const uint32_t none = 0;
    struct files_record end = {0};
    int r = send_all(t, &none, sizeof(none));
    if (r == 0 || r == -EPIPE)
        r = take_end(t, &end);
    if (r < 0)
        return transfer_error(t, r, err);
    *ret_is_new = end.mode != 0;
    session_changes_note(t->s, end.mtime_ns);
    return 0;
}

int session_file_delete(
    struct session *s, const char *name, bool recursive, int cancel_fd, struct err *err)
{
    struct files_record end = {0};
    struct transfer *t = NULL;
    struct files_request request = {
        .op = FILES_DELETE, .flags = recursive ? FILES_RECURSIVE : 0};
    int r = host_approve_access(s, HOST_FILE, name, cancel_fd, err);
    if (r == 0)
        r = begin(s, request, name, take_end, &end, &t, err);
    transfer_done(t);
    return r;
}
