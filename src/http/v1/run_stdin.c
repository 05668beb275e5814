/* SPDX-License-Identifier: Apache-2.0 */

/* POST /v1/runs/{id}/stdin: writes the body to the standard input of a run. The thread of the
 * connection waits while the program does not read. It gives up after a while without progress
 * and says how much was written, so that a program that reads nothing holds no thread. */

#include "base/alloc.h"
#include "base/clock.h"
#include "http/routes.h"
#include "http/v1/events.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

enum {
    NAP_MS = 200,     /* between two looks whether the client has left */
    STALL_MS = 10000, /* longest time without progress */
};

/* Whether to go on waiting for a program that has read nothing since `since_ms`. */
static bool may_wait(const struct http_request *req, uint64_t since_ms)
{
    return clock_ms() - since_ms < STALL_MS && !http_is_gone(req) && !req->state->stopping;
}

/* Returns how many bytes were written, or negative errno when the run has ended. */
static ssize_t write_all(struct http_request *req, int fd)
{
    size_t at = 0;
    uint64_t since_ms = clock_ms();
    while (at < req->body.len) {
        ssize_t n = write(fd, req->body.data + at, req->body.len - at);
        if (n > 0) {
            at += (size_t)n;
            since_ms = clock_ms();
        } else if (errno != EAGAIN && errno != EINTR) {
            return -errno;
        } else if (may_wait(req, since_ms)) {
            struct pollfd room = {.fd = fd, .events = POLLOUT};
            (void)poll(&room, 1, NAP_MS);
        } else {
            break;
        }
    }
    return (ssize_t)at;
}

/* Writes the body and replies. Takes the descriptor. */
static int write_body(struct http_request *req, struct history_run *run, int fd, bool eof,
    struct http_reply *reply, struct err *err)
{
    http_follow(req, -1);
    ssize_t written = write_all(req, fd);
    http_unfollow(req);
    bool is_whole = written == (ssize_t)req->body.len;
    history_stdin_end(run, fd, eof && is_whole);
    if (written < 0)
        return err_set(err, ERR_CONFLICT, EPIPE, "the run ended before it had read the input");
    char *text =
        xasprintf("{\"written\":%zd,\"eof\":%s}", written, eof && is_whole ? "true" : "false");
    reply_json(reply, 200, text, strlen(text));
    return 0;
}

int handle_run_stdin(struct http_request *req, struct http_reply *reply, struct err *err)
{
    struct history_run *run = NULL;
    bool eof;
    int r = http_query_flag(req, "eof", &eof, err);
    if (r == 0)
        r = find_run(req, &run, err);
    if (r < 0)
        return r;
    int fd = history_stdin_begin(run, err);
    r = fd < 0 ? fd : write_body(req, run, fd, eof, reply, err);
    history_unref(run);
    return r;
}
