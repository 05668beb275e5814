/* SPDX-License-Identifier: Apache-2.0 */

/* See network.h. The helper gets orders, each with the descriptor of a namespace to look at or
 * without one to have one made, and answers each, with a descriptor or without when the
 * namespace was no longer as new. It never reads anything else, and ends with the spawner. */

#include "spawn/network.h"

#include "base/cleanup.h"
#include "base/fdpass.h"
#include "base/netns.h"
#include "spawn/network_fresh.h"
#include "spawn/sys.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WAIT_MS = 1000, LOOKED_MAX = 32 };

struct order {
    uint32_t owner;
};

/* The descriptor to answer with, or none for a namespace that is no longer as new. Where it is
 * not known how a new one looks, none is. */
static int fulfil(int fd, bool can_look)
{
    if (fd < 0)
        return netns_make();
    if (!can_look || setns(fd, CLONE_NEWNET) < 0 || !network_is_fresh())
        close_fd(&fd);
    return fd;
}

static _Noreturn void help(int socket, pid_t spawner)
{
    struct order order;
    unsigned count;
    int fd = -1;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != spawner ||
        dup2(socket, 3) < 0 || sys_close_range(4, ~0u, 0) < 0)
        _exit(1);
    (void)prctl(PR_SET_NAME, "hermes-network", 0, 0, 0);
    int first = netns_make();
    if (first < 0)
        _exit(1);
    bool can_look = network_learn() == 0;
    (void)close(first);
    while (fdpass_receive(3, &order, sizeof(order), &fd, 1, &count) == sizeof(order)) {
        fd = fulfil(count ? fd : -1, can_look);
        if ((!count && fd < 0) || fdpass_send(3, &order, sizeof(order), &fd, fd >= 0) < 0)
            _exit(1);
        close_fd(&fd);
    }
    _exit(0);
}

/* Has one of our own made if there are not enough. */
static void ask(struct network *n)
{
    const struct order order = {.owner = NETWORK_OURS};
    unsigned ours = n->asked;
    for (unsigned i = 0; i < n->count; i++)
        ours += n->pool[i].owner == NETWORK_OURS;
    if (ours < n->keep &&
        send(n->socket, &order, sizeof(order), MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(order))
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
    n->asked = n->looked = 0;
    n->keep = count;
    cleanup_close int theirs = pair[1];
    pid_t self = getpid();
    n->helper = sys_fork();
    if (n->helper == 0)
        help(theirs, self);
    if (n->helper < 0) {
        n->helper = 0; /* a negative number would name a group of processes to kill() */
        close_fd(&n->socket);
    }
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
    network_keep(n, n->keep);
}

/* When there are too many the oldest goes: its owner may be gone too. */
static void put(struct network *n, uint32_t owner, int fd)
{
    if (n->count == NETWORK_POOL_MAX) {
        (void)close(n->pool[0].fd);
        memmove(n->pool, n->pool + 1, --n->count * sizeof(n->pool[0]));
    }
    n->pool[n->count].fd = fd;
    n->pool[n->count++].owner = owner;
}

/* One answer of the helper's, if there is one within that time: 1, 0 when not, -1 when the
 * helper was lost and replaced. */
static int hear(struct network *n, int wait_ms)
{
    struct pollfd ready = {.fd = n->socket, .events = POLLIN};
    struct order order;
    unsigned count = 0;
    int fd = -1;
    if (n->socket < 0 || poll(&ready, 1, wait_ms) != 1)
        return 0;
    if (fdpass_receive(n->socket, &order, sizeof(order), &fd, 1, &count) != sizeof(order)) {
        lose_source(n);
        return -1;
    }
    uint32_t *waited = order.owner == NETWORK_OURS ? &n->asked : &n->looked;
    *waited -= *waited > 0;
    if (count)
        put(n, order.owner, fd);
    return 1;
}

static int pop(struct network *n, uint32_t owner)
{
    for (unsigned i = n->count; i-- > 0;) {
        if (n->pool[i].owner != owner)
            continue;
        int fd = n->pool[i].fd;
        memmove(n->pool + i, n->pool + i + 1, (--n->count - i) * sizeof(n->pool[0]));
        return fd;
    }
    return -1;
}

/* The one that our parent sends. */
static int take_first(struct network *n)
{
    struct pollfd ready = {.fd = n->socket, .events = POLLIN};
    char byte;
    unsigned count;
    int fd = -1;
    if (n->socket >= 0 && poll(&ready, 1, WAIT_MS) == 1)
        (void)fdpass_receive(n->socket, &byte, 1, &fd, 1, &count);
    close_fd(&n->socket);
    return fd;
}

int network_take(struct network *n, uint32_t owner)
{
    int fd;
    if (!n->helper)
        return owner == NETWORK_OURS ? take_first(n) : -1;
    while (hear(n, 0) > 0)
        ;
    while ((fd = pop(n, owner)) < 0 && owner == NETWORK_OURS) {
        ask(n);
        int r = hear(n, WAIT_MS);
        if (r == 0)
            lose_source(n);
        if (r <= 0)
            return -1;
    }
    if (owner == NETWORK_OURS)
        ask(n);
    return fd;
}

void network_return(struct network *n, uint32_t owner, int fd)
{
    cleanup_close int owned = fd;
    const struct order order = {.owner = owner};
    while (n->helper && hear(n, 0) > 0)
        ;
    if (!n->helper || n->socket < 0 || n->asked + n->looked >= LOOKED_MAX ||
        fdpass_send(n->socket, &order, sizeof(order), &fd, 1) < 0)
        return;
    *(owner == NETWORK_OURS ? &n->asked : &n->looked) += 1;
}

int network_enter(int fd)
{
    return setns(fd, CLONE_NEWNET) < 0 ? -errno : 0;
}

int network_leave(const struct network *n)
{
    return setns(n->home_fd, CLONE_NEWNET) < 0 ? -errno : 0;
}
