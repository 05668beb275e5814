/* SPDX-License-Identifier: Apache-2.0 */

/* See network.h. The helper gets orders, each with a namespace to inspect or without one to
 * make a new one, and answers them in order. It reads nothing else and ends with the spawner.
 * It does not send inspected namespaces back: a descriptor in flight makes the kernel look for
 * cycles whenever any socket is closed. */

#include "spawn/network.h"

#include "base/cleanup.h"
#include "base/fdpass.h"
#include "base/netns.h"
#include "base/sys.h"
#include "spawn/network_fresh.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* How long to wait for one answer; a helper that takes longer is replaced. */
enum { WAIT_MS = 1000 };

enum order { ORDER_MAKE, ORDER_LOOK };
enum answer { ANSWER_MADE, ANSWER_FRESH, ANSWER_USED };

static _Noreturn void help(int socket, pid_t spawner)
{
    char order;
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
    while (fdpass_receive(3, &order, 1, &fd, 1, &count) == 1) {
        char answer = ANSWER_MADE;
        if (order == ORDER_MAKE) {
            fd = netns_make();
            if (fd < 0)
                _exit(1);
        } else { /* when network_learn() failed, none counts as new */
            answer = can_look && count && network_is_fresh(fd) ? ANSWER_FRESH : ANSWER_USED;
        }
        if (fdpass_send(3, &answer, 1, &fd, answer == ANSWER_MADE) < 0)
            _exit(1);
        close_fd(&fd);
    }
    _exit(0);
}

static void drop(struct network_list *l, unsigned i)
{
    memmove(l->at + i, l->at + i + 1, (--l->count - i) * sizeof(l->at[0]));
}

/* When the list is full, the oldest is closed: its owner may be gone, too. */
static void add(struct network_list *l, uint32_t owner, uint64_t key, int fd)
{
    if (l->count == NETWORK_POOL_MAX) {
        (void)close(l->at[0].fd);
        drop(l, 0);
    }
    l->at[l->count].fd = fd;
    l->at[l->count].key = key;
    l->at[l->count++].owner = owner;
}

/* Number of the spawner's own that any key may have. */
static unsigned new_in(const struct network_list *l)
{
    unsigned count = 0;
    for (unsigned i = 0; i < l->count; i++)
        count += l->at[i].owner == NETWORK_OURS && l->at[i].key == NETWORK_NEW;
    return count;
}

/* Asks the helper for one more of the spawner's own if there are not enough. */
static void ask(struct network *n)
{
    const char order = ORDER_MAKE;
    if (n->asked + new_in(&n->ready) + new_in(&n->seen) < n->keep &&
        send(n->socket, &order, 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1)
        n->asked++;
}

void network_init(struct network *n)
{
    *n = (struct network){.home_fd = -1, .socket = -1};
}

/* Tests once whether we can return: in a user namespace setns() may lead anywhere but back. */
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
    n->keep = count;
    cleanup_close int theirs = pair[1];
    pid_t self = getpid();
    n->helper = sys_fork();
    if (n->helper == 0)
        help(theirs, self);
    if (n->helper < 0) {
        n->helper = 0; /* kill() takes a negative number for a process group */
        close_fd(&n->socket);
    }
    while (n->socket >= 0 && count-- > 0)
        ask(n);
}

/* Replaces a helper that fails or hangs. The new one starts from nothing. */
static void lose_source(struct network *n)
{
    close_fd(&n->socket);
    while (n->seen.count) {
        (void)close(n->seen.at[0].fd);
        drop(&n->seen, 0);
    }
    if (!n->helper)
        return;
    (void)kill(n->helper, SIGKILL);
    while (waitpid(n->helper, NULL, 0) < 0 && errno == EINTR)
        ;
    n->helper = 0; /* the pid may belong to another process now */
    network_keep(n, n->keep);
}

/* Takes one answer of the helper, waiting at most wait_ms. Returns 1, 0 when there was none, -1
 * when the helper was lost and replaced. */
static int hear(struct network *n, int wait_ms)
{
    struct pollfd ready = {.fd = n->socket, .events = POLLIN};
    unsigned count = 0;
    char answer = ANSWER_MADE;
    int fd = -1;
    if (n->socket < 0 || poll(&ready, 1, wait_ms) != 1)
        return 0;
    ssize_t r = fdpass_receive(n->socket, &answer, 1, &fd, 1, &count);
    bool is_made = answer == ANSWER_MADE;
    if (r != 1 || count != is_made || (!is_made && !n->seen.count)) {
        close_fd(&fd);
        lose_source(n);
        return -1;
    }
    if (is_made) {
        n->asked -= n->asked > 0;
        add(&n->ready, NETWORK_OURS, NETWORK_NEW, fd);
        return 1;
    }
    fd = n->seen.at[0].fd;
    if (answer == ANSWER_FRESH)
        add(&n->ready, n->seen.at[0].owner, n->seen.at[0].key, fd);
    else
        (void)close(fd);
    drop(&n->seen, 0);
    return 1;
}

/* The youngest that served this key, whose files the helper has open; else the youngest new
 * one. */
static int pop(struct network *n, uint32_t owner, uint64_t *key)
{
    int found = -1;
    for (int i = (int)n->ready.count - 1; i >= 0; i--) {
        uint64_t its = n->ready.at[i].key;
        if (n->ready.at[i].owner != owner || (its != *key && its != NETWORK_NEW))
            continue;
        if (found < 0 || (its == *key && n->ready.at[found].key != *key))
            found = i;
    }
    if (found < 0)
        return -1;
    int fd = n->ready.at[found].fd;
    *key = n->ready.at[found].key;
    drop(&n->ready, (unsigned)found);
    return fd;
}

/* Waits for the one namespace that `hermes run` sends. */
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

/* Tries again to start a helper that could not be started before. */
static void revive(struct network *n)
{
    if (!n->helper && n->keep)
        network_keep(n, n->keep);
}

int network_take(struct network *n, uint32_t owner, uint64_t *key)
{
    int fd;
    revive(n);
    if (!n->helper) {
        *key = NETWORK_NEW;
        return owner == NETWORK_OURS ? take_first(n) : -1;
    }
    while (hear(n, 0) > 0)
        ;
    while ((fd = pop(n, owner, key)) < 0 && owner == NETWORK_OURS) {
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

void network_return(struct network *n, uint32_t owner, uint64_t key, int fd)
{
    cleanup_close int owned = fd;
    const char order = ORDER_LOOK;
    revive(n);
    while (n->helper && hear(n, 0) > 0)
        ;
    if (n->helper && n->socket >= 0 && n->seen.count < NETWORK_POOL_MAX &&
        fdpass_send_now(n->socket, &order, 1, &fd, 1) == 0)
        add(&n->seen, owner, n->is_shared ? NETWORK_NEW : key, take_fd(&owned));
}

int network_enter(int fd)
{
    return setns(fd, CLONE_NEWNET) < 0 ? -errno : 0;
}

int network_leave(const struct network *n)
{
    return setns(n->home_fd, CLONE_NEWNET) < 0 ? -errno : 0;
}
