/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Parses and compares the headers Host and Origin. A web page cannot choose either: Host is the
 * name in the address bar, Origin is the page's own. */

#include <stdbool.h>

/* Whether a Host value can only mean this server: an address, `localhost`, a name below
 * `.localhost`, or an item of `hosts` (comma-separated names; an item with a port requires that
 * port). Any other name could be an attacker's that resolves to our address. */
bool host_is_ours(const char *host, const char *hosts);

/* Whether a page of this origin was loaded from this Host. */
bool origin_is_host(const char *origin, const char *host);

/* Whether the list contains the origin or `*`. */
bool origin_is_listed(const char *origin, const char *list);
