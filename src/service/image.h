/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Images of a server: their owners, and builds that wait for admission. A key sees its own
 * images and those for all; images that an operator makes are for all. */

#include "image/build.h"
#include "image/recipe.h"
#include "image/store.h"
#include "state/state.h"

/* Opens the store in the server's directory. A server without root has none. */
int service_images_open(struct state *state, struct err *err);
void service_images_close(struct state *state);

/* Finds `name` for a run, a session or a program of a judgement; *ret stays NULL for NULL. */
int service_image_find(struct state *state, int owner, const char *name,
    const struct runtime *runtime, struct run_image **ret, struct err *err);

/* The same for a session, which has the image of the setting session_image if it names none. */
struct session_spec;
int service_session_image(
    struct state *state, int owner, struct session_spec *spec, struct err *err);
/* Finds an image of a key by its name or id; and gives it another name of that key. */
int service_image_look(
    struct state *state, int owner, const char *name, struct image *ret, struct err *err);
int service_image_name(struct state *state, int owner, const char *id, const char *name,
    struct image *ret, struct err *err);

/* ERR_UNSUPPORTED, if this server has no images. */
int service_images_check(const struct state *state, struct err *err);

/* The owner of the images that a caller makes, and the owner whose images it can see. An
 * operator can see those of all owners, by id. */
const char *service_image_owner(const struct state *state, int owner);
const char *service_image_scope(const struct state *state, int owner, const char *name);

/* How the caller of a build follows it. */
struct service_log {
    void (*call)(void *context, const char *data, size_t len); /* or NULL */
    void *context;
    int cancel_fd;
};
int service_image_build(struct state *state, int owner, const struct image_recipe *recipe,
    const struct service_log *log, struct image *ret, bool *ret_is_new, struct err *err);

/* Finds the image that `base` of a recipe names. ERR_NOT_FOUND for one of another key. */
int service_image_base(
    struct state *state, int owner, struct image_recipe *recipe, struct err *err);

/* For service/image_transfer.c: a builder for the caller, its admission, and room for the new
 * image. `what` names the build or the import in an error. */
int service_image_admit(struct state *state, int owner, const struct box_need *boxes,
    int cancel_fd, const char *what, struct admit_ticket *ret, struct err *err);
int service_image_check_tool(const struct image_builder *builder, struct err *err);
struct image_builder service_image_builder(
    const struct state *state, int owner, const struct service_log *log);
int service_image_fit(struct state *state, const struct image_builder *builder,
    struct image *image, struct err *err);

/* The caller's images as JSON: one, or the text of all that it can see. */
int service_image_get(
    struct state *state, int owner, const char *name, json_t **ret, struct err *err);
int service_image_list(struct state *state, int owner, struct buf *to, struct err *err);
int service_image_delete(struct state *state, int owner, const char *name, struct err *err);

/* In image_clean.c. For image_store_delete(). */
struct image_trim service_image_trim(const struct state *state);

/* Keeps the store within its bounds. The newest image is the last to go. */
void service_images_fit(struct state *state);

/* The names of images that POST /prebuild makes (docs/compat-runner.md) begin with this.
 * They are removed at a certain age. */
#define PREBUILT "prebuilt-"

/* Removes the caller's prebuilt images that are at least so old and not in use, and appends
 * their names to the list. */
int service_prebuilt_clean(
    struct state *state, int owner, uint64_t days, json_t *removed, struct err *err);

/* Does the same for all keys, every cleanup_interval_hours. */
void service_images_tick(struct state *state);
