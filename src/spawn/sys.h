/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* System calls that glibc 2.36 does not wrap, as plain functions that return negative errno. */

#include <errno.h>
#include <linux/landlock.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule 445
#define SYS_landlock_restrict_self 446
#endif
#ifndef SYS_clone3
#define SYS_clone3 435
#endif
#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP 0x200000000ULL
#endif
#ifndef CLONE_CLEAR_SIGHAND
#define CLONE_CLEAR_SIGHAND 0x100000000ULL
#endif
#ifndef CLONE_NEWCGROUP
#define CLONE_NEWCGROUP 0x02000000
#endif

/* The kernel's struct clone_args, whose name headers define or not depending on their age. */
struct sys_clone_args {
    uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid,
        set_tid_size, cgroup;
};

static inline int sys_result(long r)
{
    return r < 0 ? -errno : (int)r;
}

static inline int sys_clone3(struct sys_clone_args *args)
{
    return sys_result(syscall(SYS_clone3, args, sizeof(*args)));
}

/* A plain fork without glibc's handlers: the spawner and box init have one thread and no stdio. */
static inline int sys_fork(void)
{
    return sys_result(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
}

static inline int sys_pivot_root(const char *new_root, const char *put_old)
{
    return sys_result(syscall(SYS_pivot_root, new_root, put_old));
}

static inline int sys_landlock_create(const void *attr, size_t size, uint32_t flags)
{
    return sys_result(syscall(SYS_landlock_create_ruleset, attr, size, flags));
}

static inline int sys_landlock_add(int ruleset_fd, int type, const void *attr)
{
    return sys_result(syscall(SYS_landlock_add_rule, ruleset_fd, type, attr, 0));
}

static inline int sys_landlock_restrict(int ruleset_fd)
{
    return sys_result(syscall(SYS_landlock_restrict_self, ruleset_fd, 0));
}
