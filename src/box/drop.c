/* SPDX-License-Identifier: Apache-2.0 */

/* Gives up rights: resource limits, ids, capabilities. */

#include "base/os/sys.h"
#include "box/inside.h"

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

/* CPU seconds that a program may use before it has its package; hermes_warm_begin() takes the
 * rest back. */
enum { PARK_CPU_S = 60 };

/* Lowers a limit. Without CAP_SYS_RESOURCE a hard limit cannot be raised, so a lower one
 * stays. */
static int drop_rlimit(int resource, rlim_t value)
{
    struct rlimit limit = {.rlim_cur = value, .rlim_max = value};
    if (setrlimit((unsigned)resource, &limit) == 0)
        return 0;
    if (errno != EPERM || getrlimit((unsigned)resource, &limit) < 0)
        return -errno;
    if (limit.rlim_max >= value)
        return -EPERM;
    limit.rlim_cur = limit.rlim_max;
    return setrlimit((unsigned)resource, &limit) < 0 ? -errno : 0;
}

/* The second line of defence behind the cgroups. RLIMIT_FSIZE is set later, for the payload
 * only (payload.c): the files of the run may be larger than what it may write itself.
 * RLIMIT_CORE is 1, not 0: a core_pattern that pipes to a program ignores 0 and takes 1 as "do
 * not dump". */
int drop_rlimits(const struct inside *in)
{
    const struct spawn_limits *l = &in->box->limits;
    if (in->box->remove & BARRIER_RLIMITS)
        return 0;
    /* The control group counts box init; RLIMIT_NPROC counts by uid. The group should be hit
     * first, because it reports that. So RLIMIT_NPROC leaves one more, and room for a box init
     * with the same uid. */
    bool is_parked = in->hand_fd >= 0; /* the package brings its own limits (warm/warm.c) */
    rlim_t processes = (rlim_t)l->processes + (in->unique_ids ? 1 : 2);
    /* copies count with their original here; their control groups limit them */
    if (in->box->flags & BOX_FORKS)
        processes *= 1 + SPAWN_MAX_FORKS;
    const struct {
        int resource;
        rlim_t value;
        bool use;
    } limits[] = {
        {RLIMIT_CORE, 1, true},
        {RLIMIT_NOFILE, l->open_files, true},
        {RLIMIT_STACK, l->stack_bytes, true},
        {RLIMIT_MEMLOCK, 65536, true},
        {RLIMIT_MSGQUEUE, 0, true}, /* counted against root for all boxes together */
        {RLIMIT_SIGPENDING, 256, true},
        {RLIMIT_NICE, 0, true},
        {RLIMIT_RTPRIO, 0, true},
        {RLIMIT_CPU, l->cpu_s + PARK_CPU_S, is_parked && !in->is_warm},
        {RLIMIT_CPU, l->cpu_s,
            !is_parked && !(in->box->flags & BOX_CHANNEL)}, /* a session lives long */
        {RLIMIT_NPROC, processes, !(in->box->remove & BARRIER_PIDS)},
        {RLIMIT_AS, l->memory_bytes, !in->has_memory && !(in->box->remove & BARRIER_MEMORY)},
    };
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        if (!limits[i].use)
            continue;
        int r = drop_rlimit(limits[i].resource, limits[i].value);
        if (r < 0)
            return r;
    }
    return 0;
}

static int set_capabilities(uint64_t keep, uint64_t inheritable)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{.effective = (uint32_t)keep,
                                                 .permitted = (uint32_t)keep,
                                                 .inheritable = (uint32_t)inheritable},
        {.effective = (uint32_t)(keep >> 32),
            .permitted = (uint32_t)(keep >> 32),
            .inheritable = (uint32_t)(inheritable >> 32)}};
    return sys_result(syscall(SYS_capset, &head, data));
}

/* The capabilities that box init needs to empty the box and to start the collector, or the next
 * program of a session, under the payload's id. */
static const uint64_t INIT_CAPS =
    1ull << CAP_SETUID | 1ull << CAP_SETGID | 1ull << CAP_KILL | 1ull << CAP_SETPCAP;

int drop_bounding(const struct inside *in)
{
    if (in->box->remove & BARRIER_CAPS)
        return 0;
    /* A capability can become inheritable only while it is in the bounding set. */
    int r = in->shares_memory ? set_capabilities(~0ull, INIT_CAPS) : 0;
    if (r < 0)
        return r;
    for (int cap = 0; cap < 64; cap++) {
        if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
            return errno == EINVAL && cap > CAP_LAST_CAP ? 0 : -errno;
    }
    return 0;
}

/* For a control that shows what capabilities would allow: keeps those of its own user namespace
 * across exec, by the ambient set. */
static int keep_capabilities(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &head, data) < 0)
        return -errno;
    data[0].inheritable = data[0].permitted;
    data[1].inheritable = data[1].permitted;
    if (syscall(SYS_capset, &head, data) < 0)
        return -errno;
    for (int cap = 0; cap <= CAP_LAST_CAP; cap++)
        (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0);
    return 0;
}

unsigned drop_init_id(const struct inside *in)
{
    return in->unique_ids && !(in->box->flags & BOX_ROOT) ? BOX_INIT_ID : BOX_PAYLOAD_ID;
}

unsigned drop_payload_id(const struct inside *in)
{
    if (in->unique_ids && in->box->remove & BARRIER_UID)
        return drop_init_id(in);
    return in->box->flags & BOX_ROOT ? BOX_INIT_ID : BOX_PAYLOAD_ID;
}

int drop_to_payload(const struct inside *in)
{
    unsigned id = drop_payload_id(in);
    if (setresgid(id, id, id) < 0 || setresuid(id, id, id) < 0)
        return -errno;
    if (getuid() != id || getgid() != id) /* a filter may have answered */
        return -EPERM;
    if (in->box->remove & BARRIER_CAPS)
        return keep_capabilities();
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
        return -errno;
    return set_capabilities(0, 0);
}

int drop_init(bool starts_another)
{
    return set_capabilities(starts_another ? INIT_CAPS : 0, 0);
}

int drop_keep_over_exec(void)
{
    for (int cap = 0; cap <= CAP_LAST_CAP; cap++) {
        if (INIT_CAPS & 1ull << cap &&
            prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0) < 0)
            return -errno;
    }
    return 0;
}

/* The watcher of a terminal may kill its shell, and nothing else. */
int drop_watcher(void)
{
    return set_capabilities(1ull << CAP_KILL, 0);
}
