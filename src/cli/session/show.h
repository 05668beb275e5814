/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What hermes-session prints. */

#include <jansson.h>
#include <stdbool.h>

void show_json(const json_t *value);

/* Answers of the server, for people. */
void show_id(const json_t *session);
void show_copies(const json_t *answer);
void show_sessions(const json_t *answer);
void show_jobs(const json_t *answer);
void show_files(const json_t *listing);
void show_checkpoint(const json_t *checkpoint);
void show_checkpoints(const json_t *answer);

/* The exit status that an answer of an exec stands for, as `hermes run` has it. */
int show_exit_status(const json_t *answer);

/* Prints events of an exec as they come (client_event of session_client.h). */
struct show {
    int exit_status;
    bool state_lost;
};
void show_event(void *context, const char *name, const json_t *data);
