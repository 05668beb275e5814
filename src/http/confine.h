/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Gives up every right that the server does not need, before it reads the first byte from a
 * client. */

#include "base/err.h"
#include "lang/runtime.h"

/* Refuses to go on as root: the monitor starts the server as its own user. Drops all
 * capabilities, sets no_new_privs, and lets no process of the same user look inside. */
int confine_identity(struct err *err);

/* Restricts files with Landlock: state_dir and seed_dir (or "") for reading and writing,
 * the runtimes and the directory around cases_dir (or NULL) for reading, nothing else, and no
 * TCP connections. Restricts system calls to a list without exec, ptrace, mounts, namespaces
 * and identities. Call it before the first thread is made. */
int confine_rest(const char *state_dir, const char *seed_dir,
    const struct runtime_registry *runtimes, const char *cases_dir, struct err *err);
