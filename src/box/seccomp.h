/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The system-call filter of a box, made at build time from seccomp_policy.h. Both functions are
 * async-signal-safe and allocate nothing: they run between fork and exec. */

#include <linux/filter.h>
#include <stddef.h>

/* A zygote loads the first part for itself and all its boxes: the whole but for the calls that
 * make a box. In the box the rest, which is about those alone, makes it the whole: loading
 * costs by length, and each filter has a piece of the kernel's memory for code. */
enum seccomp_part { SECCOMP_WHOLE, SECCOMP_FIRST, SECCOMP_REST };

/* The filter of this architecture, as the kernel takes it. */
const struct sock_filter *seccomp_filter_get(enum seccomp_part part, size_t *ret_count);

/* Confines the calling thread, and what it forks and executes, for good. To be called last
 * before exec, from a process with one thread that has set no_new_privs: -EACCES when it has
 * not, even for root, and for the rest where no filter came before it. Returns 0 or a negative
 * errno; on failure nothing is confined and the payload must not start. */
int seccomp_load(enum seccomp_part part);
