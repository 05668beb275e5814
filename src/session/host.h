/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Approvals of the actions of a session in a place other than a box (place_is_box()): effects
 * of the kind host_exec. The approval comes before anything reaches the place. Sessions in
 * boxes need none. */

#include "approval/shell.h"
#include "session/internal.h"

/* The runtime that parses shell texts (runtimes/shell-parse). */
#define HOST_PARSE_TOOL "shell-parse"

struct host_parser {
    struct session *s;
    int cancel_fd;
    int failed; /* Hermes was too busy, or the caller has left; err says it */
    struct err *err;
};
shell_parse host_parse; /* its context is a struct host_parser */
/* Warns when a backend needs the parser and it is missing. */
void host_parse_check(const struct state *state);

/* Asks about the commands of an exec and waits. The caller holds the session. Afterwards
 * s->approvals lists the questions. */
int host_approve_exec(
    struct session *s, const struct exec_spec *spec, int cancel_fd, struct err *err);

/* Kinds of access that are asked about once for a session: an approval of any scope lasts as
 * long as the session. */
enum host_access { HOST_FILE, HOST_TERMINAL, HOST_STDIN, HOST_ACCESSES };
int host_approve_access(struct session *s, enum host_access access, const char *name,
    int cancel_fd, struct err *err);

/* Asks about variables of a new session that change what programs do. */
int host_approve_env(struct session *s, int cancel_fd, struct err *err);
