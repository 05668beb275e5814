/* SPDX-License-Identifier: Apache-2.0 */

/* See inject.h. */

#include "fork/inject.h"

#include <errno.h>

#if defined(__x86_64__)

#include <assert.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>

static_assert(sizeof(struct user_regs_struct) <= sizeof(((struct tracee *)0)->registers),
    "room for the registers");

enum {
    OPTION_SYSGOOD = 1,
    OPTION_EXITKILL = 1 << 20,
    OPTION_SUSPEND_SECCOMP = 1 << 21,
    SYSCALL_STOP = SIGTRAP | 0x80,
    ATTEMPTS = 200,
    STACK_MARGIN = 128 + 64, /* what the ABI lets a function use below the stack pointer */
    RESTART_FIRST = 512,     /* the kernel's ERESTARTSYS .. ERESTART_RESTARTBLOCK */
    RESTART_LAST = 516,
};

static int result(long r)
{
    return r < 0 ? -errno : 0;
}

static int wait_stop(pid_t pid, int *ret_signal)
{
    int status;
    pid_t r;
    while ((r = waitpid(pid, &status, __WALL)) < 0 && errno == EINTR)
        ;
    if (r < 0)
        return -errno;
    if (!WIFSTOPPED(status))
        return -ESRCH;
    *ret_signal = WSTOPSIG(status);
    return 0;
}

static int get_registers(pid_t pid, struct user_regs_struct *ret)
{
    return result(ptrace(PTRACE_GETREGS, pid, 0, ret));
}

static int set_registers(pid_t pid, const struct user_regs_struct *regs)
{
    return result(ptrace(PTRACE_SETREGS, pid, 0, regs));
}

/* Whether it is stopped right behind the instruction `syscall`, in a call that will be made
 * again. */
static int is_in_call(pid_t pid, const struct user_regs_struct *regs, bool *ret)
{
    unsigned char code[2];
    struct iovec ours = {code, sizeof(code)};
    struct iovec theirs = {(void *)(uintptr_t)(regs->rip - 2), sizeof(code)};
    if (process_vm_readv(pid, &ours, 1, &theirs, 1, 0) != (ssize_t)sizeof(code))
        return -errno;
    long long value = -(long long)regs->rax;
    *ret = code[0] == 0x0f && code[1] == 0x05 && (long long)regs->orig_rax >= 0 &&
           value >= RESTART_FIRST && value <= RESTART_LAST;
    return 0;
}

/* Another process may have got the number before we came: it is let go unharmed. */
static int seize(pid_t pid, int pidfd)
{
    struct pollfd dead = {.fd = pidfd, .events = POLLIN};
    int signal;
    int r = result(ptrace(PTRACE_SEIZE, pid, 0, 0));
    if (r < 0 || (r = result(ptrace(PTRACE_INTERRUPT, pid, 0, 0))) < 0 ||
        (r = wait_stop(pid, &signal)) < 0)
        return r;
    if (poll(&dead, 1, 0) != 0) {
        (void)ptrace(PTRACE_DETACH, pid, 0, 0);
        return -ESRCH;
    }
    return result(ptrace(PTRACE_SETOPTIONS, pid, 0,
        (void *)(OPTION_SYSGOOD | OPTION_EXITKILL | OPTION_SUSPEND_SECCOMP)));
}

int inject_attach(struct tracee *t, pid_t pid, int pidfd)
{
    struct user_regs_struct regs;
    bool is_there = false;
    int signal;
    *t = (struct tracee){.pid = pid};
    int r = seize(pid, pidfd);
    for (int i = 0; r == 0 && i < ATTEMPTS; i++) {
        if ((r = get_registers(pid, &regs)) < 0 ||
            (r = is_in_call(pid, &regs, &is_there)) < 0 || is_there)
            break;
        /* It has just said hello and is not yet where it waits. */
        r = result(ptrace(PTRACE_CONT, pid, 0, 0));
        (void)nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        if (r == 0 && (r = result(ptrace(PTRACE_INTERRUPT, pid, 0, 0))) == 0)
            r = wait_stop(pid, &signal);
    }
    if (r < 0 || !is_there)
        return r < 0 ? r : -EBUSY;
    memcpy(t->registers, &regs, sizeof(regs));
    t->scratch = (regs.rsp - STACK_MARGIN - INJECT_SCRATCH) & ~(uint64_t)15;
    return 0;
}

int inject_write(const struct tracee *t, size_t offset, const void *data, size_t size)
{
    struct iovec ours = {(void *)(uintptr_t)data, size};
    struct iovec theirs = {(void *)(uintptr_t)(t->scratch + offset), size};
    if (offset + size > INJECT_SCRATCH)
        return -EINVAL;
    ssize_t n = process_vm_writev(t->pid, &ours, 1, &theirs, 1, 0);
    return n == (ssize_t)size ? 0 : n < 0 ? -errno : -EFAULT;
}

/* Runs it to its next stop at a system call. */
static int run_to_call(pid_t pid)
{
    int signal = 0;
    int r = result(ptrace(PTRACE_SYSCALL, pid, 0, 0));
    if (r == 0)
        r = wait_stop(pid, &signal);
    return r < 0 ? r : signal == SYSCALL_STOP ? 0 : -EINTR;
}

long inject_call(const struct tracee *t, long number, uint64_t a, uint64_t b, uint64_t c,
    uint64_t d, uint64_t e)
{
    struct user_regs_struct regs;
    struct user_regs_struct seen;
    memcpy(&regs, t->registers, sizeof(regs));
    regs.rip -= 2;
    regs.orig_rax = (unsigned long long)-1; /* no call that the kernel would make again */
    regs.rax = (unsigned long long)number;
    regs.rdi = a;
    regs.rsi = b;
    regs.rdx = c;
    regs.r10 = d;
    regs.r8 = e;
    int r;
    if ((r = set_registers(t->pid, &regs)) < 0 || (r = run_to_call(t->pid)) < 0 ||
        (r = get_registers(t->pid, &seen)) < 0)
        return r;
    if ((long)seen.orig_rax != number || seen.rdi != a || seen.rsi != b || seen.rdx != c ||
        seen.r10 != d || seen.r8 != e)
        return -EPROTO;
    if ((r = run_to_call(t->pid)) < 0 || (r = get_registers(t->pid, &seen)) < 0)
        return r;
    return (long)seen.rax;
}

int inject_detach(const struct tracee *t)
{
    struct user_regs_struct regs;
    memcpy(&regs, t->registers, sizeof(regs));
    regs.rip -= 2;
    regs.rax = regs.orig_rax;
    regs.orig_rax = (unsigned long long)-1;
    int r = set_registers(t->pid, &regs);
    return r < 0 ? r : result(ptrace(PTRACE_DETACH, t->pid, 0, 0));
}

#else

int inject_attach(struct tracee *t, pid_t pid, int pidfd)
{
    return -ENOSYS;
}

int inject_write(const struct tracee *t, size_t offset, const void *data, size_t size)
{
    return -ENOSYS;
}

long inject_call(const struct tracee *t, long number, uint64_t a, uint64_t b, uint64_t c,
    uint64_t d, uint64_t e)
{
    return -ENOSYS;
}

int inject_detach(const struct tracee *t)
{
    return -ENOSYS;
}

#endif
