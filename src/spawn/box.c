/* SPDX-License-Identifier: Apache-2.0 */

/* See box.h. The order of box_start() is the order of the construction in docs/security.md:
 * group with its limits first, then clone into it, then ids, then the go-ahead. Until that byte
 * is sent the child does nothing; when we fail before it, it dies without having run anything.
 */

#include "spawn/box.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fdpass.h"
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

enum { BASE_MEMORY_MAX = 2 << 20, LAST_WAIT_MS = 5000 };

void box_tell(int socket, const struct spawn_event *event)
{
    (void)send(socket, event, sizeof(*event), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Programs open /dev/stdout and the like by name, which the kernel allows the owner only. */
static int give_pipes(
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
    s->is_lost = r < 0;
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
    if (s->spare_count)
        box->leaf = s->spares[--s->spare_count];
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
    int hand[2] = {-1, -1};
    box->network_owner = s->zygotes[box->zygote].serial;
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
    if (!fds && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, hand) < 0)
        r = -errno;
    box->hand = hand[0];
    if (!fds)
        send[count++] = hand[1];
    for (unsigned i = 1; fds && i < fd_count; i++)
        send[count++] = fds[i];
    *ret_step = STEP_CLONE;
    if (r >= 0)
        r = zygote_clone(
            &s->zygotes[box->zygote], &ask, send, count, &box->pidfd, &box->network);
    for (unsigned i = 0; i < ask.join_count; i++)
        (void)close(send[1 + i]);
    close_fd(&hand[1]);
    return r < 0 ? r : 0;
}

/* From the group to the go-ahead. On failure *ret_step names the step; the caller cleans up. */
static int build(struct spawner *s, struct box *box, const struct spawn_box *request,
    const int *fds, unsigned fd_count, uint32_t *ret_step)
{
    cleanup_close int link_fd = -1;
    int r = open_box(s, box, request, &link_fd, ret_step);
    if (r < 0 || (fds && (r = give_pipes(s, box, fds + 2, fd_count - 2)) < 0))
        return r;
    r = box->zygote >= 0 ? start_warm(s, box, request, fds, fd_count, link_fd, ret_step)
                         : start_cold(s, box, request, fds, fd_count, link_fd, ret_step);
    if (r < 0)
        return r;
    *ret_step = STEP_CGROUP_LIMIT;
    if ((r = cgroup_leaf_watch_oom(&s->cgroups, &box->leaf, request->remove)) < 0)
        return r;
    *ret_step = STEP_RELEASE;
    if ((r = watch_all(s, box)) < 0)
        return r;
    return send(box->link, "g", 1, MSG_NOSIGNAL) == 1 ? 0 : -errno;
}

static void kill_box(struct spawner *s, struct box *box)
{
    (void)cgroup_leaf_kill(&s->cgroups, &box->leaf);
    if (box->is_fork)
        fork_helped(s, box);
    /* Init stays while there are forks, and a fork whose process nobody has looked at is not
     * ours to kill. */
    if (box->pidfd >= 0 && !box->forks && (!box->is_fork || box->is_known))
        (void)sys_pidfd_send_signal(box->pidfd, SIGKILL);
}

static uint64_t above(uint64_t value, uint64_t base)
{
    return value > base ? value - base : 0;
}

static void fill_usage(const struct spawner *s, const struct box *box,
    const struct cgroup_usage *usage, struct spawn_event *event)
{
    if (s->cgroups.use & TREE_KILL || s->cgroups.use & TREE_CPUACCT)
        event->cpu_ns = above(usage->cpu_ns, box->base_cpu_ns);
    else
        event->cpu_ns = box->init_cpu_ns;
    if (s->cgroups.use & TREE_MEMORY)
        event->memory_bytes =
            above(event->kind == EVENT_USAGE ? cgroup_leaf_memory(&s->cgroups, &box->leaf)
                                             : usage->peak_bytes,
                box->base_memory);
    else
        event->memory_bytes = box->init_rss;
}

static void tell_end(struct spawner *s, struct box *box)
{
    struct cgroup_usage usage;
    cgroup_leaf_usage(&s->cgroups, &box->leaf, &usage);
    struct spawn_event event = {.kind = EVENT_ENDED,
        .cgroup = s->cgroups.mode,
        .wait_status = box->status,
        .start_ns = box->start_ns,
        .end_ns = box->end_ns ? box->end_ns : clock_ns(),
        .setup_ns = above(box->start_ns, box->request_ns)};
    bool oom = usage.oom_kill || box->oom_event;
    event.flags = (box->exited ? ENDED_EXITED : 0u) | (oom ? ENDED_OOM : 0u) |
                  (usage.pids_max ? ENDED_PIDS : 0u) | (box->disk_full ? ENDED_DISK : 0u);
    fill_usage(s, box, box->collects && box->exited ? &box->at_exit : &usage, &event);
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

static void remove_leaf(struct spawner *s, struct box *box)
{
    if (cgroup_leaf_remove(&s->cgroups, &box->leaf) == -EBUSY && s->dying_count < MAX_DYING)
        s->dying[s->dying_count++] = box->leaf;
    if (box->is_aside && cgroup_leaf_remove(&s->cgroups, &box->aside) == -EBUSY &&
        s->dying_count < MAX_DYING)
        s->dying[s->dying_count++] = box->aside;
}

static void leave_family(struct spawner *s, const struct box *box);

/* Gives back all a box holds; its processes are dead and reaped. */
static void release(struct spawner *s, struct box *box)
{
    close_fd(&box->link);
    close_fd(&box->hand);
    close_fd(&box->pidfd);
    if (box->network >= 0)
        network_return(&s->network, box->network_owner, take_fd(&box->network));
    remove_leaf(s, box);
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
        release(s, root);
    else if (root->told || root->killed)
        kill_box(s, root);
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
        kill_box(s, box);
    if (box->pidfd >= 0 && (!box->is_fork || box->is_known)) {
        kill_box(s, box);
        if (box->watched || box_watch(s, box, box->pidfd, TAG_PIDFD) == 0)
            return;
        reap(box);
    }
    tell_end(s, box);
    release(s, box);
}

static struct box *free_box(struct spawner *s)
{
    for (unsigned i = 0; i < MAX_BOXES; i++) {
        if (!s->boxes[i].used) {
            s->box_end = i < s->box_end ? s->box_end : i + 1;
            return &s->boxes[i];
        }
    }
    return NULL;
}

static void open_fields(struct box *box, int socket, int zygote)
{
    *box = (struct box){.used = true,
        .socket = socket,
        .link = -1,
        .hand = -1,
        .network = -1,
        .pidfd = -1,
        .slot = -1,
        .zygote = zygote,
        .pool = -1,
        .request_ns = clock_ns()};
    cgroup_leaf_init(&box->leaf);
    cgroup_leaf_init(&box->aside);
}

struct box *box_new(struct spawner *s)
{
    struct box *box = free_box(s);
    if (box)
        open_fields(box, -1, -1);
    return box;
}

int box_park(struct spawner *s, int zygote)
{
    struct zygote *z = &s->zygotes[zygote];
    struct spawn_box request = {
        .kind = SPAWN_BOX, .root = z->root, .flags = BOX_WARM | z->flags, .limits = z->limits};
    struct box *box = free_box(s);
    uint32_t step;
    if (!box)
        return -EAGAIN;
    open_fields(box, -1, zygote);
    box->is_parked = true;
    box->is_session = z->flags & BOX_CHANNEL;
    z->parked++;
    int r = build(s, box, &request, NULL, 0, &step);
    if (r < 0)
        box_fail(s, box, step, r);
    return r;
}

int box_park_program(struct spawner *s, int pool)
{
    struct pool *p = &s->pools[pool];
    struct spawn_box request = {
        .kind = SPAWN_BOX, .root = p->root, .exec = p->exec, .limits = p->limits};
    struct box *box = free_box(s);
    uint32_t step;
    if (!box)
        return -EAGAIN;
    open_fields(box, -1, -1);
    box->pool = pool;
    box->is_parked = true;
    p->parked++;
    int r = build(s, box, &request, NULL, 0, &step);
    if (r < 0)
        box_fail(s, box, step, r);
    return r;
}

bool box_drop_parked(struct spawner *s, int pool)
{
    struct box *found = NULL;
    for (unsigned i = 0; i < s->box_end; i++) {
        struct box *box = &s->boxes[i];
        if (box->used && box->is_parked && !box->failed && (pool < 0 || box->pool == pool) &&
            (!found || !box->is_ready))
            found = box;
    }
    if (!found)
        return false;
    /* It is nobody's from here on. */
    if (found->pool >= 0)
        pool_drop(&s->pools[found->pool], !found->is_ready);
    else
        s->zygotes[found->zygote].parked--;
    found->is_parked = false;
    s->running += !found->is_session;
    box_fail(s, found, STEP_RELEASE, -ECANCELED);
    return true;
}

static bool parked_fits(
    const struct spawner *s, const struct box *box, const struct spawn_box *request)
{
    if (box->pool >= 0)
        return box->is_ready && pool_fits(&s->pools[box->pool], request);
    const struct zygote *z = &s->zygotes[box->zygote];
    return z->root == request->root && zygote_fits(z, request);
}

/* A parked box for this request: same program, same limits, nothing it was not made with. */
static struct box *find_parked(struct spawner *s, const struct spawn_box *request)
{
    for (unsigned i = 0; i < s->box_end; i++) {
        struct box *box = &s->boxes[i];
        if (!box->used || !box->is_parked || box->failed)
            continue;
        if (parked_fits(s, box, request))
            return box;
    }
    return NULL;
}

/* Usage counts from here. What a program that was started ahead holds it holds in a cold box
 * too, so it stays counted, apart from what a rehearsal left; a fork shares most of its
 * zygote's. */
static void note_base(struct spawner *s, struct box *box)
{
    struct cgroup_usage usage;
    if (box->pool >= 0) {
        cgroup_leaf_usage(&s->cgroups, &box->leaf, &usage);
        box->base_cpu_ns = usage.cpu_ns;
        uint64_t base = s->pools[box->pool].base_bytes;
        if (base)
            box->base_memory = above(cgroup_leaf_memory(&s->cgroups, &box->leaf), base);
        pool_drop(&s->pools[box->pool], false);
        return;
    }
    box->base_memory = cgroup_leaf_memory(&s->cgroups, &box->leaf);
    s->zygotes[box->zygote].base_memory = box->base_memory;
    s->zygotes[box->zygote].parked--;
}

/* Gives a parked box its job. From here on it is like any other. */
static int hand_over(struct spawner *s, struct box *box, const struct spawn_box *request,
    int *fds, unsigned fd_count)
{
    const struct zygote_hand hand = {.flags = request->flags,
        .cpu_s = request->limits.cpu_s,
        .file_bytes = request->limits.file_bytes};
    box->is_parked = false;
    s->running += !box->is_session;
    box->socket = take_fd(&fds[0]);
    box->request_ns = clock_ns();
    note_base(s, box);
    int r = give_pipes(s, box, fds + 2, fd_count - 2);
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

/* Takes fds[0] when it has one to hand over. A parked box that has died meanwhile is passed
 * over. */
static bool serve_parked(
    struct spawner *s, const struct spawn_box *request, int *fds, unsigned fd_count)
{
    struct box *box;
    while ((box = find_parked(s, request))) {
        int r = hand_over(s, box, request, fds, fd_count);
        if (r == 0)
            return true;
        /* Not ours any more: the next box is watched by it. */
        (void)epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, box->socket, NULL);
        fds[0] = take_fd(&box->socket);
        box_fail(s, box, STEP_RELEASE, r);
    }
    return false;
}

static void serve_request(
    struct spawner *s, const struct spawn_box *request, int *fds, unsigned fd_count)
{
    uint32_t step;
    if (request->flags & BOX_WARM && serve_parked(s, request, fds, fd_count))
        return;
    if (request->flags & BOX_WARM)
        pool_miss(s, request);
    struct box *box = free_box(s);
    if (!box) {
        refuse_request(fds, fd_count, -EAGAIN);
        return;
    }
    open_fields(box, take_fd(&fds[0]), zygote_find(s, request));
    note_kind(s, box, request);
    int r = build(s, box, request, fds, fd_count, &step);
    if (r < 0 && box->zygote >= 0 && box->pidfd < 0) {
        /* The zygote could not: a cold box can. */
        int socket = take_fd(&box->socket);
        release(s, box);
        open_fields(box, socket, -1);
        note_kind(s, box, request);
        r = build(s, box, request, fds, fd_count, &step);
    }
    if (r < 0)
        box_fail(s, box, step, r);
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

/* What the box holds before its program does anything. A parked box was asked when it got its
 * job; the others are asked a moment after exec, so what they may have is bounded: a late look
 * must not hide the program's own. */
static uint64_t base_memory(const struct spawner *s, const struct box *box)
{
    if (box->base_memory)
        return box->base_memory;
    uint64_t most = box->zygote >= 0 ? s->zygotes[box->zygote].base_memory : 0;
    uint64_t now = cgroup_leaf_memory(&s->cgroups, &box->leaf);
    if (most < BASE_MEMORY_MAX)
        most = BASE_MEMORY_MAX;
    return now < most ? now : most;
}

static void on_start(struct spawner *s, struct box *box, const struct link_record *record)
{
    box->base_memory = base_memory(s, box);
    if (!box->started && box->pool < 0)
        box->base_cpu_ns = record->cpu_ns;
    box->started = true;
    box->start_ns = record->ns;
    if (box->is_aside)
        (void)fork_move_init(s, box, true);
    if (box->is_fork)
        fork_helped(s, box);
    box_tell(box->socket, &(struct spawn_event){.kind = EVENT_STARTED,
                              .flags = box->zygote >= 0 || box->pool >= 0 ? STARTED_WARM : 0,
                              .cgroup = s->cgroups.mode,
                              .start_ns = box->start_ns,
                              .setup_ns = box->start_ns - box->request_ns});
}

/* A session's program has ended. Where the memory limit killed it, the box ends too: its word
 * may have come before the control group's. */
static void on_rest(struct spawner *s, struct box *box, const struct link_record *record)
{
    struct cgroup_usage usage;
    cgroup_leaf_usage(&s->cgroups, &box->leaf, &usage);
    box->is_resting = true;
    if (box->is_aside)
        (void)cgroup_leaf_kill(&s->cgroups, &box->leaf);
    if (box->forks && (box->killed || usage.oom_kill)) {
        tell_end(s, box); /* init goes on for them */
        return;
    }
    if (box->killed) /* its word came before its own end */
        return;
    if (usage.oom_kill) {
        kill_box(s, box);
        return;
    }
    box_tell(box->socket,
        &(struct spawn_event){.kind = EVENT_EXITED, .wait_status = record->status});
}

static void on_record(struct spawner *s, struct box *box, const struct link_record *record)
{
    switch (record->kind) {
    case LINK_START:
        on_start(s, box, record);
        break;
    case LINK_INTERRUPTED:
        box_tell(box->socket, &(struct spawn_event){.kind = EVENT_INTERRUPTED});
        break;
    case LINK_PARKING:
        box->base_memory = base_memory(s, box);
        cgroup_leaf_weigh(&s->cgroups, &box->leaf, true);
        break;
    case LINK_READY:
        cgroup_leaf_weigh(&s->cgroups, &box->leaf, false);
        if (box->pool >= 0 && box->is_parked) {
            box->is_ready = true;
            pool_ready(&s->pools[box->pool]);
        }
        break;
    case LINK_FAILED:
        box->failed = true;
        box->step = record->step;
        box->error = record->error;
        break;
    case LINK_EXIT:
        if (box->failed)
            break;
        if (box->is_session) {
            on_rest(s, box, record);
            break;
        }
        box->exited = true;
        box->status = record->status;
        box->end_ns = record->ns;
        box->disk_full = record->disk_full;
        box->init_cpu_ns = record->cpu_ns;
        box->init_rss = record->rss_bytes;
        if (box->collects) {
            cgroup_leaf_usage(&s->cgroups, &box->leaf, &box->at_exit);
            box_tell(box->socket, &(struct spawn_event){.kind = EVENT_EXITED});
        } else if (record->is_empty) {
            /* Nobody is left but init on its way out: no need to wait a millisecond for the
             * kernel to take the namespaces apart. */
            tell_end(s, box);
        }
        break;
    default:
        break;
    }
}

/* Returns what the last attempt to read gave. */
static ssize_t drain_link(struct spawner *s, struct box *box)
{
    struct link_record record;
    ssize_t n;
    while ((n = recv(box->link, &record, sizeof(record), MSG_DONTWAIT)) == sizeof(record))
        on_record(s, box, &record);
    return n;
}

static void on_fork_link(struct spawner *s, struct box *box)
{
    struct link_record record;
    while (!box->failed && fork_hear(s, box, &record))
        on_record(s, box, &record);
    if (box->failed && !box->started)
        box_fail(s, box, box->step, box->error);
}

static void tell_usage(struct spawner *s, struct box *box)
{
    struct cgroup_usage usage;
    struct spawn_event event = {.kind = EVENT_USAGE};
    cgroup_leaf_usage(&s->cgroups, &box->leaf, &usage);
    event.flags = usage.pids_max ? ENDED_PIDS : 0;
    event.peak_bytes = above(usage.peak_bytes, box->base_memory);
    fill_usage(s, box, &usage, &event);
    box_tell(box->socket, &event);
}

/* Gives a session that has no program another one. */
static bool restart(struct spawner *s, struct box *box, const int *fds, unsigned fd_count)
{
    const struct link_order order = {.kind = ORDER_RESTART};
    if (!box->is_resting || !request_restart_ok(fds, fd_count))
        return false;
    box->request_ns = clock_ns();
    int r = give_pipes(s, box, fds + 1, fd_count - 1);
    if (r == 0 &&
        box->is_aside) /* the program is born where init is; on_start() moves it back */
        r = fork_move_init(s, box, false);
    if (r == 0)
        r = fdpass_send(box->link, &order, sizeof(order), fds, fd_count);
    box->is_resting = r < 0;
    return r == 0;
}

/* Has a session's init start a helper for files. Where it has too many orders to follow
 * already, the socket closes, which tells. */
static bool start_files(
    const struct spawner *s, const struct box *box, const int *fds, unsigned fd_count)
{
    const struct link_order order = {
        .kind = ORDER_FILES, .room_bytes = cgroup_leaf_room(&s->cgroups, &box->leaf)};
    if (!request_files_ok(fds, fd_count))
        return false;
    (void)fdpass_send(box->link, &order, sizeof(order), fds, fd_count);
    return true;
}

/* A fork has no init to ask. Stopping it is its end. */
static bool obey_fork(struct spawner *s, struct box *box, const struct spawn_command *command,
    const int *fds, unsigned fd_count)
{
    switch (command->kind) {
    case COMMAND_INTERRUPT:
        if (fork_interrupt(box) < 0)
            return false;
        box_tell(box->socket, &(struct spawn_event){.kind = EVENT_INTERRUPTED});
        return true;
    case COMMAND_FILES:
        if (!request_files_ok(fds, fd_count))
            return false;
        fork_serve_files(s, box, fds[0]);
        return true;
    case COMMAND_PAUSE:
        return fork_pause(s, box, true) == 0;
    case COMMAND_RESUME:
        return fork_pause(s, box, false) == 0;
    default:
        return false;
    }
}

/* False when the command makes no sense for this box. */
static bool obey(struct spawner *s, struct box *box, const struct spawn_command *command,
    int *fds, unsigned fd_count)
{
    if (command->kind == COMMAND_USAGE) {
        tell_usage(s, box);
        return true;
    }
    if (!box->is_session || !box->started)
        return false;
    if (command->kind == COMMAND_FORK)
        return fork_begin(s, box, fds, fd_count);
    if (box->is_fork)
        return obey_fork(s, box, command, fds, fd_count);
    switch (command->kind) {
    case COMMAND_INTERRUPT:
        return sys_pidfd_send_signal(box->pidfd, SIGINT) >= 0;
    case COMMAND_STOP:
        if (box->is_aside)
            return cgroup_leaf_kill(&s->cgroups, &box->leaf) >= 0;
        return sys_pidfd_send_signal(box->pidfd, SIGTERM) >= 0;
    case COMMAND_RESTART:
        return restart(s, box, fds, fd_count);
    case COMMAND_FILES:
        return start_files(s, box, fds, fd_count);
    default:
        return false;
    }
}

static void on_command(struct spawner *s, struct box *box)
{
    struct spawn_command command = {0};
    struct pollfd ready = {.fd = box->socket, .events = POLLIN};
    int fds[BOX_MAX_FDS];
    unsigned fd_count;
    if (box->told || poll(&ready, 1, 0) != 1)
        return; /* an event of the box that had this place before */
    ssize_t n =
        fdpass_receive(box->socket, &command, sizeof(command), fds, BOX_MAX_FDS, &fd_count);
    bool is_obeyed = n == sizeof(command) && obey(s, box, &command, fds, fd_count);
    for (unsigned i = 0; i < fd_count; i++)
        close_fd(&fds[i]);
    if (is_obeyed)
        return;
    /* A kill, the end of the socket, or nonsense: all end the box. Once is enough. */
    box->killed = true;
    if (n <= 0)
        (void)epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, box->socket, NULL);
    if (box->is_fork && !box->is_known) {
        box_fail(s, box, STEP_REQUEST, -ECANCELED);
        return;
    }
    kill_box(s, box);
    if (box->forks && box->is_resting)
        tell_end(s, box);
}

/* The process of a fork is dead; what it started dies with it. */
static void on_fork_end(struct spawner *s, struct box *box)
{
    struct pollfd dead = {.fd = box->pidfd, .events = POLLIN};
    if (box->pidfd < 0 || poll(&dead, 1, 0) != 1)
        return;
    struct link_record record;
    while (!box->failed && fork_hear(s, box, &record))
        on_record(s, box, &record);
    kill_box(s, box);
    tell_end(s, box);
    release(s, box);
}

/* Box init is dead, and with it the pid namespace: nothing of the box runs any more. */
static void on_end(struct spawner *s, struct box *box)
{
    siginfo_t info = {0};
    if (waitid(P_PIDFD, (id_t)box->pidfd, &info, WEXITED | WNOHANG) < 0 || info.si_pid == 0)
        return; /* an event of the box that had this place before */
    (void)drain_link(s, box);
    if (!box->told)
        tell_end(s, box);
    box->init_gone = box->forks > 0;
    if (box->init_gone) /* their ends follow at once */
        (void)epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, box->pidfd, NULL);
    else
        release(s, box);
}

void box_event(struct spawner *s, struct box *box, enum box_tag tag)
{
    uint64_t count;
    switch (tag) {
    case TAG_LINK:
        if (box->is_fork)
            on_fork_link(s, box);
        else
            (void)drain_link(s, box);
        break;
    case TAG_SOCKET:
        on_command(s, box);
        break;
    case TAG_OOM:
        if (box->leaf.oom_fd < 0 || read(box->leaf.oom_fd, &count, sizeof(count)) < 0)
            break;
        box->oom_event = true;
        box->killed = box->killed || box->forks;
        kill_box(s, box);
        (void)epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, box->leaf.oom_fd, NULL);
        break;
    case TAG_PIDFD:
        if (box->is_fork)
            on_fork_end(s, box);
        else
            on_end(s, box);
        break;
    default:
        break;
    }
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
        kill_box(s, box);
        if (box->forks && box->pidfd >= 0) /* kill_box() would leave it to its forks */
            (void)sys_pidfd_send_signal(box->pidfd, SIGKILL);
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
                tell_end(s, box);
            release(s, box);
        }
    }
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
