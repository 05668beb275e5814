/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The sections `[secret NAME]` of the settings: where a secret goes to, and which keys may use
 * it. The value itself is in a file that only hermes-prepare reads; no program but
 * hermes-inject keeps it. */

#include "base/buf.h"
#include "base/strv.h"
#include "proto/network.h"

#include <stdbool.h>
#include <stdint.h>

struct secret_def {
    char *name;
    char *file; /* with the value; "" in a server */
    char *host; /* as it was written, with its port */
    char *header;
    char *format; /* with one {} in it, where the value stands */
    char *keys;   /* names with commas between; or * */
    char *trust;  /* file with the authorities of the host; "" for those of the system */
    struct network_entry entry; /* host and port */
};

struct secret_table {
    struct secret_def items[NETWORK_MAX_SECRETS];
    size_t count;
};

/* Sets one line of a section. Returns NULL, or what is wrong with it. */
const char *secret_table_set(
    struct secret_table *table, const char *name, const char *key, const char *value);

/* Completes the secrets. Adds a line to `problems` for each that lacks something. */
void secret_table_check(struct secret_table *table, struct strv *problems);

/* Writes the sections as a server needs them: without paths. */
int secret_table_write(const struct secret_table *table, struct buf *to);
void secret_table_done(struct secret_table *table);

/* The index of a secret that the key of this name ("": no key) may use; -1 when there is none,
 * whether it does not exist or is not for this key. */
int secret_table_find(const struct secret_table *table, const char *name, const char *key);

/* Calls `visit` for each key that a secret names. */
void secret_def_keys(
    const struct secret_def *def, void (*visit)(void *context, const char *key), void *context);
