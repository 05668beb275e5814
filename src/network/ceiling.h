/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The operator's ceiling of networks: from settings as text to the struct that hermes-egress
 * enforces (proto/network.h) and that the server checks requests against. */

#include "proto/network.h"

#include <stdbool.h>
#include <stdint.h>

/* Strings are borrowed and never NULL. Lists have commas between their items. */
struct network_settings {
    unsigned max;             /* enum network_mode */
    const char *open;         /* closed ranges that entries may name */
    const char *closed;       /* ranges that are closed in addition */
    const char *closed_names; /* with the names below them */
    const char *allowed;      /* entries; only with NETWORK_ALLOW */
    const char *resolvers;    /* addresses */
    const char *upstream;     /* http://ADDRESS:PORT */
    const char *credentials;  /* USER:PASSWORD of the upstream */
    bool upstream_filters;
    bool upstream_resolves;
    struct network_limits box_max;
    struct network_limits key_max;
};

/* Called with each problem. `key` is the setting, such as "network_open". */
typedef void network_complain(void *context, const char *key, const char *why);

/* Parses none, allow or full. Returns 0 or -EINVAL. */
int network_max_parse(const char *text, uint64_t *ret);

/* Splits http://HOST:PORT. The host is a name or an address, without brackets. Returns 0 or
 * -EINVAL. */
int network_upstream_split(const char *text, char host[NETWORK_NAME], uint16_t *ret_port);

/* Fills in *ret. Returns 0, or -EINVAL after at least one complaint. */
int network_ceiling_make(const struct network_settings *settings, struct network_ceiling *ret,
    network_complain *complain, void *context);
