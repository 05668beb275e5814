/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Shared by box.c (making boxes), box_parked.c, box_events.c and box_end.c only. */

#include "spawn/box.h"

/* Makes a box, from its control group to the go-ahead byte, or to the request to its zygote.
 * `fds` are those of the request, or NULL for a ready box. On failure *ret_step names the step,
 * and the caller calls box_fail(). */
int box_build(struct spawner *s, struct box *box, const struct spawn_box *request,
    const int *fds, unsigned fd_count, uint32_t *ret_step);

/* Makes the payload the owner of the pipes among the descriptors. */
int box_give_pipes(
    const struct spawner *s, const struct box *box, const int *fds, unsigned count);

/* Hands a request to a ready box. Returns whether there was one; it has taken fds[0] then. */
bool box_serve_parked(
    struct spawner *s, const struct spawn_box *request, int *fds, unsigned fd_count);

void box_kill(struct spawner *s, struct box *box);

/* Fills in what a box has used since its start. */
void box_fill_usage(const struct spawner *s, const struct box *box,
    const struct cgroup_usage *usage, struct spawn_event *event);
uint64_t box_above(uint64_t value, uint64_t base);

/* Whether the box's own memory limit has killed a process. */
bool box_hit_memory(struct box *box, const struct cgroup_usage *usage);

/* Sends the last event and closes the box's socket. */
void box_tell_end(struct spawner *s, struct box *box);

/* Gives back everything that a box holds; its processes are dead and reaped. */
void box_release(struct spawner *s, struct box *box);
