/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The system-call filter of a box, made at build time from seccomp_policy.h. Both functions are
 * async-signal-safe and allocate nothing: they run between fork and exec. */

#include <linux/filter.h>
#include <stddef.h>

/* The filter of this architecture, as the kernel takes it. */
const struct sock_filter *seccomp_filter_get(size_t *ret_count);

/* Confines the calling thread, and what it forks and executes, for good. To be called last
 * before exec, from a process with one thread that has set no_new_privs: -EACCES when it has
 * not, even for root. Returns 0 or a negative errno; on failure nothing is confined and the
 * payload must not start. */
int seccomp_load(void);
