/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The output of hermes-session. */

#include <jansson.h>
#include <stdbool.h>

void show_json(const json_t *value);

/* Print answers of the server for people. */
void show_id(const json_t *session);
void show_copies(const json_t *answer);
void show_sessions(const json_t *answer);
void show_jobs(const json_t *answer);
void show_files(const json_t *listing);
void show_checkpoint(const json_t *checkpoint);
void show_checkpoints(const json_t *answer);

/* The exit status for an exec's answer, with the values of `hermes run`. `signaled` is always
 * 137, because the answer does not name the signal. */
int show_exit_status(const json_t *answer);

/* Prints the events of an exec as they come (client_event of client.h). */
struct show {
    int exit_status;
    bool state_lost;
};
void show_event(void *context, const char *name, const json_t *data);
