/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Roots of images on the side of the spawner's client. The spawner makes one for a registered
 * root and a list of layers, and keeps it while a socket is open (proto/spawn.h). Here they are
 * kept and shared by all boxes that need the same one. The least recently used root makes room
 * for another. */

#include "base/err.h"
#include "run/run.h"

struct engine;
struct image_roots;
struct image_root;

struct image_roots *image_roots_new(void);
void image_roots_free(struct image_roots *roots); /* accepts NULL */

/* The question for the spawner. */
void image_root_key(struct spawn_image *key, unsigned base, const struct run_image *image);

/* Notes a root of the table that has this image: it is taken instead of one that is made after
 * the seal. is_warm: a zygote belongs to it. */
struct image_fixed {
    struct spawn_image key;
    uint32_t number;
    uint32_t is_warm;
};
void image_roots_fix(struct image_roots *roots, unsigned base, const struct run_image *image,
    unsigned number, bool is_warm);
size_t image_roots_fixed(const struct image_roots *roots, const struct image_fixed **ret);
bool image_roots_add_fixed(struct image_roots *roots, const struct image_fixed *fixed);
bool image_roots_has_warm(const struct image_roots *roots, const struct run_image *image);

/* A box that has an image. */
struct image_use {
    const struct run_image *image;
    const struct runtime *runtime;
    unsigned base;  /* the registered root that it has without an image */
    uint32_t owner; /* as in run_spec */
    bool is_top;    /* it has BOX_FORKS or BOX_ROOT (proto/spawn.h) */
};

/* Takes the root of the image: layers over `base`, or a whole root. ERR_NOT_FOUND when a layer
 * is gone, ERR_BUSY when there are too many roots in use, or too many that this owner was the
 * first to use. Thread-safe. */
int image_root_take(struct engine *engine, const struct image_use *use, struct image_root **ret,
    struct err *err);
unsigned image_root_number(const struct image_root *root);
bool image_root_is_warm(const struct image_root *root);       /* accepts NULL */
struct image_root *image_root_share(struct image_root *root); /* accepts NULL */
void image_root_give(struct image_root *root);                /* accepts NULL */

/* Drops the roots that are not in use, so that their layers can be removed. */
void image_roots_trim(struct engine *engine);
