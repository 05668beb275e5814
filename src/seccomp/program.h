/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The system call filter of a program of Hermes itself: server, egress, inject, reach,
 * places. Each program has a list of calls that it needs; every other call fails with EPERM.
 * (Boxes have another filter, made from policy.h.) */

#include <seccomp.h>
#include <stddef.h>

/* Adds the rules that depend on arguments. Returns 0 or negative errno. */
typedef int program_filter_rules(scmp_filter_ctx filter);

/* Memory never becomes executable. */
int program_filter_no_exec(scmp_filter_ctx filter);

/* clone makes threads and no processes. clone3, whose flags a filter cannot see, does not
 * exist, so that glibc uses clone. */
int program_filter_threads(scmp_filter_ctx filter);

/* The calls of a program that is a client of others over HTTP: hermes-reach, and the process of
 * hermes-places for a session in a container. Neither executes anything. */
extern const int program_client_calls[];
extern const size_t program_client_call_count;

/* Loads the filter; it stays for good. A call that this architecture lacks is left out. */
int program_filter_load(const int *calls, size_t count, program_filter_rules *rules);
