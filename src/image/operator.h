/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Images of the operator: made from a recipe with a lock that the configuration names, and kept
 * in the store of the command line, which belongs to root (image/place.h). Only their code may
 * run in a zygote. A store of a server cannot hold one: the server's user owns it. */

#include "image/recipe.h"
#include "image/store.h"

/* Reads a recipe: `where` is the name of one that is shipped (images/NAME), a directory with
 * recipe.json and lock.txt, or a .json file. The caller owns *ret. -ENOENT without a text when
 * `where` is a name that is not shipped. */
int image_recipe_open(
    const char *where, const struct runtime_registry *runtimes, json_t **ret, struct err *err);

/* Why this recipe cannot be an operator's image, or NULL. */
const char *image_operator_problem(const struct image_recipe *recipe);

/* Finds the image that a recipe of the operator gave. -ENOENT, without a message, when it
 * was not built. */
int image_operator_find(struct image_store *store, const char *where,
    const struct runtime_registry *runtimes, struct image *ret, struct err *err);

/* {"name", "created_s", "facts"} and back: how hermes-prepare tells the server. */
json_t *image_operator_pack(const struct image *image);
int image_operator_unpack(const json_t *json, struct image *ret);
