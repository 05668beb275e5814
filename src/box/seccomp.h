/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The system-call filter of a box, made at build time from seccomp_policy.h. */

/* Confines the calling thread, and what it forks and executes, for good. To be called before
 * anything of a stranger's is read, from a process with one thread that has set no_new_privs:
 * -EACCES when it has not, even for root. Returns 0 or a negative errno; on failure nothing is
 * confined and the payload must not start. Async-signal-safe; allocates nothing. */
int seccomp_load(void);
