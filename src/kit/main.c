/* SPDX-License-Identifier: Apache-2.0 */

/* hermes-network: makes network namespaces, inspects used ones and installs kits, for the
 * spawner (proto/kit.h). It reads orders of the spawner and answers of the kernel, no byte of a
 * box. Between orders it is in a namespace of its own. */

#include "base/cleanup.h"
#include "base/os/fdpass.h"
#include "kit/fresh.h"
#include "kit/kit.h"

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static struct kit_batches batches;
static bool can_look; /* if false, no namespace counts as new */

/* An answer with its descriptors, which are closed when it is sent. */
struct result {
    struct kit_answer answer;
    int fds[KIT_MAX_FDS];
    unsigned count;
};

/* Where the rules failed, looks for the module that is missing. */
static void name_part(struct kit_answer *answer, enum kit_part part)
{
    struct kit_answer probed;
    answer->part = part;
    if (part == PART_RULES && probe_kit(&batches, &probed) < 0)
        answer->part = probed.part;
}

static int install(struct result *to)
{
    struct kit kit;
    enum kit_part part;
    int r = kit_install(&batches, &kit, &part);
    if (r < 0) {
        name_part(&to->answer, part);
        return r;
    }
    to->answer.has_v6 = kit.has_v6;
    for (unsigned i = 0; i < KIT_COUNT; i++) {
        if (kit.fds[i] >= 0)
            to->fds[to->count++] = kit.fds[i];
    }
    return 0;
}

static int make(struct result *to, bool is_ready)
{
    enum kit_part part;
    int fd = place_make(&part);
    to->answer.part = part;
    if (fd < 0)
        return fd;
    to->fds[to->count++] = fd;
    return is_ready ? install(to) : 0;
}

static int install_into(int fd, struct result *to)
{
    to->answer.part = PART_NAMESPACE;
    int r = fault_error(PART_NAMESPACE);
    if (r == 0)
        r = place_enter_box(fd);
    return r < 0 ? r : install(to);
}

static int follow(const struct kit_order *order, int fd, struct result *to)
{
    switch (order->kind) {
    case KIT_MAKE:
    case KIT_MAKE_READY:
        return make(to, order->kind == KIT_MAKE_READY);
    case KIT_LOOK:
        to->answer.is_fresh = can_look && fd >= 0 && fresh_check(fd);
        return 0;
    case KIT_FORGET:
        fresh_forget(fd);
        return 0;
    case KIT_INSTALL:
        return install_into(fd, to);
    case KIT_PROBE:
        return probe_kit(&batches, &to->answer);
    default:
        return -EINVAL;
    }
}

static void close_all(struct result *to)
{
    while (to->count)
        close_fd(&to->fds[--to->count]);
}

static int start(void)
{
    enum kit_part part;
    (void)prctl(PR_SET_NAME, "hermes-network", 0, 0, 0);
    int r = place_begin();
    if (r < 0 || (r = rules_prepare(&batches)) < 0)
        return r;
    cleanup_close int first = place_make(&part);
    can_look = first >= 0 && fresh_learn() == 0;
    return place_leave();
}

int main(void)
{
    struct kit_order order;
    unsigned count;
    int fd = -1;
    if (start() < 0)
        return 1;
    while (fdpass_receive(KIT_SOCKET_FD, &order, sizeof(order), &fd, 1, &count) ==
           (ssize_t)sizeof(order)) {
        struct result to = {.answer = {.kind = order.kind, .part = PART_NAMESPACE}};
        int r = follow(&order, count ? fd : -1, &to);
        to.answer.error = r;
        if (r < 0)
            close_all(&to);
        /* our process must not keep the namespace alive that the spawner gets */
        if (place_leave() < 0 ||
            fdpass_send(KIT_SOCKET_FD, &to.answer, sizeof(to.answer), to.fds, to.count) < 0)
            return 1;
        close_all(&to);
        close_fd(&fd);
    }
    return 0;
}
