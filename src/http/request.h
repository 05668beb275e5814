/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The three callbacks of libmicrohttpd for one request, from its first line to its end. */

#include <microhttpd.h>
#include <stddef.h>

/* Called with the request line. `context` is the struct state. Returns the request, which the
 * other two callbacks get. */
void *request_begin(void *context, const char *uri, struct MHD_Connection *mhd);

/* Called with the headers, with each piece of the body, and at its end. */
enum MHD_Result request_go_on(void *context, struct MHD_Connection *mhd, const char *url,
    const char *method, const char *version, const char *data, size_t *data_size,
    void **request);

/* Called when the request is over for any reason. */
void request_end(void *context, struct MHD_Connection *mhd, void **request,
    enum MHD_RequestTerminationCode how);
