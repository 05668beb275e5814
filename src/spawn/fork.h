/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Forks: a live session copied, memory and files. The program of a box forks itself, and the
 * copy is made a box of its own: control group, user and mount namespace, uid, Landlock layer,
 * file systems with copies of the files under the same paths. It stays in the pid namespace of
 * the box it comes from, whose init reaps it, and outlives the program it was copied from; it
 * dies with that init, which goes when the last of the family has gone.
 *
 * The program's part runs in memory that a stranger's code has had its hands in; it is a
 * convenience. What matters is done from outside, by a short-lived process per fork (with an
 * alarm, so that nobody waits for a program that does not do its part), in this order:
 *
 *   the program's copy says hello on a socket that tells us its pid
 *   it is stopped (inject.h) and moved to a control group of its own; the original is frozen,
 *   and nobody in it shares anything with the copy
 *   it is made to make the calls that confine it
 *   its file systems are made, mounted and filled
 *   it is told to go on, moves its descriptors over, and says so
 *   it is frozen and looked at: no descriptor, directory or shared memory of the original's
 *
 * docs/internals/session-fork.md has the reasons. */

#include "spawn/box.h"
#include "spawn/inject.h"
#include "spawn/inside.h"

/* COMMAND_FORK to `parent`: takes fds[0]. False when it makes no sense for that box. */
bool fork_begin(struct spawner *s, struct box *parent, int *fds, unsigned fd_count);

/* Takes the next word of the process that makes the fork; false when there is none now. One
 * that is gone has failed. */
bool fork_hear(struct spawner *s, struct box *box, struct link_record *ret);

/* Has init move to the leaf of its program, or out of it again. */
int fork_move_init(struct spawner *s, struct box *root, bool is_aside);

/* How many user namespaces the box and its forks may make: none, or for the moment of a fork as
 * many as there may be forks and dead ones. */
int fork_limit_users(const struct box *root, bool is_raised);

/* That process has ended; it is reaped, the limit of user namespaces is what it was, and the
 * original may run. */
void fork_helped(struct spawner *s, struct box *box);

/* COMMAND_INTERRUPT and COMMAND_PAUSE or RESUME to a fork. While a copy of it is made, it is
 * frozen or not as that needs; the command counts afterwards. */
int fork_interrupt(const struct box *box);
int fork_pause(const struct spawner *s, struct box *box, bool is_paused);

/* fork_files.c: COMMAND_FILES to a fork; and the ends of those that serve them. */
void fork_serve_files(struct spawner *s, struct box *box, int fd);
void fork_reap_files(struct box *box, bool is_over);

/* Run by a child of the spawner: puts itself into the leaf, in every tree. */
int fork_join(const struct spawner *s, const struct cgroup_leaf *leaf);

/* A child of ours in another pid namespace. */
int fork_there(struct spawner *s, int there);

/* fork_terminal.c: COMMAND_TERMINAL to a fork. Its watcher is one of those servers. */
void fork_serve_terminal(struct spawner *s, struct box *box, const int fds[2]);

/* The child of the spawner; never returns. */
struct fork_work {
    const struct spawner *s;
    const struct box *box;    /* the copy's */
    const struct box *parent; /* the original's */
    pid_t worker; /* the process that makes the fork: the parent of all its helpers */
    pid_t init_pid;
    pid_t parent_pid; /* a process in the original's namespaces */
    pid_t pid;        /* of the copy, once it is known */
    int pidfd;
    int hello_fd;
    int report_fd;
    int proc_fd; /* /proc/PID of the copy */
    struct tracee copy;
    int from_fds[3]; /* the original's /box, /tmp, /dev/shm */
};
_Noreturn void fork_work(struct fork_work *w); /* fork_work.c */

/* fork_check.c: 0, or negative errno when the copy has something that it may not have. */
int fork_check_rights(const struct fork_work *w);
int fork_check_reach(const struct fork_work *w);
