/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Network namespaces that contain only a loopback device, which is up. Making one needs
 * CAP_SYS_ADMIN. */

/* Moves the caller into a new namespace and returns a descriptor of it, or negative errno. */
int netns_make(void);

/* Brings the loopback device of the caller's namespace up. */
int netns_raise_loopback(void);
