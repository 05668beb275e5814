/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The system-call filter of a box, made at build time from seccomp/policy.h. */

#include <stdbool.h>

/* Confines the calling thread, and everything that it forks and executes, for good. Call it
 * before reading any untrusted byte, from a process with one thread that has set no_new_privs:
 * without it -EACCES, even for root. Returns 0 or negative errno; after a failure nothing is
 * confined and the payload must not start. Async-signal-safe; allocates nothing. is_root: the
 * filter of boxes with BOX_ROOT. */
int seccomp_load(bool is_root);
