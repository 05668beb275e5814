/* SPDX-License-Identifier: Apache-2.0 */

/* See network.h. The helper reads one byte per namespace wanted and answers with a descriptor.
 * It never reads anything else, and ends with the spawner. */

#include "spawn/network.h"

#include "base/cleanup.h"
#include "base/fdpass.h"
#include "base/netns.h"
#include "spawn/sys.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WAIT_MS = 1000 };

static _Noreturn void help(int socket, pid_t spawner)
{
    char byte;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != spawner ||
        dup2(socket, 3) < 0 || sys_close_range(4, ~0u, 0) < 0)
        _exit(1);
    (void)prctl(PR_SET_NAME, "hermes-network", 0, 0, 0);
    while (recv(3, &byte, 1, 0) == 1) {
        int fd = netns_make();
        if (fd < 0 || fdpass_send(3, "n", 1, &fd, 1) < 0)
            _exit(1);
        (void)close(fd);
    }
    _exit(0);
}

static void ask(struct network *n)
{
    if (send(n->socket, "n", 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1)
        n->asked++;
}

void network_init(struct network *n)
{
    *n = (struct network){.home_fd = -1, .socket = -1};
}

/* Tried once: in a user namespace we may be allowed to go anywhere but back. */
static bool know_home(struct network *n)
{
    if (n->home_fd >= 0)
        return true;
    n->home_fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (n->home_fd >= 0 && setns(n->home_fd, CLONE_NEWNET) < 0)
        close_fd(&n->home_fd);
    return n->home_fd >= 0;
}

void network_expect(struct network *n, int socket)
{
    cleanup_close int owned = socket;
    if (n->socket < 0 && know_home(n))
        n->socket = take_fd(&owned);
}

void network_keep(struct network *n, uint32_t count)
{
    int pair[2];
    if (!know_home(n) || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return;
    n->socket = pair[0];
    n->asked = 0;
    cleanup_close int theirs = pair[1];
    pid_t self = getpid();
    n->helper = sys_fork();
    if (n->helper == 0)
        help(theirs, self);
    if (n->helper < 0)
        close_fd(&n->socket);
    while (n->socket >= 0 && count-- > 0)
        ask(n);
}

/* A helper that fails or hangs is replaced by another one, which starts afresh. */
static void lose_source(struct network *n)
{
    close_fd(&n->socket);
    if (!n->helper)
        return;
    (void)kill(n->helper, SIGKILL);
    while (waitpid(n->helper, NULL, 0) < 0 && errno == EINTR)
        ;
    network_keep(n, n->asked);
}

static int take(struct network *n)
{
    struct pollfd ready = {.fd = n->socket, .events = POLLIN};
    char byte;
    unsigned count;
    int fd = -1;
    if (n->socket < 0)
        return -ENOENT;
    if (poll(&ready, 1, WAIT_MS) == 1)
        (void)fdpass_receive(n->socket, &byte, 1, &fd, 1, &count);
    if (fd < 0 || !n->helper) {
        lose_source(n);
        return fd;
    }
    n->asked--;
    ask(n);
    return fd;
}

bool network_enter(struct network *n)
{
    cleanup_close int fd = take(n);
    return fd >= 0 && setns(fd, CLONE_NEWNET) == 0;
}

int network_leave(const struct network *n)
{
    return setns(n->home_fd, CLONE_NEWNET) < 0 ? -errno : 0;
}
