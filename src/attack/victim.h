/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The neighbour of an attack: a second box that counts until it is stopped. It reports when it
 * was seen, signalled or reached (selftest/victim.py). */

#include "base/err.h"
#include "run/run.h"

#include <stdbool.h>
#include <stddef.h>

struct attack_bench;
struct victim;

/* Starts the neighbour and waits until it has begun to count. */
int victim_start(struct victim **ret, const struct attack_bench *bench, struct err *err);

/* Adds VICTIM_TOKEN and VICTIM_PORT to the environment of the attack. */
void victim_env(const struct victim *v, struct strv *env);

/* Checks that the neighbour still counts, then stops and frees it. Returns false when the
 * neighbour was harmed; `why` then says how. *ret_line becomes the first line of the
 * neighbour's output that begins with `key: `, or NULL when there is none. The caller frees it.
 */
bool victim_stop(
    struct victim *v, const char *key, char **ret_line, char *why, size_t why_size);
