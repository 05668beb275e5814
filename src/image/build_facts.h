/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The facts about a new image: from its recipe, the image below, and the files that the build
 * box returned. */

#include "image/recipe.h"
#include "run/run.h"

#include <jansson.h>

struct image_built {
    const struct image_recipe *recipe;
    const char *digest; /* of the recipe */
    const char *layer;  /* digest of the new layer; NULL: the build changed nothing */
    uint64_t bytes;     /* of the new layer */
};

/* Returns a new object, or NULL without memory. */
json_t *image_build_facts(const struct image_built *built, const struct run_result *result);
