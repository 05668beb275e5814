/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The text of a network policy: entries of allow lists, the words of answers, and the check of
 * a policy against the operator's ceiling. Requests, the command line and the settings use it;
 * docs/network.md describes the entries. */

#include "base/err.h"
#include "proto/network.h"

#include <stdbool.h>

/* Room for a printed entry, with its NUL. */
enum { NETWORK_ENTRY_TEXT = NETWORK_NAME + 24 };

/* Parses TARGET[:PORTS][/udp]. TARGET is a name, *.name (the names below it), an IPv4 address
 * or range, [IPv6] or [IPv6/length]; PORTS is n, n-m or *; without: 80 and 443. Names become
 * lower case and lose a trailing dot. The error (ERR_INVALID, no field) quotes the entry. */
int network_entry_parse(struct network_entry *ret, const char *text, struct err *err);

/* Prints the one spelling of an entry, which parses to the same entry. */
void network_entry_print(const struct network_entry *entry, char text[NETWORK_ENTRY_TEXT]);

/* Whether `name` is a host name as it stands in entries: lower case, A-labels, no trailing
 * dot. */
bool network_name_is_valid(const char *name);

/* The words of requests and answers. A value out of range is "unknown". */
const char *network_mode_name(unsigned mode);
const char *network_protocol_name(unsigned protocol);
const char *network_reason_name(unsigned reason);

/* Checks a policy against the operator's ceiling: ERR_FORBIDDEN names the mode or the entry
 * that the ceiling excludes, ERR_UNSUPPORTED says why the host cannot enforce the mode. */
int network_policy_check(const struct network_policy *policy,
    const struct network_ceiling *ceiling, struct err *err);
