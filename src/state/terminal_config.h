/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The section `terminal:` of a config.yaml that users of the Hermes agent have, as backends
 * (docs/backends.md has the table of its keys). */

#include "base/buf.h"
#include "base/strv.h"
#include "proto/place.h"

#include <stddef.h>

enum { TERMINAL_CONFIG_MAX = 256 << 10 };

/* Adds a backend for each place that the text sets up. `problems` gets the errors of the text,
 * `notes` the keys that are unknown or have no meaning here. */
void terminal_config_read(const char *text, size_t len, struct place_table *table,
    struct strv *problems, struct strv *notes);

/* The same section in the file of a caller, whose command starts a server of its own. The
 * variables TERMINAL_* win over the file. */
struct terminal_caller {
    const char *(*variable)(const char *name); /* getenv(), or that of a test */
    char *const *environment; /* to list variables that are not used, or NULL */
    const char *home, *cwd;   /* absolute paths, or NULL */
    const char *no_mount;     /* why cwd cannot be mounted, or NULL */
    const char *backend;      /* backend that the command names, or NULL */
    bool lists_all;           /* all places, not only that of the command */
};
struct terminal_own {
    struct buf sections; /* for the setting `backends` of that server */
    char backend[64];    /* where the command runs */
    bool wants_fresh;    /* persistent_shell is no: each command has a new shell */
    char *forward_env;   /* variables that this server needs, with commas between */
};

/* `text` is NULL when there is no file. terminal_own_done() frees *ret, also after problems. */
void terminal_config_read_own(const char *text, size_t len,
    const struct terminal_caller *caller, struct terminal_own *ret, struct strv *problems,
    struct strv *notes);
void terminal_own_done(struct terminal_own *own);
