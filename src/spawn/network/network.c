/* SPDX-License-Identifier: Apache-2.0 */

/* See network.h. hermes-network answers orders one after the other. It does not send inspected
 * namespaces back: a descriptor in flight makes the kernel look for cycles whenever any socket
 * is closed. */

#include "spawn/network/network.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/fdpass.h"
#include "spawn/program.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* How long one box waits for an answer; a helper that takes longer is replaced. */
enum { WAIT_MS = 1000 };

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

static bool send_order(struct network *n, enum kit_order_kind kind, const int *fd)
{
    const struct kit_order order = {.kind = kind};
    return fdpass_send_now(n->socket, &order, sizeof(order), fd, fd != NULL) == 0;
}

/* Asks the helper for one more of the spawner's own if there are not enough. */
static void ask(struct network *n)
{
    if (n->asked + new_in(&n->ready) + new_in(&n->seen) < n->keep &&
        send_order(n, KIT_MAKE, NULL))
        n->asked++;
}

static void ask_kit(struct network *n)
{
    if (n->kits_asked + n->kit_count < NETWORK_KITS_MAX && send_order(n, KIT_MAKE_READY, NULL))
        n->kits_asked++;
}

void network_init(struct network *n)
{
    *n = (struct network){.program_fd = -1, .home_fd = -1, .socket = -1};
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

int network_program(struct network *n)
{
    if (n->program_fd < 0)
        n->program_fd = program_open("hermes-network");
    return n->program_fd;
}

void network_keep(struct network *n, uint32_t count)
{
    if (!know_home(n))
        return;
    n->asked = 0;
    n->kits_asked = 0;
    n->is_up = false;
    n->keep = count;
    int pid = program_start(network_program(n), "hermes-network", &n->socket);
    n->helper = pid < 0 ? 0 : pid;
    while (n->socket >= 0 && count-- > 0)
        ask(n);
}

/* Replaces a helper that fails or hangs. The new one starts from nothing. */
static void lose_source(struct network *n)
{
    while (n->seen.count) {
        (void)close(n->seen.at[0].fd);
        drop(&n->seen, 0);
    }
    if (!n->helper) {
        close_fd(&n->socket);
        return;
    }
    program_stop(&n->helper, &n->socket);
    network_keep(n, n->keep);
}

/* Takes the namespaces that the helper has made. False when the answer does not match the
 * order. */
static bool on_made(
    struct network *n, const struct kit_answer *answer, int *fds, unsigned count)
{
    if (answer->kind == KIT_MAKE && count == 1) {
        n->asked -= n->asked > 0;
        add(&n->ready, NETWORK_OURS, NETWORK_NEW, take_fd(&fds[0]));
        return true;
    }
    if (answer->kind != KIT_MAKE_READY || count != 1 + kit_size(answer) ||
        n->kit_count == NETWORK_KITS_MAX)
        return false;
    n->kits_asked -= n->kits_asked > 0;
    struct network_kit *kit = &n->kits[n->kit_count++];
    kit->ns = take_fd(&fds[0]);
    kit->count = count - 1;
    for (unsigned i = 0; i < kit->count; i++)
        kit->fds[i] = take_fd(&fds[1 + i]);
    return true;
}

/* The helper has looked at the namespace that waits longest for it. */
static bool on_seen(struct network *n, const struct kit_answer *answer, unsigned count)
{
    if (count || !n->seen.count)
        return false;
    int fd = n->seen.at[0].fd;
    if (answer->is_fresh)
        add(&n->ready, n->seen.at[0].owner, n->seen.at[0].key, fd);
    else
        (void)close(fd);
    drop(&n->seen, 0);
    return true;
}

/* Takes one answer of the helper, waiting at most wait_ms. Returns 1, 0 when there was none, -1
 * when the helper could not make a namespace, or was lost and replaced. */
static int hear(struct network *n, int wait_ms)
{
    struct pollfd ready = {.fd = n->socket, .events = POLLIN};
    unsigned count = 0;
    struct kit_answer answer = {0};
    int fds[KIT_MAX_FDS];
    if (n->socket < 0 || poll(&ready, 1, wait_ms) != 1)
        return 0;
    ssize_t r = fdpass_receive(n->socket, &answer, sizeof(answer), fds, KIT_MAX_FDS, &count);
    n->is_up = true;
    bool is_look = answer.kind == KIT_LOOK || answer.kind == KIT_FORGET;
    bool is_fine = r == (ssize_t)sizeof(answer);
    if (is_fine && answer.error < 0 && !is_look && !count) {
        n->asked -= answer.kind == KIT_MAKE && n->asked > 0;
        n->kits_asked -= answer.kind == KIT_MAKE_READY && n->kits_asked > 0;
        return -1;
    }
    is_fine =
        is_fine && (is_look ? on_seen(n, &answer, count) : on_made(n, &answer, fds, count));
    while (r > 0 && count)
        close_fd(&fds[--count]);
    if (!is_fine)
        lose_source(n);
    return is_fine ? 1 : -1;
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
    uint64_t end_ms = clock_ms() + WAIT_MS;
    revive(n);
    if (!n->helper) {
        *key = NETWORK_NEW;
        return owner == NETWORK_OURS ? take_first(n) : -1;
    }
    while (hear(n, 0) > 0)
        ;
    while ((fd = pop(n, owner, key)) < 0 && owner == NETWORK_OURS) {
        ask(n);
        uint64_t now_ms = clock_ms();
        int r = n->is_up ? hear(n, now_ms < end_ms ? (int)(end_ms - now_ms) : 0) : -1;
        if (r == 0)
            lose_source(n);
        if (r <= 0)
            return -1;
    }
    if (owner == NETWORK_OURS)
        ask(n);
    return fd;
}

bool network_take_kit(struct network *n, struct network_kit *ret)
{
    if (!n->helper || n->socket < 0)
        return false;
    while (hear(n, 0) > 0)
        ;
    bool has_one = n->kit_count;
    if (has_one)
        *ret = n->kits[--n->kit_count];
    ask_kit(n);
    ask_kit(n);
    return has_one;
}

void network_forget(struct network *n)
{
    while (n->ready.count)
        (void)close(n->ready.at[--n->ready.count].fd);
    while (n->kit_count) {
        struct network_kit *kit = &n->kits[--n->kit_count];
        (void)close(kit->ns);
        for (unsigned i = 0; i < kit->count; i++)
            (void)close(kit->fds[i]);
    }
}

void network_return(struct network *n, uint32_t owner, uint64_t key, int fd, bool is_spoilt)
{
    cleanup_close int owned = fd;
    revive(n);
    while (n->helper && hear(n, 0) > 0)
        ;
    if (n->helper && n->socket >= 0 && n->seen.count < NETWORK_POOL_MAX &&
        send_order(n, is_spoilt ? KIT_FORGET : KIT_LOOK, &fd))
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
