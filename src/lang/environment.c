/* SPDX-License-Identifier: Apache-2.0 */

/* See environment.h. */

#include "lang/environment.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "lang/template.h"

#include <stdlib.h>
#include <string.h>

/* The environment of every box: constants, nothing of the host. LC_ALL stays unset so that a
 * program may still choose single categories. */
static const char *const base_env[] = {
    "PATH=/usr/local/bin:/usr/bin:/bin",
    "HOME=/box",
    "TMPDIR=/tmp",
    "LANG=C.UTF-8",
    "USER=box",
    "LOGNAME=box",
    "SHELL=/bin/bash",
    "PWD=/box",
};

void plan_set_env(struct strv *env, const char *assignment)
{
    size_t key_len = strcspn(assignment, "=") + 1;

    for (size_t i = 0; i < env->count; i++) {
        if (strncmp(env->items[i], assignment, key_len) == 0) {
            free(env->items[i]);
            env->items[i] = xstrdup(assignment);
            return;
        }
    }
    strv_add(env, assignment);
}

const char *environment_get(const struct strv *env, const char *name)
{
    size_t len = strlen(name);

    for (size_t i = 0; i < env->count; i++) {
        if (strncmp(env->items[i], name, len) == 0 && env->items[i][len] == '=')
            return env->items[i] + len + 1;
    }
    return NULL;
}

void environment_add(const struct strv *own, struct strv *ret)
{
    for (size_t i = 0; i < sizeof(base_env) / sizeof(base_env[0]); i++)
        strv_add(ret, base_env[i]);
    for (size_t i = 0; i < own->count; i++)
        plan_set_env(ret, own->items[i]);
}

void plan_environment(
    const struct stage_def *def, const struct run_limits *limits, struct strv *ret)
{
    const struct template_vars vars = {.limits = limits};
    CLEANUP(strv_done) struct strv own = {0};
    const char *name;

    for (size_t i = 0; i < def->env.count; i++)
        (void)template_expand(def->env.items[i], &vars, &own, &name);
    environment_add(&own, ret);
}

void plan_parked(const struct runtime *rt, const struct stage_def *def,
    const struct run_limits *limits, struct strv *ret_argv, struct strv *ret_env)
{
    const struct template_vars vars = {.home = rt->home_box, .limits = limits};
    const char *name;

    for (size_t i = 0; i < def->argv.count; i++) {
        if (template_expand(def->argv.items[i], &vars, ret_argv, &name) < 0)
            break; /* from here on arguments depend on the request */
    }
    strv_add_all(ret_argv, &def->park.args);
    plan_environment(def, limits, ret_env);
}
