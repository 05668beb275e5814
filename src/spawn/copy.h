/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Copies of a live session, with memory and files. The interpreter of a box forks itself, and
 * the child becomes a box of its own: control group, user and mount namespace, uid, Landlock
 * layer, file systems with copies of the files under the same paths. It stays in the pid
 * namespace of the box that it comes from. Box init of that box reaps it. The copy outlives the
 * interpreter that it was copied from, and dies with box init. Box init goes when the last of
 * the family has gone.
 *
 * The interpreter's part runs in memory that user code could change, so nothing relies on it.
 * The part that matters is done from outside, by a short-lived process per copy
 * (src/fork/main.c). An alarm ends that process if the interpreter does not do its part. The
 * order is:
 *
 *   the copy says hello on a socket that gives us its pid
 *   it is stopped (inject.h) and moved to a control group of its own; the original is frozen,
 *   and no process in it may share memory, descriptors or directories with the copy
 *   system calls injected into the copy confine it
 *   its file systems are made, mounted and filled
 *   it goes on, moves its descriptors over, and reports that
 *   it is frozen and checked: no descriptor, directory or shared memory of the original
 *
 * docs/internals/session-fork.md has the reasons. */

#include "box/inside.h"
#include "spawn/box.h"

/* COMMAND_FORK to `parent`: takes fds[0]. False when the descriptors are wrong. Other failures
 * are reported on fds[0]. */
bool fork_begin(struct spawner *s, struct box *parent, int *fds, unsigned fd_count);

/* Reads the next record of the process that makes the copy; false when there is none now. If
 * that process is gone, the record is LINK_FAILED. */
bool fork_hear(struct spawner *s, struct box *box, struct link_record *ret);

/* Tells box init to move out of its program's control group (is_aside), or back into it. */
int fork_move_init(struct spawner *s, struct box *root, bool is_aside);

/* Sets how many user namespaces the box and its copies may make: none, or while a copy is made
 * 128, which is enough for all copies and for dead ones that are still being removed. */
int fork_limit_users(const struct box *root, bool is_raised);

/* Ends the process that makes the copy, if there still is one: reaps it, resets the limit of
 * user namespaces, and lets the original run. */
void fork_helped(struct spawner *s, struct box *box);

/* COMMAND_INTERRUPT, and COMMAND_PAUSE or COMMAND_RESUME, to a copy. While a copy of that copy
 * is made, the pause is only noted; it takes effect afterwards. */
int fork_interrupt(const struct box *box);
int fork_pause(const struct spawner *s, struct box *box, bool is_paused);

/* fork/files.c: COMMAND_FILES to a copy; and reaping the helpers, after killing them if
 * is_over. */
void fork_serve_files(struct spawner *s, struct box *box, int fd);
void fork_reap_files(struct box *box, bool is_over);

/* Run by a child of the spawner: puts itself into the leaf, in every tree. */
int fork_join(const struct spawner *s, const struct cgroup_leaf *leaf);

/* A child of ours in another pid namespace. */
int fork_there(struct spawner *s, int there);

/* fork/terminal.c: COMMAND_TERMINAL to a copy. The watcher is one of the helpers above. */
void fork_serve_terminal(struct spawner *s, struct box *box, const int fds[2]);

/* State of the process that makes one copy. fork_work() never returns. */
struct tracee;
struct fork_work {
    const struct spawner *s;
    const struct box *box;    /* the copy's */
    const struct box *parent; /* the original's */
    pid_t worker; /* the process that makes the fork: the parent of all its helpers */
    pid_t init_pid;
    pid_t parent_pid; /* a process in the namespaces of the original */
    pid_t pid;        /* of the copy, once hello has come */
    int pidfd;
    int hello_fd;
    int report_fd;
    int proc_fd;         /* /proc/PID of the copy */
    struct tracee *copy; /* of fork/inject.h; fork_work() makes it */
    int from_fds[3];     /* the original's /box, /tmp, /dev/shm */
};
_Noreturn void fork_work(struct fork_work *w); /* fork/main.c */

/* fork/check.c: 0, or negative errno when the copy has something that it must not have. */
int fork_check_rights(const struct fork_work *w);
int fork_check_reach(const struct fork_work *w);
