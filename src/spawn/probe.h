/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Finds out what this host can enforce, by trying it. */

#include "proto/spawn.h"
#include "spawn/box.h"

/* Fills level, cgroup mode and features from what is known after the set-up. Features that
 * every box needs count as enforced, because a box without them never starts. Costs nothing. */
void probe_known(const struct spawner *s, struct spawn_reply *reply);

/* The same, but tries each feature in a child process. For `hermes doctor`. */
void probe_all(struct spawner *s, struct spawn_reply *reply);
