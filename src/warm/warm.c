/* SPDX-License-Identifier: Apache-2.0 */

/* libhermes-warm.so: the library that an interpreter loads to become a zygote (spawn/zygote.h).
 * hermes_warm_serve() makes boxes until the spawner goes away; in the program's process of each
 * box it returns 0, confined. The interpreter then prepares itself, calls hermes_warm_begin(),
 * which waits for the package if there is none yet, and runs the program.
 *
 * The program of a pool (spawn/pool.h), which was executed in a box of its own, calls
 * hermes_warm_park() instead of hermes_warm_serve(). It may have threads; a zygote has one.
 * Only hermes_warm_take_env() allocates memory. */

#include "warm/warm.h"
#include "base/cleanup.h"
#include "base/os/fdpass.h"
#include "base/os/fs.h"
#include "base/os/sys.h"
#include "box/init.h"
#include "proto/zygote.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* How long a ready box waits for its package before it rehearses. If packages come faster than
 * this, rehearsing costs more than it saves. Sessions are made one at a time and can wait
 * less. */
enum { REHEARSE_AFTER_MS = 100, REHEARSE_SESSION_AFTER_MS = 20 };

enum { REQUEST_MAX_FDS = 3 + CGROUP_MAX_TREES + 5 };

static struct zygote_request request;
static struct inside in;
static struct payload_words words;
static int into_fd;     /* the control group that the next box is cloned into, or -1 */
static bool is_program; /* program of a pool, not a zygote's child */

/* Stack of box init while it shares the zygote's memory. Meanwhile the zygote maps its ids,
 * answers the spawner, and sleeps until box init has left: when box init forks the program's
 * process, the memory is at rest. Only errno is shared by both, so box init may report a wrong
 * errno. */
static char stack[64 << 10] __attribute__((aligned(16)));
static int is_shared; /* cleared by the kernel when box init has left the memory */
static atomic_int maps;
/* For __builtin_longjmp(): that of the C library touches four more pages. */
static void *interpreter[5];

/* Writes the id maps of a box. The kernel accepts them only from a process in the parent user
 * namespace. */
static int map_ids(int pid, unsigned payload)
{
    char path[32];
    char map[64];
    (void)snprintf(path, sizeof(path), "proc/%d", pid);
    cleanup_close int fd = openat(ZYGOTE_STAGE_FD, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    (void)snprintf(map, sizeof(map), "%d %u 1\n%d %u %d", BOX_INIT_ID, payload - 1,
        BOX_PAYLOAD_ID, payload, request.box.flags & BOX_FORKS ? SPAWN_MAX_FORKS + 1 : 1);
    int r = fs_write_once(fd, "setgroups", "deny");
    if (r < 0 || (r = fs_write_once(fd, "uid_map", map)) < 0)
        return r;
    return fs_write_once(fd, "gid_map", map);
}

static int take_next(const int *fds, unsigned count, unsigned *at)
{
    return *at < count ? fds[(*at)++] : -1;
}

/* Enters the network namespace of the next box and stays there: a zygote does not use the
 * network. */
static int enter_network(int fd)
{
    return setns(fd, CLONE_NEWNET) < 0 ? -errno : 0;
}

static int fill_inside(const int *fds, unsigned count)
{
    int r = 0;
    unsigned at = 0;
    uint32_t flags = request.box.flags;
    in = (struct inside){.box = &request.box,
        .unique_ids = true,
        .is_warm = true,
        .shares_memory = !(flags & BOX_CHANNEL),
        .maps = flags & BOX_CHANNEL ? NULL : &maps,
        .has_memory = request.has_memory,
        .landlock_abi = (int)request.landlock_abi,
        .link_fd = take_next(fds, count, &at),
        .life_fd = ZYGOTE_LIFE_FD,
        .package_fd = -1,
        .stdin_fd = -1,
        .stdout_fd = -1,
        .stderr_fd = -1,
        .collect_fd = -1,
        .channel_fd = -1,
        .hand_fd = -1};
    for (unsigned i = 0; i < SPAWN_MAX_BOX_MOUNTS; i++)
        in.mount_fds[i] = -1;
    while (in.join_count < (int)request.join_count && in.join_count < CGROUP_MAX_TREES)
        in.join_fds[in.join_count++] = take_next(fds, count, &at);
    into_fd = request.has_into ? take_next(fds, count, &at) : -1;
    /* else the box would be born in the zygote's own group */
    if (request.has_into && into_fd < 0)
        return -EPROTO;
    in.has_network = request.has_network;
    if (in.has_network)
        r = enter_network(take_next(fds, count, &at));
    if (request.is_parked) {
        in.hand_fd = take_next(fds, count, &at);
        return r;
    }
    in.package_fd = take_next(fds, count, &at);
    in.stdout_fd = take_next(fds, count, &at);
    in.stderr_fd = take_next(fds, count, &at);
    if (flags & BOX_STDIN)
        in.stdin_fd = take_next(fds, count, &at);
    if (flags & BOX_COLLECT)
        in.collect_fd = take_next(fds, count, &at);
    if (flags & BOX_CHANNEL)
        in.channel_fd = take_next(fds, count, &at);
    return r;
}

/* Leaves the chroot: boxes begin at the top of the mount namespace, and a process in a chroot
 * may not make user namespaces. The interpreter has loaded everything it needs from its
 * tree. */
static int leave_root(void)
{
    return fchdir(ZYGOTE_STAGE_FD) < 0 || chroot(".") < 0 || chdir("/") < 0 ? -errno : 0;
}

/* Box init, on a stack of its own. In the program's process, which has a copy of the zygote's
 * memory, inside_run() returns, and this jumps back to the interpreter. */
static void be_box(void)
{
    inside_run(&in);
    __builtin_longjmp(interpreter, 1);
}

/* Clones box init; returns its pid. Box init of a session keeps a copy of the fresh interpreter
 * for its next program. Box init of a run needs none: it shares the zygote's memory until it
 * executes INIT_PROGRAM (box/init.h). */
static int make_box(int *ret_pidfd)
{
    struct sys_clone_args args = {.flags = CLONE_PARENT | CLONE_NEWUSER | CLONE_NEWNS |
                                           CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS |
                                           CLONE_PIDFD,
        .pidfd = (uint64_t)(uintptr_t)ret_pidfd,
        .child_tid = (uint64_t)(uintptr_t)&is_shared,
        .stack = (uint64_t)(uintptr_t)stack,
        .stack_size = sizeof(stack),
        .cgroup = into_fd < 0 ? 0 : (uint64_t)into_fd};
    if (into_fd >= 0)
        args.flags |= CLONE_INTO_CGROUP;
    if (!in.has_network)
        args.flags |= CLONE_NEWNET;
    if (in.shares_memory)
        args.flags |= CLONE_VM | CLONE_CHILD_CLEARTID;
    /* The last box init has made the shared memory not dumpable; then the files in /proc of the
     * clone would belong to root. */
    if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
        return -errno;
    is_shared = in.shares_memory;
    maps = 0;
    int pid = sys_clone3_run(&args, be_box);
    if (pid < 0)
        is_shared = 0;
    return pid;
}

/* Waits until box init has left the memory. */
static void wait_until_alone(void)
{
    while (is_shared)
        (void)syscall(SYS_futex, &is_shared, FUTEX_WAIT, 1, NULL, NULL, 0);
}

/* Answers the spawner. A network namespace that was made for this box is sent, too: others may
 * use it later. */
static void reply(int pid, int pidfd)
{
    struct zygote_reply reply = {.pid = pid};
    char path[32];
    int fds[2] = {pidfd, -1};
    if (pid > 0 && !in.has_network) {
        (void)snprintf(path, sizeof(path), "proc/%d/ns/net", pid);
        fds[1] = openat(ZYGOTE_STAGE_FD, path, O_RDONLY | O_CLOEXEC);
    }
    (void)fdpass_send(ZYGOTE_SOCKET_FD, &reply, sizeof(reply), fds,
        pidfd < 0    ? 0
        : fds[1] < 0 ? 1
                     : 2);
    close_fd(&fds[0]);
    close_fd(&fds[1]);
}

static void serve_request(const int *fds, unsigned count)
{
    int pidfd = -1;
    int r = fill_inside(fds, count);
    int pid = r < 0 ? r : make_box(&pidfd);
    r = pid < 0 ? pid : map_ids(pid, request.payload_uid);
    maps = r < 0 ? -1 : 1;
    (void)syscall(SYS_futex, &maps, FUTEX_WAKE, 1, NULL, NULL, 0);
    /* A box whose ids could not be mapped never gets its go-ahead and is killed. */
    reply(r < 0 ? r : pid, pidfd);
}

static const char *const scratch[] = {"/box", "/tmp"};

EXPORT int hermes_warm_scratch(void)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < sizeof(scratch) / sizeof(scratch[0]); i++)
        r = sys_result(
            mount("zygote", scratch[i], "tmpfs", MS_NOSUID | MS_NODEV, "size=64m,mode=0755"));
    return r;
}

EXPORT int hermes_warm_no_scratch(void)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < sizeof(scratch) / sizeof(scratch[0]); i++)
        r = sys_result(umount2(scratch[i], 0));
    return r;
}

/* A copy of a process with several threads has one of them, and the locks of all. A directory
 * has two links and one for each directory in it. */
static bool has_one_thread(void)
{
    struct stat st;
    return fstatat(ZYGOTE_STAGE_FD, "proc/self/task", &st, 0) == 0 && st.st_nlink == 3;
}

EXPORT int hermes_warm_serve(void)
{
    int fds[REQUEST_MAX_FDS];
    unsigned count;
    struct zygote_reply up = {0};
    if (access(INIT_PROGRAM, X_OK) < 0 || !has_one_thread() || leave_root() < 0 ||
        fdpass_send(ZYGOTE_SOCKET_FD, &up, sizeof(up), NULL, 0) < 0)
        return -1;
    if (__builtin_setjmp(interpreter))
        return 0;
    while (fdpass_receive(ZYGOTE_SOCKET_FD, &request, sizeof(request), fds, REQUEST_MAX_FDS,
               &count) == (ssize_t)sizeof(request)) {
        serve_request(fds, count);
        for (unsigned i = 0; i < count; i++)
            close_fd(&fds[i]);
        wait_until_alone();
    }
    return -1;
}

/* Waits, in a ready box, for the package. */
static void wait_for_job(void)
{
    const struct link_record ready = {.kind = LINK_READY};
    struct zygote_hand hand;
    int fds[5];
    unsigned count;
    unsigned at = 3;
    if (!is_program) /* the program of a pool has reported in hermes_warm_park() */
        (void)inside_send(&in, &ready);
    ssize_t n = fdpass_receive(in.hand_fd, &hand, sizeof(hand), fds, 5, &count);
    if (n != (ssize_t)sizeof(hand) || count < 3)
        _exit(0); /* never used: the spawner has gone or has ended this box */
    in.package_fd = fds[0];
    in.stdout_fd = fds[1];
    in.stderr_fd = fds[2];
    if (hand.flags & BOX_STDIN)
        in.stdin_fd = take_next(fds, count, &at);
    if (hand.flags & BOX_CHANNEL)
        in.channel_fd = take_next(fds, count, &at);
    request.box.limits.cpu_s = hand.cpu_s;
    request.box.limits.file_bytes = hand.file_bytes;
    request.box.limits.stack_bytes = hand.stack_bytes;
}

/* This process was executed in its box, or copied there, and waits for its package. */
static void be_program(int link_fd, int hand_fd)
{
    in = (struct inside){.box = &request.box,
        .link_fd = link_fd,
        .hand_fd = hand_fd,
        .package_fd = -1,
        .stdin_fd = -1,
        .stdout_fd = -1,
        .stderr_fd = -1,
        .collect_fd = -1,
        .channel_fd = -1};
    is_program = true;
}

EXPORT int hermes_warm_adopt(int channel_fd)
{
    be_program(fcntl(channel_fd, F_DUPFD_CLOEXEC, 3), channel_fd);
    return in.link_fd < 0 ? -1 : 0;
}

EXPORT int hermes_warm_park(void)
{
    struct link_record ready = {.kind = LINK_READY};
    int type;
    socklen_t size = sizeof(type);
    be_program(PARK_LINK_FD, PARK_HAND_FD);
    if (getsockopt(PARK_HAND_FD, SOL_SOCKET, SO_TYPE, &type, &size) < 0 ||
        fcntl(PARK_HAND_FD, F_SETFD, FD_CLOEXEC) < 0 ||
        fcntl(PARK_LINK_FD, F_SETFD, FD_CLOEXEC) < 0)
        return -1;
    return inside_send(&in, &ready);
}

/* Sets the limits that came with the package. The program of a pool has used some CPU time
 * already. */
static void take_limits(void)
{
    uint64_t used_s = is_program ? inside_cpu_ns() / 1000000000u + 1 : 0;
    const struct {
        int resource;
        rlim_t value;
        bool use;
    } limits[] = {
        {RLIMIT_CPU, request.box.limits.cpu_s + used_s,
            in.channel_fd < 0}, /* a session lives long */
        {RLIMIT_STACK, request.box.limits.stack_bytes, true},
    };
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        struct rlimit limit = {.rlim_cur = limits[i].value, .rlim_max = limits[i].value};
        struct rlimit now;
        if (!limits[i].use)
            continue;
        if (getrlimit((unsigned)limits[i].resource, &now) < 0 ||
            (limit.rlim_max < now.rlim_max &&
                setrlimit((unsigned)limits[i].resource, &limit) < 0))
            inside_fail(&in, STEP_RLIMITS, -errno);
    }
}

/* Closes the descriptors that exec would close: all but stdio and the channel. The program of a
 * pool closes only the descriptors that it waited with, because its interpreter has descriptors
 * of its own. */
static void close_rest(void)
{
    if (!is_program) {
        (void)sys_close_range(in.channel_fd >= 0 ? CHANNEL_FD + 1 : 3, ~0u, 0);
        return;
    }
    int *own[] = {
        &in.hand_fd, &in.link_fd, &in.package_fd, &in.stdin_fd, &in.stdout_fd, &in.stderr_fd};
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        close_fd(own[i]);
}

EXPORT int hermes_warm_is_parked(void)
{
    struct pollfd hand = {.fd = in.hand_fd, .events = POLLIN};
    bool is_session = in.box->flags & BOX_CHANNEL;
    return in.hand_fd >= 0 &&
           poll(&hand, 1, is_session ? REHEARSE_SESSION_AFTER_MS : REHEARSE_AFTER_MS) == 0;
}

EXPORT int hermes_warm_begin(void)
{
    struct stat st;
    if (in.hand_fd >= 0) {
        wait_for_job();
        take_limits();
    }
    payload_begin(&in, &words);
    close_rest();
    return fstat(0, &st) < 0 ? 0 : (int)(st.st_mode & S_IFMT);
}

EXPORT int hermes_warm_has_env(void)
{
    char **have = environ;
    char **want = words.env;
    for (; *have && *want; have++, want++) {
        if (strcmp(*have, *want) != 0)
            return 1;
    }
    return *have || *want;
}

/* The strings lie in the package, which stays mapped. */
EXPORT void hermes_warm_take_env(void)
{
    (void)clearenv();
    for (unsigned i = 0; words.env[i]; i++)
        (void)putenv(words.env[i]);
}

EXPORT const char *hermes_warm_arg(unsigned i)
{
    return words.argv[i];
}

EXPORT const char *hermes_warm_env(unsigned i)
{
    return words.env[i];
}

/* Holds the program's memory until box init, which first reports the program's end, ends the
 * box. Without a holder the kernel would free the memory before box init learns of the end. */
static _Noreturn int hold_memory(void *unused)
{
    (void)unused;
    (void)sys_close_range(0, ~0u, 0);
    for (;;)
        (void)pause();
}

/* Whether the holder may be cloned. The program must not hit its own process limit here, or the
 * control group would report that. RLIMIT_NPROC is one above the limit of the program
 * (drop_rlimits()); lowered by one, it refuses the clone without a report. */
static bool has_room(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NPROC, &limit) < 0 || limit.rlim_max == 0)
        return false;
    limit.rlim_cur = limit.rlim_max - 1;
    return setrlimit(RLIMIT_NPROC, &limit) == 0;
}

EXPORT _Noreturn void hermes_warm_exit(int status)
{
    if (has_room())
        (void)clone(hold_memory, stack + sizeof(stack), CLONE_VM, NULL);
    _exit(status);
}
