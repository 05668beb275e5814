/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Runs an exec on a thread of its own. Readers get its events from the history. */

#include "session/session.h"
#include "state/history/history.h"

/* Call after session_begin(); the thread gives the session back. On success takes the caller's
 * references to session and record and the content of *spec. On failure the caller keeps them
 * and must call session_abandon(). */
int service_exec_later(struct state *state, struct session *s, int owner,
    struct exec_spec *spec, struct history_run *record, struct err *err);
