/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What an interpreter itself takes. A cold box is charged for it, a warm one shares it with its
 * zygote; so that the same program shows the same memory either way, the difference between
 * the two for an empty program is measured once and added to warm runs. */

#include "run/engine.h"

#include <stdatomic.h>

/* Measures it for every runtime that has a zygote. Takes a few short runs, or half a minute
 * when a zygote does not come up; call it on a thread of its own. Ends soon after *stop. */
void calibrate_warm(struct engine *engine, const atomic_bool *stop);
