/* SPDX-License-Identifier: Apache-2.0 */

/* See box.h. Makes boxes in the order that docs/security.md describes: the control group with
 * its limits first, then the clone into it, then the id maps, then the go-ahead byte. Box init
 * lets no program run before that byte. If the spawner fails earlier, box init dies and nothing
 * of the package has been read. */

#include "spawn/box_parts.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/fdpass.h"
#include "base/os/sys.h"
#include "box/inside.h"
#include "spawn/idmap.h"
#include "spawn/request.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

void box_tell(int socket, const struct spawn_event *event)
{
    (void)send(socket, event, sizeof(*event), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Programs open /dev/stdout and the like by name. The kernel allows that to the owner only. */
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

/* Takes a network namespace that was made ahead, for the key of the box. The key of a ready box
 * is not known yet: the last key is a good guess. */
static void take_network(struct spawner *s, struct box *box)
{
    if (box->network_owner == NETWORK_OURS && (box->network = egress_take_ready(s, box)) >= 0)
        return;
    box->network_key = box->has_owner ? box->owner : s->last_key;
    box->network = network_take(&s->network, box->network_owner, &box->network_key);
    if (box->network < 0) /* the clone makes one */
        box->network_key = NETWORK_NEW;
}

/* Clones box init from within a network namespace that was made ahead, if there is one. A
 * spawner that cannot leave this namespace is lost: its next box would get this one's
 * network. */
static int clone_in_network(struct spawner *s, struct box *box, struct inside *in)
{
    if (!(in->box->remove & BARRIER_NETNS))
        take_network(s, box);
    in->has_network = box->network >= 0 && network_enter(box->network) == 0;
    if (!in->has_network) { /* the clone makes another, for which this kit is not */
        close_fd(&box->network);
        egress_forget(box);
    }
    int pid = clone_init(s, box, in);
    int r = in->has_network ? network_leave(&s->network) : 0;
    s->is_lost = s->is_lost || r < 0;
    return r < 0 ? r : pid;
}

/* A session may get a network later (COMMAND_NETWORK). Then a namespace that the clone has made
 * must be open already: /proc shows it only until box init has its identity. */
static void keep_network(const struct spawner *s, struct box *box, int proc_fd)
{
    if (s->egress.source < 0 || !box->kind->is_session || box->network >= 0)
        return;
    box->network = openat(proc_fd, "ns/net", O_RDONLY | O_CLOEXEC);
    box->egress.is_spoilt = true; /* no other box may get the namespace of a session */
}

static int map_ids(const struct spawner *s, struct box *box, int pid)
{
    char path[32];
    (void)snprintf(path, sizeof(path), "/proc/%d", pid);
    cleanup_close int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    keep_network(s, box, fd);
    return ids_map(&s->ids, box->slot, box->flags, fd);
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

/* Opens the writable directories of the operator with their owner mapped to the payload. The
 * caller is in the root's mount namespace. */
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

/* Claims the slot, makes the control group with its limits and the init link. *ret_link is the
 * box's end of the link. */
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
    if (!request->remove) /* a control of a test may go without limits */
        leaves_take(&s->leaves, &s->cgroups, &request->limits, &box->leaf);
    if ((r = cgroup_leaf_make(
             &s->cgroups, &request->limits, request->remove, &box->leaf, ret_step)) < 0)
        return r;
    shares_weigh(s, box);
    *ret_step = STEP_CHANNELS;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    box->link = pair[0];
    *ret_link = pair[1];
    /* A box init that does not read must not block the spawner. */
    return fcntl(box->link, F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

/* Makes the package socket of a ready box. */
static int open_hand(struct box *box, int *ret_theirs)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    box->hand = pair[0];
    *ret_theirs = pair[1];
    return 0;
}

/* A ready box gets the descriptors of a request by box->hand. */
int box_make_cold(struct spawner *s, struct box *box, const struct spawn_box *request,
    const int *fds, unsigned fd_count, int link_fd, uint32_t *ret_step)
{
    int r;
    *ret_step = STEP_CLONE;
    if ((r = enter_root(s, request->root)) < 0)
        return r;
    uint32_t flags = fds ? request->flags : 0;
    cleanup_close int hand = -1;
    if (!fds && (r = open_hand(box, &hand)) < 0)
        return r;
    struct inside in = {.box = request,
        .exec_path = s->roots[request->root].execs[request->exec],
        .unique_ids = s->ids.unique,
        .has_memory = s->cgroups.use & TREE_MEMORY,
        .landlock_abi = s->landlock_abi,
        .link_fd = link_fd,
        .life_fd = s->life_fd,
        .package_fd = fds ? fds[1] : s->pools[box->maker].package_fd,
        .stdout_fd = fds ? fds[2] : -1,
        .stderr_fd = fds ? fds[3] : -1,
        .stdin_fd = flags & BOX_STDIN ? fds[4] : -1,
        .collect_fd = flags & BOX_COLLECT ? fds[fd_count - 1] : -1,
        .channel_fd = flags & BOX_CHANNEL ? fds[fd_count - 1] : -1,
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

int box_make_by_zygote(struct spawner *s, struct box *box, const struct spawn_box *request,
    const int *fds, unsigned fd_count, int link_fd, uint32_t *ret_step)
{
    struct zygote_request ask = {.box = *request,
        .payload_uid = ids_payload(&s->ids, box->slot),
        .has_memory = !!(s->cgroups.use & TREE_MEMORY),
        .landlock_abi = (uint32_t)s->landlock_abi,
        .is_parked = !fds};
    int send[4 + CGROUP_MAX_TREES + BOX_MAX_FDS];
    unsigned count = 0;
    cleanup_close int hand = -1;
    box->network_owner = s->zygotes[box->maker].now.serial;
    take_network(s, box);
    ask.has_network = box->network >= 0;
    send[count++] = link_fd;
    *ret_step = STEP_CHANNELS;
    int r = cgroup_leaf_lend(&s->cgroups, &box->leaf, send + count, &ask.join_count);
    if (r < 0)
        return r;
    ask.has_into = (uint32_t)r > ask.join_count;
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
        r = zygote_ask(&s->zygotes[box->maker], &ask, send, count, (unsigned)(box - s->boxes));
    return r < 0 ? r : 0;
}

/* Last part of making a box: watches it and sends the go-ahead byte. */
static int send_go(struct spawner *s, struct box *box)
{
    int r = watch_all(s, box);
    if (r < 0)
        return r;
    if (send(box->link, "g", 1, MSG_NOSIGNAL) != 1)
        return -errno;
    egress_adopt(s, box);
    return 0;
}

/* The kit of a box is there. */
static void go_late(struct spawner *s, struct box *box, int error)
{
    int r = error < 0 ? error : send_go(s, box);
    if (error < 0)
        box->status = (int32_t)box->egress.part;
    if (r < 0)
        box_fail(s, box, error < 0 ? STEP_KIT : STEP_RELEASE, r);
}

/* Prepares for the go-ahead byte, which a box with a network gets when it has its kit. */
static int release_init(struct spawner *s, struct box *box, uint32_t remove, uint32_t *ret_step)
{
    int r;
    *ret_step = STEP_CGROUP_LIMIT;
    /* Opened now and not at the end of the box, when the client waits for the answer. */
    if ((r = cgroup_leaf_watch_oom(&s->cgroups, &box->leaf, remove)) < 0 ||
        (r = cgroup_leaf_open_counters(&s->cgroups, &box->leaf)) < 0)
        return r;
    *ret_step = STEP_KIT;
    if ((r = egress_equip(s, box, go_late)) != 0)
        return r < 0 ? r : 0;
    *ret_step = STEP_RELEASE;
    return send_go(s, box);
}

int box_build(struct spawner *s, struct box *box, const struct spawn_box *request,
    const int *fds, unsigned fd_count, uint32_t *ret_step)
{
    cleanup_close int link_fd = -1;
    int r = open_box(s, box, request, &link_fd, ret_step);
    if (r < 0 || (fds && (r = box_give_pipes(s, box, fds + 2, fd_count - 2)) < 0))
        return r;
    r = box->kind->make(s, box, request, fds, fd_count, link_fd, ret_step);
    return r < 0 || box->pidfd < 0 ? r : release_init(s, box, request->remove, ret_step);
}

struct box *box_new(struct spawner *s, enum box_state state, enum box_kind_name kind, int maker)
{
    unsigned i = 0;
    while (i < MAX_BOXES && s->boxes[i].state)
        i++;
    if (i == MAX_BOXES)
        return NULL;
    s->box_end = i < s->box_end ? s->box_end : i + 1;
    s->boxes[i] = (struct box){.state = state,
        .kind = &box_kinds[kind],
        .maker = maker,
        .root = (int)i,
        .socket = -1,
        .link = -1,
        .hand = -1,
        .places = {-1, -1, -1},
        .network = -1,
        .network_key = NETWORK_NEW,
        .egress = {.channel = -1},
        .pidfd = -1,
        .users_fd = -1,
        .slot = -1,
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

/* A session lives long and is mostly idle. It does not count as running, so it does not hold
 * back the making of ready boxes. */
void box_own(struct spawner *s, struct box *box, uint32_t owner, int socket)
{
    box->socket = socket;
    box->egress.channel = take_fd(&s->channel);
    s->running += !box->kind->is_session;
    s->last_key = owner;
    shares_enter(s, box, owner);
}

/* Starts a box cold when the zygote could not make it, or when it lacked descriptors. */
static void build_cold(struct spawner *s, struct box *unborn, const struct spawn_box *request,
    const int *fds, unsigned fd_count)
{
    uint32_t step;
    int socket = take_fd(&unborn->socket);
    s->channel = take_fd(&unborn->egress.channel);
    box_release(s, unborn);
    /* there is room: the box released above */
    struct box *box = box_new(s, STATE_STARTING, box_kind_for(request->flags, -1), -1);
    box_own(s, box, request->owner, socket);
    int r = box_build(s, box, request, fds, fd_count, &step);
    if (r < 0)
        box_fail(s, box, step, r);
}

void box_keep_ends(struct box *box, int *fds, unsigned fd_count)
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
    box->pidfd = pidfd;
    if (network >= 0) {
        close_fd(&box->network);
        box->network = network;
        box->network_key = NETWORK_NEW;
    }
    int r = error < 0 ? error : pidfd < 0 ? -EPROTO : release_init(s, box, 0, &step);
    if (r < 0 && box->pidfd < 0 && box->state == STATE_STARTING) {
        const struct spawn_box request = {.kind = SPAWN_BOX,
            .root = s->zygotes[box->maker].root,
            .flags = box->flags,
            .owner = box->owner,
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
    int zygote = zygote_find(s, request);
    struct box *box = box_new(s, STATE_STARTING, box_kind_for(request->flags, zygote), zygote);
    if (!box) {
        refuse_request(fds, fd_count, -EAGAIN);
        return;
    }
    box_own(s, box, request->owner, take_fd(&fds[0]));
    int r = box_build(s, box, request, fds, fd_count, &step);
    if (r < 0 && box->pidfd < 0 && (zygote >= 0 || box_give_way(s, r)))
        build_cold(s, box, request, fds, fd_count);
    else if (r < 0)
        box_fail(s, box, step, r);
    else if (box->pidfd < 0)
        box_keep_ends(box, fds, fd_count); /* a cold start needs them */
}

static void limit_fds(rlim_t soft, rlim_t hard)
{
    (void)setrlimit(RLIMIT_NOFILE, &(struct rlimit){.rlim_cur = soft, .rlim_max = hard});
}

ssize_t box_receive(const struct spawner *s, int socket, void *data, size_t size, int *fds,
    unsigned max, unsigned *ret_count)
{
    rlim_t end = (rlim_t)s->fd_end;
    limit_fds(end + BOX_MAX_FDS, end + BOX_MAX_FDS);
    ssize_t n = fdpass_receive_now(socket, data, size, fds, max, ret_count);
    limit_fds(end, end + BOX_MAX_FDS);
    return n;
}

bool box_fds_spare(const struct spawner *s, const int *fds, unsigned fd_count)
{
    for (unsigned i = 0; i < fd_count; i++) {
        if (fds[i] >= s->fd_end)
            return true;
    }
    return false;
}

void box_start(struct spawner *s, const struct spawn_box *request, int *fds, unsigned fd_count)
{
    if (s->is_lost)
        refuse_request(fds, fd_count, -EIO);
    else if (!request_ok(s, request, fds, fd_count))
        refuse_request(fds, fd_count, -EINVAL);
    else if (box_fds_spare(s, fds, fd_count)) {
        (void)box_give_way(s, -EMFILE);
        refuse_request(fds, fd_count, -EMFILE);
    } else {
        if (request->flags & BOX_NETWORK)
            s->channel = take_fd(&fds[--fd_count]);
        serve_request(s, request, fds, fd_count);
        close_fd(&s->channel);
    }
    for (unsigned i = 0; i < fd_count; i++)
        close_fd(&fds[i]);
}
