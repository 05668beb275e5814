/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The network of a session. A session and its copies (forks and checkpoints) live in one
 * network namespace, so they share one struct session_network: what is changed for one of them
 * holds for all. A session that gets a new box gets a struct of its own. */

#include "base/err.h"
#include "network/hub.h"
#include "proto/network.h"
#include "proto/spawn.h"

struct session;
struct session_network;

/* Takes the policy (NULL: none). The caller owns a reference. */
struct session_network *session_network_new(struct network_policy *policy);
struct session_network *session_network_ref(struct session_network *network);
void session_network_unref(struct session_network *network); /* accepts NULL */

/* A copy of the policy in force, which the caller frees; NULL for none. */
struct network_policy *session_network_policy(struct session_network *network);

/* Before a new box: gives the session a network of its own with the same policy. *ret_fd is the
 * end of its channel for the spawner, or -1 when the policy is none. */
int session_network_open(struct session *s, int *ret_fd, struct err *err);

/* Follows attempts from now on; NULL when the box has no network. */
struct network_tally *session_network_follow(struct session_network *network);

/* Takes the spawner's EVENT_NETWORK. */
void session_network_answered(struct session_network *network, const struct spawn_event *event);

/* Puts `policy` in force, in place of the policy before. Takes the policy (NULL: none), also
 * after an error. `s` is any session of the network; `is_held` says whether the caller holds
 * it. */
int session_network_apply(
    struct session *s, bool is_held, struct network_policy *policy, struct err *err);
