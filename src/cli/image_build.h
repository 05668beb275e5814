/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Builds an image on this host, for `hermes image build` and `hermes run --install`. */

#include "image/place.h"
#include "image/store.h"

#include <jansson.h>

/* `body` has the fields of POST /v1/images. `below` names the image that it builds upon, or is
 * NULL. The log goes to stderr. */
int image_build_here(struct image_place *place, json_t *body, const char *below,
    struct image *ret, struct err *err);
