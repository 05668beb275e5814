/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Limits use CLOCK_MONOTONIC only: no step of the wall clock can make or break one. */

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

/* Of the wall clock, for people and for what outlives this program. */
static inline int64_t clock_wall_ms(void)
{
    struct timespec ts;
    (void)clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}
