/* SPDX-License-Identifier: Apache-2.0 */

/* Files of a fork (files.h). Box init serves those of a session; a fork has none in its
 * namespaces, so the helper is a child of the spawner that enters them, and gives up there
 * whatever init's helper would not have, before it reads the first byte. */

#include "spawn/fork.h"

#include "spawn/seccomp.h"
#include "spawn/sys.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static int enter_fork(const struct spawner *s, const struct box *box)
{
    static const struct {
        const char *name;
        int flag;
    } kinds[] = {{"pid", CLONE_NEWPID}, {"user", CLONE_NEWUSER}, {"mnt", CLONE_NEWNS}};
    int joins[CGROUP_MAX_TREES];
    int spaces[3];
    for (int i = 0; i < 3; i++) {
        char path[48];
        (void)snprintf(path, sizeof(path), "/proc/%d/ns/%s", box->pid, kinds[i].name);
        if ((spaces[i] = open(path, O_RDONLY | O_CLOEXEC)) < 0)
            return -errno;
    }
    /* The pid is the process we know if that is still alive now. */
    if (sys_pidfd_send_signal(box->pidfd, 0) < 0)
        return -ESRCH;
    int count = cgroup_leaf_open_joins(&s->cgroups, &box->leaf, true, joins);
    for (int i = 0; i < count; i++) {
        int r = cgroup_join(joins[i]);
        if (r < 0)
            return r;
    }
    for (int i = 0; i < 3; i++) {
        if (setns(spaces[i], kinds[i].flag) < 0)
            return -errno;
    }
    return count < 0 ? count : 0;
}

/* A process enters a pid namespace with its children only, and files are put in place by way of
 * /proc/self. */
static int enter_by_child(void)
{
    int status;
    int pid = sys_fork();
    if (pid == 0)
        return prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 ? -errno : 0;
    (void)sys_close_range(0, ~0u, 0);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    _exit(0);
}

static _Noreturn void serve(const struct spawner *s, const struct box *box, int fd)
{
    const struct spawn_box request = {.flags = box->flags, .limits = box->limits};
    const struct inside in = {
        .box = &request, .unique_ids = true, .landlock_abi = s->landlock_abi};
    uint64_t room_bytes = cgroup_leaf_room(&s->cgroups, &box->leaf);
    int r = enter_fork(s, box);
    if (r == 0)
        r = enter_by_child();
    if (r < 0 || drop_bounding(&in) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        seccomp_load() < 0) {
        files_refuse(fd, r < 0 ? r : -EPERM);
        _exit(1);
    }
    files_run(&in, fd, room_bytes);
}

void fork_reap_files(struct box *box, bool is_over)
{
    for (unsigned i = 0; i < FORK_MAX_SERVERS; i++) {
        pid_t pid = box->servers[i];
        if (pid > 0 && is_over)
            (void)kill(pid, SIGKILL);
        if (pid > 0 && waitpid(pid, NULL, is_over ? 0 : WNOHANG) != 0)
            box->servers[i] = 0;
    }
}

void fork_serve_files(const struct spawner *s, struct box *box, int fd)
{
    fork_reap_files(box, false);
    for (unsigned i = 0; i < FORK_MAX_SERVERS; i++) {
        if (box->servers[i])
            continue;
        int pid = sys_fork();
        if (pid == 0)
            serve(s, box, fd);
        if (pid > 0)
            box->servers[i] = pid;
        else
            files_refuse(fd, -EUSERS);
        return;
    }
    files_refuse(fd, -EUSERS);
}
