/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Attacks the boxes of a running server with the cases of `hermes selftest`. The programs take
 * the way of every run: admission, and the sealed table. A server cannot plant canaries on the
 * host and cannot leave a barrier out, so cases that need canaries are skipped, and there are
 * no controls. */

#include "state/state.h"

#include <jansson.h>

enum { SELFTEST_IDS_MAX = 256, SELFTEST_ID_MAX = 64 };

struct selftest;

/* Begins a selftest: one at a time, else ERR_CONFLICT. `ids` is a list of ids or globs such as
 * "O-2*", or NULL for all cases; the caller has checked that they are strings. It ends early
 * when cancel_fd is readable. ERR_UNSUPPORTED when the cases are not installed. */
int selftest_open(struct state *state, int owner, const json_t *ids, int cancel_fd,
    struct selftest **ret, struct err *err);
void selftest_close(struct selftest *s); /* accepts NULL */

/* Does the next step: 1 with the name and data of an event ("start", then "case" for each, then
 * "end"), 0 when there is no more, -ECANCELED. The caller owns *ret_data. */
int selftest_next(struct selftest *s, const char **ret_name, json_t **ret_data);
