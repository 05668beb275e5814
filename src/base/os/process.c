/* SPDX-License-Identifier: Apache-2.0 */

#include "base/os/process.h"

#include "base/cleanup.h"
#include "base/os/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIGNALS = 64, SIGNAL_SET_SIZE = SIGNALS / 8, CAPABILITIES = 64 };

/* The C library does not let us reset the signals that it keeps for itself, hence the raw
 * system call. */
void process_reset_signals(void)
{
    static const struct {
        void *handler;
        unsigned long flags;
        void *restorer;
        uint64_t mask;
    } as_usual; /* SIG_DFL, in the kernel's own struct sigaction */
    sigset_t none;
    for (int number = 1; number <= SIGNALS; number++) {
        if (number != SIGKILL && number != SIGSTOP)
            (void)syscall(SYS_rt_sigaction, number, &as_usual, NULL, SIGNAL_SET_SIZE);
    }
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

int process_change_user(uid_t uid, gid_t gid)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {0};
    if (geteuid() == 0 && (uid == 0 || setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 ||
                              setresuid(uid, uid, uid) < 0))
        return uid == 0 ? -EPERM : -errno;
    if (syscall(SYS_capset, &head, none) < 0)
        return -errno;
    /* The change must hold: a process that could become root again is stopped here. */
    return setresuid((uid_t)-1, 0, (uid_t)-1) == 0 ? -EPERM : 0;
}

int process_drop(uid_t uid, gid_t gid)
{
    for (int cap = 0; cap < CAPABILITIES; cap++)
        /* Fails without CAP_SETPCAP; nothing is left to drop then. */
        (void)prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -errno;
    return process_change_user(uid, gid);
}

int process_give_up(void)
{
    int r = process_drop(geteuid(), getegid());
    if (r < 0)
        return r;
    return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ? -errno : 0;
}

void process_raise_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* The order matters: `before` may use descriptors, one of which may be `at`, and a user without
 * rights may not be allowed to open the program. */
int process_become(const struct process_image *image)
{
    cleanup_free char *path = fs_beside_self(image->program);
    if (!path)
        return -ENOENT;
    cleanup_close int program = open(path, O_PATH | O_CLOEXEC);
    int r = program < 0 ? -errno : 0;
    if (r == 0 && (program = fcntl(program, F_DUPFD_CLOEXEC, image->at + 1)) < 0)
        r = -errno;
    if (r == 0 && image->before)
        r = image->before(image->context);
    if (r < 0)
        return r;
    process_reset_signals();
    /* dup2 onto itself would keep close-on-exec. */
    r = image->socket == image->at ? fcntl(image->socket, F_SETFD, 0)
                                   : dup2(image->socket, image->at);
    if (r < 0)
        return -errno;
    (void)execve(path, image->argv, image->env);
    /* The new user may have no access to the directory of the program (a build below /root). */
    if (errno == EACCES)
        (void)syscall(SYS_execveat, program, "", image->argv, image->env, AT_EMPTY_PATH);
    return -errno;
}

void process_await(pid_t pid, int timeout_ms)
{
    cleanup_close int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd dead = {.fd = fd, .events = POLLIN};
    int r = fd;
    while (fd >= 0 && (r = poll(&dead, 1, timeout_ms)) < 0 && errno == EINTR)
        ;
    if (r == 0)
        (void)kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}
