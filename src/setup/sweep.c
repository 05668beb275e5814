/* SPDX-License-Identifier: Apache-2.0 */

/* Removes control groups that killed spawners left. cgroup.h says how a dead leaf is
 * recognized. */

#include "setup/setup.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/fs.h"
#include "base/str.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

/* TEXT_MAX: bytes of cgroup.procs that are read. STALE_WAIT_MS: how long the sweep waits for
 * the processes of one dead leaf. */
enum { TEXT_MAX = 65536, STALE_WAIT_MS = 1000 };

/* Kills every process in a group; on v2 also in the groups below it. */
static void kill_in(int fd)
{
    char text[TEXT_MAX];
    uint64_t pid;
    char *save = NULL;
    if (fs_write_once(fd, "cgroup.kill", "1") == 0 ||
        fs_read_small(fd, "cgroup.procs", text, sizeof(text)) < 0)
        return;
    for (char *p = strtok_r(text, "\n", &save); p; p = strtok_r(NULL, "\n", &save)) {
        if (str_parse_u64(p, &pid) == 0 && pid > 1)
            (void)kill((pid_t)pid, SIGKILL);
    }
}

/* Kills every process in the leaves of a spawner's group. */
static void kill_in_children(int fd)
{
    cleanup_closedir DIR *dir = cgroup_list(fd);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (!str_has_prefix(e->d_name, CGROUP_PREFIX))
            continue;
        cleanup_close int child = openat(fd, e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (child >= 0)
            kill_in(child);
    }
}

/* Kills everything in a group and in the groups below it, and removes it. Waits a little for
 * dying processes. */
static void remove_group(int parent_fd, const char *name, uint64_t deadline_ms)
{
    cleanup_close int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    for (;;) {
        kill_in(fd);
        kill_in_children(fd);
        cgroup_remove_children(fd);
        if (unlinkat(parent_fd, name, AT_REMOVEDIR) == 0 || errno != EBUSY ||
            clock_ms() > deadline_ms)
            return;
        (void)nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
}

/* Removes a leaf unless its live owner holds the lock on one of its directories. The lock in
 * the first tree is tried first; for a live leaf that is all. */
static void remove_if_stale(const struct cgroup_host *host, const char *name)
{
    int locks[CGROUP_MAX_TREES];
    bool live = false;
    for (unsigned i = 0; i < host->count; i++) {
        locks[i] =
            live ? -1 : openat(host->trees[i].top_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        /* A group that cannot be opened may be alive. */
        live =
            live || (locks[i] < 0 ? errno != ENOENT : flock(locks[i], LOCK_EX | LOCK_NB) < 0);
    }
    uint64_t deadline_ms = clock_ms() + STALE_WAIT_MS;
    for (unsigned i = host->count; i-- > 0;) {
        if (!live)
            remove_group(host->trees[i].top_fd, name, deadline_ms);
        close_fd(&locks[i]);
    }
}

/* A leaf, or a spawner's own group with all its leaves, is made in the first tree first and
 * removed there last, so all are found there. The v2 tree comes last and goes first: one write
 * there kills everything. Leaves of earlier versions exist in that tree alone. */
void setup_sweep(const struct cgroup_host *host)
{
    for (unsigned i = host->count; i-- > 0;) {
        if (i > 0 && !host->trees[i].v2)
            continue;
        cleanup_closedir DIR *dir = cgroup_list(host->trees[i].top_fd);
        for (struct dirent *e; dir && (e = readdir(dir));) {
            if (str_has_prefix(e->d_name, CGROUP_PREFIX))
                remove_if_stale(host, e->d_name);
        }
    }
}
