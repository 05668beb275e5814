/* SPDX-License-Identifier: Apache-2.0 */

/* /v1/images. An image of another key is answered exactly like one that does not exist. A build
 * runs on the connection's thread; with `Accept: text/event-stream` it is a stream. When the
 * client leaves, the build ends. */

#include "service/image.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "http/call.h"
#include "http/routes.h"
#include "http/v1/build_events.h"
#include "http/v1/sessions.h"
#include "run/encode.h"
#include "json/body.h"

#include <errno.h>
#include <stdlib.h>

enum { LIST_MAX = 512 << 20 }; /* bytes; the purse bounds a list much earlier */

/* A build as a stream. */
struct image_work {
    struct state *state;
    int owner;
    struct image_recipe recipe;
};

static int run_work(
    void *context, const struct service_log *log, json_t **ret_answer, struct err *err)
{
    struct image_work *work = context;
    CLEANUP(image_done) struct image image = {0};
    bool is_new = false;
    int r =
        service_image_build(work->state, work->owner, &work->recipe, log, &image, &is_new, err);
    if (r == 0)
        *ret_answer = image_json(&image);
    return r;
}

static void end_work(void *context)
{
    struct image_work *work = context;
    image_recipe_done(&work->recipe);
    free(work);
}

static int reply_stream(struct http_request *req, struct image_recipe *recipe,
    struct http_reply *reply, struct err *err)
{
    struct image_work *work = xcalloc(1, sizeof(*work));
    *work = (struct image_work){.state = req->state, .owner = req->owner, .recipe = *recipe};
    *recipe = (struct image_recipe){0};
    return build_events_reply(req, &(struct build_work){run_work, end_work, work}, reply, err);
}

static int reply_built(struct http_request *req, const struct image_recipe *recipe,
    struct http_reply *reply, struct err *err)
{
    CLEANUP(image_done) struct image image = {0};
    bool is_new = false;
    struct service_log log = {.cancel_fd = follow_begin(req, err)};
    if (log.cancel_fd < 0)
        return log.cancel_fd;
    int r = service_image_build(req->state, req->owner, recipe, &log, &image, &is_new, err);
    follow_end(req, log.cancel_fd);
    if (r == 0)
        reply_value(reply, is_new ? 201 : 200, image_json(&image));
    return r;
}

int handle_image_create(struct http_request *req, struct http_reply *reply, struct err *err)
{
    CLEANUP(image_recipe_done) struct image_recipe recipe = {0};
    json_t *body = NULL;
    int r = json_run_parse(req->body.data ? req->body.data : "", req->body.len, &body, err);
    if (r == 0)
        r = image_recipe_decode(body, &req->state->runtimes, &recipe, err);
    json_decref(body);
    if (r == 0)
        r = service_images_check(req->state, err);
    if (r == 0)
        r = service_image_base(req->state, req->owner, &recipe, err);
    if (r < 0)
        return r;
    return http_accepts(req, "text/event-stream") ? reply_stream(req, &recipe, reply, err)
                                                  : reply_built(req, &recipe, reply, err);
}

int handle_image_list(struct http_request *req, struct http_reply *reply, struct err *err)
{
    cleanup_buf struct buf text;
    buf_init(&text, LIST_MAX);
    text.purse = &req->purse.counts;
    int r = service_image_list(req->state, req->owner, &text, err);
    if (r < 0)
        return r;
    size_t len;
    char *list = buf_take(&text, &len);
    reply_json(reply, 200, list, len);
    return 0;
}

int handle_image_get(struct http_request *req, struct http_reply *reply, struct err *err)
{
    json_t *image;
    int r = service_image_get(req->state, req->owner, req->params[0], &image, err);
    if (r == 0)
        reply_value(reply, 200, image);
    return r;
}

int handle_image_delete(struct http_request *req, struct http_reply *reply, struct err *err)
{
    int r = service_image_delete(req->state, req->owner, req->params[0], err);
    if (r == 0)
        reply->status = 204;
    return r;
}
