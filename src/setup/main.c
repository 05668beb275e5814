/* SPDX-License-Identifier: Apache-2.0 */

/* hermes-setup: does the work of the spawner before the first box (proto/setup.h). */

#include "setup/setup.h"

#include "base/cleanup.h"
#include "base/os/fdpass.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Seconds for an order; the spawner waits for the answer. */
enum { PATIENCE_S = 60 };

static_assert((int)SETUP_NAME >= (int)CGROUP_NAME, "the name of a group fits");

/* An answer with its descriptors, which are closed when it is sent. */
struct result {
    struct setup_answer answer;
    int fds[SETUP_MAX_FDS];
    unsigned fd_count;
};

static struct cgroup_host host;
static union {
    uint32_t kind;
    struct setup_order order;
    struct spawn_source source;
    struct setup_image_order image;
    struct {
        struct spawn_root root;
        struct spawn_entry entries[SPAWN_MAX_ENTRIES];
    } tree;
} packet;

static int fail(struct result *to, uint32_t step, int error, const char *detail)
{
    to->answer.step = step;
    (void)snprintf(to->answer.detail, sizeof(to->answer.detail), "%.*s",
        (int)sizeof(to->answer.detail) - 1, detail);
    return error;
}

static int choose_ids(const struct setup_order *order, struct result *to)
{
    enum { ROOTLESS_COUNT = 65535 };
    int r = 0;
    if (order->has_ids && order->is_rootless)
        r = setup_choose_range(
            1, order->uid_count ? order->uid_count : ROOTLESS_COUNT, &to->answer);
    else if (order->has_ids)
        r = setup_choose_range(order->uid_base, order->uid_count, &to->answer);
    if (r < 0 || order->is_rootless)
        return r;
    r = setup_open_lock("/run/hermes");
    if (r >= 0)
        to->fds[to->fd_count++] = r;
    return r < 0 ? r : 0;
}

/* The directories stay open here, too, for the sweep; the spawner's own group does not, because
 * its lock must end with the spawner. */
static void answer_groups(struct result *to)
{
    to->answer.cgroup_mode = host.mode;
    to->answer.cgroup_reason = host.reason;
    to->answer.tree_count = host.count;
    for (unsigned i = 0; i < host.count; i++) {
        to->answer.trees[i].use = host.trees[i].use;
        to->answer.trees[i].is_v2 = host.trees[i].v2;
        to->fds[to->fd_count++] = fcntl(host.trees[i].top_fd, F_DUPFD_CLOEXEC, 0);
    }
    for (unsigned i = 0; i < host.count && host.trees[i].name[0]; i++)
        to->fds[to->fd_count++] = host.trees[i].fd;
    if (host.count)
        memcpy(to->answer.group, host.trees[0].name, sizeof(host.trees[0].name));
}

static int on_host(const struct setup_order *order, struct result *to)
{
    uint32_t step;
    int r = choose_ids(order, to);
    if (r < 0)
        return fail(to, STEP_SPAWNER, r, "uid range");
    if ((r = setup_leave_host()) < 0)
        return fail(to, STEP_SPAWNER, r, "mount namespace");
    setup_find_groups(&host, order->is_rootless);
    if (order->processes_total &&
        (r = setup_nest_groups(&host, order->processes_total, &step)) < 0)
        return fail(to, step, r, "the group of all boxes, with processes_total");
    answer_groups(to);
    return 0;
}

static int on_root(size_t size, struct result *to)
{
    const struct spawn_root *root = &packet.tree.root;
    const char *detail = "root table";
    int r = root->count > SPAWN_MAX_ENTRIES ||
                    size != sizeof(*root) + root->count * sizeof(struct spawn_entry)
                ? -EINVAL
                : setup_root(packet.tree.entries, root->count, &detail, &to->fds[0]);
    to->fd_count = r == 0;
    return r < 0 ? fail(to, STEP_ROOT, r, detail) : 0;
}

static int follow(size_t size, const int *fds, unsigned count, struct result *to)
{
    if (packet.kind == SETUP_IMAGE && size == sizeof(packet.image) && count == 1)
        return setup_image(&packet.image, fds[0], to->fds, &to->fd_count);
    if (packet.kind == SPAWN_ROOT && size >= sizeof(struct spawn_root))
        return on_root(size, to);
    if (packet.kind == SPAWN_MOUNT && size == sizeof(packet.source))
        return setup_add_source(&packet.source);
    if (size != sizeof(packet.order) || packet.order.protocol != SPAWN_PROTOCOL)
        return -EPROTO;
    switch (packet.kind) {
    case SETUP_PROBE:
        setup_probe(&to->answer);
        return 0;
    case SETUP_MAP_IDS: {
        int r = setup_map_ids(&packet.order, &to->fds[0]);
        to->fd_count = r == 0;
        return r;
    }
    case SETUP_HOST:
        return on_host(&packet.order, to);
    case SETUP_SWEEP:
        setup_sweep(&host);
        return 0;
    case SETUP_JOIN:
        return count == 2 ? setup_join(fds[0], fds[1]) : -EPROTO;
    default:
        return -EPROTO;
    }
}

int main(void)
{
    /* A program that is executed by descriptor is called by its number. */
    (void)prctl(PR_SET_NAME, "hermes-setup", 0, 0, 0);
    if (fcntl(SETUP_SOCKET_FD, F_SETFD, FD_CLOEXEC) < 0)
        return 1;
    for (;;) {
        unsigned count;
        int fds[2] = {-1, -1};
        struct result result = {0};
        ssize_t n = fdpass_receive(SETUP_SOCKET_FD, &packet, sizeof(packet), fds, 2, &count);
        if (n < (ssize_t)sizeof(packet.kind))
            return n == 0 ? 0 : 1;
        (void)alarm(PATIENCE_S);
        result.answer.error = follow((size_t)n, fds, count, &result);
        (void)alarm(0);
        if (fdpass_send(SETUP_SOCKET_FD, &result.answer, sizeof(result.answer), result.fds,
                result.fd_count) < 0)
            return 1;
        for (unsigned i = 0; i < result.fd_count; i++)
            close_fd(&result.fds[i]);
        while (count)
            close_fd(&fds[--count]);
    }
}
