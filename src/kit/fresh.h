/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Tells whether a used network namespace still looks like a new one. */

#include <stdbool.h>

/* Number of namespaces whose files are kept open, so that looking again is quick. Each is held
 * alive by its files. */
enum { FRESH_KNOWN_MAX = 32 };

/* Remembers the counters of the caller's namespace, which must be new. */
int fresh_learn(void);

/* Whether the namespace looks like the fresh one: no socket, not even one in TIME_WAIT, and no
 * counter that moved. May leave the caller in it. */
bool fresh_check(int ns_fd);

/* Closes the files of a namespace that no box will use again. */
void fresh_forget(int ns_fd);
