/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Shared by the files of hermes-places. */

#include "proto/place.h"

#include <stdbool.h>

/* confine.c. confine_clients() is for the program and the processes that it executes.
 * confine_engine() is for a child of it that needs the socket of a container engine and a lock
 * in `dir`. */
int confine_clients(bool with_namespaces);
int confine_engine(const char *dir);
/* Bounds where the client of this row can write; nothing for kinds that need more. */
int confine_writing(const struct place_row *row, const char *control_dir);

/* starter.c: starts a process that still can execute setuid programs, if a row of `local`
 * permits sudo. Call it before process_give_up(), but after the memory of this process
 * has been closed to others. The process ends when the last holder of *ret_fd has ended;
 * *ret_fd is -1 when there is no such process. Returns 0 or negative errno. */
int starter_start(const struct place_table *table, int *ret_fd);
