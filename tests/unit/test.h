/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What every unit test includes: cmocka, with the headers it wants before it. */

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

/* Leaves a test that cannot be tried here and says why. cmocka 1.1.5's own skip() writes
 * "not ok", which meson counts as a failure. */
#define test_skip(reason)                                                                      \
    do {                                                                                       \
        print_message("# SKIP %s: %s\n", __func__, reason);                                    \
        return;                                                                                \
    } while (0)

/* A reproducible stream of numbers for tests that try many inputs. */
static inline uint32_t test_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33);
}
