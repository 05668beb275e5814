/* SPDX-License-Identifier: Apache-2.0 */

/* See board.h. */

#include "state/board.h"

#include <errno.h>
#include <time.h>

enum { RETRY_S = 5 }; /* for a listener that is refused */

void board_open(struct board *board)
{
    *board = (struct board){0};
    (void)pthread_mutex_init(&board->lock, NULL);
}

void board_close(struct board *board)
{
    (void)pthread_mutex_destroy(&board->lock);
}

void board_post(struct board *board, struct board_entry *entry)
{
    entry->since_s = (int64_t)time(NULL);
    entry->is_running = false;
    entry->newer = NULL;
    (void)pthread_mutex_lock(&board->lock);
    entry->older = board->newest;
    if (board->newest)
        board->newest->newer = entry;
    board->newest = entry;
    (void)pthread_mutex_unlock(&board->lock);
}

void board_start(struct board *board, struct board_entry *entry)
{
    (void)pthread_mutex_lock(&board->lock);
    entry->is_running = true;
    (void)pthread_mutex_unlock(&board->lock);
}

void board_remove(struct board *board, struct board_entry *entry)
{
    (void)pthread_mutex_lock(&board->lock);
    if (entry->newer)
        entry->newer->older = entry->older;
    else
        board->newest = entry->older;
    if (entry->older)
        entry->older->newer = entry->newer;
    (void)pthread_mutex_unlock(&board->lock);
}

void board_each(struct board *board,
    void (*see)(void *context, const struct board_entry *entry), void *context)
{
    (void)pthread_mutex_lock(&board->lock);
    for (const struct board_entry *at = board->newest; at; at = at->older)
        see(context, at);
    (void)pthread_mutex_unlock(&board->lock);
}

int board_listen(struct board *board, struct board_listener *listener, struct err *err)
{
    unsigned all = 0;
    unsigned own = 0;
    (void)pthread_mutex_lock(&board->lock);
    for (const struct board_listener *at = board->listeners; at; at = at->next) {
        all++;
        own += at->owner == listener->owner;
    }
    bool fits = all < LISTENERS_MAX && own < LISTENERS_PER_KEY;
    if (fits) {
        listener->next = board->listeners;
        board->listeners = listener;
    }
    (void)pthread_mutex_unlock(&board->lock);
    if (fits)
        return 0;
    int r = err_set(err, ERR_BUSY, EAGAIN,
        "too many listeners: %d of all keys together and %d of one key may listen at one time",
        LISTENERS_MAX, LISTENERS_PER_KEY);
    return err_retry(err, r, RETRY_S);
}

void board_unlisten(struct board *board, struct board_listener *listener)
{
    struct board_listener **at = &board->listeners;
    (void)pthread_mutex_lock(&board->lock);
    while (*at != listener)
        at = &(*at)->next;
    *at = listener->next;
    (void)pthread_mutex_unlock(&board->lock);
}
