/* SPDX-License-Identifier: Apache-2.0 */

/* Box init once the box is made: starts the program, reaps, follows the orders for a session,
 * has files collected, and reports to the spawner how the program ended. */

#include "box/init.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/fdpass.h"
#include "base/os/sys.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* Urgent orders come to box init of a session as signals; no process inside can signal it.
 * SIGCHLD is unblocked only while box init waits for children and orders. */
static pid_t program;
static bool has_program;
static const struct inside *own;

/* True once the program was copied: then processes live in this pid namespace that are not the
 * program's. The spawner ends those of the program by its control group, which box init has
 * left. */
static bool has_forks;

/* Copies that are runs: their ends are reported (ORDER_WATCH). */
static pid_t watched[SPAWN_MAX_FORKS];

static void watch(pid_t pid)
{
    size_t i = 0;
    while (i < SPAWN_MAX_FORKS - 1 && watched[i])
        i++;
    watched[i] = pid;
}

/* Reports the end of a process, if it is watched. */
static void report_reaped(const struct inside *in, pid_t pid, int status)
{
    const struct link_record end = {
        .kind = LINK_REAPED, .pid = (uint32_t)pid, .status = status, .ns = clock_ns()};
    for (size_t i = 0; i < SPAWN_MAX_FORKS; i++) {
        if (watched[i] != pid)
            continue;
        watched[i] = 0;
        (void)inside_send(in, &end);
    }
}

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

/* Forks in box init of a session. Signals that come meanwhile stay pending; the child gets
 * default handlers. */
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

/* A helper for files of a session. What it writes is charged to the groups that came along, if
 * any: it enters them before it reads a byte. */
static void fork_files(
    const struct inside *in, const int *fds, unsigned count, uint64_t room_bytes)
{
    int r = 0;
    int pid = fork_quietly(NULL);
    for (unsigned i = 1; pid == 0 && r == 0 && i < count; i++)
        r = sys_cgroup_join(fds[i]);
    if (pid == 0 && r == 0)
        files_run(in, fds[0], room_bytes);
    if (pid <= 0)
        files_refuse(fds[0], pid < 0 ? -EUSERS : r);
    if (pid == 0)
        _exit(1);
}

/* Starts a terminal. It ends with the program, so there is none without a program. */
static void fork_terminal(const struct inside *in, const int *fds, unsigned count)
{
    struct terminal_order order = {.fd = fds[0], .package_fd = fds[1], .join_count = count - 2};
    memcpy(order.joins, fds + 2, sizeof(fds[0]) * order.join_count);
    int pid = has_program ? fork_quietly(NULL) : -ESRCH;
    if (pid == 0)
        terminal_run(in, &order, NULL);
    if (pid < 0)
        terminal_refuse(order.fd, pid == -ESRCH ? pid : -EUSERS);
}

/* Takes the descriptors for the next program of a session. */
static bool take_restart(struct inside *in, const int fds[4])
{
    close_fd(&in->package_fd);
    in->package_fd = fds[0];
    in->stdout_fd = fds[1];
    in->stderr_fd = fds[2];
    in->channel_fd = fds[3];
    return true;
}

/* Follows the next order, if there is one. Returns true when it was to start another program.
 * When the link closes, the spawner has killed this box or is gone: exits. */
static bool follow_order(struct inside *in)
{
    struct link_order order;
    int fds[2 + CGROUP_MAX_TREES];
    unsigned count;
    ssize_t n =
        fdpass_receive(in->link_fd, &order, sizeof(order), fds, 2 + CGROUP_MAX_TREES, &count);
    /* More descriptors than this box may have: the kernel closed them, and the server sees
     * that. */
    if (n == -EMSGSIZE)
        return false;
    if (n != (ssize_t)sizeof(order))
        _exit(1);
    if (order.kind == ORDER_RESTART && count == 4)
        return take_restart(in, fds);
    if (order.kind == ORDER_FILES && count >= 1)
        fork_files(in, fds, count, order.room_bytes);
    if (order.kind == ORDER_TERMINAL && count >= 2)
        fork_terminal(in, fds, count);
    for (unsigned i = 0; order.kind == ORDER_JOIN && i < count; i++)
        (void)sys_cgroup_join(fds[i]);
    has_forks = has_forks || order.kind == ORDER_JOIN;
    if (order.kind == ORDER_WATCH)
        watch((pid_t)order.pid);
    while (count)
        close_fd(&fds[--count]);
    return false;
}

/* Waits until a child may have ended or an order comes, and follows the order; else as
 * follow_order(). */
static bool wait_order(struct inside *in)
{
    struct pollfd link = {.fd = in->link_fd, .events = POLLIN};
    sigset_t none;
    (void)sigemptyset(&none);
    return ppoll(&link, 1, NULL, &none) == 1 && follow_order(in);
}

/* Reaps one child of a session that has ended; 0 when there is none now. Reads orders first:
 * the order to watch a process comes before the process begins. */
static pid_t reap_one(struct inside *in, bool *ret_restarts, int *ret_status)
{
    struct pollfd link = {.fd = in->link_fd, .events = POLLIN};
    siginfo_t ended = {0};
    if (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) < 0)
        return errno == EINTR ? 0 : -1;
    while (ended.si_pid && !*ret_restarts && poll(&link, 1, 0) == 1)
        *ret_restarts = follow_order(in);
    pid_t pid = ended.si_pid ? waitpid(ended.si_pid, ret_status, WNOHANG) : 0;
    if (pid > 0)
        report_reaped(in, pid, *ret_status);
    return pid;
}

/* Reaps until the payload has ended, then reports its status. In a session every other process
 * is killed first; the files stay for the next program. Returns whether box init must stay
 * until the spawner has reported the end: when it exits, the kernel frees the memory of a warm
 * program (hermes_warm_exit()), and that would delay the answer. */
static bool watch_payload(struct inside *in, pid_t payload)
{
    bool is_session = in->box->flags & BOX_CHANNEL;
    bool restarts = false; /* never: a program runs */
    int status;
    for (;;) {
        pid_t pid = is_session ? reap_one(in, &restarts, &status) : waitpid(-1, &status, 0);
        if (pid == payload)
            break;
        if (pid < 0 && errno != EINTR)
            inside_fail(in, STEP_INIT, -errno);
        if (pid == 0)
            (void)wait_order(in);
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
    while ((left = is_session ? reap_one(in, &restarts, &(int){0})
                              : waitpid(-1, NULL, WNOHANG)) > 0)
        ;
    end.is_empty = left < 0 && errno == ECHILD;
    end.disk_full = is_full("/box") || is_full("/tmp") || is_full("/dev/shm") ||
                    (in->box->flags & BOX_ROOT && is_full("/"));
    return inside_send(in, &end) == 0 && in->is_warm && !is_session && !end.is_empty;
}

/* Kills what the payload left, waits until the box is empty, and only then lets a helper with
 * the payload's id read the files: no process is left to race with it. */
static void collect_files(const struct inside *in)
{
    empty_box();
    int pid = sys_fork();
    if (pid == 0)
        collect_run(in);
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

/* A ready box learns with its package whether the server wants files back. If it does, the
 * spawner has sent two descriptors on the init link before the package, so this need not wait.
 */
static void take_collect(struct inside *in)
{
    struct pollfd link = {.fd = in->link_fd, .events = POLLIN};
    char kind;
    int fds[2];
    unsigned count;
    if (poll(&link, 1, 0) == 1 && fdpass_receive(in->link_fd, &kind, 1, fds, 2, &count) == 1 &&
        count == 2) {
        in->package_fd = fds[0];
        in->collect_fd = fds[1];
    }
}

/* Box init's copies would keep the pipes open after every other process is gone. */
static void close_ends(struct inside *in)
{
    close_fd(&in->stdout_fd);
    close_fd(&in->stderr_fd);
    close_fd(&in->stdin_fd);
    close_fd(&in->hand_fd);
    close_fd(&in->channel_fd);
}

static int fork_program(struct inside *in)
{
    in->init_cpu_ns = inside_cpu_ns();
    if (!(in->box->flags & BOX_CHANNEL))
        return sys_fork();
    own = in;
    has_program = true;
    return fork_quietly(&program);
}

/* Reaps until an order brings the next program of a session. */
static bool wait_restart(struct inside *in)
{
    bool restarts = false;
    do {
        while (!restarts && reap_one(in, &restarts, &(int){0}) > 0)
            ;
    } while (!restarts && !wait_order(in));
    return true;
}

void init_watch(struct inside *in, int payload, bool is_parked)
{
    bool is_session = in->box->flags & BOX_CHANNEL;
    int r = drop_init(in->collect_fd >= 0 || is_parked || is_session);
    if (r < 0)
        inside_fail(in, STEP_DROP, r);
    close_ends(in);
    bool has_to_stay = watch_payload(in, payload);
    if (is_parked)
        take_collect(in);
    if (in->collect_fd >= 0)
        collect_files(in);
    else if (has_to_stay)
        (void)inside_wait_go(in);
}

int init_run(struct inside *in)
{
    bool is_session = in->box->flags & BOX_CHANNEL;
    bool is_parked = in->hand_fd >= 0 && !is_session;
    do {
        int payload = fork_program(in);
        if (payload == 0)
            return 0;
        if (payload < 0)
            inside_fail(in, STEP_FORK, payload);
        init_watch(in, payload, is_parked);
    } while (is_session && wait_restart(in));
    _exit(0);
}

int init_exec(const struct inside *in, int payload, int gate)
{
    bool is_parked = in->hand_fd >= 0;
    bool collects = in->collect_fd >= 0;
    const int values[INIT_ARGC] = {[INIT_LINK] = in->link_fd,
        [INIT_GATE] = gate,
        [INIT_PAYLOAD] = payload,
        [INIT_JOB] = collects ? in->package_fd : -1,
        [INIT_COLLECT] = in->collect_fd,
        [INIT_LANDLOCK] = in->landlock_abi,
        [INIT_PARKED] = is_parked};
    const int stay[] = {in->link_fd, gate, values[INIT_JOB], in->collect_fd};
    char words[INIT_ARGC][12] = {"hermes-init"};
    char *argv[INIT_ARGC + 1] = {words[0]};
    char *env[] = {NULL};
    for (int i = 1; i < INIT_ARGC; i++) {
        (void)snprintf(words[i], sizeof(words[i]), "%d", values[i]);
        argv[i] = words[i];
    }
    for (size_t i = 0; i < sizeof(stay) / sizeof(stay[0]); i++) {
        if (stay[i] >= 0 && fcntl(stay[i], F_SETFD, 0) < 0)
            return -errno;
    }
    int r = is_parked || collects ? drop_keep_over_exec() : 0;
    if (r < 0)
        return r;
    (void)execve(INIT_PROGRAM, argv, env);
    return -errno;
}
