/* SPDX-License-Identifier: Apache-2.0 */

/* The filter of a box, three ways. By interpretation: a small classic-BPF machine runs the real
 * bytes of both architectures over every number and many arguments, against an oracle that
 * reads the policy table row by row. By example: cases written out by hand, so that table and
 * oracle cannot be wrong together. By the kernel: a child loads the filter and tries every
 * refused call; a control without the filter shows that the answers are the filter's. */

#include "test.h"

#include <asm/unistd.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "box/seccomp.h"
#include "seccomp/policy.h"
#include "seccomp_filter.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define ERRNO(e) (SECCOMP_RET_ERRNO | (uint32_t)(e))
#define KILL SECCOMP_RET_KILL_PROCESS
#define PASS SECCOMP_RET_ALLOW
#define HIGH (1ULL << 32)

enum {
#define RULE(rule, text) RULE_##rule,
#include "seccomp/policy.h"
};

struct clause {
    int rule;
    int answer;
    struct seccomp_test tests[WHEN_MAX_TESTS];
};
static const struct clause clauses[] = {
#define WHEN(rule, answer, ...) {RULE_##rule, answer, {__VA_ARGS__}},
#include "seccomp/policy.h"
};

/* header: the number as <asm/unistd.h> has it, or the name itself when it has none. */
#define TEXT_OF(x) #x
#define TEXT_OF_VALUE(x) TEXT_OF(x)
static const struct row {
    const char *name;
    const char *header;
    int x86_64;
    int aarch64;
    int answer;
} rows[] = {
#define CALL(name, x86_64, aarch64, answer)                                                    \
    {#name, TEXT_OF_VALUE(__NR_##name), x86_64, aarch64, answer},
#include "seccomp/policy.h"
};

#if defined(__x86_64__)
#define ARCH_HERE AUDIT_ARCH_X86_64
#else
#define ARCH_HERE AUDIT_ARCH_AARCH64
#endif

static const struct {
    uint32_t audit;
    const struct sock_filter *filter;
    size_t count;
    bool is_root; /* of boxes with BOX_ROOT */
} filters[] = {
    {AUDIT_ARCH_X86_64, seccomp_filter_x86_64, COUNT_OF(seccomp_filter_x86_64), false},
    {AUDIT_ARCH_AARCH64, seccomp_filter_aarch64, COUNT_OF(seccomp_filter_aarch64), false},
    {AUDIT_ARCH_X86_64, seccomp_root_filter_x86_64, COUNT_OF(seccomp_root_filter_x86_64), true},
    {AUDIT_ARCH_AARCH64, seccomp_root_filter_aarch64, COUNT_OF(seccomp_root_filter_aarch64),
        true},
};

/* What the latter answer instead. The list stands here once more: a call that joins it should
 * be thought about twice. */
static const struct {
    const char *name;
    int answer;
} root_rows[] = {{"chown", 0}, {"fchown", 0}, {"lchown", 0}, {"fchownat", 0}, {"chmod", ALLOW},
    {"fchmod", ALLOW}, {"fchmodat", ALLOW}, {"fchmodat2", ALLOW}, {"setuid", 0}, {"setgid", 0},
    {"setreuid", 0}, {"setregid", 0}, {"setgroups", 0}};

/* The machine. */

static uint32_t run_filter(
    const struct sock_filter *f, size_t count, const struct seccomp_data *data)
{
    uint32_t a = 0;
    for (size_t pc = 0; pc < count; pc++) {
        const struct sock_filter *i = &f[pc];
        switch (i->code) {
        case BPF_LD | BPF_W | BPF_ABS:
            assert_true(i->k % 4 == 0 && i->k + 4 <= sizeof(*data));
            memcpy(&a, (const char *)data + i->k, 4);
            break;
        case BPF_ALU | BPF_AND | BPF_K:
            a &= i->k;
            break;
        case BPF_JMP | BPF_JA:
            pc += i->k;
            break;
        case BPF_JMP | BPF_JEQ | BPF_K:
            pc += a == i->k ? i->jt : i->jf;
            break;
        case BPF_JMP | BPF_JGE | BPF_K:
            pc += a >= i->k ? i->jt : i->jf;
            break;
        case BPF_RET | BPF_K:
            return i->k;
        default:
            fail_msg("instruction %zu has an unexpected code %#x", pc, i->code);
        }
    }
    fail_msg("the filter ran past its end");
    return 0;
}

/* The oracle. */

static bool test_holds(const struct seccomp_test *t, const uint64_t args[6])
{
    if (t->wide)
        return args[t->arg] != 0;
    bool found = false;
    for (int i = 0; i < t->value_count; i++)
        found = found || ((uint32_t)args[t->arg] & t->mask) == t->values[i];
    return found != t->negate;
}

static int rule_answer(int rule, const uint64_t args[6])
{
    for (size_t i = 0; i < COUNT_OF(clauses); i++) {
        if (clauses[i].rule != rule)
            continue;
        bool all = true;
        for (int t = 0; t < WHEN_MAX_TESTS; t++)
            if (clauses[i].tests[t].value_count || clauses[i].tests[t].wide)
                all = all && test_holds(&clauses[i].tests[t], args);
        if (all)
            return clauses[i].answer;
    }
    return ALLOW;
}

static int row_number(const struct row *row, uint32_t audit)
{
    return audit == AUDIT_ARCH_X86_64 ? row->x86_64 : row->aarch64;
}

static int row_answer(const struct row *row, bool is_root)
{
    for (size_t i = 0; is_root && i < COUNT_OF(root_rows); i++)
        if (!strcmp(row->name, root_rows[i].name))
            return root_rows[i].answer;
    return row->answer;
}

static uint32_t oracle(uint32_t audit, bool is_root, const struct seccomp_data *data)
{
    uint32_t nr = (uint32_t)data->nr;
    if (data->arch != audit)
        return KILL;
    if (audit == AUDIT_ARCH_X86_64 && nr >= 0x40000000 && nr != UINT32_MAX)
        return KILL;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        if (row_number(&rows[i], audit) < 0 || row_number(&rows[i], audit) != data->nr)
            continue;
        int answer = row_answer(&rows[i], is_root);
        if (answer >= RULE_BASE) {
            const uint64_t args[6] = {data->args[0], data->args[1], data->args[2],
                data->args[3], data->args[4], data->args[5]};
            answer = rule_answer(answer - RULE_BASE, args);
        }
        return answer == ALLOW ? PASS : ERRNO(answer);
    }
    return ERRNO(ENOSYS);
}

static void compare(size_t f, const struct seccomp_data *data)
{
    uint32_t got = run_filter(filters[f].filter, filters[f].count, data);
    uint32_t want = oracle(filters[f].audit, filters[f].is_root, data);
    if (got != want)
        fail_msg("arch %#x nr %d args %#llx %#llx %#llx %#llx: filter %#x, table %#x",
            data->arch, data->nr, data->args[0], data->args[1], data->args[2], data->args[3],
            got, want);
}

/* By interpretation. */

static const uint32_t some_arches[] = {AUDIT_ARCH_X86_64, AUDIT_ARCH_AARCH64, AUDIT_ARCH_I386,
    AUDIT_ARCH_ARM, AUDIT_ARCH_RISCV64, AUDIT_ARCH_X86_64 & ~__AUDIT_ARCH_64BIT, 0, UINT32_MAX};

static void test_every_number_on_every_arch(void **state)
{
    (void)state;
    static const uint32_t bases[] = {
        0, 0x40000000, 0x40000200, 0x7ffffc00, 0x80000000, 0xbffffc00, 0xc0000000, 0xfffffc00};
    for (size_t f = 0; f < COUNT_OF(filters); f++)
        for (size_t a = 0; a < COUNT_OF(some_arches); a++)
            for (size_t b = 0; b < COUNT_OF(bases); b++)
                for (uint32_t n = 0; n < 1024; n++)
                    compare(f, &(struct seccomp_data){
                                   .nr = (int)(bases[b] + n), .arch = some_arches[a]});
}

static void test_every_number_with_argument_samples(void **state)
{
    (void)state;
    static const uint64_t samples[] = {1, 3, 5, 0x0e, 0x29, 0x540d, TIOCSCTTY, TIOCSTI,
        TIOCLINUX, TIOCSETD, 0x5413, S_IFCHR | 0600, S_IFBLK | 0600, S_IFIFO | 0600, S_IFSOCK,
        S_IFREG | 0644, S_IFDIR, 0x20008, 0x40008, 0xffffffff, UINT64_MAX, 0xfffffffe,
        PR_SET_MM, PR_SCHED_CORE, SIGCHLD | CLONE_VM | CLONE_VFORK, 0x3d0f00,
        CLONE_NEWUSER | SIGCHLD};
    static const uint64_t high[] = {0, HIGH, 0xffffffffULL << 32};
    for (size_t f = 0; f < COUNT_OF(filters); f++)
        for (int n = 0; n < 512; n++)
            for (int arg = 0; arg < 6; arg++)
                for (size_t h = 0; h < COUNT_OF(high); h++)
                    for (size_t s = 0; s < COUNT_OF(samples) + 64; s++) {
                        struct seccomp_data d = {.nr = n, .arch = filters[f].audit};
                        d.args[arg] = high[h] | (s < 64 ? 1ULL << s : samples[s - 64]);
                        compare(f, &d);
                    }
}

static const struct row *row_of(const char *name)
{
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (!strcmp(rows[i].name, name))
            return &rows[i];
    fail_msg("no row for %s", name);
    return NULL;
}

static void test_socket_and_prlimit_products(void **state)
{
    (void)state;
    static const uint64_t types[] = {0, SOCK_CLOEXEC, SOCK_CLOEXEC | SOCK_NONBLOCK, HIGH};
    for (size_t f = 0; f < COUNT_OF(filters); f++) {
        struct seccomp_data d = {.arch = filters[f].audit};
        d.nr = row_number(row_of("socket"), d.arch);
        for (uint64_t domain = 0; domain < 48; domain++)
            for (uint64_t type = 0; type < 64; type++)
                for (uint64_t protocol = 0; protocol < 270; protocol++) {
                    d.args[0] = domain;
                    d.args[1] = (type & 15) | types[type / 16];
                    d.args[2] = protocol;
                    compare(f, &d);
                }
        d.nr = row_number(row_of("prlimit64"), d.arch);
        for (uint64_t resource = 0; resource < 16; resource++)
            for (int bit = 0; bit < 65; bit++) {
                d.args[1] = resource;
                d.args[2] = bit == 64 ? 0 : 1ULL << bit;
                compare(f, &d);
            }
    }
}

/* By example. */

struct example {
    const char *call;
    uint64_t args[6];
    uint32_t want;
};

static const struct example examples[] = {
    {"read", {0}, PASS},
    {"execve", {0}, PASS},
    {"execveat", {0}, PASS},
    {"rseq", {0}, PASS},
    {"futex_waitv", {0}, PASS},
    {"seccomp", {0}, PASS},
    {"landlock_restrict_self", {0}, PASS},
    {"mbind", {0}, PASS},
    {"clone3", {0}, ERRNO(ENOSYS)},
    {"io_uring_setup", {0}, ERRNO(ENOSYS)},
    {"io_uring_enter", {0}, ERRNO(ENOSYS)},
    {"io_uring_register", {0}, ERRNO(ENOSYS)},
    {"keyctl", {0}, ERRNO(ENOSYS)},
    {"add_key", {0}, ERRNO(ENOSYS)},
    {"request_key", {0}, ERRNO(ENOSYS)},
    {"unshare", {0}, ERRNO(EPERM)},
    {"setns", {0}, ERRNO(EPERM)},
    {"mount", {0}, ERRNO(EPERM)},
    {"umount2", {0}, ERRNO(EPERM)},
    {"pivot_root", {0}, ERRNO(EPERM)},
    {"chroot", {0}, ERRNO(EPERM)},
    {"open_tree", {0}, ERRNO(EPERM)},
    {"open_tree_attr", {0}, ERRNO(EPERM)},
    {"statmount", {0}, ERRNO(EPERM)},
    {"listmount", {0}, ERRNO(EPERM)},
    {"mount_setattr", {0}, ERRNO(EPERM)},
    {"bpf", {0}, ERRNO(EPERM)},
    {"perf_event_open", {0}, ERRNO(EPERM)},
    {"userfaultfd", {0}, ERRNO(EPERM)},
    {"ptrace", {0}, ERRNO(EPERM)},
    {"process_vm_readv", {0}, ERRNO(EPERM)},
    {"process_vm_writev", {0}, ERRNO(EPERM)},
    {"pidfd_getfd", {0}, ERRNO(EPERM)},
    {"process_madvise", {0}, ERRNO(EPERM)},
    {"kcmp", {0}, ERRNO(EPERM)},
    {"fanotify_init", {0}, ERRNO(EPERM)},
    {"open_by_handle_at", {0}, ERRNO(EPERM)},
    {"name_to_handle_at", {0}, ERRNO(EPERM)},
    {"memfd_secret", {0}, ERRNO(EPERM)},
    {"init_module", {0}, ERRNO(EPERM)},
    {"finit_module", {0}, ERRNO(EPERM)},
    {"kexec_load", {0}, ERRNO(EPERM)},
    {"reboot", {0}, ERRNO(EPERM)},
    {"syslog", {0}, ERRNO(EPERM)},
    {"clock_settime", {0}, ERRNO(EPERM)},
    {"adjtimex", {0}, ERRNO(EPERM)},

    {"clone", {0x3d0f00}, PASS},             /* a glibc thread */
    {"clone", {SIGCHLD | 0x01200000}, PASS}, /* glibc's fork */
    {"clone", {HIGH | SIGCHLD}, PASS},
    {"clone", {0x00020000}, ERRNO(EPERM)},
    {"clone", {0x02000000}, ERRNO(EPERM)},
    {"clone", {0x04000000}, ERRNO(EPERM)},
    {"clone", {0x08000000}, ERRNO(EPERM)},
    {"clone", {0x10000000}, ERRNO(EPERM)},
    {"clone", {0x20000000}, ERRNO(EPERM)},
    {"clone", {0x40000000}, ERRNO(EPERM)},
    {"clone", {0x00000080}, ERRNO(EPERM)},
    {"clone", {HIGH | 0x10000000 | SIGCHLD}, ERRNO(EPERM)},

    {"socket", {1, 1, 0}, PASS},
    {"socket", {1, 3, 0}, PASS}, /* SOCK_RAW on UNIX is a datagram */
    {"socket", {2, 1 | SOCK_CLOEXEC, 6}, PASS},
    {"socket", {10, 2 | SOCK_NONBLOCK, 17}, PASS},
    {"socket", {HIGH | 2, 1, 0}, PASS},
    {"socket", {16, 3 | SOCK_CLOEXEC, 0}, PASS},  /* getifaddrs */
    {"socket", {16, 3, 15}, ERRNO(EAFNOSUPPORT)}, /* uevents */
    {"socket", {16, 3, 12}, ERRNO(EAFNOSUPPORT)}, /* netfilter */
    {"socket", {40, 1, 0}, ERRNO(EAFNOSUPPORT)},  /* VSOCK */
    {"socket", {HIGH | 40, 1, 0}, ERRNO(EAFNOSUPPORT)},
    {"socket", {38, 5, 0}, ERRNO(EAFNOSUPPORT)}, /* ALG */
    {"socket", {17, 3, 3}, ERRNO(EAFNOSUPPORT)}, /* PACKET */
    {"socket", {0, 1, 0}, ERRNO(EAFNOSUPPORT)},
    {"socket", {2, 3, 1}, ERRNO(EPERM)},
    {"socket", {2, 3 | SOCK_CLOEXEC, 1}, ERRNO(EPERM)},
    {"socket", {2, HIGH | 3, 1}, ERRNO(EPERM)},
    {"socket", {10, 3, 58}, ERRNO(EPERM)},
    {"socket", {2, 10, 0x300}, ERRNO(EPERM)},
    {"socket", {2, 2, 1}, PASS},                     /* ping */
    {"socket", {2, 1, 132}, ERRNO(EPROTONOSUPPORT)}, /* SCTP */
    {"socket", {2, 1, 262}, ERRNO(EPROTONOSUPPORT)}, /* MPTCP */
    {"socketpair", {1, 1, 0}, PASS},
    {"socketpair", {40, 1, 0}, ERRNO(EAFNOSUPPORT)},

    {"ioctl", {0, 0x5401}, PASS}, /* TCGETS: isatty */
    {"ioctl", {0, 0x5413}, PASS}, /* TIOCGWINSZ */
    {"ioctl", {0, 0x5412}, ERRNO(EPERM)},
    {"ioctl", {0, HIGH | 0x5412}, ERRNO(EPERM)},
    {"ioctl", {0, 0x541c}, ERRNO(EPERM)},
    {"ioctl", {0, 0x540e}, ERRNO(EPERM)},
    {"ioctl", {0, 0x5423}, ERRNO(EPERM)},
    {"ioctl", {0, 0x40049409}, ERRNO(ENOTTY)}, /* FICLONE */
    {"ioctl", {0, 0xc020660b}, ERRNO(ENOTTY)}, /* FIEMAP */
    {"ioctl", {0, 0xc0185879}, ERRNO(ENOTTY)}, /* FITRIM */
    {"ioctl", {0, 0x541b}, PASS},              /* FIONREAD */
    {"ioctl", {0, 0x8927}, PASS},              /* SIOCGIFHWADDR */

    {"personality", {0}, PASS},
    {"personality", {8}, PASS},
    {"personality", {0x20000}, PASS},
    {"personality", {0x20008}, PASS},
    {"personality", {0xffffffff}, PASS},
    {"personality", {UINT64_MAX}, PASS},
    {"personality", {0x40000}, ERRNO(EPERM)},
    {"personality", {0x400000}, ERRNO(EPERM)},
    {"personality", {HIGH | 0x40000}, ERRNO(EPERM)},

    {"setrlimit", {RLIMIT_NOFILE, 1}, PASS},
    {"setrlimit", {RLIMIT_CORE, 1}, ERRNO(EPERM)},
    {"setrlimit", {HIGH | RLIMIT_CORE, 1}, ERRNO(EPERM)},
    {"getrlimit", {RLIMIT_CORE, 1}, PASS},
    {"prlimit64", {0, RLIMIT_CORE, 0, 1}, PASS},
    {"prlimit64", {0, RLIMIT_CORE, 1, 0}, ERRNO(EPERM)},
    {"prlimit64", {0, RLIMIT_CORE, HIGH, 0}, ERRNO(EPERM)},
    {"prlimit64", {0, HIGH | RLIMIT_CORE, 0x7ff0, 0}, ERRNO(EPERM)},
    {"prlimit64", {0, RLIMIT_STACK, 0x7ff0, 0}, PASS},
    {"prlimit64", {1, RLIMIT_STACK, 0x7ff0, 0}, ERRNO(EPERM)},
    {"prlimit64", {1, RLIMIT_STACK, 0, 0x7ff0}, PASS},
    {"seccomp", {SECCOMP_SET_MODE_FILTER}, ERRNO(EPERM)},
    {"seccomp", {HIGH | SECCOMP_SET_MODE_FILTER}, ERRNO(EPERM)},
    {"prctl", {PR_SET_SECCOMP, SECCOMP_MODE_FILTER}, ERRNO(EPERM)},
    {"prctl", {PR_SET_SECCOMP, HIGH | SECCOMP_MODE_FILTER}, ERRNO(EPERM)},
    {"prctl", {PR_SET_SECCOMP, SECCOMP_MODE_STRICT}, PASS},
    {"setsockopt", {3, SOL_SOCKET, SO_ATTACH_FILTER}, ERRNO(EPERM)},
    {"setsockopt", {3, HIGH | SOL_SOCKET, HIGH | SO_ATTACH_FILTER}, ERRNO(EPERM)},
    {"setsockopt", {3, SOL_SOCKET, SO_ATTACH_BPF}, ERRNO(EPERM)},
    {"setsockopt", {3, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF}, ERRNO(EPERM)},
    {"setsockopt", {3, SOL_SOCKET, SO_ATTACH_REUSEPORT_EBPF}, ERRNO(EPERM)},
    {"setsockopt", {3, SOL_SOCKET, SO_REUSEADDR}, PASS},
    {"setsockopt", {3, IPPROTO_TCP, SO_ATTACH_FILTER}, PASS},
    {"setsockopt", {3, IPPROTO_TCP, 31}, ERRNO(ENOENT)}, /* TCP_ULP */
    {"setsockopt", {3, HIGH | IPPROTO_TCP, HIGH | 31}, ERRNO(ENOENT)},
    {"setsockopt", {3, IPPROTO_UDP, 31}, PASS},
    {"setsockopt", {3, IPPROTO_UDP, 100}, ERRNO(ENOPROTOOPT)}, /* UDP_ENCAP */
    {"setsockopt", {3, IPPROTO_TCP, 1}, PASS},                 /* TCP_NODELAY */
    {"sendto", {3, 0, 1, MSG_NOSIGNAL}, PASS},
    {"sendto", {3, 0, 1, MSG_NOSIGNAL | MSG_OOB}, ERRNO(EOPNOTSUPP)},
    {"sendto", {3, 0, 1, HIGH | MSG_OOB}, ERRNO(EOPNOTSUPP)},
    {"sendmsg", {3, 0, MSG_OOB}, ERRNO(EOPNOTSUPP)},
    {"sendmsg", {3, MSG_OOB, 0}, PASS},
    {"sendmmsg", {3, 0, 1, MSG_OOB}, ERRNO(EOPNOTSUPP)},
    {"preadv2", {3, 0, 1, 0, 0, 0}, PASS},
    {"preadv2", {3, 0, 1, 8, 8, 1}, PASS}, /* offsets, RWF_HIPRI */
    {"preadv2", {3, 0, 1, 0, 0, 8}, ERRNO(EOPNOTSUPP)},
    {"preadv2", {3, 0, 1, 0, 0, HIGH | 9}, ERRNO(EOPNOTSUPP)},
    {"preadv2", {3, 0, 1, 0, 0, 0x80}, ERRNO(EOPNOTSUPP)},
    {"pwritev2", {3, 0, 1, 0, 0, 8}, ERRNO(EOPNOTSUPP)},
    {"madvise", {0, 4096, 4}, PASS}, /* MADV_DONTNEED */
    {"madvise", {0, 4096, 12}, ERRNO(EINVAL)},
    {"fcntl", {3, 1026}, ERRNO(EPERM)},
    {"fcntl", {3, HIGH | 1026}, ERRNO(EPERM)},
    {"fcntl", {3, 3}, PASS},
    {"inotify_init1", {0}, ERRNO(ENOSYS)},
    {"fsync", {3}, ERRNO(0)},

    {"mknodat", {0, 0, S_IFCHR | 0600}, ERRNO(EPERM)},
    {"mknodat", {0, 0, S_IFBLK}, ERRNO(EPERM)},
    {"mknodat", {0, 0, 0x10000 | S_IFCHR}, ERRNO(EPERM)}, /* mode is 16 bits wide */
    {"mknodat", {0, 0, S_IFIFO | 0600}, PASS},
    {"mknodat", {0, 0, S_IFSOCK}, PASS},
    {"mknodat", {0, 0, 0644}, PASS},

    {"mmap", {0, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS}, PASS},
    {"mmap", {0, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS | 0x40000}, ERRNO(ENOMEM)},
    {"memfd_create", {0, 1}, PASS},
    {"memfd_create", {0, 4}, ERRNO(EPERM)},
    {"shmget", {0, 0, 01600}, PASS},
    {"shmget", {0, 0, 04000}, ERRNO(EPERM)},

    {"prctl", {PR_SET_NAME}, PASS},
    {"prctl", {PR_SET_SECCOMP}, PASS},
    {"prctl", {35}, ERRNO(EPERM)},
    {"prctl", {HIGH | 62}, ERRNO(EPERM)},
    {"prctl", {67}, ERRNO(EPERM)}, /* PR_SET_MEMORY_MERGE */
    {"sync", {0}, ERRNO(0)},
};

static void test_examples(void **state)
{
    (void)state;
    for (size_t f = 0; f < COUNT_OF(filters); f++)
        for (size_t i = 0; i < COUNT_OF(examples); i++) {
            const struct example *e = &examples[i];
            struct seccomp_data d = {
                .nr = row_number(row_of(e->call), filters[f].audit), .arch = filters[f].audit};
            for (int a = 0; a < 6; a++)
                d.args[a] = e->args[a];
            uint32_t got = run_filter(filters[f].filter, filters[f].count, &d);
            const struct row *row = row_of(e->call);
            if (row_answer(row, filters[f].is_root) != row->answer)
                continue;
            if (got != e->want)
                fail_msg("%s(%#llx, %#llx, %#llx, %#llx): filter %#x, expected %#x", e->call,
                    d.args[0], d.args[1], d.args[2], d.args[3], got, e->want);
        }
}

/* The table itself. */

static void test_numbers_match_headers(void **state)
{
    (void)state;
    size_t known = 0;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        int number = row_number(&rows[i], ARCH_HERE);
        if (rows[i].header[0] < '0' || rows[i].header[0] > '9')
            continue;
        known++;
        if (strtol(rows[i].header, NULL, 10) != number)
            fail_msg("%s is %s in <asm/unistd.h>, %d in the table", rows[i].name,
                rows[i].header, number);
    }
    assert_true(known > 280);
}

/* Every number the kernel has ever given out was decided on; the holes are the kernel's. */
static void test_no_number_forgotten(void **state)
{
    (void)state;
    for (int n = 0; n <= 470; n++) {
        bool x86_64 = n >= 337 && n <= 423;
        bool aarch64 = n >= 295 && n <= 423;
        aarch64 = aarch64 || (n >= 244 && n <= 259);
        for (size_t i = 0; i < COUNT_OF(rows); i++) {
            x86_64 = x86_64 || rows[i].x86_64 == n;
            aarch64 = aarch64 || rows[i].aarch64 == n;
        }
        if (!x86_64 || !aarch64)
            fail_msg("number %d stands in no row", n);
    }
}

/* By the kernel. */

/* A child writes what it found here; it cannot use cmocka's asserts. */
static struct {
    int failures;
    char text[400];
} * report;

static void note(const char *what, long number, long got, long want)
{
    if (report->failures++ == 0)
        snprintf(report->text, sizeof(report->text), "%s (number %ld) answered %ld, not %ld",
            what, number, got, want);
}

/* Result, or negative errno. */
static long call(long number, long a, long b, long c, long d)
{
    errno = 0;
    long ret = syscall(number, a, b, c, d, -1L, -1L);
    return ret == -1 ? -errno : ret;
}

/* Runs body in a child without privilege or terminal; returns its wait status. */
static int in_child(void (*body)(void), bool confined)
{
    memset(report, 0, sizeof(*report));
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        setsid();
        if (geteuid() == 0 &&
            (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534)))
            _exit(98);
        alarm(30);
        if (confined && (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || seccomp_load(false)))
            _exit(99);
        body();
        _exit(report->failures ? 1 : 0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void assert_clean(int status)
{
    if (report->failures)
        fail_msg("%d wrong, first: %s", report->failures, report->text);
    assert_int_equal(status, 0);
}

/* All arguments are -1: bad pointers, bad flags, bad descriptors, should the filter leak. */
static void sweep(void)
{
    for (int n = 0; n <= 600; n++) {
        const struct row *row = NULL;
        for (size_t i = 0; i < COUNT_OF(rows) && !row; i++)
            if (row_number(&rows[i], ARCH_HERE) == n)
                row = &rows[i];
        if (row && (row->answer == ALLOW || row->answer >= RULE_BASE))
            continue;
        long want = row ? -row->answer : -ENOSYS;
        long got = call(n, -1, -1, -1, -1);
        if (got != want)
            note(row ? row->name : "a call in no row", n, got, want);
    }
    if (call(-1, 0, 0, 0, 0) != -ENOSYS)
        note("number -1", -1, call(-1, 0, 0, 0, 0), -ENOSYS);
}

static void test_kernel_sweep(void **state)
{
    (void)state;
    assert_clean(in_child(sweep, true));
}

/* Refused calls that answer something else without the filter, also inside a container. */
static void control(void)
{
    static const struct rlimit64 same = {1, 1};
    const struct {
        const char *name;
        long args[4];
    } samples[] = {
        {"name_to_handle_at", {-1, -1, -1, -1}},
        {"adjtimex", {-1, 0, 0, 0}},
        {"io_setup", {-1, -1, 0, 0}},
        {"remap_file_pages", {-1, -1, -1, -1}},
        {"fanotify_mark", {-1, -1, -1, -1}},
        {"prlimit64", {0, RLIMIT_CORE, (long)&same, 0}},
    };
    struct rlimit core = {1, 1};
    setrlimit(RLIMIT_CORE, &core);
    for (size_t i = 0; i < COUNT_OF(samples); i++) {
        int number = 0;
        int answer = EPERM;
        for (size_t r = 0; r < COUNT_OF(rows); r++)
            if (!strcmp(rows[r].name, samples[i].name)) {
                number = row_number(&rows[r], ARCH_HERE);
                answer = rows[r].answer >= RULE_BASE ? EPERM : rows[r].answer;
            }
        const long *a = samples[i].args;
        long got = call(number, a[0], a[1], a[2], a[3]);
        if (got == -answer)
            note(samples[i].name, number, got, 0);
    }
}

static void test_kernel_control(void **state)
{
    (void)state;
    assert_clean(in_child(control, false));
    in_child(control, true);
    assert_int_equal(report->failures, 6);
}

static void *thread_main(void *arg)
{
    return arg;
}

#define EXPECT(want, ...)                                                                      \
    do {                                                                                       \
        long got_ = call(__VA_ARGS__);                                                         \
        if (got_ != (want))                                                                    \
            note(#__VA_ARGS__, __LINE__, got_, want);                                          \
    } while (0)
#define EXPECT_OK(...)                                                                         \
    do {                                                                                       \
        long got_ = call(__VA_ARGS__);                                                         \
        if (got_ < 0)                                                                          \
            note(#__VA_ARGS__, __LINE__, got_, 0);                                             \
    } while (0)

static void argument_rules(void)
{
    struct rlimit64 limit = {0, 0};
    EXPECT_OK(__NR_socket, AF_UNIX, SOCK_STREAM, 0, 0);
    EXPECT_OK(__NR_socket, AF_INET, SOCK_STREAM, 0, 0);
    EXPECT(-EAFNOSUPPORT, __NR_socket, AF_VSOCK, SOCK_STREAM, 0, 0);
    EXPECT(-EAFNOSUPPORT, __NR_socket, (long)(AF_VSOCK | HIGH), SOCK_STREAM, 0, 0);
    EXPECT(-EAFNOSUPPORT, __NR_socket, AF_NETLINK, SOCK_RAW, 15, 0);
    EXPECT(-EPERM, __NR_socket, AF_INET, SOCK_RAW, IPPROTO_ICMP, 0);
    EXPECT(-EPERM, __NR_ioctl, 0, TIOCSTI, (long)"x", 0);
    EXPECT(-EPERM, __NR_ioctl, 0, (long)(TIOCSTI | HIGH), (long)"x", 0);
    EXPECT(-EPERM, __NR_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0);
    EXPECT(-EPERM, __NR_clone, (long)(HIGH | CLONE_NEWNET | SIGCHLD), 0, 0, 0);
    EXPECT(-EPERM, __NR_personality, 0x40000, 0, 0, 0);
    EXPECT_OK(__NR_personality, 0xffffffff, 0, 0, 0);
    EXPECT(0, __NR_prlimit64, 0, RLIMIT_CORE, 0, (long)&limit);
    EXPECT(-EPERM, __NR_prlimit64, 0, RLIMIT_CORE, (long)&limit, 0);
    EXPECT(-EPERM, __NR_setrlimit, RLIMIT_CORE, (long)&limit, 0, 0);
    EXPECT(-EPERM, __NR_mknodat, AT_FDCWD, (long)"/dev/shm/never", S_IFCHR, 0);
    EXPECT_OK(__NR_memfd_create, (long)"m", MFD_CLOEXEC, 0, 0);
    EXPECT(-EPERM, __NR_memfd_create, (long)"m", MFD_HUGETLB, 0, 0);
    EXPECT(-ENOMEM, __NR_mmap, 0, 1 << 21, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB);
    EXPECT(-EPERM, __NR_prctl, PR_SET_MM, 0, 0, 0);

    pthread_t thread;
    if (pthread_create(&thread, NULL, thread_main, NULL) || pthread_join(thread, NULL))
        note("a thread", 0, -1, 0);
    pid_t pid = fork();
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", "exit 7", (char *)NULL);
        _exit(1);
    }
    int status = 0;
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 7)
        note("fork, exec and wait", 0, status, 7 << 8);
}

static void test_kernel_argument_rules(void **state)
{
    (void)state;
    assert_clean(in_child(argument_rules, true));
}

static void load_without_no_new_privs(void)
{
    int before = prctl(PR_GET_SECCOMP, 0, 0, 0, 0);
    int ret = seccomp_load(false);
    if (ret != -EACCES)
        note("seccomp_load", 0, ret, -EACCES);
    if (prctl(PR_GET_SECCOMP, 0, 0, 0, 0) != before)
        note("PR_GET_SECCOMP", 0, prctl(PR_GET_SECCOMP, 0, 0, 0, 0), before);
}

static void test_load_needs_no_new_privs(void **state)
{
    (void)state;
    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
        skip(); /* whoever runs the tests has set it, and it cannot be taken back */
    assert_clean(in_child(load_without_no_new_privs, false));
}

#if defined(__x86_64__)
static void call_x32(void)
{
    call(0x40000000 + __NR_getpid, 0, 0, 0, 0);
}

static void call_i386(void)
{
    long ret = 20; /* getpid */
    __asm__ volatile("int $0x80" : "+a"(ret) : : "memory", "r8", "r9", "r10", "r11");
}

static void assert_killed(void (*body)(void))
{
    int status = in_child(body, false);
    bool reachable = WIFEXITED(status); /* a kernel without the ABI may signal by itself */
    status = in_child(body, true);
    assert_true(WIFSIGNALED(status));
    if (reachable)
        assert_int_equal(WTERMSIG(status), SIGSYS);
}

static void test_kernel_kills_foreign_abis(void **state)
{
    (void)state;
    assert_killed(call_x32);
    assert_killed(call_i386);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_number_on_every_arch),
        cmocka_unit_test(test_every_number_with_argument_samples),
        cmocka_unit_test(test_socket_and_prlimit_products),
        cmocka_unit_test(test_examples),
        cmocka_unit_test(test_numbers_match_headers),
        cmocka_unit_test(test_no_number_forgotten),
        cmocka_unit_test(test_kernel_sweep),
        cmocka_unit_test(test_kernel_control),
        cmocka_unit_test(test_kernel_argument_rules),
        cmocka_unit_test(test_load_needs_no_new_privs),
#if defined(__x86_64__)
        cmocka_unit_test(test_kernel_kills_foreign_abis),
#endif
    };
    report =
        mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (report == MAP_FAILED)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
