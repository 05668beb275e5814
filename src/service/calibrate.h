/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Measures the memory of an interpreter itself. A cold box is charged for it; a warm box shares
 * it with its zygote. So that the same program reports the same memory in both, the difference
 * is measured once with an empty program and added to the figures of warm runs. */

#include "run/engine.h"

#include <stdatomic.h>

/* Measures every runtime that has a zygote. Takes a few short runs for each, or half a minute
 * when a zygote does not start; call it on a thread of its own. Ends soon after *stop becomes
 * true. */
void calibrate_warm(struct engine *engine, const atomic_bool *stop);
