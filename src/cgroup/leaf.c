/* SPDX-License-Identifier: Apache-2.0 */

/* Leaves of boxes: make, limit, enter, kill, remove. usage.c reads their counters, processes.c
 * moves and lists what is in them. A small table says which file of which tree carries each
 * limit, so that v1, v2 and hybrid machines run the same code; host.c finds the trees.
 *
 * A v1 memory group kills one process when the limit is reached, a v2 group (memory.oom.group)
 * kills all of them. To make both behave the same, the v1 leaf has an eventfd that wakes the
 * spawner. The spawner checks and then kills the box. */

#include "cgroup/cgroup.h"

#include "base/cleanup.h"
#include "base/id.h"
#include "base/os/fs.h"
#include "base/str.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* The kernel's default period of a quota. */
enum { CPU_PERIOD_US = 100000 };

/* A limit file: written in trees that have the use and the version. */
struct limit_file {
    unsigned use;
    bool v2;
    uint32_t barrier; /* enum spawn_barrier that leaves it out */
    /* if the file does not exist: NULL is an error, "" is ignored (swap accounting is not
     * always built in), and another file gets 0 instead */
    const char *missing;
    const char *file;
    void (*format)(char *out, size_t size, const struct spawn_limits *limits);
};

/* The quota of a box that may use every core is no limit. The first quota on a machine costs
 * the kernel a code patch. */
static bool quota_needed(const struct spawn_limits *limits)
{
    static unsigned cores;
    cpu_set_t set;
    if (!cores && sched_getaffinity(0, sizeof(set), &set) == 0)
        cores = (unsigned)CPU_COUNT(&set);
    return !cores || limits->cpu_milli < cores * 1000;
}

static void format_memory(char *out, size_t size, const struct spawn_limits *l)
{
    (void)snprintf(out, size, "%llu", (unsigned long long)l->memory_bytes);
}

static void format_pids(char *out, size_t size, const struct spawn_limits *l)
{
    (void)snprintf(out, size, "%u", l->processes + 1); /* box init is one more */
}

static void format_cpu_v1(char *out, size_t size, const struct spawn_limits *l)
{
    if (quota_needed(l))
        (void)snprintf(out, size, "%u", l->cpu_milli * (CPU_PERIOD_US / 1000));
    else
        (void)snprintf(out, size, "-1");
}

static void format_cpu_v2(char *out, size_t size, const struct spawn_limits *l)
{
    if (quota_needed(l))
        (void)snprintf(
            out, size, "%u %d", l->cpu_milli * (CPU_PERIOD_US / 1000), CPU_PERIOD_US);
    else
        (void)snprintf(out, size, "max %d", CPU_PERIOD_US);
}

static void format_zero(char *out, size_t size, const struct spawn_limits *l)
{
    (void)snprintf(out, size, "0");
}

static void format_one(char *out, size_t size, const struct spawn_limits *l)
{
    (void)snprintf(out, size, "1");
}

static const struct limit_file limit_files[] = {
    {TREE_MEMORY, false, BARRIER_MEMORY, NULL, "memory.limit_in_bytes", format_memory},
    /* Where swap is not counted, none may be used: swapped memory would escape the limit. */
    {TREE_MEMORY, false, BARRIER_MEMORY, "memory.swappiness", "memory.memsw.limit_in_bytes",
        format_memory},
    /* Socket buffers: v2 counts them with the rest, v1 apart and without limit. */
    {TREE_MEMORY, false, BARRIER_MEMORY, "", "memory.kmem.tcp.limit_in_bytes", format_memory},
    {TREE_PIDS, false, BARRIER_PIDS, NULL, "pids.max", format_pids},
    {TREE_CPU, false, BARRIER_CPU, NULL, "cpu.cfs_quota_us", format_cpu_v1},
    {TREE_MEMORY, true, BARRIER_MEMORY, NULL, "memory.max", format_memory},
    {TREE_MEMORY, true, BARRIER_MEMORY, "", "memory.swap.max", format_zero},
    {TREE_MEMORY, true, BARRIER_MEMORY, NULL, "memory.oom.group", format_one},
    {TREE_PIDS, true, BARRIER_PIDS, NULL, "pids.max", format_pids},
    {TREE_CPU, true, BARRIER_CPU, NULL, "cpu.max", format_cpu_v2},
};

/* `old` are the limits that the leaf has, or NULL. On v1 the memory limit must never exceed the
 * limit of memory plus swap, which comes after it in the table. So when the limit grows, the
 * table is written from its end. */
static int write_limits(const struct cgroup_tree *tree, int leaf_fd,
    const struct spawn_limits *limits, const struct spawn_limits *old, uint32_t skip)
{
    const size_t count = sizeof(limit_files) / sizeof(limit_files[0]);
    bool grows = old && limits->memory_bytes > old->memory_bytes;
    for (size_t i = 0; i < count; i++) {
        const struct limit_file *f = &limit_files[grows ? count - 1 - i : i];
        if (!(tree->use & f->use) || tree->v2 != f->v2 || (skip & f->barrier))
            continue;
        if (f->use == TREE_CPU && !quota_needed(limits) && !(old && quota_needed(old)))
            continue;
        char text[48];
        f->format(text, sizeof(text), limits);
        int r = fs_write_once(leaf_fd, f->file, text);
        if (r == -ENOENT && f->missing)
            r = f->missing[0] ? fs_write_once(leaf_fd, f->missing, "0") : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

int cgroup_tree_with(const struct cgroup_host *host, unsigned use)
{
    for (unsigned i = 0; i < host->count; i++) {
        if (host->trees[i].use & use)
            return (int)i;
    }
    return -1;
}

bool cgroup_host_is_nested(const struct cgroup_host *host)
{
    return host->count && host->trees[0].name[0];
}

/* Registers an eventfd with memory.oom_control (cgroup v1). */
static int watch_oom_v1(int leaf_fd, int *ret_fd)
{
    cleanup_close int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (event < 0)
        return -errno;
    cleanup_close int control = openat(leaf_fd, "memory.oom_control", O_RDONLY | O_CLOEXEC);
    if (control < 0)
        return -errno;
    char text[32];
    (void)snprintf(text, sizeof(text), "%d %d", event, control);
    int r = fs_write_once(leaf_fd, "cgroup.event_control", text);
    if (r < 0)
        return r;
    *ret_fd = take_fd(&event);
    return 0;
}

int cgroup_leaf_watch_oom(
    const struct cgroup_host *host, struct cgroup_leaf *leaf, uint32_t skip)
{
    int i = cgroup_tree_with(host, TREE_MEMORY);
    if (i < 0 || host->trees[i].v2 || skip & BARRIER_MEMORY || leaf->oom_fd >= 0)
        return 0;
    return watch_oom_v1(leaf->fds[i], &leaf->oom_fd);
}

void cgroup_random_name(char out[CGROUP_NAME])
{
    unsigned char raw[16];
    id_random(raw, sizeof(raw));
    memcpy(out, CGROUP_PREFIX, strlen(CGROUP_PREFIX));
    str_hex(raw, sizeof(raw), out + strlen(CGROUP_PREFIX));
}

int cgroup_give(int fd, gid_t group)
{
    return fchownat(fd, "cgroup.procs", (uid_t)-1, group, 0) < 0 ||
                   fchmodat(fd, "cgroup.procs", 0664, 0) < 0
               ? -errno
               : 0;
}

int cgroup_make_locked(const struct cgroup_tree *tree, const char *name, int *ret_fd)
{
    if (mkdirat(tree->fd, name, 0755) < 0)
        return -errno;
    struct stat mine;
    struct stat named;
    errno = 0; /* the comparison below sets none */
    *ret_fd = openat(tree->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*ret_fd < 0 || flock(*ret_fd, LOCK_EX | LOCK_NB) < 0 || fstat(*ret_fd, &mine) < 0 ||
        fstatat(tree->fd, name, &named, 0) < 0 || mine.st_ino != named.st_ino)
        return errno == EMFILE || errno == ENFILE || errno == ENOMEM ? -errno : -EAGAIN;
    return tree->group ? cgroup_give(*ret_fd, tree->group) : 0;
}

static int make_in_trees(const struct cgroup_host *host, struct cgroup_leaf *leaf)
{
    int r = -EAGAIN;
    for (int attempt = 0; r == -EAGAIN && attempt < 4; attempt++) {
        cgroup_leaf_init(leaf);
        cgroup_random_name(leaf->name);
        r = 0;
        for (unsigned i = 0; r == 0 && i < host->count; i++)
            r = cgroup_make_locked(&host->trees[i], leaf->name, &leaf->fds[i]);
        if (r < 0)
            (void)cgroup_leaf_remove(host, leaf);
    }
    return r;
}

void cgroup_leaf_init(struct cgroup_leaf *leaf)
{
    *leaf = (struct cgroup_leaf){.oom_fd = -1, .weight_fd = -1};
    for (unsigned i = 0; i < CGROUP_MAX_TREES; i++)
        leaf->fds[i] = -1;
    for (unsigned i = 0; i < COUNTER_COUNT; i++)
        leaf->counter_fds[i] = -1;
}

int cgroup_leaf_limit(const struct cgroup_host *host, const struct spawn_limits *limits,
    uint32_t skip, struct cgroup_leaf *leaf)
{
    const struct spawn_limits *old = leaf->is_limited ? &leaf->limits : NULL;
    int r = 0;
    if (old && memcmp(old, limits, sizeof(*old)) == 0)
        return 0;
    for (unsigned i = 0; r == 0 && i < host->count; i++)
        r = write_limits(&host->trees[i], leaf->fds[i], limits, old, skip);
    leaf->limits = *limits;
    leaf->is_limited = r == 0 && !skip;
    return r;
}

int cgroup_leaf_make(const struct cgroup_host *host, const struct spawn_limits *limits,
    uint32_t skip, struct cgroup_leaf *leaf, uint32_t *ret_step)
{
    *ret_step = STEP_CGROUP;
    int r = leaf->name[0] ? 0 : make_in_trees(host, leaf);
    if (r < 0)
        return r;
    *ret_step = STEP_CGROUP_LIMIT;
    if ((r = cgroup_leaf_limit(host, limits, skip, leaf)) < 0) {
        (void)cgroup_leaf_remove(host, leaf);
        cgroup_leaf_init(leaf);
    }
    return r;
}

int cgroup_leaf_into_fd(const struct cgroup_host *host, const struct cgroup_leaf *leaf)
{
    int i = cgroup_tree_with(host, TREE_KILL);
    return i < 0 ? -1 : leaf->fds[i];
}

int cgroup_leaf_open_joins(const struct cgroup_host *host, const struct cgroup_leaf *leaf,
    bool all, int fds[CGROUP_MAX_TREES])
{
    int count = 0;
    for (unsigned i = 0; i < host->count; i++) {
        if (host->trees[i].use & TREE_KILL && !all)
            continue;
        const char *file = host->trees[i].v2 ? "cgroup.procs" : "tasks";
        fds[count] = openat(leaf->fds[i], file, O_WRONLY | O_CLOEXEC);
        if (fds[count] < 0) {
            int error = -errno;
            while (count-- > 0)
                (void)close(fds[count]);
            return error;
        }
        count++;
    }
    return count;
}

static void close_lent(struct cgroup_leaf *leaf)
{
    while (leaf->lent_count)
        close_fd(&leaf->lent_fds[--leaf->lent_count]);
}

int cgroup_leaf_lend(const struct cgroup_host *host, struct cgroup_leaf *leaf,
    int fds[CGROUP_MAX_TREES + 1], unsigned *ret_joins)
{
    if (!leaf->lent_count) {
        int i = cgroup_tree_with(host, TREE_KILL);
        bool has_into = i >= 0 && host->trees[i].group;
        int r = cgroup_leaf_open_joins(host, leaf, !has_into, leaf->lent_fds);
        if (r < 0)
            return r;
        leaf->join_count = leaf->lent_count = (unsigned)r;
        if (has_into) {
            r = openat(leaf->fds[i], ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
            if (r < 0) {
                r = -errno;
                close_lent(leaf);
                return r;
            }
            leaf->lent_fds[leaf->lent_count++] = r;
        }
    }
    memcpy(fds, leaf->lent_fds, sizeof(leaf->lent_fds));
    *ret_joins = leaf->join_count;
    return (int)leaf->lent_count;
}

void cgroup_leaf_weigh(
    const struct cgroup_host *host, struct cgroup_leaf *leaf, uint32_t weight)
{
    enum { SHARES_MIN = 2, V2_MAX = 10000 }; /* limits of the kernel */
    int i = cgroup_tree_with(host, TREE_CPU);
    if (i < 0 || leaf->fds[i] < 0 || leaf->weight == weight || !cgroup_host_is_nested(host))
        return;
    bool v2 = host->trees[i].v2;
    uint32_t least = v2 ? 1 : SHARES_MIN;
    uint64_t value = v2 ? (uint64_t)weight * V2_MAX / WEIGHT_MAX : weight;
    char text[16];
    int len =
        snprintf(text, sizeof(text), "%u", value > least ? (unsigned)value : (unsigned)least);
    if (leaf->weight_fd < 0)
        leaf->weight_fd =
            openat(leaf->fds[i], v2 ? "cpu.weight" : "cpu.shares", O_WRONLY | O_CLOEXEC);
    if (leaf->weight_fd >= 0 && pwrite(leaf->weight_fd, text, (size_t)len, 0) == len)
        leaf->weight = weight;
}

int cgroup_leaf_kill(const struct cgroup_host *host, const struct cgroup_leaf *leaf)
{
    int i = cgroup_tree_with(host, TREE_KILL);
    if (i < 0)
        return -ENOSYS;
    return fs_write_once(leaf->fds[i], "cgroup.kill", "1");
}

int cgroup_leaf_prepare(const struct cgroup_host *host, struct cgroup_leaf *leaf)
{
    int r = make_in_trees(host, leaf);
    if (r < 0)
        return r;
    if ((r = cgroup_leaf_open_counters(host, leaf)) < 0 ||
        (r = cgroup_leaf_watch_oom(host, leaf, 0)) < 0)
        (void)cgroup_leaf_remove(host, leaf);
    else
        cgroup_leaf_weigh(host, leaf, WEIGHT_MAX);
    return r;
}

int cgroup_leaf_freeze(
    const struct cgroup_host *host, const struct cgroup_leaf *leaf, bool is_frozen)
{
    int i = cgroup_tree_with(host, TREE_KILL);
    return i < 0 ? -ENOSYS
                 : fs_write_once(leaf->fds[i], "cgroup.freeze", is_frozen ? "1" : "0");
}

int cgroup_leaf_remove(const struct cgroup_host *host, struct cgroup_leaf *leaf)
{
    int result = 0;
    close_fd(&leaf->oom_fd);
    close_fd(&leaf->weight_fd);
    for (unsigned i = 0; i < COUNTER_COUNT; i++)
        close_fd(&leaf->counter_fds[i]);
    close_lent(leaf);
    for (unsigned i = host->count; i-- > 0;) {
        close_fd(&leaf->fds[i]);
        /* The first tree last, and only if nothing is left in the others: the sweep of the next
         * spawner looks there. */
        if (i == 0 && result < 0)
            break;
        if (unlinkat(host->trees[i].fd, leaf->name, AT_REMOVEDIR) < 0 && errno != ENOENT)
            result = -errno;
    }
    return result;
}
