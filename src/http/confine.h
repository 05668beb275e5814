/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the server gives up before it hears the first byte of a stranger. */

#include "base/err.h"
#include "lang/runtime.h"

/* As root: becomes this user (a name or a number) for good, without capabilities. Otherwise
 * only makes sure that nothing can be gained. */
int confine_identity(const char *user, struct err *err);

/* Files: this directory for reading and writing, the runtimes for reading, nothing else; no
 * TCP connections of its own. System calls: a list without exec, ptrace, mounts, namespaces,
 * identities. Before the first thread is made. */
int confine_rest(
    const char *state_dir, const struct runtime_registry *runtimes, struct err *err);
