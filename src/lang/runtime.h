/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A language is data: runtimes/NAME/runtime.json (docs/runtimes.md has the format). This module
 * loads and checks the registry and finds the toolchain on this host. run/plan.c turns a
 * run_spec into the argument lists of its stages. */

#include "base/buf.h"
#include "base/err.h"
#include "base/strv.h"
#include "lang/files.h"
#include "lang/limits.h"
#include "lang/state_dir.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A path of the host that a box sees read-only. */
struct root_path {
    char *host; /* may be a pattern for hostpath_glob(): every match is bound under its own
                   path, or the newest one at `box` */
    char *box;  /* the path in the box; NULL: the same as on the host */
    bool optional;
    bool copy; /* part of the tree on disk, not a mount of its own; for small files */
};

/* What the box of a stage sees besides the base tree. lang/rootfs.c turns it into spawner
 * entries. */
struct root_spec {
    struct root_path *paths;
    size_t path_count;
    struct strv tools; /* programs for /usr/bin, besides the base set */
    struct strv links; /* "/path=target", instead of directories of the base tree */
    struct strv execs; /* absolute paths inside the box. run_stage.exec is an index into this
                          list; the last one is sh */
    bool whole_host;   /* use the host's whole tree instead; for controls */
    bool has_seed;     /* the tree has the directory SEED_IN_BOX (lang/seed.h) */
    bool is_skeleton;  /* no tools and libraries: lies over a whole root (docs/images.md) */
    bool keeps_etc;    /* ... and keeps the image's /etc, except the files that a network
                        * needs */
};

/* How the seed of a language is made and used (lang/seed.h). */
struct seed_def {
    char *recipe;    /* a script for sh; NULL: the language has no seed */
    struct strv env; /* "KEY=value", more variables of the toolchain once the seed is ready */
    bool in_run;     /* the run stage sees the seed, too */
    uint32_t max_mb; /* most that it may have */
    struct run_limits limits; /* of the box that makes it; 0: as the compile stage */
};

/* How an interpreter reports a module that is missing, and the image that has it
 * (run/hint.h). */
struct missing_module {
    char *words; /* what stands before the name in quotes; NULL: there are no hints */
    char *image;
    struct strv modules; /* of the image */
};

/* How the program of a stage is started ahead, to wait for its package (spawn/pool.h). */
struct park_def {
    size_t exec;      /* the program that waits: index into the root's programs */
    struct strv args; /* its arguments, after those of argv that do not depend on a request */
    uint32_t min;     /* ready boxes to keep at least */
    uint32_t max;     /* ready boxes to keep at most; 0: none is started ahead */
    uint32_t base_mb; /* MiB that a cold program holds; 0: as much as while it waits */
};

/* The compile or run stage, as runtime.json describes it. The lists hold templates
 * (lang/template.h). */
struct stage_def {
    struct strv argv;           /* argv[0] is execs[0] of the root */
    struct strv env;            /* "KEY=template" */
    struct strv sources;        /* extensions of the files for {sources} */
    struct strv allow;          /* glob patterns of allowed compile_args */
    struct strv artefacts;      /* globs of the compiler's results */
    struct strv warm;           /* arguments that make the program of argv[0] a zygote */
    struct strv session;        /* interpreter of a session; argv[0] is a program of the root */
    struct strv session_warm;   /* arguments that make argv[0] a zygote of interpreters */
    bool session_forks;         /* the interpreter can be forked, memory included */
    char *image_program;        /* argv[0] in a box with an image, or NULL: as without one. The
                                   program that is executed stays the same */
    struct strv image_env;      /* "KEY=value", more variables in a box with an image */
    struct strv image_programs; /* where a whole root may have the interpreter */
    bool has_images;            /* there can be images of this language */
    struct strv early_env;      /* prefixes of variables that the interpreter reads when it
                                   starts: a request that sets one starts cold */
    struct missing_module missing;
    struct park_def park;
    struct seed_def seed;     /* of the compile stage */
    char *project_file;       /* a file whose presence selects project_argv, or NULL */
    struct strv project_argv; /* argv[0] is execs[1] */
    struct strv project_artefacts;
};

/* Rules of languages that data cannot express (run/prepare.c), by their names in
 * runtime.json. */
#define RUNTIME_PREPARE(X) X(JAVA, "java") X(GO, "go") X(RUST, "rust") X(NATIVE, "native")
enum runtime_prepare {
    PREPARE_NOTHING,
#define PREPARE_ENUM(id, name) PREPARE_##id,
    RUNTIME_PREPARE(PREPARE_ENUM)
#undef PREPARE_ENUM
        PREPARE_COUNT
};

/* For a language whose compiler has a version of its own: TypeScript and esbuild. All members
 * are NULL for other languages. */
struct version_of {
    char *program;  /* the version command prints the version of this program */
    char *since;    /* from this version on ... */
    char *language; /* ... the program knows this version of the language */
};

struct runtime {
    char *name;
    bool is_internal; /* a tool of Hermes itself: no request may name it and no list has it */
    struct strv aliases;
    struct strv extensions; /* ".py" */
    char *main_file;
    char *package; /* the package to install when the toolchain is missing */
    bool available;
    char *missing;  /* why the runtime is not available and which package to install, or NULL */
    char *version;  /* NULL until runtime_find_versions() sets it, or unknown */
    char *compiler; /* name and version of the compiler, if `version` is the version of another
                       program; else NULL. Set with `version` */
    bool compiled;
    char *home;               /* directory of the toolchain found on the host, or NULL */
    char *home_box;           /* the path of home in the box */
    uint32_t candidate;       /* index in `toolchain` of the toolchain found on the host */
    struct strv version_argv; /* command that prints the version, run on the host */
    struct version_of version_of;
    struct strv parts; /* patterns of files that a whole installation has */
    enum runtime_prepare prepare;
    struct strv sdk_names; /* files of the directory runtimes/NAME/sdk */
    struct run_files sdk;  /* the same with contents, after runtime_load_sdk() */
    struct stage_def compile;
    struct stage_def run;
    struct root_spec compile_root;
    struct root_spec run_root;
    struct run_limits limits; /* 0 where runtime.json names no limit */
    struct run_limits compile_limits;
    char *dir;       /* runtimes/NAME on the host */
    char *user_home; /* what ~ stands for, or NULL */
    char *text;      /* of runtime.json */
    size_t text_len;
    uint8_t digest[32]; /* SHA-256 of runtime.json; compiled languages only */
};

struct runtime_registry {
    struct runtime *items;
    size_t count;
};

/* Loads every runtime.json, sorted by name. With `only` (a name, an alias, or a file name whose
 * extension decides) loads just that one; an unknown language is ERR_INVALID on the field
 * "language". Every problem names file and field. Without `only`, a language that is only
 * partly installed becomes unavailable, and `missing` says what to install. The main directory
 * is dirs->runtimes, else one beside the program (../runtimes, ../../../runtimes in the build
 * tree, ../share/hermes/runtimes), else /usr/share/hermes/runtimes. Those of dirs->more are
 * read after it. */
int runtime_load(struct runtime_registry *ret, const struct lang_dirs *dirs, const char *only,
    struct err *err);
void runtime_registry_done(struct runtime_registry *reg);

/* Reads the sdk files of all runtimes. A front door that offers an SDK puts them beside the
 * user's program. */
int runtime_load_sdk(struct runtime_registry *reg, struct err *err);

/* The main directory. It also has base.json. The caller frees it; NULL when there is none. */
char *runtime_main_dir(const struct lang_dirs *dirs);

/* Finds a runtime by name or alias; NULL when unknown, and for one that is internal unless
 * runtime_find_internal() looks for it. */
const struct runtime *runtime_find_internal(
    const struct runtime_registry *reg, const char *name);
const struct runtime *runtime_find(const struct runtime_registry *reg, const char *name);

/* version.c: fills in `version` of every available runtime. Runs all version commands on this
 * host at the same time, never as root: root runs them as a user without any files
 * (docs/security.md). Results are kept in the state directory (the `named` of state_dir_open())
 * until the program's file changes. */
void runtime_find_versions(struct runtime_registry *reg, const char *state_dir);

/* runtime_pack.c: writes the registry for a process that must not, or cannot, look at the host:
 * what the files say, what was found on the host, and the sdk files. runtime_unpack() makes the
 * same registry from it; -EPROTO when the bytes come from another build. */
int runtime_pack(const struct runtime_registry *reg, struct buf *to);
int runtime_unpack(const struct buf *from, struct runtime_registry *ret, struct err *err);
