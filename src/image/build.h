/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Builds an image from a recipe, in boxes (docs/images.md):
 *
 *   build box    has compilers, installers and the network of the registries; runs
 *                runtimes/image-build/build.sh, whose stdout is the tar of the new layer. Upon
 *                a whole root it has a copy of that instead, and runs upon.sh
 *   unpack box   has no network; unpacks that tar into a directory of the store
 *
 * The bytes of the tar go from one box to the other through this process, which counts and
 * hashes them and never looks into them. A package can write anything to that stream, so the
 * unpack box treats it as untrusted. */

#include "image/recipe.h"
#include "image/store.h"
#include "run/engine.h"

/* The internal language of the boxes (runtimes/image-build), and its programs. */
#define IMAGE_BUILD_TOOL "image-build"
#define IMAGE_BUILD_SCRIPT "/usr/lib/hermes/build.sh"
#define IMAGE_UPON_PROGRAM "/" IMAGE_BASE "/usr/lib/hermes/hermes-layer"
#define IMAGE_UPON_SCRIPT "/" IMAGE_BASE "/usr/lib/hermes/upon.sh"

struct image_builder {
    struct image_store *store;
    const struct runtime_registry *runtimes;
    struct engine *engine;
    const struct runtime *tool; /* image-build */
    struct image_registry registry;
    const struct run_limits *limits; /* of the build box */
    uint64_t refresh_s;              /* how long a recipe without a lock is not built again */
    uint32_t owner_number;           /* as in run_spec */
    const char *owner;               /* of the image: the name of a key, or IMAGE_FOR_ALL */
    int cancel_fd;                   /* or -1 */
    /* Called with the output of the build as it comes; may be NULL. */
    void (*log)(void *context, const char *data, size_t len);
    void *context;
    double *cpu_ms; /* the CPU time of both boxes is added here; may be NULL */
};

enum {
    IMAGE_ENTRIES_MAX = 1000000, /* files and directories of a layer */
    IMAGE_ENTRY_BYTES = 4096,    /* most bytes on disk of an entry, beside its content */
};

/* The most files and directories of a layer that may take so many bytes on disk. */
uint64_t image_entries_max(uint64_t bytes);

/* For image/import.c. Runs one box; spec has its runtime. */
int image_box_run(const struct image_builder *b, struct run_spec *spec,
    const struct run_variant *variant, const struct run_watch *watch, struct run_result *result,
    struct err *err);

/* Makes the empty directory incoming/tree, which the unpack box writes to. */
int image_make_incoming(const struct image_builder *b, struct err *err);

/* The limits of a build box. */
struct run_limits image_build_limits(uint64_t wall_ms, uint64_t memory_mb, uint64_t disk_mb);

/* The limits of the unpack box, for admission. */
struct run_limits image_unpack_limits(const struct run_limits *build);

/* Builds of one store run one after the other. Waits for the turn of this one and returns a
 * descriptor; closing it ends the turn. */
int image_build_turn(struct image_store *store, int cancel_fd, struct err *err);

/* Finds the image that the same recipe made before; -ENOENT otherwise. */
int image_build_reuse(
    const struct image_builder *builder, const struct image_recipe *recipe, struct image *ret);

/* Builds the image of a recipe, or finds the one that the same recipe made before (*ret_is_new
 * is false then). The caller has the turn (image_build_turn()). ERR_BUILD_FAILED with the last
 * lines of the log when the recipe is to blame. */
int image_build(const struct image_builder *builder, const struct image_recipe *recipe,
    struct image *ret, bool *ret_is_new, struct err *err);

/* The kind of an image: packages for a language, or a whole root. */
struct image_kind {
    bool is_whole;
    const struct runtime *runtime;
    char version[64];
    char program[128]; /* whole: the interpreter */
};

/* whole.c. Finds the language of a whole root, or the program of the wanted one (NULL: any),
 * and runs it. ERR_INVALID when it has none that runs. digests: of the layers, the newest
 * first. */
int image_whole_find(const struct image_builder *b, const struct runtime_registry *runtimes,
    const struct runtime *wanted, const json_t *digests, struct image_kind *to,
    struct err *err);

/* Limits of the box that asks an interpreter for its version, for admission. */
struct run_limits image_probe_limits(void);

/* One short line of plain characters, or false. */
bool image_version_read(const char *text, size_t size, char version[64]);
