/* SPDX-License-Identifier: Apache-2.0 */

/* The usage of the boxes of a leaf, and whether another box may have the leaf. A table says
 * which file of which tree holds each counter, for v1 and v2. */

#include "cgroup/cgroup.h"

#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* Most memory in bytes that may still be charged to a leaf when another box takes it, mostly
 * what the kernel caches. It adds to the measured memory of the next box, so it must be
 * small. */
enum { LEFT_MAX = 512 << 10 };

/* Bytes. The largest charge that the kernel kills for is eight pages (of up to 64 KiB), so a
 * kill happens at most this far below the limit. */
enum { LARGEST_CHARGE = 8 * 65536 };

/* Which file and line holds each counter, for v1 and v2. `key` starts the line, or is NULL when
 * the file is one number. */
static const struct counter {
    unsigned use;
    const char *file[2], *key[2];
} counters[] = {
    [COUNTER_CPU] = {TREE_KILL, {NULL, "cpu.stat"}, {NULL, "usage_usec"}},
    [COUNTER_MEMORY] = {TREE_MEMORY, {"memory.usage_in_bytes", "memory.current"}, {0}},
    [COUNTER_PEAK] = {TREE_MEMORY, {"memory.max_usage_in_bytes", "memory.peak"}, {0}},
    [COUNTER_OOM] = {TREE_MEMORY, {"memory.oom_control", "memory.events"},
        {"oom_kill", "oom_kill"}},
    [COUNTER_PIDS] = {TREE_PIDS, {"pids.events", "pids.events"}, {"max", "max"}},
    [COUNTER_TASKS] = {TREE_PIDS, {"pids.current", "pids.current"}, {0}},
    [COUNTER_MOST_TASKS] = {TREE_PIDS, {"pids.peak", "pids.peak"}, {0}},
};
static const struct counter v1_cpu = {TREE_CPUACCT, {"cpuacct.usage", NULL}, {0}};

static const struct counter *counter_of(
    const struct cgroup_host *host, enum cgroup_counter which, int *ret_tree)
{
    const struct counter *c =
        which == COUNTER_CPU && !(host->use & TREE_KILL) ? &v1_cpu : &counters[which];
    *ret_tree = cgroup_tree_with(host, c->use);
    return c;
}

static int open_counter(
    const struct cgroup_host *host, const struct cgroup_leaf *leaf, enum cgroup_counter which)
{
    int tree;
    const struct counter *c = counter_of(host, which, &tree);
    const char *file = tree < 0 ? NULL : c->file[host->trees[tree].v2];
    if (!file)
        return -1;
    /* Writable if possible: writing resets the peak. */
    int fd = which == COUNTER_PEAK ? openat(leaf->fds[tree], file, O_RDWR | O_CLOEXEC) : -1;
    return fd >= 0 ? fd : openat(leaf->fds[tree], file, O_RDONLY | O_CLOEXEC);
}

/* The number after "key " at the start of a line, or the first number line when key is NULL; 0
 * when there is none. */
static uint64_t find_number(char *text, const char *key)
{
    for (char *line = text; line && *line;) {
        char *end = strchr(line, '\n');
        if (end)
            *end++ = '\0';
        const char *value = line;
        if (key) {
            size_t len = strlen(key);
            value = strncmp(line, key, len) == 0 && line[len] == ' ' ? line + len + 1 : NULL;
        }
        uint64_t number;
        if (value && str_parse_u64(value, &number) == 0)
            return number;
        line = end;
    }
    return 0;
}

static uint64_t read_number(int dir_fd, const char *file, const char *key)
{
    char text[8192];
    return fs_read_small(dir_fd, file, text, sizeof(text)) < 0 ? 0 : find_number(text, key);
}

/* `key` replaces the counter's own key, unless it is NULL. */
static bool get_keyed(const struct cgroup_host *host, const struct cgroup_leaf *leaf,
    enum cgroup_counter which, const char *key, uint64_t *ret)
{
    char text[1024];
    int tree;
    cleanup_close int own = leaf->counter_fds[which] < 0 ? open_counter(host, leaf, which) : -1;
    ssize_t n = pread(own < 0 ? leaf->counter_fds[which] : own, text, sizeof(text) - 1, 0);
    if (n <= 0)
        return false;
    text[n] = '\0';
    const struct counter *c = counter_of(host, which, &tree);
    *ret = find_number(text, key ? key : c->key[host->trees[tree].v2]);
    return true;
}

static bool get_counter(const struct cgroup_host *host, const struct cgroup_leaf *leaf,
    enum cgroup_counter which, uint64_t *ret)
{
    return get_keyed(host, leaf, which, NULL, ret);
}

/* 0 when the counter cannot be read: usage is only reported, so a run must not fail because of
 * it. */
static uint64_t read_counter(
    const struct cgroup_host *host, const struct cgroup_leaf *leaf, enum cgroup_counter which)
{
    uint64_t value;
    return get_counter(host, leaf, which, &value) ? value : 0;
}

int cgroup_leaf_open_counters(const struct cgroup_host *host, struct cgroup_leaf *leaf)
{
    int r = 0;
    for (unsigned i = 0; i < COUNTER_COUNT; i++) {
        errno = 0;
        if (leaf->counter_fds[i] < 0)
            leaf->counter_fds[i] = open_counter(host, leaf, i);
        if (errno == EMFILE || errno == ENFILE)
            r = -errno;
    }
    return r;
}

uint64_t cgroup_leaf_memory(const struct cgroup_host *host, const struct cgroup_leaf *leaf)
{
    return read_counter(host, leaf, COUNTER_MEMORY);
}

uint64_t cgroup_leaf_tasks(const struct cgroup_host *host, const struct cgroup_leaf *leaf)
{
    return read_counter(host, leaf, COUNTER_TASKS);
}

uint64_t cgroup_leaf_room(const struct cgroup_host *host, const struct cgroup_leaf *leaf)
{
    int i = cgroup_tree_with(host, TREE_MEMORY);
    if (i < 0)
        return UINT64_MAX;
    int fd = leaf->fds[i];
    bool v2 = host->trees[i].v2;
    char text[64];
    if (fs_read_small(fd, v2 ? "memory.max" : "memory.limit_in_bytes", text, sizeof(text)) < 0)
        return 0;
    uint64_t limit = find_number(text, NULL); /* 0 for "max" */
    uint64_t used = cgroup_leaf_memory(host, leaf);
    /* The kernel drops these pages before it kills a process. */
    uint64_t cached = read_number(fd, "memory.stat", "inactive_file") +
                      read_number(fd, "memory.stat", "active_file");
    used -= cached < used ? cached : used;
    return limit == 0 ? UINT64_MAX : used < limit ? limit - used : 0;
}

/* CPU time of all boxes that had the leaf. */
static uint64_t read_cpu_ns(const struct cgroup_host *host, const struct cgroup_leaf *leaf)
{
    return read_counter(host, leaf, COUNTER_CPU) * (host->use & TREE_KILL ? 1000 : 1);
}

/* Whether the leaf's own limit caused the lack of memory. v2 counts that; v1 only knows the
 * peak. */
static bool has_reached_limit(
    const struct cgroup_host *host, const struct cgroup_leaf *leaf, uint64_t peak_bytes)
{
    uint64_t times;
    if (host->trees[cgroup_tree_with(host, TREE_MEMORY)].v2)
        return get_keyed(host, leaf, COUNTER_OOM, "oom", &times) && times > 0;
    return peak_bytes + LARGEST_CHARGE >= leaf->limits.memory_bytes;
}

bool cgroup_leaf_exists(const struct cgroup_host *host, const struct cgroup_leaf *leaf)
{
    uint64_t kills;
    return get_counter(host, leaf, COUNTER_OOM, &kills);
}

/* Whether `peak`, the largest number of processes that a group ever had, is close to its limit.
 * It need not be equal: the kernel updates the peak without a lock, and when several processes
 * are made at once it may refuse all of them although there was room for one. */
static bool is_full(uint64_t peak, uint64_t limit)
{
    return peak + 1 + limit / 8 > limit;
}

/* Whether the leaf has had as many processes as these limits allow. The kernel never sets the
 * peak back: cgroup_leaf_renew() sees to it that no earlier box had that many. Before Linux 6.1
 * there is no peak: then the leaf is full, and a refusal is the box's own. */
static bool was_full(const struct cgroup_host *host, const struct cgroup_leaf *leaf,
    const struct spawn_limits *limits)
{
    uint64_t peak;
    return !get_counter(host, leaf, COUNTER_MOST_TASKS, &peak) ||
           is_full(peak, (uint64_t)limits->processes + 1);
}

/* Whether the group of all boxes refused a process of this leaf. v1, and v2 before Linux 6.11,
 * count the refusal in the leaf, whichever group above had no room. */
static bool is_crowded(const struct cgroup_host *host, const struct cgroup_leaf *leaf)
{
    int i = cgroup_tree_with(host, TREE_PIDS);
    return i >= 0 && host->processes && !was_full(host, leaf, &leaf->limits) &&
           is_full(read_number(host->trees[i].fd, "pids.peak", NULL), host->processes);
}

uint64_t cgroup_host_refusals(const struct cgroup_host *host)
{
    int i = cgroup_tree_with(host, TREE_PIDS);
    bool can_tell = i >= 0 && host->trees[i].v2 && host->trees[i].name[0];
    return can_tell ? read_number(host->trees[i].fd, "pids.events.local", "max") : 0;
}

void cgroup_leaf_usage(
    const struct cgroup_host *host, const struct cgroup_leaf *leaf, struct cgroup_usage *ret)
{
    bool refused = read_counter(host, leaf, COUNTER_PIDS) > 0;
    bool crowded = refused && is_crowded(host, leaf);
    uint64_t cpu_ns = read_cpu_ns(host, leaf);
    *ret =
        (struct cgroup_usage){.cpu_ns = cpu_ns > leaf->before_ns ? cpu_ns - leaf->before_ns : 0,
            .peak_bytes = read_counter(host, leaf, COUNTER_PEAK),
            .oom_kill = read_counter(host, leaf, COUNTER_OOM) > 0,
            .pids_max = refused && !crowded,
            .crowded = crowded};
    ret->is_limit = ret->oom_kill && has_reached_limit(host, leaf, ret->peak_bytes);
}

/* Whether a counter that cannot be reset would blame the next box, which has these limits, for
 * what an earlier box did. The largest number of processes matters to is_crowded() only. */
static bool tells_of_others(const struct cgroup_host *host, const struct cgroup_leaf *leaf,
    const struct spawn_limits *limits)
{
    uint64_t times = 0;
    uint64_t peak;
    bool v2 = host->trees[cgroup_tree_with(host, TREE_MEMORY)].v2;
    if (v2 && (!get_keyed(host, leaf, COUNTER_OOM, "oom", &times) || times))
        return true;
    return host->processes && get_counter(host, leaf, COUNTER_MOST_TASKS, &peak) &&
           is_full(peak, (uint64_t)limits->processes + 1);
}

bool cgroup_leaf_renew(
    const struct cgroup_host *host, const struct spawn_limits *limits, struct cgroup_leaf *leaf)
{
    static const struct {
        enum cgroup_counter which;
        uint64_t most;
    } bounds[] = {
        {COUNTER_TASKS, 0}, {COUNTER_MEMORY, LEFT_MAX}, {COUNTER_OOM, 0}, {COUNTER_PIDS, 0}};
    uint64_t value;
    /* A pending event would count for the next box. The kernel may report a limit that was
     * reached without counting a kill. */
    if (leaf->oom_fd >= 0 && read(leaf->oom_fd, &value, sizeof(value)) > 0)
        return false;
    for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++) {
        if (!get_counter(host, leaf, bounds[i].which, &value) || value > bounds[i].most)
            return false;
    }
    if (tells_of_others(host, leaf, limits))
        return false;
    value = read_cpu_ns(host, leaf);
    leaf->before_ns = value > leaf->before_ns ? value : leaf->before_ns;
    return pwrite(leaf->counter_fds[COUNTER_PEAK], "0", 1, 0) == 1;
}
