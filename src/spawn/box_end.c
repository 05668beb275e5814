/* SPDX-License-Identifier: Apache-2.0 */

/* The end of a box: kill it, account for it, report the end, give everything back. Separate
 * from box.c because a box can end at any point of its life. */

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/sys.h"
#include "spawn/box_parts.h"
#include "spawn/copy.h"

#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

/* How long box_kill_all() waits for all boxes together. */
enum { LAST_WAIT_MS = 5000 };

void box_kill(struct spawner *s, struct box *box)
{
    /* Dying takes CPU time, too: an idle box has too little of it on a busy host. */
    shares_set_busy(s, box);
    box->is_dying = !box->forks;
    (void)cgroup_leaf_kill(&s->cgroups, &box->leaf);
    fork_helped(s, box);
    if (box->pidfd >= 0 && !box->forks) /* box init stays alive while there are copies */
        (void)sys_pidfd_send_signal(box->pidfd, SIGKILL);
}

uint64_t box_above(uint64_t value, uint64_t base)
{
    return value > base ? value - base : 0;
}

void box_fill_usage(const struct spawner *s, const struct box *box,
    const struct cgroup_usage *usage, struct spawn_event *event)
{
    if (s->cgroups.use & TREE_KILL || s->cgroups.use & TREE_CPUACCT)
        event->cpu_ns = box_above(usage->cpu_ns, box->base_cpu_ns);
    else
        event->cpu_ns = box->init_cpu_ns;
    if (s->cgroups.use & TREE_MEMORY)
        event->memory_bytes =
            box_above(event->kind == EVENT_USAGE ? cgroup_leaf_memory(&s->cgroups, &box->leaf)
                                                 : usage->peak_bytes,
                box->base_memory);
    else
        event->memory_bytes = box->init_rss;
}

/* v1 raises an event when the limit is reached; it may be readable only now. Without an event
 * the host was out of memory, and the box was only large. */
bool box_hit_memory(struct box *box, const struct cgroup_usage *usage)
{
    uint64_t count;
    if (!usage->is_limit)
        return false;
    if (box->leaf.oom_fd >= 0 && read(box->leaf.oom_fd, &count, sizeof(count)) > 0)
        box->oom_event = true;
    return box->leaf.oom_fd < 0 || box->oom_event;
}

/* Whether the limit of all boxes together refused a process since this box began. The kernel
 * does not say in which box, so this is asked only for programs that failed. */
static bool was_crowded(struct spawner *s, const struct box *box)
{
    uint64_t refusals = cgroup_host_refusals(&s->cgroups);
    if (refusals != s->refusals)
        s->refused_ns = clock_ns();
    s->refusals = refusals;
    return s->refused_ns > box->start_ns;
}

void box_tell_end(struct spawner *s, struct box *box)
{
    struct cgroup_usage usage;
    cgroup_leaf_usage(&s->cgroups, &box->leaf, &usage);
    struct spawn_event event = {.kind = EVENT_ENDED,
        .cgroup = s->cgroups.mode,
        .wait_status = box->status,
        .start_ns = box->start_ns,
        .end_ns = box->end_ns ? box->end_ns : clock_ns(),
        .setup_ns = box_above(box->start_ns, box->request_ns)};
    bool oom = box_hit_memory(box, &usage);
    bool is_short = usage.oom_kill && !oom;
    bool crowded = usage.crowded || (box->end_ns && box->status && was_crowded(s, box));
    event.flags = (box->end_ns ? ENDED_EXITED : 0u) | (oom ? ENDED_OOM : 0u) |
                  (is_short ? ENDED_SHORT : 0u) | (usage.pids_max ? ENDED_PIDS : 0u) |
                  (box->disk_full ? ENDED_DISK : 0u) | (crowded ? ENDED_CROWDED : 0u);
    bool has_collected = box->flags & BOX_COLLECT && box->end_ns;
    box_fill_usage(s, box, has_collected ? &box->at_exit : &usage, &event);
    if (box->error && box->start_ns && box->step == STEP_EXEC) {
        event.flags |= ENDED_EXEC_FAILED;
        event.error = box->error;
    } else if (!box->start_ns && !box->killed && !oom) {
        event.kind = EVENT_FAILED;
        event.step = box->error ? box->step : STEP_INIT;
        event.error = box->error ? box->error : is_short ? -ENOMEM : -ECHILD;
    }
    box_enter(s, box, STATE_TOLD);
    if (box->forks)
        shares_set_idle(s, box); /* only box init goes on, for the copies */
    else
        egress_drop(s, box); /* at once: the answer waits for the record of the network */
    box_tell(box->socket, &event);
    close_fd(&box->socket);
}

/* Whether another box may use this leaf: only if its run ended by itself, and was not a copy.
 * cgroup_leaf_renew() checks the rest later. */
static bool can_keep_leaf(const struct spawner *s, const struct box *box)
{
    return s->setup.networks && s->leaves.used_max && box->end_ns && !box->killed &&
           !box->error && !box->oom_event && box->kind->make && box->leaf.is_limited;
}

static void release_leaf(struct spawner *s, struct box *box)
{
    /* Closing is not enough: a child that was forked a moment ago still holds the descriptor,
     * and epoll would go on reporting it. */
    if (box->leaf.oom_fd >= 0)
        (void)epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, box->leaf.oom_fd, NULL);
    if (can_keep_leaf(s, box))
        leaves_keep(&s->leaves, &s->cgroups, &box->leaf);
    else
        leaves_remove(&s->leaves, &s->cgroups, &box->leaf);
    if (box->is_aside)
        leaves_remove(&s->leaves, &s->cgroups, &box->aside);
}

static void leave_family(struct spawner *s, const struct box *box);

void box_release(struct spawner *s, struct box *box)
{
    close_fd(&box->link);
    close_fd(&box->hand);
    close_fd(&box->pidfd);
    close_fd(&box->users_fd);
    for (unsigned i = 0; i < COPY_PLACES; i++)
        close_fd(&box->places[i]);
    egress_drop(s, box);
    while (box->kept_count)
        close_fd(&box->kept[--box->kept_count]);
    if (box->network >= 0)
        network_return(&s->network, box->network_owner,
            box->has_owner ? box->owner : box->network_key, take_fd(&box->network),
            box->egress.is_spoilt);
    release_leaf(s, box);
    if (box->slot >= 0)
        ids_release(&s->ids, box->slot, box->flags & BOX_FORKS);
    s->running -= box->has_owner && !box->kind->is_session;
    close_fd(&box->socket);
    shares_leave(s, box);
    box->state = STATE_FREE;
    fork_reap_helpers(box, true);
    leave_family(s, box);
}

/* When the last copy of a session that is over has gone, box init goes, too. */
static void leave_family(struct spawner *s, const struct box *box)
{
    struct box *root = &s->boxes[box->root];
    if (root == box)
        return;
    root->fork_ids &= ~(1u << box->fork_number);
    if (--root->forks || root->state == STATE_FREE)
        return;
    if (root->state == STATE_DESERTED)
        box_release(s, root);
    else if (root->state == STATE_TOLD || root->killed)
        box_kill(s, root);
}

static void reap(const struct box *box)
{
    siginfo_t info;
    while (waitid(P_PIDFD, (id_t)box->pidfd, &info, WEXITED) < 0 && errno == EINTR)
        ;
}

bool box_give_way(struct spawner *s, int error)
{
    bool is_kept = s->leaves.spare_count || s->leaves.used_count || s->network.ready.count ||
                   s->network.kit_count;
    if (!is_kept || (error != -EMFILE && error != -ENFILE))
        return false;
    leaves_clear(&s->leaves, &s->cgroups);
    network_forget(&s->network);
    return true;
}

/* Ends a box that failed before the go-ahead. A child that exists already is killed, but not
 * waited for: other boxes would wait, too. on_end() reports and cleans up. */
void box_fail(struct spawner *s, struct box *box, uint32_t step, int error)
{
    (void)box_give_way(s, error);
    box_note_failure(s, box, step, error);
    box_kill(s, box);
    close_fd(&box->link); /* a child that waits for its go-ahead sees the end of the link */
    if (box->pidfd >= 0) {
        if (box->watched || box_watch(s, box, box->pidfd, TAG_PIDFD) == 0)
            return;
        reap(box);
    }
    box_tell_end(s, box);
    box_release(s, box);
}

/* A box that the kernel has not ended after LAST_WAIT_MS is left alone. The next spawner
 * removes its control group, because the lock on it goes when this spawner ends. */
void box_kill_all(struct spawner *s)
{
    uint64_t deadline_ms = clock_ms() + LAST_WAIT_MS;
    for (unsigned i = 0; i < s->box_end; i++) {
        struct box *box = &s->boxes[i];
        if (!box->state)
            continue;
        box_kill(s, box);
        /* box_kill() spares box init while there are copies */
        if (box->forks && box->pidfd >= 0)
            (void)sys_pidfd_send_signal(box->pidfd, SIGKILL);
        /* box init, which is waited for first, cannot end before these are reaped */
        fork_reap_helpers(box, true);
    }
    for (unsigned i = 0; i < s->box_end; i++) {
        struct box *box = &s->boxes[i];
        if (!box->state)
            continue;
        uint64_t now = clock_ms();
        struct pollfd dead = {.fd = box->pidfd, .events = POLLIN};
        if (box->pidfd < 0 ||
            poll(&dead, 1, now < deadline_ms ? (int)(deadline_ms - now) : 0) > 0) {
            reap(box);
            if (box->error && box->state < STATE_TOLD)
                box_tell_end(s, box);
            box_release(s, box);
        }
    }
    leaves_clear(&s->leaves, &s->cgroups);
}
