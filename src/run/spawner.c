/* SPDX-License-Identifier: Apache-2.0 */

/* See spawner.h. Registration is one way: the messages go out back to back, and the answer to
 * the seal reports the first failure. */

#include "run/spawner.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/os/fdpass.h"
#include "base/os/fs.h"
#include "base/os/netns.h"
#include "base/os/process.h"
#include "base/os/raw_syscall.h"
#include "base/str.h"
#include "proto/network.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const step_texts[STEP_COUNT] = {
#define STEP_TEXT(name, text) [name] = text,
    SPAWN_STEPS(STEP_TEXT)
#undef STEP_TEXT
};

static const char *const level_names[] = {
    [LEVEL_NONE] = "none",
    [LEVEL_PROCESS] = "process",
    [LEVEL_STRONG] = "strong",
    [LEVEL_FULL] = "full",
};

static const char *const cgroup_names[] = {
    [CGROUP_NONE] = "none",
    [CGROUP_V1] = "v1",
    [CGROUP_V2] = "v2",
    [CGROUP_HYBRID] = "hybrid",
};

#define FIX_CGROUP                                                                             \
    "run as root, or in a delegated control group (systemd-run --user --scope -p "             \
    "Delegate=yes hermes ...), in a container with CAP_SYS_ADMIN and --cgroupns private, or "  \
    "accept less with --min-level process"
#define FIX_USERNS                                                                             \
    "allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1, or an "    \
    "AppArmor profile with `userns,`), or run as root"
#define FIX_CONTAINER                                                                          \
    "in a container: capabilities SYS_ADMIN and SYS_CHROOT, --security-opt "                   \
    "seccomp=packaging/seccomp.json and apparmor=unconfined; docs/deploy.md has them all"

const struct feature_info feature_table[FEATURE_COUNT] = {
    [FEATURE_USERNS] = {"user_namespace", "boxes have ids of their own", FIX_USERNS},
    [FEATURE_UID_RANGE] = {"uid_per_box", "every live box has a host uid of its own",
        "run as root, or install uidmap and give the user a range in /etc/subuid and "
        "/etc/subgid"},
    [FEATURE_NAMESPACES] = {"namespaces", "own mount, pid, network, ipc and uts namespaces",
        FIX_CONTAINER},
    [FEATURE_MOUNT_API] = {"mount_api", "open_tree, move_mount, mount_setattr",
        "use Linux 5.12 or newer; " FIX_CONTAINER},
    [FEATURE_PROC] = {"private_proc", "a /proc that shows the box alone", FIX_CONTAINER},
    [FEATURE_PIVOT] = {"pivot_root", "the host's tree is not in the box at all", FIX_CONTAINER},
    [FEATURE_MEMORY] = {"memory_limit", "memory limit by control group", FIX_CGROUP},
    [FEATURE_PIDS] = {"process_limit", "process limit (pids) by control group", FIX_CGROUP},
    [FEATURE_CPU] = {"cpu_limit", "cpu limit and accounting by control group", FIX_CGROUP},
    [FEATURE_KILL] = {"cgroup_kill", "a whole box is killed in one step",
        "mount cgroup2 (Linux 5.14 or newer); without it boxes are killed through their init"},
    [FEATURE_INTO] = {"clone_into_cgroup",
        "not one instruction of a box runs outside its limits",
        "mount cgroup2 (Linux 5.7 or newer); without it boxes wait until they are in"},
    [FEATURE_NNP] = {"no_new_privs", "set-uid programs gain nothing", "use Linux 3.5 or newer"},
    [FEATURE_SECCOMP] = {"seccomp", "system calls are on an allow list",
        "use a kernel with CONFIG_SECCOMP_FILTER; in a container allow seccomp()"},
    [FEATURE_LANDLOCK] = {"landlock", "second fence around files (ABI 3 or newer)",
        "use Linux 6.2 or newer with landlock in the LSM list (lsm=landlock,...)"},
    [FEATURE_OPENAT2] = {"openat2", "paths are resolved beneath a directory by the kernel",
        "use Linux 5.6 or newer; in a container allow openat2()"},
    [FEATURE_CLOSE_RANGE] = {"close_range", "no descriptor leaks into a box",
        "use Linux 5.11 or newer"},
    [FEATURE_PIDFD] = {"pidfd", "processes are watched without races",
        "use Linux 5.4 or newer"},
};

const char *spawner_step_text(unsigned step)
{
    return step < STEP_COUNT ? step_texts[step] : "unknown step";
}

const char *spawner_level_name(unsigned level)
{
    return level <= LEVEL_FULL ? level_names[level] : "none";
}

const char *spawner_cgroup_name(unsigned cgroup)
{
    return cgroup <= CGROUP_HYBRID ? cgroup_names[cgroup] : "none";
}

int spawner_level_parse(const char *name, unsigned *ret_level)
{
    for (unsigned i = LEVEL_NONE; i <= LEVEL_FULL; i++) {
        if (str_eq(name, level_names[i])) {
            *ret_level = i;
            return 0;
        }
    }
    return -EINVAL;
}

static char *program_path(const char *named)
{
    char *path = named ? xstrdup(named) : fs_beside_self("hermes-spawn");
    return path ? path : xstrdup("hermes-spawn");
}

/* Memory that the child uses until it executes hermes-spawn. The child shares our memory. */
struct birth {
    char *path;
    int control_fd;
    int error; /* errno when the child could not execute hermes-spawn */
    char stack[16384] __attribute__((aligned(16)));
};

static int lost(const struct spawner_client *c, struct err *err, int error)
{
    bool ended = error == -EPIPE || error == -ECONNRESET;
    if (ended && c->birth && c->birth->error)
        return err_set(err, ERR_INTERNAL, c->birth->error,
            "cannot start %s: %s; it belongs beside the hermes program", c->birth->path,
            strerror(c->birth->error));
    return err_set(err, err_code_of(-error), -error, "hermes-spawn does not answer: %s",
        ended ? "it ended" : strerror(-error));
}

enum { NOT_EXECUTED = 127 };

/* Runs in the child. Boxes inherit everything that is not reset here. Uses raw system calls
 * because the child shares errno with the parent, which is running. */
static int become_spawner(void *context)
{
    struct birth *birth = context;
    char *argv[] = {(char *)"hermes-spawn", NULL};
    char *env[] = {NULL};
    int fd = birth->control_fd;
    process_reset_signals();
    /* dup2 onto itself would keep close-on-exec */
    long r = fd == SPAWN_CONTROL_FD ? raw_syscall3(SYS_fcntl, fd, F_SETFD, 0)
                                    : raw_syscall3(SYS_dup3, fd, SPAWN_CONTROL_FD, 0);
    if (r >= 0)
        r = raw_syscall3(SYS_execve, (long)birth->path, (long)argv, (long)env);
    birth->error = (int)-r; /* set before the exit closes the socket, which tells the parent */
    return NOT_EXECUTED;
}

/* Like posix_spawn(), except that it does not wait until the program was executed: the caller
 * has other work meanwhile. */
static int start_program(struct spawner_client *c, const char *path, int control_fd)
{
    struct birth *birth = c->birth = xmalloc(sizeof(*birth));
    sigset_t all, old;
    birth->path = program_path(path);
    birth->control_fd = control_fd;
    birth->error = 0;
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, &old); /* no handler of ours may run in the child */
    pid_t pid =
        clone(become_spawner, birth->stack + sizeof(birth->stack), CLONE_VM | SIGCHLD, birth);
    int r = pid < 0 ? -errno : 0;
    (void)sigprocmask(SIG_SETMASK, &old, NULL);
    if (r == 0)
        c->pid = pid;
    return r;
}

/* Call when the spawner has answered, or is dead. */
static void forget_birth(struct spawner_client *c)
{
    if (c->birth)
        free(c->birth->path);
    free(c->birth);
    c->birth = NULL;
}

static int send_setup(
    const struct spawner_client *c, const struct spawn_setup *setup, struct err *err)
{
    int r = fdpass_send(c->control_fd, setup, sizeof(*setup), NULL, 0);
    return r < 0 ? lost(c, err, r) : 0;
}

int spawner_start(struct spawner_client *c, const char *path, const struct spawn_setup *setup,
    struct err *err)
{
    *c = (struct spawner_client){.control_fd = -1, .pid = -1, .network_fd = -1};
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_set(err, ERR_INTERNAL, errno, "cannot make a socket: %s", strerror(errno));
    cleanup_close int ours = pair[0];
    cleanup_close int theirs = pair[1];
    int r = start_program(c, path, theirs);
    if (r < 0)
        return err_set(err, ERR_INTERNAL, -r, "cannot fork: %s", strerror(-r));
    c->control_fd = take_fd(&ours);
    return send_setup(c, setup, err);
}

int spawner_adopt(
    struct spawner_client *c, int control_fd, const struct spawn_setup *setup, struct err *err)
{
    *c = (struct spawner_client){.control_fd = control_fd, .pid = -1, .network_fd = -1};
    return send_setup(c, setup, err);
}

void spawner_send_away(struct spawner_client *c)
{
    int here = sched_getcpu();
    if (here < 0 || sched_getaffinity(0, sizeof(c->cpus), &c->cpus) < 0 ||
        CPU_COUNT(&c->cpus) < 2)
        return;
    cpu_set_t others = c->cpus;
    CPU_CLR(here, &others);
    c->is_away = sched_setaffinity(c->pid, sizeof(others), &others) == 0;
}

int spawner_add_source(
    struct spawner_client *c, const char *path, enum spawn_writable writable, struct err *err)
{
    struct spawn_source source = {.kind = SPAWN_MOUNT, .writable = writable};
    if (strlen(path) >= sizeof(source.path))
        return err_set(
            err, ERR_INVALID, ENAMETOOLONG, "path of a directory is too long: %s", path);
    memcpy(source.path, path, strlen(path));
    int r = fdpass_send(c->control_fd, &source, sizeof(source), NULL, 0);
    return r < 0 ? lost(c, err, r) : 0;
}

int spawner_add_root(
    struct spawner_client *c, const struct spawn_entry *entries, size_t count, struct err *err)
{
    if (count > SPAWN_MAX_ENTRIES)
        return err_set(err, ERR_INTERNAL, E2BIG, "a root has %zu entries, at most %d", count,
            SPAWN_MAX_ENTRIES);
    size_t size = sizeof(struct spawn_root) + count * sizeof(*entries);
    cleanup_free char *packet = xmalloc(size);
    struct spawn_root head = {.kind = SPAWN_ROOT, .count = (uint32_t)count};
    memcpy(packet, &head, sizeof(head));
    memcpy(packet + sizeof(head), entries, count * sizeof(*entries));
    int r = fdpass_send(c->control_fd, packet, size, NULL, 0);
    return r < 0 ? lost(c, err, r) : 0;
}

int spawner_add_zygote(struct spawner_client *c, const struct spawn_zygote *zygote,
    int package_fd, struct err *err)
{
    int r = fdpass_send(c->control_fd, zygote, sizeof(*zygote), &package_fd, 1);
    return r < 0 ? lost(c, err, r) : 0;
}

int spawner_add_pool(
    struct spawner_client *c, const struct spawn_pool *pool, int package_fd, struct err *err)
{
    int r = fdpass_send(c->control_fd, pool, sizeof(*pool), &package_fd, 1);
    return r < 0 ? lost(c, err, r) : 0;
}

int spawner_add_network(struct spawner_client *c, struct err *err)
{
    uint32_t kind = SPAWN_NETWORK;
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_set(err, ERR_INTERNAL, errno, "cannot make a socket: %s", strerror(errno));
    c->network_fd = pair[0];
    cleanup_close int theirs = pair[1];
    int r = fdpass_send(c->control_fd, &kind, sizeof(kind), &theirs, 1);
    return r < 0 ? lost(c, err, r) : 0;
}

int spawner_add_egress(struct spawner_client *c, int fd, struct err *err)
{
    uint32_t kind = SPAWN_EGRESS;
    int r = fdpass_send(c->control_fd, &kind, sizeof(kind), &fd, 1);
    return r < 0 ? lost(c, err, r) : 0;
}

/* If we may not make a namespace, the spawner does so when this socket closes. */
static void give_network(struct spawner_client *c)
{
    cleanup_close int fd = c->network_fd < 0 ? -EBADF : netns_make();
    if (fd >= 0)
        (void)fdpass_send(c->network_fd, "n", 1, &fd, 1);
    close_fd(&c->network_fd);
}

static int ask(struct spawner_client *c, uint32_t kind, struct err *err)
{
    int r = fdpass_send(c->control_fd, &kind, sizeof(kind), NULL, 0);
    return r < 0 ? lost(c, err, r) : 0;
}

static int hear(struct spawner_client *c, struct spawn_reply *ret, struct err *err)
{
    ssize_t n;
    while ((n = recv(c->control_fd, ret, sizeof(*ret), 0)) < 0 && errno == EINTR)
        ;
    if (n != (ssize_t)sizeof(*ret))
        return lost(c, err, n < 0 ? -errno : -EPIPE);
    forget_birth(c);
    return 0;
}

/* Lists the features that are not enforced: "user_namespace (Operation not permitted),
 * memory_limit (...)". */
static void list_missing(const struct spawn_reply *reply, struct buf *out)
{
    for (unsigned i = 0; i < FEATURE_COUNT; i++) {
        if (!(reply->enforced & 1u << i))
            (void)buf_printf(out, "%s%s (%s)", out->len ? ", " : "", feature_table[i].name,
                strerror(-reply->reason[i]));
    }
}

/* The remedy for the first missing feature that levels above `process` need. */
static const char *first_fix(const struct spawn_reply *reply)
{
    static const enum spawn_feature needed[] = {FEATURE_USERNS, FEATURE_NAMESPACES,
        FEATURE_MOUNT_API, FEATURE_PROC, FEATURE_PIVOT, FEATURE_NNP, FEATURE_SECCOMP,
        FEATURE_MEMORY, FEATURE_PIDS, FEATURE_CPU, FEATURE_LANDLOCK};
    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
        if (!(reply->enforced & 1u << needed[i]))
            return feature_table[needed[i]].fix;
    }
    return feature_table[FEATURE_UID_RANGE].fix;
}

int spawner_seal(struct spawner_client *c, struct err *err)
{
    if (!c->is_away)
        return ask(c, SPAWN_SEAL, err);
    struct spawn_seal seal = {.kind = SPAWN_SEAL};
    memcpy(seal.cpus, &c->cpus, sizeof(seal.cpus));
    int r = fdpass_send(c->control_fd, &seal, sizeof(seal), NULL, 0);
    return r < 0 ? lost(c, err, r) : 0;
}

int spawner_ready(struct spawner_client *c, struct err *err)
{
    if (c->is_ready)
        return 0;
    give_network(c);
    int r = hear(c, &c->seal, err);
    if (r < 0)
        return r;
    const struct spawn_reply *reply = &c->seal;
    if (reply->error == -EPERM && reply->step == STEP_SPAWNER && !reply->detail[0]) {
        cleanup_buf struct buf missing;
        buf_init(&missing, 250); /* leaves room for the remedy */
        list_missing(reply, &missing);
        return err_set(err, ERR_UNSUPPORTED, EPERM,
            "this host enforces only level `%s`; not enforced: %s; %s; `hermes doctor` tells "
            "more",
            spawner_level_name(reply->level), missing.data ? missing.data : "",
            first_fix(reply));
    }
    if (reply->error && reply->step == STEP_MOUNT)
        return err_set(err, ERR_UNSUPPORTED, -reply->error,
            "%s cannot be writable in a box: %s", reply->detail,
            reply->error == -EOPNOTSUPP
                ? "its file system, or one mounted below it, has no id-mapped mounts"
            : reply->error == -EPERM
                ? "id-mapped mounts of it need root; without root this works only for users "
                  "without a range in /etc/subuid"
                : strerror(-reply->error));
    if (reply->error)
        return err_set(err, ERR_INTERNAL, -reply->error,
            "cannot %s (%s): %s; run `hermes doctor`", spawner_step_text(reply->step),
            reply->detail, strerror(-reply->error));
    c->is_ready = true;
    return 0;
}

int spawner_probe(struct spawner_client *c, struct spawn_reply *ret, struct err *err)
{
    int r = ask(c, SPAWN_PROBE, err);
    return r < 0 ? r : hear(c, ret, err);
}

unsigned spawner_network_modes(const struct spawn_reply *report, const char **ret_missing)
{
    unsigned modes = 1u << NETWORK_NONE;
    if (!report->network_error)
        modes |= 1u << NETWORK_ALLOW | 1u << NETWORK_ASK | 1u << NETWORK_FULL;
    *ret_missing = !report->network_error             ? ""
                   : report->network_error == -ENOSYS ? "network_max is none"
                   : report->network_missing[0]       ? report->network_missing
                                                      : strerror(-report->network_error);
    return modes;
}

int spawner_image(struct spawner_client *c, const struct spawn_image *image, int *ret_socket,
    uint32_t *ret_root, struct err *err)
{
    struct spawn_image_reply reply = {.error = -EPIPE};
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_set(
            err, err_code_of(errno), errno, "cannot make a socket: %s", strerror(errno));
    cleanup_close int ours = pair[0];
    cleanup_close int theirs = pair[1];
    int r = fdpass_send(c->control_fd, image, sizeof(*image), &theirs, 1);
    if (r < 0)
        return lost(c, err, r);
    close_fd(&theirs);
    ssize_t n;
    while ((n = recv(ours, &reply, sizeof(reply), 0)) < 0 && errno == EINTR)
        ;
    if (n != (ssize_t)sizeof(reply))
        return lost(c, err, n < 0 ? -errno : -EPIPE);
    if (reply.error < 0)
        return reply.error;
    *ret_root = reply.root;
    *ret_socket = take_fd(&ours);
    return 0;
}

int spawner_box(struct spawner_client *c, const struct spawn_box *box, const int *fds,
    unsigned fd_count, struct err *err)
{
    int r = fdpass_send(c->control_fd, box, sizeof(*box), fds, fd_count);
    return r < 0 ? lost(c, err, r) : 0;
}

void spawner_leave(struct spawner_client *c)
{
    close_fd(&c->network_fd);
    close_fd(&c->control_fd);
}

/* Boxes that the spawner does not end in time are ended by the kernel: they die with their
 * spawner. */
enum { STOP_MS = 10000 };

void spawner_stop(struct spawner_client *c)
{
    /* Other processes may have a copy of our end of the socket, so closing it is not enough. */
    if (c->pid > 0 && c->control_fd >= 0)
        (void)shutdown(c->control_fd, SHUT_RDWR);
    spawner_leave(c);
    if (c->pid > 0)
        process_await(c->pid, STOP_MS);
    c->pid = -1;
    forget_birth(c);
}
