/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Packages on the fly: for a live session, or for one run. They become an image without a name
 * of the same key, which builds upon the image that is there already. The same packages on the
 * same image are built once. */

#include "service/image.h"
#include "session/session.h"

/* From now on code of sessions can ask for packages (`%pip install`). */
void service_packages_open(struct state *state);

/* Decodes {manager, packages} for a session. ERR_INVALID names the field. */
int service_packages_decode(
    const json_t *body, const struct session *s, struct image_recipe *ret, struct err *err);

/* Builds the recipe upon the session's image, and mounts the result in its box. *ret is
 * {installed}: a list of {name, version} that the session did not have before. log->cancel_fd
 * is an eventfd. */
int service_packages_install(struct state *state, struct session *s,
    struct image_recipe *recipe, const struct service_log *log, json_t **ret, struct err *err);

/* Gives the image that a session has a name of its key. ERR_CONFLICT without packages. */
int service_packages_commit(struct state *state, struct session *s, const char *name,
    struct image *ret, struct err *err);

/* Builds the packages of requirements.txt or package.json among the files of a run, and gives
 * the run that image. */
int service_packages_for_run(
    struct state *state, int owner, struct run_spec *spec, int cancel_fd, struct err *err);
