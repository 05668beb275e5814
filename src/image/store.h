/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The images that are kept on disk. An image is a list of layers and facts about them. The
 * directory of a store has:
 *
 *   layers/HEX/tree/     a layer; HEX is the SHA-256 of its canonical tar
 *   layers/HEX/size      bytes that it takes on disk, at most
 *   images/ID.json       an image; ID is made from the SHA-256 of this text
 *   names/OWNER/NAME     "ID\n": what OWNER calls it; an image without a name is called ID
 *   recipes/HEX          "ID\n": what a recipe gave (image/recipe.h)
 *   incoming/tree/       the layer that is being unpacked
 *   spool/               of imports and exports: unnamed files, and .members/, which an archive
 *                        was split into
 *
 * Nothing has its name before it is complete: everything is made under another name and
 * renamed. A name that begins with a dot is temporary. Every user of a layer holds a shared
 * flock on its tree; a remover takes an exclusive one.
 *
 * The store is in store.c, removing in store_remove.c, the facts about an image in image.c. */

#include "base/err.h"
#include "base/id.h"
#include "run/run.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    IMAGE_NAME_MAX = 64,
    IMAGE_ID_LEN = 36,
    DIGEST_HEX = 2 * SPAWN_DIGEST,
    IMAGE_NAMES_MAX = 256, /* of one owner; a list of them is made in memory */
    IMAGE_FACTS_KB = 256,  /* of the variables and packages that an import or build names, as
                            * JSON */
};

/* The owner of images that every key can use. No key has this name. */
#define IMAGE_FOR_ALL "@all"

/* The file that a build or an import has locked (image/build.h). */
#define IMAGE_TURN "build.lock"

struct image_store;

struct image {
    char id[IMAGE_ID_LEN + 1];
    char name[IMAGE_NAME_MAX + 1]; /* the id, if it has no name */
    char owner[128];               /* or IMAGE_FOR_ALL */
    int64_t created_s;
    json_t *facts; /* the text of images/ID.json */
};
void image_done(struct image *image); /* accepts a zeroed one */

/* Opens the store in `dir`, which exists; makes what is missing and removes what a crash left.
 * A thread may use the store at any time. */
int image_store_open(struct image_store **ret, const char *dir, struct err *err);
void image_store_close(struct image_store *store); /* accepts NULL */

/* Makes the directories of a store in dir_fd, for a user. */
int image_store_make(int dir_fd, uid_t uid, gid_t gid);

/* NULL, or why this is not a valid name for an image. */
const char *image_name_problem(const char *name);

/* Finds an image of `owner` or an image for all, by its name or its id. ERR_NOT_FOUND
 * otherwise, also for an image of another owner. Counts as a use of the image. owner NULL:
 * finds an image of any owner, by its id only. */
int image_store_find(struct image_store *store, const char *owner, const char *name,
    struct image *ret, struct err *err);

/* The images that `owner` sees, by owner and name, without their facts; owner NULL: of all
 * owners. */
int image_store_list(struct image_store *store, const char *owner, struct image **ret,
    size_t *ret_count, struct err *err);

/* Reads the facts of an image that a list has. -ENOENT when it has gone meanwhile. */
int image_store_facts(struct image_store *store, struct image *image);

/* Removes a name, and the image with its layers if that was the last name. ERR_CONFLICT when a
 * box uses it. `trim` releases layers that no box uses any more. */
struct image_trim {
    void (*call)(void *context);
    void *context;
};
int image_store_delete(struct image_store *store, const char *owner, const char *name,
    const struct image_trim *trim, struct err *err);

struct image_bounds {
    uint64_t max_bytes;    /* of all layers; 0: no bound */
    int64_t made_before_s; /* images that were made earlier are removed; 0: no bound */
    const char *prefix;    /* the age is for names that begin with this; NULL: for all */
    const char *owner;     /* of this owner only; NULL: of all */
    /* Called for every image that is removed; may be NULL. */
    void (*told)(void *context, const struct image *image);
    void *context;
};
struct image_gone {
    size_t images;
    uint64_t bytes;
    size_t kept; /* in use, so they stay */
};

/* First removes images past their age. Then, until the rest fits, the least recently used
 * image of the owner with the most bytes. Then layers that no image has. Images in use stay. */
int64_t image_made_before(uint64_t max_age_days); /* for made_before_s; 0 days: no bound */
int image_store_clean(struct image_store *store, const struct image_bounds *bounds,
    const struct image_trim *trim, struct image_gone *ret, struct err *err);

/* Calls an image of this owner, or one for all, by a name of the owner. */
int image_store_name(struct image_store *store, const char *owner, const char *id,
    const char *name, struct image *ret, struct err *err);

/* Sets the error for a store that cannot be used, also because its disk is full; returns r. */
int image_store_broken(struct err *err, int r, const char *what);

/* For image/build.c. image_store_keep_layer() returns a descriptor with a shared lock: until
 * image_store_add() has been called, a clean-up takes the layer for an orphan. */
int image_store_dir(const struct image_store *store);
int image_store_has_layer(struct image_store *store, const char hex[DIGEST_HEX + 1]);
int image_store_keep_layer(
    struct image_store *store, const char hex[DIGEST_HEX + 1], uint64_t bytes, struct err *err);
/* For image/export.c: a descriptor with a shared lock, so that the layer stays. */
int image_store_hold_layer(
    struct image_store *store, const char hex[DIGEST_HEX + 1], struct err *err);
int image_store_add(struct image_store *store, const char *owner, const char *name,
    const char *recipe, json_t *facts, struct image *ret, struct err *err);

/* The image that a recipe gave, if it is there and, with max_age_s, not older. -ENOENT
 * otherwise. Gives it the name, too. */
int image_store_reuse(struct image_store *store, const char *owner, const char *name,
    const char *recipe, uint64_t max_age_s, struct image *ret);

/* The image as requests for runs take it, for a runtime. ERR_INVALID when it is of another
 * language, ERR_CONFLICT when it was made for another version of it. */
int image_for_run(const struct image *image, const struct runtime *runtime,
    struct run_image **ret, struct err *err);

/* A list of packages that a build or an archive tells: anything can be written there. Only
 * names and versions of plain characters are kept, and not too many. The caller owns the
 * result. */
json_t *image_packages_read(const json_t *from);

/* ERR_TOO_LARGE when variables and packages (NULL: none) are more than IMAGE_FACTS_KB. */
int image_facts_check(const json_t *env, const json_t *packages, struct err *err);

/* Reads a list of digests. -EBADMSG when `layers` is not such a list. */
int image_layers_read(const json_t *layers, struct run_image *to);

/* Finds the interpreter of a whole root among the programs that boxes of the language can
 * execute; false when it is none of them. */
bool image_find_program(
    const struct runtime *runtime, const char *program, struct run_image *to);

/* The image as answers show it. */
json_t *image_json(const struct image *image);
