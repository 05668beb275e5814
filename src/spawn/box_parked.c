/* SPDX-License-Identifier: Apache-2.0 */

/* Ready boxes: made before a request comes, by a zygote (zygote.h) or with the program of a
 * pool (pool.h). They wait for their package. Each serves one run or session. */

#include "spawn/box_parts.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/fdpass.h"

#include <errno.h>
#include <sys/epoll.h>

static int park(struct spawner *s, struct box *box, const struct spawn_box *request)
{
    uint32_t step;
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
    struct box *box = box_new(s, STATE_PARKED, box_kind_for(z->flags, zygote), zygote);
    if (!box)
        return -EAGAIN;
    z->parked++;
    return park(s, box, &request);
}

int box_park_program(struct spawner *s, int pool)
{
    struct pool *p = &s->pools[pool];
    const struct spawn_box request = {
        .kind = SPAWN_BOX, .root = p->root, .exec = p->exec, .limits = p->limits};
    struct box *box = box_new(s, STATE_PARKED, KIND_POOL, pool);
    if (!box)
        return -EAGAIN;
    p->parked++;
    return park(s, box, &request);
}

/* Ends a ready box whose kit could not be made: no run may use it. */
static void end_unequipped(struct spawner *s, struct box *box, int error)
{
    if (error < 0)
        box_fail(s, box, STEP_KIT, error);
}

bool box_equip_parked(struct spawner *s, int zygote)
{
    for (unsigned i = 0; i < s->box_end; i++) {
        struct box *box = &s->boxes[i];
        if (box->state == STATE_READY && box->kind->ahead == &zygote_ahead &&
            box->maker == zygote && !box->egress.is_spoilt)
            return egress_install(s, box, end_unequipped) > 0;
    }
    return false;
}

/* Ends a ready box. From here on it belongs to no pool or zygote. */
static void drop(struct spawner *s, struct box *box)
{
    box_enter(s, box, STATE_STARTING);
    box_fail(s, box, STEP_RELEASE, -ECANCELED);
}

/* Whether it is a ready box, its process exists, and it does not wait for a kit. */
static bool is_ahead(const struct box *box)
{
    return (box->state == STATE_PARKED || box->state == STATE_READY) && box->pidfd >= 0 &&
           !box->egress.then;
}

bool box_drop_parked(struct spawner *s, const struct box_ahead *of, int maker)
{
    struct box *found = NULL;
    for (unsigned i = 0; i < s->box_end; i++) {
        struct box *box = &s->boxes[i];
        bool is_its = !of || (box->kind->ahead == of && box->maker == maker);
        if (is_ahead(box) && is_its && (!found || box->state == STATE_PARKED))
            found = box;
    }
    if (found)
        drop(s, found);
    return found;
}

/* Whether the box's network namespace served another key before. */
static bool is_of_another(const struct box *box, const struct spawn_box *request)
{
    return box->network_key != NETWORK_NEW && box->network_key != request->owner;
}

/* Whether `a` is the better choice: a box that has a kit, a box that is ready already, and of
 * those one that no other key could have, and of those the youngest, which is still in the CPU
 * caches. Of boxes that are not ready the oldest. */
static bool is_better(const struct box *a, const struct box *b)
{
    bool is_ready = a->state == STATE_READY;
    if (a->egress.is_spoilt != b->egress.is_spoilt)
        return a->egress.is_spoilt;
    if (a->state != b->state)
        return is_ready;
    if ((a->network_key == NETWORK_NEW) != (b->network_key == NETWORK_NEW))
        return b->network_key == NETWORK_NEW;
    return is_ready == (a->request_ns > b->request_ns);
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
        /* a box that asks for no network never gets a namespace that has a kit */
        if (!is_ahead(box) || (box->egress.is_spoilt && !(request->flags & BOX_NETWORK)) ||
            !box->kind->ahead->fits(s, box, request))
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

/* Gives a ready box its package. */
static int send_package(struct spawner *s, struct box *box, const int *fds, unsigned fd_count)
{
    const struct zygote_hand hand = {.flags = box->flags,
        .cpu_s = box->limits.cpu_s,
        .file_bytes = box->limits.file_bytes,
        .stack_bytes = box->limits.stack_bytes};
    int r = fdpass_send(box->hand, &hand, sizeof(hand), fds, fd_count);
    close_fd(&box->hand);
    if (r == 0)
        egress_adopt(s, box);
    return r;
}

/* The kit of a ready box that serves a request is there. */
static void send_late(struct spawner *s, struct box *box, int error)
{
    int r = error < 0 ? error : send_package(s, box, box->kept, box->kept_count);
    if (error < 0)
        box->status = (int32_t)box->egress.part;
    if (r < 0)
        box_fail(s, box, error < 0 ? STEP_KIT : STEP_RELEASE, r);
    while (box->kept_count)
        close_fd(&box->kept[--box->kept_count]);
}

/* Has a ready box serve a request. From here on it is like any other box. */
static int hand_over(struct spawner *s, struct box *box, const struct spawn_box *request,
    int *fds, unsigned fd_count)
{
    box_enter(s, box, STATE_STARTING);
    box_own(s, box, request->owner, take_fd(&fds[0]));
    shares_weigh(s, box);
    box->request_ns = clock_ns();
    box->flags = request->flags;
    box->limits = request->limits;
    box->kind->ahead->note_base(s, box);
    int r = cgroup_leaf_limit(&s->cgroups, &request->limits, 0, &box->leaf);
    if (r == 0)
        r = box_give_pipes(s, box, fds + 2, fd_count - 2);
    if (r == 0)
        r = box_watch(s, box, box->socket, TAG_SOCKET);
    if (r == 0 && request->flags & BOX_COLLECT) {
        const int collect[] = {fds[1], fds[--fd_count]};
        r = fdpass_send(box->link, "c", 1, collect, 2);
    }
    if (r == 0)
        r = egress_equip(s, box, send_late);
    if (r == 0)
        return send_package(s, box, fds + 1, fd_count - 1);
    if (r > 0)
        box_keep_ends(box, fds + 1, fd_count - 1);
    return r;
}

/* Passes over ready boxes that have died meanwhile. */
bool box_serve_parked(
    struct spawner *s, const struct spawn_box *request, int *fds, unsigned fd_count)
{
    struct box *box;
    while ((box = find_parked(s, request))) {
        int r = hand_over(s, box, request, fds, fd_count);
        if (r >= 0)
            return true;
        s->channel = take_fd(&box->egress.channel);
        /* The next box will watch the same socket. */
        (void)epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, box->socket, NULL);
        fds[0] = take_fd(&box->socket);
        box_fail(s, box, STEP_RELEASE, r);
    }
    return false;
}
