/* SPDX-License-Identifier: Apache-2.0 */

/* See confine.h. The monitor chose what the server can reach: a sealed spawner and listening
 * sockets. This file takes away the rest. An attacker who takes over the server can start boxes
 * and read what callers keep in it, and nothing more. */

#include "http/confine.h"

#include "base/cleanup.h"
#include "base/os/process.h"
#include "seccomp/program.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/landlock.h>
#include <seccomp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Landlock constants that older Linux headers lack. */
enum {
    FS_READ = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR,
    FS_ALL = (1 << 13) - 1, /* ABI 1 */
    FS_REFER = 1 << 13,
    FS_TRUNCATE = 1 << 14,
    NET_BIND_AND_CONNECT = 3,
};

struct ruleset_attr {
    uint64_t fs;
    uint64_t net;
};

static int fail(struct err *err, int error, const char *what)
{
    return err_set(err, ERR_INTERNAL, error, "%s: %s", what, strerror(error));
}

int confine_identity(struct err *err)
{
    int r = geteuid() == 0 ? -EPERM : process_drop(geteuid(), getegid());
    if (r < 0)
        return fail(err, -r, "the server must not run as root; run `hermes serve`");
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return fail(err, errno, "cannot give up privileges");
    return 0;
}

static int allow(int ruleset, const char *path, uint64_t rights)
{
    cleanup_close int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT || errno == EACCES ? 0 : -errno;
    struct landlock_path_beneath_attr rule = {.allowed_access = rights, .parent_fd = fd};
    long r = syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
    if (r < 0 && errno == EINVAL) { /* a file accepts no directory rights */
        rule.allowed_access &= ~(uint64_t)LANDLOCK_ACCESS_FS_READ_DIR;
        r = syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
    }
    return r < 0 ? -errno : 0;
}

static int restrict_files(const char *state_dir, const char *seed_dir,
    const struct runtime_registry *runtimes, const char *cases_dir)
{
    char around[PATH_MAX];
    (void)snprintf(around, sizeof(around), "%s/..", cases_dir ? cases_dir : "");
    int abi =
        (int)syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (abi < 1)
        return 0; /* Linux without Landlock: the user and the system call filter remain */
    uint64_t all = FS_ALL | (abi >= 2 ? FS_REFER : 0) | (abi >= 3 ? FS_TRUNCATE : 0);
    struct ruleset_attr attr = {.fs = all, .net = abi >= 4 ? NET_BIND_AND_CONNECT : 0};
    cleanup_close int ruleset = (int)syscall(
        SYS_landlock_create_ruleset, &attr, abi >= 4 ? sizeof(attr) : sizeof(attr.fs), 0);
    if (ruleset < 0)
        return -errno;
    int r = allow(ruleset, state_dir, all & ~(uint64_t)LANDLOCK_ACCESS_FS_EXECUTE);
    if (r == 0 && seed_dir[0])
        r = allow(ruleset, seed_dir, all & ~(uint64_t)LANDLOCK_ACCESS_FS_EXECUTE);
    if (r == 0)
        r = allow(ruleset, "/proc/self", FS_READ);
    if (r == 0 && cases_dir)
        r = allow(ruleset, around, FS_READ);
    for (size_t i = 0; r == 0 && i < runtimes->count; i++) {
        const struct runtime *rt = &runtimes->items[i];
        r = allow(ruleset, rt->dir, FS_READ);
        if (r == 0 && rt->home)
            r = allow(ruleset, rt->home, FS_READ);
    }
    if (r == 0 && syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
        r = -errno;
    return r;
}

/* System calls of HTTP, SQLite, threads and the sockets to the spawner. */
static const int allowed_calls[] = {SCMP_SYS(accept4), SCMP_SYS(access), SCMP_SYS(brk),
    SCMP_SYS(clock_gettime), SCMP_SYS(clock_getres), SCMP_SYS(clock_nanosleep), SCMP_SYS(close),
    SCMP_SYS(dup3), SCMP_SYS(epoll_create1), SCMP_SYS(epoll_ctl), SCMP_SYS(epoll_pwait),
    SCMP_SYS(epoll_wait), SCMP_SYS(eventfd2), SCMP_SYS(exit), SCMP_SYS(exit_group),
    SCMP_SYS(faccessat2), SCMP_SYS(fallocate), SCMP_SYS(fchmod), SCMP_SYS(fchown),
    SCMP_SYS(fcntl), SCMP_SYS(fdatasync), SCMP_SYS(flock), SCMP_SYS(fstat), SCMP_SYS(fstatfs),
    SCMP_SYS(fsync), SCMP_SYS(ftruncate), SCMP_SYS(futex), SCMP_SYS(getcwd),
    SCMP_SYS(getdents64), SCMP_SYS(getegid), SCMP_SYS(geteuid), SCMP_SYS(getgid),
    SCMP_SYS(getpeername), SCMP_SYS(getpid), SCMP_SYS(getrandom), SCMP_SYS(getrlimit),
    SCMP_SYS(getsockname), SCMP_SYS(getsockopt), SCMP_SYS(gettid), SCMP_SYS(gettimeofday),
    SCMP_SYS(getuid), SCMP_SYS(linkat), SCMP_SYS(listen), SCMP_SYS(lseek), SCMP_SYS(lstat),
    SCMP_SYS(madvise), SCMP_SYS(membarrier), SCMP_SYS(memfd_create), SCMP_SYS(mkdir),
    SCMP_SYS(mkdirat), SCMP_SYS(mremap), SCMP_SYS(munmap), SCMP_SYS(nanosleep),
    SCMP_SYS(newfstatat), SCMP_SYS(open), SCMP_SYS(openat), SCMP_SYS(openat2), SCMP_SYS(pipe2),
    SCMP_SYS(poll), SCMP_SYS(ppoll), SCMP_SYS(pread64), SCMP_SYS(prlimit64), SCMP_SYS(pwrite64),
    SCMP_SYS(read), SCMP_SYS(readlink), SCMP_SYS(readlinkat), SCMP_SYS(readv),
    SCMP_SYS(recvfrom), SCMP_SYS(recvmsg), SCMP_SYS(rename), SCMP_SYS(renameat),
    SCMP_SYS(renameat2), SCMP_SYS(restart_syscall), SCMP_SYS(rmdir), SCMP_SYS(rseq),
    SCMP_SYS(rt_sigaction), SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigreturn),
    SCMP_SYS(rt_sigtimedwait), SCMP_SYS(sched_getaffinity), SCMP_SYS(sched_yield),
    SCMP_SYS(sendfile), SCMP_SYS(sendmsg), SCMP_SYS(sendto), SCMP_SYS(set_robust_list),
    SCMP_SYS(setsockopt), SCMP_SYS(shutdown), SCMP_SYS(sigaltstack), SCMP_SYS(signalfd4),
    SCMP_SYS(socketpair), SCMP_SYS(stat), SCMP_SYS(statfs), SCMP_SYS(statx), SCMP_SYS(syncfs),
    SCMP_SYS(sysinfo), SCMP_SYS(tgkill), SCMP_SYS(umask), SCMP_SYS(uname), SCMP_SYS(unlink),
    SCMP_SYS(unlinkat), SCMP_SYS(utimensat), SCMP_SYS(write), SCMP_SYS(writev),
    SCMP_SYS(copy_file_range), SCMP_SYS(prctl)};

/* Memory never becomes executable. clone only makes threads. ioctl only reads a byte count
 * (FIONREAD) and sets the size of a terminal (TIOCSWINSZ). */
static int add_conditional(scmp_filter_ctx filter)
{
    int r = program_filter_no_exec(filter);
    if (r == 0)
        r = program_filter_threads(filter);
    if (r == 0)
        r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1,
            SCMP_A1(SCMP_CMP_EQ, 0x541B)); /* FIONREAD */
    if (r == 0)
        r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1,
            SCMP_A1(SCMP_CMP_EQ, 0x5414)); /* TIOCSWINSZ */
    return r;
}

static int restrict_calls(void)
{
    return program_filter_load(
        allowed_calls, sizeof(allowed_calls) / sizeof(allowed_calls[0]), add_conditional);
}

int confine_rest(const char *state_dir, const char *seed_dir,
    const struct runtime_registry *runtimes, const char *cases_dir, struct err *err)
{
    int r = restrict_files(state_dir, seed_dir, runtimes, cases_dir);
    if (r < 0)
        return fail(err, -r, "cannot restrict files with Landlock");
#ifndef HERMES_SANITIZED /* sanitizers need more system calls */
    if ((r = restrict_calls()) < 0)
        return fail(err, -r, "cannot restrict system calls");
#endif
    return 0;
}
