/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Shared by the files of plug-ins. */

#include "backend/backend.h"
#include "backend/plugin_frame.h"

#include <jansson.h>

enum {
    PLUGIN_LOG = 64 << 10, /* kept of the plug-in's stderr: its end */
    PLUGIN_READY_MS = 15000,
    PLUGIN_STREAM_MS = 60000,
    PLUGIN_CLOSE_MS = 75000, /* a vendor may write a snapshot */
};

/* How a conversation went: in memory that the relay shares. */
struct plugin_verdict {
    enum place_error error;
    char words[PLUGIN_WORDS];
    uint32_t in_force;      /* bits of enum place_limit */
    enum place_limit limit; /* of PLACE_LIMIT */
};

/* An order to a plug-in. */
struct plugin_order {
    const struct backend *b;
    struct plugin_verdict *verdict;
    bool is_again; /* the place must be there */
    bool destroys; /* at the end of the session */
    uint64_t open_ms;
    int lock_fd; /* of all sessions in this place */
    /* Compares the features that the plug-in declares with the order; fills in the verdict. */
    enum place_error (*check)(
        const struct plugin_order *order, const struct plugin_ready *ready);
    json_t *(*request)(const struct plugin_order *order); /* for `open` */
    void (*opened)(const struct plugin_order *order);
    bool (*is_last)(const struct plugin_order *order); /* of the sessions in this place */
};

/* plugin_talk.c: talks until the stream, the plug-in or the session ends. `in` and `out` are
 * the relay's side; its first line is the script that the place executes. */
void plugin_talk(
    const struct plugin_order *order, struct backend_stream *plugin, int in, int out);
