/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A command that starts a server of its own when no server is named and none answers:
 * `hermes exec`, `hermes backends`, `hermes session repl`. */

#include "base/err.h"
#include "cli/session/client.h"
#include "cli/session/consent.h"
#include "cli/session/own_settings.h"

#include <jansson.h>
#include <stdbool.h>

struct own_command {
    const char *name; /* of the command, for its questions */
    struct own_wish wish;
    bool is_wanted;       /* --own-server: also when a server answers */
    bool is_given;        /* --yes */
    const char *rules;    /* --rules, or NULL */
    const char *refusal;  /* why a server of its own cannot do this, or NULL */
    struct client client; /* of the server that is used */
    json_t *session;      /* body of POST /v1/sessions, which gets the backend; or NULL */
    /* `consent` is NULL when a server is used that has approvers of its own. */
    int (*run)(void *context, struct consent *consent, struct err *err);
    void *context;
};

/* Calls `run` with a server that answers, or with one that only this command has. */
int own_command_run(struct own_command *c, struct err *err);
