/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Sessions in a place other than a box (proto/place.h). A session never changes its place:
 * nothing is ever run in another one. */

#include "session/internal.h"

/* Finds the row that the caller has named and checks that the request asks for nothing that a
 * place cannot do. Called before the limits are filled in. */
int session_backend_check(
    const struct state *state, struct session_spec *spec, int owner, struct err *err);

/* The words for a new interpreter (proto/place.h), as a sealed memfd. */
int session_backend_words(const struct session_box_spec *spec, int *ret_fd, struct err *err);

/* The state of the session's place. take() notes an event that the place sent. begin() is
 * called when a new shell is asked for. end() is called when the place is gone; it sets the
 * session's message to the cause. */
void session_backend_take(struct session *s, const struct place_event *event);
void session_backend_begin(struct session *s);
void session_backend_end(struct session *s);

/* Turns the failure of a place into an error. `said` is the last line that its shell wrote to
 * stderr, or "". */
int session_backend_failed(
    struct session *s, const struct spawn_event *event, const char *said, struct err *err);

/* 0, or ERR_UNSUPPORTED for a function that needs a box. */
int session_backend_refuse(const struct session *s, const char *what, struct err *err);

/* Notes how a session on a backend began: `r` is its result. */
void session_backend_note(
    const struct session *s, int r, uint64_t latency_ms, const struct err *err);

/* The name of its backend; NULL for a box. */
const char *session_backend_name(const struct session *s);

/* {"name", "kind", "id", "state", "detail", "isolation", "scope", "lifetime_s", "limits"}, also
 * for a box. The lock is held. */
json_t *session_backend_json(struct session *s);

/* probe.c: asks whether a place is there, unless its kind has no probe or the last answer is
 * fresh. */
void session_backend_probe(const struct state *state, uint32_t number);
