/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The sections `[backend NAME]` of the settings: places for sessions outside of boxes, and
 * which keys may use them (proto/place.h). */

#include "base/buf.h"
#include "base/strv.h"
#include "proto/place.h"

/* Sets one line of a section. Returns NULL, or what is wrong with it. */
const char *place_table_set(
    struct place_table *table, const char *name, const char *key, const char *value);

/* Adds the row `docker` for every caller, unless there is a row of this name. */
const char *place_table_add_docker(struct place_table *table, const char *socket);

/* Completes the rows. Adds a line to `problems` for each that lacks something. */
void place_table_check(struct place_table *table, struct strv *problems);

/* Writes the sections as a server needs them: without the addresses and keys of places. */
int place_table_write(const struct place_table *table, struct buf *to);

/* The number of a row that the key of this name ("": no key) may use; -1 when there is none,
 * whether it does not exist or is not for this key. */
int place_table_find(const struct place_table *table, const char *name, const char *key);
bool place_row_is_for(const struct place_row *row, const char *key);
