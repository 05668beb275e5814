/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Network namespaces that are empty but for a loopback that is up. Needs CAP_SYS_ADMIN. */

/* Moves the caller into a new one and returns its descriptor, or negative errno. */
int netns_make(void);

/* Raises the loopback of the caller's namespace. */
int netns_raise_loopback(void);
