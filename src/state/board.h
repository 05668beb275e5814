/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The board lists the runs and judgements that wait or run now (GET /v1/status), and the
 * connections that follow it (GET /v1/events). Any thread may call any function. */

#include "base/err.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Most listeners at one time, of all keys and of one. */
enum { LISTENERS_MAX = 64, LISTENERS_PER_KEY = 8 };

/* Belongs to the thread that does the work. Texts are borrowed. */
struct board_entry {
    const char *id;
    const char *kind; /* "run", "judge" */
    const char *language;
    int owner;       /* index of the key, -1 for none */
    int64_t since_s; /* wall clock; board_post() fills it in */
    bool is_running; /* admitted; false while it waits */
    struct board_entry *newer;
    struct board_entry *older;
};

struct board_listener {
    int owner;
    struct board_listener *next;
};

struct board {
    pthread_mutex_t lock;
    struct board_entry *newest;
    struct board_listener *listeners;
};

void board_open(struct board *board);
void board_close(struct board *board); /* all entries must have been removed */

void board_post(struct board *board, struct board_entry *entry);
void board_start(struct board *board, struct board_entry *entry);
void board_remove(struct board *board, struct board_entry *entry);

/* Calls `see` for each entry, the newest first, with the lock held. */
void board_each(struct board *board,
    void (*see)(void *context, const struct board_entry *entry), void *context);

/* Counts a listener. ERR_BUSY when there are too many. */
int board_listen(struct board *board, struct board_listener *listener, struct err *err);
void board_unlisten(struct board *board, struct board_listener *listener);
