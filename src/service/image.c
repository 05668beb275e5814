/* SPDX-License-Identifier: Apache-2.0 */

/* See image.h. */

#include "service/image.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "image/build.h"
#include "image/operator.h"
#include "network/policy.h"
#include "service/build_queue.h"
#include "service/templates.h"
#include "session/session.h"
#include "state/network.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Images of the operator that hermes-prepare has found. */
static void take_own(struct state *state)
{
    json_t *list = json_loads(engine_image_text(state->engine), 0, NULL);
    size_t count = json_array_size(list);
    state->own_images = xcalloc(count ? count : 1, sizeof(*state->own_images));
    for (size_t i = 0; i < count; i++)
        state->own_image_count += image_operator_unpack(json_array_get(list, i),
                                      &state->own_images[state->own_image_count]) == 0;
    json_decref(list);
}

static const struct image *find_own(const struct state *state, const char *name)
{
    for (size_t i = 0; i < state->own_image_count; i++) {
        const struct image *image = &state->own_images[i];
        if (str_eq(image->name, name) || str_eq(image->id, name))
            return image;
    }
    return NULL;
}

int service_images_open(struct state *state, struct err *err)
{
    if (!state->engine || !engine_has_images(state->engine))
        return 0;
    take_own(state);
    cleanup_free char *dir = xasprintf("%s/images", state->config.state_dir);
    state->builds = build_queue_new();
    state->spools = ledger_new(state->config.image_store_mb << 20, state->keys.count);
    return image_store_open(&state->images, dir, err);
}

void service_images_close(struct state *state)
{
    image_store_close(state->images);
    for (size_t i = 0; i < state->own_image_count; i++)
        image_done(&state->own_images[i]);
    free(state->own_images);
    build_queue_free(state->builds);
    ledger_free(state->spools);
    free(state->registry_ca);
}

int service_images_check(const struct state *state, struct err *err)
{
    return state->images ? 0
                         : err_set(err, ERR_UNSUPPORTED, ENOSYS,
                               "this server has no images: they need a server that was started "
                               "as root, with CAP_DAC_OVERRIDE");
}

const char *service_image_owner(const struct state *state, int owner)
{
    return state_is_operator(state, owner) ? IMAGE_FOR_ALL : state_owner_name(state, owner);
}

/* Finds the image that a caller means by a name: its own, else one of the operator, else one
 * that is for all. */
static int find(struct state *state, const char *scope, const char *name, struct image *ret,
    struct err *err)
{
    const struct image *own = find_own(state, name);
    int r = service_images_check(state, err);
    if (r == 0)
        r = image_store_find(state->images, scope, name, ret, err);
    bool is_his = r == 0 && !str_eq(ret->owner, IMAGE_FOR_ALL);
    if (!own || is_his || (r < 0 && err->code != ERR_NOT_FOUND))
        return r;
    image_done(ret);
    *err = (struct err){0};
    *ret = *own;
    ret->facts = json_incref(own->facts);
    return 0;
}

int service_image_look(
    struct state *state, int owner, const char *name, struct image *ret, struct err *err)
{
    return find(state, service_image_owner(state, owner), name, ret, err);
}

int service_image_name(struct state *state, int owner, const char *id, const char *name,
    struct image *ret, struct err *err)
{
    int r = service_images_check(state, err);
    return r < 0 ? r
                 : image_store_name(
                       state->images, service_image_owner(state, owner), id, name, ret, err);
}

int service_image_find(struct state *state, int owner, const char *name,
    const struct runtime *runtime, struct run_image **ret, struct err *err)
{
    CLEANUP(image_done) struct image image = {0};
    if (!name)
        return 0;
    int r = service_image_look(state, owner, name, &image, err);
    return r < 0 ? r : image_for_run(&image, runtime, ret, err);
}

int service_session_image(
    struct state *state, int owner, struct session_spec *spec, struct err *err)
{
    const struct image *own = find_own(state, state->config.session_image);
    const char *language =
        own ? json_string_value(json_object_get(own->facts, "language")) : NULL;
    bool is_box = !spec->backend[0] || str_eq(spec->backend, "native");
    if (is_box && !spec->image_name && !spec->wants_no_image && language &&
        str_eq(language, spec->runtime->name))
        return image_for_run(own, spec->runtime, &spec->image, err);
    return service_image_find(state, owner, spec->image_name, spec->runtime, &spec->image, err);
}

/* Like image_json(), with the members that only this server knows. */
static json_t *json_of(struct state *state, int owner, const struct image *image)
{
    json_t *json = image_json(image);
    struct run_image *layers = NULL;
    struct err ignored = {0};
    const char *language = json_string_value(json_object_get(json, "language"));
    const struct runtime *runtime = runtime_find(&state->runtimes, language ? language : "");
    if (runtime && image_for_run(image, runtime, &layers, &ignored) == 0)
        (void)json_object_set_new(json, "warm",
            json_boolean(engine_image_is_warm(state->engine, layers) ||
                         service_templates_has(state, owner, image->id)));
    run_image_free(layers);
    return json;
}

static int check_registry(const struct state *state, struct err *err)
{
    cleanup_free struct network_policy *policy = NULL;
    if (!state->config.registry_hosts[0])
        return 0;
    cleanup_free char *text = xasprintf("allow=%s", state->config.registry_hosts);
    int r = network_policy_parse(text, &policy, err);
    return r < 0 ? err_wrap(err, r, "registry_hosts")
                 : state_network_check(state, policy, "registry_hosts", err);
}

/* The limits of a build: from the settings, and at most the need that one key may have. */
static struct run_limits build_limits(const struct state *state)
{
    const struct config *c = &state->config;
    const struct box_need largest = admit_largest_box(state->admit);
    struct run_limits limits =
        image_build_limits(c->build_wall_ms, c->build_memory_mb, c->build_disk_mb);
    const struct run_limits unpack = image_unpack_limits(&limits);
    uint64_t room = largest.memory_mb > 2 * unpack.memory_mb
                        ? largest.memory_mb - unpack.memory_mb
                        : largest.memory_mb / 2;
    if (limits.memory_mb > room)
        limits = image_build_limits(c->build_wall_ms, room, c->build_disk_mb);
    if (limits.processes + unpack.processes > largest.processes)
        limits.processes = largest.processes - unpack.processes;
    return limits;
}

struct image_builder service_image_builder(
    const struct state *state, int owner, const struct service_log *log)
{
    const struct config *c = &state->config;
    return (struct image_builder){.store = state->images,
        .engine = state->engine,
        .runtimes = &state->runtimes,
        .tool = runtime_find_internal(&state->runtimes, IMAGE_BUILD_TOOL),
        .registry = {.pip_index = c->pip_index,
            .npm_registry = c->npm_registry,
            .hosts = c->registry_hosts,
            .ca = state->registry_ca ? state->registry_ca : "",
            .installer = image_installer(c->uv)},
        .refresh_s = c->image_refresh_h * 3600,
        .owner_number = (uint32_t)(owner + 1),
        .owner = service_image_owner(state, owner),
        .cancel_fd = log->cancel_fd,
        .log = log->call,
        .context = log->context};
}

int service_image_fit(struct state *state, const struct image_builder *builder,
    struct image *image, struct err *err)
{
    CLEANUP(image_done) struct image kept = {0};
    service_images_fit(state);
    if (image_store_find(state->images, builder->owner, image->id, &kept, err) == 0)
        return 0;
    image_done(image);
    return err_set(err, ERR_NO_SPACE, ENOSPC,
        "the image is larger than image_store_mb allows; ask the operator, or leave packages "
        "out");
}

/* Builds it, and makes room for it. */
static int build(struct state *state, const struct image_builder *builder,
    const struct image_recipe *recipe, struct image *ret, bool *ret_is_new, struct err *err)
{
    int r = state_wait_for_spawner(state, builder->cancel_fd, err);
    if (r == 0)
        r = image_build(builder, recipe, ret, ret_is_new, err);
    return r < 0 || !*ret_is_new ? r : service_image_fit(state, builder, ret, err);
}

int service_image_admit(struct state *state, int owner, const struct box_need *boxes,
    int cancel_fd, const char *what, struct admit_ticket *ret, struct err *err)
{
    const struct admit_need need = admit_need_run(boxes);
    int r = session_admit(state, owner, &need, ret, err);
    if (r == 0)
        r = admit_wait(state->admit, ret, cancel_fd, 0, err);
    if (r == -ECANCELED && !err->code)
        (void)err_set(err, ERR_CONFLICT, ECANCELED, "the %s was cancelled", what);
    return r;
}

/* Waits for a place with the memory of both boxes. */
static int build_admitted(struct state *state, int owner, const struct image_builder *builder,
    const struct image_recipe *recipe, struct image *ret, bool *ret_is_new, struct err *err)
{
    struct admit_ticket ticket;
    const struct run_limits limits = build_limits(state);
    const struct run_limits unpack = image_unpack_limits(&limits);
    const struct box_need both = box_need_sum(limits_need(&limits), limits_need(&unpack));
    int r = service_image_admit(state, owner, &both, builder->cancel_fd, "build", &ticket, err);
    if (r < 0)
        return r;
    double cpu_ms = 0;
    struct image_builder admitted = *builder;
    admitted.limits = &limits;
    admitted.cpu_ms = &cpu_ms;
    r = build(state, &admitted, recipe, ret, ret_is_new, err);
    admit_leave(state->admit, &ticket, cpu_ms);
    return r;
}

/* Waits for the turn of this build, or for the end of an equal one. */
static int build_in_turn(struct state *state, int owner, const struct image_builder *builder,
    const struct image_recipe *recipe, struct image *ret, bool *ret_is_new, struct err *err)
{
    char digest[DIGEST_HEX + 1];
    image_recipe_digest(recipe, &builder->registry, builder->owner, digest);
    struct build_call call = {.owner = owner, .recipe = digest};
    int r = build_queue_enter(state->builds, &call, builder->cancel_fd, err);
    if (r == BUILD_TURN) {
        cleanup_close int turn = image_build_turn(state->images, builder->cancel_fd, err);
        r = turn < 0 ? turn
                     : build_admitted(state, owner, builder, recipe, ret, ret_is_new, err);
        build_queue_leave(state->builds, &call, r, err);
        return r;
    }
    if (r == 0 && image_build_reuse(builder, recipe, ret) < 0)
        r = err_set(err, ERR_CONFLICT, ENOENT, "the image was removed meanwhile; try again");
    return r;
}

int service_image_base(
    struct state *state, int owner, struct image_recipe *recipe, struct err *err)
{
    CLEANUP(image_done) struct image base = {0};
    if (!recipe->base_name)
        return 0;
    int r = service_image_look(state, owner, recipe->base_name, &base, err);
    return r < 0 ? r : image_recipe_build_upon(recipe, &base, err);
}

int service_image_check_tool(const struct image_builder *builder, struct err *err)
{
    return builder->tool
               ? 0
               : err_set(err, ERR_UNSUPPORTED, ENOENT,
                     "runtimes/" IMAGE_BUILD_TOOL " is missing; install Hermes again");
}

int service_image_build(struct state *state, int owner, const struct image_recipe *recipe,
    const struct service_log *log, struct image *ret, bool *ret_is_new, struct err *err)
{
    struct image_builder builder = service_image_builder(state, owner, log);
    int r = service_images_check(state, err);
    *ret_is_new = false;
    if (r == 0)
        r = service_image_check_tool(&builder, err);
    if (r == 0 && image_build_reuse(&builder, recipe, ret) == 0)
        return 0;
    if (r == 0)
        r = check_registry(state, err);
    return r < 0 ? r : build_in_turn(state, owner, &builder, recipe, ret, ret_is_new, err);
}

/* The owner whose images a caller can see and remove. An operator can see and remove those
 * of all owners, by id. */
const char *service_image_scope(const struct state *state, int owner, const char *name)
{
    return state_is_operator(state, owner) && str_has_prefix(name, "img_")
               ? NULL
               : service_image_owner(state, owner);
}

int service_image_get(
    struct state *state, int owner, const char *name, json_t **ret, struct err *err)
{
    CLEANUP(image_done) struct image image = {0};
    int r = find(state, service_image_scope(state, owner, name), name, &image, err);
    if (r == 0)
        *ret = json_of(state, owner, &image);
    return r;
}

/* Adds one image to the text of a list. */
static int add_listed(
    struct state *state, int owner, const struct image *image, bool is_first, struct buf *to)
{
    json_t *json = json_of(state, owner, image);
    (void)json_object_del(json, "lock"); /* long; only GET of this one image has it */
    cleanup_free char *text = json_dumps(json, JSON_COMPACT | RESULT_JSON_FLAGS);
    json_decref(json);
    int r = text && !is_first ? buf_append_str(to, ",") : text ? 0 : -ENOMEM;
    return r < 0 ? r : buf_append_str(to, text);
}

/* One image after the other: with all packages of all images, the parsed form of a list would
 * be many times as large as its text. */
int service_image_list(struct state *state, int owner, struct buf *to, struct err *err)
{
    struct image *images = NULL;
    size_t count = 0;
    bool is_first = true;
    bool is_operator = state_is_operator(state, owner);
    int r = buf_append_str(to, "{\"images\":[");
    for (size_t i = 0; r == 0 && i < state->own_image_count; i++, is_first = false)
        r = add_listed(state, owner, &state->own_images[i], is_first, to);
    if (r == 0 && state->images)
        r = image_store_list(state->images,
            is_operator ? NULL : service_image_owner(state, owner), &images, &count, err);
    for (size_t i = 0; i < count; i++) {
        if (r == 0 && image_store_facts(state->images, &images[i]) == 0) {
            r = add_listed(state, owner, &images[i], is_first, to);
            is_first = false;
        }
        image_done(&images[i]);
    }
    free(images);
    r = r < 0 ? r : buf_append_str(to, "]}");
    return r < 0 && !err->code ? state_full(err) : r;
}

int service_image_delete(struct state *state, int owner, const char *name, struct err *err)
{
    const struct image_trim letting_go = service_image_trim(state);
    CLEANUP(image_done) struct image image = {0};
    struct err ignored = {0};
    const char *scope = service_image_scope(state, owner, name);
    int r = service_images_check(state, err);
    if (r == 0 && image_store_find(state->images, scope, name, &image, &ignored) == 0)
        service_templates_drop(state, TEMPLATES_OF_ALL, image.id);
    if (r == 0)
        r = image_store_delete(state->images, scope, name, &letting_go, err);
    return r < 0 && err->code == ERR_NOT_FOUND && find_own(state, name)
               ? err_set(err, ERR_CONFLICT, EPERM,
                     "`%.64s` is an image of the operator: remove it with `hermes image rm`, "
                     "and from the setting operator_images",
                     name)
               : r;
}
