/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The parts of a stage's environment and arguments that do not depend on a request. */

#include "lang/runtime.h"

/* The environment of a stage without a request: the base environment and that of
 * runtime.json. */
void plan_environment(
    const struct stage_def *def, const struct run_limits *limits, struct strv *ret);

/* Sets KEY=value, replacing an earlier value of KEY. */
void plan_set_env(struct strv *env, const char *assignment);

/* The value of a variable; NULL when it is not set. */
const char *environment_get(const struct strv *env, const char *name);

/* Arguments and environment for a program that is started ahead and waits for its package: the
 * arguments of argv up to the first that depends on the request, then those of `park`. */
void plan_parked(const struct runtime *rt, const struct stage_def *def,
    const struct run_limits *limits, struct strv *ret_argv, struct strv *ret_env);

/* Adds the environment of every box, then `own`, which replaces variables of the same name. */
void environment_add(const struct strv *own, struct strv *ret);
