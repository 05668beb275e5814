/* SPDX-License-Identifier: Apache-2.0 */

/* The system-call policy of a box: the one table that the filter, docs/seccomp.md and the tests
 * are made from (gen.c, tests/unit/test_seccomp.c). It is an allow list: a number that no row
 * names answers ENOSYS, so libc falls back as it would on an older kernel. Before any row, a
 * foreign architecture (int 0x80) and x32 numbers kill the process: their numbering differs, so
 * the rows would not apply. EPERM is for calls whose callers handle refusal, ENOSYS for those
 * whose callers have a fallback.
 *
 * There is no include guard around the rows: define GROUP, CALL, RULE, WHEN and ROOT (those
 * not defined vanish), include the file, repeat. Rows are:
 *
 *   GROUP(title, reason)
 *   CALL(name, number on x86-64, number on aarch64, answer)
 *       answer: ALLOW, DONE (0, and nothing was done), an errno, or BY(rule)
 *   RULE(rule, what it says)
 *   WHEN(rule, answer, tests...)
 *       the first WHEN of a rule whose tests all hold decides; if none does: ALLOW
 *   ROOT(name, answer, reason)
 *       what a box with BOX_ROOT (proto/spawn.h) answers instead: such a box has a filter of
 *       its own
 *
 * Tests look at the low 32 bits of an argument wherever the kernel takes an int, because it
 * ignores the upper half: AF_VSOCK | 1 << 32 is AF_VSOCK. Only NOT_NULL reads all 64 bits. The
 * rows have numbers, not SYS_ names, because the headers of a build machine may be older than
 * the kernels that Hermes runs on; the unit test compares the numbers with the headers where
 * those know them. */

#ifndef SECCOMP_POLICY_WORDS
#define SECCOMP_POLICY_WORDS

#include <asm/ioctls.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <linux/netlink.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum {
    NONE = -1,  /* this architecture has no such call */
    ALLOW = -1, /* answers: negative allows, 0.. is the errno, RULE_BASE.. asks a rule */
    DONE = 0,
    RULE_BASE = 0x1000,
    TEST_MAX_VALUES = 6,
    WHEN_MAX_TESTS = 2,
};
#define BY(rule) (RULE_BASE + RULE_##rule)

/* Holds when (argument & mask) is one of the values; with negate, when it is none of them. With
 * wide it holds when the whole 64-bit argument is not 0, and the other fields do not count. */
struct seccomp_test {
    uint32_t mask;
    uint32_t values[TEST_MAX_VALUES];
    uint8_t value_count;
    uint8_t arg;
    bool negate;
    bool wide;
};
/* clang-format off */
#define TEST_VALUES(...) \
    .values = {__VA_ARGS__}, .value_count = sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t)
#define IS(n, ...) {.arg = n, .mask = UINT32_MAX, TEST_VALUES(__VA_ARGS__)}
#define IS_NOT(n, ...) {.arg = n, .mask = UINT32_MAX, .negate = true, TEST_VALUES(__VA_ARGS__)}
#define MASKED_IS(n, bits, ...) {.arg = n, .mask = (bits), TEST_VALUES(__VA_ARGS__)}
#define ANY_BIT(n, bits) {.arg = n, .mask = (bits), .negate = true, TEST_VALUES(0)}
#define NOT_NULL(n) {.arg = n, .wide = true}
/* clang-format on */

/* Constants newer than the oldest headers Hermes builds with. */
#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif
/* The bit that O_TMPFILE does not share with O_DIRECTORY. */
#define SECCOMP_O_TMPFILE 020000000
#ifndef PR_SCHED_CORE
#define PR_SCHED_CORE 62
#endif
#ifndef PR_SET_MEMORY_MERGE
#define PR_SET_MEMORY_MERGE 67
#endif
enum {
    SECCOMP_RWF_NOWAIT = 0x8,
    SECCOMP_RWF_DONTCACHE = 0x80,
    SECCOMP_TCP_ULP = 31,
    SECCOMP_UDP_ENCAP = 100,
    SECCOMP_MADV_MERGEABLE = 12,
    /* Types of ioctls, as they stand in a request: reflinks and btrfs, extents and flags of
     * files, XFS and quotas of files, names of file systems, F2FS. */
    SECCOMP_IOC_TYPE = 0xff00,
    SECCOMP_IOC_CLONE = 0x9400,
    SECCOMP_IOC_FLAGS = 'f' << 8,
    SECCOMP_IOC_XFS = 'X' << 8,
    SECCOMP_IOC_NAMES = 0x15 << 8,
    SECCOMP_IOC_F2FS = 0xf5 << 8,
};

#endif /* SECCOMP_POLICY_WORDS */

#ifndef GROUP
#define GROUP(title, reason)
#endif
#ifndef CALL
#define CALL(name, x86_64, aarch64, answer)
#endif
#ifndef RULE
#define RULE(rule, text)
#endif
#ifndef WHEN
#define WHEN(rule, answer, ...)
#endif
#ifndef ROOT
#define ROOT(name, answer, reason)
#endif

/* clang-format off */

RULE(clone_flags,
     "No new namespace. CLONE_NEWTIME shares its bit with the exit signal, where no valid "
     "signal uses it.")
WHEN(clone_flags, EPERM,
     ANY_BIT(0, CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |
                CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWTIME))

RULE(socket,
     "UNIX, TCP, UDP and ping sockets, and the routing tables by netlink. Every other family"
     " (VSOCK, ALG, PACKET, ...) is global or rich in kernel code; so are SCTP, DCCP and "
     "their like, whose modules socket() would load. SOCK_PACKET on INET is AF_PACKET by its"
     " old name.")
WHEN(socket, ALLOW, IS(0, AF_UNIX))
WHEN(socket, ALLOW, IS(0, AF_NETLINK), IS(2, NETLINK_ROUTE))
WHEN(socket, EAFNOSUPPORT, IS_NOT(0, AF_INET, AF_INET6))
WHEN(socket, EPERM, MASKED_IS(1, 0xf, SOCK_RAW, SOCK_PACKET))
WHEN(socket, EPROTONOSUPPORT,
     IS_NOT(2, 0, IPPROTO_ICMP, IPPROTO_TCP, IPPROTO_UDP, IPPROTO_ICMPV6))

RULE(ioctl,
     "No typing into a terminal, no taking one over, no line discipline (each is a kernel "
     "module of its own). Nothing that a file system has of its own, by the type of the "
     "request: such code is rich, and tells where on the host's disk a shared file lies, or "
     "which disk that is. "
     "ENOTTY is the answer of a file system without it: callers fall back.")
WHEN(ioctl, EPERM, IS(1, TIOCSTI, TIOCLINUX, TIOCSCTTY, TIOCSETD))
WHEN(ioctl, ENOTTY,
     MASKED_IS(1, SECCOMP_IOC_TYPE, SECCOMP_IOC_CLONE, SECCOMP_IOC_FLAGS, SECCOMP_IOC_XFS,
               SECCOMP_IOC_NAMES, SECCOMP_IOC_F2FS))

RULE(personality,
     "Query, Linux, Linux32 and their UNAME26 forms. ADDR_NO_RANDOMIZE, READ_IMPLIES_EXEC "
     "and the others weaken the process for an attacker's good.")
WHEN(personality, EPERM, IS_NOT(0, 0, 0x8, 0x20000, 0x20008, 0xffffffff))

RULE(prctl_option,
     "PR_SET_MM rewrites what /proc tells of a process. PR_SCHED_CORE makes the sibling "
     "hyperthread idle: CPU time taken from a neighbour. PR_SET_MEMORY_MERGE: see "
     "madvise_merge.")
WHEN(prctl_option, EPERM, IS(0, PR_SET_MM, PR_SCHED_CORE, PR_SET_MEMORY_MERGE))
WHEN(prctl_option, EPERM, IS(0, PR_SET_SECCOMP), IS(1, SECCOMP_MODE_FILTER))

RULE(seccomp_operation,
     "No further filter. Each is compiled to native code from a pool of the whole host that "
     "the memory cgroup counts badly, and freeing thousands at once has deadlocked a 6.18 "
     "kernel: after that nothing on the host can load a filter. The box has its own already.")
WHEN(seccomp_operation, EPERM, IS(0, SECCOMP_SET_MODE_FILTER))

RULE(setsockopt,
     "No filter on a socket either, of any kind: the same pool, see seccomp_operation. No "
     "protocol of the kernel's above TCP (TLS, ESP) or UDP (ESP, L2TP): their code is rich, "
     "and their modules would be loaded. The errors are those of a kernel without them.")
WHEN(setsockopt, EPERM, IS(1, SOL_SOCKET),
     IS(2, SO_ATTACH_FILTER, SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_CBPF,
        SO_ATTACH_REUSEPORT_EBPF))
WHEN(setsockopt, ENOENT, IS(1, IPPROTO_TCP), IS(2, SECCOMP_TCP_ULP))
WHEN(setsockopt, ENOPROTOOPT, IS(1, IPPROTO_UDP), IS(2, SECCOMP_UDP_ENCAP))

RULE(sendto_flags,
     "No urgent data. On unix sockets it is a feature of few users and a record of bugs by "
     "which programs have left such boxes; the filter cannot tell them from TCP.")
WHEN(sendto_flags, EOPNOTSUPP, ANY_BIT(3, MSG_OOB))

RULE(sendmsg_flags, "No urgent data, see sendto_flags.")
WHEN(sendmsg_flags, EOPNOTSUPP, ANY_BIT(2, MSG_OOB))

RULE(readv_flags,
     "RWF_NOWAIT tells whether a page of a shared file is in the host's cache, without reading "
     "it: see cachestat. RWF_DONTCACHE drops it, see fadvise64. A file system without them "
     "answers the same.")
WHEN(readv_flags, EOPNOTSUPP, ANY_BIT(5, SECCOMP_RWF_NOWAIT | SECCOMP_RWF_DONTCACHE))

RULE(madvise_merge,
     "No merging of pages that are equal: the time of a write tells what others have in their "
     "memory. EINVAL is the answer of a kernel without it.")
WHEN(madvise_merge, EINVAL, IS(2, SECCOMP_MADV_MERGEABLE))

RULE(fcntl_notify, "No directory notification, see inotify_init.")
WHEN(fcntl_notify, EPERM, IS(1, 1026 /* F_NOTIFY */))

RULE(setrlimit_core,
     "The core limit of a box is 1, which also stops a core_pattern pipe; 0 would not.")
WHEN(setrlimit_core, EPERM, IS(0, RLIMIT_CORE))

RULE(prlimit_core,
     "The same; reading it (no new limit) is allowed. Only of oneself: where a box has one uid "
     "only, init's limits would be the program's to lower.")
WHEN(prlimit_core, EPERM, IS(1, RLIMIT_CORE), NOT_NULL(2))
WHEN(prlimit_core, EPERM, IS_NOT(0, 0), NOT_NULL(2))

RULE(mknod_mode, "No device node, no set-id file (see chmod_mode).")
WHEN(mknod_mode, EPERM, MASKED_IS(1, S_IFMT, S_IFCHR, S_IFBLK))
WHEN(mknod_mode, EPERM, ANY_BIT(1, S_ISUID | S_ISGID))

RULE(mknodat_mode, "No device node, no set-id file (see chmod_mode).")
WHEN(mknodat_mode, EPERM, MASKED_IS(2, S_IFMT, S_IFCHR, S_IFBLK))
WHEN(mknodat_mode, EPERM, ANY_BIT(2, S_ISUID | S_ISGID))

RULE(chmod_mode,
     "No set-user-id or set-group-id bit. In a directory that the operator shares for writing, "
     "files belong to its owner outside: such a bit would give that owner's rights away.")
WHEN(chmod_mode, EPERM, ANY_BIT(1, S_ISUID | S_ISGID))

RULE(fchmodat_mode, "No set-id bit, see chmod_mode.")
WHEN(fchmodat_mode, EPERM, ANY_BIT(2, S_ISUID | S_ISGID))

RULE(open_mode, "A new file has no set-id bit, see chmod_mode.")
WHEN(open_mode, EPERM, ANY_BIT(1, O_CREAT | SECCOMP_O_TMPFILE), ANY_BIT(2, S_ISUID | S_ISGID))

RULE(openat_mode, "A new file has no set-id bit, see chmod_mode.")
WHEN(openat_mode, EPERM, ANY_BIT(2, O_CREAT | SECCOMP_O_TMPFILE), ANY_BIT(3, S_ISUID | S_ISGID))

RULE(mmap_huge,
     "Huge pages come from a pool of the host that any user may drain and that the memory "
     "cgroup does not count. ENOMEM is the answer of an empty pool: callers fall back.")
WHEN(mmap_huge, ENOMEM, ANY_BIT(3, MAP_HUGETLB))

RULE(memfd_huge, "Huge pages, see mmap_huge.")
WHEN(memfd_huge, EPERM, ANY_BIT(1, MFD_HUGETLB))

RULE(shmget_huge, "Huge pages, see mmap_huge.")
WHEN(shmget_huge, EPERM, ANY_BIT(2, SHM_HUGETLB))

GROUP("Files: reading and writing",
      "Ordinary I/O on descriptors the box was given or opened itself.")
CALL(read,                       0,   63, ALLOW)
CALL(write,                      1,   64, ALLOW)
CALL(pread64,                   17,   67, ALLOW)
CALL(pwrite64,                  18,   68, ALLOW)
CALL(readv,                     19,   65, ALLOW)
CALL(writev,                    20,   66, ALLOW)
CALL(preadv,                   295,   69, ALLOW)
CALL(pwritev,                  296,   70, ALLOW)
CALL(preadv2,                  327,  286, BY(readv_flags))
CALL(pwritev2,                 328,  287, BY(readv_flags))
CALL(lseek,                      8,   62, ALLOW)
CALL(sendfile,                  40,   71, ALLOW)
CALL(copy_file_range,          326,  285, ALLOW)
CALL(splice,                   275,   76, ALLOW)
CALL(tee,                      276,   77, ALLOW)
CALL(vmsplice,                 278,   75, ALLOW)
CALL(fallocate,                285,   47, ALLOW)
CALL(truncate,                  76,   45, ALLOW)
CALL(ftruncate,                 77,   46, ALLOW)
CALL(dup,                       32,   23, ALLOW)
CALL(dup2,                      33, NONE, ALLOW)
CALL(dup3,                     292,   24, ALLOW)
CALL(close,                      3,   57, ALLOW)
CALL(close_range,              436,  436, ALLOW)
CALL(fcntl,                     72,   25, BY(fcntl_notify))
CALL(flock,                     73,   32, ALLOW)
CALL(pipe,                      22, NONE, ALLOW)
CALL(pipe2,                    293,   59, ALLOW)

GROUP("Files: names and attributes",
      "Resolved inside the pivoted root; Landlock and file modes decide further.")
CALL(open,                       2, NONE, BY(open_mode))
CALL(openat,                   257,   56, BY(openat_mode))
CALL(creat,                     85, NONE, BY(chmod_mode))
CALL(access,                    21, NONE, ALLOW)
CALL(faccessat,                269,   48, ALLOW)
CALL(faccessat2,               439,  439, ALLOW)
CALL(stat,                       4, NONE, ALLOW)
CALL(lstat,                      6, NONE, ALLOW)
CALL(fstat,                      5,   80, ALLOW)
CALL(newfstatat,               262,   79, ALLOW)
CALL(statx,                    332,  291, ALLOW)
CALL(statfs,                   137,   43, ALLOW)
CALL(fstatfs,                  138,   44, ALLOW)
CALL(getdents,                  78, NONE, ALLOW)
CALL(getdents64,               217,   61, ALLOW)
CALL(getcwd,                    79,   17, ALLOW)
CALL(chdir,                     80,   49, ALLOW)
CALL(fchdir,                    81,   50, ALLOW)
CALL(mkdir,                     83, NONE, ALLOW)
CALL(mkdirat,                  258,   34, ALLOW)
CALL(rmdir,                     84, NONE, ALLOW)
CALL(link,                      86, NONE, ALLOW)
CALL(linkat,                   265,   37, ALLOW)
CALL(unlink,                    87, NONE, ALLOW)
CALL(unlinkat,                 263,   35, ALLOW)
CALL(symlink,                   88, NONE, ALLOW)
CALL(symlinkat,                266,   36, ALLOW)
CALL(readlink,                  89, NONE, ALLOW)
CALL(readlinkat,               267,   78, ALLOW)
CALL(rename,                    82, NONE, ALLOW)
CALL(renameat,                 264,   38, ALLOW)
CALL(renameat2,                316,  276, ALLOW)
CALL(chmod,                     90, NONE, BY(chmod_mode))
CALL(fchmod,                    91,   52, BY(chmod_mode))
CALL(fchmodat,                 268,   53, BY(fchmodat_mode))
CALL(fchmodat2,                452,  452, BY(fchmodat_mode))
CALL(chown,                     92, NONE, ALLOW)
CALL(fchown,                    93,   55, ALLOW)
CALL(lchown,                    94, NONE, ALLOW)
CALL(fchownat,                 260,   54, ALLOW)
CALL(umask,                     95,  166, ALLOW)
CALL(utime,                    132, NONE, ALLOW)
CALL(utimes,                   235, NONE, ALLOW)
CALL(utimensat,                280,   88, ALLOW)
CALL(futimesat,                261, NONE, ALLOW)
CALL(setxattr,                 188,    5, ALLOW)
CALL(lsetxattr,                189,    6, ALLOW)
CALL(fsetxattr,                190,    7, ALLOW)
CALL(setxattrat,               463,  463, ALLOW)
CALL(getxattr,                 191,    8, ALLOW)
CALL(lgetxattr,                192,    9, ALLOW)
CALL(fgetxattr,                193,   10, ALLOW)
CALL(getxattrat,               464,  464, ALLOW)
CALL(listxattr,                194,   11, ALLOW)
CALL(llistxattr,               195,   12, ALLOW)
CALL(flistxattr,               196,   13, ALLOW)
CALL(listxattrat,              465,  465, ALLOW)
CALL(removexattr,              197,   14, ALLOW)
CALL(lremovexattr,             198,   15, ALLOW)
CALL(fremovexattr,             199,   16, ALLOW)
CALL(removexattrat,            466,  466, ALLOW)

GROUP("Files: a mode the filter cannot see",
      "openat2 has its mode in memory, where a set-id bit would pass unseen; callers fall "
      "back.")
CALL(openat2,                  437,  437, ENOSYS)

GROUP("Files: device nodes",
      "A fifo, a socket or a plain file may be made, a device may not.")
CALL(mknod,                    133, NONE, BY(mknod_mode))
CALL(mknodat,                  259,   33, BY(mknodat_mode))

GROUP("Memory",
      "Charged to the box. mbind and set_mempolicy place only the caller's own pages and "
      "libnuma, OpenBLAS and the JVM call them.")
CALL(brk,                       12,  214, ALLOW)
CALL(mmap,                       9,  222, BY(mmap_huge))
CALL(mprotect,                  10,  226, ALLOW)
CALL(munmap,                    11,  215, ALLOW)
CALL(mremap,                    25,  216, ALLOW)
CALL(mincore,                   27,  232, ALLOW)
CALL(madvise,                   28,  233, BY(madvise_merge))
CALL(mlock,                    149,  228, ALLOW)
CALL(mlock2,                   325,  284, ALLOW)
CALL(mlockall,                 151,  230, ALLOW)
CALL(munlock,                  150,  229, ALLOW)
CALL(munlockall,               152,  231, ALLOW)
CALL(membarrier,               324,  283, ALLOW)
CALL(pkey_alloc,               330,  289, ALLOW)
CALL(pkey_free,                331,  290, ALLOW)
CALL(pkey_mprotect,            329,  288, ALLOW)
CALL(mseal,                    462,  462, ALLOW)
CALL(map_shadow_stack,         453,  453, ALLOW)
CALL(memfd_create,             319,  279, BY(memfd_huge))
CALL(get_mempolicy,            239,  236, ALLOW)
CALL(set_mempolicy,            238,  237, ALLOW)
CALL(mbind,                    237,  235, ALLOW)

GROUP("Processes and threads",
      "clone without a new namespace, exec by path or by descriptor, waiting, scheduling. "
      "Raising a priority fails by itself for want of CAP_SYS_NICE.")
CALL(clone,                     56,  220, BY(clone_flags))
CALL(fork,                      57, NONE, ALLOW)
CALL(vfork,                     58, NONE, ALLOW)
CALL(execve,                    59,  221, ALLOW)
CALL(execveat,                 322,  281, ALLOW)
CALL(exit,                      60,   93, ALLOW)
CALL(exit_group,               231,   94, ALLOW)
CALL(wait4,                     61,  260, ALLOW)
CALL(waitid,                   247,   95, ALLOW)
CALL(set_tid_address,          218,   96, ALLOW)
CALL(gettid,                   186,  178, ALLOW)
CALL(getpid,                    39,  172, ALLOW)
CALL(getppid,                  110,  173, ALLOW)
CALL(getpgid,                  121,  155, ALLOW)
CALL(setpgid,                  109,  154, ALLOW)
CALL(getpgrp,                  111, NONE, ALLOW)
CALL(getsid,                   124,  156, ALLOW)
CALL(setsid,                   112,  157, ALLOW)
CALL(getpriority,              140,  141, ALLOW)
CALL(setpriority,              141,  140, ALLOW)
CALL(ioprio_get,               252,   31, ALLOW)
CALL(ioprio_set,               251,   30, ALLOW)
CALL(sched_yield,               24,  124, ALLOW)
CALL(sched_getaffinity,        204,  123, ALLOW)
CALL(sched_setaffinity,        203,  122, ALLOW)
CALL(sched_getattr,            315,  275, ALLOW)
CALL(sched_setattr,            314,  274, ALLOW)
CALL(sched_getparam,           143,  121, ALLOW)
CALL(sched_setparam,           142,  118, ALLOW)
CALL(sched_getscheduler,       145,  120, ALLOW)
CALL(sched_setscheduler,       144,  119, ALLOW)
CALL(sched_get_priority_max,   146,  125, ALLOW)
CALL(sched_get_priority_min,   147,  126, ALLOW)
CALL(sched_rr_get_interval,    148,  127, ALLOW)
CALL(getcpu,                   309,  168, ALLOW)
CALL(getrusage,                 98,  165, ALLOW)
CALL(times,                    100,  153, ALLOW)
CALL(getrlimit,                 97,  163, ALLOW)
CALL(setrlimit,                160,  164, BY(setrlimit_core))
CALL(prlimit64,                302,  261, BY(prlimit_core))
CALL(personality,              135,   92, BY(personality))
CALL(prctl,                    157,  167, BY(prctl_option))
CALL(arch_prctl,               158, NONE, ALLOW)
CALL(rseq,                     334,  293, ALLOW)
CALL(set_robust_list,          273,   99, ALLOW)
CALL(get_robust_list,          274,  100, ALLOW)
CALL(futex,                    202,   98, ALLOW)
CALL(futex_waitv,              449,  449, ALLOW)
CALL(futex_wait,               455,  455, ALLOW)
CALL(futex_wake,               454,  454, ALLOW)
CALL(futex_requeue,            456,  456, ALLOW)
CALL(pidfd_open,               434,  434, ALLOW)
CALL(pidfd_send_signal,        424,  424, ALLOW)
CALL(uname,                     63,  160, ALLOW)
CALL(sysinfo,                   99,  179, ALLOW)
CALL(uretprobe,                335, NONE, ALLOW)
CALL(uprobe,                   336, NONE, ALLOW)

GROUP("Signals",
      "Reach only the box: its pid namespace holds nobody else.")
CALL(rt_sigaction,              13,  134, ALLOW)
CALL(rt_sigprocmask,            14,  135, ALLOW)
CALL(rt_sigpending,            127,  136, ALLOW)
CALL(rt_sigqueueinfo,          129,  138, ALLOW)
CALL(rt_tgsigqueueinfo,        297,  240, ALLOW)
CALL(rt_sigreturn,              15,  139, ALLOW)
CALL(rt_sigsuspend,            130,  133, ALLOW)
CALL(rt_sigtimedwait,          128,  137, ALLOW)
CALL(sigaltstack,              131,  132, ALLOW)
CALL(kill,                      62,  129, ALLOW)
CALL(tkill,                    200,  130, ALLOW)
CALL(tgkill,                   234,  131, ALLOW)
CALL(pause,                     34, NONE, ALLOW)
CALL(restart_syscall,          219,  128, ALLOW)
CALL(signalfd,                 282, NONE, ALLOW)
CALL(signalfd4,                289,   74, ALLOW)

GROUP("Identity",
      "The box has no capability and no other id mapped, so a change fails by itself.")
CALL(getuid,                   102,  174, ALLOW)
CALL(geteuid,                  107,  175, ALLOW)
CALL(getgid,                   104,  176, ALLOW)
CALL(getegid,                  108,  177, ALLOW)
CALL(getresuid,                118,  148, ALLOW)
CALL(getresgid,                120,  150, ALLOW)
CALL(getgroups,                115,  158, ALLOW)
CALL(setuid,                   105,  146, ALLOW)
CALL(setgid,                   106,  144, ALLOW)
CALL(setreuid,                 113,  145, ALLOW)
CALL(setregid,                 114,  143, ALLOW)
CALL(setresuid,                117,  147, ALLOW)
CALL(setresgid,                119,  149, ALLOW)
CALL(setgroups,                116,  159, ALLOW)
CALL(setfsuid,                 122,  151, ALLOW)
CALL(setfsgid,                 123,  152, ALLOW)
CALL(capget,                   125,   90, ALLOW)
CALL(capset,                   126,   91, ALLOW)

GROUP("Time",
      "Reading clocks and sleeping.")
CALL(time,                     201, NONE, ALLOW)
CALL(gettimeofday,              96,  169, ALLOW)
CALL(clock_gettime,            228,  113, ALLOW)
CALL(clock_getres,             229,  114, ALLOW)
CALL(nanosleep,                 35,  101, ALLOW)
CALL(clock_nanosleep,          230,  115, ALLOW)
CALL(alarm,                     37, NONE, ALLOW)
CALL(getitimer,                 36,  102, ALLOW)
CALL(setitimer,                 38,  103, ALLOW)
CALL(timer_create,             222,  107, ALLOW)
CALL(timer_delete,             226,  111, ALLOW)
CALL(timer_getoverrun,         225,  109, ALLOW)
CALL(timer_gettime,            224,  108, ALLOW)
CALL(timer_settime,            223,  110, ALLOW)
CALL(timerfd_create,           283,   85, ALLOW)
CALL(timerfd_gettime,          287,   87, ALLOW)
CALL(timerfd_settime,          286,   86, ALLOW)

GROUP("Waiting for events",
      "On descriptors of the box; watches and instances are counted per uid.")
CALL(poll,                       7, NONE, ALLOW)
CALL(ppoll,                    271,   73, ALLOW)
CALL(select,                    23, NONE, ALLOW)
CALL(pselect6,                 270,   72, ALLOW)
CALL(epoll_create,             213, NONE, ALLOW)
CALL(epoll_create1,            291,   20, ALLOW)
CALL(epoll_ctl,                233,   21, ALLOW)
CALL(epoll_wait,               232, NONE, ALLOW)
CALL(epoll_pwait,              281,   22, ALLOW)
CALL(epoll_pwait2,             441,  441, ALLOW)
CALL(eventfd,                  284, NONE, ALLOW)
CALL(eventfd2,                 290,   19, ALLOW)

GROUP("Sockets",
      "The network namespace decides what can be reached, this list which protocol code can "
      "be.")
CALL(socket,                    41,  198, BY(socket))
CALL(socketpair,                53,  199, BY(socket))
CALL(bind,                      49,  200, ALLOW)
CALL(connect,                   42,  203, ALLOW)
CALL(listen,                    50,  201, ALLOW)
CALL(accept,                    43,  202, ALLOW)
CALL(accept4,                  288,  242, ALLOW)
CALL(getsockname,               51,  204, ALLOW)
CALL(getpeername,               52,  205, ALLOW)
CALL(getsockopt,                55,  209, ALLOW)
CALL(setsockopt,                54,  208, BY(setsockopt))
CALL(sendto,                    44,  206, BY(sendto_flags))
CALL(sendmsg,                   46,  211, BY(sendmsg_flags))
CALL(sendmmsg,                 307,  269, BY(sendto_flags))
CALL(recvfrom,                  45,  207, ALLOW)
CALL(recvmsg,                   47,  212, ALLOW)
CALL(recvmmsg,                 299,  243, ALLOW)
CALL(shutdown,                  48,  210, ALLOW)

GROUP("IPC",
      "System V and POSIX queues live in the IPC namespace and die with it.")
CALL(shmget,                    29,  194, BY(shmget_huge))
CALL(shmat,                     30,  196, ALLOW)
CALL(shmctl,                    31,  195, ALLOW)
CALL(shmdt,                     67,  197, ALLOW)
CALL(semget,                    64,  190, ALLOW)
CALL(semop,                     65,  193, ALLOW)
CALL(semctl,                    66,  191, ALLOW)
CALL(semtimedop,               220,  192, ALLOW)
CALL(msgget,                    68,  186, ALLOW)
CALL(msgsnd,                    69,  189, ALLOW)
CALL(msgrcv,                    70,  188, ALLOW)
CALL(msgctl,                    71,  187, ALLOW)
CALL(mq_open,                  240,  180, ALLOW)
CALL(mq_unlink,                241,  181, ALLOW)
CALL(mq_timedsend,             242,  182, ALLOW)
CALL(mq_timedreceive,          243,  183, ALLOW)
CALL(mq_notify,                244,  184, ALLOW)
CALL(mq_getsetattr,            245,  185, ALLOW)

GROUP("Random numbers and device control",
      "Runs have no terminal, sessions may have some of their own. Code can type into none.")
CALL(getrandom,                318,  278, ALLOW)
CALL(ioctl,                     16,   29, BY(ioctl))

GROUP("Confining oneself further",
      "Each of these can only take rights away.")
CALL(seccomp,                  317,  277, BY(seccomp_operation))
CALL(landlock_create_ruleset,  444,  444, ALLOW)
CALL(landlock_add_rule,        445,  445, ALLOW)
CALL(landlock_restrict_self,   446,  446, ALLOW)

GROUP("Answered 0, nothing done",
      "The first write back whole file systems of the host, the next flush its disk for the "
      "price of a descriptor of any shared file, the last drop its cached pages. What a box "
      "writes lives in memory and ends with it; a directory given for writing is written back"
      " by the kernel in its own time.")
CALL(sync,                     162,   81, DONE)
CALL(syncfs,                   306,  267, DONE)
CALL(fsync,                     74,   82, DONE)
CALL(fdatasync,                 75,   83, DONE)
CALL(sync_file_range,          277,   84, DONE)
CALL(msync,                     26,  227, DONE)
CALL(fadvise64,                221,  223, DONE)
CALL(readahead,                187,  213, DONE)

GROUP("Watching files",
      "A watch is on the inode, and boxes share the inodes of the host's libraries: it shows "
      "who outside opens what. The number of watchers is counted against root for all boxes "
      "together. Programs fall back to polling.")
CALL(inotify_init,             253, NONE, ENOSYS)
CALL(inotify_init1,            294,   26, ENOSYS)
CALL(inotify_add_watch,        254,   27, ENOSYS)
CALL(inotify_rm_watch,         255,   28, ENOSYS)

GROUP("Namespaces",
      "A nested namespace brings capabilities, and with them most of the kernel. clone3 "
      "keeps its flags in memory, where a filter cannot see them: ENOSYS makes libc use "
      "clone.")
CALL(clone3,                   435,  435, ENOSYS)
CALL(unshare,                  272,   97, EPERM)
CALL(setns,                    308,  268, EPERM)
CALL(listns,                   470,  470, EPERM)
CALL(sethostname,              170,  161, EPERM)
CALL(setdomainname,            171,  162, EPERM)

GROUP("Mounts and roots",
      "The tree was built before the payload started and stays as it is.")
CALL(mount,                    165,   40, EPERM)
CALL(umount2,                  166,   39, EPERM)
CALL(pivot_root,               155,   41, EPERM)
CALL(chroot,                   161,   51, EPERM)
CALL(fsopen,                   430,  430, EPERM)
CALL(fsconfig,                 431,  431, EPERM)
CALL(fsmount,                  432,  432, EPERM)
CALL(fspick,                   433,  433, EPERM)
CALL(open_tree,                428,  428, EPERM)
CALL(open_tree_attr,           467,  467, EPERM)
CALL(move_mount,               429,  429, EPERM)
CALL(mount_setattr,            442,  442, EPERM)
CALL(statmount,                457,  457, EPERM)
CALL(listmount,                458,  458, EPERM)

GROUP("File handles",
      "They reach past mounts, to inodes of the host file system.")
CALL(name_to_handle_at,        303,  264, EPERM)
CALL(open_by_handle_at,        304,  265, EPERM)

GROUP("Asynchronous I/O behind the filter's back",
      "io_uring runs operations that no filter sees. Contexts of the older interface are "
      "counted host-wide (fs.aio-max-nr): one box could take them all.")
CALL(io_uring_setup,           425,  425, ENOSYS)
CALL(io_uring_enter,           426,  426, ENOSYS)
CALL(io_uring_register,        427,  427, ENOSYS)
CALL(io_setup,                 206,    0, ENOSYS)
CALL(io_destroy,               207,    1, ENOSYS)
CALL(io_getevents,             208,    4, ENOSYS)
CALL(io_pgetevents,            333,  292, ENOSYS)
CALL(io_submit,                209,    2, ENOSYS)
CALL(io_cancel,                210,    3, ENOSYS)

GROUP("Other processes' memory and descriptors",
      "Reading box init or each other; page migration is done on behalf of other processes.")
CALL(ptrace,                   101,  117, EPERM)
CALL(process_vm_readv,         310,  270, EPERM)
CALL(process_vm_writev,        311,  271, EPERM)
CALL(process_madvise,          440,  440, EPERM)
CALL(kcmp,                     312,  272, EPERM)
CALL(pidfd_getfd,              438,  438, EPERM)
CALL(migrate_pages,            256,  238, EPERM)
CALL(move_pages,               279,  239, EPERM)

GROUP("Rich kernel surface",
      "Each has a record of privilege escalations and no use in a box.")
CALL(bpf,                      321,  280, EPERM)
CALL(perf_event_open,          298,  241, EPERM)
CALL(userfaultfd,              323,  282, EPERM)
CALL(fanotify_init,            300,  262, EPERM)
CALL(fanotify_mark,            301,  263, EPERM)
CALL(lookup_dcookie,           212,   18, EPERM)
CALL(memfd_secret,             447,  447, EPERM)
CALL(modify_ldt,               154, NONE, EPERM)

GROUP("Keyrings",
      "Not namespaced: a key outlives the run. ENOSYS is what a kernel without them says.")
CALL(add_key,                  248,  217, ENOSYS)
CALL(request_key,              249,  218, ENOSYS)
CALL(keyctl,                   250,  219, ENOSYS)

GROUP("The machine",
      "Modules, boot, swap, accounting, quotas, the kernel log, ports, the clock. adjtimex "
      "and clock_adjtime say in memory whether they read or set, so both are refused whole.")
CALL(init_module,              175,  105, EPERM)
CALL(finit_module,             313,  273, EPERM)
CALL(delete_module,            176,  106, EPERM)
CALL(kexec_load,               246,  104, EPERM)
CALL(kexec_file_load,          320,  294, EPERM)
CALL(reboot,                   169,  142, EPERM)
CALL(swapon,                   167,  224, EPERM)
CALL(swapoff,                  168,  225, EPERM)
CALL(acct,                     163,   89, EPERM)
CALL(quotactl,                 179,   60, EPERM)
CALL(quotactl_fd,              443,  443, EPERM)
CALL(syslog,                   103,  116, EPERM)
CALL(iopl,                     172, NONE, EPERM)
CALL(ioperm,                   173, NONE, EPERM)
CALL(settimeofday,             164,  170, EPERM)
CALL(clock_settime,            227,  112, EPERM)
CALL(adjtimex,                 159,  171, EPERM)
CALL(clock_adjtime,            305,  266, EPERM)
CALL(vhangup,                  153,   58, EPERM)
CALL(nfsservctl,               180,   42, EPERM)

GROUP("Not needed",
      "No ordinary program calls them, or it falls back: page-cache probing (a side channel "
      "between boxes that share files), LSM attributes, extended file attributes by path, "
      "memory policy by node, reaping memory of others.")
CALL(cachestat,                451,  451, ENOSYS)
CALL(lsm_get_self_attr,        459,  459, ENOSYS)
CALL(lsm_set_self_attr,        460,  460, ENOSYS)
CALL(lsm_list_modules,         461,  461, ENOSYS)
CALL(file_getattr,             468,  468, ENOSYS)
CALL(file_setattr,             469,  469, ENOSYS)
CALL(set_mempolicy_home_node,  450,  450, ENOSYS)
CALL(process_mrelease,         448,  448, ENOSYS)
CALL(remap_file_pages,         216,  234, ENOSYS)

GROUP("Gone from the kernel, or never there",
      "A kernel without a filter says ENOSYS too.")
CALL(uselib,                   134, NONE, ENOSYS)
CALL(ustat,                    136, NONE, ENOSYS)
CALL(sysfs,                    139, NONE, ENOSYS)
CALL(_sysctl,                  156, NONE, ENOSYS)
CALL(create_module,            174, NONE, ENOSYS)
CALL(get_kernel_syms,          177, NONE, ENOSYS)
CALL(query_module,             178, NONE, ENOSYS)
CALL(getpmsg,                  181, NONE, ENOSYS)
CALL(putpmsg,                  182, NONE, ENOSYS)
CALL(afs_syscall,              183, NONE, ENOSYS)
CALL(tuxcall,                  184, NONE, ENOSYS)
CALL(security,                 185, NONE, ENOSYS)
CALL(vserver,                  236, NONE, ENOSYS)
CALL(set_thread_area,          205, NONE, ENOSYS)
CALL(get_thread_area,          211, NONE, ENOSYS)
CALL(epoll_ctl_old,            214, NONE, ENOSYS)
CALL(epoll_wait_old,           215, NONE, ENOSYS)

ROOT(chown, DONE, "a layer has no owners")
ROOT(fchown, DONE, "the same")
ROOT(lchown, DONE, "the same")
ROOT(fchownat, DONE, "the same")
ROOT(chmod, ALLOW, "a set-id bit has no effect there, and is no part of a layer")
ROOT(fchmod, ALLOW, "the same")
ROOT(fchmodat, ALLOW, "the same")
ROOT(fchmodat2, ALLOW, "the same")
/* Not setresuid and setresgid, by which the payload gets its id (box/drop.c). */
ROOT(setuid, DONE, "the box has one user, and scripts of packages become others")
ROOT(setgid, DONE, "the same")
ROOT(setreuid, DONE, "the same")
ROOT(setregid, DONE, "the same")
ROOT(setgroups, DONE, "the same")

/* clang-format on */

#undef GROUP
#undef CALL
#undef RULE
#undef WHEN
#undef ROOT
