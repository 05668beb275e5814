/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Shared by the files of hermes-reach. */

#include "proto/reach.h"

#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>

struct call; /* one HTTP request under way */

struct reach {
    struct reach_table table;
    int calls_fd;
    CURLM *multi;
    size_t count;                         /* calls under way */
    size_t webhooks;                      /* of these */
    struct call *waiting, **last_waiting; /* webhooks without room, the oldest first */
    size_t waiting_count;
};

/* call.c: begins a call; takes the descriptors. */
void call_begin(struct reach *reach, const struct reach_call *message, int fds[REACH_CALL_FDS]);

/* Moves every call on, and answers the calls that have ended. */
void calls_advance(struct reach *reach);

/* confine.c */
int confine_identity(void);
int confine_rest(void);
