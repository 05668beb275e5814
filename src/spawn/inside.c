/* SPDX-License-Identifier: Apache-2.0 */

/* Box init: pid 1 of a box. Builds the box step by step, forks the payload, reaps, and tells
 * the spawner how the payload ended. It never reads a stranger's byte: the job is read by
 * payload.c and collect.c, in processes with the payload's uid and no capability.
 *
 * It has an id of its own, is not dumpable and ignores signals from inside (the kernel does
 * that for pid 1), so the payload can neither trace, signal nor read it. */

#include "spawn/inside.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fdpass.h"
#include "base/fs.h"
#include "base/netns.h"
#include "spawn/ids.h"
#include "spawn/seccomp.h"
#include "spawn/sys.h"

#include <fcntl.h>
#include <linux/keyctl.h>
#include <linux/securebits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

int inside_send(const struct inside *in, const struct link_record *record)
{
    ssize_t n;
    while ((n = send(in->link_fd, record, sizeof(*record), MSG_NOSIGNAL)) < 0 && errno == EINTR)
        ;
    return n < 0 ? -errno : 0;
}

void inside_fail(const struct inside *in, uint32_t step, int error)
{
    (void)inside_send(
        in, &(struct link_record){.kind = LINK_FAILED, .step = step, .error = error});
    _exit(1);
}

uint64_t inside_cpu_ns(void)
{
    struct timespec ts;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* First of all: everything from here on is accounted and limited. */
static int join_cgroups(const struct inside *in)
{
    int r = 0;
    for (int i = 0; r == 0 && i < in->join_count; i++)
        r = cgroup_join(in->join_fds[i]);
    return r;
}

static int compare_int(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

int inside_close_others(int *keep, size_t count)
{
    qsort(keep, count, sizeof(keep[0]), compare_int);
    unsigned from = 3;
    for (size_t i = 0; i < count; i++) {
        if (keep[i] < (int)from)
            continue;
        if ((unsigned)keep[i] > from && sys_close_range(from, (unsigned)keep[i] - 1, 0) < 0)
            return -errno;
        from = (unsigned)keep[i] + 1;
    }
    return sys_close_range(from, ~0u, 0);
}

/* Closes every descriptor but the box's own ends: the spawner's locks, sockets and
 * control groups must not live on in a box. */
static int close_foreign(const struct inside *in)
{
    int keep[8 + SPAWN_MAX_BOX_MOUNTS] = {in->link_fd, in->job_fd, in->stdin_fd, in->stdout_fd,
        in->stderr_fd, in->collect_fd, in->hand_fd, in->channel_fd};
    memcpy(keep + 8, in->mount_fds, sizeof(in->mount_fds));
    return inside_close_others(keep, sizeof(keep) / sizeof(keep[0]));
}

/* Waits until the spawner has written the id maps. */
static int wait_release(const struct inside *in)
{
    char go;
    ssize_t n;
    while ((n = recv(in->link_fd, &go, 1, 0)) < 0 && errno == EINTR)
        ;
    return n == 1 ? 0 : n == 0 ? -EPIPE : -errno;
}

/* The kernel's view of us: first to die when the host runs out of memory, and no user namespace
 * below this one but those of forks (the filter keeps the program from making any). Both files
 * are the host's /proc, still visible here. */
static int limit_self(const struct inside *in)
{
    int r = fs_write_once(AT_FDCWD, "/proc/self/oom_score_adj", "500");
    if (r < 0)
        return r;
    if (in->box->remove & BARRIER_USERNS_MAX)
        return 0;
    return fs_write_once(AT_FDCWD, "/proc/sys/user/max_user_namespaces",
        in->box->flags & BOX_FORKS ? "128" : "0");
}

/* Changing ids clears the parent-death signal, so that is set after it; a spawner that died in
 * between shows as a closed link. */
static int take_identity(const struct inside *in)
{
    unsigned id = in->unique_ids ? BOX_INIT_ID : BOX_PAYLOAD_ID;
    const unsigned long bits = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |
                               SECBIT_NO_SETUID_FIXUP_LOCKED;
    if (prctl(PR_SET_SECUREBITS, bits, 0, 0, 0) < 0 || setresgid(id, id, id) < 0 ||
        setresuid(id, id, id) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ||
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        return -errno;
    struct pollfd link = {.fd = in->link_fd, .events = 0};
    return poll(&link, 1, 0) != 0 ? -EPIPE : 0;
}

static int start_session(const struct inside *in)
{
    if (setsid() < 0)
        return -errno;
    if (!(in->box->remove & BARRIER_UTSNS) && sethostname("box", 3) < 0)
        return -errno;
    if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0 && errno != ENOSYS)
        return -errno;
    return 0;
}

/* Not in clone3: there the v1 groups, which are joined afterwards, would show the host's paths.
 */
static int hide_cgroups(const struct inside *in)
{
    if (in->box->remove & BARRIER_CGROUPNS)
        return 0;
    return unshare(CLONE_NEWCGROUP) < 0 ? -errno : 0;
}

static int raise_loopback(const struct inside *in)
{
    return in->has_network || in->box->remove & BARRIER_NETNS ? 0 : netns_raise_loopback();
}

static int set_no_new_privs(const struct inside *in)
{
    if (in->box->remove & BARRIER_NNP)
        return 0;
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : 0;
}

/* Loaded in init, before the fork: from here on every process of the box is filtered, also
 * those that read the job. The steps that follow need nothing the filter refuses. */
static int load_filter(const struct inside *in)
{
    return in->box->remove & (BARRIER_SECCOMP | BARRIER_NNP) ? 0 : seccomp_load();
}

static const struct {
    uint32_t step;
    int (*run)(const struct inside *in);
} steps_before[] =
    {
        {STEP_CGROUP_JOIN, join_cgroups},
        {STEP_FDS, close_foreign},
        {STEP_DROP, drop_bounding},
        {STEP_RELEASE, wait_release},
        {STEP_USERNS_MAX, limit_self},
        {STEP_IDENTITY, take_identity},
        {STEP_SESSION, start_session},
        {STEP_CGROUPNS, hide_cgroups},
        {STEP_NETWORK, raise_loopback},
},
  steps_after[] = {
      {STEP_RLIMITS, drop_rlimits},
      {STEP_DROP, set_no_new_privs},
      {STEP_SECCOMP, load_filter},
};

static uint64_t timeval_ns(struct timeval t)
{
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_usec * 1000u;
}

static bool is_full(const char *path)
{
    struct statfs fs;
    return statfs(path, &fs) == 0 && fs.f_blocks && (fs.f_bfree == 0 || fs.f_ffree == 0);
}

static void empty_box(void)
{
    (void)kill(-1, SIGKILL);
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
        ;
}

/* What cannot wait comes to a session's init as a signal: nobody inside may signal it. SIGCHLD
 * is let through only where it waits for its children and the spawner's orders. */
static pid_t program;
static bool has_program;
static const struct inside *own;

/* Once the program was forked, others live here that are not its own: then it is the spawner
 * who ends what belongs to it, by its control group, which we have left. */
static bool has_forks;

static void on_signal(int signal)
{
    int saved = errno;
    if (signal == SIGINT) {
        (void)kill(-program, SIGINT);
        (void)inside_send(own, &(struct link_record){.kind = LINK_INTERRUPTED});
    } else if (signal == SIGTERM && !has_forks) {
        (void)kill(-1, SIGKILL);
    }
    errno = saved;
}

static void handle_signals(void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    (void)sigaction(SIGCHLD, &action, NULL);
}

static void mask_signals(int how, bool with_child)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGTERM);
    if (with_child)
        (void)sigaddset(&set, SIGCHLD);
    (void)sigprocmask(how, &set, NULL);
}

/* Forks in a session's init. Signals that come meanwhile wait; its handlers are not for the
 * child. */
static int fork_quietly(pid_t *ret_pid)
{
    mask_signals(SIG_BLOCK, true);
    int pid = sys_fork();
    if (pid == 0) {
        handle_signals(SIG_DFL);
        mask_signals(SIG_UNBLOCK, true);
        return 0;
    }
    if (ret_pid)
        *ret_pid = pid;
    handle_signals(on_signal);
    mask_signals(SIG_UNBLOCK, false);
    return pid;
}

/* A helper for files of a session. */
static void fork_files(const struct inside *in, int fd, uint64_t room_bytes)
{
    int pid = fork_quietly(NULL);
    if (pid == 0)
        files_run(in, fd, room_bytes);
    if (pid < 0)
        files_refuse(fd, -EUSERS);
}

/* A terminal, which ends with the program: there is none without. */
static void fork_terminal(const struct inside *in, const int *fds, unsigned count)
{
    struct terminal_order order = {.fd = fds[0], .job_fd = fds[1], .join_count = count - 2};
    memcpy(order.joins, fds + 2, sizeof(fds[0]) * order.join_count);
    int pid = has_program ? fork_quietly(NULL) : -ESRCH;
    if (pid == 0)
        terminal_run(in, &order, NULL);
    if (pid < 0)
        terminal_refuse(order.fd, pid == -ESRCH ? pid : -EUSERS);
}

/* Gives a session its next program. */
static bool take_restart(struct inside *in, const int fds[4])
{
    close_fd(&in->job_fd);
    in->job_fd = fds[0];
    in->stdout_fd = fds[1];
    in->stderr_fd = fds[2];
    in->channel_fd = fds[3];
    return true;
}

/* Waits in a session until a child may have ended, or for the spawner's next order and follows
 * it; true when that was to start another program. Whoever is gone without one has killed us.
 */
static bool follow_order(struct inside *in)
{
    struct pollfd link = {.fd = in->link_fd, .events = POLLIN};
    struct link_order order;
    sigset_t none;
    int fds[2 + CGROUP_MAX_TREES];
    unsigned count;
    (void)sigemptyset(&none);
    if (ppoll(&link, 1, NULL, &none) < 1)
        return false;
    ssize_t n =
        fdpass_receive(in->link_fd, &order, sizeof(order), fds, 2 + CGROUP_MAX_TREES, &count);
    if (n ==
        -EMSGSIZE) /* more descriptors than this box may have: the sender sees them close */
        return false;
    if (n != (ssize_t)sizeof(order))
        _exit(1);
    if (order.kind == ORDER_RESTART && count == 4)
        return take_restart(in, fds);
    if (order.kind == ORDER_FILES && count == 1)
        fork_files(in, fds[0], order.room_bytes);
    if (order.kind == ORDER_TERMINAL && count >= 2)
        fork_terminal(in, fds, count);
    for (unsigned i = 0; order.kind == ORDER_JOIN && i < count; i++)
        (void)cgroup_join(fds[i]);
    has_forks = has_forks || order.kind == ORDER_JOIN;
    while (count)
        close_fd(&fds[--count]);
    return false;
}

/* Reaps until the payload has ended, then reports its status. Nothing else of a session is left
 * alive by then: its files wait for the next program. */
static void watch_payload(struct inside *in, pid_t payload)
{
    bool is_session = in->box->flags & BOX_CHANNEL;
    int status;
    for (;;) {
        pid_t pid = waitpid(-1, &status, is_session ? WNOHANG : 0);
        if (pid == payload)
            break;
        if (pid < 0 && errno != EINTR)
            inside_fail(in, STEP_INIT, -errno);
        if (pid == 0)
            (void)follow_order(in);
    }
    has_program = false;
    struct link_record end = {.kind = LINK_EXIT, .status = status, .ns = clock_ns()};
    struct rusage usage;
    if (getrusage(RUSAGE_CHILDREN, &usage) == 0) {
        end.cpu_ns = timeval_ns(usage.ru_utime) + timeval_ns(usage.ru_stime);
        end.rss_bytes = (uint64_t)usage.ru_maxrss * 1024;
    }
    if (in->box->flags & BOX_CHANNEL && !has_forks)
        empty_box();
    pid_t left;
    while ((left = waitpid(-1, NULL, WNOHANG)) > 0)
        ;
    end.is_empty = left < 0 && errno == ECHILD;
    end.disk_full = is_full("/box") || is_full("/tmp") || is_full("/dev/shm");
    (void)inside_send(in, &end);
}

/* Kills what the payload left, waits until the box is empty, and only then lets a helper with
 * the payload's id read its files: nobody is there to race it. */
static void collect_files(const struct inside *in)
{
    empty_box();
    int pid = sys_fork();
    if (pid == 0)
        collect_run(in);
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

/* A parked box hears only with its job whether files are wanted. It was sent before the job, so
 * by now it is there or will not come. */
static void take_collect(struct inside *in)
{
    struct pollfd link = {.fd = in->link_fd, .events = POLLIN};
    char kind;
    int fds[2];
    unsigned count;
    if (poll(&link, 1, 0) == 1 && fdpass_receive(in->link_fd, &kind, 1, fds, 2, &count) == 1 &&
        count == 2) {
        in->job_fd = fds[0];
        in->collect_fd = fds[1];
    }
}

/* Our copies of the box's ends would keep its pipes open after everybody else is gone. */
static void close_ends(struct inside *in)
{
    close_fd(&in->stdout_fd);
    close_fd(&in->stderr_fd);
    close_fd(&in->stdin_fd);
    close_fd(&in->hand_fd);
    close_fd(&in->channel_fd);
}

/* Forks the program's process. */
static int fork_program(struct inside *in)
{
    in->init_cpu_ns = inside_cpu_ns();
    if (!(in->box->flags & BOX_CHANNEL))
        return sys_fork();
    own = in;
    has_program = true;
    return fork_quietly(&program);
}

/* Reaps what is left to reap until a session gets another program. */
static bool wait_restart(struct inside *in)
{
    do {
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
    } while (!follow_order(in));
    return true;
}

/* The process that is, or becomes, the program. */
static void be_payload(const struct inside *in)
{
    struct payload_words words;
    payload_enter(in);
    if (in->is_warm)
        return;
    if (in->hand_fd >= 0)
        payload_park(in, &words);
    else
        payload_begin(in, &words);
    payload_exec(in, &words);
}

void inside_run(struct inside *in)
{
    int r;
    uint32_t step;
    for (size_t i = 0; i < sizeof(steps_before) / sizeof(steps_before[0]); i++) {
        if ((r = steps_before[i].run(in)) < 0)
            inside_fail(in, steps_before[i].step, r);
    }
    if ((r = mounts_enter(in, &step)) < 0)
        inside_fail(in, step, r);
    for (size_t i = 0; i < sizeof(steps_after) / sizeof(steps_after[0]); i++) {
        if ((r = steps_after[i].run(in)) < 0)
            inside_fail(in, steps_after[i].step, r);
    }
    bool is_session = in->box->flags & BOX_CHANNEL;
    bool is_parked = in->hand_fd >= 0 && !is_session;
    do {
        int payload = fork_program(in);
        if (payload == 0) {
            be_payload(in);
            return;
        }
        if (payload < 0)
            inside_fail(in, STEP_FORK, payload);
        if ((r = drop_init(in->collect_fd >= 0 || is_parked || is_session)) < 0)
            inside_fail(in, STEP_DROP, r);
        close_ends(in);
        watch_payload(in, payload);
        if (is_parked)
            take_collect(in);
        if (in->collect_fd >= 0)
            collect_files(in);
    } while (is_session && wait_restart(in));
    _exit(0);
}
