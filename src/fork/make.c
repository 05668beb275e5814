/* SPDX-License-Identifier: Apache-2.0 */

/* Makes one copy of a session (spawn/copy.h). This process is root outside the box, as the
 * spawner is. Its children work with names and bytes of the box; each enters the user namespace
 * of the box first. It may be killed at any moment: then the copy dies, and the spawner lets
 * the original go on. */

#include "fork/fork.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/copy_tree.h"
#include "base/os/fdpass.h"
#include "base/os/fs.h"
#include "base/os/netns.h"
#include "base/os/sys.h"
#include "box/inside.h"
#include "box/mount_fs.h"
#include "fork/inject.h"
#include "proto/terminal.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    HELLO_S = 20,        /* seconds for the original to fork and the copy to say hello */
    CONFINE_S = 5,       /* seconds from hello to the files */
    COPY_S = 60,         /* seconds for the files */
    READY_MS = 5000,     /* for the copy to move its descriptors over */
    SPACE_ATTEMPTS = 20, /* of make_spaces() */
    SCOPED = 3,          /* Landlock scopes: abstract sockets and signals */
};

static void set_alarm(time_t seconds)
{
    const struct itimerval timer = {.it_value.tv_sec = seconds};
    (void)setitimer(ITIMER_REAL, &timer, NULL);
}

/* Opens /box, /tmp and /dev/shm as a process sees them. */
static int open_places(pid_t pid, int flags, int ret_fds[3])
{
    static const char *const names[] = {"root/box", "root/tmp", "root/dev/shm"};
    for (int i = 0; i < 3; i++) {
        ret_fds[i] = fork_open_proc(pid, names[i], flags | O_DIRECTORY | O_NOFOLLOW);
        if (ret_fds[i] < 0)
            return ret_fds[i];
    }
    return 0;
}

/* The first move between control groups after a pause waits milliseconds for the kernel; the
 * next ones do not. So a child makes one move ahead, while the original is busy forking. */
static _Noreturn void warm_up(const struct fork_work *w)
{
    if (sys_die_with(w->worker) == 0)
        (void)fork_join(w);
    _exit(0);
}

static int end_child(int pid)
{
    while (pid > 0 && waitpid(pid, NULL, 0) < 0) {
        if (errno != EINTR)
            return -errno;
    }
    return pid < 0 ? pid : 0;
}

static int stop_copy(struct fork_work *w)
{
    int warmer = sys_fork();
    if (warmer == 0)
        warm_up(w);
    int r = fork_know_family(w);
    r = r < 0 ? r : fork_hear_hello(w);
    set_alarm(CONFINE_S);
    if (r < 0 || (r = fork_know_copy(w)) < 0)
        return r;
    struct link_record known = {.kind = LINK_KNOWN};
    if ((r = fork_read_inner_pid(w, &known.pid)) < 0 ||
        (r = fdpass_send(COPY_REPORT_FD, &known, sizeof(known), &w->pidfd, 1)) < 0)
        return r;
    const struct cgroup_host *host = &w->host;
    if ((r = inject_attach(w->copy, w->pid, w->pidfd)) < 0 ||
        (r = cgroup_leaf_move(host, &w->leaf, w->pid)) < 0 || (r = end_child(warmer)) < 0 ||
        (r = cgroup_leaf_freeze(host, &w->parent_leaf, true)) < 0 ||
        (r = cgroup_leaf_settle(host, &w->parent_leaf)) < 0 || (r = fork_check_alone(w)) < 0)
        return r;
    return open_places(w->parent_pid, O_RDONLY, w->from_fds);
}

/* Writes the id maps of the copy: its own id appears as 1000, and ids of copies that it may
 * have itself appear unchanged. */
static int write_maps(const struct fork_work *w)
{
    char map[1024];
    cleanup_close int ns = fork_open_proc(w->parent_pid, "ns/user", O_RDONLY);
    int used = snprintf(
        map, sizeof(map), "%d %d 1", BOX_PAYLOAD_ID, BOX_PAYLOAD_ID + (int)w->order.number);
    for (int i = 1; i <= SPAWN_MAX_FORKS; i++) {
        int first = i;
        while (i <= SPAWN_MAX_FORKS && !(w->order.lineage & 1u << i))
            i++;
        if (i > first)
            used += snprintf(map + used, sizeof(map) - (size_t)used, "\n%d %d %d",
                BOX_PAYLOAD_ID + first, BOX_PAYLOAD_ID + first, i - first);
    }
    /* The kernel accepts the maps only from a process in the parent user namespace. */
    if (ns < 0 || setns(ns, CLONE_NEWUSER) < 0)
        return ns < 0 ? ns : -errno;
    int r = sys_die_with(w->worker);
    if (r < 0 || (r = fs_write_once(w->proc_fd, "setgroups", "deny")) < 0 ||
        (r = fs_write_once(w->proc_fd, "uid_map", map)) < 0)
        return r;
    return fs_write_once(w->proc_fd, "gid_map", map);
}

static long make_call(struct tracee *t, long number, uint64_t a, uint64_t b, uint64_t c)
{
    return inject_call(t, &(struct inject_call){.number = number, .args = {a, b, c}});
}

/* The one injected call that the filter refuses. Only now can a process of the family make a
 * user namespace. Copies of one family are made in parallel: one may lower the limit just after
 * another has raised it, hence the attempts. */
static int make_spaces(struct fork_work *w)
{
    const uint64_t alone = w->order.is_alone ? CLONE_NEWNET | CLONE_NEWIPC : 0;
    const struct inject_call call = {.number = SYS_unshare,
        .args = {CLONE_NEWUSER | CLONE_NEWNS | alone},
        .is_unfiltered = true};
    long done = -ENOSPC;
    for (int i = 0; done == -ENOSPC && i < SPACE_ATTEMPTS; i++) {
        int r = copy_limit_users(w->users_fd, true);
        done = r < 0 ? r : inject_call(w->copy, &call);
        r = copy_limit_users(w->users_fd, false);
        done = r < 0 ? r : done;
    }
    return (int)done;
}

/* A run has a network namespace of its own, with nothing but loopback in it. */
static int raise_loopback(const struct fork_work *w)
{
    cleanup_close int ns = fork_open_proc(w->pid, "ns/net", O_RDONLY);
    if (ns < 0 || setns(ns, CLONE_NEWNET) < 0)
        return ns < 0 ? ns : -errno;
    return netns_raise_loopback();
}

/* The original has the largest limits that a run can have; a run gets its own. RLIMIT_FSIZE is
 * not among them: files of the run may be larger than what it may write itself (box/drop.c).
 * Neither is the control group's part. */
static int limit_run(const struct fork_work *w)
{
    const struct spawn_limits *l = &w->order.limits;
    const struct {
        int resource;
        rlim_t value;
        bool use;
    } limits[] = {{RLIMIT_NOFILE, l->open_files, true}, {RLIMIT_STACK, l->stack_bytes, true},
        {RLIMIT_CPU, l->cpu_s, true}, {RLIMIT_NPROC, (rlim_t)l->processes + 1, true},
        {RLIMIT_AS, l->memory_bytes, !(w->host.use & TREE_MEMORY)}};
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        const struct rlimit limit = {limits[i].value, limits[i].value};
        if (limits[i].use && prlimit(w->pid, (unsigned)limits[i].resource, &limit, NULL) < 0)
            return -errno;
    }
    return 0;
}

/* Gives a copy that is a run limits of its own, and raises its loopback. */
static int make_run(const struct fork_work *w)
{
    if (!w->order.is_run)
        return 0;
    int r = limit_run(w);
    return r < 0 ? r : fork_in_child(w, raise_loopback);
}

static int drop_rights(struct tracee *t)
{
    const struct {
        struct __user_cap_header_struct head;
        struct __user_cap_data_struct none[2];
    } set = {.head = {.version = _LINUX_CAPABILITY_VERSION_3}};
    const struct inject_call drop = {.number = SYS_capset,
        .args = {t->scratch, t->scratch + offsetof(__typeof__(set), none)},
        .data = &set,
        .size = sizeof(set)};
    const uint64_t id = BOX_PAYLOAD_ID;
    long r;
    if ((r = make_call(t, SYS_setresgid, id, id, id)) < 0 ||
        (r = make_call(t, SYS_setresuid, id, id, id)) < 0 ||
        (r = make_call(t, SYS_prctl, PR_SET_DUMPABLE, 1, 0)) < 0 ||
        (r = make_call(t, SYS_prctl, PR_SET_SECUREBITS, INSIDE_SECUREBITS, 0)) < 0)
        return (int)r;
    return (int)inject_call(t, &drop);
}

/* Adds a Landlock layer, so that the copy can signal no process outside it. The layer is
 * visible nowhere: these calls, compared at their entries, are the proof. */
static int add_layer(struct tracee *t)
{
    const struct {
        uint64_t fs, net, scoped;
    } attr = {0, 0, SCOPED};
    const struct inject_call create = {.number = NR_landlock_create_ruleset,
        .args = {t->scratch, sizeof(attr)},
        .data = &attr,
        .size = sizeof(attr)};
    long fd = inject_call(t, &create);
    if (fd < 0)
        return (int)fd;
    long done = make_call(t, NR_landlock_restrict_self, (uint64_t)fd, 0, 0);
    long closed = make_call(t, SYS_close, (uint64_t)fd, 0, 0);
    return (int)(done < 0 ? done : closed);
}

/* Makes a call that the filter must refuse. Without the filter the kernel would do nothing and
 * return 0. */
static int prove_filter(struct tracee *t)
{
    long r = make_call(t, SYS_unshare, 0, 0, 0);
    return r == -EPERM ? 0 : r < 0 ? (int)r : -ENOTRECOVERABLE;
}

static int confine(struct fork_work *w)
{
    struct tracee *t = w->copy;
    int r = inject_ready(t, w->proc_fd);
    /* leaves the original's process group */
    long done = r < 0 ? r : make_call(t, SYS_setsid, 0, 0, 0);
    if (done < 0 && done != -EPERM)
        return (int)done;
    if ((r = make_spaces(w)) < 0 || (r = fork_in_child(w, write_maps)) < 0 ||
        (r = make_run(w)) < 0 || (r = drop_rights(t)) < 0 || (r = add_layer(t)) < 0 ||
        (r = prove_filter(t)) < 0 || (r = fork_check_rights(w)) < 0)
        return r;
    return inject_detach(t);
}

/* Becomes the copy's id in the original's user namespace, with no right but to read the
 * original's files. */
static int become_reader(const struct fork_work *w)
{
    const unsigned id = BOX_PAYLOAD_ID + w->order.number;
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {
        {.effective = 1u << CAP_DAC_READ_SEARCH, .permitted = 1u << CAP_DAC_READ_SEARCH}};
    if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0 || setresgid(id, id, id) < 0 ||
        setresuid(id, id, id) < 0 || syscall(SYS_capset, &head, data) < 0 ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -errno;
    return sys_die_with(w->worker);
}

static int mount_places(const struct fork_work *w, const int targets[3], int ret_fds[3])
{
    static const char *const modes[] = {"0755", "1777", "1777"};
    const struct spawn_limits *l = &w->order.limits;
    for (int i = 0; i < 3; i++) {
        unsigned attrs = ATTR_NOSUID | ATTR_NODEV | (i == 2 ? (unsigned)ATTR_NOEXEC : 0);
        ret_fds[i] = mount_fs_tmpfs(
            l->disk_bytes, l->inodes, modes[i], BOX_PAYLOAD_ID + (int)w->order.number, attrs);
        int r = ret_fds[i] < 0 ? ret_fds[i] : sys_mount_attach(ret_fds[i], targets[i], "");
        if (r < 0)
            return r;
    }
    return 0;
}

/* Terminals are not copied: the copy has a devpts of its own. */
static int mount_terminals(int target)
{
    cleanup_close int fd = mount_fs_devpts(TERMINAL_PTYS);
    return fd < 0 ? fd : sys_mount_attach(fd, target, "");
}

/* Mounts and fills the copy's file systems. Runs in the copy's control group, so that the files
 * are charged to it. */
static int fill_places(const struct fork_work *w)
{
    int targets[3];
    int to[3];
    int r = open_places(w->pid, O_PATH, targets);
    if (r < 0)
        return r;
    cleanup_close int terminals = fork_open_proc(w->pid, "root/dev/pts", O_PATH | O_DIRECTORY);
    cleanup_close int user = fork_open_proc(w->parent_pid, "ns/user", O_RDONLY);
    cleanup_close int mounts = fork_open_proc(w->pid, "ns/mnt", O_RDONLY);
    if (terminals < 0 || user < 0 || mounts < 0)
        return terminals < 0 ? terminals : user < 0 ? user : mounts;
    if ((r = fork_join(w)) < 0)
        return r;
    if (setns(user, CLONE_NEWUSER) < 0 || setns(mounts, CLONE_NEWNS) < 0)
        return -errno;
    if ((r = mount_places(w, targets, to)) < 0 || (r = mount_terminals(terminals)) < 0 ||
        (r = become_reader(w)) < 0)
        return r;
    (void)umask(0);
    for (int i = 0; r == 0 && i < 3; i++) {
        cleanup_close int top = openat(to[i], ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        r = top < 0 ? -errno : copy_tree(w->from_fds[i], top, NULL);
    }
    return r;
}

/* Tells the copy to move over, and waits until it reports that it has. */
static int move_over(const struct fork_work *w)
{
    struct pollfd ready = {.fd = COPY_SOCKET_FD, .events = POLLIN};
    char word;
    if (send(COPY_SOCKET_FD, "m", 1, MSG_NOSIGNAL) < 0)
        return -errno;
    if (poll(&ready, 1, READY_MS) != 1)
        return -ETIMEDOUT;
    /* Descriptors that come along are closed by the kernel: recv() has no room for them. */
    return recv(COPY_SOCKET_FD, &word, 1, MSG_DONTWAIT) == 1 && word == 'r' ? 0 : -EPROTO;
}

static int check_copy(struct fork_work *w)
{
    static pid_t pids[FORK_PIDS_MAX];
    const struct cgroup_host *host = &w->host;
    int r = move_over(w);
    if (r < 0 || (r = cgroup_leaf_freeze(host, &w->leaf, true)) < 0 ||
        (r = cgroup_leaf_settle(host, &w->leaf)) < 0)
        return r;
    if (cgroup_leaf_pids(host, &w->leaf, pids, FORK_PIDS_MAX) != 1)
        return -EPERM;
    if ((r = fork_check_rights(w)) < 0 || (r = fork_check_reach(w)) < 0 ||
        (w->order.is_run && (r = open_places(w->pid, O_PATH, w->places)) < 0) ||
        (r = cgroup_leaf_freeze(host, &w->leaf, false)) < 0)
        return r;
    return send(COPY_SOCKET_FD, "k", 1, MSG_NOSIGNAL) == 1 ? 0 : -errno;
}

static int copy_files(struct fork_work *w)
{
    set_alarm(COPY_S);
    int r = fork_in_child(w, fill_places);
    set_alarm(CONFINE_S + READY_MS / 1000);
    int thawed = cgroup_leaf_freeze(&w->host, &w->parent_leaf, false);
    return r < 0 ? r : thawed;
}

void fork_make(struct fork_work *w)
{
    static const struct {
        uint32_t step;
        int (*run)(struct fork_work *w);
    } steps[] = {{STEP_COPY_STOP, stop_copy}, {STEP_COPY_CONFINE, confine},
        {STEP_COPY_FILES, copy_files}, {STEP_COPY_CHECK, check_copy}};
    struct link_record end = {.kind = LINK_START};
    static struct tracee copy;
    w->copy = &copy;
    w->worker = getpid();
    int r = inside_follow(COPY_LIFE_FD);
    set_alarm(HELLO_S);
    for (size_t i = 0; r == 0 && i < sizeof(steps) / sizeof(steps[0]); i++) {
        end.step = steps[i].step;
        r = steps[i].run(w);
    }
    if (r < 0) {
        end.kind = LINK_FAILED;
        end.error = r;
    }
    end.ns = clock_ns();
    (void)fdpass_send(COPY_REPORT_FD, &end, sizeof(end), w->places,
        end.kind == LINK_START && w->order.is_run ? COPY_PLACES : 0);
    _exit(0);
}
