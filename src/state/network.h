/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Whether a server gives boxes the network that a request asks for. */

#include "state/state.h"

/* Checks a policy (NULL: none) against the operator's ceiling (ERR_FORBIDDEN) and against what
 * this host enforces (ERR_UNSUPPORTED). `field` is its place in the request, or NULL. */
int state_network_check(const struct state *state, const struct network_policy *policy,
    const char *field, struct err *err);
