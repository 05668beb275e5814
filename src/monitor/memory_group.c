/* SPDX-License-Identifier: Apache-2.0 */

/* The server's own control group. It backs up the server's own memory count
 * (state/memory_plan.h). The group is named and locked like the leaves of boxes
 * (cgroup/cgroup.h): a free lock means that its owner is dead, and the next monitor removes it.
 * If possible the group lies in the monitor's own group, so that limits above apply to the
 * server too. */

#include "monitor/monitor.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/id.h"
#include "base/log.h"
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
#define V1_TOP "/sys/fs/cgroup/memory"
#define V2_TOP "/sys/fs/cgroup"

/* How often another monitor may take the new group for one that was left. */
enum { HEX_DIGITS = 32, TRIES = 8 };

/* Files that take the limit. Only the first must exist. */
static const char *const v1_files[] = {
    "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.kmem.tcp.limit_in_bytes"};
static const char *const v2_files[] = {"memory.max"};

/* The path of our group, from the text of /proc/self/cgroup; NULL when there is none. */
static char *own_path(const char *text, bool v2)
{
    const char *mark = v2 ? "0::" : ":memory:";
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

static void random_name(char out[MEMORY_GROUP_NAME])
{
    unsigned char raw[HEX_DIGITS / 2];
    id_random(raw, sizeof(raw));
    size_t len = (size_t)snprintf(out, MEMORY_GROUP_NAME, PREFIX);
    for (size_t i = 0; i < sizeof(raw); i++)
        len += (size_t)snprintf(out + len, MEMORY_GROUP_NAME - len, "%02x", raw[i]);
}

static int write_limit(int fd, bool v2, uint64_t bytes)
{
    const char *const *files = v2 ? v2_files : v1_files;
    size_t count =
        v2 ? sizeof(v2_files) / sizeof(v2_files[0]) : sizeof(v1_files) / sizeof(v1_files[0]);
    char text[32];
    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)bytes);
    for (size_t i = 0; i < count; i++) {
        int r = fs_write_once(fd, files[i], text);
        if (r < 0 && (i == 0 || r != -ENOENT))
            return r;
    }
    return 0;
}

/* Makes a group under a new name and locks it. -EWOULDBLOCK or -ENOENT when the sweep of
 * another monitor was there before the lock: that one removes it. */
static int make_locked(int parent_fd, char name[MEMORY_GROUP_NAME])
{
    struct stat st;
    random_name(name);
    if (mkdirat(parent_fd, name, 0755) < 0)
        return -errno;
    cleanup_close int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 ? -errno : 0;
    if (r == 0 && fstatat(parent_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        r = -errno; /* it was removed between the two */
    if (r < 0)
        (void)unlinkat(parent_fd, name, AT_REMOVEDIR);
    return r < 0 ? r : take_fd(&fd);
}

/* Makes the group below a directory. On v2 that has to hand on the controller. */
static int make_below(struct memory_group *g, const char *dir, bool v2, uint64_t bytes)
{
    char enabled[512];
    cleanup_close int parent = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0)
        return -errno;
    if (v2 && (fs_read_small(parent, "cgroup.subtree_control", enabled, sizeof(enabled)) < 0 ||
                  !strstr(enabled, "memory")))
        return -EOPNOTSUPP;
    sweep(parent);
    cleanup_close int fd = make_locked(parent, g->name);
    for (int i = 1; i < TRIES && (fd == -EWOULDBLOCK || fd == -ENOENT); i++)
        fd = make_locked(parent, g->name);
    int r = fd < 0 ? fd : write_limit(fd, v2, bytes);
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
static int make_group(struct memory_group *g, uint64_t bytes)
{
    char text[8192];
    if (fs_read_small(AT_FDCWD, "/proc/self/cgroup", text, sizeof(text)) < 0)
        return -errno;
    cleanup_free char *v1 = own_path(text, false);
    cleanup_free char *v2 = own_path(text, true);
    bool is_v2 = !v1;
    const char *top = is_v2 ? V2_TOP : V1_TOP;
    if (!v1 && !v2)
        return -ENOENT;
    cleanup_free char *own = xasprintf("%s%s", top, is_v2 ? v2 : v1);
    cleanup_free char *above = xasprintf("%s/..", own);
    int r = make_below(g, own, is_v2, bytes);
    if (r < 0 && is_v2)
        r = make_below(g, above, true, bytes);
    if (r < 0 && geteuid() == 0)
        r = make_below(g, top, is_v2, bytes);
    return r;
}

void memory_group_open(struct memory_group *g, uint64_t limit_mb)
{
    char text[32];
    int r = make_group(g, limit_mb << 20);
    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)limit_mb);
    if (r < 0)
        log_event(LOG_WARN,
            "the server has no control group of its own: its memory is bounded by its own "
            "count alone",
            "reason", strerror(-r), (char *)NULL);
    else
        log_event(LOG_INFO, "memory limit of the server", "mb", text, (char *)NULL);
}

int memory_group_join(const struct memory_group *g)
{
    return g->fd < 0 ? 0 : fs_write_once(g->fd, g->v2 ? "cgroup.procs" : "tasks", "0");
}

void memory_group_close(struct memory_group *g)
{
    if (g->fd >= 0)
        (void)unlinkat(g->parent_fd, g->name, AT_REMOVEDIR);
    close_fd(&g->fd);
    close_fd(&g->parent_fd);
}
