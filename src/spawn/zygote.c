/* SPDX-License-Identifier: Apache-2.0 */

/* The spawner's side of zygotes (zygote.h). Zygotes are started and replaced, and ready boxes
 * are made, when the spawner is idle. A zygote that fails or hangs is killed and started again
 * later; meanwhile boxes start cold. */

#include "spawn/zygote.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/fdpass.h"
#include "base/os/fs.h"
#include "base/os/sys.h"
#include "box/inside.h"
#include "box/package_read.h"
#include "spawn/box.h"
#include "spawn/orphans.h"
#include "spawn/program.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Least limits of a box that a zygote makes, in bytes and 1/1000 processor. Box init shares the
 * zygote's memory while it makes the box. If it dies there for lack of memory, the zygote dies,
 * too; if it gets hardly any CPU time, all other boxes wait. */
enum { MEMORY_MIN = 4 << 20, CPU_MILLI_MIN = 200 };

/* Least memory limit, in bytes above base_memory, that is given to a ready box: the box already
 * holds base_memory. */
enum { PARKED_MEMORY_MIN = 16 << 20 };

/* A zygote is replaced after BOXES_PER_ZYGOTE boxes, but not before LEAST_AGE_MS: starting one
 * takes as much CPU time as two hundred runs and slows down the runs of that moment. */
enum {
    ANSWER_MS = 1000,
    RETRY_MS = 1000,
    RETRY_DOUBLES = 6,
    BOXES_PER_ZYGOTE = 1000,
    LEAST_AGE_MS = 30000
};

/* LAST_WORD_MS: how long the spawner waits for an answer that an old zygote still owes.
 * START_MS: how long a zygote may take to start. */
enum { LAST_WORD_MS = 50, START_MS = 120000 };

/* Only its own code runs in a zygote, which for a moment has its data twice (warm/gather.c). */
static const uint64_t ZYGOTE_MEMORY = 4ull << 30;

/* Flags that a box of a zygote has from its birth. */
enum { SESSION_FLAGS = BOX_CHANNEL | BOX_FORKS };

static void add(struct spawner *s, const struct spawn_zygote *z, int package_fd)
{
    s->zygotes[s->zygote_count++] = (struct zygote){.root = z->root,
        .flags = z->flags & SESSION_FLAGS,
        .is_wanted = !z->on_demand,
        .idle_ms = z->idle_s * 1000ull,
        .used_ms = clock_ms(),
        .park = z->park,
        .limits = z->limits,
        .package_fd = package_fd,
        .now = {.socket = -1, .pidfd = -1, .slot = -1},
        .next = {.socket = -1, .pidfd = -1, .slot = -1}};
}

int zygote_open_groups(struct spawner *s)
{
    if (s->ids.rootless || !cgroup_host_is_nested(&s->cgroups))
        return 0;
    int slot = ids_claim(&s->ids, false);
    if (slot < 0) /* boxes join their groups themselves */
        return 0;
    s->zygote_gid = ids_payload(&s->ids, slot);
    return cgroup_host_open_to(&s->cgroups, s->zygote_gid);
}

/* A zygote makes one box at a time. A zygote for runs gets a twin, which is started when the
 * first one is busy. */
int zygote_add(struct spawner *s, const struct spawn_zygote *z, int package_fd)
{
    cleanup_close int owned = package_fd;
    bool has_twin = !(z->flags & BOX_CHANNEL) && !z->idle_s;
    if (z->root >= s->root_count || !s->roots[z->root].exec_count)
        return -EINVAL;
    if (s->zygote_count + has_twin >= SPAWN_MAX_ZYGOTES)
        return -E2BIG;
    add(s, z, take_fd(&owned));
    struct spawn_zygote twin = *z;
    twin.on_demand = true;
    twin.park = 0;
    if (has_twin && (owned = fcntl(package_fd, F_DUPFD_CLOEXEC, 3)) >= 0)
        add(s, &twin, take_fd(&owned));
    return 0;
}

static bool serves(const struct zygote *z, const struct spawn_box *request)
{
    return z->root == request->root && z->flags == (request->flags & SESSION_FLAGS);
}

int zygote_find(struct spawner *s, const struct spawn_box *request)
{
    if (!(request->flags & BOX_WARM) || request->exec != 0 || request->mount_count ||
        request->remove || request->limits.memory_bytes < MEMORY_MIN ||
        request->limits.cpu_milli < CPU_MILLI_MIN)
        return -1;
    int best = -1;
    unsigned least = ZYGOTE_MAX_BIRTHS;
    bool are_busy = true;
    for (uint32_t i = 0; i < s->zygote_count; i++) {
        struct zygote *z = &s->zygotes[i];
        if (!serves(z, request))
            continue;
        z->is_wanted = z->is_wanted || are_busy;
        z->used_ms = clock_ms();
        are_busy = are_busy && z->now.birth_count;
        if (z->now.is_up && z->now.birth_count < least) {
            best = (int)i;
            least = z->now.birth_count;
        }
    }
    return best;
}

/* Memory, processors, CPU time, file size and a smaller stack may differ from what the ready
 * box was made with: hand_over() and the box set them with the package. */
static bool fits(
    const struct spawner *s, const struct box *box, const struct spawn_box *request)
{
    const struct zygote *z = &s->zygotes[box->maker];
    struct spawn_limits limits = request->limits;
    if (!(z->flags & BOX_CHANNEL) && s->cgroups.use & TREE_MEMORY &&
        limits.memory_bytes >= PARKED_MEMORY_MIN + z->base_memory &&
        limits.cpu_milli >= CPU_MILLI_MIN) {
        limits.memory_bytes = z->limits.memory_bytes;
        limits.cpu_milli = z->limits.cpu_milli;
        limits.cpu_s = z->limits.cpu_s;
        limits.file_bytes = z->limits.file_bytes;
        if (limits.stack_bytes < z->limits.stack_bytes)
            limits.stack_bytes = z->limits.stack_bytes;
    }
    return serves(z, request) && request->exec == 0 && !request->mount_count &&
           !request->remove && memcmp(&z->limits, &limits, sizeof(limits)) == 0;
}

/* The memory is mostly shared with the zygote and does not count. */
static void note_base(struct spawner *s, struct box *box)
{
    struct zygote *z = &s->zygotes[box->maker];
    box->base_memory = cgroup_leaf_memory(&s->cgroups, &box->leaf);
    z->base_memory = box->base_memory;
    z->used_ms = clock_ms();
    z->wants_kits = z->wants_kits || box->flags & BOX_NETWORK;
}

static void on_change(struct spawner *s, const struct box *box, enum box_state to)
{
    struct zygote *z = &s->zygotes[box->maker];
    if (to == STATE_READY)
        return;
    *(box->egress.is_spoilt ? &z->kits : &z->parked) -= 1;
    if (box->egress.is_spoilt && to > STATE_STARTING) /* no kit could be made */
        z->wants_kits = false;
}

const struct box_ahead zygote_ahead = {fits, note_base, on_change};

/* Maps the ids of every box to themselves, and the zygote's own id to 0. */
static int write_map(const struct spawner *s, int proc_fd, const char *file, unsigned own)
{
    char map[128];
    unsigned first = s->ids.base;
    unsigned end = first + s->ids.blocks_in_range * SLOTS_PER_BLOCK * IDS_PER_SLOT;
    int used = snprintf(map, sizeof(map), "0 %u 1", own);
    if (own > first)
        used += snprintf(
            map + used, sizeof(map) - (size_t)used, "\n%u %u %u", first, first, own - first);
    if (own + 1 < end)
        (void)snprintf(map + used, sizeof(map) - (size_t)used, "\n%u %u %u", own + 1, own + 1,
            end - own - 1);
    return fs_write_once(proc_fd, file, map);
}

static int map_ids(const struct spawner *s, const struct zygote_process *p, int pid)
{
    char path[32];
    unsigned own = ids_payload(&s->ids, p->slot);
    (void)snprintf(path, sizeof(path), "/proc/%d", pid);
    cleanup_close int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int r = fd < 0 ? -errno : fs_write_once(fd, "setgroups", "deny");
    if (r < 0 || (r = write_map(s, fd, "uid_map", own)) < 0)
        return r;
    return write_map(s, fd, "gid_map", s->zygote_gid ? s->zygote_gid : own);
}

enum { PACKAGE_FD = ZYGOTE_LIFE_FD + 1, ZYGOTE_FDS = 4 };

/* The child: joins its groups, enters its tree and becomes the interpreter. It keeps the
 * capabilities in its own user namespace: making boxes needs them. */
static _Noreturn void be_zygote(
    const struct spawner *s, const struct zygote *z, int socket, const int *joins, int count)
{
    static char *argv[PACKAGE_MAX_ARGS + 1];
    static char *env[PACKAGE_MAX_ENV + 1];
    struct package package;
    size_t at = 0;
    char go;
    for (int i = 0; i < count; i++) {
        if (sys_cgroup_join(joins[i]) < 0)
            _exit(2);
    }
    /* The zygote must not hold the spawner's end of its own socket, or it would never see the
     * socket close. */
    const int fds[ZYGOTE_FDS] = {
        socket, open("/", O_PATH | O_DIRECTORY | O_CLOEXEC), s->life_fd, z->package_fd};
    if (fds[1] < 0 || inside_die_first() < 0 ||
        program_arrange_fds(fds, ZYGOTE_FDS, PACKAGE_FD - ZYGOTE_SOCKET_FD) < 0 ||
        inside_follow(ZYGOTE_LIFE_FD) < 0 || recv(ZYGOTE_SOCKET_FD, &go, 1, 0) != 1 ||
        setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0 || inside_follow(ZYGOTE_LIFE_FD) < 0 ||
        setsid() < 0 || chdir(z->flags & BOX_FORKS ? "/r" : "/r/" ROOT_TREE) < 0 ||
        chroot(".") < 0 || chdir("/") < 0 || package_open(PACKAGE_FD, &package) < 0)
        _exit(3);
    for (uint32_t i = 0; i < package.head.argc; i++)
        argv[i] = (char *)package_string(&package, &at);
    for (uint32_t i = 0; i < package.head.envc; i++)
        env[i] = (char *)package_string(&package, &at);
    (void)execve(s->roots[z->root].execs[0], argv, env);
    _exit(4);
}

static int hear(const struct spawner *s, const struct zygote_process *p, int wait_ms,
    struct zygote_reply *ret, int ret_fds[2])
{
    struct pollfd ready = {.fd = p->socket, .events = POLLIN};
    unsigned count = 0;
    ret_fds[0] = ret_fds[1] = -1;
    if (poll(&ready, 1, wait_ms) != 1)
        return -ETIMEDOUT;
    ssize_t n = box_receive(s, p->socket, ret, sizeof(*ret), ret_fds, 2, &count);
    if (n == (ssize_t)sizeof(*ret))
        return 0;
    close_fd(&ret_fds[0]);
    close_fd(&ret_fds[1]);
    return -EPIPE;
}

/* There is no slot for the box. It is a child of this process, so it is ended here. */
static int refuse_birth(int fds[2])
{
    (void)sys_pidfd_send_signal(fds[0], SIGKILL);
    orphans_expect();
    close_fd(&fds[0]);
    close_fd(&fds[1]);
    return -EMFILE;
}

/* Ends the boxes of its last answers, which came too late. */
static void drain(const struct spawner *s, struct zygote_process *p)
{
    struct zygote_reply reply;
    int fds[2];
    while (p->socket >= 0 && hear(s, p, 0, &reply, fds) == 0) {
        if (fds[0] >= 0)
            (void)refuse_birth(fds);
    }
}

/* Does not wait for its end. A box that it may still make finds its link closed, and ends. */
static void stop(struct spawner *s, struct zygote_process *p)
{
    if (p->pidfd >= 0) {
        /* Does not kill the control group: a box that it has just made may not have left that
         * group yet. */
        (void)sys_pidfd_send_signal(p->pidfd, SIGKILL);
        orphans_expect();
        close_fd(&p->pidfd);
    }
    drain(s, p);
    close_fd(&p->socket);
    if (p->slot >= 0) {
        leaves_remove(&s->leaves, &s->cgroups, &p->leaf);
        ids_release(&s->ids, p->slot, false);
    }
    p->slot = -1;
    p->made = 0;
    p->is_up = false;
    p->is_broken = false;
}

static int clone_zygote(
    struct spawner *s, const struct zygote *z, struct zygote_process *p, int socket)
{
    int joins[CGROUP_MAX_TREES];
    struct sys_clone_args args = {.flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET |
                                           CLONE_NEWIPC | CLONE_NEWUTS | CLONE_PIDFD |
                                           CLONE_CLEAR_SIGHAND,
        .pidfd = (uint64_t)(uintptr_t)&p->pidfd,
        .exit_signal = SIGCHLD};
    int into = cgroup_leaf_into_fd(&s->cgroups, &p->leaf);
    int count = cgroup_leaf_open_joins(&s->cgroups, &p->leaf, false, joins);
    if (count < 0)
        return count;
    if (into >= 0) {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = (uint64_t)into;
    }
    int pid = sys_clone3(&args);
    if (pid == 0)
        be_zygote(s, z, socket, joins, count);
    for (int i = 0; i < count; i++)
        (void)close(joins[i]);
    return pid;
}

static int start(struct spawner *s, int index, struct zygote_process *p)
{
    struct zygote *z = &s->zygotes[index];
    struct spawn_limits limits = s->setup.max;
    int pair[2];
    uint32_t step;
    if (limits.memory_bytes < ZYGOTE_MEMORY)
        limits.memory_bytes = ZYGOTE_MEMORY;
    int r = ids_claim(&s->ids, false);
    if (r < 0)
        return r;
    p->slot = r;
    p->serial = ++s->zygote_serial;
    p->start_ms = clock_ms();
    cgroup_leaf_init(&p->leaf);
    if ((r = cgroup_leaf_make(&s->cgroups, &limits, 0, &p->leaf, &step)) < 0) {
        ids_release(&s->ids, p->slot, false);
        p->slot = -1;
        return r;
    }
    /* Low until it is up, because others run meanwhile. */
    cgroup_leaf_weigh(&s->cgroups, &p->leaf, WEIGHT_MAX / 4);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    p->socket = pair[0];
    cleanup_close int theirs = pair[1];
    const int room = ZYGOTE_MAX_BIRTHS * 2 * (int)sizeof(struct zygote_request);
    if (setsockopt(p->socket, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room)) < 0)
        (void)setsockopt(p->socket, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    if ((r = tree_enter(s->roots[z->root].ns_fd)) < 0)
        return r;
    s->current_ns = s->roots[z->root].ns_fd;
    int pid = clone_zygote(s, z, p, theirs);
    if (pid < 0 || (r = map_ids(s, p, pid)) < 0)
        return pid < 0 ? pid : r;
    struct epoll_event e = {
        .events = EPOLLIN, .data.u64 = (uint64_t)index * TAG_COUNT + TAG_ZYGOTE};
    if (send(p->socket, "g", 1, MSG_NOSIGNAL) != 1 ||
        epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, p->socket, &e) < 0)
        return -errno;
    return 0;
}

int zygote_ask(struct zygote *z, const struct zygote_request *request, const int *fds,
    unsigned count, unsigned box)
{
    struct zygote_process *p = &z->now;
    int r = fdpass_send_now(p->socket, request, sizeof(*request), fds, count);
    if (r == -EAGAIN) /* it hangs or has too much to do; the caller starts cold */
        return r;
    if (r < 0) {
        p->is_up = false;
        p->is_broken = true; /* zygote_tend() removes it */
        return r;
    }
    if (!p->birth_count)
        p->asked_ms = clock_ms();
    p->births[p->birth_count++] = (uint16_t)box;
    p->made++;
    return 0;
}

/* Takes the box that the next answer is about off the list. */
static struct box *next_born(struct spawner *s, struct zygote_process *p)
{
    struct box *box = &s->boxes[p->births[0]];
    memmove(p->births, p->births + 1, --p->birth_count * sizeof(p->births[0]));
    p->asked_ms = clock_ms();
    return box;
}

static void give_up(struct spawner *s, struct zygote_process *p, int error)
{
    p->is_up = false;
    p->is_broken = true;
    while (p->birth_count)
        box_born(s, next_born(s, p), error, -1, -1);
}

/* Takes one message: the first says that the zygote is up, each further one answers for a box.
 * False when there is none. */
static bool listen_to(struct spawner *s, struct zygote_process *p, int wait_ms)
{
    struct zygote_reply reply;
    int fds[2];
    if (p->socket < 0)
        return false;
    int r = hear(s, p, wait_ms, &reply, fds);
    if (r == -ETIMEDOUT)
        return false;
    r = r == 0 && p->is_broken ? -EPROTO : r;
    if (r == 0 && !p->is_up) {
        p->is_up = true;
        cgroup_leaf_weigh(&s->cgroups, &p->leaf, WEIGHT_MAX);
    } else if (r == 0 && p->birth_count) {
        bool is_spare = fds[0] >= 0 && box_fds_spare(s, fds, 2);
        int error = is_spare ? refuse_birth(fds) : reply.pid < 0 ? reply.pid : 0;
        box_born(s, next_born(s, p), error, take_fd(&fds[0]), take_fd(&fds[1]));
    } else {
        if (fds[0] >= 0)
            (void)refuse_birth(fds);
        give_up(s, p, r < 0 ? r : -EPROTO);
        stop(s, p);
    }
    close_fd(&fds[0]);
    close_fd(&fds[1]);
    return true;
}

/* Delays the next start: a zygote that never comes up, because of a module that it imports,
 * must not start all the time. */
static void retry_later(struct zygote *z)
{
    z->retry_ms = clock_ms() + ((uint64_t)RETRY_MS << z->failures);
    if (z->failures < RETRY_DOUBLES)
        z->failures++;
}

void zygote_event(struct spawner *s, int index)
{
    struct zygote *z = &s->zygotes[index];
    if (listen_to(s, &z->now, 0) && z->now.socket < 0)
        retry_later(z);
    if (listen_to(s, &z->next, 0) && z->next.socket < 0)
        retry_later(z);
    if (z->now.is_up)
        z->failures = 0;
}

bool zygote_check(struct spawner *s)
{
    bool owes = false;
    for (uint32_t i = 0; i < s->zygote_count; i++) {
        struct zygote_process *p = &s->zygotes[i].now;
        bool is_due = p->birth_count && clock_ms() > p->asked_ms + ANSWER_MS;
        if (is_due) /* read its answer first: this process may have been delayed, too */
            zygote_event(s, (int)i);
        if (is_due && p->birth_count && clock_ms() > p->asked_ms + ANSWER_MS)
            give_up(s, p, -ETIMEDOUT);
        owes = owes || p->birth_count;
    }
    return owes;
}

/* Making a ready box takes CPU time from the runs of that moment. While one run has a box, it
 * waits until half of the ready boxes are gone; while several have, until they are done. Boxes
 * on demand cost less in total. */
static bool wants_more(const struct spawner *s, const struct zygote *z)
{
    return z->parked < z->park && !s->is_short && !z->now.birth_count &&
           (!s->running || (s->running == 1 && z->parked * 2 < z->park));
}

/* Once a box with a network was asked for, some ready boxes get a kit ahead. Others take their
 * place, so that boxes without a network find as many as before. */
static bool equip(struct spawner *s, int index)
{
    struct zygote *z = &s->zygotes[index];
    if (!z->wants_kits || z->kits == NETWORK_KITS_MAX || s->running > 1 || s->is_short ||
        !box_equip_parked(s, index))
        return false;
    z->parked--;
    z->kits++;
    return true;
}

/* Replaces a zygote from time to time, because all its boxes share the layout of its memory and
 * its hash seed. The next one starts beside it, so that no request waits. Ready boxes of the
 * old one stay. Returns whether something was done. */
static bool relieve(struct spawner *s, int index)
{
    struct zygote *z = &s->zygotes[index];
    if (z->next.is_up) {
        while (listen_to(s, &z->now, z->now.birth_count ? LAST_WORD_MS : 0))
            ;
        give_up(s, &z->now, -ETIMEDOUT);
        stop(s, &z->now);
        z->now = z->next;
        z->next = (struct zygote_process){.socket = -1, .pidfd = -1, .slot = -1};
        return true;
    }
    uint64_t now_ms = clock_ms();
    if (z->now.made < BOXES_PER_ZYGOTE || now_ms < z->now.start_ms + LEAST_AGE_MS ||
        z->next.socket >= 0 || now_ms < z->retry_ms)
        return false;
    if (start(s, index, &z->next) < 0) {
        stop(s, &z->next);
        z->retry_ms = clock_ms() + RETRY_MS;
    }
    return true;
}

/* Ends a zygote with much memory that no run needs, or that the host needs more; its ready
 * boxes share that memory. It owes no box. Returns whether something was done. */
static bool rest(struct spawner *s, int index)
{
    struct zygote *z = &s->zygotes[index];
    if (!z->idle_ms || z->now.birth_count ||
        (!s->is_short && clock_ms() < z->used_ms + z->idle_ms))
        return false;
    z->is_wanted = false;
    if (box_drop_parked(s, &zygote_ahead, index))
        return true;
    stop(s, &z->now);
    stop(s, &z->next);
    return false;
}

static bool is_late(const struct zygote_process *p)
{
    return p->socket >= 0 && !p->is_up && clock_ms() > p->start_ms + START_MS;
}

bool zygote_tend(struct spawner *s)
{
    for (uint32_t i = 0; i < s->zygote_count; i++) {
        struct zygote *z = &s->zygotes[i];
        if (relieve(s, (int)i) || rest(s, (int)i))
            return true;
        if (is_late(&z->next)) {
            stop(s, &z->next);
            retry_later(z);
        }
        if (z->now.is_broken || is_late(&z->now)) {
            give_up(s, &z->now, -EPIPE);
            stop(s, &z->now);
            retry_later(z);
        }
        if (clock_ms() < z->retry_ms)
            continue;
        if (z->now.socket < 0 && z->is_wanted && !s->ids.rootless) {
            if (start(s, (int)i, &z->now) < 0) {
                stop(s, &z->now);
                retry_later(z);
            }
            return true;
        }
        if (z->now.is_up && wants_more(s, z)) {
            if (box_park(s, (int)i) < 0)
                z->retry_ms = clock_ms() + RETRY_MS;
            return true;
        }
        if (equip(s, (int)i))
            return true;
    }
    return false;
}

void zygote_kill_all(struct spawner *s)
{
    for (uint32_t i = 0; i < s->zygote_count; i++) {
        s->zygotes[i].now.birth_count = 0; /* box_kill_all() ends these boxes */
        stop(s, &s->zygotes[i].now);
        stop(s, &s->zygotes[i].next);
    }
}
