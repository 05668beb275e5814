/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The values of Host and Origin, as text. A web page cannot choose either of them: Host is the
 * name in the address bar, Origin is the page's own. */

#include <stdbool.h>

/* Whether a Host value can only mean this server: an address, `localhost`, a name below
 * `.localhost`, or an item of `hosts` (names with commas between; an item with a port wants
 * that port). Any other name may be a stranger's that resolves to our address. */
bool host_is_ours(const char *host, const char *hosts);

/* Whether a page of this origin was loaded from this Host. */
bool origin_is_host(const char *origin, const char *host);

/* Whether the origin is an item of the list, or the list has `*`. */
bool origin_is_listed(const char *origin, const char *list);
