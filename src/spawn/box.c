/* SPDX-License-Identifier: Apache-2.0 */

/* See box.h. The order of box_start() is the order of the construction in docs/security.md:
 * group with its limits first, then clone into it, then ids, then the go-ahead. Until that byte
 * is sent the child does nothing; when we fail before it, it dies without having run anything.
 */

#include "spawn/box_parts.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "spawn/fork.h"
#include "spawn/idmap.h"
#include "spawn/inside.h"
#include "spawn/request.h"
#include "spawn/sys.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LAST_WAIT_MS = 5000 };

void box_tell(int socket, const struct spawn_event *event)
{
    (void)send(socket, event, sizeof(*event), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Programs open /dev/stdout and the like by name, which the kernel allows the owner only. */
int box_give_pipes(
    const struct spawner *s, const struct box *box, const int *fds, unsigned count)
{
    uid_t uid = ids_payload(&s->ids, box->slot);
    for (unsigned i = 0; i < count; i++) {
        if (request_is_pipe(fds[i]) && fchown(fds[i], uid, uid) < 0)
            return -errno;
    }
    return 0;
}

int box_watch(struct spawner *s, struct box *box, int fd, enum box_tag tag)
{
    struct epoll_event e = {
        .events = EPOLLIN, .data.u64 = (uint64_t)(box - s->boxes) * TAG_COUNT + tag};
    return epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &e) < 0 ? -errno : 0;
}

static uint64_t clone_flags(const struct inside *in)
{
    uint32_t remove = in->box->remove;
    uint64_t flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC |
                     CLONE_NEWUTS | CLONE_PIDFD | CLONE_CLEAR_SIGHAND;
    if (in->has_network || remove & BARRIER_NETNS)
        flags &= ~(uint64_t)CLONE_NEWNET;
    if (remove & BARRIER_IPCNS)
        flags &= ~(uint64_t)CLONE_NEWIPC;
    if (remove & BARRIER_UTSNS)
        flags &= ~(uint64_t)CLONE_NEWUTS;
    return flags;
}

/* Clones box init; returns its pid. Only the parent returns. */
static int clone_init(const struct spawner *s, struct box *box, struct inside *in)
{
    int into = cgroup_leaf_into_fd(&s->cgroups, &box->leaf);
    struct sys_clone_args args = {.flags = clone_flags(in),
        .pidfd = (uint64_t)(uintptr_t)&box->pidfd,
        .exit_signal = SIGCHLD};
    if (into >= 0) {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = (uint64_t)into;
    }
    int pid = sys_clone3(&args);
    if (pid == 0)
        inside_run(in);
    return pid;
}

/* The same from within a network namespace that was made ahead, if there is one. A spawner that
 * could not come back would give the next box this one's network. */
static int clone_in_network(struct spawner *s, struct box *box, struct inside *in)
{
    if (!(in->box->remove & BARRIER_NETNS))
        box->network = network_take(&s->network, box->network_owner);
    in->has_network = box->network >= 0 && network_enter(box->network) == 0;
    int pid = clone_init(s, box, in);
    int r = in->has_network ? network_leave(&s->network) : 0;
    s->is_lost = s->is_lost || r < 0;
    return r < 0 ? r : pid;
}

static int map_ids(const struct spawner *s, const struct box *box, int pid)
{
    char path[32];
    (void)snprintf(path, sizeof(path), "/proc/%d", pid);
    cleanup_close int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : ids_map(&s->ids, box->slot, box->flags & BOX_FORKS, fd);
}

static int enter_root(struct spawner *s, uint32_t root)
{
    int ns = s->roots[root].ns_fd;
    int r = ns == s->current_ns ? 0 : tree_enter(ns);
    if (r == 0)
        s->current_ns = ns;
    return r;
}

static int watch_all(struct spawner *s, struct box *box)
{
    int r = box_watch(s, box, box->pidfd, TAG_PIDFD);
    box->watched = r == 0;
    if (r == 0 && box->socket >= 0)
        r = box_watch(s, box, box->socket, TAG_SOCKET);
    if (r == 0)
        r = box_watch(s, box, box->link, TAG_LINK);
    if (r == 0 && box->leaf.oom_fd >= 0)
        r = box_watch(s, box, box->leaf.oom_fd, TAG_OOM);
    return r;
}

static void close_mounts(struct inside *in)
{
    for (unsigned i = 0; i < SPAWN_MAX_BOX_MOUNTS; i++)
        close_fd(&in->mount_fds[i]);
}

/* Writable directories for a payload with an id of its own. We are in the root's namespace. */
static int open_mounts(const struct spawner *s, const struct box *box, struct inside *in)
{
    for (unsigned i = 0; i < SPAWN_MAX_BOX_MOUNTS; i++)
        in->mount_fds[i] = -1;
    for (uint32_t i = 0; s->ids.unique && i < in->box->mount_count; i++) {
        char source[16];
        if (!in->box->mounts[i].writable)
            continue;
        (void)snprintf(source, sizeof(source), "m/%u", in->box->mounts[i].source);
        in->mount_fds[i] = idmap_clone(source, ids_payload(&s->ids, box->slot));
        if (in->mount_fds[i] < 0)
            return in->mount_fds[i];
    }
    return 0;
}

static void remove_leaf(struct spawner *s, struct cgroup_leaf *leaf)
{
    if (cgroup_leaf_remove(&s->cgroups, leaf) == -EBUSY && s->dying_count < MAX_DYING)
        s->dying[s->dying_count++] = *leaf;
}

/* Of the leaves that served before, the one that did so the longest ago. */
static struct cgroup_leaf pick_used(struct spawner *s)
{
    struct cgroup_leaf leaf = s->used[0];
    memmove(s->used, s->used + 1, --s->used_count * sizeof(leaf));
    return leaf;
}

/* One that served before, or a new one if there is any. */
static void take_leaf(
    struct spawner *s, const struct spawn_box *request, struct cgroup_leaf *leaf)
{
    while (s->used_count && !request->remove) {
        *leaf = pick_used(s);
        if (cgroup_leaf_renew(&s->cgroups, leaf) &&
            cgroup_leaf_limit(&s->cgroups, &request->limits, 0, leaf) == 0)
            return;
        remove_leaf(s, leaf);
        cgroup_leaf_init(leaf);
    }
    if (s->spare_count)
        *leaf = s->spares[--s->spare_count];
}

/* Slot, group with its limits, link. *ret_link is the box's end of the link. */
static int open_box(struct spawner *s, struct box *box, const struct spawn_box *request,
    int *ret_link, uint32_t *ret_step)
{
    int r;
    int pair[2];
    *ret_step = STEP_SLOT;
    box->flags = request->flags;
    box->limits = request->limits;
    if ((r = ids_claim(&s->ids, request->flags & BOX_FORKS)) < 0)
        return r;
    box->slot = r;
    take_leaf(s, request, &box->leaf);
    if ((r = cgroup_leaf_make(
             &s->cgroups, &request->limits, request->remove, &box->leaf, ret_step)) < 0)
        return r;
    *ret_step = STEP_CHANNELS;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    box->link = pair[0];
    *ret_link = pair[1];
    /* A box that does not listen must not make us wait. */
    return fcntl(box->link, F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

/* The way of a job into a box that is made ahead. */
static int open_hand(struct box *box, int *ret_theirs)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    box->hand = pair[0];
    *ret_theirs = pair[1];
    return 0;
}

/* `fds` as for a request, or NULL for a box that is parked until it gets them by box->hand. */
static int start_cold(struct spawner *s, struct box *box, const struct spawn_box *request,
    const int *fds, unsigned fd_count, int link_fd, uint32_t *ret_step)
{
    int r;
    *ret_step = STEP_CLONE;
    if ((r = enter_root(s, request->root)) < 0)
        return r;
    bool has_stdin = fds && request->flags & BOX_STDIN;
    cleanup_close int hand = -1;
    if (!fds && (r = open_hand(box, &hand)) < 0)
        return r;
    struct inside in = {.box = request,
        .exec_path = s->roots[request->root].execs[request->exec],
        .unique_ids = s->ids.unique,
        .has_memory = s->cgroups.use & TREE_MEMORY,
        .landlock_abi = s->landlock_abi,
        .link_fd = link_fd,
        .job_fd = fds ? fds[1] : s->pools[box->pool].job_fd,
        .stdout_fd = fds ? fds[2] : -1,
        .stderr_fd = fds ? fds[3] : -1,
        .stdin_fd = has_stdin ? fds[4] : -1,
        .collect_fd = fds && box->collects ? fds[fd_count - 1] : -1,
        .channel_fd = fds && box->is_session ? fds[fd_count - 1] : -1,
        .hand_fd = hand};
    *ret_step = STEP_MOUNT;
    if ((r = open_mounts(s, box, &in)) < 0 ||
        (r = cgroup_leaf_open_joins(&s->cgroups, &box->leaf, false, in.join_fds)) < 0) {
        close_mounts(&in);
        return r;
    }
    *ret_step = STEP_CLONE;
    in.join_count = r;
    int pid = clone_in_network(s, box, &in);
    close_mounts(&in);
    for (int i = 0; i < in.join_count; i++)
        (void)close(in.join_fds[i]);
    if (pid < 0)
        return pid;
    *ret_step = STEP_IDMAP;
    return map_ids(s, box, pid);
}

static int start_warm(struct spawner *s, struct box *box, const struct spawn_box *request,
    const int *fds, unsigned fd_count, int link_fd, uint32_t *ret_step)
{
    struct zygote_request ask = {.box = *request,
        .payload_uid = ids_payload(&s->ids, box->slot),
        .has_memory = !!(s->cgroups.use & TREE_MEMORY),
        .landlock_abi = (uint32_t)s->landlock_abi,
        .is_parked = !fds};
    int send[2 + CGROUP_MAX_TREES + BOX_MAX_FDS];
    unsigned count = 0;
    cleanup_close int hand = -1;
    box->network_owner = s->zygotes[box->zygote].now.serial;
    box->network = network_take(&s->network, box->network_owner);
    ask.has_network = box->network >= 0;
    send[count++] = link_fd;
    *ret_step = STEP_CHANNELS;
    int r = cgroup_leaf_open_joins(&s->cgroups, &box->leaf, true, send + count);
    if (r < 0)
        return r;
    ask.join_count = (uint32_t)r;
    count += (unsigned)r;
    if (ask.has_network)
        send[count++] = box->network;
    if (!fds)
        r = open_hand(box, &hand);
    if (!fds)
        send[count++] = hand;
    for (unsigned i = 1; fds && i < fd_count; i++)
        send[count++] = fds[i];
    *ret_step = STEP_CLONE;
    if (r >= 0)
        r = zygote_ask(&s->zygotes[box->zygote], &ask, send, count, (unsigned)(box - s->boxes));
    for (unsigned i = 0; i < ask.join_count; i++)
        (void)close(send[1 + i]);
    box->is_unborn = r >= 0;
    return r < 0 ? r : 0;
}

/* The last of box_build(): the box is watched, and may go on. */
static int release_init(struct spawner *s, struct box *box, uint32_t remove, uint32_t *ret_step)
{
    int r;
    *ret_step = STEP_CGROUP_LIMIT;
    if ((r = cgroup_leaf_watch_oom(&s->cgroups, &box->leaf, remove)) < 0)
        return r;
    *ret_step = STEP_RELEASE;
    if ((r = watch_all(s, box)) < 0)
        return r;
    if (send(box->link, "g", 1, MSG_NOSIGNAL) != 1)
        return -errno;
    cgroup_leaf_open_counters(&s->cgroups, &box->leaf); /* at the end somebody waits */
    return 0;
}

/* From the group to the go-ahead, or to the zygote's turn. On failure *ret_step names the step;
 * the caller cleans up. */
int box_build(struct spawner *s, struct box *box, const struct spawn_box *request,
    const int *fds, unsigned fd_count, uint32_t *ret_step)
{
    cleanup_close int link_fd = -1;
    int r = open_box(s, box, request, &link_fd, ret_step);
    if (r < 0 || (fds && (r = box_give_pipes(s, box, fds + 2, fd_count - 2)) < 0))
        return r;
    r = box->zygote >= 0 ? start_warm(s, box, request, fds, fd_count, link_fd, ret_step)
                         : start_cold(s, box, request, fds, fd_count, link_fd, ret_step);
    return r < 0 || box->is_unborn ? r : release_init(s, box, request->remove, ret_step);
}

void box_kill(struct spawner *s, struct box *box)
{
    (void)cgroup_leaf_kill(&s->cgroups, &box->leaf);
    if (box->is_fork)
        fork_helped(s, box);
    /* Init stays while there are forks, and a fork whose process nobody has looked at is not
     * ours to kill. */
    if (box->pidfd >= 0 && !box->forks && (!box->is_fork || box->is_known))
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
    bool oom = usage.oom_kill || box->oom_event;
    event.flags = (box->exited ? ENDED_EXITED : 0u) | (oom ? ENDED_OOM : 0u) |
                  (usage.pids_max ? ENDED_PIDS : 0u) | (box->disk_full ? ENDED_DISK : 0u);
    box_fill_usage(s, box, box->collects && box->exited ? &box->at_exit : &usage, &event);
    if (box->failed && box->started && box->step == STEP_EXEC) {
        event.flags |= ENDED_EXEC_FAILED;
        event.error = box->error;
    } else if (!box->started && !box->killed && !oom) {
        event.kind = EVENT_FAILED;
        event.step = box->failed ? box->step : STEP_INIT;
        event.error = box->failed ? box->error : -ECHILD;
    }
    box->told = true;
    box_tell(box->socket, &event);
    close_fd(&box->socket);
}

/* Whether the leaf of a box may serve another: that of a plain run that has ended by itself.
 * Who takes it looks at what is left in it. */
static bool can_keep_leaf(const struct spawner *s, const struct box *box)
{
    return s->setup.networks && s->used_max && box->exited && !box->killed && !box->failed &&
           !box->oom_event && !box->is_session && box->leaf.is_limited;
}

static void release_leaf(struct spawner *s, struct box *box)
{
    if (can_keep_leaf(s, box)) {
        if (box->leaf.oom_fd >= 0)
            (void)epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, box->leaf.oom_fd, NULL);
        if (s->used_count == s->used_max) {
            struct cgroup_leaf oldest = pick_used(s);
            remove_leaf(s, &oldest);
        }
        s->used[s->used_count++] = box->leaf;
    } else {
        remove_leaf(s, &box->leaf);
    }
    if (box->is_aside)
        remove_leaf(s, &box->aside);
}

static void leave_family(struct spawner *s, const struct box *box);

/* Gives back all a box holds; its processes are dead and reaped. */
void box_release(struct spawner *s, struct box *box)
{
    close_fd(&box->link);
    close_fd(&box->hand);
    close_fd(&box->pidfd);
    if (box->network >= 0)
        network_return(&s->network, box->network_owner, take_fd(&box->network));
    release_leaf(s, box);
    if (box->slot >= 0)
        ids_release(&s->ids, box->slot, box->flags & BOX_FORKS);
    if (box->is_parked && box->pool >= 0)
        pool_lose(&s->pools[box->pool], !box->is_ready);
    else if (box->is_parked)
        s->zygotes[box->zygote].parked--;
    else
        s->running -= !box->is_session;
    close_fd(&box->socket);
    box->used = false;
    if (box->is_fork) {
        fork_reap_files(box, true);
        leave_family(s, box);
    }
}

/* The last fork of a session that is over takes init along. */
static void leave_family(struct spawner *s, const struct box *box)
{
    struct box *root = &s->boxes[box->root];
    root->fork_ids &= ~(1u << box->fork_number);
    if (--root->forks || !root->used)
        return;
    if (root->init_gone)
        box_release(s, root);
    else if (root->told || root->killed)
        box_kill(s, root);
}

static void reap(const struct box *box)
{
    siginfo_t info;
    while (waitid(P_PIDFD, (id_t)box->pidfd, &info, WEXITED) < 0 && errno == EINTR)
        ;
}

/* A failure before the go-ahead. A child that exists already is killed; how long the kernel
 * takes for that is not waited for here, where other boxes would wait too: on_end() tells and
 * cleans up.
 */
void box_fail(struct spawner *s, struct box *box, uint32_t step, int error)
{
    box->failed = true;
    box->step = step;
    box->error = error;
    close_fd(&box->link); /* a child that waits for its go-ahead sees the end */
    if (box->is_fork)
        box_kill(s, box);
    if (box->pidfd >= 0 && (!box->is_fork || box->is_known)) {
        box_kill(s, box);
        if (box->watched || box_watch(s, box, box->pidfd, TAG_PIDFD) == 0)
            return;
        reap(box);
    }
    box_tell_end(s, box);
    box_release(s, box);
}

struct box *box_new(struct spawner *s, int socket, int zygote)
{
    unsigned i = 0;
    while (i < MAX_BOXES && s->boxes[i].used)
        i++;
    if (i == MAX_BOXES)
        return NULL;
    s->box_end = i < s->box_end ? s->box_end : i + 1;
    s->boxes[i] = (struct box){.used = true,
        .socket = socket,
        .link = -1,
        .hand = -1,
        .network = -1,
        .pidfd = -1,
        .slot = -1,
        .zygote = zygote,
        .pool = -1,
        .request_ns = clock_ns()};
    cgroup_leaf_init(&s->boxes[i].leaf);
    cgroup_leaf_init(&s->boxes[i].aside);
    return &s->boxes[i];
}

static void refuse_request(int *fds, unsigned fd_count, int error)
{
    if (fd_count > 0)
        box_tell(fds[0],
            &(struct spawn_event){.kind = EVENT_FAILED, .step = STEP_REQUEST, .error = error});
}

/* A session lives long and mostly idle: it is none of the boxes that others wait for. */
static void note_kind(struct spawner *s, struct box *box, const struct spawn_box *request)
{
    box->collects = request->flags & BOX_COLLECT;
    box->is_session = request->flags & BOX_CHANNEL;
    s->running += !box->is_session;
}

/* The zygote could not: a cold box can. */
static void build_cold(struct spawner *s, struct box *unborn, const struct spawn_box *request,
    const int *fds, unsigned fd_count)
{
    uint32_t step;
    int socket = take_fd(&unborn->socket);
    box_release(s, unborn);
    struct box *box = box_new(s, socket, -1); /* there is room: for one, its own */
    note_kind(s, box, request);
    int r = box_build(s, box, request, fds, fd_count, &step);
    if (r < 0)
        box_fail(s, box, step, r);
}

/* What a cold box would need; closed when the zygote has made its own. */
static void keep_ends(struct box *box, int *fds, unsigned fd_count)
{
    box->kept_count = fd_count;
    for (unsigned i = 0; i < fd_count; i++)
        box->kept[i] = take_fd(&fds[i]);
}

void box_born(struct spawner *s, struct box *box, int error, int pidfd, int network)
{
    int fds[BOX_MAX_FDS];
    unsigned count = box->kept_count;
    uint32_t step = STEP_CLONE;
    memcpy(fds, box->kept, sizeof(fds));
    box->kept_count = 0;
    box->is_unborn = false;
    box->pidfd = pidfd;
    if (network >= 0) {
        close_fd(&box->network);
        box->network = network;
    }
    int r = error < 0 ? error : pidfd < 0 ? -EPROTO : release_init(s, box, 0, &step);
    if (r < 0 && box->pidfd < 0 && !box->is_parked) {
        const struct spawn_box request = {.kind = SPAWN_BOX,
            .root = s->zygotes[box->zygote].root,
            .flags = box->flags,
            .limits = box->limits};
        build_cold(s, box, &request, fds, count);
    } else if (r < 0) {
        box_fail(s, box, step, r);
    }
    for (unsigned i = 0; i < count; i++)
        close_fd(&fds[i]);
}

static void serve_request(
    struct spawner *s, const struct spawn_box *request, int *fds, unsigned fd_count)
{
    uint32_t step;
    if (request->flags & BOX_WARM && box_serve_parked(s, request, fds, fd_count))
        return;
    if (request->flags & BOX_WARM)
        pool_miss(s, request);
    struct box *box = box_new(s, -1, zygote_find(s, request));
    if (!box) {
        refuse_request(fds, fd_count, -EAGAIN);
        return;
    }
    box->socket = take_fd(&fds[0]);
    note_kind(s, box, request);
    int r = box_build(s, box, request, fds, fd_count, &step);
    if (r < 0 && box->zygote >= 0)
        build_cold(s, box, request, fds, fd_count);
    else if (r < 0)
        box_fail(s, box, step, r);
    else if (box->is_unborn)
        keep_ends(box, fds, fd_count);
}

void box_start(struct spawner *s, const struct spawn_box *request, int *fds, unsigned fd_count)
{
    if (s->is_lost)
        refuse_request(fds, fd_count, -EIO);
    else if (!request_ok(s, request, fds, fd_count))
        refuse_request(fds, fd_count, -EINVAL);
    else
        serve_request(s, request, fds, fd_count);
    for (unsigned i = 0; i < fd_count; i++)
        close_fd(&fds[i]);
}

/* What the kernel has not ended after a few seconds is left to it, and its group to the next
 * start: the lock on it goes when we do. */
void box_kill_all(struct spawner *s)
{
    uint64_t deadline_ms = clock_ms() + LAST_WAIT_MS;
    while (s->spare_count)
        (void)cgroup_leaf_remove(&s->cgroups, &s->spares[--s->spare_count]);
    for (unsigned i = 0; i < s->box_end; i++) {
        struct box *box = &s->boxes[i];
        if (!box->used)
            continue;
        box_kill(s, box);
        if (box->forks && box->pidfd >= 0) /* box_kill() would leave it to its forks */
            (void)sys_pidfd_send_signal(box->pidfd, SIGKILL);
        if (box->is_fork) /* init, which is waited for first, waits for these */
            fork_reap_files(box, true);
    }
    for (unsigned i = 0; i < s->box_end; i++) {
        struct box *box = &s->boxes[i];
        if (!box->used)
            continue;
        uint64_t now = clock_ms();
        struct pollfd dead = {.fd = box->pidfd, .events = POLLIN};
        if (box->pidfd < 0 ||
            poll(&dead, 1, now < deadline_ms ? (int)(deadline_ms - now) : 0) > 0) {
            reap(box);
            if (box->failed && !box->told)
                box_tell_end(s, box);
            box_release(s, box);
        }
    }
    while (s->used_count)
        remove_leaf(s, &s->used[--s->used_count]);
}

bool box_tend(struct spawner *s)
{
    struct cgroup_leaf *leaf = &s->spares[s->spare_count];
    if (s->spare_count == SPARE_LEAVES || !s->cgroups.count || !s->setup.networks ||
        cgroup_leaf_prepare(&s->cgroups, leaf) < 0)
        return false;
    s->spare_count++;
    return true;
}

void box_sweep(struct spawner *s)
{
    for (unsigned i = 0; i < s->dying_count;) {
        if (cgroup_leaf_remove(&s->cgroups, &s->dying[i]) == -EBUSY)
            i++;
        else
            s->dying[i] = s->dying[--s->dying_count];
    }
}
