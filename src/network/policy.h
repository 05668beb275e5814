/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Network policies as requests, answers and the command line write them. */

#include "base/err.h"
#include "lang/limits.h"
#include "proto/network.h"

#include <jansson.h>

/* Decodes "none", "full", {"allow": [ENTRY...]} or {"ask": [ENTRY...]}. *ret is NULL for
 * "none"; otherwise the caller frees it. `field` names the value in errors. */
int network_policy_decode(
    const json_t *value, const char *field, struct network_policy **ret, struct err *err);

/* The same for the text of --network: none, full, allow=ENTRY,... or ask=ENTRY,... */
int network_policy_parse(const char *text, struct network_policy **ret, struct err *err);

extern const struct network_limits network_no_limits;

/* A policy of this mode without entries and without limits; the caller frees it. */
struct network_policy *network_policy_new(unsigned mode);
struct network_policy *network_policy_copy(const struct network_policy *policy); /* or NULL */

/* The policy as a request writes it; NULL is "none". */
json_t *network_policy_json(const struct network_policy *policy);

/* Lowers the policy's limits to those of the box. */
void network_policy_limit(struct network_policy *policy, const struct run_limits *limits);
