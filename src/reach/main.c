/* SPDX-License-Identifier: Apache-2.0 */

/* hermes-reach: the reviewer and the webhook. One thread and one libcurl multi handle. It holds
 * the addresses and the keys of its targets; an attacker who takes over the server can send
 * bodies to these targets and nothing else. Answers are a stranger's: they are bounded and
 * passed on. */

#include "reach/reach.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/os/fdpass.h"
#include "base/os/fs.h"
#include "base/os/sys.h"
#include "proto/place_ends.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int fail(const char *what, int error)
{
    log_event(LOG_ERROR, what, "error", strerror(-error), (char *)NULL);
    return 1;
}

/* The monitor's packet: table and socket. */
static int receive_table(struct reach *reach)
{
    char mark;
    int fds[REACH_FDS];
    unsigned count = 0;
    ssize_t n = fdpass_receive(REACH_FD, &mark, sizeof(mark), fds, REACH_FDS, &count);
    if (n <= 0 || count != REACH_FDS)
        return n < 0 ? (int)n : -EPROTO;
    cleanup_close int table = fds[REACH_TABLE];
    reach->calls_fd = fds[REACH_CALLS];
    int seals = fcntl(table, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_WRITE))
        return -EPROTO;
    n = pread(table, &reach->table, sizeof(reach->table), 0);
    if (n != (ssize_t)sizeof(reach->table))
        return -EPROTO;
    for (int i = 0; i < REACH_TARGETS; i++) {
        reach->table.rows[i].url[REACH_URL - 1] = '\0';
        reach->table.rows[i].key[REACH_KEY - 1] = '\0';
    }
    return 0;
}

/* Takes the calls that have come, while there is room, and no more than REACH_CALLS_MAX: a
 * flood of them must not hold up those that are under way. False when the server's end is
 * closed. */
static bool take_calls(struct reach *reach)
{
    for (int taken = 0; taken < REACH_CALLS_MAX && reach->count < REACH_CALLS_MAX; taken++) {
        struct reach_call message;
        int fds[REACH_CALL_FDS];
        unsigned count = 0;
        ssize_t n = fdpass_receive_now(
            reach->calls_fd, &message, sizeof(message), fds, REACH_CALL_FDS, &count);
        if (n == -EAGAIN)
            return true;
        if ((n < 0 && n != -EMSGSIZE) || (n == 0 && fdpass_is_closed(reach->calls_fd)))
            return false;
        if (n == (ssize_t)sizeof(message) && count == REACH_CALL_FDS &&
            place_end_is(PLACE_END_STREAM, fds[REACH_CALL_ANSWER]))
            call_begin(reach, &message, fds);
        else
            fdpass_drop(fds, count);
    }
    return true;
}

static int serve(struct reach *reach)
{
    for (;;) {
        struct curl_waitfd fds[] = {{.fd = REACH_FD, .events = CURL_WAIT_POLLIN},
            {.fd = reach->calls_fd, .events = CURL_WAIT_POLLIN}};
        bool has_room = reach->count < REACH_CALLS_MAX;
        (void)curl_multi_poll(reach->multi, fds, has_room ? 2 : 1, 1000, NULL);
        if (fds[0].revents)
            return 0; /* the monitor is gone, or stops us */
        if (has_room && fds[1].revents && !take_calls(reach))
            return 0;
        calls_advance(reach);
    }
}

int main(void)
{
    static struct reach reach;
    int r = sys_close_range(REACH_FD + 1, ~0u, 0);
    if (r == 0)
        r = confine_identity();
    if (r < 0)
        return fail("cannot give up privileges", r);
    if ((r = receive_table(&reach)) < 0)
        return fail("hermes-reach is started by hermes-monitor; run `hermes serve`", r);
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0 || !(reach.multi = curl_multi_init()))
        return fail("cannot start libcurl", -ENOMEM);
    if ((r = confine_rest()) < 0)
        return fail("cannot confine hermes-reach", r);
    return serve(&reach);
}
