/* SPDX-License-Identifier: Apache-2.0 */

/* The order of what a session's process passes on to its place. */

#include "backend/relay.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/os/fdpass.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void relay_event(const struct relay *r, struct spawn_event event)
{
    (void)r;
    assert_int_equal(event.kind, EVENT_INTERRUPTED);
}

void relay_terminal(struct relay *r, int control_fd)
{
    (void)r;
    (void)control_fd;
    fail();
}

int relay_confirm(struct relay *r, uint64_t count)
{
    (void)r;
    (void)count;
    return 0;
}

/* Where a frame begins in the bytes for the place. */
static size_t place_of(const struct relay *r, const char *line)
{
    const char *at = memmem(r->to.data, r->to.len, line, strlen(line));
    assert_non_null(at);
    return (size_t)(at - r->to.data);
}

/* The server sends code, and then the command that interrupts it, from another socket. The
 * code may be longer than one read, and there may be `stdin` before it. */
static void an_interrupt_goes_behind_its_code(void **state)
{
    static const size_t lengths[] = {0, 10, RELAY_PIECE - 11, RELAY_PIECE, 3 * RELAY_PIECE};
    static const struct spawn_command interrupt = {.kind = COMMAND_INTERRUPT};
    static const struct place_row row = {.kind = PLACE_LOCAL};
    static struct backend b = {.row = &row};
    (void)state;
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        struct relay *r = xcalloc(1, sizeof(*r));
        int commands[2], channel[2];
        cleanup_free char *input = xcalloc(1, lengths[i] + 1);
        memset(input, 'x', lengths[i]);
        assert_int_equal(
            socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, commands), 0);
        assert_int_equal(
            socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, channel), 0);
        *r = (struct relay){
            .b = &b, .socket = commands[0], .out = -1, .err = -1, .channel = channel[0]};
        buf_init(&r->to, 1 << 20);
        buf_init(&r->own, 1 << 20);
        if (lengths[i]) {
            assert_true(dprintf(channel[1], "stdin %zu\n", lengths[i]) > 0);
            assert_int_equal(write(channel[1], input, lengths[i]), (ssize_t)lengths[i]);
        }
        assert_true(dprintf(channel[1], "exec 10\nsleep 1000") > 0);
        assert_true(fdpass_send_now(commands[1], &interrupt, sizeof(interrupt), NULL, 0) >= 0);
        relay_command(r);
        assert_false(r->is_over);
        assert_true(place_of(r, "exec 10\n") < place_of(r, "signal 1\n"));
        buf_done(&r->to);
        buf_done(&r->own);
        for (int end = 0; end < 2; end++) {
            (void)close(commands[end]);
            (void)close(channel[end]);
        }
        free(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_interrupt_goes_behind_its_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
