/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What an interpreter itself takes. A cold box is charged for it, a warm one shares it with its
 * zygote; so that the same program shows the same memory either way, the difference between
 * the two for an empty program is measured once and added to warm runs. */

#include "core/engine.h"

/* Measures it for every runtime that has a zygote. Takes a few short runs; call it on a thread
 * of its own. */
void calibrate_warm(struct engine *engine);
