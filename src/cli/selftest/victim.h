/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The neighbour of an attack: a box of its own that counts until it is stopped, and that tells
 * when it was seen, signalled or reached (selftest/victim.py). */

#include "base/err.h"
#include "run/run.h"

#include <stdbool.h>
#include <stddef.h>

struct attack_bench;
struct victim;

/* Returns when it counts. */
int victim_start(struct victim **ret, const struct attack_bench *bench, struct err *err);

/* Adds VICTIM_TOKEN and VICTIM_PORT. */
void victim_env(const struct victim *v, struct strv *env);

/* Waits until it has counted on, stops it and frees it. False when it came to harm; why then
 * says how. ret_line gets the first line `key: ...` that it printed, or NULL; the caller frees.
 */
bool victim_stop(
    struct victim *v, const char *key, char **ret_line, char *why, size_t why_size);
