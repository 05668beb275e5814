/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The settings of a server that one command starts for itself, from the caller's
 * ~/.hermes/config.yaml and the variables TERMINAL_*. */

#include "base/buf.h"
#include "base/err.h"
#include "base/strv.h"

#include <stdbool.h>

/* What the command asks for. */
struct own_wish {
    const char *backend;  /* that the command line names, or NULL */
    const char *language; /* of the session; NULL: bash */
    bool lists_all;       /* all places of the file, not only that of the command */
};

struct own_settings {
    struct buf text;     /* of the settings file */
    struct strv env;     /* of the server */
    struct strv notes;   /* keys of the caller's file that are not used */
    const char *warning; /* what a prompt does not do as the caller says, or NULL */
    char backend[64];    /* where the command runs */
};

/* `dir` is the directory of the server. own_settings_done() frees *ret in any case. */
int own_settings_make(
    const char *dir, const struct own_wish *wish, struct own_settings *ret, struct err *err);
void own_settings_done(struct own_settings *s);
