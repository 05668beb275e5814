/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The effects that a request names itself: its writable mounts and its secrets. They are
 * approved before anything of the request runs. */

#include "network/hub.h"
#include "state/state.h"

enum { EFFECTS_MAX = 32 };

/* The approvals of one request. */
struct effects {
    struct approval *items[EFFECTS_MAX];
    size_t count;
};

/* Where the effects come from, and the box that they are for. */
struct effects_request {
    int owner;
    const char *run;     /* id of the run or judgement, or NULL */
    const char *session; /* or NULL */
    const struct run_mount *mounts;
    size_t mount_count;
    const struct network_policy *network;
};

/* Describes what the box can reach, for the reviewer; the caller owns it. */
json_t *effects_box(const struct state *state, const struct effects_request *request);

/* Asks for each writable mount and each secret. Fails at once when one is denied. The caller
 * ends *effects in any case; it may hold approvals of other programs of the same request. */
int effects_ask(struct state *state, const struct effects_request *request,
    struct effects *effects, struct err *err);

/* The asker for connections of a box in mode "ask"; else NULL. The caller frees it with
 * network_asker_free(). */
struct network_asker *effects_asker(
    const struct state *state, const struct effects_request *request);

bool effects_are_pending(const struct effects *effects);

/* Waits until all are approved. -EPERM when one is not, -ECANCELED when cancel_fd becomes
 * readable. A ticket (or NULL) is given up meanwhile and put back into the queue afterwards:
 * a run that waits for a person must not hold a place. */
int effects_wait(struct state *state, struct effects *effects, struct admit_ticket *ticket,
    int cancel_fd, struct err *err);

/* The list `approvals` of an answer, as text, with those in `report` (or NULL); NULL when
 * nothing was asked. The caller frees it. */
char *effects_text(const struct effects *effects, const struct network_report *report);
void effects_done(struct effects *effects);
