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
 * The part that matters is done from outside, by the short-lived program hermes-fork
 * (src/fork/make.c), which the spawner executes for one copy (proto/copy.h). An alarm ends it
 * if the interpreter does not do its part. The order is:
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
#include "proto/copy.h"
#include "spawn/box.h"

/* COMMAND_FORK to `parent`: takes fds[0]. False when the command is wrong. Other failures are
 * reported on fds[0]. */
bool fork_begin(struct spawner *s, struct box *parent, const struct spawn_command *command,
    int *fds, unsigned fd_count);

/* Box init has reaped a copy of `root` that is a run, and reports its end. */
void fork_reaped(struct spawner *s, struct box *root, const struct link_record *record);

/* Whether the end of a copy must wait for that report. Stops watching its process then. */
bool fork_awaits_end(struct spawner *s, struct box *box);

/* Box init of `root` is dead: no report will come any more. */
void fork_desert(struct spawner *s, const struct box *root);

/* Reads the next record of the process that makes the copy; false when there is none now. If
 * that process is gone, the record is LINK_FAILED. */
bool fork_hear(struct spawner *s, struct box *box, struct link_record *ret);

/* Tells box init to move out of its program's control group (is_aside), or back into it. */
int fork_move_init(struct spawner *s, struct box *root, bool is_aside);

/* Ends the process that makes the copy, if there still is one: reaps it, resets the limit of
 * user namespaces, and lets the original run. Does nothing for boxes of other kinds. */
void fork_helped(struct spawner *s, struct box *box);

/* COMMAND_INTERRUPT, and COMMAND_PAUSE or COMMAND_RESUME, to a copy. While a copy of that copy
 * is made, the pause is only noted; it takes effect afterwards. */
int fork_interrupt(const struct box *box);
int fork_pause(const struct spawner *s, struct box *box, bool is_paused);

/* COMMAND_FILES and COMMAND_TERMINAL to a copy: starts hermes-fork in the copy's pid namespace,
 * with the descriptors of the command. Returns 0 or negative errno. */
int fork_serve(struct spawner *s, struct box *box, enum copy_job job, const int *fds);

/* Reaps the servers of a copy that have ended; if is_over, kills and reaps all. Only copies
 * have servers. */
void fork_reap_helpers(struct box *box, bool is_over);
