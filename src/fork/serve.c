/* SPDX-License-Identifier: Apache-2.0 */

/* COMMAND_FILES and COMMAND_TERMINAL for a copy (proto/files.h, proto/terminal.h). Box init
 * does this for a session, but a copy has no box init in its user and mount namespaces. So this
 * process, which the spawner started in the pid namespace of the copy, enters all the others.
 * There it gives up every right that a child of box init would not have, before it reads the
 * first byte of a stranger. */

#include "fork/fork.h"

#include "base/os/sys.h"
#include "box/inside.h"
#include "box/seccomp.h"

#include <linux/keyctl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Namespaces that the copy shares with its family, besides the pid namespace, and its own. */
enum {
    FAMILY_SPACES = CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP,
    OWN_SPACES = CLONE_NEWUSER | CLONE_NEWNS,
};

static int enter_copy(const struct fork_work *w)
{
    int r = inside_die_first();
    if (r < 0 || (r = fork_join(w)) < 0)
        return r;
    /* The order matters: from inside the copy's user namespace we may not enter the
     * namespaces of the family. */
    if (setns(COPY_PIDFD, FAMILY_SPACES) < 0 || setns(COPY_PIDFD, OWN_SPACES) < 0)
        return -errno;
    return inside_follow(COPY_LIFE_FD);
}

void fork_serve_files(const struct fork_work *w)
{
    const struct spawn_box request = {.flags = w->order.flags, .limits = w->order.limits};
    const struct inside in = {
        .box = &request, .unique_ids = true, .landlock_abi = (int)w->order.landlock_abi};
    uint64_t room_bytes = cgroup_leaf_room(&w->host, &w->leaf);
    int r = enter_copy(w);
    if (r < 0 || drop_bounding(&in) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        seccomp_load(false) < 0) {
        files_refuse(COPY_SOCKET_FD, r < 0 ? r : -EPERM);
        _exit(1);
    }
    files_run(&in, COPY_SOCKET_FD, room_bytes);
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
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : seccomp_load(false);
}

void fork_serve_terminal(const struct fork_work *w)
{
    const struct spawn_box request = {.flags = w->order.flags, .limits = w->order.limits};
    const struct inside in = {.box = &request,
        .unique_ids = true,
        .has_memory = true,
        .landlock_abi = (int)w->order.landlock_abi,
        .hand_fd = -1};
    const struct terminal_order order = {.fd = COPY_SOCKET_FD, .package_fd = COPY_PACKAGE_FD};
    int r = enter_copy(w);
    if (r < 0) {
        terminal_refuse(COPY_SOCKET_FD, r);
        _exit(1);
    }
    terminal_run(&in, &order, confine);
}
