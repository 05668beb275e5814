/* SPDX-License-Identifier: Apache-2.0 */

/* Leaves of boxes. A small table says which file of which tree carries each limit, so that v1,
 * v2 and hybrid machines run the same code; host.c finds the trees.
 *
 * A v1 memory group kills one process when the limit is reached, a v2 group (memory.oom.group)
 * kills all of them. To make both behave the same, the v1 leaf has an eventfd that wakes the
 * spawner. The spawner checks and then kills the box. */

#include "cgroup/cgroup.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/id.h"
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

/* Most memory in bytes that may still be charged to a leaf when another box takes it, mostly
 * what the kernel caches. It adds to the measured memory of the next box, so it must be
 * small. */
enum { LEFT_MAX = 512 << 10 };

/* Bytes. The largest charge that the kernel kills for is eight pages (of up to 64 KiB), so a
 * kill happens at most this far below the limit. */
enum { LARGEST_CHARGE = 8 * 65536 };

/* CPU_PERIOD_US: the kernel's default period of a quota. FREEZE_*: cgroup_leaf_settle() looks
 * 10,000 times, every 50 us: half a second. */
enum { CPU_PERIOD_US = 100000, FREEZE_TRIES = 10000, FREEZE_NAP_NS = 50000 };

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
    static const char hex[] = "0123456789abcdef";
    unsigned char raw[16];
    id_random(raw, sizeof(raw));
    memcpy(out, CGROUP_PREFIX, strlen(CGROUP_PREFIX));
    char *to = out + strlen(CGROUP_PREFIX);
    for (unsigned i = 0; i < sizeof(raw); i++) {
        *to++ = hex[raw[i] >> 4];
        *to++ = hex[raw[i] & 15];
    }
    *to = '\0';
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
    if (tree->group && (fchownat(*ret_fd, "cgroup.procs", (uid_t)-1, tree->group, 0) < 0 ||
                           fchmodat(*ret_fd, "cgroup.procs", 0664, 0) < 0))
        return -errno;
    return 0;
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

/* 0 when it cannot be read: usage is only reported, and must not fail a run. */
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

/* Whether `peak`, the most processes that a group ever had, is about as many as it may have.
 * The kernel notes the most without a lock, and refuses several that come at once although one
 * of them had room. */
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

/* Whether a counter that cannot be set back would tell the next box, which has these limits, of
 * an earlier one. Only is_crowded() asks how many processes there were. */
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

int cgroup_leaf_move(const struct cgroup_host *host, const struct cgroup_leaf *leaf, pid_t pid)
{
    char text[16];
    int r = 0;
    (void)snprintf(text, sizeof(text), "%d", pid);
    for (unsigned i = 0; r == 0 && i < host->count; i++)
        r = fs_write_once(leaf->fds[i], "cgroup.procs", text);
    return r;
}

int cgroup_leaf_freeze(
    const struct cgroup_host *host, const struct cgroup_leaf *leaf, bool is_frozen)
{
    int i = cgroup_tree_with(host, TREE_KILL);
    return i < 0 ? -ENOSYS
                 : fs_write_once(leaf->fds[i], "cgroup.freeze", is_frozen ? "1" : "0");
}

int cgroup_leaf_settle(const struct cgroup_host *host, const struct cgroup_leaf *leaf)
{
    int i = cgroup_tree_with(host, TREE_KILL);
    char text[256];
    for (int n = 0; i >= 0 && n < FREEZE_TRIES; n++) {
        if (fs_read_small(leaf->fds[i], "cgroup.events", text, sizeof(text)) > 0 &&
            strstr(text, "frozen 1"))
            return 0;
        (void)nanosleep(&(struct timespec){.tv_nsec = FREEZE_NAP_NS}, NULL);
    }
    return i < 0 ? -ENOSYS : -ETIMEDOUT;
}

int cgroup_leaf_pids(const struct cgroup_host *host, const struct cgroup_leaf *leaf,
    pid_t *ret_pids, unsigned max)
{
    char text[16384];
    unsigned count = 0;
    int i = cgroup_tree_with(host, TREE_KILL);
    ssize_t n =
        i < 0 ? -ENOSYS : fs_read_small(leaf->fds[i], "cgroup.procs", text, sizeof(text));
    if (n < 0)
        return (int)n;
    char *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        uint64_t pid;
        if (count == max || str_parse_u64(line, &pid) < 0)
            return -E2BIG;
        ret_pids[count++] = (pid_t)pid;
    }
    return (int)count;
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
