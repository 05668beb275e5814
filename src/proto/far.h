/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Constants for both ends of a far shell's stream (docs/internals/far-shell.md). */

#include <stdint.h>

/* No side closes a connection when the network between them fails. So a connection counts as
 * cut after this many seconds without a byte; Hermes sends a `ping` four times within them. */
static inline uint32_t far_silent_s(uint32_t reconnect_s)
{
    return reconnect_s < 10 ? 10 : reconnect_s > 60 ? 60 : reconnect_s;
}
