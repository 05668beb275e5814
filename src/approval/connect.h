/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Connections of boxes whose network has the mode "ask": each question of hermes-egress becomes
 * an effect `net_connect`, and its approval or refusal the answer. One thread follows all of
 * them; it starts with the first question. */

#include "approval/approval.h"
#include "network/hub.h"

struct connect_asks;

/* Answers the questions of the hub from now on. */
struct connect_asks *connect_asks_open(struct approvals *approvals, struct network_hub *hub);

/* Ends the thread. Pending questions are lost, and their attempts get no answer. Accepts
 * NULL. */
void connect_asks_close(struct connect_asks *asks);
