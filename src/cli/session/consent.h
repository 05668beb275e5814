/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* When a command starts a server of its own, its caller answers that server's questions about
 * commands outside of boxes: at the terminal, or by --yes. */

#include "cli/session/client.h"

#include <pthread.h>

struct consent {
    const struct client *client;
    const char *command; /* that asks */
    bool is_given;       /* --yes */
    int terminal;        /* -1: there is none */
    int over[2];         /* a pipe; closed at the end */
    int settled;         /* eventfd: the question that is shown has no asker any more */
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;
    pthread_cond_t change;
    bool is_listening, has_ended; /* of the stream of questions */
    bool is_asking;               /* the terminal is read */
};

/* Begins to answer. Without a terminal and without --yes there is no answer, and the server
 * refuses. */
int consent_start(struct consent *c, const struct client *client, const char *command,
    bool is_given, struct err *err);

/* What was asked for has ended, perhaps without an answer (Ctrl-C). After this call the
 * terminal is the caller's again. */
void consent_settle(struct consent *c);

/* After the server has ended, or is about to. */
void consent_stop(struct consent *c);

/* Adds the next step to the error of a command that needed an approval when no one could be
 * asked. */
void consent_explain(struct err *err);
