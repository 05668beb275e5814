/* SPDX-License-Identifier: Apache-2.0 */

/* POST /v1/selftest. The connection's thread runs one case after the other and sends an event
 * for each. When the client leaves, the case that runs is cancelled. */

#include "service/selftest.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "http/call.h"
#include "http/routes.h"
#include "run/encode.h"
#include "json/body.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

struct reader {
    struct selftest *selftest;
    struct http_request *req; /* NULL until the first event is read */
    int cancel_fd;
    unsigned long long count; /* events sent */
};

static int read_event(void *context, struct http_request *req, struct buf *to)
{
    struct reader *reader = context;
    const char *name = NULL;
    json_t *data = NULL;
    if (!reader->req)
        http_follow(req, reader->cancel_fd);
    reader->req = req;
    if (req->state->stopping)
        return 0;
    int r = selftest_next(reader->selftest, &name, &data);
    if (r <= 0)
        return r;
    cleanup_free char *text = json_dumps(data, JSON_COMPACT | RESULT_JSON_FLAGS);
    json_decref(data);
    return text && buf_printf(to, "id: %llu\nevent: %s\ndata: %s\n\n", ++reader->count, name,
                       text) == 0
               ? 1
               : -ENOMEM;
}

static void end_reading(void *context)
{
    struct reader *reader = context;
    if (reader->req)
        http_unfollow(reader->req);
    selftest_close(reader->selftest);
    close_fd(&reader->cancel_fd);
    free(reader);
}

static int check_ids(const json_t *ids, struct err *err)
{
    bool fits = json_is_array(ids) && json_array_size(ids) >= 1 &&
                json_array_size(ids) <= SELFTEST_IDS_MAX;
    for (size_t i = 0; fits && i < json_array_size(ids); i++) {
        const json_t *id = json_array_get(ids, i);
        size_t len = json_string_length(id);
        fits = json_is_string(id) && len >= 1 && len <= SELFTEST_ID_MAX &&
               strlen(json_string_value(id)) == len;
    }
    return fits ? 0
                : err_field(err, "ids", "ids must be a list of 1 to %d texts of 1 to %d bytes",
                      SELFTEST_IDS_MAX, SELFTEST_ID_MAX);
}

/* The caller owns *ret_body, which may be NULL; *ret_ids is borrowed from it. */
static int decode(
    const struct http_request *req, json_t **ret_body, const json_t **ret_ids, struct err *err)
{
    *ret_body = NULL;
    *ret_ids = NULL;
    int r = req->body.len ? json_run_parse(req->body.data, req->body.len, ret_body, err) : 0;
    if (r < 0 || !*ret_body)
        return r;
    r = json_known(*ret_body, (const char *const[]){"ids", NULL}, NULL, err);
    if (r < 0)
        return r;
    *ret_ids = json_object_get(*ret_body, "ids");
    return *ret_ids ? check_ids(*ret_ids, err) : 0;
}

int handle_selftest(struct http_request *req, struct http_reply *reply, struct err *err)
{
    json_t *body;
    const json_t *ids;
    struct selftest *selftest = NULL;
    cleanup_close int cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (cancel_fd < 0)
        return err_set(err, ERR_UNAVAILABLE, errno,
            "the server has no descriptor left for this request; try again later");
    int r = decode(req, &body, &ids, err);
    if (r == 0)
        r = selftest_open(req->state, req->owner, ids, cancel_fd, &selftest, err);
    json_decref(body);
    if (r < 0)
        return r;
    struct reader *reader = xcalloc(1, sizeof(*reader));
    reader->selftest = selftest;
    reader->cancel_fd = take_fd(&cancel_fd);
    reply_events(reply, read_event, end_reading, reader);
    return 0;
}
