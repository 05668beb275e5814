/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Replies whose body comes from reply->read, piece by piece, on the connection's thread. */

#include "http/http.h"

struct MHD_Response;

/* NULL when there is no memory. */
struct MHD_Response *stream_response(struct http_request *req, const struct http_reply *reply);
