/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What an interpreter calls to become the program of a box; warm.c says in which order. */

#define EXPORT __attribute__((visibility("default")))

/* As a zygote: makes boxes. Returns 0 in each, negative when there will be none any more. */
EXPORT int hermes_warm_serve(void);

/* As a zygote, before that: makes its data cheap to copy. */
EXPORT void hermes_warm_gather(void);

/* As a program of a pool: tells that it waits. Returns 0, or negative when nobody parked it. */
EXPORT int hermes_warm_park(void);

/* Whether the job is still to come, also after a moment: then there is time to prepare. */
EXPORT int hermes_warm_is_parked(void);

/* Waits for the job, writes its files, connects stdin, stdout and stderr. From here on it runs
 * a stranger's program. Returns the kind of stdin, as in st_mode. */
EXPORT int hermes_warm_begin(void);

/* Arguments and environment of the job; NULL past the last. */
EXPORT const char *hermes_warm_arg(unsigned i);
EXPORT const char *hermes_warm_env(unsigned i);

/* Whether the job's environment is another than this process has. */
EXPORT int hermes_warm_has_env(void);

/* Makes the job's environment the process's. */
EXPORT void hermes_warm_take_env(void);

/* Ends the program. The kernel takes its memory apart when the box ends, after the report. */
EXPORT _Noreturn void hermes_warm_exit(int status);
