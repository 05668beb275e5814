/* SPDX-License-Identifier: Apache-2.0 */

/* Which processes are the family of a copy: box init, the original, and the process that says
 * it is the copy. Everything that the box says is checked with the kernel, before the copy is
 * touched. */

#include "fork/fork.h"

#include "base/cleanup.h"
#include "base/os/fdpass.h"
#include "base/os/fs.h"
#include "base/os/sys.h"
#include "base/str.h"
#include "box/inside.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KCMP_VM = 1, KCMP_FILES = 2, KCMP_FS = 3 };

int fork_open_proc(pid_t pid, const char *name, int flags)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
    int fd = open(path, flags | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int fork_in_child(const struct fork_work *w, int (*part)(const struct fork_work *w))
{
    int status;
    int pid = sys_fork();
    if (pid == 0) {
        int r = sys_die_with(w->worker);
        _exit(-(r < 0 ? r : part(w)) & 0x7f);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return -errno;
    }
    if (pid < 0)
        return pid;
    return WIFEXITED(status) ? -WEXITSTATUS(status) : -ENOMEM;
}

/* Whether two processes are in the same namespace of one kind. */
static int same_ns(pid_t a, pid_t b, const char *name, bool *ret)
{
    struct stat first;
    struct stat second;
    cleanup_close int one = fork_open_proc(a, name, O_RDONLY);
    cleanup_close int two = fork_open_proc(b, name, O_RDONLY);
    if (one < 0 || two < 0)
        return one < 0 ? one : two;
    if (fstat(one, &first) < 0 || fstat(two, &second) < 0)
        return -errno;
    *ret = first.st_dev == second.st_dev && first.st_ino == second.st_ino;
    return 0;
}

/* The pid behind a pidfd, in our namespace. */
static int pid_of(int pidfd)
{
    char path[40];
    char text[512];
    uint64_t pid;
    (void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
    if (fs_read_small(AT_FDCWD, path, text, sizeof(text)) < 0)
        return -ESRCH;
    char *line = strstr(text, "Pid:\t");
    char *end = line ? strchr(line, '\n') : NULL;
    if (end)
        *end = '\0';
    return line && str_parse_u64(line + 5, &pid) == 0 && pid > 1 ? (int)pid : -ESRCH;
}

/* Opens the limit of user namespaces in the user namespace of the box, because the file shows
 * each process that of its own, and sends it. */
static int send_limit(const struct fork_work *w)
{
    int keep[] = {COPY_PIDFD, w->users_socket};
    int r = inside_close_others(keep, 2);
    if (r < 0)
        return r;
    if (setns(COPY_PIDFD, CLONE_NEWUSER) < 0)
        return -errno;
    cleanup_close int fd = open("/proc/sys/user/max_user_namespaces", O_WRONLY | O_CLOEXEC);
    return fd < 0 ? -errno : fdpass_send_now(w->users_socket, "", 1, &fd, 1);
}

/* Opens the limit of user namespaces, and reports it. */
static int open_limit(struct fork_work *w)
{
    const struct link_record limit = {.kind = LINK_LIMIT};
    int pair[2];
    char byte;
    unsigned count = 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    cleanup_close int ours = pair[0];
    cleanup_close int theirs = pair[1];
    w->users_socket = theirs;
    int r = fork_in_child(w, send_limit);
    if (r < 0)
        return r;
    ssize_t n = fdpass_receive_now(ours, &byte, 1, &w->users_fd, 1, &count);
    if (n != 1 || count != 1)
        return n < 0 ? (int)n : -EIO;
    return fdpass_send(COPY_REPORT_FD, &limit, sizeof(limit), &w->users_fd, 1);
}

/* Finds box init, a process of the original, and the limit of user namespaces. The original of
 * a copy without other ancestors is the session, whose namespaces box init has, too. */
int fork_know_family(struct fork_work *w)
{
    bool is_first = w->order.lineage == 1u << w->order.number;
    w->init_pid = pid_of(COPY_PIDFD);
    w->parent_pid = is_first ? w->init_pid : pid_of(COPY_PARENT_PIDFD);
    int r = w->init_pid < 0 || w->parent_pid < 0 ? -ESRCH : open_limit(w);
    (void)close(COPY_PIDFD);
    (void)close(COPY_PARENT_PIDFD);
    return r;
}

/* Reads the byte that the copy sends. The kernel adds the pid of its sender. */
int fork_hear_hello(struct fork_work *w)
{
    char byte;
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(struct ucred))]; /* no room for descriptors */
    } control;
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof(control)};
    ssize_t n = recvmsg(COPY_SOCKET_FD, &message, MSG_CMSG_CLOEXEC);
    if (n != 1 || message.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
        return n < 0 ? -errno : -EPROTO;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
        struct ucred cred;
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_CREDENTIALS)
            return -EPROTO;
        memcpy(&cred, CMSG_DATA(c), sizeof(cred));
        w->pid = cred.pid;
    }
    if (w->pid <= 1)
        return -EPROTO;
    w->pidfd = sys_pidfd_open(w->pid);
    return w->pidfd < 0 ? w->pidfd : 0;
}

/* Whether the process that said hello belongs to the original's box: it is in the pid namespace
 * of its box init and in the original's control group, not box init, not the original itself,
 * and still the process behind the pidfd. */
int fork_know_copy(struct fork_work *w)
{
    static pid_t pids[FORK_PIDS_MAX];
    bool is_same = false;
    bool is_there = false;
    struct pollfd dead = {.fd = w->pidfd, .events = POLLIN};
    w->proc_fd = fork_open_proc(w->pid, "", O_RDONLY | O_DIRECTORY);
    int r = w->proc_fd < 0 ? w->proc_fd : same_ns(w->pid, w->init_pid, "ns/pid", &is_same);
    if (r < 0)
        return r;
    int count = cgroup_leaf_pids(&w->host, &w->parent_leaf, pids, FORK_PIDS_MAX);
    for (int i = 0; i < count; i++)
        is_there = is_there || pids[i] == w->pid;
    if (count < 0 || !is_there || !is_same || w->pid == w->init_pid || w->pid == w->parent_pid)
        return count < 0 ? count : -EPERM;
    return poll(&dead, 1, 0) == 0 ? 0 : -ESRCH;
}

/* The copy's number in the pid namespace of the box: the last of the line in its status. */
int fork_read_inner_pid(const struct fork_work *w, uint32_t *ret)
{
    char text[8192];
    uint64_t pid;
    int r = (int)fs_read_small(w->proc_fd, "status", text, sizeof(text));
    char *line = r < 0 ? NULL : strstr(text, "\nNSpid:\t");
    char *end = line ? strchr(line + 1, '\n') : NULL;
    if (!end)
        return r < 0 ? r : -EPROTO;
    *end = '\0';
    if (str_parse_u64(strrchr(line, '\t') + 1, &pid) < 0 || pid < 2 || pid > INT32_MAX)
        return -EPROTO;
    *ret = (uint32_t)pid;
    return 0;
}

/* Counts the threads of a process. Fails if one of them shares memory, descriptors or
 * directories with the copy; the copy's own threads are not compared. Each thread is compared
 * because the first one may have ended and then has no memory, while the others do. */
static int count_threads(const struct fork_work *w, pid_t pid)
{
    int fd = fork_open_proc(pid, "task", O_RDONLY | O_DIRECTORY);
    cleanup_closedir DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;
    uint64_t thread;
    int count = 0;
    if (!dir)
        return errno == ENOENT || errno == ESRCH ? 0 : -errno; /* the process is dead */
    while ((errno = 0, entry = readdir(dir))) {
        if (str_parse_u64(entry->d_name, &thread) < 0)
            continue;
        count++;
        for (int kind = KCMP_VM; pid != w->pid && kind <= KCMP_FS; kind++) {
            long r = syscall(SYS_kcmp, w->pid, thread, kind, 0, 0);
            if (r <= 0 && !(r < 0 && errno == ESRCH))
                return r < 0 ? -errno : -EPERM;
        }
    }
    /* A list that ends early would hide threads, unless the process has just died. */
    return errno && errno != ESRCH && errno != ENOENT ? -errno : count;
}

int fork_check_alone(const struct fork_work *w)
{
    static pid_t pids[FORK_PIDS_MAX];
    int count = cgroup_leaf_pids(&w->host, &w->parent_leaf, pids, FORK_PIDS_MAX);
    if (count < 0)
        return count;
    for (int i = 0; i < count; i++) {
        int r = count_threads(w, pids[i]);
        if (r < 0)
            return r;
    }
    count = cgroup_leaf_pids(&w->host, &w->leaf, pids, FORK_PIDS_MAX);
    return count == 1 && pids[0] == w->pid && count_threads(w, w->pid) == 1 ? 0 : -EPERM;
}
