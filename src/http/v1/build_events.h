/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A build as a stream of events: `log` and `progress` while it runs, then one `end` with the
 * answer or the error. When the client leaves, the build ends. */

#include "http/http.h"
#include "service/image.h"

#include <jansson.h>

struct build_work {
    int (*run)(
        void *context, const struct service_log *log, json_t **ret_answer, struct err *err);
    void (*done)(void *context); /* called once, after the work, also after an error */
    void *context;
};

int build_events_reply(struct http_request *req, const struct build_work *work,
    struct http_reply *reply, struct err *err);
