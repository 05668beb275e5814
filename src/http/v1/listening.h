/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A client that listens to news on a stream of events. Its thread looks for them now and then,
 * and sends a comment when there was nothing to tell for a while. */

#include "http/call.h"

struct listening {
    /* Appends what is new: 1 when there was something, 0, or negative errno. */
    int (*tell)(struct listening *l, struct http_request *req, struct buf *to);
    void (*end)(struct listening *l); /* the client is gone: frees it */
    unsigned every_ms;                /* between two looks */
    uint64_t looked_ms;               /* when tell() was last called, 0 for never */
    uint64_t spoke_ms;                /* when the last bytes were sent */
};

/* Makes the reply the stream of this listener, which it takes. */
void listening_reply(struct http_reply *reply, struct listening *l);
