/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Makes the seeds of languages (lang/seed.h) while nothing else runs, one at a time, on a
 * thread of its own: first those that a request has needed, later all. No request waits for
 * them: a build gives way when one has to wait. */

#include "state/state.h"

#include <jansson.h>

void service_seeds_open(struct state *state);
void service_seeds_close(struct state *state);

/* Called by service_tick(). */
void service_seeds_tick(struct state *state);

/* A list of the languages that have a seed: language and state, which is `missing`, `making`,
 * `ready` or `failed`. */
json_t *service_seeds_json(struct state *state);
