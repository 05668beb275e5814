/* SPDX-License-Identifier: Apache-2.0 */

/* COMMAND_FILES for a copy (proto/files.h). Box init serves the files of a session, but a copy
 * has no box init in its user and mount namespaces. So the helper is a child of the spawner
 * that enters them. There it gives up every right that box init's helper would not have, before
 * it reads the first byte. */

#include "spawn/copy.h"

#include "base/cleanup.h"
#include "base/sys.h"
#include "box/seccomp.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SPACES = 3 };
static const struct {
    const char *name;
    int flag;
} spaces[SPACES] = {{"pid", CLONE_NEWPID}, {"user", CLONE_NEWUSER}, {"mnt", CLONE_NEWNS}};

static void close_spaces(int fds[SPACES])
{
    for (int i = 0; i < SPACES; i++)
        close_fd(&fds[i]);
}

static int open_spaces(const struct box *box, int fds[SPACES])
{
    int r = 0;
    for (int i = 0; i < SPACES; i++) {
        char path[48];
        (void)snprintf(path, sizeof(path), "/proc/%d/ns/%s", box->pid, spaces[i].name);
        if ((fds[i] = open(path, O_RDONLY | O_CLOEXEC)) < 0)
            r = -errno;
    }
    /* If the process we know is still alive now, the pid was its own. */
    if (r == 0 && sys_pidfd_send_signal(box->pidfd, 0) < 0)
        r = -ESRCH;
    if (r < 0)
        close_spaces(fds);
    return r;
}

/* Forks a child into another pid namespace. A process cannot enter one itself, only its
 * children can, so the spawner points there for one fork. The child is then the spawner's own.
 * If the host's init had to reap it, the end of that pid namespace would wait for that. A
 * spawner that cannot switch back is lost: its next box would be born in this namespace. */
int fork_there(struct spawner *s, int there)
{
    cleanup_close int home = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
    if (home < 0 || setns(there, CLONE_NEWPID) < 0)
        return -errno;
    int pid = sys_fork();
    if (pid != 0 && setns(home, CLONE_NEWPID) < 0)
        s->is_lost = true;
    return pid;
}

static int enter_fork(const struct spawner *s, const struct box *box, const int fds[SPACES])
{
    int r = fork_join(s, &box->leaf);
    for (int i = 1; r == 0 && i < SPACES; i++)
        r = setns(fds[i], spaces[i].flag) < 0 ? -errno : 0;
    return r;
}

static _Noreturn void serve(
    const struct spawner *s, const struct box *box, const int fds[SPACES], int fd)
{
    const struct spawn_box request = {.flags = box->flags, .limits = box->limits};
    const struct inside in = {
        .box = &request, .unique_ids = true, .landlock_abi = s->landlock_abi};
    uint64_t room_bytes = cgroup_leaf_room(&s->cgroups, &box->leaf);
    int r = enter_fork(s, box, fds);
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

void fork_serve_files(struct spawner *s, struct box *box, int fd)
{
    int fds[SPACES];
    fork_reap_files(box, false);
    for (unsigned i = 0; i < FORK_MAX_SERVERS; i++) {
        if (box->servers[i])
            continue;
        int r = open_spaces(box, fds);
        if (r == 0) {
            r = fork_there(s, fds[0]);
            if (r == 0)
                serve(s, box, fds, fd);
            close_spaces(fds);
        }
        if (r > 0)
            box->servers[i] = r;
        else /* the copy is ending, or the machine has no process to spare */
            files_refuse(fd, -EPIPE);
        return;
    }
    files_refuse(fd, -EUSERS);
}
