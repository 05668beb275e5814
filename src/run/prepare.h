/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Rules of languages that data cannot express. Each has one row and one function; "prepare" in
 * runtime.json names it. */

#include "base/err.h"
#include "run/plan.h"

typedef int prepare_fn(struct plan_draft *draft, struct err *err);

/* NULL for PREPARE_NOTHING. */
extern prepare_fn *const prepare_table[PREPARE_COUNT];
