/* SPDX-License-Identifier: Apache-2.0 */

/* Files (files.h) and terminals (terminal.h) of a fork. Box init serves those of a session; a
 * fork has none in its namespaces, so the helper is a child of the spawner that enters them,
 * and gives up there whatever init's helper would not have, before it reads the first byte. */

#include "spawn/fork.h"

#include "base/fs.h"
#include "spawn/seccomp.h"
#include "spawn/sys.h"

#include <fcntl.h>
#include <linux/keyctl.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Where the fork's family lives, and where it lives itself. */
enum {
    FAMILY_SPACES = CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP,
    OWN_SPACES = CLONE_NEWUSER | CLONE_NEWNS,
};

static int enter_fork(const struct spawner *s, const struct box *box)
{
    int joins[CGROUP_MAX_TREES];
    int count = cgroup_leaf_open_joins(&s->cgroups, &box->leaf, true, joins);
    for (int i = 0; i < count; i++) {
        int r = cgroup_join(joins[i]);
        if (r < 0)
            return r;
    }
    /* In this order: in its own user namespace we have no right to those of the family. */
    if (count < 0 || setns(box->pidfd, FAMILY_SPACES) < 0 || setns(box->pidfd, OWN_SPACES) < 0)
        return count < 0 ? count : -errno;
    return 0;
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

/* What a box's init has done before it forks. */
static int confine(const struct inside *in)
{
    int r = drop_bounding(in);
    if (r == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        r = -errno;
    return r < 0 ? r : seccomp_load();
}

static _Noreturn void serve_files(const struct spawner *s, const struct box *box, int fd)
{
    const struct spawn_box request = {.flags = box->flags, .limits = box->limits};
    const struct inside in = {
        .box = &request, .unique_ids = true, .landlock_abi = s->landlock_abi};
    uint64_t room_bytes = cgroup_leaf_room(&s->cgroups, &box->leaf);
    int r = enter_fork(s, box);
    if (r < 0 || (r = enter_by_child()) < 0 || (r = confine(&in)) < 0) {
        files_refuse(fd, r);
        _exit(1);
    }
    files_run(&in, fd, room_bytes);
}

/* In the process of the shell: the rest of what a box's program is born with. */
static int confine_shell(const struct inside *in)
{
    const unsigned long bits = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |
                               SECBIT_NO_SETUID_FIXUP_LOCKED;
    if (prctl(PR_SET_SECUREBITS, bits, 0, 0, 0) < 0 ||
        (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0 && errno != ENOSYS))
        return -errno;
    int r = drop_rlimits(in);
    return r < 0 ? r : confine(in);
}

static _Noreturn void serve_terminal(
    const struct spawner *s, const struct box *box, const int fds[2])
{
    const struct spawn_box request = {
        .flags = s->boxes[box->root].flags, .limits = box->limits};
    const struct inside in = {.box = &request,
        .unique_ids = true,
        .has_memory = true,
        .landlock_abi = s->landlock_abi,
        .hand_fd = -1};
    const struct terminal_order order = {.fd = fds[0], .job_fd = fds[1]};
    int r = fs_write_once(AT_FDCWD, "/proc/self/oom_score_adj", "500");
    if (r == 0)
        r = enter_fork(s, box);
    if (r == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        r = -errno;
    if (r < 0) {
        terminal_refuse(fds[0], r);
        _exit(1);
    }
    terminal_run(&in, &order, confine_shell);
}

void fork_reap_servers(struct box *box, bool is_over)
{
    for (unsigned i = 0; i < FORK_MAX_SERVERS; i++) {
        pid_t pid = box->servers[i];
        if (pid > 0 && is_over)
            (void)kill(pid, SIGKILL);
        if (pid > 0 && waitpid(pid, NULL, is_over ? 0 : WNOHANG) != 0)
            box->servers[i] = 0;
    }
}

/* A child for a server of this fork: its pid, 0 in the child, -EUSERS when there are enough. */
static int fork_server(struct box *box)
{
    fork_reap_servers(box, false);
    for (unsigned i = 0; i < FORK_MAX_SERVERS; i++) {
        if (box->servers[i])
            continue;
        int pid = sys_fork();
        if (pid > 0)
            box->servers[i] = pid;
        return pid < 0 ? -EUSERS : pid;
    }
    return -EUSERS;
}

void fork_serve_files(const struct spawner *s, struct box *box, int fd)
{
    int pid = fork_server(box);
    if (pid == 0)
        serve_files(s, box, fd);
    if (pid < 0)
        files_refuse(fd, pid);
}

void fork_serve_terminal(const struct spawner *s, struct box *box, const int fds[2])
{
    int pid = fork_server(box);
    if (pid == 0)
        serve_terminal(s, box, fds);
    if (pid < 0)
        terminal_refuse(fds[0], pid);
}
