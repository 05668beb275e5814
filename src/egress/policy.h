/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a policy permits. Nothing here keeps state or looks at limits: the same question has the
 * same answer when a connection begins and when the policy changes under it.
 *
 * A reason is an enum address_class or an enum network_reason; 0 means "permitted". */

#include "egress/pins.h"
#include "proto/network.h"

#include <stdbool.h>
#include <stdint.h>

/* All that decisions depend on, borrowed. */
struct policy_view {
    const struct network_policy *policy;
    const struct network_ceiling *ceiling;
    const struct pins *pins;
    uint64_t now_ms;
};

struct decision {
    uint32_t reason;
    bool is_by_name;         /* only a name permits it: a TLS server name must be one, too */
    bool must_ask;           /* with REASON_NOT_LISTED: an approval may permit it */
    char host[NETWORK_NAME]; /* the name that the address was resolved from, else the address */
};

/* Makes a policy of a stranger one that may be used: one that is invalid or above the ceiling
 * becomes NETWORK_NONE, and limits are lowered. Returns false when it became NETWORK_NONE. */
bool policy_enforce(struct network_policy *policy, const struct network_ceiling *ceiling);

/* A connection or flow to an address. */
void policy_decide(struct decision *ret, const struct policy_view *view,
    enum network_protocol protocol, const struct address *address, uint16_t port);

/* The same for a connection or flow that exists, when the policy has changed. `what` is its row
 * in the record: its name counts, even if the box has no pin for the name any more. */
void policy_decide_again(struct decision *ret, const struct policy_view *view,
    const struct network_row *what, const struct address *address);

/* Whether a name may be asked outside. For a name that stands for an address ("reverse"), the
 * address must be permitted. */
uint32_t policy_decide_name(const struct policy_view *view, const char *name);

/* Whether an address may be given to the box as an answer. */
uint32_t policy_decide_answer(const struct policy_view *view, const struct address *address);

/* In mode NETWORK_ASK: whether a name is answered with a stand-in address, and asked outside
 * only when a connection to it is approved: names carry data out, too. */
bool policy_name_is_asked(const struct policy_view *view, const char *name);

/* Whether an approval may lead to this address. Closed ranges stay closed, also opened ones. */
uint32_t policy_decide_approved(const struct policy_view *view, const struct address *address);

/* Whether a TLS client may ask for this server where a name permitted the connection. */
uint32_t policy_decide_server(const struct policy_view *view, const char *name, uint16_t port);
