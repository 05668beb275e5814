/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Children that nothing else waits for: a zygote or a network helper that the spawner has
 * killed, and boxes that a killed zygote made and did not report. Such a box finds its link
 * closed and ends. They are reaped when they are dead, because waiting for them would hold up
 * every box. */

#include "spawn/box.h"

/* A child may be left from now on. */
void orphans_expect(void);

/* Reaps orphans that have ended. Returns whether to call again soon. */
bool orphans_reap(struct spawner *s);
