/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Signals while the server runs code. Ctrl-C becomes a call of a route from another thread,
 * because the main thread waits for the stream. */

#include "cli/session/client.h"

#include <pthread.h>
#include <stdatomic.h>

struct interrupter {
    const struct client *client;
    pthread_t thread;
    pthread_mutex_t lock;
    const char *method; /* with path: what Ctrl-C calls; NULL: nothing runs */
    char *path;
    bool keeps_early; /* Ctrl-C before the first interrupt_begin() counts, too */
    bool is_pending;  /* an early Ctrl-C has come */
    atomic_bool is_over;
    /* Called on SIGHUP and SIGTERM, which then end the program; NULL: they end it at once. */
    void (*leave)(void *context);
    void *context;
};

/* Blocks the signals and starts the thread. The caller may set `leave` and `keeps_early`
 * before; other members are zero. */
int interrupt_start(struct interrupter *in, const struct client *client, struct err *err);
void interrupt_stop(struct interrupter *in);

/* From now on Ctrl-C calls the route, until interrupt_end(). Copies path. */
void interrupt_begin(struct interrupter *in, const char *method, const char *path);
void interrupt_end(struct interrupter *in);
