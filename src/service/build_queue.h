/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Which build of an image is next. One runs at a time. Keys take turns, so a key with many
 * builds delays another key by one build at most. A build that equals one that waits or runs
 * joins it: it holds no place and ends with it. */

#include "base/err.h"

#include <stddef.h>

/* Builds that run or wait for their turn: of all keys, and of one. */
enum { BUILD_QUEUE_MAX = 32, BUILD_QUEUE_KEY_MAX = 4 };

struct build_queue;
struct build_queue *build_queue_new(void);
void build_queue_free(struct build_queue *queue); /* accepts NULL */

/* One caller. `owner` and `recipe` are filled in and stay until the caller leaves; the rest
 * belongs to the queue. */
struct build_call {
    int owner;          /* index of the key, -1 for none */
    const char *recipe; /* equal texts: equal builds of one owner */
    int state;
    int wake_fd;
    int result;
    struct err err;
    struct build_call *next;
};

enum { BUILD_TURN = 1 };

/* Waits. BUILD_TURN: it is the caller's turn; it calls build_queue_leave() afterwards. 0: an
 * equal build has succeeded meanwhile. Negative: an equal build has failed, too many wait
 * (ERR_BUSY), or cancel_fd (or -1) became readable. */
int build_queue_enter(
    struct build_queue *queue, struct build_call *call, int cancel_fd, struct err *err);

/* Ends a turn with the result of the build. Builds that joined get the error if the recipe
 * is to blame; otherwise one of them builds. */
void build_queue_leave(
    struct build_queue *queue, struct build_call *call, int result, const struct err *err);

/* How many callers are there: with a turn, waiting or joined. */
size_t build_queue_count(struct build_queue *queue);
