/* SPDX-License-Identifier: Apache-2.0 */

/* See place.h. */

#include "image/place.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "lang/state_dir.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int image_place_open(const char *state_dir, struct image_place *ret, struct err *err)
{
    cleanup_free char *state = NULL;
    if (geteuid() != 0)
        return err_set(err, ERR_UNSUPPORTED, EPERM,
            "images need root: without it the layers of an image cannot be mounted");
    cleanup_close int fd = state_dir_open(state_dir, &state, err);
    if (fd < 0)
        return fd;
    if (mkdirat(fd, "images", 0700) < 0 && errno != EEXIST)
        return err_set(err, ERR_UNAVAILABLE, errno, "%s/images: %s", state, strerror(errno));
    cleanup_free char *dir = xasprintf("%s/images", state);
    int r = image_store_open(&ret->store, dir, err);
    if (r < 0)
        return r;
    ret->layers = xasprintf("%s/layers", dir);
    ret->incoming = xasprintf("%s/incoming", dir);
    return 0;
}

void image_place_close(struct image_place *place)
{
    image_store_close(place->store);
    free(place->layers);
    free(place->incoming);
    *place = (struct image_place){0};
}

int image_place_find(struct image_place *place, const char *name, const struct runtime *runtime,
    struct run_image **ret, struct err *err)
{
    CLEANUP(image_done) struct image image = {0};
    if (!runtime->run.has_images)
        return err_field(err, "image", "language `%s` does not support images", runtime->name);
    int r = image_store_find(place->store, IMAGE_FOR_ALL, name, &image, err);
    return r < 0 ? r : image_for_run(&image, runtime, ret, err);
}
