/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Shared by the two files of an image store: store.c finds and adds images, store_remove.c
 * removes them. No other file includes this. */

#include "base/strv.h"
#include "image/store.h"

#include <pthread.h>

struct image_store {
    pthread_mutex_t lock;
    int dir_fd;
    int layers_fd;
    int lock_fd;
    /* The layers of images, by id. An id is made from its facts, so they never change. */
    json_t *layers;
    struct strv trash; /* temporary names in layers/ that store_leave() removes */
};

/* Every change happens between these two. */
void store_enter(struct image_store *store);
void store_leave(struct image_store *store);

/* The directories of a store: a list that ends with NULL. */
extern const char *const store_parts[];

/* Calls `see` for every image of an owner, or of all, without its facts, until it returns other
 * than 0. */
typedef int store_see_fn(struct image_store *store, struct image *image, void *context);
int store_walk_owner(
    struct image_store *store, const char *owner, store_see_fn *see, void *context);
int store_walk_all(struct image_store *store, store_see_fn *see, void *context);

/* The layers of an image, borrowed; NULL when it is not there. */
const json_t *store_layers(struct image_store *store, const char *id);

/* A store_see_fn that takes every image into a list. */
struct store_list {
    struct image *items;
    size_t count;
};
int store_list_add(struct image_store *store, struct image *image, void *list);

/* An image of an owner, by its name or id, without its facts. -ENOENT when there is none. */
int store_look_up(
    struct image_store *store, const char *owner, const char *name, struct image *ret);

/* Sets the error for a name that was not found. */
int store_not_found(struct err *err, const char *name);

/* In store_remove.c: removes the image without a name that an owner has not used for longest.
 */
int store_make_room(struct image_store *store, const char *owner);

/* In store_remove.c: removes files that a crash left. */
void store_sweep(struct image_store *store);
