/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* System calls that not every C library wraps, as plain functions that return negative errno.
 * The spawner and `hermes` are built with musl where it is installed. Programs linked with musl
 * start in a third of the time, because glibc executes dozens of CPUID instructions at the
 * start and each of them traps in a virtual machine. */

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* These numbers are the same on every architecture. */
enum {
    NR_pidfd_send_signal = 424,
    NR_open_tree = 428,
    NR_move_mount = 429,
    NR_fsopen = 430,
    NR_fsconfig = 431,
    NR_fsmount = 432,
    NR_pidfd_open = 434,
    NR_clone3 = 435,
    NR_close_range = 436,
    NR_openat2 = 437,
    NR_mount_setattr = 442,
    NR_landlock_create_ruleset = 444,
    NR_landlock_add_rule = 445,
    NR_landlock_restrict_self = 446,
};

/* MOUNT_ATTR_ bits of the kernel. */
enum {
    ATTR_RDONLY = 1 << 0,
    ATTR_NOSUID = 1 << 1,
    ATTR_NODEV = 1 << 2,
    ATTR_NOEXEC = 1 << 3,
};
#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP 0x200000000ULL
#endif
#ifndef CLONE_CLEAR_SIGHAND
#define CLONE_CLEAR_SIGHAND 0x100000000ULL
#endif
#ifndef CLONE_NEWCGROUP
#define CLONE_NEWCGROUP 0x02000000
#endif

/* The kernel's struct clone_args. It has its own name because only some versions of the headers
 * define it. */
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
    return sys_result(syscall(NR_clone3, args, sizeof(*args)));
}

/* clone3 for a child that starts, on a stack of its own, in a function that never returns. */
static inline int sys_clone3_run(struct sys_clone_args *args, void (*run)(void))
{
#if defined(__x86_64__)
    long r;
    __asm__ volatile("syscall\n\t"
                     "test %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "xor %%ebp, %%ebp\n\t"
                     "call *%[run]\n\t"
                     "ud2\n"
                     "1:"
                     : "=a"(r)
                     : "0"((long)NR_clone3), "D"(args), "S"(sizeof(*args)), [run] "d"(run)
                     : "rcx", "r11", "cc", "memory");
    return (int)r;
#elif defined(__aarch64__)
    register long number __asm__("x8") = NR_clone3;
    register long r __asm__("x0") = (long)args;
    register long size __asm__("x1") = sizeof(*args);
    register void (*start)(void) __asm__("x2") = run;
    __asm__ volatile("svc 0\n\t"
                     "cbnz x0, 1f\n\t"
                     "mov x29, 0\n\t"
                     "blr %[run]\n\t"
                     "brk 0\n"
                     "1:"
                     : "+r"(r)
                     : "r"(number), "r"(size), [run] "r"(start)
                     : "x30", "cc", "memory");
    return (int)r;
#else
#error "clone3 on a stack of its own is not written for this architecture"
#endif
}

/* A plain fork without glibc's handlers: the spawner and box init have one thread and no
 * stdio. */
static inline int sys_fork(void)
{
    return sys_result(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
}

/* Asks the kernel to kill this process when its parent ends. Returns -EPIPE if the parent has
 * ended already. `parent` is its pid, which it takes before it forks. The kernel forgets the
 * request whenever ids change, so call this again after each change. Only for a child in the
 * pid namespace of its parent; others use inside_follow(). */
static inline int sys_die_with(pid_t parent)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        return -errno;
    return getppid() == parent ? 0 : -EPIPE;
}

static inline int sys_pivot_root(const char *new_root, const char *put_old)
{
    return sys_result(syscall(SYS_pivot_root, new_root, put_old));
}

static inline int sys_landlock_create(const void *attr, size_t size, uint32_t flags)
{
    return sys_result(syscall(NR_landlock_create_ruleset, attr, size, flags));
}

static inline int sys_landlock_add(int ruleset_fd, int type, const void *attr)
{
    return sys_result(syscall(NR_landlock_add_rule, ruleset_fd, type, attr, 0));
}

static inline int sys_landlock_restrict(int ruleset_fd)
{
    return sys_result(syscall(NR_landlock_restrict_self, ruleset_fd, 0));
}

static inline int sys_pidfd_send_signal(int pidfd, int signal)
{
    return sys_result(syscall(NR_pidfd_send_signal, pidfd, signal, NULL, 0));
}

static inline int sys_pidfd_open(pid_t pid)
{
    return sys_result(syscall(NR_pidfd_open, pid, 0));
}

enum { CLOSE_AT_EXEC = 1 << 2 };

/* Closes, or marks with CLOSE_AT_EXEC, every descriptor from `first` to `last`. */
static inline int sys_close_range(unsigned first, unsigned last, unsigned flags)
{
    return sys_result(syscall(NR_close_range, first, last, flags));
}

/* openat2 with O_CLOEXEC added. `resolve` takes the kernel's RESOLVE_ bits. */
static inline int sys_openat2(
    int dir_fd, const char *path, int flags, mode_t mode, uint64_t resolve)
{
    const struct {
        uint64_t flags, mode, resolve;
    } how = {(uint64_t)(unsigned)flags | O_CLOEXEC, mode, resolve};
    return sys_result(syscall(NR_openat2, dir_fd, path, &how, sizeof(how)));
}

/* Configures a file system in steps: open it, set options, create it, then mount it
 * detached. */
static inline int sys_fs_open(const char *type)
{
    return sys_result(syscall(NR_fsopen, type, 1 /* FSOPEN_CLOEXEC */));
}

static inline int sys_fs_set(int fs_fd, const char *key, const char *value)
{
    return sys_result(syscall(NR_fsconfig, fs_fd, 1 /* FSCONFIG_SET_STRING */, key, value, 0));
}

static inline int sys_fs_create(int fs_fd)
{
    return sys_result(syscall(NR_fsconfig, fs_fd, 6 /* FSCONFIG_CMD_CREATE */, NULL, NULL, 0));
}

static inline int sys_fs_mount(int fs_fd, unsigned attrs)
{
    return sys_result(syscall(NR_fsmount, fs_fd, 1 /* FSMOUNT_CLOEXEC */, attrs));
}

/* A detached copy of the mounts at a path and below. */
static inline int sys_tree_clone(int dir_fd, const char *path)
{
    return sys_result(syscall(NR_open_tree, dir_fd, path,
        1u /* OPEN_TREE_CLONE */ | O_CLOEXEC | 0x8000u /* AT_RECURSIVE */));
}

/* A detached copy of the one mount at a path, without the mounts below it. */
static inline int sys_mount_clone(int dir_fd, const char *path)
{
    return sys_result(
        syscall(NR_open_tree, dir_fd, path, 1u /* OPEN_TREE_CLONE */ | O_CLOEXEC));
}

/* Attaches a detached mount at a path; at dir_fd itself when path is "". */
static inline int sys_mount_attach(int mnt_fd, int dir_fd, const char *path)
{
    unsigned flags = 0x4 /* MOVE_MOUNT_F_EMPTY_PATH */;
    if (!path[0])
        flags |= 0x40; /* MOVE_MOUNT_T_EMPTY_PATH */
    return sys_result(syscall(NR_move_mount, mnt_fd, "", dir_fd, path, flags));
}

/* Sets and clears attributes of a mount; if recursive, also of all mounts below it. */
static inline int sys_mount_attrs(int mnt_fd, unsigned set, unsigned clear, bool recursive)
{
    const struct {
        uint64_t set, clear, propagation, userns_fd;
    } attr = {set, clear, 0, 0};
    return sys_result(syscall(NR_mount_setattr, mnt_fd, "",
        0x1000u /* AT_EMPTY_PATH */ | (recursive ? 0x8000u : 0), &attr, sizeof(attr)));
}

/* Maps the owners of files on a detached mount, and on the mounts below it, through a user
 * namespace. */
static inline int sys_mount_idmap(int mnt_fd, int userns_fd)
{
    const struct {
        uint64_t set, clear, propagation, userns_fd;
    } attr = {1u << 20 /* MOUNT_ATTR_IDMAP */, 0, 0, (uint64_t)userns_fd};
    return sys_result(syscall(NR_mount_setattr, mnt_fd, "",
        0x1000u /* AT_EMPTY_PATH */ | 0x8000u /* AT_RECURSIVE */, &attr, sizeof(attr)));
}

/* Moves the calling process into a control group. fd is open on the group's `tasks` or
 * `cgroup.procs` file. */
static inline int sys_cgroup_join(int fd)
{
    return write(fd, "0", 1) == 1 ? 0 : -errno;
}
