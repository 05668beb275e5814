/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The options of limits, made from the table of lang/limits.h. The option of `wall_ms` is
 * --time; the others have the name of the limit without its unit: `memory_mb` is --memory. */

#include "cli/options.h"
#include "lang/limits.h"

/* One row per limit, for option_table.more. */
const struct option_row *limit_options(void);

/* Takes the value of such an option. False when `key` belongs to another option. Ends the
 * program when the value is invalid or outside the table's range. */
bool limit_options_take(
    const char *command, int key, const char *text, struct run_limits *limits);

/* The named limits as the JSON of a request; NULL when none is named. */
json_t *limit_options_json(const struct run_limits *limits);
