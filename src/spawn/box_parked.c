/* SPDX-License-Identifier: Apache-2.0 */

/* Ready boxes: made before a request comes, by a zygote (zygote.h) or with the program of a
 * pool (pool.h). They wait for their package. Each serves one run or session. */

#include "spawn/box_parts.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fdpass.h"

#include <errno.h>
#include <sys/epoll.h>

static int park(struct spawner *s, struct box *box, const struct spawn_box *request)
{
    uint32_t step;
    box->is_parked = true;
    int r = box_build(s, box, request, NULL, 0, &step);
    if (r < 0)
        box_fail(s, box, step, r);
    return r;
}

int box_park(struct spawner *s, int zygote)
{
    struct zygote *z = &s->zygotes[zygote];
    const struct spawn_box request = {
        .kind = SPAWN_BOX, .root = z->root, .flags = BOX_WARM | z->flags, .limits = z->limits};
    struct box *box = box_new(s, -1, zygote);
    if (!box)
        return -EAGAIN;
    box->is_session = z->flags & BOX_CHANNEL;
    z->parked++;
    return park(s, box, &request);
}

int box_park_program(struct spawner *s, int pool)
{
    struct pool *p = &s->pools[pool];
    const struct spawn_box request = {
        .kind = SPAWN_BOX, .root = p->root, .exec = p->exec, .limits = p->limits};
    struct box *box = box_new(s, -1, -1);
    if (!box)
        return -EAGAIN;
    box->pool = pool;
    p->parked++;
    return park(s, box, &request);
}

/* Ends a ready box. From here on it belongs to no pool or zygote. */
static void drop(struct spawner *s, struct box *box)
{
    if (box->pool >= 0)
        pool_drop(&s->pools[box->pool], !box->is_ready);
    else
        s->zygotes[box->zygote].parked--;
    box->is_parked = false;
    s->running += !box->is_session;
    box_fail(s, box, STEP_RELEASE, -ECANCELED);
}

bool box_drop_parked(struct spawner *s, int pool)
{
    struct box *found = NULL;
    for (unsigned i = 0; i < s->box_end; i++) {
        struct box *box = &s->boxes[i];
        if (box->used && box->is_parked && !box->is_unborn && !box->failed &&
            (pool < 0 || box->pool == pool) && (!found || !box->is_ready))
            found = box;
    }
    if (found)
        drop(s, found);
    return found;
}

static bool parked_fits(
    const struct spawner *s, const struct box *box, const struct spawn_box *request)
{
    if (box->pool >= 0)
        return box->is_ready && pool_fits(&s->pools[box->pool], request);
    return zygote_fits(s, &s->zygotes[box->zygote], request);
}

/* Whether the box's network namespace served another key before. */
static bool is_of_another(const struct box *box, const struct spawn_box *request)
{
    return box->network_key != NETWORK_NEW && box->network_key != request->owner;
}

/* Whether `a` is the better choice: a box that is ready already, and of those one that no other
 * key could have, and of those the youngest, which is still in the CPU caches. Of boxes that
 * are not ready the oldest. */
static bool is_better(const struct box *a, const struct box *b)
{
    if (a->is_ready != b->is_ready)
        return a->is_ready;
    if ((a->network_key == NETWORK_NEW) != (b->network_key == NETWORK_NEW))
        return b->network_key == NETWORK_NEW;
    return a->is_ready == (a->request_ns > b->request_ns);
}

/* The ready box for this request: same program, fitting limits, nothing that it was not made
 * with, a network namespace that served no other key. If all that fit served other keys, one of
 * them makes room for a ready box of this key. */
static struct box *find_parked(struct spawner *s, const struct spawn_box *request)
{
    struct box *found = NULL;
    struct box *other = NULL;
    for (unsigned i = 0; i < s->box_end; i++) {
        struct box *box = &s->boxes[i];
        if (!box->used || !box->is_parked || box->is_unborn || box->failed ||
            !parked_fits(s, box, request))
            continue;
        if (is_of_another(box, request))
            other = box;
        else if (!found || is_better(box, found))
            found = box;
    }
    if (!found && other)
        drop(s, other);
    return found;
}

/* Usage counts from here. The memory of a pool's program counts, because a cold box has it,
 * too; only what the rehearsal left is subtracted. The memory of a zygote's child is mostly
 * shared with the zygote and does not count. */
static void note_base(struct spawner *s, struct box *box)
{
    struct cgroup_usage usage;
    if (box->pool >= 0) {
        cgroup_leaf_usage(&s->cgroups, &box->leaf, &usage);
        box->base_cpu_ns = usage.cpu_ns;
        uint64_t base = s->pools[box->pool].base_bytes;
        if (base)
            box->base_memory = box_above(cgroup_leaf_memory(&s->cgroups, &box->leaf), base);
        pool_drop(&s->pools[box->pool], false);
        return;
    }
    box->base_memory = cgroup_leaf_memory(&s->cgroups, &box->leaf);
    s->zygotes[box->zygote].base_memory = box->base_memory;
    s->zygotes[box->zygote].parked--;
}

/* Gives a ready box its package. From here on it is like any other box. */
static int hand_over(struct spawner *s, struct box *box, const struct spawn_box *request,
    int *fds, unsigned fd_count)
{
    const struct zygote_hand hand = {.flags = request->flags,
        .cpu_s = request->limits.cpu_s,
        .file_bytes = request->limits.file_bytes,
        .stack_bytes = request->limits.stack_bytes};
    box->is_parked = false;
    s->running += !box->is_session;
    s->last_key = request->owner;
    shares_enter(s, box, request->owner);
    shares_weigh(s, box);
    box->socket = take_fd(&fds[0]);
    box->request_ns = clock_ns();
    box->limits = request->limits;
    note_base(s, box);
    int r = cgroup_leaf_limit(&s->cgroups, &request->limits, 0, &box->leaf);
    if (r == 0)
        r = box_give_pipes(s, box, fds + 2, fd_count - 2);
    if (r == 0)
        r = box_watch(s, box, box->socket, TAG_SOCKET);
    if (r == 0 && request->flags & BOX_COLLECT) {
        const int collect[] = {fds[1], fds[--fd_count]};
        box->collects = true;
        r = fdpass_send(box->link, "c", 1, collect, 2);
    }
    if (r == 0)
        r = fdpass_send(box->hand, &hand, sizeof(hand), fds + 1, fd_count - 1);
    close_fd(&box->hand);
    return r;
}

/* Passes over ready boxes that have died meanwhile. */
bool box_serve_parked(
    struct spawner *s, const struct spawn_box *request, int *fds, unsigned fd_count)
{
    struct box *box;
    while ((box = find_parked(s, request))) {
        int r = hand_over(s, box, request, fds, fd_count);
        if (r == 0)
            return true;
        /* The next box will watch the same socket. */
        (void)epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, box->socket, NULL);
        fds[0] = take_fd(&box->socket);
        box_fail(s, box, STEP_RELEASE, r);
    }
    return false;
}
