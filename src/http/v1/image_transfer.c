/* SPDX-License-Identifier: Apache-2.0 */

/* /v1/images/import and /v1/images/{name}/export. The body of an import goes to a file of the
 * image store as it comes. An export is packed before the reply begins, so that the client gets
 * a whole archive or an error. A client that leaves ends either. */

#include "service/image_transfer.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "http/call.h"
#include "http/routes.h"
#include "http/v1/sessions.h"
#include "run/encode.h"

#include <errno.h>

static void end_transfer(void *context)
{
    service_transfer_done(context);
}

static int write_import(void *context, const char *data, size_t len, struct err *err)
{
    return service_import_write(context, data, len, err);
}

static int finish_import(
    void *context, struct http_request *req, struct http_reply *reply, struct err *err)
{
    CLEANUP(image_done) struct image image = {0};
    int cancel_fd = follow_begin(req, err);
    if (cancel_fd < 0)
        return cancel_fd;
    int r = service_import_finish(context, cancel_fd, &image, err);
    follow_end(req, cancel_fd);
    if (r == 0)
        reply_value(reply, 201, image_json(&image));
    return r;
}

int handle_image_import(struct http_request *req, struct http_reply *reply, struct err *err)
{
    const char *length = http_header(req, "Content-Length");
    struct image_import_request asked = {.name = http_query(req, "name"),
        .language = http_query(req, "language"),
        .wanted = http_query(req, "ref")};
    struct image_transfer *transfer = NULL;
    if (length && str_parse_u64(length, &asked.size) < 0)
        return err_set(err, ERR_TOO_LARGE, EFBIG, "the body is too large");
    int r = service_import_begin(req->state, req->owner, &asked, &transfer, err);
    if (r == 0)
        req->sink = (struct http_sink){write_import, finish_import, end_transfer, transfer};
    return r;
}

static int read_export(void *context, struct http_request *req, struct buf *to)
{
    return service_export_read(context, to);
}

int handle_image_export(struct http_request *req, struct http_reply *reply, struct err *err)
{
    struct image_export options;
    struct image_transfer *transfer = NULL;
    uint64_t size = 0;
    int r = image_export_parse(
        http_query(req, "format"), http_query(req, "compression"), &options, err);
    if (r < 0)
        return r;
    int cancel_fd = follow_begin(req, err);
    if (cancel_fd < 0)
        return cancel_fd;
    options.cancel_fd = &cancel_fd;
    r = service_export(req->state, req->owner, req->params[0], &options, &transfer, &size, err);
    follow_end(req, cancel_fd);
    if (r < 0)
        return r;
    reply->status = 200;
    reply->content_type = "application/x-tar";
    reply->is_exact = true;
    reply->has_size = true;
    reply->size = size;
    reply->read = read_export;
    reply->done = end_transfer;
    reply->context = transfer;
    reply_header(reply, "Content-Disposition", "attachment; filename=\"image.tar\"");
    return 0;
}
