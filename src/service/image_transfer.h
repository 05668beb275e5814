/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Archives of images on their way into the server and out of it. An archive lies in an unnamed
 * file of the image store meanwhile, so nothing of it is left when a program is killed. The
 * bytes of all archives together have the bound image_store_mb, which keys share. */

#include "image/export.h"
#include "service/image.h"

struct image_transfer;

struct image_import_request {
    const char *name;     /* or NULL */
    const char *language; /* or NULL: it is found */
    const char *wanted;   /* which of several images, or NULL */
    uint64_t size;        /* of the body, or 0: unknown */
};

/* Checks the request and makes room for the archive. */
int service_import_begin(struct state *state, int owner, const struct image_import_request *req,
    struct image_transfer **ret, struct err *err);
int service_import_write(
    struct image_transfer *t, const char *data, size_t len, struct err *err);

/* Waits for its turn among builds, and imports the archive. */
int service_import_finish(
    struct image_transfer *t, int cancel_fd, struct image *ret, struct err *err);

/* Packs the whole archive, so that the caller gets all of it or an error. */
int service_export(struct state *state, int owner, const char *name,
    const struct image_export *options, struct image_transfer **ret, uint64_t *ret_size,
    struct err *err);

/* Appends a piece of the archive. 1, 0 at its end, or negative errno. */
int service_export_read(struct image_transfer *t, struct buf *to);

void service_transfer_done(struct image_transfer *t); /* accepts NULL */
