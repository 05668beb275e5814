/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The images of programs that need no server: a store in the user's own state directory. */

#include "image/store.h"
#include "run/engine.h"

struct image_place {
    struct image_store *store;
    char *layers; /* paths for struct engine_options */
    char *incoming;
};

/* Opens STATE_DIR/images (lang/state_dir.h). ERR_UNSUPPORTED without root. */
int image_place_open(const char *state_dir, struct image_place *ret, struct err *err);
void image_place_close(struct image_place *place); /* accepts a zeroed one */

/* Finds an image of this store for a run. */
int image_place_find(struct image_place *place, const char *name, const struct runtime *runtime,
    struct run_image **ret, struct err *err);
