/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the commands of `hermes image` share. */

#include "cli/image/recipe_file.h"
#include "image/place.h"
#include "image/store.h"
#include "run/engine.h"

struct image_args {
    const char *words[3];
    size_t count;
    struct recipe_words recipe;
    const char *ref;
    const char *output;
    const char *format;
    const char *compression;
    uint64_t max_mb;
    uint64_t max_days;
    bool json;
    bool is_operator;
};

/* Defaults of a build, as of the settings build_wall_ms, build_memory_mb and build_disk_mb. */
enum { IMAGE_WALL_MS = 600000, IMAGE_MEMORY_MB = 4096, IMAGE_DISK_MB = 3072 };

/* The name, or everything as JSON. */
void image_print(const struct image *image, bool json);

/* Loads the languages, with their versions, and opens an engine for them. */
int image_runtimes_load(
    const struct lang_dirs *dirs, struct runtime_registry *ret, struct err *err);
int image_engine_open(struct image_place *place, struct runtime_registry *runtimes,
    const struct lang_dirs *dirs, const struct run_limits *limits, struct engine **ret,
    struct err *err);

/* transfer.c */
int image_command_import(
    struct image_place *place, const struct image_args *args, struct err *err);
int image_command_export(
    struct image_place *place, const struct image_args *args, struct err *err);
