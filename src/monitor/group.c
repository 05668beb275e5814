/* SPDX-License-Identifier: Apache-2.0 */

/* The control groups of the programs that the monitor starts. The server's backs up its own
 * memory count (state/memory_plan.h); that of egress bounds its socket buffers. A group is
 * named and locked like the leaves of boxes (cgroup/cgroup.h): a free lock means that its owner
 * is dead, and the next monitor removes it. If possible the group lies in the monitor's own
 * group, so that limits above apply to the program too. */

#include "monitor/monitor.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/id.h"
#include "base/log.h"
#include "base/os/fs.h"
#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX "hermes-"
#define TOP "/sys/fs/cgroup"

/* How often another monitor may take the new group for one that was left. */
enum { HEX_DIGITS = 32, TRIES = 8, CPU_PERIOD_US = 100000 };

/* A controller, and how its limit is written. */
struct controller {
    const char *name;
    const char *v1_mark; /* in /proc/self/cgroup */
    int (*limit)(int fd, bool v2, uint64_t value);
};

static int limit_memory(int fd, bool v2, uint64_t bytes)
{
    /* Only the first file must exist. */
    static const char *const v1_files[] = {"memory.limit_in_bytes",
        "memory.memsw.limit_in_bytes", "memory.kmem.tcp.limit_in_bytes"};
    char text[32];
    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)bytes);
    if (v2)
        return fs_write_once(fd, "memory.max", text);
    for (size_t i = 0; i < sizeof(v1_files) / sizeof(v1_files[0]); i++) {
        int r = fs_write_once(fd, v1_files[i], text);
        if (r < 0 && (i == 0 || r != -ENOENT))
            return r;
    }
    return 0;
}

static int limit_cpu(int fd, bool v2, uint64_t milli)
{
    char text[64];
    unsigned long long quota_us = milli * CPU_PERIOD_US / 1000;
    (void)snprintf(text, sizeof(text), v2 ? "%llu %d" : "%llu", quota_us, CPU_PERIOD_US);
    return fs_write_once(fd, v2 ? "cpu.max" : "cpu.cfs_quota_us", text);
}

static const struct controller memory = {"memory", ":memory:", limit_memory};
static const struct controller cpu = {"cpu", ":cpu:", limit_cpu};
/* the usual names of the same, where the two are one hierarchy */
static const struct controller cpu_pair = {"cpu", ":cpu,cpuacct:", limit_cpu};

/* The path of our group, from the text of /proc/self/cgroup; NULL when there is none. */
static char *own_path(const char *text, const char *mark, bool v2)
{
    const char *at = v2 && str_has_prefix(text, mark) ? text : NULL;
    cleanup_free char *after_line = xasprintf("\n%s", mark);
    if (!at && (at = strstr(text, v2 ? after_line : mark)))
        at += v2 ? 1 : 0;
    return at ? xstrndup(at + strlen(mark), strcspn(at + strlen(mark), "\n")) : NULL;
}

static bool is_group(const char *name)
{
    return str_has_prefix(name, PREFIX) && strlen(name) == strlen(PREFIX) + HEX_DIGITS;
}

/* Removes groups of dead monitors. A group that still has processes stays until the next time.
 */
static void sweep(int parent_fd)
{
    int fd = openat(parent_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cleanup_closedir DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        cleanup_close int group = is_group(e->d_name) ? openat(parent_fd, e->d_name,
                                                            O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                                                      : -1;
        if (group >= 0 && flock(group, LOCK_EX | LOCK_NB) == 0)
            (void)unlinkat(parent_fd, e->d_name, AT_REMOVEDIR);
    }
}

static void random_name(char out[GROUP_NAME])
{
    unsigned char raw[HEX_DIGITS / 2];
    id_random(raw, sizeof(raw));
    int len = snprintf(out, GROUP_NAME, PREFIX);
    str_hex(raw, sizeof(raw), out + len);
}

/* Makes a group under a new name and locks it. -EWOULDBLOCK or -ENOENT when the sweep of
 * another monitor was there before the lock: the other monitor removes it. */
static int make_locked(int parent_fd, char name[GROUP_NAME])
{
    struct stat st;
    random_name(name);
    if (mkdirat(parent_fd, name, 0755) < 0)
        return -errno;
    cleanup_close int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 ? -errno : 0;
    if (r == 0 && fstatat(parent_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        r = -errno; /* the group was removed between the two calls */
    if (r < 0)
        (void)unlinkat(parent_fd, name, AT_REMOVEDIR);
    return r < 0 ? r : take_fd(&fd);
}

/* Makes the group below a directory. On v2 the directory must hand on the controller. */
static int make_below(struct group_dir *g, const char *dir, const struct controller *what,
    bool v2, uint64_t value)
{
    char enabled[512];
    cleanup_close int parent = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0)
        return -errno;
    if (v2 && (fs_read_small(parent, "cgroup.subtree_control", enabled, sizeof(enabled)) < 0 ||
                  !strstr(enabled, what->name)))
        return -EOPNOTSUPP;
    sweep(parent);
    cleanup_close int fd = make_locked(parent, g->name);
    for (int i = 1; i < TRIES && (fd == -EWOULDBLOCK || fd == -ENOENT); i++)
        fd = make_locked(parent, g->name);
    int r = fd < 0 ? fd : what->limit(fd, v2, value);
    if (r < 0) {
        if (fd >= 0)
            (void)unlinkat(parent, g->name, AT_REMOVEDIR);
        return r;
    }
    g->v2 = v2;
    g->fd = take_fd(&fd);
    g->parent_fd = take_fd(&parent);
    return 0;
}

/* Tries our own group, then the group above it (the spawner may have moved us into a leaf),
 * then, for root, the top. */
static int make_group(struct group_dir *g, const struct controller *what, uint64_t value)
{
    char text[8192];
    if (fs_read_small(AT_FDCWD, "/proc/self/cgroup", text, sizeof(text)) < 0)
        return -errno;
    cleanup_free char *v1 = own_path(text, what->v1_mark, false);
    cleanup_free char *v2 = own_path(text, "0::", true);
    bool is_v2 = !v1;
    if (!v1 && !v2)
        return -ENOENT;
    cleanup_free char *top = xasprintf(TOP "%s%s", is_v2 ? "" : "/", is_v2 ? "" : what->name);
    cleanup_free char *own = xasprintf("%s%s", top, is_v2 ? v2 : v1);
    cleanup_free char *above = xasprintf("%s/..", own);
    int r = make_below(g, own, what, is_v2, value);
    if (r < 0 && is_v2)
        r = make_below(g, above, what, true, value);
    if (r < 0 && geteuid() == 0)
        r = make_below(g, top, what, is_v2, value);
    return r;
}

/* On v2 the group that limits memory limits processors too. */
static int make_cpu(struct group *g, uint64_t milli)
{
    if (g->memory.fd >= 0 && g->memory.v2)
        return limit_cpu(g->memory.fd, true, milli);
    int r = make_group(&g->cpu, &cpu, milli);
    return r < 0 ? make_group(&g->cpu, &cpu_pair, milli) : r;
}

/* A program and its limits. */
struct limited {
    const char *program;
    struct group *group;
    bool is_wanted;
    uint64_t memory_mb;
    uint32_t cpu_milli; /* thousandths of a core; 0: no limit */
};

static void open_group(const struct limited *l)
{
    char text[32];
    int r = make_group(&l->group->memory, &memory, l->memory_mb << 20);
    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)l->memory_mb);
    if (r < 0)
        log_event(LOG_WARN,
            "a program has no control group of its own: only its own limits bound its memory",
            "program", l->program, "reason", strerror(-r), (char *)NULL);
    else
        log_event(LOG_INFO, "memory limit of a program", "program", l->program, "mb", text,
            (char *)NULL);
    if (l->cpu_milli && (r = make_cpu(l->group, l->cpu_milli)) < 0)
        log_event(LOG_WARN, "a program has no limit of processor time", "program", l->program,
            "reason", strerror(-r), (char *)NULL);
}

void groups_open(struct monitor *m)
{
    const struct handover_plan *p = &m->plan;
    const struct limited fixed[] = {
        {"hermes-server", &m->server_group, true, p->server_memory_mb, 0},
        {"hermes-egress", &m->egress_group, p->has_egress, p->egress_memory_mb,
            p->egress_cpu_milli},
        {"hermes-inject", &m->inject_group, p->has_secrets, p->egress_memory_mb,
            p->egress_cpu_milli},
    };
    for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++) {
        if (fixed[i].is_wanted)
            open_group(&fixed[i]);
    }
    for (int i = 0; i < OUTSIDE_COUNT; i++) {
        const struct limited outside = {.program = outside_name(i),
            .group = &m->outside_groups[i],
            .memory_mb = p->outside[i].memory_mb};
        if (p->outside[i].is_wanted)
            open_group(&outside);
    }
}

static int join(const struct group_dir *g)
{
    return g->fd < 0 ? 0 : fs_write_once(g->fd, g->v2 ? "cgroup.procs" : "tasks", "0");
}

int group_join(const struct group *g)
{
    int r = join(&g->memory);
    return r < 0 ? r : join(&g->cpu);
}

static void close_dir(struct group_dir *g)
{
    if (g->fd >= 0)
        (void)unlinkat(g->parent_fd, g->name, AT_REMOVEDIR);
    close_fd(&g->fd);
    close_fd(&g->parent_fd);
}

static void close_group(struct group *g)
{
    close_dir(&g->memory);
    close_dir(&g->cpu);
}

void groups_close(struct monitor *m)
{
    close_group(&m->server_group);
    close_group(&m->egress_group);
    close_group(&m->inject_group);
    for (int i = 0; i < OUTSIDE_COUNT; i++)
        close_group(&m->outside_groups[i]);
}
