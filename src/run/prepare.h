/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The few rules of languages that data cannot say. One row and one function each, named by
 * "prepare" in runtime.json. */

#include "base/err.h"
#include "run/plan.h"

typedef int prepare_fn(struct plan_draft *draft, struct err *err);

/* NULL for PREPARE_NOTHING. */
extern prepare_fn *const prepare_table[PREPARE_COUNT];
