/* SPDX-License-Identifier: Apache-2.0 */

/* See inject.h. The process is hostile: its memory, its registers and its signal handlers may
 * have been prepared to mislead us. The following must hold; the function that ensures it is in
 * parentheses.
 *
 * 1. Without its filter the process executes nothing. The filter is suspended at the entry stop
 *    of a call whose number, arguments, ABI and place were compared, and is back at the exit
 *    stop. Between these two stops the process is in the kernel. (inject_call)
 * 2. From inject_ready() to inject_detach() it executes one instruction per call. It resumes at
 *    `syscall` in its vDSO, in 64-bit mode, and each entry and exit stop must show that place
 *    and its stack pointer. Nothing else can lead it away:
 *    - Nobody changes the instruction. The vDSO must be private and not writable, and has no
 *      file that somebody could write to or cut short. Nobody shares the memory. It is the
 *      kernel's: the only mapping of that name, with the bytes of our own. (find_memory)
 *    - No handler runs. Signals are blocked. What cannot be blocked (SIGSTOP, a fault, SIGSYS
 *      of a system-call user dispatch) causes a stop before a handler runs, and ends the
 *      process. (run_to)
 *    - No restartable sequence is aborted: its descriptor is cleared before each call. The area
 *      is in private memory, too. (clear_rseq)
 *    - Only root can set breakpoints and probes, and a process has one tracer.
 * 3. What a call reads from memory is written at its entry stop, into private memory without a
 *    file. Nothing can change it before the kernel reads it. (inject_call)
 * 4. A surprise is the end. The state is TRACEE_LOST, no function resumes or detaches the
 *    process, and EXITKILL kills it before the kernel lets it go. */

#include "fork/inject.h"

#include <errno.h>

#if defined(__x86_64__)

#include "base/cleanup.h"
#include "fork/maps.h"

#include <assert.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>

static_assert(sizeof(struct user_regs_struct) <= sizeof(((struct tracee *)0)->registers),
    "room for the registers");

enum {
    OPTIONS = 1 | 1 << 20, /* TRACESYSGOOD, EXITKILL */
    OPTION_SUSPEND_SECCOMP = 1 << 21,
    EVENT_STOP = 128, /* event of the stop that PTRACE_INTERRUPT causes */
    SYSCALL_STOP = SIGTRAP | 0x80,
    ATTEMPTS = 200, /* every 0.1 ms, to find the process in its read() */
    /* bytes below the stack pointer: the red zone of the ABI, 128, and some more */
    STACK_MARGIN = 128 + 64,
    CODE_64 = 0x33, /* the kernel's segment selectors for 64-bit programs */
    DATA_64 = 0x2b,
    RESTART = 512, /* ERESTARTSYS in the kernel */
    RSEQ_CS = 8,   /* offset of rseq_cs in the kernel's struct rseq */
    RSEQ_SIZE = 32,
    VDSO_MAX = 65536,
    CALL_SIZE = 2, /* of the instruction `syscall` */
};

static int result(long r)
{
    return r < 0 ? -errno : 0;
}

static int wait_stop(pid_t pid, int *ret_status)
{
    pid_t r;
    while ((r = waitpid(pid, ret_status, __WALL)) < 0 && errno == EINTR)
        ;
    if (r < 0)
        return -errno;
    return WIFSTOPPED(*ret_status) ? 0 : -ESRCH;
}

static int set_options(const struct tracee *t, long options)
{
    return result(ptrace(PTRACE_SETOPTIONS, t->pid, 0, (void *)options));
}

static int set_registers(const struct tracee *t, const struct user_regs_struct *regs)
{
    return result(ptrace(PTRACE_SETREGS, t->pid, 0, regs));
}

/* Whether the process is in a read() of a 64-bit program that the kernel will restart. */
static bool is_waiting(const struct user_regs_struct *regs)
{
    return regs->cs == CODE_64 && regs->ss == DATA_64 && regs->orig_rax == SYS_read &&
           -(long long)regs->rax == RESTART;
}

/* Stops the process. Returns 1 when it is in its read(), else 0. The stop may be that of a
 * signal; the process gets the signal when it goes on. */
static int stop(const struct tracee *t, struct user_regs_struct *ret, int *ret_signal)
{
    int status;
    int r = result(ptrace(PTRACE_INTERRUPT, t->pid, 0, 0));
    if (r < 0 || (r = wait_stop(t->pid, &status)) < 0 ||
        (r = result(ptrace(PTRACE_GETREGS, t->pid, 0, ret))) < 0)
        return r;
    bool is_ours = status >> 16 == EVENT_STOP;
    *ret_signal = is_ours ? 0 : WSTOPSIG(status);
    return is_ours && is_waiting(ret);
}

/* The first stop(). If another process has got the pid meanwhile, it is let go unharmed. */
static int seize(
    const struct tracee *t, int pidfd, struct user_regs_struct *ret, int *ret_signal)
{
    struct pollfd dead = {.fd = pidfd, .events = POLLIN};
    int r = result(ptrace(PTRACE_SEIZE, t->pid, 0, 0));
    int there = r < 0 ? r : stop(t, ret, ret_signal);
    if (there < 0)
        return there;
    if (poll(&dead, 1, 0) != 0) {
        (void)ptrace(PTRACE_DETACH, t->pid, 0, (void *)(long)*ret_signal);
        return -ESRCH;
    }
    r = set_options(t, OPTIONS);
    return r < 0 ? r : there;
}

int inject_attach(struct tracee *t, pid_t pid, int pidfd)
{
    struct user_regs_struct regs;
    int signal;
    *t = (struct tracee){.pid = pid};
    int r = seize(t, pidfd, &regs, &signal);
    for (int i = 0; r == 0 && i < ATTEMPTS; i++) {
        /* It has just said hello and is not in its read() yet. */
        r = result(ptrace(PTRACE_CONT, t->pid, 0, (void *)(long)signal));
        (void)nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        r = r < 0 ? r : stop(t, &regs, &signal);
    }
    if (r <= 0)
        return r < 0 ? r : -EBUSY;
    memcpy(t->registers, &regs, sizeof(regs));
    t->scratch = (regs.rsp - STACK_MARGIN - INJECT_SCRATCH) & ~(uint64_t)15;
    t->state = TRACEE_HELD;
    return 0;
}

static int write_memory(const struct tracee *t, uint64_t to, const void *data, size_t size)
{
    struct iovec ours = {(void *)(uintptr_t)data, size};
    struct iovec theirs = {(void *)(uintptr_t)to, size};
    ssize_t n = process_vm_writev(t->pid, &ours, 1, &theirs, 1, 0);
    return n == (ssize_t)size ? 0 : n < 0 ? -errno : -EFAULT;
}

static int clear_rseq(const struct tracee *t)
{
    const uint64_t none = 0;
    return t->rseq ? write_memory(t, t->rseq + RSEQ_CS, &none, sizeof(none)) : 0;
}

/* A kernel without restartable sequences does not know the request. */
static int find_rseq(struct tracee *t)
{
    struct __ptrace_rseq_configuration config = {0};
    long r = ptrace(PTRACE_GET_RSEQ_CONFIGURATION, t->pid, sizeof(config), &config);
    if (r < 0 && errno != EIO)
        return -errno;
    t->rseq = config.rseq_abi_pointer;
    return 0;
}

struct memory {
    struct mapping vdso;
    bool has_scratch, has_rseq;
};

/* Whether it is memory of its own: private, and no file behind it. */
static bool is_own(const struct mapping *m)
{
    return m->mode[3] == 'p' && !m->device && !m->inode;
}

static bool is_room(const struct mapping *m, uint64_t from, size_t size)
{
    return is_own(m) && m->mode[1] == 'w' && from >= m->from && from < m->to &&
           size <= m->to - from;
}

/* The vDSO has to be in one piece, as the kernel made it. */
static int note_vdso(struct memory *memory, const struct mapping *m)
{
    if (strcmp(m->name, "[vdso]") != 0)
        return 0;
    if (memory->vdso.to || !is_own(m) || strcmp(m->mode, "r-xp") != 0)
        return -EPERM;
    memory->vdso = *m;
    return 0;
}

static int look_at_memory(int proc_fd, uint64_t scratch, uint64_t rseq, struct memory *ret)
{
    struct mapping m;
    cleanup_fclose FILE *maps = NULL;
    *ret = (struct memory){.has_rseq = !rseq};
    int r = fork_maps_open(proc_fd, &maps);
    if (r < 0)
        return r;
    while ((r = fork_maps_next(maps, &m)) > 0) {
        ret->has_scratch = ret->has_scratch || is_room(&m, scratch, INJECT_SCRATCH);
        ret->has_rseq = ret->has_rseq || is_room(&m, rseq, RSEQ_SIZE);
        if ((r = note_vdso(ret, &m)) < 0)
            return r;
    }
    return r < 0 ? r : ret->vdso.to ? 0 : -EFAULT;
}

/* Compares the vDSO of the process with our own, which is from the same kernel. So neither a
 * line of its map nor a page that it wrote can pass for the vDSO. */
static int find_site(struct tracee *t, const struct mapping *own, const struct mapping *its)
{
    static unsigned char code[VDSO_MAX];
    size_t size = its->to - its->from;
    const void *ours = (const void *)(uintptr_t)own->from;
    if (size > VDSO_MAX || size != own->to - own->from)
        return -ENOEXEC;
    struct iovec to = {code, size};
    struct iovec from = {(void *)(uintptr_t)its->from, size};
    ssize_t n = process_vm_readv(t->pid, &to, 1, &from, 1, 0);
    if (n != (ssize_t)size)
        return n < 0 ? -errno : -EFAULT;
    const unsigned char *at = memmem(code, size, "\x0f\x05", CALL_SIZE);
    if (!at || memcmp(code, ours, size) != 0)
        return -ENOEXEC;
    t->site = its->from + (uint64_t)(at - code);
    return 0;
}

static int find_memory(struct tracee *t, int proc_fd)
{
    struct memory own;
    struct memory its;
    cleanup_close int self = open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (self < 0)
        return -errno;
    int r = look_at_memory(self, 0, 0, &own);
    if (r < 0 || (r = look_at_memory(proc_fd, t->scratch, t->rseq, &its)) < 0)
        return r;
    return its.has_scratch && its.has_rseq ? find_site(t, &own.vdso, &its.vdso) : -EFAULT;
}

static int set_signals(const struct tracee *t, const uint64_t *signals)
{
    return result(ptrace(PTRACE_SETSIGMASK, t->pid, sizeof(*signals), signals));
}

int inject_ready(struct tracee *t, int proc_fd)
{
    const uint64_t all = ~0ull;
    if (t->state != TRACEE_HELD)
        return -EINVAL;
    t->state = TRACEE_LOST;
    int r = result(ptrace(PTRACE_GETSIGMASK, t->pid, sizeof(t->signals), &t->signals));
    if (r < 0 || (r = set_signals(t, &all)) < 0 || (r = find_rseq(t)) < 0 ||
        (r = find_memory(t, proc_fd)) < 0)
        return r;
    t->state = TRACEE_READY;
    return 0;
}

/* Runs the process to its next stop. That must be the entry or exit of a system call, made by
 * the instruction at our site. */
static int run_to(const struct tracee *t, int op, struct __ptrace_syscall_info *ret)
{
    struct user_regs_struct own;
    int status;
    memcpy(&own, t->registers, sizeof(own));
    int r = result(ptrace(PTRACE_SYSCALL, t->pid, 0, 0));
    if (r < 0 || (r = wait_stop(t->pid, &status)) < 0)
        return r;
    if (status >> 16 || WSTOPSIG(status) != SYSCALL_STOP)
        return -EINTR;
    if (ptrace(PTRACE_GET_SYSCALL_INFO, t->pid, sizeof(*ret), ret) < 0)
        return -errno;
    return ret->op == op && ret->arch == AUDIT_ARCH_X86_64 &&
                   ret->instruction_pointer == t->site + CALL_SIZE &&
                   ret->stack_pointer == own.rsp
               ? 0
               : -EPROTO;
}

static int run_to_entry(const struct tracee *t, const struct inject_call *call)
{
    struct __ptrace_syscall_info info;
    struct user_regs_struct regs;
    memcpy(&regs, t->registers, sizeof(regs));
    regs.rip = t->site;
    regs.orig_rax = (unsigned long long)-1; /* no call that the kernel would restart */
    regs.rax = (unsigned long long)call->number;
    regs.rdi = call->args[0];
    regs.rsi = call->args[1];
    regs.rdx = call->args[2];
    regs.r10 = regs.r8 = regs.r9 = 0;
    const uint64_t args[6] = {call->args[0], call->args[1], call->args[2]};
    int r = clear_rseq(t);
    if (r < 0 || (r = set_registers(t, &regs)) < 0 ||
        (r = run_to(t, PTRACE_SYSCALL_INFO_ENTRY, &info)) < 0)
        return r;
    return (long)info.entry.nr == call->number &&
                   memcmp(info.entry.args, args, sizeof(args)) == 0
               ? 0
               : -EPROTO;
}

long inject_call(struct tracee *t, const struct inject_call *call)
{
    struct __ptrace_syscall_info info;
    if (t->state != TRACEE_READY || call->size > INJECT_SCRATCH)
        return -EINVAL;
    t->state = TRACEE_LOST;
    int r = run_to_entry(t, call);
    if (r == 0 && call->size)
        r = write_memory(t, t->scratch, call->data, call->size);
    if (r == 0 && call->is_unfiltered)
        r = set_options(t, OPTIONS | OPTION_SUSPEND_SECCOMP);
    if (r < 0 || (r = run_to(t, PTRACE_SYSCALL_INFO_EXIT, &info)) < 0 ||
        (r = set_options(t, OPTIONS)) < 0)
        return r;
    t->state = TRACEE_READY;
    return info.exit.rval;
}

int inject_detach(struct tracee *t)
{
    struct user_regs_struct regs;
    if (t->state != TRACEE_READY)
        return -EINVAL;
    t->state = TRACEE_LOST;
    memcpy(&regs, t->registers, sizeof(regs));
    regs.rip -= CALL_SIZE;
    regs.rax = regs.orig_rax;
    regs.orig_rax = (unsigned long long)-1;
    int r = set_registers(t, &regs);
    if (r < 0 || (r = set_signals(t, &t->signals)) < 0)
        return r;
    return result(ptrace(PTRACE_DETACH, t->pid, 0, 0));
}

#else

int inject_attach(struct tracee *t, pid_t pid, int pidfd)
{
    return -ENOSYS;
}

int inject_ready(struct tracee *t, int proc_fd)
{
    return -ENOSYS;
}

long inject_call(struct tracee *t, const struct inject_call *call)
{
    return -ENOSYS;
}

int inject_detach(struct tracee *t)
{
    return -ENOSYS;
}

#endif
