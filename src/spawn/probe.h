/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What this host can enforce, found by trying it. */

#include "proto/spawn.h"
#include "spawn/box.h"

/* Fills level, cgroup mode and features from what is known after the set-up; what every box
 * needs counts as there, because a box in which it fails never starts. Costs nothing. */
void probe_known(const struct spawner *s, struct spawn_reply *reply);

/* The same after trying each feature in a child made for it. For `hermes doctor`. */
void probe_all(const struct spawner *s, struct spawn_reply *reply);
