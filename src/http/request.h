/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One request, from its first line to its end, as the library tells of it. */

#include <microhttpd.h>
#include <stddef.h>

/* The request line is there; context is the service. What this returns is the request's own
 * context, for the other two. */
void *request_begin(void *context, const char *uri, struct MHD_Connection *mhd);

/* The headers, each piece of the body, and its end. */
enum MHD_Result request_go_on(void *context, struct MHD_Connection *mhd, const char *url,
    const char *method, const char *version, const char *data, size_t *data_size,
    void **request);

/* It is over, one way or another. */
void request_end(void *context, struct MHD_Connection *mhd, void **request,
    enum MHD_RequestTerminationCode how);
