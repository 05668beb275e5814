/* SPDX-License-Identifier: Apache-2.0 */

/* See network.h. */

#include "state/network.h"

#include "network/entry.h"

#include <stdio.h>

int state_network_check(const struct state *state, const struct network_policy *policy,
    const char *field, struct err *err)
{
    if (!policy)
        return 0;
    int r = network_policy_check(policy, &state->ceiling, err);
    if (r == 0)
        r = engine_network_check(state->engine, policy->mode, err);
    if (r < 0 && field)
        (void)snprintf(err->field, sizeof(err->field), "%s", field);
    return r;
}
