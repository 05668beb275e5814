/* SPDX-License-Identifier: Apache-2.0 */

/* See setup.h. An alarm ends a hermes-setup that hangs (setup/main.c), so every wait here is
 * bounded. */

#include "spawn/setup.h"

#include "base/cleanup.h"
#include "base/os/fdpass.h"
#include "base/os/sys.h"
#include "spawn/program.h"

#include <sys/socket.h>
#include <sys/wait.h>

int setup_start(struct setup *setup)
{
    if (setup->socket >= 0)
        return 0;
    int pid = program_start(setup->program_fd, "hermes-setup", &setup->socket);
    if (pid < 0)
        return pid;
    setup->pid = pid;
    return 0;
}

int setup_call(struct setup *setup, const void *order, size_t size, struct setup_answer *ret,
    int *fds, unsigned max, unsigned *ret_count)
{
    return setup_call_with(setup, order, size, NULL, 0, ret, fds, max, ret_count);
}

int setup_call_with(struct setup *setup, const void *order, size_t size, const int *with,
    unsigned with_count, struct setup_answer *ret, int *fds, unsigned max, unsigned *ret_count)
{
    *ret = (struct setup_answer){.step = STEP_SPAWNER, .detail = "hermes-setup"};
    *ret_count = 0;
    int r = setup_start(setup);
    if (r < 0 || (r = fdpass_send(setup->socket, order, size, with, with_count)) < 0)
        return r;
    ssize_t n = fdpass_receive(setup->socket, ret, sizeof(*ret), fds, max, ret_count);
    r = n == (ssize_t)sizeof(*ret) ? ret->error : n < 0 ? (int)n : -EIO;
    while (r < 0 && *ret_count)
        close_fd(&fds[--*ret_count]);
    return r;
}

bool setup_reap(struct setup *setup, bool waits)
{
    pid_t pid = 0;
    while (setup->pid > 0 && (pid = waitpid(setup->pid, NULL, waits ? 0 : WNOHANG)) < 0 &&
           errno == EINTR)
        ;
    setup->pid = pid == 0 ? setup->pid : 0;
    return setup->pid && setup->socket < 0;
}

/* hermes-setup sees the end of the socket even where a child still holds a copy of it. */
static void hang_up(struct setup *setup)
{
    (void)shutdown(setup->socket, SHUT_WR);
    close_fd(&setup->socket);
}

void setup_end(struct setup *setup)
{
    hang_up(setup);
    (void)setup_reap(setup, true);
}

void setup_finish(struct setup *setup)
{
    const struct setup_order order = {.kind = SETUP_SWEEP, .protocol = SPAWN_PROTOCOL};
    if (setup->socket >= 0)
        (void)fdpass_send(setup->socket, &order, sizeof(order), NULL, 0);
    hang_up(setup);
}
