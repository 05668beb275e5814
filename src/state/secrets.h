/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Secrets of the operator that a request names (docs/secrets.md). The server knows where they
 * go to, and never their values. */

#include "base/err.h"
#include "base/strv.h"
#include "state/state.h"

/* The parts of a request that its secrets change. */
struct secrets_target {
    struct network_policy **policy; /* gets the hosts, and the bits of the secrets */
    struct strv *env;               /* gets the variables that name the authorities */
    const struct run_files **trust; /* becomes the files with the authorities */
};

/* Adds the secrets of these names. ERR_FORBIDDEN, in the same words, for a secret that does not
 * exist and for one that is not for this key; `field` names the list. */
int state_secrets_apply(const struct state *state, int owner, const struct strv *names,
    const char *field, const struct secrets_target *to, struct err *err);

/* The same for a run. */
int state_secrets_apply_run(const struct state *state, int owner, struct run_spec *spec,
    const char *field, struct err *err);

/* The same for the secrets (bits) that a session has already, when its policy changes. */
int state_secrets_keep(const struct state *state, uint32_t secrets,
    struct network_policy **policy, struct err *err);

/* Reads the files with the authorities, which hermes-prepare has made. */
int state_secrets_read_trust(struct state *state, int fd, struct err *err);
