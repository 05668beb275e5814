/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Environment and arguments of a stage that depend on no request. */

#include "lang/runtime.h"

/* The environment of a stage before any request: the base and runtime.json's. */
void plan_environment(
    const struct stage_def *def, const struct run_limits *limits, struct strv *ret);

/* Sets KEY=value, replacing an earlier value of KEY. */
void plan_set_env(struct strv *env, const char *assignment);
/* What a program that waits for its job is started with. */
void plan_parked(const struct runtime *rt, const struct stage_def *def,
    const struct run_limits *limits, struct strv *ret_argv, struct strv *ret_env);

/* Adds the environment of every box, then `own`, which replaces variables of the same name. */
void environment_add(const struct strv *own, struct strv *ret);
