/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Shared by the files of boxes and ready boxes: box.c makes boxes, box_parked.c hands requests
 * to ready ones, box_events.c follows a box that runs, box_end.c ends it; pool.c and zygote.c
 * make boxes ahead. */

#include "spawn/box.h"

/* Columns of the table of kinds. */
int box_make_cold(struct spawner *s, struct box *box, const struct spawn_box *request,
    const int *fds, unsigned fd_count, int link_fd, uint32_t *ret_step);
int box_make_by_zygote(struct spawner *s, struct box *box, const struct spawn_box *request,
    const int *fds, unsigned fd_count, int link_fd, uint32_t *ret_step);
void box_on_link(struct spawner *s, struct box *box);
void box_on_end(struct spawner *s, struct box *box);
void box_on_copy_link(struct spawner *s, struct box *box);
void box_on_copy_end(struct spawner *s, struct box *box);
bool box_obey_session(struct spawner *s, struct box *box, const struct spawn_command *command,
    const int *fds, unsigned fd_count);
bool box_obey_copy(struct spawner *s, struct box *box, const struct spawn_command *command,
    const int *fds, unsigned fd_count);

/* Makes a box, from its control group to the go-ahead byte, or to the request to its zygote.
 * `fds` are those of the request, or NULL for a ready box. On failure *ret_step names the step,
 * and the caller calls box_fail(). */
int box_build(struct spawner *s, struct box *box, const struct spawn_box *request,
    const int *fds, unsigned fd_count, uint32_t *ret_step);

/* Keeps descriptors of a request (struct box's `kept`). box_release() closes them. */
void box_keep_ends(struct box *box, int *fds, unsigned fd_count);

/* Makes the payload the owner of the pipes among the descriptors. */
int box_give_pipes(
    const struct spawner *s, const struct box *box, const int *fds, unsigned count);

/* Hands a request to a ready box. Returns whether there was one; it has taken fds[0] then. */
bool box_serve_parked(
    struct spawner *s, const struct spawn_box *request, int *fds, unsigned fd_count);

void box_kill(struct spawner *s, struct box *box);

/* After a failure for want of descriptors, gives up the control groups and namespaces that are
 * kept for later boxes. Otherwise they could hold the last descriptors without end. Returns
 * whether there were any; if so, trying again can help. */
bool box_give_way(struct spawner *s, int error);

/* Fills in the usage of a box since its start. */
void box_fill_usage(const struct spawner *s, const struct box *box,
    const struct cgroup_usage *usage, struct spawn_event *event);
uint64_t box_above(uint64_t value, uint64_t base);

/* Whether the box's own memory limit has killed a process. */
bool box_hit_memory(struct box *box, const struct cgroup_usage *usage);

/* Sends the last event and closes the box's socket. */
void box_tell_end(struct spawner *s, struct box *box);

/* Gives back everything that a box holds; its processes are dead and reaped. */
void box_release(struct spawner *s, struct box *box);
