/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A language is data: runtimes/NAME/runtime.json. This module loads and checks the registry, finds
 * the toolchain on this host, and turns a run_spec into the argument lists of its stages. */

#include "base/err.h"
#include "core/limits.h"
#include "core/run.h"

#include <jansson.h>
#include <stdbool.h>

struct runtime;

struct runtime_registry {
    struct runtime *items;
    size_t count;
};

/* One stage ready for a box: a program of the stage's root and what it is given. */
struct run_stage {
    size_t exec; /* index into the root's programs */
    struct strv argv;
    struct strv env;
    struct strv artefacts; /* compile: globs of what moves on to the run box */
    struct run_files files; /* made by Hermes beside the user's (go.mod, Cargo.toml, ...) */
    struct run_limits limits;
};

struct run_plan {
    bool has_compile;
    struct run_stage compile;
    struct run_stage run;
};
void run_plan_done(struct run_plan *plan);

/* What a stage's box sees (core/root.c turns it into entries for the spawner). */
struct root_spec {
    struct strv paths;  /* host directories and files, bound read-only under the same path */
    struct strv tools;  /* names of programs put into /usr/bin, beside the base set */
    struct strv execs;  /* absolute paths inside the box, in the order run_stage.exec counts */
};

struct runtime {
    char *name;
    struct strv aliases;
    struct strv extensions; /* ".py" */
    char *main_file;
    bool available;
    char *version; /* found on this host, or NULL */
    char *missing; /* why it is not available and the package to install, or NULL */
    bool compiled;
    struct root_spec compile_root;
    struct root_spec run_root;
    struct run_limits limits;
    struct run_limits compile_limits;
    char *dir;       /* runtimes/NAME on the host */
    json_t *json;    /* the checked file */
    char *digest;    /* hex SHA-256 of runtime.json: part of cache keys */
};

/* Where runtimes/ is: $HERMES_RUNTIMES, else beside the program (../runtimes, ../../runtimes of
 * the build tree), else /usr/share/hermes/runtimes; RUNTIME_DIR adds more. Loads every
 * runtime.json, or only the one that `only` (a name, an alias or a file name whose extension
 * decides) needs; every problem names file and field. */
int runtime_load(struct runtime_registry *ret, const char *only, struct err *err);
void runtime_registry_done(struct runtime_registry *reg);

/* By name or alias; NULL when unknown. */
const struct runtime *runtime_find(const struct runtime_registry *reg, const char *name);

/* Checks spec against the runtime (entry exists, compile_args allowed, ...) and builds the plan.
 * ERR_INVALID with the field on bad input. */
int runtime_plan(const struct runtime *rt, const struct run_spec *spec, struct run_plan *ret,
    struct err *err);
