/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Time. Limits use CLOCK_MONOTONIC only, so a step of the wall clock cannot shorten or extend a
 * limit. */

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_ns(void)
{
    struct timespec ts;
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline uint64_t clock_ms(void)
{
    return clock_ns() / 1000000u;
}

/* Wall-clock time, for display and for values that outlive this process. */
static inline int64_t clock_wall_ms(void)
{
    struct timespec ts;
    (void)clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}
