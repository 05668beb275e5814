/* SPDX-License-Identifier: Apache-2.0 */

/* Bytes to a place: frames of the server for the interpreter, and frames of the relay for the
 * far shell. A frame of the relay is sent between two frames of the server, never inside one.
 */

#include "backend/relay.h"

#include "base/cleanup.h"
#include "base/os/fdpass.h"
#include "base/str.h"
#include "proto/place_ends.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FILE_PIECE = 60000, RESTART_FDS = 4 };

static const char *const kinds[] = {
    "exec", "stdin", "tools", "tool_result", "jobs", "kill_job", "variables", "settle"};

bool relay_is_full(const struct relay *r)
{
    return r->to.len + r->own.len >= RELAY_WAITING;
}

/* Moves the relay's own frames behind the last whole one of the server. */
static void merge(struct relay *r)
{
    if (r->server_left || r->server_head_len || !r->own.len)
        return;
    if (buf_append(&r->to, r->own.data, r->own.len) < 0)
        r->is_over = true;
    buf_clear(&r->own);
}

void relay_own(struct relay *r, const char *kind, const void *data, size_t len)
{
    if (buf_printf(&r->own, "%s %zu\n", kind, len) < 0 ||
        (len && buf_append(&r->own, data, len) < 0))
        r->is_over = true;
    merge(r);
}

static int parse_head(struct relay *r)
{
    char text[RELAY_HEAD + 1];
    size_t len;
    if (!relay_parse_head(r->server_head, r->server_head_len, text, &len))
        return -EPROTO;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (str_eq(kinds[i], text)) {
            r->in_exec = r->in_exec || str_eq(text, "exec");
            r->server_left = len;
            r->server_head_len = 0;
            return 0;
        }
    }
    return -EPROTO;
}

int relay_channel(struct relay *r)
{
    static char piece[RELAY_PIECE];
    ssize_t n = read(r->channel, piece, sizeof(piece));
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -EPIPE;
    if (n == 0) {
        close_fd(&r->channel);
        return 0;
    }
    for (ssize_t at = 0; at < n;) {
        if (r->server_left) {
            size_t len = (size_t)(n - at) < r->server_left ? (size_t)(n - at) : r->server_left;
            if (buf_append(&r->to, piece + at, len) < 0)
                return -EPROTO;
            r->server_left -= len;
            at += (ssize_t)len;
        } else {
            if (r->server_head_len == RELAY_HEAD)
                return -EPROTO;
            r->server_head[r->server_head_len++] = piece[at];
            if (piece[at++] == '\n') {
                size_t len = r->server_head_len;
                if (parse_head(r) < 0 || buf_append(&r->to, r->server_head, len) < 0)
                    return -EPROTO;
            }
        }
        merge(r);
    }
    return 0;
}

void relay_helper_drop(struct relay_helper *h)
{
    close_fd(&h->fd);
    h->id = 0;
}

int relay_add_helper(struct relay *r, int fd, const char *kind)
{
    char text[16];
    for (int i = 0; i < RELAY_HELPERS; i++) {
        struct relay_helper *h = &r->helpers[i];
        if (h->id)
            continue;
        (void)fcntl(fd, F_SETFL, O_NONBLOCK);
        *h = (struct relay_helper){++r->last_id, fd};
        int n = snprintf(text, sizeof(text), "%u", h->id);
        relay_own(r, kind, text, (size_t)n);
        return 0;
    }
    (void)close(fd);
    return -EBUSY;
}

void relay_helper_read(struct relay *r, struct relay_helper *h)
{
    static char piece[16 + FILE_PIECE];
    int head = snprintf(piece, 16, "%u ", h->id);
    ssize_t n = read(h->fd, piece + head, FILE_PIECE);
    if (n > 0) {
        relay_own(r, "file", piece, (size_t)head + (size_t)n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        relay_own(r, "file_close", piece, (size_t)head - 1);
        relay_forget(r, h);
        relay_helper_drop(h);
    }
}

void relay_complete(struct relay *r)
{
    static const char zeros[4096];
    while (r->server_left && !r->is_over) {
        size_t len = r->server_left < sizeof(zeros) ? r->server_left : sizeof(zeros);
        if (buf_append(&r->to, zeros, len) < 0)
            r->is_over = true;
        r->server_left -= len;
    }
    r->server_head_len = 0;
    merge(r);
}

/* New ends of the pipes and the channel, for an interpreter that starts again. */
static void restart(struct relay *r, int fds[RESTART_FDS])
{
    buf_clear(&r->words);
    if (place_words_take(fds[0], &r->words) < 0)
        r->is_over = true;
    close_fd(&fds[0]);
    close_fd(&r->out);
    close_fd(&r->err);
    close_fd(&r->channel);
    r->out = fds[1];
    r->err = fds[2];
    r->channel = fds[3];
    for (int i = 1; i < RESTART_FDS; i++)
        (void)fcntl(fds[i], F_SETFL, O_NONBLOCK);
    relay_complete(r);
    r->in_exec = false;
    if (!r->is_over)
        relay_start(r);
    relay_event(r, (struct spawn_event){.kind = EVENT_STARTED, .flags = r->b->in_force});
}

/* The variables of the row come before those of the request: the last one counts. */
void relay_start(struct relay *r)
{
    const struct place_row *row = r->b->row;
    const char *words = r->words.data + sizeof(struct place_head);
    size_t len = r->words.len - sizeof(struct place_head);
    size_t dir = strnlen(words, len);
    cleanup_buf struct buf all;
    buf_init(&all, (size_t)2 * PLACE_WORDS_MAX);
    dir += dir < len;
    if (buf_append(&all, words, dir) < 0 ||
        buf_append(&all, row->forwarded, row->forwarded_len) < 0 ||
        buf_append(&all, words + dir, len - dir) < 0)
        r->is_over = true;
    relay_own(r, row->is_fresh ? "start_fresh" : "start", all.data, all.len);
}

static void kill_session(struct relay *r, int *fds)
{
    (void)fds;
    r->is_over = true;
}

static void tell_usage(struct relay *r, int *fds)
{
    (void)fds;
    relay_event(r, (struct spawn_event){.kind = EVENT_USAGE});
}

static void stop(struct relay *r, int *fds)
{
    (void)fds;
    relay_own(r, "stop", NULL, 0);
}

/* Takes the frames that the server sent before its command: the code to interrupt may be there,
 * and a signal that came first would be lost. */
static void take_sent_frames(struct relay *r)
{
    struct pollfd fd = {r->channel, POLLIN, 0};
    while (!r->is_over && r->channel >= 0 && !relay_is_full(r) && poll(&fd, 1, 0) > 0)
        r->is_over = relay_channel(r) < 0;
}

static void interrupt(struct relay *r, int *fds)
{
    (void)fds;
    take_sent_frames(r);
    relay_own(r, "signal", "2", 1);
    relay_event(r, (struct spawn_event){.kind = EVENT_INTERRUPTED});
}

static void open_files(struct relay *r, int *fds)
{
    (void)relay_add_helper(r, fds[0], "file_open");
}

static void open_terminal(struct relay *r, int *fds)
{
    relay_terminal(r, fds[0]);
}

/* The commands that a server may send. `fds` are the descriptors of a command, behind the words
 * of a restart; take() gets them all. */
static const struct command_row {
    void (*take)(struct relay *r, int *fds);
    unsigned words, count;
    enum place_end fds[RESTART_FDS - 1];
} rows[] = {
    [COMMAND_KILL] = {kill_session, 0, 0, {0}},
    [COMMAND_USAGE] = {tell_usage, 0, 0, {0}},
    [COMMAND_INTERRUPT] = {interrupt, 0, 0, {0}},
    [COMMAND_STOP] = {stop, 0, 0, {0}},
    [COMMAND_FILES] = {open_files, 0, 1, {PLACE_END_STREAM}},
    [COMMAND_TERMINAL] = {open_terminal, 0, 1, {PLACE_END_STREAM}},
    [COMMAND_RESTART] = {restart, 1, 3, {PLACE_END_PIPE, PLACE_END_PIPE, PLACE_END_STREAM}},
};

/* NULL: no such command, or not with these descriptors. */
static const struct command_row *row_of(uint32_t kind, const int *fds, unsigned count)
{
    const struct command_row *row = kind < sizeof(rows) / sizeof(rows[0]) ? &rows[kind] : NULL;
    if (!row || !row->take || count != row->words + row->count)
        return NULL;
    for (unsigned i = 0; i < row->count; i++)
        if (!place_end_is(row->fds[i], fds[row->words + i]))
            return NULL;
    return row;
}

void relay_command(struct relay *r)
{
    struct spawn_command command;
    int fds[RESTART_FDS];
    unsigned count = 0;
    ssize_t n =
        fdpass_receive_now(r->socket, &command, sizeof(command), fds, RESTART_FDS, &count);
    if (n == -EAGAIN)
        return;
    const struct command_row *row =
        n == (ssize_t)sizeof(command) ? row_of(command.kind, fds, count) : NULL;
    if (row)
        row->take(r, fds);
    else
        r->is_over = true; /* the end of the socket, or no server of ours */
    if (!row)
        fdpass_drop(fds, count);
}
