/* SPDX-License-Identifier: Apache-2.0 */

/* See idmap.h. The kernel takes the map from a user namespace, and a user namespace needs a
 * process. So a child that does nothing is made, its map is written, its namespace is opened,
 * and the child is killed. The namespace then lives in the mount alone; no process is in it. */

#include "spawn/idmap.h"

#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/os/sys.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int start_child(void)
{
    struct sys_clone_args args = {.flags = CLONE_NEWUSER, .exit_signal = SIGCHLD};
    pid_t parent = getpid();
    int pid = sys_clone3(&args);
    if (pid != 0)
        return pid;
    /* The spawner's descriptors are not the child's: a lock or a socket must not outlive it. */
    if (sys_die_with(parent) < 0 || sys_close_range(0, ~0u, 0) < 0)
        _exit(1);
    for (;;)
        (void)pause();
}

static int map_child(int pid, const struct stat *owner, uid_t payload)
{
    char text[48];
    (void)snprintf(text, sizeof(text), "/proc/%d", pid);
    cleanup_close int proc = open(text, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (proc < 0)
        return -errno;
    (void)snprintf(text, sizeof(text), "%u %u 1", owner->st_uid, payload);
    int r = fs_write_once(proc, "uid_map", text);
    (void)snprintf(text, sizeof(text), "%u %u 1", owner->st_gid, payload);
    if (r < 0 || (r = fs_write_once(proc, "gid_map", text)) < 0)
        return r;
    int ns = openat(proc, "ns/user", O_RDONLY | O_CLOEXEC);
    return ns < 0 ? -errno : ns;
}

static int open_namespace(const struct stat *owner, uid_t payload)
{
    int pid = start_child();
    if (pid < 0)
        return pid;
    int ns = map_child(pid, owner, payload);
    (void)kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return ns;
}

int idmap_clone(const char *path, uid_t payload)
{
    struct stat owner;
    cleanup_close int fd = sys_tree_clone(AT_FDCWD, path);
    if (fd < 0)
        return fd;
    if (fstat(fd, &owner) < 0)
        return -errno;
    cleanup_close int ns = open_namespace(&owner, payload);
    if (ns < 0)
        return ns;
    int r = sys_mount_idmap(fd, ns);
    if (r < 0)
        return r == -EINVAL ? -EOPNOTSUPP : r;
    return take_fd(&fd);
}
