/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A language is data: runtimes/NAME/runtime.json (docs/runtimes.md has the format). This module
 * loads and checks the registry, finds the toolchain on this host, and turns a run_spec into
 * the argument lists of its stages. */

#include "base/err.h"
#include "base/strv.h"
#include "lang/files.h"
#include "lang/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Something of the host that a box sees read-only. */
struct root_path {
    char *host; /* may end in a pattern for glob(3): every match is bound under its own path */
    char *box;  /* where the box sees it; NULL means under the same path */
    bool optional;
    bool copy; /* part of the tree on disk rather than a mount of its own; for small things */
};

/* What a stage's box sees beside the base tree (lang/rootfs.c turns it into spawner entries).
 */
struct root_spec {
    struct root_path *paths;
    size_t path_count;
    struct strv tools; /* names of programs put into /usr/bin, beside the base set */
    struct strv execs; /* absolute paths inside the box, in the order run_stage.exec counts;
                          the last one is sh */
    bool whole_host;   /* the host's tree instead of all that: for controls */
};

/* How the program of a stage is started ahead, to wait for its job (spawn/pool.h). */
struct park_def {
    size_t exec;      /* index into the root's programs, of what waits */
    struct strv args; /* for it, after those of argv that depend on no request */
    uint32_t min;
    uint32_t max;     /* 0: it is not */
    uint32_t base_mb; /* what it holds in a cold box; 0: as much as when it waits */
};

/* Compile or run, as runtime.json describes it. The lists hold templates (run/plan.c). */
struct stage_def {
    struct strv argv;         /* argv[0] is execs[0] of the root */
    struct strv env;          /* "KEY=template" */
    struct strv sources;      /* extensions that {sources} takes */
    struct strv allow;        /* patterns of compile_args */
    struct strv artefacts;    /* globs */
    struct strv warm;         /* arguments that make the program of argv[0] a zygote */
    struct strv session;      /* the kernel of a session; argv[0] is a program of the root */
    struct strv session_warm; /* arguments that make argv[0] a zygote of kernels */
    bool session_forks;       /* the kernel can be forked, memory and all */
    struct park_def park;
    char *project_file;       /* a file whose presence selects project_argv, or NULL */
    struct strv project_argv; /* argv[0] is execs[1] */
    struct strv project_artefacts;
};

/* The few rules of languages that data cannot say (run/prepare.c), by their names in
 * runtime.json. */
#define RUNTIME_PREPARE(X) X(JAVA, "java") X(GO, "go") X(RUST, "rust") X(NATIVE, "native")
enum runtime_prepare {
    PREPARE_NOTHING,
#define PREPARE_ENUM(id, name) PREPARE_##id,
    RUNTIME_PREPARE(PREPARE_ENUM)
#undef PREPARE_ENUM
        PREPARE_COUNT
};

struct runtime {
    char *name;
    struct strv aliases;
    struct strv extensions; /* ".py" */
    char *main_file;
    char *package; /* what to install when it is not there */
    bool available;
    char *missing; /* why it is not available and the package to install, or NULL */
    char *version; /* NULL until runtime_find_version() */
    bool compiled;
    char *home;               /* directory of the toolchain found on the host, or NULL */
    char *home_box;           /* where a box sees it */
    struct strv version_argv; /* on the host */
    enum runtime_prepare prepare;
    struct strv sdk_names; /* files of its directory `sdk` */
    struct run_files sdk;  /* the same, once runtime_load_sdk() has read them */
    struct stage_def compile;
    struct stage_def run;
    struct root_spec compile_root;
    struct root_spec run_root;
    struct run_limits limits; /* zero where runtime.json says nothing */
    struct run_limits compile_limits;
    char *dir;          /* runtimes/NAME on the host */
    uint8_t digest[32]; /* SHA-256 of runtime.json, of compiled languages only */
};

struct runtime_registry {
    struct runtime *items;
    size_t count;
};

/* Where runtimes/ is: $HERMES_RUNTIMES, else beside the program (../runtimes, ../../runtimes of
 * the build tree), else /usr/share/hermes/runtimes; RUNTIME_DIR (a list separated by colons)
 * adds more. Loads every runtime.json, sorted by name, or only the one that `only` (a name, an
 * alias or a file name whose extension decides) needs; every problem names file and field. With
 * `only`, an unknown language is ERR_INVALID on the field "language". */
int runtime_load(struct runtime_registry *ret, const char *only, struct err *err);
void runtime_registry_done(struct runtime_registry *reg);

/* Reads what runtimes lay beside the programs of front doors that have an sdk. */
int runtime_load_sdk(struct runtime_registry *reg, struct err *err);

/* The first of the directories above that exists, for what lies beside the runtimes
 * (base.json). The caller frees; NULL when there is none. */
char *runtime_main_dir(void);

/* By name or alias; NULL when unknown. */
const struct runtime *runtime_find(const struct runtime_registry *reg, const char *name);

/* Fills in `version` of every available runtime by running its version command on this host,
 * all at the same time. Answers are kept in the state directory until the program's file
 * changes. */
void runtime_find_versions(struct runtime_registry *reg);
