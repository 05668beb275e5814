/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* When `hermes exec` starts a server of its own, its caller answers that server's questions
 * about commands outside of boxes: at the terminal, or by --yes. */

#include "cli/session/client.h"

#include <pthread.h>

struct consent {
    const struct client *client;
    bool is_given; /* --yes */
    int terminal;  /* -1: there is none */
    int over[2];   /* a pipe; closed at the end */
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;
    pthread_cond_t change;
    bool is_listening, has_ended; /* of the stream of questions */
};

/* Begins to answer. Without a terminal and without --yes there is no answer, and the server
 * refuses. */
int consent_start(
    struct consent *c, const struct client *client, bool is_given, struct err *err);

/* After the server has ended, or is about to. */
void consent_stop(struct consent *c);

/* Adds the next step to the error of a command that needed an approval when no one could be
 * asked. */
void consent_explain(struct err *err);
