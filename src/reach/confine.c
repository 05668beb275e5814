/* SPDX-License-Identifier: Apache-2.0 */

/* Gives up every right that HTTP calls do not need. Files: what the name service and TLS read.
 * System calls: no exec, no new process, no listening socket. An attacker who takes over this
 * program can open connections as its user and read the keys of its targets. */

#include "reach/reach.h"

#include "base/cleanup.h"
#include "base/os/process.h"
#include "base/os/sys.h"
#include "seccomp/program.h"

#include <errno.h>
#include <fcntl.h>
#include <seccomp.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Landlock constants that older Linux headers lack. */
enum {
    FS_ABI1 = (1 << 13) - 1,
    FS_REFER = 1 << 13,
    FS_TRUNCATE = 1 << 14,
    FS_READ = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR,
    NET_BIND = 1 << 0,
    NET_CONNECT = 1 << 1,
};

struct ruleset_attr {
    uint64_t fs;
    uint64_t net;
};

int confine_identity(void)
{
    return process_give_up();
}

static int allow(int ruleset, const char *path, uint64_t access)
{
    cleanup_close int fd = open(path, O_PATH | O_CLOEXEC);
    struct landlock_path_beneath_attr rule = {.allowed_access = access, .parent_fd = fd};
    if (fd < 0)
        return 0;
    return syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0
               ? -errno
               : 0;
}

/* Leaves the paths of `list`, which ends with NULL. */
static int restrict_files(const char *const *list, uint64_t access, bool may_connect)
{
    int abi = sys_landlock_create(NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (abi < 1)
        return 0; /* Linux without Landlock: the system call filter remains */
    struct ruleset_attr attr = {
        .fs = FS_ABI1 | (abi >= 2 ? FS_REFER : 0) | (abi >= 3 ? FS_TRUNCATE : 0),
        .net = abi >= 4 ? NET_BIND | (may_connect ? 0 : NET_CONNECT) : 0};
    cleanup_close int ruleset =
        sys_landlock_create(&attr, abi >= 4 ? sizeof(attr) : sizeof(attr.fs), 0);
    int r = ruleset < 0 ? ruleset : 0;
    for (size_t i = 0; r == 0 && list[i]; i++)
        r = allow(ruleset, list[i], access);
    return r < 0 ? r : sys_landlock_restrict(ruleset);
}

static const int allowed_calls[] = {SCMP_SYS(access), SCMP_SYS(brk), SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_nanosleep), SCMP_SYS(close), SCMP_SYS(connect), SCMP_SYS(exit),
    SCMP_SYS(exit_group), SCMP_SYS(faccessat2), SCMP_SYS(fcntl), SCMP_SYS(fstat),
    SCMP_SYS(futex), SCMP_SYS(getdents64), SCMP_SYS(getegid), SCMP_SYS(geteuid),
    SCMP_SYS(getgid), SCMP_SYS(getpeername), SCMP_SYS(getpid), SCMP_SYS(getrandom),
    SCMP_SYS(getsockname), SCMP_SYS(getsockopt), SCMP_SYS(gettid), SCMP_SYS(gettimeofday),
    SCMP_SYS(getuid), SCMP_SYS(ioctl), SCMP_SYS(lseek), SCMP_SYS(madvise), SCMP_SYS(membarrier),
    SCMP_SYS(mremap), SCMP_SYS(munmap), SCMP_SYS(newfstatat), SCMP_SYS(openat), SCMP_SYS(pipe2),
    SCMP_SYS(poll), SCMP_SYS(ppoll), SCMP_SYS(pread64), SCMP_SYS(prlimit64), SCMP_SYS(read),
    SCMP_SYS(readlink), SCMP_SYS(recvfrom), SCMP_SYS(recvmmsg), SCMP_SYS(recvmsg),
    SCMP_SYS(restart_syscall), SCMP_SYS(rseq), SCMP_SYS(rt_sigaction), SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn), SCMP_SYS(sched_yield), SCMP_SYS(sendmmsg), SCMP_SYS(sendmsg),
    SCMP_SYS(sendto), SCMP_SYS(set_robust_list), SCMP_SYS(setsockopt), SCMP_SYS(shutdown),
    SCMP_SYS(sigaltstack), SCMP_SYS(socketpair), SCMP_SYS(stat), SCMP_SYS(statx),
    SCMP_SYS(sysinfo), SCMP_SYS(tgkill), SCMP_SYS(uname), SCMP_SYS(write), SCMP_SYS(writev),
    SCMP_SYS(eventfd2), SCMP_SYS(open), SCMP_SYS(getppid)};

/* Memory becomes executable only when a library of the name service is mapped from a file.
 * clone makes threads only: libcurl resolves names in one. */
static int add_conditional(scmp_filter_ctx filter)
{
    const uint64_t write = 2; /* PROT_WRITE */
    const uint64_t families[] = {AF_INET, AF_INET6, AF_NETLINK, AF_UNIX};
    int r = program_filter_no_exec(filter);
    if (r == 0)
        r = seccomp_rule_add(
            filter, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1, SCMP_A2(SCMP_CMP_MASKED_EQ, write, 0));
    if (r == 0)
        r = program_filter_threads(filter);
    for (size_t i = 0; r == 0 && i < sizeof(families) / sizeof(families[0]); i++)
        r = seccomp_rule_add(
            filter, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1, SCMP_A0(SCMP_CMP_EQ, families[i]));
    return r;
}

static int restrict_calls(void)
{
    return program_filter_load(
        allowed_calls, sizeof(allowed_calls) / sizeof(allowed_calls[0]), add_conditional);
}

/* The filter for processes that execute clients of places, or `local` commands. These are
 * ordinary programs, so only calls that serve to attack other processes or the kernel are
 * refused. Apptainer makes namespaces; processes of other rows may not. Shells of `local` rows
 * that permit sudo never have this filter: the starter runs without one, because a filter
 * needs no_new_privs. */
int confine_places(bool with_namespaces)
{
    static const int namespaces[] = {SCMP_SYS(mount), SCMP_SYS(move_mount), SCMP_SYS(open_tree),
        SCMP_SYS(pivot_root), SCMP_SYS(setns), SCMP_SYS(umount2), SCMP_SYS(unshare)};
    static const int refused[] = {SCMP_SYS(add_key), SCMP_SYS(bpf), SCMP_SYS(delete_module),
        SCMP_SYS(finit_module), SCMP_SYS(init_module), SCMP_SYS(io_uring_setup),
        SCMP_SYS(kexec_file_load), SCMP_SYS(kexec_load), SCMP_SYS(keyctl),
        SCMP_SYS(open_by_handle_at), SCMP_SYS(perf_event_open), SCMP_SYS(process_vm_readv),
        SCMP_SYS(process_vm_writev), SCMP_SYS(ptrace), SCMP_SYS(reboot), SCMP_SYS(request_key),
        SCMP_SYS(swapoff), SCMP_SYS(swapon), SCMP_SYS(userfaultfd)};
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    int r = filter ? 0 : -ENOMEM;
    for (size_t i = 0; r == 0 && i < sizeof(refused) / sizeof(refused[0]); i++)
        r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), refused[i], 0);
    for (size_t i = 0;
         !with_namespaces && r == 0 && i < sizeof(namespaces) / sizeof(namespaces[0]); i++)
        r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), namespaces[i], 0);
    if (r == 0)
        r = seccomp_load(filter);
    seccomp_release(filter);
    return r;
}

/* For the process of a session in a container: of all that the half may do, it talks to the
 * engine's socket and takes the lock in `dir`. It executes nothing. */
static int add_for_engine(scmp_filter_ctx filter)
{
    const uint64_t write = 2; /* PROT_WRITE */
    int r = program_filter_no_exec(filter);
    if (r == 0)
        r = seccomp_rule_add(
            filter, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1, SCMP_A2(SCMP_CMP_MASKED_EQ, write, 0));
    if (r == 0)
        r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(flock), 0);
    if (r == 0)
        r = seccomp_rule_add(
            filter, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1, SCMP_A0(SCMP_CMP_EQ, AF_UNIX));
    return r;
}

int confine_engine(const char *dir)
{
    const char *const list[] = {dir, NULL};
    int r = restrict_files(
        list, FS_READ | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG, false);
#ifndef HERMES_SANITIZED
    if (r == 0)
        r = program_filter_load(
            allowed_calls, sizeof(allowed_calls) / sizeof(allowed_calls[0]), add_for_engine);
#endif
    return r;
}

int confine_rest(void)
{
    static const char *const readable[] = {
        "/etc", "/lib", "/lib64", "/usr/lib", "/usr/share", "/run/systemd/resolve", NULL};
    int r = restrict_files(readable, FS_READ, true);
#ifndef HERMES_SANITIZED /* sanitizers need more system calls */
    if (r == 0)
        r = restrict_calls();
#endif
    return r;
}
