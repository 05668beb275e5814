/* SPDX-License-Identifier: Apache-2.0 */

/* Makes a box, step by step, as its pid 1; init.c continues. Pid 1 never reads an untrusted
 * byte: payload.c and collect.c read the package, in processes with the payload's uid and no
 * capability.
 *
 * Pid 1 has an id of its own, is not dumpable and ignores signals from inside (the kernel does
 * that for pid 1). So the payload can neither trace, signal nor read it. */

#include "box/inside.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/fs.h"
#include "base/os/netns.h"
#include "base/os/sys.h"
#include "box/init.h"
#include "box/seccomp.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <linux/keyctl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

int inside_send(const struct inside *in, const struct link_record *record)
{
    ssize_t n;
    while ((n = send(in->link_fd, record, sizeof(*record), MSG_NOSIGNAL)) < 0 && errno == EINTR)
        ;
    return n < 0 ? -errno : 0;
}

static _Noreturn void fail_at(const struct inside *in, uint32_t step, int error, uint32_t which)
{
    (void)inside_send(
        in, &(struct link_record){
                .kind = LINK_FAILED, .step = step, .error = error, .status = (int32_t)which});
    _exit(1);
}

void inside_fail(const struct inside *in, uint32_t step, int error)
{
    fail_at(in, step, error, 0);
}

uint64_t inside_cpu_ns(void)
{
    struct timespec ts;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

int inside_follow(int life_fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || fcntl(life_fd, F_GETLK, &lock) < 0)
        return -errno;
    return lock.l_type == F_UNLCK ? -EPIPE : 0;
}

int inside_die_first(void)
{
    return fs_write_once(AT_FDCWD, "/proc/self/oom_score_adj", "500");
}

/* First step: from here on everything is accounted and limited. */
static int join_cgroups(const struct inside *in)
{
    int r = 0;
    for (int i = 0; r == 0 && i < in->join_count; i++)
        r = sys_cgroup_join(in->join_fds[i]);
    return r;
}

static int compare_int(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

int inside_close_others(int *keep, size_t count)
{
    qsort(keep, count, sizeof(keep[0]), compare_int);
    unsigned from = 3;
    for (size_t i = 0; i < count; i++) {
        if (keep[i] < (int)from)
            continue;
        if ((unsigned)keep[i] > from && sys_close_range(from, (unsigned)keep[i] - 1, 0) < 0)
            return -errno;
        from = (unsigned)keep[i] + 1;
    }
    return sys_close_range(from, ~0u, 0);
}

/* Closes every descriptor but the box's own ends: locks, sockets and control groups of the
 * spawner must not stay open in a box. */
static int close_foreign(const struct inside *in)
{
    int keep[9 + SPAWN_MAX_BOX_MOUNTS] = {in->link_fd, in->life_fd, in->package_fd,
        in->stdin_fd, in->stdout_fd, in->stderr_fd, in->collect_fd, in->hand_fd,
        in->channel_fd};
    memcpy(keep + 9, in->mount_fds, sizeof(in->mount_fds));
    return inside_close_others(keep, sizeof(keep) / sizeof(keep[0]));
}

int inside_wait_go(const struct inside *in)
{
    char go;
    ssize_t n;
    while ((n = recv(in->link_fd, &go, 1, 0)) < 0 && errno == EINTR)
        ;
    return n == 1 ? 0 : n == 0 ? -EPIPE : -errno;
}

/* Waits until the zygote has written the id maps or has failed. If the zygote dies meanwhile,
 * the futex is never woken, but the spawner closes the link. */
static int wait_maps(const struct inside *in)
{
    const struct timespec nap = {.tv_nsec = 100000000};
    struct pollfd link = {.fd = in->link_fd, .events = 0};
    while (!atomic_load(in->maps)) {
        (void)syscall(SYS_futex, in->maps, FUTEX_WAIT, 0, &nap, NULL, 0);
        if (poll(&link, 1, 0) != 0)
            return -EPIPE;
    }
    return atomic_load(in->maps) > 0 ? 0 : -EPERM;
}

/* Waits until the id maps are written. The go-ahead comes after them, so most boxes wait for
 * that. A warm run keeps its zygote from making other boxes, so it waits for the maps only; it
 * takes its go-ahead after it has left the zygote's memory. */
static int wait_release(const struct inside *in)
{
    if (in->maps)
        return wait_maps(in);
    int r = inside_follow(in->life_fd);
    return r < 0 ? r : inside_wait_go(in);
}

/* Makes the box one of the first to die when the host is out of memory (children of a zygote
 * inherit that), and forbids further user namespaces. Copying a session raises that limit for a
 * moment (spawn/copy.h). Both files are in the host's /proc, which is still visible here. */
static int limit_self(const struct inside *in)
{
    int r = in->is_warm ? 0 : inside_die_first();
    if (r < 0)
        return r;
    if (in->box->remove & BARRIER_USERNS_MAX)
        return 0;
    return fs_write_once(AT_FDCWD, "/proc/sys/user/max_user_namespaces", "0");
}

/* Takes box init's id. From here on the kernel kills box init when the spawner ends. */
static int take_identity(const struct inside *in)
{
    unsigned id = drop_init_id(in);
    if (prctl(PR_SET_SECUREBITS, INSIDE_SECUREBITS, 0, 0, 0) < 0 || setresgid(id, id, id) < 0 ||
        setresuid(id, id, id) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return -errno;
    int r = inside_follow(in->life_fd);
    (void)close(in->life_fd);
    return r;
}

static int start_session(const struct inside *in)
{
    if (setsid() < 0)
        return -errno;
    if (!(in->box->remove & BARRIER_UTSNS) && sethostname("box", 3) < 0)
        return -errno;
    if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0 && errno != ENOSYS)
        return -errno;
    return 0;
}

/* Does not use a flag of clone3: the v1 groups are joined after it, and the namespace would
 * show host paths. */
static int hide_cgroups(const struct inside *in)
{
    if (in->box->remove & BARRIER_CGROUPNS)
        return 0;
    return unshare(CLONE_NEWCGROUP) < 0 ? -errno : 0;
}

static int raise_loopback(const struct inside *in)
{
    return in->has_network || in->box->remove & BARRIER_NETNS ? 0 : netns_raise_loopback();
}

static int set_no_new_privs(const struct inside *in)
{
    if (in->box->remove & BARRIER_NNP)
        return 0;
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : 0;
}

/* Loaded in box init, before the fork: from here on every process of the box is filtered,
 * including those that read the package. The remaining steps need nothing that the filter
 * refuses. */
static int load_filter(const struct inside *in)
{
    return in->box->remove & (BARRIER_SECCOMP | BARRIER_NNP)
               ? 0
               : seccomp_load(in->box->flags & BOX_ROOT);
}

static const struct {
    uint32_t step;
    int (*run)(const struct inside *in);
} steps_before[] =
    {
        {STEP_CGROUP_JOIN, join_cgroups},
        {STEP_FDS, close_foreign},
        {STEP_DROP, drop_bounding},
        {STEP_RELEASE, wait_release},
        {STEP_USERNS_MAX, limit_self},
        {STEP_IDENTITY, take_identity},
        {STEP_SESSION, start_session},
        {STEP_CGROUPNS, hide_cgroups},
        {STEP_NETWORK, raise_loopback},
},
  steps_after[] = {
      {STEP_RLIMITS, drop_rlimits},
      {STEP_DROP, set_no_new_privs},
      {STEP_SECCOMP, load_filter},
};

/* Runs in the process that is, or becomes, the program. */
static void be_payload(const struct inside *in)
{
    struct payload_words words;
    payload_enter(in);
    if (in->is_warm)
        return;
    if (in->hand_fd >= 0)
        payload_park(in, &words);
    else
        payload_begin(in, &words);
    payload_exec(in, &words);
}

/* Waits until box init is a program of its own, and reads how much CPU time the set-up took. */
static void wait_at_gate(struct inside *in, int gate)
{
    ssize_t n;
    while ((n = read(gate, &in->init_cpu_ns, sizeof(in->init_cpu_ns))) < 0 && errno == EINTR)
        ;
    if (n != (ssize_t)sizeof(in->init_cpu_ns))
        _exit(1);
    (void)close(gate);
}

/* Box init shares the zygote's memory. It forks the program's process, which gets a copy of
 * that memory. Then it leaves the memory itself by executing a small program, before any
 * untrusted code runs. */
static void leave_memory(struct inside *in)
{
    int gate[2];
    if (pipe2(gate, O_CLOEXEC) < 0)
        inside_fail(in, STEP_FORK, -errno);
    int payload = sys_fork();
    if (payload < 0)
        inside_fail(in, STEP_FORK, payload);
    if (payload > 0)
        inside_fail(in, STEP_INIT, init_exec(in, payload, gate[1]));
    (void)close(gate[1]);
    be_payload(in);
    wait_at_gate(in, gate[0]);
}

void inside_run(struct inside *in)
{
    int r;
    uint32_t step;
    uint32_t which;
    for (size_t i = 0; i < sizeof(steps_before) / sizeof(steps_before[0]); i++) {
        if ((r = steps_before[i].run(in)) < 0)
            inside_fail(in, steps_before[i].step, r);
    }
    if ((r = mounts_enter(in, &step, &which)) < 0)
        fail_at(in, step, r, which);
    for (size_t i = 0; i < sizeof(steps_after) / sizeof(steps_after[0]); i++) {
        if ((r = steps_after[i].run(in)) < 0)
            inside_fail(in, steps_after[i].step, r);
    }
    if (in->shares_memory)
        leave_memory(in);
    else if (init_run(in) == 0)
        be_payload(in);
}
