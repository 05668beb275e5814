/* SPDX-License-Identifier: Apache-2.0 */

/* hermes-spawn: the only program that makes boxes. One thread, one epoll; messages are fixed
 * structs (proto/spawn.h). Until the seal it trusts its control socket, which the monitor or
 * `hermes run` holds. After the seal the holder of that socket can start boxes from the sealed
 * table and nothing else. Every box ends when the control socket closes. Every box also ends
 * when our parent ends, because the holder may have hidden a copy of the socket, even inside a
 * box. */

#include "base/cleanup.h"
#include "base/os/fdpass.h"
#include "base/os/sys.h"
#include "box/landlock.h"
#include "spawn/box.h"
#include "spawn/idmap.h"
#include "spawn/orphans.h"
#include "spawn/probe.h"
#include "spawn/program.h"
#include "spawn/setup.h"

#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_PACKET = sizeof(struct spawn_root) + SPAWN_MAX_ENTRIES * sizeof(struct spawn_entry)
};

enum { LOOK_MS = 2 };

static struct spawner spawner;
static char packet[MAX_PACKET];

/* The first failure before the seal; reported in the answer to the seal. */
static struct spawn_reply problem;

static void note_problem(uint32_t step, int error, const char *detail)
{
    if (problem.error)
        return;
    problem.step = step;
    problem.error = error;
    (void)snprintf(problem.detail, sizeof(problem.detail), "%.*s",
        (int)sizeof(problem.detail) - 1, detail);
}

/* Sends an order to hermes-setup; after a failure notes the problem. Returns whether it went
 * well. */
static bool order(const void *data, size_t size, struct setup_answer *ret, int *fds,
    unsigned max, unsigned *ret_count)
{
    int r = setup_call(&spawner.helper, data, size, ret, fds, max, ret_count);
    if (r < 0)
        note_problem(ret->step, r, ret->detail);
    return r == 0;
}

/* Takes over the ids and control groups that SETUP_HOST has found. */
static int take_host(const struct setup_answer *answer, const int *fds, unsigned count)
{
    struct spawner *s = &spawner;
    struct cgroup_host *host = &s->cgroups;
    bool is_nested = answer->group[0];
    unsigned lock = !s->ids.rootless;
    if (answer->tree_count > CGROUP_MAX_TREES ||
        count != lock + answer->tree_count * (is_nested ? 2 : 1))
        return -EPROTO;
    if (lock)
        s->ids.lock_fd = fds[0];
    *host = (struct cgroup_host){.mode = answer->cgroup_mode,
        .count = answer->tree_count,
        .processes = s->setup.processes_total,
        .reason = answer->cgroup_reason};
    for (unsigned i = 0; i < host->count; i++) {
        struct cgroup_tree *tree = &host->trees[i];
        *tree = (struct cgroup_tree){.use = answer->trees[i].use,
            .v2 = answer->trees[i].is_v2,
            .top_fd = fds[lock + i],
            .fd = fds[lock + i + (is_nested ? host->count : 0)]};
        memcpy(tree->name, answer->group, sizeof(tree->name));
        host->use |= tree->use;
    }
    return ids_set_range(&s->ids, answer);
}

static void on_setup(const struct spawn_setup *setup)
{
    struct spawner *s = &spawner;
    int fds[SETUP_MAX_FDS];
    unsigned count;
    struct setup_answer answer;
    if (setup->protocol != SPAWN_PROTOCOL) {
        note_problem(STEP_SPAWNER, -EPROTO, "hermes and hermes-spawn are of different builds");
        return;
    }
    s->setup = *setup;
    int r = ids_enter(&s->ids, &s->helper);
    if (r < 0) {
        note_problem(STEP_SPAWNER, r, "user namespace");
        return;
    }
    if (setup->park_free_percent) /* now, while /proc is still the host's */
        s->meminfo_fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    s->network.is_shared = setup->flags & SETUP_SHARE_NETWORKS;
    if (setup->networks && !s->ids.rootless)
        network_keep(&s->network, setup->networks);
    s->landlock_abi = landlock_abi();
    const struct setup_order host = {.kind = SETUP_HOST,
        .protocol = SPAWN_PROTOCOL,
        .is_rootless = s->ids.rootless,
        .has_ids = ids_are_own(&s->ids),
        .uid_base = setup->uid_base,
        .uid_count = setup->uid_count,
        .processes_total = setup->processes_total};
    if (!order(&host, sizeof(host), &answer, fds, SETUP_MAX_FDS, &count))
        return;
    if ((r = take_host(&answer, fds, count)) < 0)
        note_problem(STEP_SPAWNER, r, "uid range");
    else if ((r = zygote_open_groups(s)) < 0)
        note_problem(STEP_CGROUP, r, "the group of all boxes, with processes_total");
}

static void on_root(const struct spawn_root *root, size_t size)
{
    struct spawner *s = &spawner;
    struct setup_answer answer;
    unsigned count;
    if (problem.error)
        return;
    if (!s->setup.protocol || s->root_count == SPAWN_MAX_ROOTS) {
        note_problem(STEP_ROOT, -EINVAL, "root table");
        return;
    }
    struct tree *tree = &s->roots[s->root_count];
    if (!order(root, size, &answer, &tree->ns_fd, 1, &count))
        return;
    /* hermes-setup has compared the size and the count */
    int r = tree_note_execs(tree, (const struct spawn_entry *)(root + 1), root->count);
    if (r < 0)
        note_problem(STEP_ROOT, r, "programs");
    else
        s->root_count++;
}

static void on_source(const struct spawn_source *source)
{
    struct spawner *s = &spawner;
    struct setup_answer answer;
    unsigned count;
    if (!s->setup.protocol || s->root_count || s->source_count == SPAWN_MAX_SOURCES ||
        !memchr(source->path, 0, sizeof(source->path))) {
        note_problem(STEP_ROOT, -EINVAL,
            "directories come after the set-up and before roots, at most 64");
        return;
    }
    bool is_writable = source->writable == SOURCE_WRITABLE || source->writable == SOURCE_TRY;
    if (source->writable == SOURCE_LAYERS && !s->images.has_source)
        s->images = (struct images){.has_source = true, .source = s->source_count};
    s->writable_sources[s->source_count++] = is_writable;
    if (problem.error || !order(source, sizeof(*source), &answer, NULL, 0, &count) ||
        !is_writable || !s->ids.unique)
        return;
    /* A file system without id-mapped mounts should fail here and not at the first box. */
    int fd = idmap_clone(source->path, ids_payload(&s->ids, 0));
    if (fd < 0 && source->writable == SOURCE_TRY)
        s->writable_sources[s->source_count - 1] = false;
    else if (fd < 0)
        note_problem(STEP_MOUNT, fd, source->path);
    close_fd(&fd);
}

static void on_zygote(const struct spawn_zygote *zygote, int package_fd)
{
    int r = zygote_add(&spawner, zygote, package_fd);
    if (r < 0)
        note_problem(STEP_ROOT, r,
            r == -E2BIG ? "too many `warm` and `session_warm` in the runtime.json of languages"
                        : "zygote");
}

static void on_pool(const struct spawn_pool *pool, int package_fd)
{
    int r = pool_add(&spawner, pool, package_fd);
    if (r < 0)
        note_problem(STEP_ROOT, r, "pool");
}

static _Noreturn void finish(int status);

/* The client waits for the reply. If it cannot be sent, the end of the socket is the answer. */
static void answer(const struct spawn_reply *reply)
{
    while (send(SPAWN_CONTROL_FD, reply, sizeof(*reply), MSG_NOSIGNAL) < 0) {
        if (errno != EINTR)
            finish(1);
    }
}

/* Answers with what this host enforces. Below the minimum level nothing is sealed and no box
 * can start. */
static void on_seal(const struct spawn_seal *seal)
{
    struct spawner *s = &spawner;
    cpu_set_t cpus;
    _Static_assert(sizeof(cpus) == sizeof(seal->cpus), "as large as the kernel's own");
    if (seal) {
        memcpy(&cpus, seal->cpus, sizeof(cpus));
        if (sched_setaffinity(0, sizeof(cpus), &cpus) < 0)
            note_problem(STEP_SPAWNER, -errno, "processors");
    }
    struct spawn_reply reply = problem;
    reply.kind = SPAWN_SEAL;
    probe_known(s, &reply);
    reply.network_error = s->egress.source < 0 ? -ENOSYS : 0;
    if (s->egress.source >= 0 && s->setup.networks) /* a single run finds out soon enough */
        egress_probe(s, &reply);
    if (!reply.error && reply.level < s->setup.min_level) {
        reply.error = -EPERM;
        reply.step = STEP_SPAWNER;
    }
    s->sealed = reply.error == 0;
    if (s->sealed)
        setup_finish(&s->helper); /* from here on it works beside us */
    answer(&reply);
}

static void on_probe(void)
{
    struct spawn_reply reply = problem;
    reply.kind = SPAWN_PROBE;
    probe_all(&spawner, &reply);
    egress_probe(&spawner, &reply);
    answer(&reply);
}

static void on_packet(size_t size, int *fds, unsigned fd_count)
{
    uint32_t kind = 0;
    if (size >= sizeof(kind))
        memcpy(&kind, packet, sizeof(kind));
    if (spawner.sealed && kind == SPAWN_BOX && size == sizeof(struct spawn_box)) {
        box_start(&spawner, (const struct spawn_box *)packet, fds, fd_count);
        return;
    }
    if (kind == SPAWN_IMAGE && size == sizeof(struct spawn_image))
        image_make(&spawner, (const struct spawn_image *)packet, fds, fd_count);
    if (!spawner.sealed) {
        if (kind == SPAWN_SETUP && size == sizeof(struct spawn_setup))
            on_setup((const struct spawn_setup *)packet);
        else if (kind == SPAWN_ROOT && size >= sizeof(struct spawn_root))
            on_root((const struct spawn_root *)packet, size);
        else if (kind == SPAWN_MOUNT && size == sizeof(struct spawn_source))
            on_source((const struct spawn_source *)packet);
        else if (kind == SPAWN_ZYGOTE && size == sizeof(struct spawn_zygote) && fd_count)
            on_zygote((const struct spawn_zygote *)packet, take_fd(&fds[0]));
        else if (kind == SPAWN_POOL && size == sizeof(struct spawn_pool) && fd_count)
            on_pool((const struct spawn_pool *)packet, take_fd(&fds[0]));
        else if (kind == SPAWN_NETWORK && fd_count && !spawner.ids.rootless)
            network_expect(&spawner.network, take_fd(&fds[0]));
        else if (kind == SPAWN_EGRESS && fd_count)
            egress_expect(&spawner, take_fd(&fds[0]));
        else if (kind == SPAWN_SEAL)
            on_seal(
                size == sizeof(struct spawn_seal) ? (const struct spawn_seal *)packet : NULL);
        else if (kind == SPAWN_PROBE)
            on_probe();
    }
    for (unsigned i = 0; i < fd_count; i++)
        close_fd(&fds[i]);
}

/* Slow clean-up that is done once, when the spawner is idle before the first box; not at all if
 * a box was requested at once. */
static bool is_tidy;

static void tidy_once(void)
{
    struct spawner *s = &spawner;
    if (is_tidy)
        return;
    is_tidy = true;
    for (uint32_t i = 0; i < s->root_count; i++) {
        s->current_ns = tree_drop_host(&s->roots[i]) == 0 ? s->roots[i].ns_fd : -1;
    }
}

/* Ends all zygotes and boxes, removes their control groups, and exits. */
static _Noreturn void finish(int status)
{
    zygote_kill_all(&spawner);
    box_kill_all(&spawner);
    setup_finish(&spawner.helper);
    (void)setup_reap(&spawner.helper, true);
    for (int i = 0; i < 200; i++) {
        leaves_sweep(&spawner.leaves, &spawner.cgroups);
        if (!spawner.leaves.dying_count && cgroup_host_unnest(&spawner.cgroups) == 0)
            break;
        (void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    _exit(status);
}

static void on_control(void)
{
    int fds[BOX_MAX_FDS];
    unsigned fd_count;
    ssize_t n = box_receive(
        &spawner, SPAWN_CONTROL_FD, packet, sizeof(packet), fds, BOX_MAX_FDS, &fd_count);
    if (n == 0 || (n < 0 && n != -EMSGSIZE && n != -EAGAIN))
        finish(0);
    if (n > 0)
        on_packet((size_t)n, fds, fd_count);
}

/* Every live box takes about twenty descriptors; the soft limit of a shell would end at fifty.
 * Control groups that wait for one may have a sixth of them, at sixteen each. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        if (limit.rlim_max > INT_MAX)
            limit.rlim_max = INT_MAX;
        spawner.fd_end = (int)limit.rlim_max - BOX_MAX_FDS;
        limit.rlim_cur = (rlim_t)spawner.fd_end;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
        spawner.leaves.used_max =
            limit.rlim_max / 96 < LEAVES_USED ? (unsigned)limit.rlim_max / 96 : LEAVES_USED;
    }
}

/* Replaces the stdio of the parent, because boxes inherit the stdio of the spawner. The parent
 * has reset the signals. */
static int start_clean(void)
{
    (void)setsid();
    /* Real-time processes may not enter a CPU control group, and no box should be one. musl's
     * sched_setscheduler() does nothing, hence the system call. */
    (void)syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, &(struct sched_param){0});
    raise_descriptor_limit();
    int null = open("/dev/null", O_RDWR);
    if (null < 0)
        return -errno;
    for (int fd = 0; fd < 3; fd++) {
        if (dup2(null, fd) < 0)
            return -errno;
    }
    if (null > 2)
        (void)close(null);
    (void)sys_close_range(SPAWN_CONTROL_FD + 1, ~0u, 0);
    (void)umask(022);
    return fcntl(SPAWN_CONTROL_FD, F_SETFD, FD_CLOEXEC) < 0 ? -errno : 0;
}

/* Makes the life file, by which children notice that the spawner has ended (inside_follow()).
 * The spawner locks it. When the spawner ends, the kernel drops the lock with the descriptors,
 * before it signals children. A child inherits the file but not the lock. The spawner never
 * closes it. */
static int open_life(void)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    cleanup_close int fd = memfd_create("hermes-life", MFD_CLOEXEC);
    if (fd < 0 || fcntl(fd, F_SETLK, &lock) < 0)
        return -errno;
    return take_fd(&fd);
}

/* Has epoll tell of our parent's end. A pidfd stands for the whole process: it does not matter
 * which of its threads has started us. A parent that has ended before we look has sent no seal,
 * and no other process has its socket yet. */
static void watch_parent(void)
{
    struct epoll_event e = {.events = EPOLLIN, .data.u64 = EVENT_PARENT};
    int fd = sys_pidfd_open(getppid()); /* never closed */
    if (fd < 0 || epoll_ctl(spawner.epoll_fd, EPOLL_CTL_ADD, fd, &e) < 0)
        note_problem(STEP_SPAWNER, fd < 0 ? fd : -errno, "to watch the parent process");
}

/* Called when no request waits: makes one part that later boxes will need. Returns whether it
 * made one. */
static bool tend(void)
{
    bool is_server = spawner.setup.networks && spawner.cgroups.count;
    return (is_server && leaves_prepare(&spawner.leaves, &spawner.cgroups)) ||
           zygote_tend(&spawner) || pool_tend(&spawner);
}

static int start(void)
{
    if (start_clean() < 0)
        return -1;
    spawner.current_ns = -1;
    spawner.life_fd = open_life();
    /* now, while /proc and paths are the host's */
    spawner.fork_fd = program_open("hermes-fork");
    spawner.helper = (struct setup){.program_fd = program_open("hermes-setup"), .socket = -1};
    network_init(&spawner.network);
    egress_init(&spawner.egress);
    spawner.channel = -1;
    spawner.last_key = NETWORK_NEW;
    spawner.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event control = {.events = EPOLLIN, .data.u64 = TAG_CONTROL};
    if (spawner.epoll_fd < 0 || spawner.life_fd < 0 ||
        epoll_ctl(spawner.epoll_fd, EPOLL_CTL_ADD, SPAWN_CONTROL_FD, &control) < 0)
        return -1;
    watch_parent();
    return 0;
}

static void dispatch(uint64_t data)
{
    struct box *box = &spawner.boxes[data / TAG_COUNT % MAX_BOXES];
    if (data == EVENT_PARENT)
        finish(0);
    else if (data == EVENT_EGRESS)
        egress_arrived(&spawner);
    else if (data == EVENT_KIT)
        egress_answered(&spawner);
    else if (data == TAG_CONTROL)
        on_control();
    else if (data % TAG_COUNT == TAG_ZYGOTE)
        zygote_event(&spawner, (int)(data / TAG_COUNT));
    else if (data % TAG_COUNT == TAG_IMAGE)
        image_check(&spawner, (uint32_t)(data / TAG_COUNT));
    else if (box->state)
        box_event(&spawner, box, (enum box_tag)(data % TAG_COUNT));
}

int main(int argc, char **argv)
{
    if (start() < 0)
        return 1;
    for (bool more = false;;) {
        struct epoll_event events[64];
        bool could_tidy = !is_tidy && spawner.sealed && !spawner.box_end;
        bool is_ending = setup_reap(&spawner.helper, false);
        bool has_orphans = orphans_reap(&spawner);
        bool is_owed = zygote_check(&spawner) || is_ending || has_orphans;
        bool looks = box_look_for_kills(&spawner);
        looks = egress_check(&spawner) || looks;
        int timeout = could_tidy || more                      ? 0
                      : looks                                 ? LOOK_MS
                      : spawner.leaves.dying_count || is_owed ? 20
                                                              : pool_pause_ms(&spawner);
        int pause = shares_pause_ms(&spawner);
        if (pause >= 0 && (timeout < 0 || pause < timeout))
            timeout = pause;
        int n = epoll_wait(spawner.epoll_fd, events, 64, timeout);
        if (n < 0 && errno != EINTR)
            finish(1);
        if (n == 0 && could_tidy)
            tidy_once();
        if (n == 0)
            more = spawner.sealed && tend();
        else
            more = spawner.setup.networks + spawner.zygote_count + spawner.pool_count > 0;
        for (int i = 0; i < n; i++)
            dispatch(events[i].data.u64);
        if (spawner.is_lost)
            finish(1);
        if (spawner.leaves.dying_count)
            leaves_sweep(&spawner.leaves, &spawner.cgroups);
        shares_tend(&spawner);
    }
}
