/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Roots of images: a registered root with read-only layers at IMAGE_PLACE (proto/spawn.h). They
 * are made after the seal, from digests alone: the holder of the control socket can start boxes
 * from finished layers and nothing more. A layer is visible at IMAGE_PLACE and nowhere else, so
 * it cannot decide what /box, /proc, /etc or /usr/lib/hermes are. No zygote and no pool belongs
 * to such a root: code of a layer runs in boxes of requests only. The operator's own images are
 * roots of the table, made before the seal from another directory, and may have zygotes. */

#include "proto/spawn.h"

#include <stdbool.h>

/* One root that was made for a client. */
struct image {
    int socket; /* the client holds the root by its other end */
    /* The mount namespace, then a shared lock on each layer: it is not removed meanwhile. */
    int fds[1 + SPAWN_MAX_LAYERS];
    unsigned fd_count;
};

struct images {
    bool has_source;
    uint32_t source; /* number of the directory of layers among the sources */
    struct image items[SPAWN_MAX_IMAGES];
};

struct box;
struct spawner;

/* Makes a root, before the seal one of the table, and answers on fds[0], which it takes. */
void image_make(
    struct spawner *s, const struct spawn_image *request, int *fds, unsigned fd_count);

/* COMMAND_IMAGE: mounts the layers of an image's root in a live box and answers on `socket`. */
void image_join(struct spawner *s, const struct box *box, uint32_t root, int socket);

/* Whether `root` is the number of an image's root. */
bool image_exists(const struct spawner *s, uint32_t root);

/* Lets a root go whose client has closed its socket, or sent something, which it must not. */
void image_check(struct spawner *s, uint32_t root);
