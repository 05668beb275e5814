/* SPDX-License-Identifier: Apache-2.0 */

/* COMMAND_TERMINAL for a copy (proto/terminal.h). Box init starts the terminals of a session,
 * but a copy has no box init in its user and mount namespaces. So the watcher is a child of the
 * spawner that enters all of them, and the shell gives up every right that a child of box init
 * would not have. */

#include "spawn/copy.h"

#include "base/sys.h"
#include "box/seccomp.h"

#include <fcntl.h>
#include <linux/keyctl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Namespaces that the copy shares with its family, besides the pid namespace, and its own. */
enum {
    FAMILY_SPACES = CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP,
    OWN_SPACES = CLONE_NEWUSER | CLONE_NEWNS,
};

static int enter_fork(const struct spawner *s, const struct box *box)
{
    int r = inside_die_first();
    if (r < 0 || (r = fork_join(s, &box->leaf)) < 0)
        return r;
    /* In this order: in its own user namespace we have no right to those of the family. */
    if (setns(box->pidfd, FAMILY_SPACES) < 0 || setns(box->pidfd, OWN_SPACES) < 0)
        return -errno;
    return inside_follow(s->life_fd);
}

/* In the shell's process: the steps that box init does before it forks. */
static int confine(const struct inside *in)
{
    if (prctl(PR_SET_SECUREBITS, INSIDE_SECUREBITS, 0, 0, 0) < 0 ||
        (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0 && errno != ENOSYS))
        return -errno;
    int r;
    if ((r = drop_rlimits(in)) < 0 || (r = drop_bounding(in)) < 0)
        return r;
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : seccomp_load();
}

static _Noreturn void serve(const struct spawner *s, const struct box *box, const int fds[2])
{
    const struct spawn_box request = {
        .flags = s->boxes[box->root].flags, .limits = box->limits};
    const struct inside in = {.box = &request,
        .unique_ids = true,
        .has_memory = true,
        .landlock_abi = s->landlock_abi,
        .hand_fd = -1};
    const struct terminal_order order = {.fd = fds[0], .job_fd = fds[1]};
    int r = enter_fork(s, box);
    if (r < 0) {
        terminal_refuse(fds[0], r);
        _exit(1);
    }
    terminal_run(&in, &order, confine);
}

void fork_serve_terminal(struct spawner *s, struct box *box, const int fds[2])
{
    fork_reap_files(box, false);
    for (unsigned i = 0; i < FORK_MAX_SERVERS; i++) {
        if (box->servers[i])
            continue;
        int pid = fork_there(s, box->pidfd);
        if (pid == 0)
            serve(s, box, fds);
        if (pid > 0)
            box->servers[i] = pid;
        else
            terminal_refuse(fds[0], pid);
        return;
    }
    terminal_refuse(fds[0], -EUSERS);
}
