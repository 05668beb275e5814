/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* An exec on a thread of its own, whose events others read from the history. */

#include "session/session.h"
#include "state/history.h"

/* The session was begun; it is given back at the end. On success takes the references to
 * session and record and the spec's content; on failure the caller still has to give it back.
 */
int session_exec_later(struct state *state, struct session *s, int owner,
    struct exec_spec *spec, struct history_run *record, struct err *err);
