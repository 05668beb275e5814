/* SPDX-License-Identifier: Apache-2.0 */

/* The spawner's own part of copying a session (copy.h). It does not wait for the copy or the
 * original: that is the job of a child process. It waits only for own children that it has just
 * killed. */

#include "spawn/copy.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/fdpass.h"
#include "base/os/fs.h"
#include "base/os/sys.h"
#include "base/str.h"
#include "spawn/program.h"
#include "spawn/request.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LEAST_ABI = 6 /* Landlock with signal scopes */, SIGNAL_PROCESS_GROUP = 1 << 2 };

/* Limits of init's own group: room for init, for those that watch terminals, and for helpers
 * until they enter the group of the program. Thirty uploads in a row took 1 MiB. A full group
 * ends a helper, or init and with it only this family: no other process is in the group, and
 * its processes neither make files nor read untrusted bytes. */
enum { ASIDE_MEMORY = 16 << 20, ASIDE_PROCESSES = 32 };

/* Takes init out of its program's control group, which from now on can be killed alone. It is
 * on its way when this returns; a fork takes longer. */
static int set_aside(struct spawner *s, struct box *root)
{
    uint32_t step;
    struct spawn_limits limits = root->limits;
    if (root->is_aside)
        return 0;
    limits.memory_bytes = ASIDE_MEMORY;
    limits.processes = ASIDE_PROCESSES;
    int r = cgroup_leaf_make(&s->cgroups, &limits, 0, &root->aside, &step);
    if (r < 0)
        return r;
    root->is_aside = true; /* from here on box_release() removes the group */
    shares_weigh(s, root);
    return fork_move_init(s, root, true);
}

/* Box init moves itself: moving another process takes a global lock of the kernel. */
int fork_move_init(struct spawner *s, struct box *root, bool is_aside)
{
    int fds[CGROUP_MAX_TREES];
    int count =
        cgroup_leaf_open_joins(&s->cgroups, is_aside ? &root->aside : &root->leaf, true, fds);
    const struct link_order order = {.kind = ORDER_JOIN};
    int r = count < 0
                ? count
                : fdpass_send_now(root->link, &order, sizeof(order), fds, (unsigned)count);
    for (int i = 0; i < count; i++)
        (void)close(fds[i]);
    return r;
}

/* Returns the number for a new copy, or negative errno when the box cannot be copied. */
static int find_place(const struct spawner *s, const struct box *root, const struct box *parent)
{
    if (!(root->flags & BOX_FORKS) || !s->ids.unique || s->ids.rootless ||
        !(s->cgroups.use & TREE_KILL) || s->landlock_abi < LEAST_ABI ||
        prctl(PR_CAPBSET_READ, CAP_SYS_PTRACE) != 1) /* hermes-fork traces */
        return -EOPNOTSUPP;
    if (parent->depth >= SPAWN_FORK_DEPTH)
        return -EMLINK;
    /* Must not be the number of an ancestor: the copy's user namespace would not map it. The
     * search starts after the last number, because processes of a number's last owner may still
     * be dying. */
    for (unsigned i = 0; i < SPAWN_MAX_FORKS; i++) {
        unsigned number = (root->next_fork + i) % SPAWN_MAX_FORKS + 1;
        if (!((root->fork_ids | parent->lineage) & 1u << number))
            return (int)number;
    }
    return -EAGAIN;
}

static int give_pipes(const struct spawner *s, const struct box *root, int number,
    const int *fds, unsigned fd_count)
{
    uid_t uid = ids_payload(&s->ids, root->slot) + (uid_t)number;
    for (unsigned i = 1; i < fd_count; i++) {
        if (request_is_pipe(fds[i]) && fchown(fds[i], uid, uid) < 0)
            return -errno;
    }
    return 0;
}

static int note_ends(struct box *box, const int *fds)
{
    for (unsigned i = 0; i < 3; i++) {
        struct stat st;
        if (fstat(fds[1 + i], &st) < 0)
            return -errno;
        box->ends[i] = st.st_ino;
    }
    return 0;
}

/* Makes the socket on which the copy will say hello, and sends its other end to the server. */
static int open_hello(struct box *box)
{
    int pair[2];
    const int on = 1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    box->hand = pair[0];
    cleanup_close int theirs = pair[1];
    struct stat st;
    if (setsockopt(box->hand, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0 ||
        fstat(theirs, &st) < 0)
        return -errno;
    box->ends[3] = st.st_ino;
    const struct spawn_event event = {.kind = EVENT_FORKING};
    return fdpass_send_now(box->socket, &event, sizeof(event), &theirs, 1);
}

static int prepare(struct spawner *s, struct box *box, int *fds, unsigned fd_count)
{
    struct box *root = &s->boxes[box->root];
    struct spawn_limits limits = box->limits;
    uint32_t step;
    int r;
    if (!box->kind->is_session) /* a leaf has room for box init, which is not in this one */
        limits.processes--;
    if ((r = give_pipes(s, root, box->fork_number, fds, fd_count)) < 0 ||
        (r = note_ends(box, fds)) < 0 || (r = set_aside(s, root)) < 0 ||
        (r = cgroup_leaf_make(&s->cgroups, &limits, 0, &box->leaf, &step)) < 0 ||
        (r = cgroup_leaf_watch_oom(&s->cgroups, &box->leaf, 0)) < 0)
        return r;
    shares_weigh(s, box);
    if (box->leaf.oom_fd >= 0 && (r = box_watch(s, box, box->leaf.oom_fd, TAG_OOM)) < 0)
        return r;
    return open_hello(box);
}

/* Forks a child into another pid namespace. A process cannot enter one itself, only its
 * children can, so the spawner points there for one fork. The child is then the spawner's own.
 * If the host's init had to reap it, the end of that pid namespace would wait for that. A
 * spawner that cannot switch back is lost: its next box would be born in this namespace. */
static int fork_there(struct spawner *s, int there)
{
    cleanup_close int home = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
    if (home < 0 || setns(there, CLONE_NEWPID) < 0)
        return -errno;
    int pid = sys_fork();
    if (pid != 0 && setns(home, CLONE_NEWPID) < 0)
        s->is_lost = true;
    return pid;
}

/* The part of the order that every job of hermes-fork has in common. */
static struct copy_order order_for(
    const struct spawner *s, const struct box *box, enum copy_job job)
{
    const struct box *root = &s->boxes[box->root];
    struct copy_order order = {.protocol = SPAWN_PROTOCOL,
        .job = job,
        .tree_count = s->cgroups.count,
        .landlock_abi = (uint32_t)s->landlock_abi,
        .flags = root->flags,
        .limits = box->limits};
    for (unsigned i = 0; i < s->cgroups.count; i++) {
        order.trees[i].use = s->cgroups.trees[i].use;
        order.trees[i].is_v2 = s->cgroups.trees[i].v2;
    }
    return order;
}

/* Starts hermes-fork in the pid namespace of `there`, a pidfd, or in our own if that is
 * negative. `fds` are those of proto/copy.h without the order. Returns its pid. */
static int execute(struct spawner *s, const struct copy_order *order, int *fds, int there)
{
    cleanup_close int pipe_fd = program_order(order, sizeof(*order));
    if (s->fork_fd < 0 || pipe_fd < 0)
        return s->fork_fd < 0 ? s->fork_fd : pipe_fd;
    fds[0] = pipe_fd;
    int pid = there >= 0 ? fork_there(s, there) : sys_fork();
    if (pid == 0)
        _exit(-program_exec(s->fork_fd, "hermes-fork", fds, COPY_FD_COUNT) & 0x7f);
    return pid;
}

/* Fills in the descriptors of proto/copy.h that every job has. */
static void fill_fds(const struct spawner *s, const struct box *box, int fds[COPY_FD_COUNT])
{
    for (unsigned i = 0; i < COPY_FD_COUNT; i++)
        fds[i] = -1;
    fds[COPY_LIFE_FD - COPY_ORDER_FD] = s->life_fd;
    memcpy(fds + COPY_LEAF_FD - COPY_ORDER_FD, box->leaf.fds, sizeof(box->leaf.fds));
}

static int start_work(
    struct spawner *s, struct box *box, const struct box *parent, bool is_alone)
{
    const struct box *root = &s->boxes[box->root];
    int fds[COPY_FD_COUNT];
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    box->link = pair[0];
    cleanup_close int theirs = pair[1];
    struct copy_order order = order_for(s, box, COPY_MAKE);
    order.number = (uint32_t)box->fork_number;
    order.lineage = box->lineage;
    order.uid = ids_payload(&s->ids, root->slot) + order.number;
    order.is_alone = is_alone;
    order.is_run = !box->kind->is_session;
    memcpy(order.ends, box->ends, sizeof(order.ends));
    fill_fds(s, box, fds);
    fds[COPY_SOCKET_FD - COPY_ORDER_FD] = box->hand;
    fds[COPY_REPORT_FD - COPY_ORDER_FD] = theirs;
    fds[COPY_PIDFD - COPY_ORDER_FD] = root->pidfd;
    fds[COPY_PARENT_PIDFD - COPY_ORDER_FD] = parent == root ? -1 : parent->pidfd;
    memcpy(
        fds + COPY_PARENT_LEAF_FD - COPY_ORDER_FD, parent->leaf.fds, sizeof(parent->leaf.fds));
    int r = box_watch(s, box, box->link, TAG_LINK);
    int pid = r < 0 ? r : execute(s, &order, fds, -1);
    if (pid > 0)
        box->helper = pid;
    close_fd(&box->hand);
    return pid < 0 ? pid : 0;
}

/* One copy of a box at a time, because copying freezes the box. */
static bool is_forkable(const struct box *parent)
{
    return parent->state == STATE_RUNNING && !parent->killed && !parent->copy;
}

bool fork_begin(struct spawner *s, struct box *parent, const struct spawn_command *command,
    int *fds, unsigned fd_count)
{
    struct box *root = &s->boxes[parent->root];
    bool is_run = command->limits.memory_bytes;
    if (!request_fork_ok(s, command, fds, fd_count) || (is_run && parent != root))
        return false;
    int r = box_fds_spare(s, fds, fd_count) ? -EMFILE
            : is_forkable(parent)           ? find_place(s, root, parent)
                                            : -EBUSY;
    struct box *box =
        r < 0 ? NULL : box_new(s, STATE_STARTING, is_run ? KIND_COPY_RUN : KIND_COPY, -1);
    if (!box) {
        box_tell(fds[0],
            &(struct spawn_event){
                .kind = EVENT_FAILED, .step = STEP_REQUEST, .error = r < 0 ? r : -EAGAIN});
        return true;
    }
    box_own(s, box, root->owner, take_fd(&fds[0]));
    box->root = parent->root;
    box->parent = (int)(parent - s->boxes);
    box->fork_number = r;
    box->lineage = parent->lineage | 1u << r;
    box->depth = parent->depth + 1;
    box->limits = is_run ? command->limits : root->limits;
    root->fork_ids |= 1u << r;
    root->next_fork = (unsigned)r;
    root->forks++;
    parent->copy = box;
    if ((r = prepare(s, box, fds, fd_count)) < 0 ||
        (r = box_watch(s, box, box->socket, TAG_SOCKET)) < 0 ||
        (r = start_work(s, box, parent, is_run || command->is_alone)) < 0)
        box_fail(s, box, STEP_COPY_STOP, r);
    return true;
}

/* The original, as long as it knows of this copy: another box that has its place by now does
 * not. Code that ends a copy calls fork_helped() first, so no original knows of a copy that
 * is gone. */
static struct box *live_parent(struct spawner *s, const struct box *box)
{
    struct box *parent = &s->boxes[box->parent];
    return parent->state && parent->copy == box ? parent : NULL;
}

/* The process that makes the copy has checked it and sends its pidfd. Box init has the order to
 * watch a run in its link before the run begins. */
static bool on_known(struct spawner *s, struct box *box, uint32_t pid, int *pidfd)
{
    const struct link_order order = {.kind = ORDER_WATCH, .pid = pid};
    if (*pidfd < 0 || box->pidfd >= 0)
        return false;
    box->pidfd = take_fd(pidfd);
    box->watched = box_watch(s, box, box->pidfd, TAG_PIDFD) == 0;
    if (!box->kind->is_session &&
        fdpass_send_now(s->boxes[box->root].link, &order, sizeof(order), NULL, 0) < 0)
        return false;
    box->pid = box->kind->is_session ? 0 : pid;
    return box->watched;
}

/* CPU time that making a copy took, as far as its control group has counted it. */
static uint64_t making_cpu_ns(const struct spawner *s, struct box *box)
{
    struct cgroup_usage usage;
    cgroup_leaf_usage(&s->cgroups, &box->leaf, &usage);
    return usage.cpu_ns;
}

static bool is_full(int fd)
{
    struct statfs fs;
    return fd >= 0 && fstatfs(fd, &fs) == 0 && fs.f_blocks &&
           (fs.f_bfree == 0 || fs.f_ffree == 0);
}

void fork_reaped(struct spawner *s, struct box *root, const struct link_record *record)
{
    for (unsigned i = 0; record->pid && i < s->box_end; i++) {
        struct box *box = &s->boxes[i];
        if (!box->state || &s->boxes[box->root] != root || box->pid != record->pid)
            continue;
        box->pid = 0;
        box->status = record->status;
        box->end_ns = box->start_ns ? record->ns : 0;
        box->disk_full =
            is_full(box->places[0]) || is_full(box->places[1]) || is_full(box->places[2]);
        box->kind->on_end(s, box);
        return;
    }
}

bool fork_awaits_end(struct spawner *s, struct box *box)
{
    bool is_deserted = s->boxes[box->root].state == STATE_DESERTED;
    if (!box->pid || !box->start_ns || box->killed || is_deserted)
        return false;
    (void)epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, box->pidfd, NULL); /* it would wake us again */
    return true;
}

void fork_desert(struct spawner *s, const struct box *root)
{
    const int number = (int)(root - s->boxes);
    for (unsigned i = 0; i < s->box_end; i++) {
        struct box *box = &s->boxes[i];
        if (box->state && box->root == number && box != root && box->pid)
            box->kind->on_end(s, box);
    }
}

bool fork_hear(struct spawner *s, struct box *box, struct link_record *ret)
{
    int fds[COPY_PLACES] = {-1, -1, -1};
    unsigned count = 0;
    *ret = (struct link_record){0};
    ssize_t n = box_receive(s, box->link, ret, sizeof(*ret), fds, COPY_PLACES, &count);
    if (box->link < 0 || n == -EAGAIN)
        return false;
    bool is_fine = n == (ssize_t)sizeof(*ret) && !box_fds_spare(s, fds, count);
    if (is_fine && ret->kind == LINK_KNOWN)
        is_fine = on_known(s, box, ret->pid, &fds[0]);
    /* Even a spare one is kept: the limit may have to be lowered. */
    if (n == (ssize_t)sizeof(*ret) && ret->kind == LINK_LIMIT && box->users_fd < 0)
        box->users_fd = take_fd(&fds[0]);
    if (ret->kind == LINK_START && !box->kind->is_session) /* a run is not charged for it */
        ret->cpu_ns = making_cpu_ns(s, box);
    for (unsigned i = 0; is_fine && ret->kind == LINK_START && i < COPY_PLACES; i++) {
        close_fd(&box->places[i]);
        box->places[i] = take_fd(&fds[i]);
    }
    if (!is_fine) /* hermes-fork ended without a report, or no descriptor is free */
        *ret = (struct link_record){.kind = LINK_FAILED, .step = STEP_COPY_STOP, .error = -EIO};
    for (unsigned i = 0; i < COPY_PLACES; i++)
        close_fd(&fds[i]);
    return true;
}

void fork_helped(struct spawner *s, struct box *box)
{
    struct box *parent = live_parent(s, box);
    if (box->helper > 0) {
        (void)kill(box->helper, SIGKILL);
        while (waitpid(box->helper, NULL, 0) < 0 && errno == EINTR)
            ;
        /* The box and its copies must not live with a raised limit. The first record, which has
         * the file, may not have been read yet. */
        struct link_record record;
        if (box->users_fd < 0)
            (void)fork_hear(s, box, &record);
        if (box->users_fd >= 0 && copy_limit_users(box->users_fd, false) < 0)
            (void)sys_pidfd_send_signal(s->boxes[box->root].pidfd, SIGKILL);
        close_fd(&box->users_fd);
        if (parent)
            (void)cgroup_leaf_freeze(&s->cgroups, &parent->leaf, parent->is_paused);
        close_fd(&box->link);
    }
    if (parent)
        parent->copy = NULL;
    box->helper = 0;
}

int fork_interrupt(const struct box *box)
{
    long r = syscall(NR_pidfd_send_signal, box->pidfd, SIGINT, NULL, SIGNAL_PROCESS_GROUP);
    return r < 0 && errno == EINVAL ? sys_pidfd_send_signal(box->pidfd, SIGINT) : sys_result(r);
}

int fork_pause(const struct spawner *s, struct box *box, bool is_paused)
{
    box->is_paused = is_paused;
    return box->copy ? 0 : cgroup_leaf_freeze(&s->cgroups, &box->leaf, is_paused);
}

void fork_reap_helpers(struct box *box, bool is_over)
{
    for (unsigned i = 0; i < FORK_MAX_SERVERS; i++) {
        pid_t pid = box->servers[i];
        if (pid > 0 && is_over)
            (void)kill(pid, SIGKILL);
        if (pid > 0 && waitpid(pid, NULL, is_over ? 0 : WNOHANG) != 0)
            box->servers[i] = 0;
    }
}

int fork_serve(struct spawner *s, struct box *box, enum copy_job job, const int *fds)
{
    const struct copy_order order = order_for(s, box, job);
    int all[COPY_FD_COUNT];
    unsigned i = 0;
    fork_reap_helpers(box, false);
    while (i < FORK_MAX_SERVERS && box->servers[i])
        i++;
    if (i == FORK_MAX_SERVERS)
        return -EUSERS;
    fill_fds(s, box, all);
    all[COPY_SOCKET_FD - COPY_ORDER_FD] = fds[0];
    all[COPY_PIDFD - COPY_ORDER_FD] = box->pidfd;
    all[COPY_PACKAGE_FD - COPY_ORDER_FD] = job == COPY_TERMINAL ? fds[1] : -1;
    int pid = execute(s, &order, all, box->pidfd);
    if (pid > 0)
        box->servers[i] = pid;
    return pid < 0 ? pid : 0;
}
