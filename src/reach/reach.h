/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Shared by the files of hermes-reach. */

#include "proto/reach.h"

#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct call; /* one HTTP request under way */

struct reach {
    struct reach_table table;
    int table_fd; /* the same with the far shell behind it; places_start() closes it */
    int calls_fd;
    CURLM *multi;
    size_t count;                         /* calls under way */
    size_t webhooks;                      /* of these */
    struct call *waiting, **last_waiting; /* webhooks without room, the oldest first */
    size_t waiting_count;
    int starter_fd; /* to the process that starts local commands; -1: there is none */
    int places_fd;  /* to the process that opens places; -1: there is none */
    pid_t places_pid;
};

/* call.c: begins a call; takes the descriptors. */
void call_begin(struct reach *reach, const struct reach_call *message, int fds[REACH_CALL_FDS]);

/* Moves every call on, and answers the calls that have ended. */
void calls_advance(struct reach *reach);

/* confine.c. confine_places() is for the process that opens places and executes programs.
 * confine_engine() is for a child of it that needs the socket of a container engine and a lock
 * in `dir`. */
int confine_identity(void);
int confine_rest(void);
int confine_places(bool with_namespaces);
int confine_engine(const char *dir);

/* starter.c: starts a process that still can execute setuid programs, if a row of `local`
 * permits sudo. Call it before confine_identity(). It ends with the last process that has
 * starter_fd. */
int starter_start(struct reach *reach);

/* places.c: starts that half, if there are places; passes a call on to it (takes the PLACE_FDS
 * descriptors). */
int places_start(struct reach *reach);
void places_pass(const struct reach *reach, const struct reach_call *call, const int *fds);
void places_stop(struct reach *reach);
