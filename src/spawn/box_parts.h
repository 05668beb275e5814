/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What box.c (making), box_parked.c, box_events.c and box_end.c share. */

#include "spawn/box.h"

/* From the group to the go-ahead; `fds` as for a request, or NULL for a box that is parked. On
 * failure *ret_step names the step, and box_fail() cleans up. */
int box_build(struct spawner *s, struct box *box, const struct spawn_box *request,
    const int *fds, unsigned fd_count, uint32_t *ret_step);

/* Makes pipes the payload's. */
int box_give_pipes(
    const struct spawner *s, const struct box *box, const int *fds, unsigned count);

/* Gives a request to a box that waits for one; takes fds[0] then. */
bool box_serve_parked(
    struct spawner *s, const struct spawn_box *request, int *fds, unsigned fd_count);

void box_kill(struct spawner *s, struct box *box);

/* What a box has used since its start. */
void box_fill_usage(const struct spawner *s, const struct box *box,
    const struct cgroup_usage *usage, struct spawn_event *event);
uint64_t box_above(uint64_t value, uint64_t base);

/* Whether the box's own memory limit has killed in it. */
bool box_hit_memory(struct box *box, const struct cgroup_usage *usage);

/* The last word to whoever asked for it. */
void box_tell_end(struct spawner *s, struct box *box);

/* Gives back all a box holds; its processes are dead and reaped. */
void box_release(struct spawner *s, struct box *box);
