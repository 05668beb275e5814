/* SPDX-License-Identifier: Apache-2.0 */

/* Gives up the rights that places do not need. The program executes clients of places, which
 * are ordinary programs, so its filter is a list of refused calls; a process that talks to an
 * engine of containers executes nothing, and its filter is a list of permitted ones. */

#include "places/places.h"

#include "base/os/landlock.h"
#include "seccomp/program.h"

#include <errno.h>
#include <linux/sched.h>
#include <pwd.h>
#include <seccomp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

/* A process makes its first namespace with a namespace of users: it has no capability for
 * another kind. The flags of clone3 are in memory, where a filter cannot see them: without
 * clone3, C libraries use clone. */
static int refuse_cloned_namespaces(scmp_filter_ctx filter)
{
    int r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1,
        SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_NEWUSER, CLONE_NEWUSER));
    return r < 0 ? r : seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
}

/* The filter for processes that execute clients of places, or `local` commands. These are
 * ordinary programs, so only calls that serve to attack other processes or the kernel are
 * refused. Apptainer makes namespaces; processes of other rows may not. Shells of `local` rows
 * that permit sudo never have this filter: the starter runs without one, because a filter
 * needs no_new_privs. */
int confine_clients(bool with_namespaces)
{
    static const int namespaces[] = {SCMP_SYS(mount), SCMP_SYS(move_mount), SCMP_SYS(open_tree),
        SCMP_SYS(pivot_root), SCMP_SYS(setns), SCMP_SYS(umount2), SCMP_SYS(unshare)};
    static const int refused[] = {SCMP_SYS(add_key), SCMP_SYS(bpf), SCMP_SYS(delete_module),
        SCMP_SYS(finit_module), SCMP_SYS(init_module), SCMP_SYS(io_uring_setup),
        SCMP_SYS(kexec_file_load), SCMP_SYS(kexec_load), SCMP_SYS(keyctl),
        SCMP_SYS(open_by_handle_at), SCMP_SYS(perf_event_open), SCMP_SYS(pidfd_getfd),
        SCMP_SYS(process_vm_readv), SCMP_SYS(process_vm_writev), SCMP_SYS(ptrace),
        SCMP_SYS(reboot), SCMP_SYS(request_key), SCMP_SYS(swapoff), SCMP_SYS(swapon),
        SCMP_SYS(userfaultfd)};
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    int r = filter ? 0 : -ENOMEM;
    for (size_t i = 0; r == 0 && i < sizeof(refused) / sizeof(refused[0]); i++)
        r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), refused[i], 0);
    for (size_t i = 0;
         !with_namespaces && r == 0 && i < sizeof(namespaces) / sizeof(namespaces[0]); i++)
        r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), namespaces[i], 0);
    if (r == 0 && !with_namespaces)
        r = refuse_cloned_namespaces(filter);
    if (r == 0)
        r = seccomp_load(filter);
    seccomp_release(filter);
    return r;
}

/* What the near end of a terminal (backend/terminal.c) does before it serves, and its parent
 * after it has ended. */
static const int terminal_calls[] = {SCMP_SYS(close_range), SCMP_SYS(dup2), SCMP_SYS(wait4)};

/* For the process of a session in a container: of all that the program may do, it talks to the
 * engine's socket and takes the lock in `dir`. It executes nothing. */
static int add_for_engine(scmp_filter_ctx filter)
{
    const uint64_t write = 2; /* PROT_WRITE */
    int r = program_filter_no_exec(filter);
    if (r == 0)
        r = seccomp_rule_add(
            filter, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1, SCMP_A2(SCMP_CMP_MASKED_EQ, write, 0));
    if (r == 0)
        r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(flock), 0);
    if (r == 0) /* of on_end() in main.c */
        r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(alarm), 0);
    if (r == 0) /* fork() for the near end of a terminal; without threads and namespaces */
        r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1,
            SCMP_A0(SCMP_CMP_EQ, CLONE_CHILD_CLEARTID | CLONE_CHILD_SETTID | SIGCHLD));
    for (size_t i = 0; r == 0 && i < sizeof(terminal_calls) / sizeof(terminal_calls[0]); i++)
        r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, terminal_calls[i], 0);
    if (r == 0)
        r = seccomp_rule_add(
            filter, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1, SCMP_A0(SCMP_CMP_EQ, AF_UNIX));
    return r;
}

int confine_engine(const char *dir)
{
    const char *const list[] = {dir, NULL};
    int r = landlock_leave(list,
        LANDLOCK_READ | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG, false);
#ifndef HERMES_SANITIZED
    if (r == 0)
        r = program_filter_load(
            program_client_calls, program_client_call_count, add_for_engine);
#endif
    return r;
}

/* Landlock forbids mounts, so Apptainer cannot work below it. A shell of `local` may do what
 * the user may. What clients of ssh and plug-ins read and execute is the user's configuration
 * and the vendor's package; they need to write below a few directories. */
int confine_writing(const struct place_row *row, const char *control_dir)
{
    char run[32];
    const struct passwd *user = getpwuid(geteuid());
    const char *home = user && user->pw_dir[0] == '/' && user->pw_dir[1] ? user->pw_dir : NULL;
    const char *const writable[] = {control_dir, "/tmp", "/var/tmp", "/dev", "/proc", run,
        row->scratch_dir[0] ? row->scratch_dir : control_dir, home, NULL};
    (void)snprintf(run, sizeof(run), "/run/user/%u", geteuid());
    bool is_client = row->kind == PLACE_SSH || row->kind == PLACE_PLUGIN;
    return is_client ? landlock_leave_writing(writable) : 0;
}
