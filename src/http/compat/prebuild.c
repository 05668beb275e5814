/* SPDX-License-Identifier: Apache-2.0 */

/* Prebuilt images of the code runner: images (service/image.h) whose name is prebuilt-TAG and
 * whose recipe is a setup script. POST /run finds them here, and builds one that is missing. */

#include "http/compat/runner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "http/call.h"
#include "http/routes.h"
#include "run/encode.h"
#include "service/image.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    TAG_MAX = IMAGE_NAME_MAX - (sizeof(PREBUILT) - 1),
    RETRY_S = 60, /* after a build on the fly that failed */
};

enum { PREBUILD_TAG, PREBUILD_BASE, PREBUILD_SCRIPT, PREBUILD_FIELDS };
static const struct field prebuild_fields[PREBUILD_FIELDS] = {
    [PREBUILD_TAG] = {.name = "tag", .kind = FIELD_TEXT, .required = true},
    [PREBUILD_BASE] = {.name = "base_image", .kind = FIELD_TEXT},
    [PREBUILD_SCRIPT] = {.name = "setup_script", .kind = FIELD_TEXT, .required = true},
};

/* The parameters of a build. */
struct prebuild {
    char *name; /* prebuilt-TAG */
    const struct runner_image *base;
    const char *script; /* borrowed */
};

static bool has_nul(const json_t *text)
{
    return strlen(json_string_value(text)) != json_string_length(text);
}

static char *full_name(const char *tag)
{
    return xasprintf("%s%s", str_has_prefix(tag, PREBUILT) ? "" : PREBUILT, tag);
}

/* Makes prebuilt-TAG, or returns why there can be none. */
static const char *take_tag(const json_t *tag, char **ret)
{
    static const char blank[] = " \t\n\r\f\v";
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789-_.";
    const char *text = json_string_value(tag) + strspn(json_string_value(tag), blank);
    if (str_has_prefix(text, PREBUILT))
        text += strlen(PREBUILT);
    size_t len = strspn(text, allowed);
    const char *rest = text + len;
    if (has_nul(tag) || rest[strspn(rest, blank)])
        return "tag may only have alphanumeric characters and - _ .";
    if (len == 0)
        return "tag must not be empty";
    if (len > TAG_MAX)
        return "tag is too long: 55 characters at most";
    *ret = xasprintf(PREBUILT "%.*s", (int)len, text);
    return NULL;
}

static char *base_names(void)
{
    const char *names[RUNNER_IMAGE_COUNT];
    for (size_t i = 0; i < RUNNER_IMAGE_COUNT; i++)
        names[i] = runner_images[i].name;
    return str_join(names, RUNNER_IMAGE_COUNT, ", ");
}

const char *runner_script_problem(const json_t *script)
{
    if (has_nul(script))
        return "setup_script contains a NUL character";
    return json_string_length(script) > RECIPE_TEXT_MAX ? "setup_script has more than 1 MiB"
                                                        : NULL;
}

static void decode_prebuild(const json_t *body, struct prebuild *to, json_t *detail)
{
    struct field_value values[PREBUILD_FIELDS];
    fastapi_check(body, prebuild_fields, PREBUILD_FIELDS, values, detail);
    const json_t *tag = values[PREBUILD_TAG].json;
    const json_t *base = values[PREBUILD_BASE].json;
    const json_t *script = values[PREBUILD_SCRIPT].json;
    const char *problem = tag ? take_tag(tag, &to->name) : NULL;
    if (problem)
        fastapi_value_error(detail, "tag", tag, "%s", problem);
    problem = script ? runner_script_problem(script) : NULL;
    if (problem)
        fastapi_value_error(detail, "setup_script", script, "%s", problem);
    to->script = script ? json_string_value(script) : NULL;
    if (!base)
        return;
    const struct runner_image *found =
        has_nul(base) ? NULL : runner_base_find(json_string_value(base));
    if (found) {
        to->base = found;
    } else {
        cleanup_free char *list = base_names();
        fastapi_value_error(detail, "base_image", base,
            "Unsupported base image '%.128s'; there are %s", json_string_value(base), list);
    }
}

/* The original runs the script with plain `sh`: the status of its last command counts. */
static int make_recipe(const struct state *state, const struct prebuild *wanted,
    struct image_recipe *ret, struct err *err)
{
    const struct runtime *rt = runtime_find(&state->runtimes, wanted->base->runtime);
    const char *why = image_name_problem(wanted->name);
    if (why)
        return err_set(err, ERR_BUILD_FAILED, EINVAL, "%s", why);
    if (!rt || !rt->available)
        return err_set(err, ERR_BUILD_FAILED, ENOENT, "the base image code-runner-%s: %s",
            wanted->base->name, rt ? rt->missing : "the server has no such runtime");
    if (!rt->run.has_images)
        return err_set(err, ERR_BUILD_FAILED, ENOSYS,
            "nothing can be built upon code-runner-%s", wanted->base->name);
    *ret = (struct image_recipe){.runtime = rt,
        .name = xstrdup(wanted->name),
        .setup_script = xasprintf("set +eu; %s", wanted->script)};
    return 0;
}

/* Builds it, until the client leaves. */
static int build(
    struct http_request *req, const struct prebuild *wanted, struct image *ret, struct err *err)
{
    CLEANUP(image_recipe_done) struct image_recipe recipe = {0};
    bool is_new;
    int r = service_images_check(req->state, err);
    if (r == 0)
        r = make_recipe(req->state, wanted, &recipe, err);
    if (r < 0)
        return r;
    const struct service_log log = {.cancel_fd = follow_begin(req, err)};
    if (log.cancel_fd < 0)
        return log.cancel_fd;
    r = service_image_build(req->state, req->owner, &recipe, &log, ret, &is_new, err);
    follow_end(req, log.cancel_fd);
    return r;
}

/* The reason of a failed build, without the prefix that the caller writes itself. */
static const char *reason_of(const struct err *err)
{
    static const char known[] = "the build failed: ";
    return err->message + (str_has_prefix(err->message, known) ? sizeof(known) - 1 : 0);
}

static int blame(int r, struct err *err)
{
    const struct err was = *err;
    switch (was.code) {
    case ERR_BUILD_FAILED:
        return err_set(err, ERR_INVALID, EINVAL, "Build failed: %s", reason_of(&was));
    case ERR_INTERNAL:
    case ERR_NO_SPACE:
        return err_set(err, ERR_INTERNAL, was.errnum, "Prebuild failed: %s", was.message);
    default:
        return r;
    }
}

static const struct runner_image *base_of(const struct image *image)
{
    const char *language = json_string_value(json_object_get(image->facts, "language"));
    for (size_t i = 0; language && i < RUNNER_IMAGE_COUNT; i++) {
        if (str_eq(runner_images[i].runtime, language))
            return &runner_images[i];
    }
    return NULL;
}

static json_t *size_of(const struct image *image)
{
    return json_integer(json_integer_value(json_object_get(image->facts, "size_bytes")));
}

static void reply_object(struct http_reply *reply, json_t *object)
{
    char *text = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    reply_json(reply, 200, text, text ? strlen(text) : 0);
}

/* The base takes no extra room, so the size of the image is what the build has added. */
static int reply_built(struct http_request *req, const struct prebuild *wanted,
    struct http_reply *reply, struct err *err)
{
    CLEANUP(image_done) struct image image = {0};
    int r = build(req, wanted, &image, err);
    if (r < 0)
        return blame(r, err);
    cleanup_free char *base = xasprintf("code-runner-%s", wanted->base->name);
    reply_object(reply, json_pack("{s:s, s:s, s:o, s:o, s:s}", "tag", image.name, "base_image",
                            base, "size_bytes", size_of(&image), "layer_size_bytes",
                            size_of(&image), "status", "ready"));
    return 0;
}

int handle_runner_prebuild(struct http_request *req, struct http_reply *reply, struct err *err)
{
    json_t *detail = json_array();
    json_t *body = NULL;
    struct prebuild wanted = {.base = &runner_images[0]};
    int r = 0;
    if (fastapi_body(req, &body, detail) == 0)
        decode_prebuild(body, &wanted, detail);
    if (json_array_size(detail) > 0)
        fastapi_refuse(reply, detail);
    else
        r = reply_built(req, &wanted, reply, err);
    free(wanted.name);
    json_decref(body);
    json_decref(detail);
    return r;
}

/* Docker gives an image the labels of its base. */
static json_t *prebuilt_json(const struct image *image)
{
    const struct runner_image *base = base_of(image);
    json_t *labels = json_object();
    if (base) {
        cleanup_free char *full = xasprintf("code-runner-%s", base->name);
        json_decref(labels);
        labels = json_pack("{s:s, s:s, s:s, s:s, s:s}", "base_image", full, "name", base->title,
            "default_entrypoint", base->entrypoint, "file_extension", base->extension,
            "main_file", base->main_file);
    }
    return json_pack("{s:s, s:o, s:o, s:o}", "tag", image->name, "size_bytes", size_of(image),
        "created", result_time_json(image->created_s), "labels", labels);
}

/* The list is in the order of owners. An image for all that a caller's own one hides is left
 * out. */
int handle_runner_prebuilds(struct http_request *req, struct http_reply *reply, struct err *err)
{
    struct state *state = req->state;
    const char *owner = service_image_owner(state, req->owner);
    struct image *images = NULL;
    size_t count = 0;
    json_t *own = json_object();
    json_t *list = json_array();
    if (state->images)
        (void)image_store_list(state->images, owner, &images, &count, err);
    for (size_t pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < count; i++) {
            if (str_eq(images[i].owner, owner) == (pass == 0) &&
                str_has_prefix(images[i].name, PREBUILT) &&
                !json_object_get(own, images[i].name) &&
                image_store_facts(state->images, &images[i]) == 0) {
                (void)json_object_set_new(own, images[i].name, json_true());
                (void)json_array_append_new(list, prebuilt_json(&images[i]));
                image_done(&images[i]);
            }
        }
    }
    for (size_t i = 0; i < count; i++)
        image_done(&images[i]);
    free(images);
    json_decref(own);
    reply_object(reply, json_pack("{s:o}", "prebuilds", list));
    return 0;
}

static int not_found(struct err *err, const char *name)
{
    return err_set(err, ERR_NOT_FOUND, ENOENT, "Prebuilt image '%.140s' not found.", name);
}

int handle_runner_prebuilt_get(
    struct http_request *req, struct http_reply *reply, struct err *err)
{
    CLEANUP(image_done) struct image image = {0};
    cleanup_free char *name = full_name(req->params[0]);
    const char *owner = service_image_owner(req->state, req->owner);
    int r = service_images_check(req->state, err);
    if (r == 0)
        r = image_store_find(req->state->images, owner, name, &image, err);
    if (r < 0)
        return err->code == ERR_NOT_FOUND ? not_found(err, name) : r;
    reply_object(reply, prebuilt_json(&image));
    return 0;
}

int handle_runner_prebuilt_delete(
    struct http_request *req, struct http_reply *reply, struct err *err)
{
    cleanup_free char *name = full_name(req->params[0]);
    int r = service_image_delete(req->state, req->owner, name, err);
    if (r < 0)
        return err->code == ERR_NOT_FOUND ? not_found(err, name) : r;
    reply_object(reply, json_pack("{s:s, s:s}", "status", "deleted", "tag", name));
    return 0;
}

int handle_runner_cleanup(struct http_request *req, struct http_reply *reply, struct err *err)
{
    json_t *detail = json_array();
    int64_t days = (int64_t)req->state->config.cleanup_max_age_days;
    fastapi_query_number(req, "max_age_days", &days, detail);
    bool refused = json_array_size(detail) > 0;
    if (refused)
        fastapi_refuse(reply, detail);
    json_decref(detail);
    if (refused)
        return 0;
    json_t *removed = json_array();
    int r = service_prebuilt_clean(req->state, req->owner, (uint64_t)days, removed, err);
    if (r == 0)
        reply_object(reply, json_pack("{s:O, s:I}", "removed", removed, "count",
                                (json_int_t)json_array_size(removed)));
    json_decref(removed);
    return r;
}

/* Takes an image of this name for a run. */
static int take(
    struct http_request *req, const char *name, struct runner_request *to, struct err *err)
{
    struct state *state = req->state;
    CLEANUP(image_done) struct image image = {0};
    int r = service_images_check(state, err);
    if (r == 0)
        r = image_store_find(
            state->images, service_image_owner(state, req->owner), name, &image, err);
    if (r < 0)
        return r;
    to->image = base_of(&image);
    to->spec.runtime = to->image ? runtime_find(&state->runtimes, to->image->runtime) : NULL;
    if (!to->spec.runtime || !to->spec.runtime->available)
        return err_set(err, ERR_CONFLICT, ENOENT, "its language cannot be run here");
    return image_for_run(&image, to->spec.runtime, &to->spec.image, err);
}

/* Whether another build would help. */
static bool is_missing(const struct err *err)
{
    return err->code == ERR_NOT_FOUND || err->code == ERR_CONFLICT;
}

static int build_missing(struct http_request *req, const char *name, const json_t *spec,
    struct runner_request *to, struct err *err)
{
    CLEANUP(image_done) struct image image = {0};
    const json_t *base = json_object_get(spec, "base_image");
    const struct prebuild wanted = {.name = (char *)name,
        .base = has_nul(base) ? NULL : runner_base_find(json_string_value(base)),
        .script = json_string_value(json_object_get(spec, "setup_script"))};
    cleanup_free char *list = base_names();
    int r = wanted.base ? build(req, &wanted, &image, err)
                        : err_set(err, ERR_BUILD_FAILED, EINVAL,
                              "Unsupported base image '%.128s'; there are %s",
                              json_string_value(base), list);
    if (r == 0)
        r = take(req, name, to, err);
    if (r == 0 || err->code == ERR_UNSUPPORTED || err->code == ERR_BUSY)
        return r;
    const struct err was = *err;
    return err_retry(err,
        err_set(err, ERR_UNAVAILABLE, was.errnum, "Image '%.80s' could not be built: %s", name,
            reason_of(&was)),
        RETRY_S);
}

int runner_prebuilt_take(struct http_request *req, const char *asked, const json_t *spec,
    struct runner_request *to, struct err *err)
{
    cleanup_free char *name = full_name(asked);
    int r = take(req, name, to, err);
    if (r < 0 && spec && (is_missing(err) || !req->state->images))
        return build_missing(req, name, spec, to, err);
    if (r < 0 && err->code == ERR_NOT_FOUND && !str_eq(asked, name))
        r = take(req, asked, to, err); /* an image of POST /v1/images */
    if (r == 0 || (req->state->images && !is_missing(err)))
        return r;
    const struct err was = *err;
    bool is_stale = was.code == ERR_CONFLICT;
    return err_set(err, ERR_NOT_FOUND, ENOENT, "Image '%.140s' not found%s%s", name,
        is_stale ? ": " : "; GET /images and GET /prebuilds list what there is",
        is_stale ? was.message : "");
}
