/* SPDX-License-Identifier: Apache-2.0 */

/* Moves a process into a leaf, waits until a leaf is frozen, lists its processes. hermes-fork
 * alone needs this, so it is not linked into the spawner. */

#include "cgroup/cgroup.h"

#include "base/os/fs.h"
#include "base/str.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* cgroup_leaf_settle() looks 10,000 times, every 50 us: half a second. */
enum { FREEZE_TRIES = 10000, FREEZE_NAP_NS = 50000 };

int cgroup_leaf_move(const struct cgroup_host *host, const struct cgroup_leaf *leaf, pid_t pid)
{
    char text[16];
    int r = 0;
    (void)snprintf(text, sizeof(text), "%d", pid);
    for (unsigned i = 0; r == 0 && i < host->count; i++)
        r = fs_write_once(leaf->fds[i], "cgroup.procs", text);
    return r;
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
