/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What an interpreter calls to become the program of a warm box; warm.c says in which order. */

#define EXPORT __attribute__((visibility("default")))

/* In a zygote: makes boxes until the spawner goes away. Returns 0 in the program's process of
 * each box, negative in the zygote at the end. */
EXPORT int hermes_warm_serve(void);

/* In a zygote, before hermes_warm_serve(): rearranges its data so that forking is cheap
 * (gather.c). */
EXPORT void hermes_warm_gather(void);

/* In a zygote that imports modules of an image: gives it empty writable directories at /box and
 * /tmp, which some modules want while they are imported, and takes them away again. 0, or
 * negative errno: something of a module is still in there. */
EXPORT int hermes_warm_scratch(void);
EXPORT int hermes_warm_no_scratch(void);

/* In the program of a pool: reports that it is ready. Returns 0, or negative when it is not in
 * a pool's box. */
EXPORT int hermes_warm_park(void);

/* In a copy of a template box (run/template.h): its package will come on the channel, and what
 * fails before the program begins is reported there. 0, or negative. */
EXPORT int hermes_warm_adopt(int channel_fd);

/* Whether no package has come after waiting a moment: then there is time to rehearse. */
EXPORT int hermes_warm_is_parked(void);

/* Waits for the package, writes its files, connects stdin, stdout and stderr. From here on the
 * process runs an untrusted program. Returns the file type of stdin, as in st_mode. */
EXPORT int hermes_warm_begin(void);

/* Arguments and environment of the package; NULL past the last. */
EXPORT const char *hermes_warm_arg(unsigned i);
EXPORT const char *hermes_warm_env(unsigned i);

/* Whether the package's environment differs from that of this process. */
EXPORT int hermes_warm_has_env(void);

/* Replaces the environment of the process by the package's. */
EXPORT void hermes_warm_take_env(void);

/* Ends the program. The kernel frees its memory when the box ends, after the end was
 * reported. */
EXPORT _Noreturn void hermes_warm_exit(int status);
