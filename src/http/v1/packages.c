/* SPDX-License-Identifier: Apache-2.0 */

/* Packages of a live session, and the image that they are. */

#include "service/packages.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "http/call.h"
#include "http/routes.h"
#include "http/v1/build_events.h"
#include "http/v1/sessions.h"
#include "json/body.h"

#include <errno.h>
#include <stdlib.h>

enum { LOG_MAX = 256 << 10 }; /* bytes of the log in an answer: its beginning */

struct packages_work {
    struct session *s;
    struct state *state;
    struct image_recipe recipe;
};

static int run_work(
    void *context, const struct service_log *log, json_t **ret_answer, struct err *err)
{
    struct packages_work *work = context;
    return service_packages_install(work->state, work->s, &work->recipe, log, ret_answer, err);
}

static void end_work(void *context)
{
    struct packages_work *work = context;
    session_unref(work->s);
    image_recipe_done(&work->recipe);
    free(work);
}

static void keep_log(void *context, const char *data, size_t len)
{
    (void)buf_append_some(context, data, len);
}

static int reply_installed(struct http_request *req, struct packages_work *work,
    struct http_reply *reply, struct err *err)
{
    cleanup_buf struct buf text;
    json_t *answer = NULL;
    buf_init(&text, LOG_MAX);
    struct service_log log = {keep_log, &text, follow_begin(req, err)};
    if (log.cancel_fd < 0)
        return log.cancel_fd;
    int r = run_work(work, &log, &answer, err);
    follow_end(req, log.cancel_fd);
    if (r < 0)
        return refuse_lost(work->s, reply, r, err);
    (void)json_object_set_new(
        answer, "log", result_text_json(text.data ? text.data : "", text.len, ENCODE_UTF8));
    reply_value(reply, 200, answer);
    return 0;
}

static int read_body(const struct http_request *req, json_t **ret, struct err *err)
{
    return json_run_parse(req->body.data ? req->body.data : "", req->body.len, ret, err);
}

int handle_session_packages(struct http_request *req, struct http_reply *reply, struct err *err)
{
    json_t *body = NULL;
    struct packages_work *work = xcalloc(1, sizeof(*work));
    *work = (struct packages_work){.s = find_session(req, err), .state = req->state};
    int r = work->s ? read_body(req, &body, err) : -ENOENT;
    if (r == 0)
        r = service_packages_decode(body, work->s, &work->recipe, err);
    json_decref(body);
    if (r == 0)
        r = service_images_check(req->state, err);
    if (r == 0 && http_accepts(req, "text/event-stream"))
        return build_events_reply(
            req, &(struct build_work){run_work, end_work, work}, reply, err);
    if (r == 0)
        r = reply_installed(req, work, reply, err);
    end_work(work);
    return r;
}

/* Decodes {name}. */
static int read_name(const json_t *body, const char **ret, struct err *err)
{
    int r = json_known(body, (const char *const[]){"name", NULL}, NULL, err);
    if (r < 0)
        return r;
    *ret = json_string_value(json_object_get(body, "name"));
    return *ret ? 0
                : err_field(err, "name", "name must be a string: the name of the new image");
}

int handle_session_commit(struct http_request *req, struct http_reply *reply, struct err *err)
{
    CLEANUP(image_done) struct image image = {0};
    json_t *body = NULL;
    const char *name = NULL;
    struct session *s = find_session(req, err);
    int r = s ? read_body(req, &body, err) : -ENOENT;
    if (r == 0)
        r = read_name(body, &name, err);
    if (r == 0)
        r = service_packages_commit(req->state, s, name, &image, err);
    if (r == 0)
        reply_value(reply, 201, image_json(&image));
    json_decref(body);
    session_unref(s);
    return r;
}
