/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What both ends of a far shell's stream know (docs/internals/far-shell.md). */

#include <stdint.h>

/* A connection that lost its network is closed by nobody. One on which nothing has come for so
 * many seconds counts as cut; so that something comes, Hermes speaks four times within them. */
static inline uint32_t far_silent_s(uint32_t reconnect_s)
{
    return reconnect_s < 10 ? 10 : reconnect_s > 60 ? 60 : reconnect_s;
}
