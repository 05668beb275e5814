/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Opens the approvals of a server, with its reviewer and its webhook. */

#include "state/state.h"

int service_open_approvals(struct state *state, struct err *err);
